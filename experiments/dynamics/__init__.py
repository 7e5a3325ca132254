"""What a trained recurrence computes with: its fixed points, and how fast it moves near them."""
