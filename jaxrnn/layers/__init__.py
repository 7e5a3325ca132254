"""Layers: maps from sequence to sequence with an explicit carry."""
