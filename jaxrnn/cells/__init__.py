"""Cells: one model a file."""
