"""`sequential`, one step after another: the evaluator that every other one must agree with."""

from dataclasses import dataclass, replace
from typing import Literal

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunked import Chunked, sqrt_size
from jaxrnn.engine.evaluators.sequential.derivative_rule import derivative_rule
from jaxrnn.engine.evaluators.sequential.plain_scan import entered, plain_scan
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Carry, Cell, Layer, Params, Rollout, Steps

_DERIVATIVES = {"auto": derivative_rule, "autodiff": plain_scan}


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Sequential(EvaluatorValue):
    """The evaluator that `sequential` makes."""

    scan_unroll: int = 1
    checkpoint: int | Literal["sqrt"] | None = None
    derivative: Literal["auto", "autodiff"] = "auto"

    def __post_init__(self):
        """Checks the options."""
        if isinstance(self.scan_unroll, Cell | Layer):
            raise TypeError(
                f"scan_unroll must be an int, got {self.scan_unroll!r}: sequential() is an "
                "evaluator; serial(...) stacks layers."
            )
        checks.positive(self.scan_unroll, "scan_unroll")
        if self.checkpoint is not None and self.checkpoint != "sqrt":
            checks.positive(self.checkpoint, "checkpoint")
        if self.derivative not in _DERIVATIVES:
            raise ValueError(
                f"derivative must be one of {tuple(_DERIVATIVES)}, got {self.derivative!r}."
            )

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        if self.checkpoint is None:
            scan = _DERIVATIVES[self.derivative]
            begin = entered(cell, params, carry, steps)
            return Rollout(*scan(cell, self.scan_unroll, params, *begin), self)
        # Two levels: an outer scan that stores a carry per chunk, around this evaluator.
        size = sqrt_size if self.checkpoint == "sqrt" else self.checkpoint
        two_levels = Chunked(size, replace(self, checkpoint=None))
        return two_levels(cell, params, carry, steps)._replace(info=self)


def sequential(
    scan_unroll: int = 1,
    checkpoint: int | Literal["sqrt"] | None = None,
    derivative: Literal["auto", "autodiff"] = "auto",
) -> Sequential:
    """Evaluates a cell one step after another, with `lax.scan`.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    A gradient stores the residuals of every step: memory O(T). With `checkpoint` the scan has two
    levels: only the carry before each chunk is stored, and a chunk is run again when its gradient
    is needed. With chunks of K steps that takes memory O(T / K + K) and one more forward pass.

    A cell whose `advance` is a `Split` has its own derivative rule: only the recursion of tangents,
    or of cotangents in reverse mode, runs step by step, and the weights get their gradients from
    many steps at once. Forward and reverse mode, and both of each other, work either way; a cell
    that contains a `jax.custom_vjp` is differentiated by JAX, and has reverse mode alone.

    Args:
        scan_unroll: number of steps that `lax.scan` unrolls; more compiles much slower.
        checkpoint: None, a number of steps K, or "sqrt" for K = ⌈√T⌉.
        derivative: "auto", the derivative rule for a cell with a `Split`, or "autodiff", the plain
            scan as JAX differentiates it.

    Returns:
        The evaluator, which is also the `info` of its rollouts.

    Raises:
        TypeError: `scan_unroll` is not an int (layers are stacked by `serial`), or `checkpoint` is
            not None, an int or "sqrt".
        ValueError: A count is below 1, or `derivative` is not one of the two words.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> evaluator = jr.sequential(checkpoint="sqrt")
        >>> jr.unroll(cell, params, jnp.ones((100, 3)), evaluator=evaluator).outputs.shape
        (100, 4)
    """
    return Sequential(scan_unroll, checkpoint, derivative)
