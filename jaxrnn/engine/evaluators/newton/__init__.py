"""Newton's method on a whole sequence, and the linear recurrence that each iteration solves."""
