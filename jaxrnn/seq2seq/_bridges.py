"""From the encoder's last carry to the first one of what writes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.factories import ModelValue, model_factory


class _BridgeFields(NamedTuple):
    init: Callable[[Any, Any, Any], Any]
    apply: Callable[[Any, Any, Any], Any]
    roles: Any = None


class Bridge(ModelValue, _BridgeFields):
    """A learned map from the carry of one model to that of another, for `encoder_decoder`.

    Attributes:
        init: `(key, carry, initial) -> params`: from a carry of the encoder and the initial carry
            of what starts from it, both without batch axes.
        apply: `(params, carry, initial) -> carry`: what it starts from, a tree like `initial`; all
            without batch axes.
        roles: what the parameters are for, as in `Cell`.
    """


class DenseBridgeParams(NamedTuple):
    """`kernel [E, N]` and `bias [N]`, from all numbers of one carry to all of the other."""

    kernel: Any
    bias: Any
    roles = "recurrent"


@model_factory
def dense_bridge(
    activation: Callable[[Any], Any] | None = jnp.tanh, *, param_dtype: Any = jnp.float32
) -> Bridge:
    """Starts a decoder from an affine map of the encoder's last carry.

        h₀ = φ(h_S W + b)

    h_S is the whole carry of the encoder as one vector, of both directions and of all layers, and
    h₀ the whole carry of the receiver; so neither their structures nor their sizes need to agree.
    Leaves that are not numbers with a derivative, such as counts, keep their initial value.
    Bahdanau et al. 2015 (arXiv:1409.0473), appendix A.2.2, with tanh.

    Args:
        activation: φ, a function that keeps the shape; None is the identity.
        param_dtype: dtype of the parameters. The kernel starts as N(0, 1/E), truncated, and the
            bias at zero.

    Returns:
        The `Bridge`, with `DenseBridgeParams(kernel [E, N], bias [N])`.

    Raises:
        TypeError: `activation` is not a function.
        ValueError: In `init`, one of the two carries has no number to map.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.encoder_decoder(
        ...     encoder=jr.bidirectional(jr.lstm(8)),
        ...     decoder=jr.serial(jr.embed(4), jr.gru(6)),
        ...     readout=jr.dense(11),
        ...     attention=jr.dot_score(5),
        ...     bridge=jr.dense_bridge(),
        ... )
        >>> params = model.init(jax.random.key(0), 3, 11)
        >>> params.bridge.kernel.shape
        (32, 6)
        >>> source, xs = jnp.ones((2, 7, 3)), jnp.array([[1, 4, 2], [1, 9, 3]])
        >>> model.teacher_forced(params, source, xs).outputs.shape
        (2, 3, 11)
    """
    if activation is not None and not callable(activation):
        raise TypeError(f"activation must be a function or None, got {activation!r}.")

    def init(key, carry, initial):
        num_inputs, num_outputs = (_flat(tree).size for tree in (carry, initial))
        for name, size in (("encoder", num_inputs), ("receiver", num_outputs)):
            if not size:
                raise ValueError(
                    f"dense_bridge needs numbers in the carry of the {name}, got none."
                )
        kernel = initializers.input_kernel(key, num_inputs, num_outputs, param_dtype)
        return DenseBridgeParams(kernel, jnp.zeros(num_outputs, param_dtype))

    def apply(params, carry, initial):
        kernel, bias = in_compute_dtype(params, params)
        h = _flat(carry) @ kernel + bias
        if activation is None:
            return _like(initial, h)
        active = activation(h)
        checks.same_tree(active, h, "activation(h)")
        return _like(initial, active)

    return Bridge(init, apply)


def batched(bridge: Bridge, params: Any, initial: Any, num_batch_axes: int) -> Callable[..., Any]:
    """`carry -> carry` with this many batch axes, from an initial carry that has none."""

    def apply(carry):
        return bridge.apply(params, carry, initial)

    for _ in range(num_batch_axes):
        apply = jax.vmap(apply)
    return apply


def received(carry: Any, bridge: Any, expected: Any, receiver: str) -> Any:
    """The first carry of the receiver, from the encoder's last one.

    Args:
        carry: the encoder's last carry.
        bridge: `carry -> carry`, or None, which hands it on.
        expected: the receiver's initial carry; where the bridge gives None it is the result.
        receiver: what the error calls the receiver.

    Returns:
        A tree like `expected`.
    """
    if bridge is None:
        without = f"without a bridge{_bridge_hint(carry, expected)}"
        name = f"the last carry of encoder, which {receiver} starts from {without},"
    else:
        carry, name = bridge(carry), f"the carry that bridge gives to {receiver}"
        if carry is None:
            return expected
    checks.same_tree(carry, expected, name)
    return carry


def _bridge_hint(carry, expected):
    """What to say where the encoder's last layer alone has the carry that is expected."""
    wanted = jax.tree.structure((expected,))
    fits = type(carry) is tuple and jax.tree.structure(carry[-1:]) == wanted
    return " (bridge=lambda carry: carry[-1] takes that of its last layer)" if fits else ""


def _real_parts(leaf: Any) -> list[Any]:
    """The real arrays that a leaf consists of; none for ints and bools."""
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return [leaf.real, leaf.imag]
    return [leaf] if jnp.issubdtype(leaf.dtype, jnp.floating) else []


def _flat(tree: Any) -> jax.Array:
    """All real and complex numbers of a tree as one real vector."""
    parts = [part.ravel() for leaf in jax.tree.leaves(tree) for part in _real_parts(leaf)]
    return jnp.concatenate(parts) if parts else jnp.zeros(0)


def _like(initial: Any, vector: jax.Array) -> Any:
    """The tree whose `_flat` is the vector, with the other leaves of `initial`."""
    start = 0

    def filled(leaf):
        nonlocal start
        parts = []
        for part in _real_parts(leaf):
            numbers = vector[start : start + part.size]
            parts.append(numbers.reshape(part.shape).astype(part.dtype))
            start += part.size
        return lax.complex(*parts) if len(parts) == 2 else (*parts, leaf)[0]

    return jax.tree.map(filled, initial)
