"""The evaluator that is used when none is named."""

from jaxrnn.evaluators.sequential import sequential
from jaxrnn.types import Evaluator


def auto() -> Evaluator:
    """Chooses the evaluator: `sequential()` for every cell; `info` says which path ran.

    Returns:
        The evaluator.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.elman(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), evaluator=jr.auto()).info.evaluator
        'sequential'
    """
    return sequential()
