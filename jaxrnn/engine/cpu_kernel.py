"""A loop of elementwise steps as one kernel of XLA's CPU backend."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

# XLA gives a loop over a few bytes this mark itself; a loop over more runs each operation of
# each step through its dispatcher, 30 ns apiece. A version that does not know the mark ignores it.
_ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
# A step of so many bytes XLA spreads over cores, and one kernel has one.
_WIDE = 2**18


def in_one_kernel(loop: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """`loop`, compiled on CPU as a single kernel, which runs narrow steps several times faster.

    Only elementwise operations, slices and updates may be in `loop`: XLA cannot compile a matrix
    product there. The mark has no derivative, so this belongs below a rule for one. On other
    platforms it is `loop` as it is, and so it is where a step is 256 KiB or more, or of an unknown
    size; under `jax.vmap` one row's step counts.

    Args:
        loop: From trees of arrays to one array `[T, ...]`.

    Returns:
        The same function of the same arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> def sums(xs):
        ...     return lax.scan(lambda sum, x: (sum + x, sum + x), jnp.zeros_like(xs[0]), xs)[1]
        >>> in_one_kernel(sums)(jnp.arange(4.0))
        Array([0., 1., 3., 6.], dtype=float32)
    """
    inner = jax.jit(loop)

    @jax.jit  # the call must be inside a program to be seen
    def marked(*args: Any) -> Any:
        return set_xla_metadata(inner(*args), **_ONE_KERNEL)

    @functools.wraps(loop)
    def call(*args: Any) -> jax.Array:
        if not _is_narrow(jax.eval_shape(inner, *args)):
            return loop(*args)
        return lax.platform_dependent(*args, cpu=marked, default=loop)

    return call


def _is_narrow(steps):
    sizes = steps.shape[1:]
    known = all(isinstance(size, int) for size in sizes)
    return known and math.prod(sizes) * steps.dtype.itemsize < _WIDE
