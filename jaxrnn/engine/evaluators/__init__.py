"""Evaluators: the ways to run a cell over time. None of them knows a particular cell."""
