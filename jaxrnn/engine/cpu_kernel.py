"""A loop of elementwise steps, compiled as one kernel by XLA's CPU backend."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from jaxrnn.engine import checks

# XLA gives a loop over a few bytes this mark itself. In a larger loop each operation of each step
# passes through its dispatcher, which takes 30 ns: more than the arithmetic of a narrow step.
# The mark is not a documented interface; a version of XLA that does not know it ignores it.
_ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
# XLA spreads a step of this many bytes over several cores; a kernel runs on one.
_WIDE = 2**18


def in_one_kernel(loop: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The loop, compiled on CPU as a single kernel, which runs narrow steps several times faster.

    The loop may contain only elementwise operations, slices and updates: XLA cannot compile a
    matrix product in such a kernel. The mark has no derivative, so the loop must be called below a
    rule that has one. The loop stays as it is on other platforms, and where a step takes 256 KiB or
    more, or its size is unknown; under `jax.vmap` the step of one row counts.

    Args:
        loop: function of trees of arrays that returns one array `[T, ...]`.

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

    # XLA sees the mark only on a call inside a program, hence the outer jit.
    @jax.jit
    def marked(*args: Any) -> Any:
        return set_xla_metadata(inner(*args), **_ONE_KERNEL)

    @functools.wraps(loop)
    def call(*args: Any) -> jax.Array:
        # Chosen while tracing by the size, and while compiling by the platform.
        if not _is_narrow(jax.eval_shape(inner, *args)):
            return loop(*args)
        return lax.platform_dependent(*args, cpu=marked, default=loop)

    return call


def _is_narrow(steps):
    sizes = steps.shape[1:]
    known = not any(map(checks.is_symbolic, sizes))
    return known and math.prod(sizes) * steps.dtype.itemsize < _WIDE
