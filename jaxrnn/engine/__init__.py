"""The engine: what `unroll` does with any cell or layer. For writers of models, not for users."""
