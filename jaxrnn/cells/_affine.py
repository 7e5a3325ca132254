"""A product with a bias that may be left out."""

from typing import Any


def affine(xs: Any, kernel: Any, bias: Any) -> Any:
    """x W + b, or x W where b is None."""
    return xs @ kernel if bias is None else xs @ kernel + bias
