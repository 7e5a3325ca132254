"""Products of inputs with kernels."""

from typing import Any

import jax.numpy as jnp


def affine(xs: Any, kernel: Any, bias: Any) -> Any:
    """x W + b, or x W where b is None."""
    return xs @ kernel if bias is None else xs @ kernel + bias


def by_block(xs: Any, kernel: Any) -> Any:
    """x W of a block-diagonal W: `[..., blocks*K]` and `[blocks, K, G]` to `[..., blocks, G]`."""
    num_blocks, width, _ = kernel.shape
    blocks = xs.reshape(*xs.shape[:-1], num_blocks, width)
    return jnp.einsum("...bk,bkg->...bg", blocks, kernel)
