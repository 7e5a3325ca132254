"""An outer scan over chunks, each run by an inner evaluator and rematerialised."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.one_object import one_object
from jaxrnn.engine.evaluators.sequential.plain_scan import scan
from jaxrnn.types import Evaluator, Path, Rollout


def sqrt_size(num_steps: int) -> int:
    """The chunk size ⌈√T⌉, which stores the fewest carries: T / K + K is least at K = √T."""
    return max(1, math.isqrt(max(num_steps - 1, 0)) + 1)


class ChunkedInfo(NamedTuple):
    """What the inner evaluator reported.

    Attributes:
        path: The evaluator's name.
        chunks: The inner infos of the whole chunks, stacked `[T // size, ...]`.
        rest: The inner info of the shorter last chunk, None when there is none.
    """

    path: Path
    chunks: Any
    rest: Any


@one_object
def chunked(size: int | Callable[[int], int], inner: Evaluator | None = None) -> Evaluator:
    """Runs `inner` on chunks of `size` steps and stores only the carry in front of each.

    The steps that are left when `size` does not divide T form a shorter last chunk.

    Args:
        size: Steps in a chunk, or a function of T that gives it.
        inner: The evaluator for one chunk; None is the plain scan.

    Returns:
        The evaluator; `info` is a `ChunkedInfo`.

    Raises:
        TypeError: `size` is neither an int nor a function, or `inner` no Evaluator.
        ValueError: `size` is below 1, or (while tracing) what it gives for T.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> evaluator = jr.chunked(16, jr.newton())
        >>> jr.unroll(cell, params, jnp.ones((100, 3)), evaluator=evaluator).outputs.shape
        (100, 4)
    """
    inner = scan(1) if inner is None else inner
    checks.evaluator(inner, "inner")
    if not callable(size):
        checks.positive(size, "size")

    def evaluate(cell, params, carry, xs, mask, reset):
        inputs = (xs, mask, reset)
        num_steps = jax.tree.leaves(xs)[0].shape[0]
        steps = checks.positive(size(num_steps), "size(T)") if callable(size) else size
        whole = num_steps - num_steps % steps

        # Inside a scan nothing can be shared with the recomputation, so barriers only cost time.
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def run(params, carry, inputs):
            rollout = inner(cell, params, carry, *inputs)
            return rollout.carry, (rollout.outputs, rollout.info)

        def chunks_of(leaf):
            return leaf[:whole].reshape(whole // steps, steps, *leaf.shape[1:])

        def joined(leaf):
            return leaf.reshape(whole, *leaf.shape[2:])

        if 0 < num_steps < steps:
            carry, (outputs, info) = run(params, carry, inputs)
            none = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), info)
            return Rollout(carry, outputs, ChunkedInfo(Path("chunked"), none, info))

        chunks = jax.tree.map(chunks_of, inputs)
        carry, (outputs, infos) = lax.scan(functools.partial(run, params), carry, chunks)
        outputs, last_info = jax.tree.map(joined, outputs), None
        if whole < num_steps:
            rest = jax.tree.map(lambda leaf: leaf[whole:], inputs)
            carry, (last_outputs, last_info) = run(params, carry, rest)
            outputs = jax.tree.map(lambda *parts: jnp.concatenate(parts), outputs, last_outputs)
        return Rollout(carry, outputs, ChunkedInfo(Path("chunked"), infos, last_info))

    return evaluate
