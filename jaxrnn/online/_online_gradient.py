"""`online_gradient`: the gradient of a stream, carried forwards in time."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import keystr

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import check_model
from jaxrnn.engine.masking import as_mask, select
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.engine.unroll import step as model_step
from jaxrnn.online._structure import advance_row, find_recurrences, flat_carry
from jaxrnn.online._traces import immediate_traces, moved_traces, past_gradient
from jaxrnn.types import Array, Carry, Mask, Model, Params, Reset

METHODS = ("exact", "layerwise", "snap1")


class OnlineGradient(NamedTuple):
    """The two functions that `online_gradient` makes.

    Attributes:
        init: `(params, x) -> traces`, those of the initial carry, for inputs like `x [..., D]` of
            one step, of which only shapes and dtypes count.
        step: `(params, traces, carry, x, loss, *, mask=None, reset=None) -> OnlineStep`. `x`,
            `mask`, `reset` and `carry` are those of `jr.step`, and `loss` is a function from the
            outputs of the step to a scalar.
    """

    init: Callable[[Params, Any], Any]
    step: Callable[..., "OnlineStep"]


class OnlineStep(NamedTuple):
    """What one step of `online_gradient` returns.

    Attributes:
        carry: the carry after the step, as that of `jr.step`.
        traces: the derivative of the carry by the parameters: for each recurrence a tree like the
            parameters with leaves `[..., k, m, *leaf.shape]`, or None without a trace.
        outputs: the outputs of the step `[..., H]`, as those of `jr.step`.
        loss: the loss of the step.
        gradients: the gradient of this loss, a tree like the parameters.
    """

    carry: Carry
    traces: Any
    outputs: Any
    loss: Array
    gradients: Params


def online_gradient(model: Model, method: str = "exact") -> OnlineGradient:
    """Gradients of a stream without its past: real-time recurrent learning.

        cₜ, yₜ = F(θ, cₜ₋₁, xₜ),  Pₜ = ∂cₜ / ∂θ
        Pₜ = ∂cₜ/∂cₜ₋₁ Pₜ₋₁ + ∂F/∂θ,   gradientₜ = ∂lossₜ/∂cₜ₋₁ Pₜ₋₁ + ∂lossₜ/∂θ with cₜ₋₁ held

    Williams and Zipser 1989. The traces P go forwards with the carry, so memory does not grow with
    the length of the stream, no input is kept, and every step has its gradient at once, for optax.
    While the parameters stay as they are, the gradients of all steps add up to that of the summed
    loss by `jax.grad` through `unroll`, with masks and resets. Where they move between steps, P
    belongs in part to older ones, as the carry itself does.

    Which coordinates of the carry read each other, and which of them a parameter reaches, is found
    from the program of one step, and holds for all numbers. The carry is cut into G groups of k
    coordinates that do not read each other. A recurrence that is elementwise in the carry (`ema`,
    `diagonal_rnn`, `lru`, `s4d`, `s5`, `min_gru`, `min_lstm`, `rg_lru`) has a group for each unit,
    and k numbers of traces for each number of the parameters: 1, or 2 for a complex carry. The
    heads of `slstm` and `mlstm` are groups. In `gru`, `lstm` and `elman` every unit reads every
    other: all k coordinates are one group, the traces are k times the parameters, and a step takes
    k products for each of their numbers. A parameter that reaches m groups, such as that of a dense
    layer before the recurrence or the kernel of `s6`, has m times the traces; one that never
    reaches the carry, such as that of a readout, has none. `jax.eval_shape(online.init, params, x)`
    shows what there is.

    Where that is too much, something has to be left out:

    - `"layerwise"`: a parameter is traced only in the first recurrence of a stack that it reaches.
      What the memory of later layers knows of it is lost; how these read the newest step of the
      first one is not (Zucchini et al. 2023, arXiv:2305.15947). With one recurrent layer nothing is
      lost. With `"exact"`, recurrences of which one reads the other are traced together.
    - `"snap1"`: what the units of a recurrence do to each other is lost too (SnAp-1 of Menick et
      al. 2021, arXiv:2006.07232), so the traces of a dense cell are as small as those of an
      elementwise one, for which nothing more is lost. Credit then passes through a unit's own
      memory alone, such as the forget gate of an LSTM, and the gradient is biased, the more so the
      longer the delay. Here the newest step is differentiated in full; in the paper it is not.

    `detached_recurrence` changes the cell instead, for RFLO and e-prop. Layers in `repeat` are one
    recurrence, and so is all that one record of a carry holds, such as the window and the state of
    `mamba`. A model that draws noise runs as the deterministic one.

    Args:
        model: the cell or layer to run; a layer must be causal, and rows may not depend on each
            other.
        method: what is traced: "exact", "layerwise" or "snap1".

    Returns:
        `OnlineGradient(init, step)`, two pure functions that are not jitted.

    Raises:
        TypeError: `model` is neither a Cell nor a Layer. When they are called: an argument has the
            wrong type, tree structure or dtype.
        ValueError: The layer is not causal, or there is no such method. When they are called:
            shapes disagree, or the layer changes the steps.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.lru(8, 16), jr.dense(1))
        >>> params = model.init(jax.random.key(0), 1)
        >>> xs = jnp.sin(jnp.arange(100.0))[:, None, None]
        >>> online = jr.online_gradient(model)
        >>> def learn(state, pair):
        ...     params, traces, carry = state
        ...     x, target = pair
        ...     loss = lambda y: ((y - target) ** 2).sum()
        ...     step = online.step(params, traces, carry, x, loss)
        ...     params = jax.tree.map(lambda p, g: p - 0.01 * g, params, step.gradients)
        ...     return (params, step.traces, step.carry), step.loss
        >>> start = params, online.init(params, xs[0]), model.initial_carry(params, (1,))
        >>> state, losses = jax.lax.scan(learn, start, (xs[:-1], xs[1:]))
        >>> bool(losses[-20:].mean() < losses[:20].mean())
        True
    """
    check_model(model)
    if not getattr(model, "causal", True):
        raise ValueError(
            f"model must be causal to stream, got {model!r}, whose outputs depend on later steps."
        )
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
    return OnlineGradient(
        functools.partial(_init, model, method), functools.partial(_step, model, method)
    )


def _init(model: Model, method: str, params: Params, x: Any) -> Any:
    batch_shape, recurrences = _seen(model, method, params, checks.arrays(x, "x"))
    flat, tree = flat_carry(model, params), jax.tree.structure(params)
    vector, pull = jax.vjp(lambda params: flat.pack(model.initial_carry(params)), params)

    def pull_leaves(cotangent):
        return jax.tree.leaves(pull(cotangent)), None

    def in_all_rows(leaf):
        return jnp.broadcast_to(leaf, (*batch_shape, *leaf.shape))

    traces = [immediate_traces(recurrence, pull_leaves, vector) for recurrence in recurrences]
    return jax.tree.map(in_all_rows, tuple(map(tree.unflatten, traces)))


def _step(
    model: Model,
    method: str,
    params: Params,
    traces: Any,
    carry: Carry,
    x: Any,
    loss: Callable[[Any], Array],
    *,
    mask: Mask = None,
    reset: Reset = None,
) -> OnlineStep:
    x = checks.arrays(x, "x")
    batch_shape, recurrences = _seen(model, method, params, x)
    like = jax.eval_shape(lambda params: model.initial_carry(params, batch_shape), params)
    checks.same_tree(carry, like, "carry")
    like = jax.eval_shape(lambda params: _init(model, method, params, x), params)
    checks.same_tree(traces, like, "traces")
    mask = None if mask is None else as_mask(mask, batch_shape)
    if reset is not None:
        # Before any product, because what a sequence leaves behind may be infinite or NaN.
        reset = as_mask(reset, batch_shape, "reset")
        traces = select(reset, jax.tree.map(jnp.zeros_like, traces), traces)
    flat, (leaves, tree) = flat_carry(model, params), jax.tree.flatten(params)
    traces = [tree.flatten_up_to(of_recurrence) for of_recurrence in traces]

    def run(leaves, vector):
        before = flat.unpack(vector, carry)
        after, y = model_step(model, tree.unflatten(leaves), before, x, mask=mask, reset=reset)
        return y, after

    def move(traces, vector, carry, x, mask, reset):
        def advance(leaves, vector):
            return advance_row(model, tree.unflatten(leaves), vector, carry, x, mask, reset)

        _, pull = jax.vjp(advance, leaves, vector)
        return [
            moved_traces(recurrence, of_recurrence, pull, vector)
            for recurrence, of_recurrence in zip(recurrences, traces, strict=True)
        ]

    # The parameters are common to all rows and their traces are not, so these run row by row.
    remember = functools.partial(past_gradient, recurrences)
    for _ in batch_shape:
        move, remember = jax.vmap(move), jax.vmap(remember)
    vector, rows = flat.pack(carry), tuple(range(len(batch_shape)))
    y, pull, after = jax.vjp(run, leaves, vector, has_aux=True)
    value, cotangent = jax.value_and_grad(loss)(y)
    present, before = pull(cotangent)
    gradients = [
        now if past is None else (now + past.sum(rows)).astype(now.dtype)
        for now, past in zip(present, remember(traces, before), strict=True)
    ]
    moved = move(traces, vector, carry, x, mask, reset)
    return OnlineStep(after, tuple(map(tree.unflatten, moved)), y, value, tree.unflatten(gradients))


def _seen(model, method, params, x):
    """The batch axes of x, and what is traced."""
    check_params(model, params, width_of(model, x))
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(
                f"params{keystr(path)} must be floating or complex to have a gradient, "
                f"got {leaf.dtype}."
            )
    batch_shape = checks.leading_shape(x, model.num_feature_axes, "x", has_time=False)
    row = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(batch_shape) :], leaf.dtype), x
    )
    return batch_shape, find_recurrences(model, method, params, row)
