"""Digits pixel by pixel: RNNs, state-space models and attention at one size, measured."""
