"""The engine, which evaluates cells and layers over time: for writers of models, not for users."""
