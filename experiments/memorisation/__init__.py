"""Which earlier characters a prediction depends on, as a page to point at."""
