"""`chunked`: a scan over chunks of steps, each of which is run again for its gradient."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.sequential.plain_scan import entered, plain_scan
from jaxrnn.engine.starts import first_carry, numbered, starts_of, with_starts
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Carry, Cell, Evaluator, Params, Rollout, Steps


def sqrt_size(num_steps: int) -> int:
    """The chunk size ⌈√T⌉, which needs the least memory: T / K + K is smallest at K = √T."""
    return max(1, math.isqrt(max(num_steps - 1, 0)) + 1)


class ChunkedInfo(NamedTuple):
    """The infos of the inner evaluator.

    Attributes:
        chunks: those of the chunks of full size, stacked `[T // size, ...]`.
        rest: that of the shorter last chunk, None when there is none.
    """

    chunks: Any
    rest: Any


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Chunked(EvaluatorValue):
    """The evaluator that `chunked` makes."""

    size: int | Callable[[int], int]
    inner: Evaluator | None = None

    def __post_init__(self):
        """Checks the options."""
        if self.inner is not None:
            checks.evaluator(self.inner, "inner")
        if not callable(self.size):
            checks.positive(self.size, "size")

    def check_cell(self, cell: Cell) -> None:
        """Raises when the inner evaluator cannot evaluate the cell."""
        checks.evaluates(self.inner, cell)

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
        # Steps that are counted when the program runs cannot be cut while it is traced.
        if checks.is_symbolic(num_steps):
            begin = entered(cell, params, carry, steps)
            return Rollout(*plain_scan(cell, 1, params, *begin), ChunkedInfo((), None))
        size = self.size
        size = checks.positive(size(num_steps), "size(T)") if callable(size) else size
        whole = num_steps - num_steps % size

        # `prevent_cse` puts barriers around a recomputation, so that the compiler does not merge it
        # with the first run. In a scan the two are different loops, which it cannot merge, and the
        # barriers would only cost time.
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def run(params, starts, carry, chunk):
            carry = with_starts(carry, starts)
            if self.inner is None:
                begin = entered(cell, params, carry, chunk)
                carry, outputs = plain_scan(cell, 1, params, *begin)
                return carry, (outputs, ())
            rollout = self.inner(cell, params, carry, chunk)
            return rollout.carry, (rollout.outputs, rollout.info)

        def chunks_of(leaf):
            return leaf[:whole].reshape(whole // size, size, *leaf.shape[1:])

        def joined(leaf):
            return leaf.reshape(whole, *leaf.shape[2:])

        # Resets are numbered before the steps are cut, so that all chunks share the starts.
        steps, starts, carry = numbered(carry, steps), starts_of(carry), first_carry(carry)
        # The only chunk is a rest. The info has the same structure as ever, with no chunk of full
        # size.
        if 0 < num_steps < size:
            carry, (outputs, info) = run(params, starts, carry, steps)
            none = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), info)
            return Rollout(carry, outputs, ChunkedInfo(none, info))

        chunks = jax.tree.map(chunks_of, steps)
        carry, (outputs, infos) = lax.scan(functools.partial(run, params, starts), carry, chunks)
        outputs, last_info = jax.tree.map(joined, outputs), None
        # A shorter chunk instead of padding, so that a sequence without a mask never gets one.
        if whole < num_steps:
            rest = jax.tree.map(lambda leaf: leaf[whole:], steps)
            carry, (last_outputs, last_info) = run(params, starts, carry, rest)
            outputs = jax.tree.map(lambda *parts: jnp.concatenate(parts), outputs, last_outputs)
        return Rollout(carry, outputs, ChunkedInfo(infos, last_info))


def chunked(size: int | Callable[[int], int], inner: Evaluator | None = None) -> Chunked:
    """Runs `inner` on chunks of `size` steps, and stores only the carry before each chunk.

    The last chunk is shorter if `size` does not divide T. A symbolic T of `jax.export` cannot be
    cut into chunks and is one plain scan.

    Args:
        size: number of steps in a chunk, or a function of T that gives it.
        inner: the evaluator for one chunk; None is the plain scan.

    Returns:
        The evaluator; `info` is a `ChunkedInfo`.

    Raises:
        TypeError: `size` is neither an int nor a function, or `inner` is not an Evaluator.
        ValueError: `size` is below 1, or (while tracing) `size(T)` is.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> evaluator = jr.chunked(16, jr.newton())
        >>> jr.unroll(cell, params, jnp.ones((100, 3)), evaluator=evaluator).outputs.shape
        (100, 4)
    """
    return Chunked(size, inner)
