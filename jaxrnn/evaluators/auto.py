"""The evaluator that is used when none is named."""

import functools

from jaxrnn.evaluators.sequential import sequential
from jaxrnn.types import Evaluator


# One object for one choice: `unroll` compiles once for each evaluator it is given.
@functools.lru_cache(maxsize=None, typed=True)
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
