"""Vanishing and exploding gradients: Jacobians, gates, number formats, clipping, truncation."""
