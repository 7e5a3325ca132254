"""What float32 costs over long sequences: every model against itself in float64."""
