"""Every cell, combinator and layer against the laws; adding one is one line."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr
from jaxrnn import checks
from jaxrnn.testing import check_cell, check_layer

H = 3


class Observation(NamedTuple):
    """An input of three leaves: features, an action, and a picture."""

    features: Any
    action: Any
    picture: Any


class PlayerCarry(NamedTuple):
    """A matrix memory and the number of real steps since the last reset."""

    memory: Any
    count: Any


def player():
    """x of three leaves with 1, 0 and 2 feature axes; a matrix and an int in the carry."""

    def init(key, num_inputs):
        return {
            "kernel": 0.5 * jax.random.normal(key, (num_inputs, 2)),
            "actions": jnp.array([[0.3, -0.2], [0.1, 0.4]]),
        }

    def initial_carry(params, batch_shape=()):
        memory = jnp.zeros((*batch_shape, 2, 2), checks.compute_dtype(params))
        return PlayerCarry(memory, jnp.zeros(batch_shape, jnp.int32))

    def project(params, x):
        key = x.features @ params["kernel"] + params["actions"][x.action]
        return key, jnp.tanh(x.picture.sum((-2, -1)))

    def advance(params, carry, z):
        key, gain = z
        write = key[..., :, None] * key[..., None, :] + gain[..., None, None]
        rate = 1 / (2 + carry.count[..., None, None])
        memory = carry.memory + rate * (jnp.tanh(write) - carry.memory)
        return PlayerCarry(memory.astype(carry.memory.dtype), carry.count + 1)

    return jr.simple_cell(
        init,
        advance,
        num_outputs=2,
        initial_carry=initial_carry,
        project=project,
        emit=lambda params, carry, x: carry.memory.sum(-1) + x.features[..., :2],
        num_feature_axes=Observation(features=1, action=0, picture=2),
    )


def observations(key, leading):
    keys = jax.random.split(key, 3)
    return Observation(
        jax.random.normal(keys[0], (*leading, 3)),
        jax.random.randint(keys[1], leading, 0, 2),
        jax.random.normal(keys[2], (*leading, 2, 2)),
    )


def everything():
    return jr.lstm(H, peephole=True, projection=2, coupled=True, layer_norm=True)


CELLS = {
    "elman": lambda: jr.elman(H),
    "elman relu": lambda: jr.elman(H, activation=jax.nn.relu),
    "elman identity": lambda: jr.elman(H, activation=lambda u: u),
    "lstm": lambda: jr.lstm(H),
    "lstm peephole": lambda: jr.lstm(H, peephole=True),
    "lstm projection": lambda: jr.lstm(H, projection=2),
    "lstm coupled": lambda: jr.lstm(H, coupled=True),
    "lstm layer norm": lambda: jr.lstm(H, layer_norm=True),
    "lstm everything": everything,
    "learned elman": lambda: jr.learned_initial_carry(jr.elman(H)),
    "learned lstm": lambda: jr.learned_initial_carry(everything()),
    "zoneout elman": lambda: jr.zoneout(jr.elman(H), 0.2),
    "zoneout lstm": lambda: jr.zoneout(jr.lstm(H), jr.LSTMCarry(h=0.05, c=0.5)),
    "recurrent dropout elman": lambda: jr.recurrent_dropout(jr.elman(H), 0.3),
    "recurrent dropout lstm": lambda: jr.recurrent_dropout(jr.lstm(H, peephole=True), 0.3),
    "all wrappers": lambda: jr.learned_initial_carry(
        jr.zoneout(jr.recurrent_dropout(jr.lstm(H, coupled=True), 0.3), 0.2)
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_keep_the_laws(name):
    check_cell(CELLS[name]())


def test_a_tree_of_inputs_and_an_int_in_the_carry():
    check_cell(player(), make_xs=observations)


def test_zoneout_leaves_ints_alone():
    check_cell(jr.zoneout(player(), 0.2), make_xs=observations)


LAYERS = {
    "recurrent": lambda: jr.recurrent(jr.lstm(H)),
    "recurrent backwards": lambda: jr.recurrent(jr.elman(H), reverse=True),
    "recurrent checkpointed": lambda: jr.recurrent(jr.elman(H), jr.sequential(checkpoint=2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_the_laws(name):
    check_layer(LAYERS[name]())
