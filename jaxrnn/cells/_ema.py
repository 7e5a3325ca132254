"""The exponential moving average, one decay for each feature."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._linear import linear_cell
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class EMAParams(NamedTuple):
    """`decay_logit [D]`, the decay is α = σ(decay_logit)."""

    decay_logit: Any
    roles = "ssm"


def project(params: EMAParams, x: Any) -> tuple[Any, Any]:
    """a = α and b = (1 - α) x, `[D]` and `[..., D]`."""
    checks.width(x, params.decay_logit)
    # 1 - α = σ(-decay_logit), without the cancellation of a difference.
    return jax.nn.sigmoid(params.decay_logit), jax.nn.sigmoid(-params.decay_logit) * x


@model_factory
def ema(decay: float | Sequence[float] = 0.9, *, param_dtype: Any = jnp.float32) -> Cell:
    """The exponential moving average of every input feature.

        hₜ = α ⊙ hₜ₋₁ + (1 - α) ⊙ xₜ,  yₜ = hₜ,  α = σ(decay_logit)

    An observation that is m steps old has the weight (1 - α) αᵐ, and α = exp(-1 / τ) forgets over τ
    steps. The average starts at 0 and is not corrected for that. The decays are parameters; α stays
    between 0 and 1 under any optimiser, and `optax.set_to_zero` keeps the decays fixed.

    Args:
        decay: initial α of every feature, or a sequence with one for each of the D features.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., D]`, carry `LinearCarry(h [..., D])`.

    Raises:
        TypeError: A decay is not a number.
        ValueError: A decay is not in (0, 1), or (in `init`) their number is not D.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> jr.unroll(cell, params, jnp.array([[2.0], [0.0], [4.0]])).outputs[:, 0]
        Array([1.  , 0.5 , 2.25], dtype=float32)
    """
    several = isinstance(decay, Sequence)
    logits = np.array([_logit(value) for value in decay] if several else _logit(decay))

    def init(key, num_inputs):
        del key
        if several and len(logits) != num_inputs:
            raise ValueError(
                f"decay must have one number for each of the {num_inputs} features, "
                f"got {len(logits)}."
            )
        wide = jnp.full(num_inputs, logits, initializers.draw_dtype(param_dtype))
        return EMAParams(wide.astype(param_dtype))

    return linear_cell(
        init=init,
        project=project,
        carry_shape=lambda params: params.decay_logit.shape,
        num_outputs=lambda num_inputs: num_inputs,
    )


def _logit(decay):
    if not checks.fraction(decay, "decay"):
        raise ValueError(f"decay must be above 0, got {decay}.")
    return math.log(decay) - math.log1p(-decay)
