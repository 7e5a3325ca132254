"""One step after another: the plain scan, and a reverse rule for its derivative."""
