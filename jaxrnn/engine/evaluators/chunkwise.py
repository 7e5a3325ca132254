"""`chunkwise`: a matrix memory computed from all pairs of steps of a chunk at once."""

from dataclasses import dataclass

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunked import Chunked
from jaxrnn.engine.evaluators.nan_shield import nan_shielded
from jaxrnn.engine.evaluators.sequential.sequential import Sequential
from jaxrnn.engine.precision import project
from jaxrnn.engine.starts import Started
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Carry, Cell, Params, Rollout, Steps


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
        num_steps = checks.one_array(steps.xs, "xs").shape[0]
        # The pairwise forms are written for a number of steps that is known.
        if self.size == 1 or checks.is_symbolic(num_steps) or num_steps <= 1:
            return Sequential()(cell, params, carry, steps)
        # The pairwise forms know one carry, that of the first sequence of a chunk.
        if isinstance(carry, Started):
            return Sequential(checkpoint=self.size)(cell, params, carry, steps)
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

    A symbolic T of `jax.export` is run as `sequential()`, and with `starts` it is
    `sequential(checkpoint=size)`, which knows the start of every sequence; `info` then says so.

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
