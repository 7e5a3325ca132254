"""The evaluator that is used when none is named."""

from jaxrnn.evaluators.one_object import one_object
from jaxrnn.evaluators.sequential import sequential
from jaxrnn.types import Evaluator


@one_object
def auto() -> Evaluator:
    """The evaluator that is used when none is named: `sequential()`.

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
