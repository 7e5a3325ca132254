"""Policies of one width that differ in what remembers."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments.frame.models import LABELS as OF_MODELS
from experiments.frame.models import MODELS, Sizes

STATELESS = "stateless"


class PolicyParams(NamedTuple):
    """Parameters of the encoder, of the memory, and of the two dense layers after it."""

    encoder: Any
    memory: Any
    hidden: Any
    readout: Any


def policy(memory: jr.Cell, width: int, num_actions: int) -> jr.Cell:
    """From observations to log-probabilities of actions and a value, `[..., num_actions + 1]`.

    It is one cell, the dense layers and the softmax included, so that a step of a rollout and a
    step of an update are the same computation on the same shapes, whatever the number of steps.
    """
    encoder, hidden = jr.dense(width, jnp.tanh), jr.dense(width, jnp.tanh)
    readout = jr.dense(num_actions + 1)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        return PolicyParams(
            encoder.init(keys[0], num_inputs),
            memory.init(keys[1], width),
            hidden.init(keys[2], memory.num_outputs(width) + width),
            readout.init(keys[3], width),
        )

    def encode(params, x):
        return _applied(encoder, params.encoder, x)

    def emit(params, carry, x):
        encoded = encode(params, x)
        remembered = memory.emit(params.memory, carry, encoded)
        features = jnp.concatenate([remembered, encoded], axis=-1)
        features = _applied(hidden, params.hidden, features)
        outputs = _applied(readout, params.readout, features)
        log_probs = jax.nn.log_softmax(outputs[..., :-1])
        return jnp.concatenate([log_probs, outputs[..., -1:]], axis=-1)

    return jr.Cell(
        init=init,
        initial_carry=lambda params, rows=(): memory.initial_carry(params.memory, rows),
        project=lambda params, x: memory.project(params.memory, encode(params, x)),
        advance=_advance_of(memory),
        emit=emit,
        num_outputs=lambda num_inputs: num_actions + 1,
    )


def _applied(layer, params, x):
    return layer.unroll(params, (), jr.Steps(x), None).outputs


def _advance_of(memory):
    """The memory's own, on its part of the parameters; a `Split` stays one."""
    advance = memory.advance
    if isinstance(advance, jr.Split):
        return advance._replace(mix=lambda params, *args: advance.mix(params.memory, *args))
    return lambda params, *args: advance(params.memory, *args)


def stateless(width: int) -> jr.Cell:
    """A dense layer in the place of a memory: its carry is what this step put there."""
    layer = jr.dense(width, jnp.tanh)
    return jr.simple_cell(
        layer.init,
        lambda params, carry, z: z,
        width,
        project=lambda params, x: _applied(layer, params, x),
    )


def _lstm(width: int, longest: int) -> jr.Cell:
    return MODELS["lstm"].make(Sizes.of(width, width), chrono=longest)


def _gru(width: int, longest: int) -> jr.Cell:
    cell = MODELS["gru"].make(Sizes.of(width, width))
    keep = slice(width, 2 * width)  # of the gates r, z, n
    return _slow(cell, keep, 1, longest)


def _min_gru(width: int, longest: int) -> jr.Cell:
    cell = MODELS["min_gru"].make(Sizes.of(width, width))
    return _slow(cell, slice(0, width), -1, longest)  # of z, which lets go, and g


def _slow(cell: jr.Cell, gate: slice, sign: int, longest: int) -> jr.Cell:
    """The cell with gates that start to keep the carry for 1 to `longest` steps.

    By sign · bias = log U(1, longest - 1): Tallec and Ollivier 2018 (arXiv:1804.11188).
    """

    def init(key, num_inputs):
        key, bias_key = jax.random.split(key)
        params = cell.init(key, num_inputs)
        width = gate.stop - gate.start
        steps = jax.random.uniform(bias_key, (width,), minval=1.0, maxval=longest - 1.0)
        return params._replace(bias=params.bias.at[gate].set(sign * jnp.log(steps)))

    return cell._replace(init=init)


def _lru(width: int, longest: int) -> jr.Cell:
    radii = {"r_min": math.exp(-10 / longest), "r_max": math.exp(-1 / longest)}
    return MODELS["lru"].make(Sizes.of(width, width), **radii, max_phase=math.pi / 10)


# From the width and the steps of the longest episode to a memory that starts to reach so far.
MEMORIES: Mapping[str, Callable[[int, int], jr.Cell]] = {
    "lstm": _lstm,
    "gru": _gru,
    "min_gru": _min_gru,
    "lru": _lru,
    STATELESS: lambda width, longest: stateless(width),
}
LABELS = {**OF_MODELS, STATELESS: STATELESS}
