"""Step after step with `lax.scan`: the evaluator that every other one must agree with."""

import functools
from typing import Literal

from jaxrnn import checks
from jaxrnn.evaluators.chunked import chunked, sqrt_size
from jaxrnn.evaluators.scan import scan
from jaxrnn.types import Evaluator, Path


# One object for one choice: `unroll` compiles once for each evaluator it is given.
@functools.lru_cache(maxsize=None, typed=True)
def sequential(scan_unroll: int = 1, checkpoint: int | Literal["sqrt"] | None = None) -> Evaluator:
    """Evaluates a cell step after step.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    Differentiating stores the residuals of every step: memory O(T). With `checkpoint` the scan
    has two levels; only the carry in front of each chunk is stored and a chunk is run again when
    its gradient is needed: memory O(T / K + K) for chunks of K steps, for one more forward pass.

    Args:
        scan_unroll: How many steps `lax.scan` unrolls. More compiles much slower.
        checkpoint: None, a number of steps K, or "sqrt" for K = ⌈√T⌉.

    Returns:
        The evaluator.

    Raises:
        TypeError: `scan_unroll` is no int, or `checkpoint` neither None, an int nor "sqrt".
        ValueError: A count is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> evaluator = jr.sequential(checkpoint="sqrt")
        >>> jr.unroll(cell, params, jnp.ones((100, 3)), evaluator=evaluator).outputs.shape
        (100, 4)
    """
    checks.positive(scan_unroll, "scan_unroll")
    if checkpoint is not None and checkpoint != "sqrt":
        checks.positive(checkpoint, "checkpoint")

    evaluate = scan(scan_unroll)
    if checkpoint is None:
        return evaluate
    two_levels = chunked(sqrt_size if checkpoint == "sqrt" else checkpoint, evaluate)

    def evaluate_in_two_levels(*args):
        return two_levels(*args)._replace(info=Path("sequential in two levels"))

    return evaluate_in_two_levels
