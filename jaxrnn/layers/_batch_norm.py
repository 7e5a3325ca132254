"""Normalisation of every feature over the real steps of a batch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import expand_mask, zero_masked
from jaxrnn.factories import model_factory
from jaxrnn.types import Layer, Params, Rollout


class BatchNormParams(NamedTuple):
    """`scale [D]` and `offset [D]`, and the running `mean [D]` and `variance [D]`."""

    scale: Any
    offset: Any
    mean: Any
    variance: Any
    roles = {
        "scale": "readout",
        "offset": "readout",
        "mean": "statistics",
        "variance": "statistics",
    }


class BatchStatistics(NamedTuple):
    """The info of `batch_norm`: `mean [D]` and `variance [D]` of a batch, and `count` of steps."""

    mean: Any
    variance: Any
    count: Any


@model_factory
def batch_norm(
    running: bool = False, epsilon: float = 1e-5, *, param_dtype: Any = jnp.float32
) -> Layer:
    """Normalises each feature over all real steps of all rows.

        μ = Σ x / n,  v = Σ (x - μ)² / n  over the n real steps
        y = (x - μ) / √(v + ε) ⊙ scale + offset

    Ioffe and Szegedy 2015 (arXiv:1502.03167), without the padding, which would pull the statistics
    towards zero. Nothing is kept on the side: training returns the statistics of the batch as its
    info, and `fold_statistics` mixes them into the running ones, which are parameters. They have
    the role `"statistics"` (see `parameter_labels`), and their gradient is zero in training; an
    optimiser with weight decay must leave them out.

    With `running` μ and v are the running ones: the form of a trained model, with the same
    parameters. It is causal; the other form is not, since every step reads all others.

    Statistics are computed in promote(x, float32), in two passes. Without a real step they are 0
    and the count is 0. Under `shard_map` they are those of the rows of one device.

    Args:
        running: whether μ and v are the running statistics of params.
        epsilon: ε.
        param_dtype: dtype of the parameters. Scale and variance start at 1, offset and mean at 0.

    Returns:
        The layer, `[..., D] -> [..., D]`, with `BatchNormParams`, the carry `()`, and the info
        `BatchStatistics`; with `running` the info is `()`. It raises ValueError, while tracing,
        when x has another width than the scale.

    Raises:
        TypeError: `running` is not a bool or `epsilon` is not a float.
        ValueError: `epsilon` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> def model(training):
        ...     return jr.serial(jr.gru(4), jr.batch_norm(running=not training), jr.dense(2))
        >>> params = model(training=True).init(jax.random.key(0), 3)
        >>> xs, mask = jnp.ones((2, 5, 3)), jr.mask_from_lengths([5, 2], 5)
        >>> rollout = jr.unroll(model(training=True), params, xs, mask=mask)
        >>> int(rollout.info[1].count)
        7
        >>> params = jr.fold_statistics(params, rollout)
        >>> jr.unroll(model(training=False), params, xs, mask=mask).outputs.shape
        (2, 5, 2)
    """
    checks.boolean(running, "running")
    checks.above_zero(epsilon, "epsilon")

    def init(key, num_inputs):
        del key
        ones, zeros = (jnp.full(num_inputs, value, param_dtype) for value in (1, 0))
        return BatchNormParams(ones, zeros, jnp.copy(zeros), jnp.copy(ones))

    def unroll(params, carry, steps, key):
        del key
        xs = checks.one_array(steps.xs, "xs")
        if xs.shape[-1:] != params.scale.shape:
            raise ValueError(
                f"xs must have the width of params.scale {params.scale.shape}, got {xs.shape[-1]}."
            )
        xs = xs.astype(jnp.promote_types(xs.dtype, jnp.float32))
        statistics = params if running else batch_statistics(xs, steps.mask)
        ys = (xs - statistics.mean) * lax.rsqrt(statistics.variance + epsilon)
        return Rollout(carry, ys * params.scale + params.offset, () if running else statistics)

    return Layer(
        init=init,
        initial_carry=lambda params, batch_shape=(): (),
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs,
        causal=bool(running),
    )


def batch_statistics(xs: Any, mask: Any) -> BatchStatistics:
    """The statistics of each feature of `xs` `[..., D]` over the steps that a mask keeps."""
    axes = tuple(range(xs.ndim - 1))
    real = jnp.ones(xs.shape[:-1], bool)
    if mask is not None:
        # Every place of a picture counts, and a step has one flag.
        real = real & expand_mask(mask, real)
    count = real.sum(dtype=xs.dtype)
    num_steps = jnp.maximum(count, 1)
    mean = zero_masked(real, xs).sum(axes) / num_steps
    variance = (zero_masked(real, xs - mean) ** 2).sum(axes) / num_steps
    return BatchStatistics(mean, variance, count)


def fold_statistics(params: Params, rollout: Rollout, rate: float = 0.1) -> Params:
    """Mixes the statistics of a batch into the running ones of a model's parameters.

        mean ← (1 - rate) mean + rate μ,  variance ← (1 - rate) variance + rate v

    No gradient passes. A batch without a real step changes nothing.

    Args:
        params: the parameters of a model that contains `batch_norm`, at any depth.
        rollout: what `unroll` gave for the training form of that model.
        rate: the share of the batch, in (0, 1].

    Returns:
        The parameters with new running statistics.

    Raises:
        ValueError: The rollout has not one `BatchStatistics` for each `BatchNormParams`, there is
            none, or `rate` is not in (0, 1].
        TypeError: `rate` is not a float, or `rollout` is not a Rollout.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.batch_norm()
        >>> params = layer.init(None, 1)
        >>> rollout = jr.unroll(layer, params, jnp.array([[2.0], [4.0]]))
        >>> jr.fold_statistics(params, rollout, rate=0.5).mean
        Array([1.5], dtype=float32)
    """
    if checks.above_zero(rate, "rate") > 1:
        raise ValueError(f"rate must not be above 1, got {rate}.")
    if not isinstance(rollout, Rollout):
        raise TypeError(f"rollout must be a Rollout, as unroll returns it, got {rollout!r}.")
    nodes, structure = _nodes(params, BatchNormParams)
    batches = _nodes(rollout.info, BatchStatistics)[0]
    batches = [node for node in batches if isinstance(node, BatchStatistics)]
    norms = [index for index, node in enumerate(nodes) if isinstance(node, BatchNormParams)]
    if not norms or len(norms) != len(batches):
        raise ValueError(
            "rollout must hold the BatchStatistics of every batch_norm of the model in its info, "
            f"got {len(batches)} for {len(norms)} BatchNormParams in params."
        )
    for index, batch in zip(norms, batches, strict=True):
        nodes[index] = _folded(nodes[index], batch, rate)
    return structure.unflatten(nodes)


def _nodes(tree, kind):
    """The leaves of a tree whose records of this kind count as leaves, and its structure."""
    return jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, kind))


def _folded(params, batch, rate):
    rate = jnp.where(batch.count > 0, rate, 0)[..., None]

    def mixed(running, new):
        running, new = jnp.asarray(running), lax.stop_gradient(new)
        return ((1 - rate) * running + rate * new).astype(running.dtype)

    return params._replace(
        mean=mixed(params.mean, batch.mean), variance=mixed(params.variance, batch.variance)
    )
