"""Experiments that each show one claim: `python -m experiments` lists them."""
