"""Loaders of the data that experiments learn from."""
