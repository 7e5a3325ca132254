"""Training steps as pure functions of a state; optax provides clipping, schedules and optimisers.

A step depends on a loss function, never on a cell. It is not jitted, so that the caller decides
about donation and sharding: `jax.jit(step, donate_argnums=0)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.carry import detach
from jaxrnn.engine.keys import MissingKey as MissingKey
from jaxrnn.engine.keys import split_key as split_key
from jaxrnn.roles import gradient_norms

LossFn = Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]
TBPTTLossFn = Callable[[Any, Any, Any, Any], tuple[Any, tuple[Any, dict[str, Any]]]]

_METRICS = ("loss", "gradient_norm", "recurrent_gradient_norm", "input_gradient_norm")


class TrainState(NamedTuple):
    """The state that training passes from step to step.

    Attributes:
        params: the parameters.
        opt_state: the state of the optimiser.
        step: int32, the number of updates made.
    """

    params: Any
    opt_state: Any
    step: Any

    @classmethod
    def create(cls, params: Any, optimizer: optax.GradientTransformation) -> "TrainState":
        """The state before the first update.

        Args:
            params: the initial parameters.
            optimizer: the optimiser that will make the updates.

        Returns:
            The state with `step` 0.

        Example:
            >>> state = TrainState.create({"bias": jnp.zeros(3)}, optax.sgd(0.1))
            >>> int(state.step)
            0
        """
        return cls(params, optimizer.init(params), jnp.zeros((), jnp.int32))


def make_train_step(
    loss_fn: LossFn, optimizer: optax.GradientTransformation, *, model: Any = None
) -> Callable[..., tuple[TrainState, dict[str, Any]]]:
    """Makes a training step on independent sequences.

        params ← params + optimizer(∇ loss_fn(params, batch, key))

    For complex parameters ∇ is the direction of steepest ascent, ∂/∂real + i ∂/∂imag; `jax.grad`
    gives its conjugate.

    Args:
        loss_fn: `(params, batch, key) -> (loss, metrics)`, a scalar and a dict of further numbers
            to report. It passes `key` on to `unroll`; when the step got no key, `key` is a
            `MissingKey`, with which a layer that draws noise raises. `split_key` splits either.
        optimizer: any optax transformation, clipping included.
        model: the model whose parameters are trained; needed only where the model, not the class of
            its parameters, declares their roles: see `parameter_labels`.

    Returns:
        `train_step(state, batch, key=None) -> (state, metrics)`. The metrics are `loss`,
        `gradient_norm` (the global norm of the gradient before any clipping),
        `recurrent_gradient_norm` (of the parameters that `parameter_labels` calls recurrent or
        ssm), `input_gradient_norm`, and those of `loss_fn`. A norm is left out when no parameter
        has its label.

    Raises:
        TypeError: `loss_fn` does not return a real scalar and a dict, or `model` is not a record
            with roles.
        ValueError: A metric has one of the names above, noise is drawn without a key, or the roles
            of `model` do not fit the parameters.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> def loss_fn(params, batch, key):
        ...     outputs = jr.unroll(cell, params, batch, key=key).outputs
        ...     return (outputs**2).mean(), {}
        >>> optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
        >>> train_step = jax.jit(make_train_step(loss_fn, optimizer), donate_argnums=0)
        >>> state = TrainState.create(cell.init(jax.random.key(0), 3), optimizer)
        >>> state, metrics = train_step(state, jnp.ones((2, 5, 3)))
        >>> sorted(metrics)
        ['gradient_norm', 'input_gradient_norm', 'loss', 'recurrent_gradient_norm']
    """

    def checked(params, batch, key):
        loss, metrics = _pair(loss_fn(params, batch, key), "(loss, metrics)")
        return _scalar(loss), _extra(metrics)

    def train_step(state, batch, key=None):
        key = MissingKey("train_step") if key is None else key
        (loss, metrics), gradients = jax.value_and_grad(checked, has_aux=True)(
            state.params, batch, key
        )
        reported = _reported(loss, gradients, metrics, model)
        return _updated(state, optimizer, gradients), reported

    return train_step


def make_tbptt_step(
    loss_fn: TBPTTLossFn, optimizer: optax.GradientTransformation, *, model: Any = None
) -> Callable[..., tuple[TrainState, Any, dict[str, Any]]]:
    """Makes a step of truncated backpropagation through time, on one chunk of many streams.

        carryₙ₊₁ = loss_fn(params, detach(carryₙ), chunkₙ),  ∇ stops at the start of the chunk

    Row b of the carry belongs to row b of every chunk: a chunk must continue the streams of the
    previous chunk, row by row (`stream_batches` makes such chunks). Where a stream ends, the row
    starts a new one with a `reset` flag at its first step, which `loss_fn` passes on to `unroll`
    with the mask. Detaching keeps the values of the carry; it does not reset them.

    Args:
        loss_fn: `(params, carry, batch, key) -> (loss, (carry, metrics))`.
        optimizer: any optax transformation.
        model: as in `make_train_step`.

    Returns:
        `tbptt_step(state, carry, batch, key=None) -> (state, carry, metrics)`, metrics as in
        `make_train_step`.

    Raises:
        TypeError: `loss_fn` does not return these, or returns a carry of another structure or
            dtype, or `model` is not a record with roles.
        ValueError: `loss_fn` returns a carry of another shape, a metric has a reserved name, noise
            is drawn without a key, or the roles of `model` do not fit the parameters.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> def loss_fn(params, carry, batch, key):
        ...     rollout = jr.unroll(cell, params, batch["xs"], carry=carry, reset=batch["reset"])
        ...     return (rollout.outputs**2).mean(), (rollout.carry, {})
        >>> optimizer = optax.adam(1e-2)
        >>> tbptt_step = jax.jit(make_tbptt_step(loss_fn, optimizer), donate_argnums=(0, 1))
        >>> state = TrainState.create(cell.init(jax.random.key(0), 3), optimizer)
        >>> carry = cell.initial_carry(state.params, (2,))
        >>> chunk = {"xs": jnp.ones((2, 5, 3)), "reset": jnp.zeros((2, 5), bool)}
        >>> for _ in range(2):
        ...     state, carry, metrics = tbptt_step(state, carry, chunk)
        >>> int(state.step)
        2
    """

    def checked(params, carry, batch, key):
        loss, rest = _pair(loss_fn(params, carry, batch, key), "(loss, (carry, metrics))")
        new_carry, metrics = _pair(rest, "(loss, (carry, metrics))")
        checks.same_tree(new_carry, carry, "the carry of loss_fn")
        return _scalar(loss), (new_carry, _extra(metrics))

    def tbptt_step(state, carry, batch, key=None):
        if carry is None:
            raise TypeError(
                "carry must be given, initial_carry(params, (B,)) for the first chunk, got None."
            )
        key = MissingKey("tbptt_step") if key is None else key
        (loss, (carry, metrics)), gradients = jax.value_and_grad(checked, has_aux=True)(
            state.params, detach(carry), batch, key
        )
        state = _updated(state, optimizer, gradients)
        return state, detach(carry), _reported(loss, gradients, metrics, model)

    return tbptt_step


def make_epoch_step(
    loss_fn: LossFn, optimizer: optax.GradientTransformation, *, model: Any = None
) -> Callable[..., tuple[TrainState, dict[str, Any]]]:
    """Makes an epoch of training steps in one scan, which one `jit` call runs.

    Args:
        loss_fn: as in `make_train_step`.
        optimizer: any optax transformation.
        model: as in `make_train_step`.

    Returns:
        `epoch_step(state, batches, key=None) -> (state, metrics)`. `batches` is a tree like a batch
        with a leading axis of N minibatches, which are used in that order; each step has its own
        key; the metrics have a leading axis N.

    Raises:
        TypeError: As in `make_train_step`.
        ValueError: As in `make_train_step`, or `batches` do not have one leading axis.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.elman(4)
        >>> def loss_fn(params, batch, key):
        ...     return (jr.unroll(cell, params, batch, key=key).outputs ** 2).mean(), {}
        >>> optimizer = optax.sgd(0.1)
        >>> epoch_step = jax.jit(make_epoch_step(loss_fn, optimizer), donate_argnums=0)
        >>> state = TrainState.create(cell.init(jax.random.key(0), 3), optimizer)
        >>> state, metrics = epoch_step(state, jnp.ones((10, 2, 5, 3)))
        >>> metrics["loss"].shape
        (10,)
    """
    train_step = make_train_step(loss_fn, optimizer, model=model)

    def epoch_step(state, batches, key=None):
        num_batches = _num_batches(batches)
        keys = None if key is None else jax.random.split(key, num_batches)

        def update(state, inputs):
            batch, batch_key = inputs
            missing = MissingKey("epoch_step")
            return train_step(state, batch, missing if batch_key is None else batch_key)

        return lax.scan(update, state, (batches, keys))

    return epoch_step


def _num_batches(batches):
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batches)}
    if len(sizes) != 1 or () in sizes:
        shapes = jax.tree.map(np.shape, batches)
        raise ValueError(f"batches must have one leading axis of minibatches, got {shapes}.")
    return sizes.pop()[0]


def _updated(state, optimizer, gradients):
    # jax.grad of a real loss by a complex number is the conjugate of the steepest ascent.
    gradients = jax.tree.map(jnp.conj, gradients)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    return TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)


def _reported(loss, gradients, metrics, model):
    norms = gradient_norms(gradients, model)
    reported = zip(_METRICS, (loss, norms.total, norms.recurrent, norms.input), strict=True)
    return {name: value for name, value in reported if value is not None} | metrics


def _pair(result, expected):
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"loss_fn must return {expected}, got {jax.tree.structure(result)}.")
    return result


def _scalar(loss):
    if np.shape(loss) != () or not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
        raise TypeError(
            "loss_fn must return a real scalar loss, "
            f"got the shape {np.shape(loss)} and dtype {jnp.result_type(loss)}."
        )
    return loss


def _extra(metrics):
    if not isinstance(metrics, dict):
        raise TypeError(f"loss_fn must return its metrics as a dict, got {type(metrics).__name__}.")
    taken = sorted(set(metrics) & set(_METRICS))
    if taken:
        raise ValueError(f"the metrics of loss_fn must not be named {taken}, which are reserved.")
    return metrics
