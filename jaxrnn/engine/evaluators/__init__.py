"""Evaluators: how a cell is run over time. An evaluator knows no cell."""
