"""Models are values: equal, hashed, printed and pickled by the call that made them."""

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import CLASSICAL, MODELS

import jaxrnn as jr

FACTORIES = {
    name: functools.partial(make, jnp.float32) for name, make in (CLASSICAL | MODELS).items()
}
FACTORIES |= {
    "lstm with options": lambda: jr.lstm(4, peephole=True, forget_bias=2.0),
    "elman identity": lambda: jr.elman(4, identity),
    "elman relu": lambda: jr.elman(4, activation=jax.nn.relu),
    "learned zoneout": lambda: jr.learned_initial_carry(
        jr.zoneout(jr.lstm(4), jr.cells.LSTMCarry(h=0.1, c=0.5))
    ),
    "recurrent dropout": lambda: jr.recurrent_dropout(jr.gru(4), 0.3),
    "stack": lambda: jr.serial(jr.bidirectional(jr.lstm(3), merge="sum"), jr.dense(2, jnp.tanh)),
    "block": lambda: jr.block(jr.gru(4), 4),
    "reversed newton": lambda: jr.recurrent(jr.gru(4), jr.newton(tol=1e-4), reverse=True),
    "cross attention": lambda: jr.cross_attention(jr.dot_score(3), 5, 4),
    "input feeding": lambda: jr.input_feeding(jr.gru(4), jr.additive_score(3), 5, 4),
    "functions with options": lambda: jr.lstm(
        4,
        activation=functools.partial(jax.nn.elu, alpha=0.5),
        gate_activation=functools.partial(jr.cells.hard_sigmoid, slope=0.25),
    ),
    "simple cell": lambda: jr.simple_cell(no_params, add, num_outputs=4),
}


def identity(u):
    return u


def no_params(key, num_inputs):
    return ()


def add(params, carry, z):
    return carry + z


@pytest.mark.parametrize("name", FACTORIES)
def test_the_same_call_gives_an_equal_model(name):
    model, again = FACTORIES[name](), FACTORIES[name]()
    assert model is not again and model == again and hash(model) == hash(again)
    assert pickle.loads(pickle.dumps(model)) == model
    assert copy.deepcopy(model) == model and copy.copy(model) == model
    assert "0x" not in repr(model) and repr(model) == repr(again)


def test_other_arguments_give_another_model():
    models = [make() for make in FACTORIES.values()]
    models += [jr.gru(5), jr.gru(4, reset_after=False), jr.gru(4, param_dtype=jnp.bfloat16)]
    assert len(set(models)) == len(models)
    assert jr.lstm(4, forget_bias=1) != jr.lstm(4, forget_bias=1.0) != jr.lstm(4)


def test_the_repr_is_the_call():
    model = jr.serial(jr.bidirectional(jr.lstm(64)), jr.dense(9))
    assert repr(model) == "serial(bidirectional(lstm(64)), dense(9))"
    assert repr(jr.gru(num_units=4, reset_after=True)) == "gru(4)"
    assert repr(jr.recurrent(jr.s4d(16), jr.convolution())) == "recurrent(s4d(16), convolution())"
    assert repr(jr.sequential(checkpoint="sqrt")) == "sequential(checkpoint='sqrt')"
    assert repr(jr.chunked(4, jr.newton())) == "chunked(4, inner=newton())"


def test_a_replaced_field_makes_another_model():
    cell = jr.gru(4)
    changed = cell._replace(emit=lambda params, carry, x: 2 * carry.h)
    assert changed != cell and changed == changed and repr(changed).startswith("Cell(init=")
    assert changed == copy.copy(changed)


@pytest.mark.parametrize("wrap", [lambda cell: cell, jr.recurrent, jr.serial, jr.bidirectional])
def test_a_model_made_twice_compiles_once(wrap):
    traces = []

    def counted(params, carry, z):
        traces.append(z)
        return carry + z

    params = wrap(jr.simple_cell(no_params, counted, 2)).init(jax.random.key(0), 2)
    counts = []
    for _ in range(3):
        model = wrap(jr.simple_cell(no_params, counted, num_outputs=2))
        jr.unroll(model, params, jnp.ones((5, 2)))
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2] > 0


def test_equal_models_are_one_static_argument():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def run(model, params, xs):
        traces.append(model)
        return jr.unroll(model, params, xs).outputs

    for _ in range(2):
        model = jr.serial(jr.zoneout(jr.lstm(4, coupled=True), 0.1), jr.dense(2))
        run(model, model.init(jax.random.key(0), 3), jnp.ones((5, 3)))
    assert len(traces) == 1


def test_a_stack_of_evaluators_says_so():
    with pytest.raises(TypeError, match=r"got gru\(4\).*serial\(\.\.\.\) stacks layers"):
        jr.sequential(jr.gru(4), jr.dense(3))


@jr.model_factory
def stack_of(*layers, **named):
    return jr.serial(*layers, *named.values())


@jr.model_factory
def scaled(factors, size=2, *cells):
    return jr.dense(size + len(cells), lambda ys: ys * factors[0])


def test_arguments_that_mean_another_model_are_not_equal():
    a, b = jr.dense(3), jr.layer_norm()
    assert stack_of(a=a, b=b) != stack_of(b=b, a=a)
    assert scaled((0.0,)) != scaled((-0.0,)) and scaled([1.0]) == scaled([1.0])
    factors = [1.0]
    before = scaled(factors)
    factors[0] = 2.0
    assert scaled(factors) != before
    array = np.ones(1)
    assert scaled(array) != scaled(array)
    array = jnp.ones(1)
    assert scaled(array) == scaled(array) != scaled(jnp.ones(1))


def test_a_default_before_further_positions_stays_in_its_place():
    model = scaled((1.0,), 2, jr.gru(4))
    assert repr(model) == "scaled((1.0,), 2, gru(4))" and model != scaled((1.0,), 2)
    assert pickle.loads(pickle.dumps(model)) == model
