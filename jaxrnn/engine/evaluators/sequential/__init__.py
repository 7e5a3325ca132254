"""`sequential`: the plain scan over the steps, and a reverse rule for its derivative."""
