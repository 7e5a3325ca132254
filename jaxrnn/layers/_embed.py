"""A vector for every token."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.engine.masking import concrete
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class EmbedParams(NamedTuple):
    """`table [V, D]`, a row for each of V tokens."""

    table: Any
    roles = "input"


@model_factory
def embed(num_outputs: int, *, param_dtype: Any = jnp.float32) -> Layer:
    """Looks up a learned vector for every token.

        yₜ = table[xₜ],  0 ≤ xₜ < V

    A token outside of the table has no vector and none is made up: `unroll` compiles, so it cannot
    see the values, and gives NaN for such a token, negative ones included (nothing wraps round or
    is clamped). Where the values can be seen (`jax.disable_jit()`, or the layer's own `unroll` on
    concrete tokens) it raises ValueError. Tokens masked in `unroll` may be
    anything.

    Args:
        num_outputs: D.
        param_dtype: Of the table, which starts as N(0, 1).

    Returns:
        The layer, int `[...] -> [..., D]`, with `EmbedParams(table [V, D])` and the carry `()`;
        `init(key, V)`. Outputs have the dtype of the table. It raises TypeError for tokens that
        are no ints.

    Raises:
        TypeError: `num_outputs` is no int.
        ValueError: `num_outputs` is below 1.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> params = jr.layers.EmbedParams(table=jnp.array([[1.0], [2.0], [4.0]]))
        >>> jr.unroll(jr.embed(1), params, jnp.array([2, 0, -1, 3])).outputs[:, 0]
        Array([ 4.,  1., nan, nan], dtype=float32)
    """
    checks.positive(num_outputs, "num_outputs")

    def init(key, vocabulary):
        checks.positive(vocabulary, "vocabulary")
        shape = (vocabulary, num_outputs)
        table = jax.random.normal(key, shape, initializers.draw_dtype(param_dtype))
        return EmbedParams(table.astype(param_dtype))

    def apply(params, tokens):
        _check_tokens(tokens, len(params.table))
        return params.table.at[tokens].get(
            mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
        )

    return stateless(init, apply, lambda num_inputs: num_outputs, num_feature_axes=0)


def _check_tokens(tokens, vocabulary):
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"xs must be integer tokens, got the dtype {tokens.dtype}.")
    values = concrete(tokens)
    if values is not None and values.size and not 0 <= values.min() <= values.max() < vocabulary:
        raise ValueError(
            f"xs must be tokens in 0 ... {vocabulary - 1}, the rows of params.table, "
            f"got {values.min()} ... {values.max()}."
        )
