"""Input feeding: worked numbers, laws and errors; `test_attention_cell` has the loops over rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

S, M, A, H, D, T = 5, 4, 3, 3, 2, 6
SUM = jr.simple_cell(
    lambda key, n: (), lambda params, carry, x: carry + x.sum(-1, keepdims=True), 1
)


def test_worked_numbers():
    # One source step, so c = 2. d = 1 + 2 + 0.5 and tanh(0.1 c + 0.2 d) is an input after it.
    score = jr.dot_score(1)
    layer = jr.input_feeding(SUM, score, 1, 1)
    score_params = jr.seq2seq.DotScoreParams(jnp.ones((1, 1)), jnp.ones((1, 1)))
    params = jr.seq2seq.InputFeedingParams((), score_params, jnp.array([[0.1], [0.2]]))
    memory = jr.source_memory(score, score_params, jnp.array([[2.0]]))
    carry = jr.seq2seq.InputFeedingCarry(jnp.array([1.0]), memory, jnp.array([0.5]))
    rollout = jr.unroll(layer, params, jnp.array([[2.0], [1.0]]), carry=carry)
    first = np.tanh(0.2 + 0.2 * 3.5)
    second = np.tanh(0.2 + 0.2 * (3.5 + 1 + first))
    np.testing.assert_allclose(rollout.outputs, [[first], [second]], rtol=1e-6)
    np.testing.assert_allclose(rollout.carry.attended, [second], rtol=1e-6)


def test_it_keeps_the_laws():
    check_layer(jr.input_feeding(jr.gru(H), jr.additive_score(A), S, M))


def test_a_stack_keeps_the_laws():
    check_layer(jr.input_feeding(jr.serial(jr.lstm(2), jr.elman(H)), jr.dot_score(A), S, M))


def test_half_precision_runs_in_float32():
    score = jr.dot_score(A, param_dtype=jnp.bfloat16)
    layer = jr.input_feeding(jr.elman(H, param_dtype=jnp.bfloat16), score, S, M)
    params = layer.init(jax.random.key(0), D)
    assert params.kernel.dtype == jnp.bfloat16
    memory = jr.source_memory(score, params.score, jnp.ones((S, M), jnp.bfloat16))
    carry = layer.initial_carry(params)._replace(memory=memory)
    rollout = jr.unroll(layer, params, jnp.ones((T, D), jnp.bfloat16), carry=carry)
    assert rollout.carry.attended.dtype == jnp.float32 and rollout.outputs.dtype == jnp.bfloat16


def test_errors_name_the_argument():
    score = jr.dot_score(A)
    with pytest.raises(TypeError, match="^cell must be a Cell or a Layer"):
        jr.input_feeding("gru", score, S, M)
    with pytest.raises(ValueError, match="^cell must be causal"):
        jr.input_feeding(jr.bidirectional(jr.gru(3)), score, S, M)
    with pytest.raises(ValueError, match="^cell must draw no noise"):
        jr.input_feeding(jr.recurrent_dropout(jr.gru(3), 0.5), score, S, M)
    with pytest.raises(ValueError, match="^cell must read one vector a step.*axes 0"):
        jr.input_feeding(jr.embed(3), score, S, M)
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.input_feeding(jr.gru(3), "dot", S, M)
    layer = jr.input_feeding(jr.dropout(0.1), score, S, M)
    with pytest.raises(ValueError, match="^cell must have as many outputs .* got 2 and 4"):
        layer.init(jax.random.key(0), 2)
