import jax
import pytest
from support import peer_parameters
from support.peer_case import H, assert_close, evaluate, inputs, ours, random_carry, random_params

import jaxrnn as jr

hk = pytest.importorskip("haiku", reason="needs dm-haiku")


def unrolled(make_core, params, xs, state):
    def forward(xs, state):
        return hk.dynamic_unroll(make_core(), xs, state, time_major=False)

    return hk.without_apply_rng(hk.transform(forward)).apply(params, xs, state)


def lstm(params, xs, carry):
    state = hk.LSTMState(hidden=carry.h, cell=carry.c)
    variables = {"lstm/linear": peer_parameters.haiku_lstm(params)}
    outputs, last = unrolled(lambda: hk.LSTM(H), variables, xs, state)
    return outputs, jr.cells.LSTMCarry(h=last.hidden, c=last.cell)


def gru(params, xs, carry):
    return unrolled(lambda: hk.GRU(H), {"gru": peer_parameters.haiku_gru(params)}, xs, carry.h)


@pytest.mark.parametrize(("run", "cell"), [(lstm, jr.lstm(H)), (gru, jr.gru(H, reset_after=False))])
def test_outputs_carry_and_every_gradient(x64, run, cell):
    params = random_params(cell)
    carry = random_carry(cell, params)
    got = evaluate(ours(cell), params, inputs(), carry)
    assert_close(got, evaluate(run, params, inputs(), carry))


def test_haiku_adds_one_to_the_forget_gate_where_we_start_its_bias_at_one(x64):
    params = jr.lstm(H).init(jax.random.key(0), 3)
    assert not peer_parameters.haiku_lstm(params)["b"].any()
