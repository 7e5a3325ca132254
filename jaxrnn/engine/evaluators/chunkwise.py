"""`chunkwise`: a matrix memory computed from all pairs of steps of a chunk at once."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunked import Chunked
from jaxrnn.engine.evaluators.nan_shield import nan_shielded
from jaxrnn.engine.evaluators.sequential.sequential import Sequential
from jaxrnn.engine.precision import project
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Array, Carry, Cell, Mask, Params, Reset, Rollout, Steps


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Chunkwise(EvaluatorValue):
    """The evaluator that `chunkwise` makes."""

    size: int | None

    def __post_init__(self):
        """Checks the option."""
        if self.size is not None:
            checks.positive(self.size, "size")

    def check_cell(self, cell: Cell) -> None:
        """Raises unless the cell has a pairwise form."""
        if cell.pairwise is None:
            raise TypeError(
                "chunkwise() needs a cell with a pairwise form, such as those of mlstm, mamba2 and "
                "gated_delta_net: use sequential(), or associative() for a linear cell."
            )

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        self.check_cell(cell)
        if self.size == 1 or steps.xs.shape[0] <= 1:
            return Sequential()(cell, params, carry, steps)
        # Each chunk has its own NaN shield: a carry that overflows in one chunk is then a bad carry
        # of the next, and ends at the first reset there, as in a loop over the steps.
        evaluate = _all_pairs if self.size is None else Chunked(self.size, _all_pairs)
        return evaluate(cell, params, carry, steps)._replace(info=self)


def chunkwise(size: int | None = 64) -> Chunkwise:
    """Evaluates a matrix memory from all pairs of steps of a chunk at once.

    Inside a chunk the recurrence becomes products of matrices `[size, size]`, as in attention;
    between chunks only the carry is passed on. Work and memory are O(T · size), in the large
    products that accelerators are made for. Each model has its own formula: see `mlstm`, `mamba2`
    and `gated_delta_net`.

    Args:
        size: number of steps in a chunk; None is one chunk for all T, with O(T²) work. A size of 1
            is the recurrence itself.

    Returns:
        The evaluator, for cells with a `pairwise` form; other cells raise TypeError.

    Raises:
        TypeError: `size` is not None or an int.
        ValueError: `size` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.mlstm(num_heads=2, head_width=4, evaluator=jr.chunkwise(16))
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((5, 100, 3))).outputs.shape
        (5, 100, 8)
    """
    return Chunkwise(size)


def _all_pairs(cell, params, carry, steps):
    def pairwise(cell, params, carry, steps):
        z = project(cell, params, steps.xs)
        return Rollout(*cell.pairwise(params, carry, z, steps))

    return nan_shielded(pairwise, cell, params, carry, steps)


def seen_steps(mask: Mask, reset: Reset, num_steps: int) -> tuple[Array, Array]:
    """What each step reads: real steps of its own sequence up to itself, and perhaps the carry.

    Args:
        mask: None or bool `[T, *batch]`.
        reset: None or bool `[T, *batch]`.
        num_steps: T.

    Returns:
        bool `seen [*batch, 1, T, T]` (step t reads step s) and `from_carry [*batch, 1, T]`. The
        axis of 1 is for heads; without flags there are no batch axes.
    """
    # Only the step that is read must be real: outputs of masked steps are zeroed in the end.
    seen = jnp.tril(jnp.ones((1, num_steps, num_steps), bool))
    from_carry = jnp.ones((1, num_steps), bool)
    if mask is not None:
        seen = seen & by_head(mask)[..., None, :]
    if reset is not None:
        # The number of resets up to a step numbers its sequence; 0 is the one of the carry.
        segment = by_head(jnp.cumsum(reset, axis=0))
        seen = seen & (segment[..., :, None] == segment[..., None, :])
        from_carry = segment == 0
    return seen, from_carry


def by_head(flags: Array) -> Array:
    """Moves time last, after an axis for heads: `[T, *batch] -> [*batch, 1, T]`."""
    return jnp.moveaxis(flags, 0, -1)[..., None, :]


def sums_between(terms: Array) -> Array:
    """termₛ₊₁ + … + termₜ for s <= t, `[..., T] -> [..., T, T]`."""
    # Not as a difference of two sums from the start, which grow with T: in float32 their difference
    # keeps few digits of a short sum. Here each column s adds up only the terms after s.
    num_steps = terms.shape[-1]
    after = jnp.tril(jnp.ones((num_steps, num_steps), bool), -1)
    return jnp.cumsum(jnp.where(after, terms[..., :, None], 0), axis=-2)
