"""`sequential`: the plain scan over the steps, and a rule for its derivative."""
