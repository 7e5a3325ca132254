"""When Newton's method on a whole sequence converges: scaled GRUs, and cells that read texts."""
