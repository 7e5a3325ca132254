"""Cells, wrappers, evaluators and stacks against the laws; adding one is one line.

Some cells and layers are checked beside their other tests; the last test sees to it that none is
left out.
"""

import inspect
import pathlib
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr
from jaxrnn.engine import precision
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
        memory = jnp.zeros((*batch_shape, 2, 2), precision.compute_dtype(params))
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


CELLS = {
    "elman": lambda: jr.elman(H),
    "elman relu": lambda: jr.elman(H, activation=jax.nn.relu),
    "elman identity": lambda: jr.elman(H, activation=lambda u: u),
    "lstm": lambda: jr.lstm(H),
    "lstm peephole": lambda: jr.lstm(H, peephole=True),
    "lstm projection": lambda: jr.lstm(H, projection=2),
    "lstm coupled": lambda: jr.lstm(H, coupled=True),
    "lstm layer norm": lambda: jr.lstm(H, layer_norm=True),
    "lstm other activations": lambda: jr.lstm(
        H,
        activation=jax.nn.soft_sign,
        gate_activation=jr.cells.hard_sigmoid,
        clip=1.0,
        peephole=True,
    ),
    "gru other activations": lambda: jr.gru(
        H, reset_after=False, activation=jnp.sin, gate_activation=jr.cells.hard_sigmoid, clip=1.0
    ),
    "lstm everything": lambda: jr.lstm(
        H, peephole=True, projection=2, coupled=True, layer_norm=True
    ),
    "para_gru": lambda: jr.para_gru(H),
    "learned elman": lambda: jr.learned_initial_carry(jr.elman(H)),
    "learned lstm": lambda: jr.learned_initial_carry(jr.lstm(H, peephole=True, projection=2)),
    "zoneout lstm": lambda: jr.zoneout(jr.lstm(H), jr.cells.LSTMCarry(h=0.05, c=0.5)),
    "recurrent dropout gru": lambda: jr.recurrent_dropout(jr.gru(H, reset_after=False), 0.3),
    "learned gru": lambda: jr.learned_initial_carry(jr.gru(H)),
    "zoneout mgu": lambda: jr.zoneout(jr.mgu(H), 0.2),
    "dropout round zoneout": lambda: jr.recurrent_dropout(jr.zoneout(jr.gru(H), 0.2), 0.3),
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


def smoother():
    """hₜ = a hₜ₋₁ + (1 - a) xₜ: a linear cell with a matrix for its carry and its own start."""

    def init(key, num_inputs):
        return {
            "logit": jax.random.normal(key, (2, num_inputs)),
            "start": jnp.ones((2, num_inputs)),
        }

    def project(params, x):
        rate = jax.nn.sigmoid(params["logit"]) * jnp.ones_like(x)[..., None, :]
        return jr.Affine(rate, (1 - rate) * x[..., None, :])

    def initial_carry(params, batch_shape=()):
        # A copy, which can be donated; astype to the same dtype is none.
        start = jnp.array(params["start"], precision.compute_dtype(params))
        return jnp.broadcast_to(start, (*batch_shape, *start.shape))

    return jr.simple_cell(
        init,
        lambda params, carry, z: z.a * carry + z.b,
        num_outputs=3,
        initial_carry=initial_carry,
        project=project,
        emit=lambda params, carry, x: carry.sum(-2) * x,
    )


FOR_LINEAR = (jr.associative(), jr.chunked(3, jr.associative()), jr.sequential(scan_unroll=3))
FOR_ANY = (jr.newton(), jr.newton(jacobian="diagonal"), jr.chunked(3, jr.newton()))
EVALUATED = {
    "smoother": (smoother, FOR_LINEAR),
    "learned elman": (CELLS["learned elman"], FOR_ANY),
    "lstm projection": (CELLS["lstm projection"], FOR_ANY[:1]),
    "para_lstm": (lambda: jr.para_lstm(H), FOR_ANY[:1]),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_evaluators_keep_the_laws(name):
    cell, evaluators = EVALUATED[name]
    check_cell(cell(), evaluators=evaluators)


def stack():
    return jr.serial(jr.dense(H, jnp.tanh), jr.residual(jr.lstm(H)), jr.dropout(0.2), jr.elman(2))


LAYERS = {
    "recurrent": lambda: jr.recurrent(jr.lstm(H)),
    "recurrent backwards": lambda: jr.recurrent(jr.elman(H), reverse=True),
    "recurrent checkpointed": lambda: jr.recurrent(jr.elman(H), jr.sequential(checkpoint=2)),
    "dense": lambda: jr.dense(2, jnp.tanh),
    "dense without bias": lambda: jr.dense(2, use_bias=False),
    "embed": lambda: jr.embed(2),
    "layer norm": lambda: jr.layer_norm(),
    "rms norm": lambda: jr.rms_norm(scale_offset=1.0),
    "dropout": lambda: jr.dropout(0.4),
    "variational dropout": lambda: jr.dropout(0.4, variational=True),
    "residual": lambda: jr.residual(jr.elman(H)),
    "tokens": lambda: jr.serial(jr.embed(2), jr.layer_norm(), jr.elman(2), jr.dense(2)),
    "serial": stack,
    "serial of noise": lambda: jr.serial(jr.zoneout(jr.elman(H), 0.2), jr.dropout(0.4)),
    "bidirectional concat": lambda: jr.bidirectional(jr.elman(H), jr.lstm(2)),
    "bidirectional sum": lambda: jr.bidirectional(jr.elman(H), merge="sum"),
    "bidirectional product": lambda: jr.bidirectional(jr.elman(H), merge=jnp.multiply),
    "bidirectional stacks": lambda: jr.bidirectional(
        jr.serial(jr.learned_initial_carry(jr.elman(H)), jr.dense(2))
    ),
    "tokens side by side": lambda: jr.tied_embed(
        2,
        jr.concatenate(jr.repeat(jr.serial(jr.elman(2), jr.dropout(0.2)), 2), jr.lift(jnp.tanh)),
        jr.dense(2),
    ),
    "both ways twice": lambda: jr.serial(
        jr.bidirectional(jr.elman(2)), jr.residual(jr.bidirectional(jr.elman(2)))
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_the_laws(name):
    check_layer(LAYERS[name]())


def factories():
    """The public functions that return a cell or a layer."""
    functions = {name: value for name, value in vars(jr).items() if inspect.isfunction(value)}
    records = (jr.Cell, jr.Layer)
    return [n for n, f in functions.items() if inspect.signature(f).return_annotation in records]


@pytest.mark.parametrize("name", factories())
def test_everything_is_checked_somewhere(name):
    sources = [path.read_text() for path in pathlib.Path(__file__).parent.rglob("test_*.py")]
    checked = [text for text in sources if re.search(r"\bcheck_(cell|layer)\(", text)]
    assert any(f"jr.{name}(" in text for text in checked)
