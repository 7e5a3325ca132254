"""Newton's method on a whole sequence, and the linear system that each iteration solves."""
