"""How well a step of a source fits a query."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.factories import ModelValue, model_factory


class _ScoreFields(NamedTuple):
    init: Callable[..., Any]
    keys: Callable[[Any, Any], Any]
    scores: Callable[[Any, Any, Any], Any]
    num_units: int
    roles: Any = None


class Score(ModelValue, _ScoreFields):
    """How well a source step fits a query, as a record of pure functions.

    Attributes:
        init: `(key, num_inputs, num_memory) -> params`, for queries of width D and values of M.
        keys: `(params, values) -> keys`, `[..., S, M] -> [..., S, A]`, once for a source.
        scores: `(params, xs, keys) -> scores`, `[T, ..., D]` and `[..., S, A]` to `[T, ..., S]`.
        num_units: A.
        roles: what the parameters are for, as in `Cell`.
    """


class DotScoreParams(NamedTuple):
    """`query_kernel [D, A]` and `key_kernel [M, A]`."""

    query_kernel: Any
    key_kernel: Any
    roles = "input"


class AdditiveScoreParams(NamedTuple):
    """`query_kernel [D, A]`, `key_kernel [M, A]`, `bias [A]` and `score_kernel [A]`."""

    query_kernel: Any
    key_kernel: Any
    bias: Any
    score_kernel: Any
    roles = {
        "query_kernel": "input",
        "key_kernel": "input",
        "bias": "input",
        "score_kernel": "readout",
    }


@model_factory
def dot_score(num_units: int, *, param_dtype: Any = jnp.float32) -> Score:
    """The scaled dot product of a query and a key.

        sₜⱼ = (xₜ W)ᵀ (mⱼ U) / √A

    Luong et al. 2015 (arXiv:1508.04025), their "general" score with the matrix W Uᵀ of rank A,
    divided by √A as in Vaswani et al. 2017 (arXiv:1706.03762).

    Args:
        num_units: A.
        param_dtype: dtype of the parameters.

    Returns:
        The score, with `DotScoreParams(query_kernel [D, A], key_kernel [M, A])`.

    Raises:
        TypeError: `num_units` is not an int.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> params = jr.seq2seq.DotScoreParams(jnp.array([[2.0]]), jnp.array([[1.0]]))
        >>> jr.dot_score(1).scores(params, jnp.array([[3.0]]), jnp.array([[1.0], [-1.0]]))
        Array([[ 6., -6.]], dtype=float32)
    """
    checks.positive(num_units, "num_units")

    def scores(params, xs, keys):
        queries = _product(xs, params.query_kernel, "xs")
        return jnp.einsum("t...a,...sa->t...s", queries, keys) * num_units**-0.5

    return Score(
        init=lambda key, num_inputs, num_memory: DotScoreParams(
            *_kernels(key, (num_inputs, num_memory), num_units, param_dtype)
        ),
        keys=_keys,
        scores=scores,
        num_units=num_units,
    )


@model_factory
def additive_score(num_units: int, *, param_dtype: Any = jnp.float32) -> Score:
    """A small network on a query and a key.

        sₜⱼ = vᵀ tanh(xₜ W + mⱼ U + b)

    Bahdanau et al. 2015 (arXiv:1409.0473), who have no b. Training holds tanh for all pairs of
    steps: memory O(T · S · A).

    Args:
        num_units: A.
        param_dtype: dtype of the parameters.

    Returns:
        The score, with `AdditiveScoreParams(query_kernel, key_kernel, bias, score_kernel)`.

    Raises:
        TypeError: `num_units` is not an int.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> score = jr.additive_score(4)
        >>> params = score.init(jax.random.key(0), 3, 5)
        >>> score.scores(params, jnp.ones((7, 2, 3)), jnp.ones((2, 6, 4))).shape
        (7, 2, 6)
    """
    checks.positive(num_units, "num_units")

    def init(key, num_inputs, num_memory):
        widths = num_inputs, num_memory, num_units
        query_key, score_key = jax.random.split(key)
        query_kernel, key_kernel = _kernels(query_key, widths[:2], num_units, param_dtype)
        return AdditiveScoreParams(
            query_kernel,
            key_kernel,
            jnp.zeros(num_units, param_dtype),
            initializers.input_kernel(score_key, num_units, 1, param_dtype)[:, 0],
        )

    def scores(params, xs, keys):
        queries = _product(xs, params.query_kernel, "xs") + params.bias
        return jnp.tanh(queries[..., None, :] + keys) @ params.score_kernel

    return Score(init, _keys, scores, num_units)


def _kernels(key, widths, num_units, dtype):
    keys = jax.random.split(key, len(widths))
    return [
        initializers.input_kernel(key, width, num_units, dtype)
        for key, width in zip(keys, widths, strict=True)
    ]


def _keys(params, values):
    return _product(values, params.key_kernel, "values")


def _product(leaf, kernel, name):
    if leaf.shape[-1] != kernel.shape[0]:
        raise ValueError(
            f"{name} must have the width {kernel.shape[0]} of the kernel {kernel.shape}, "
            f"got the shape {leaf.shape}."
        )
    return leaf @ kernel
