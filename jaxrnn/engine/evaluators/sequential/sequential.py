"""Step after step with `lax.scan`: the evaluator that every other one must agree with."""

from typing import Literal

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunked import chunked, sqrt_size
from jaxrnn.engine.evaluators.one_object import one_object
from jaxrnn.engine.evaluators.sequential.plain_scan import scan
from jaxrnn.engine.evaluators.sequential.reverse_rule import reverse_rule
from jaxrnn.types import Evaluator, Path

_DERIVATIVES = {"auto": reverse_rule, "autodiff": scan}


@one_object
def sequential(
    scan_unroll: int = 1,
    checkpoint: int | Literal["sqrt"] | None = None,
    derivative: Literal["auto", "autodiff"] = "auto",
) -> Evaluator:
    """Evaluates a cell step after step.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    Differentiating stores the residuals of every step: memory O(T). With `checkpoint` the scan
    has two levels; only the carry in front of each chunk is stored and a chunk is run again when
    its gradient is needed: memory O(T / K + K) for chunks of K steps, for one more forward pass.

    A cell with a `split` has its own reverse rule: the backward scan makes cotangents alone, and
    the weights get their gradients from all steps at once. Forward mode (`jax.jvp`, `jacfwd`,
    `linearize`) cannot pass such a rule, and JAX raises a TypeError that speaks of custom_vjp;
    `derivative="autodiff"` is the plain scan and has every derivative. Second derivatives work
    either way: `jax.grad` of `jax.grad`, and `jax.hessian`.

    Args:
        scan_unroll: How many steps `lax.scan` unrolls. More compiles much slower.
        checkpoint: None, a number of steps K, or "sqrt" for K = ⌈√T⌉.
        derivative: "auto", the reverse rule where the cell has a `split`, or "autodiff".

    Returns:
        The evaluator.

    Raises:
        TypeError: `scan_unroll` is no int, or `checkpoint` neither None, an int nor "sqrt".
        ValueError: A count is below 1, or `derivative` is another word.

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

    if derivative not in _DERIVATIVES:
        raise ValueError(f"derivative must be one of {tuple(_DERIVATIVES)}, got {derivative!r}.")
    evaluate = _DERIVATIVES[derivative](scan_unroll)
    if checkpoint is None:
        return evaluate
    two_levels = chunked(sqrt_size if checkpoint == "sqrt" else checkpoint, evaluate)

    def evaluate_in_two_levels(*args):
        return two_levels(*args)._replace(info=Path("sequential in two levels"))

    return evaluate_in_two_levels
