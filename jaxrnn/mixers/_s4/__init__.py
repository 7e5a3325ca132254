"""S4: its layer, and the algebra of a diagonal plus low-rank matrix."""
