import jax
import pytest
from support.peer_case import H, assert_close, evaluate, inputs, ours, random_carry, random_params

import jaxrnn as jr

hk = pytest.importorskip("haiku", reason="needs dm-haiku")


def unrolled(make_core, params, xs, state):
    def forward(xs, state):
        return hk.dynamic_unroll(make_core(), xs, state, time_major=False)

    return hk.without_apply_rng(hk.transform(forward)).apply(params, xs, state)


def lstm(params, xs, carry):
    state = hk.LSTMState(hidden=carry.h, cell=carry.c)
    variables = jr.interop.to_haiku(jr.lstm(H), params, "lstm")
    outputs, last = unrolled(lambda: hk.LSTM(H), variables, xs, state)
    return outputs, jr.cells.LSTMCarry(h=last.hidden, c=last.cell)


def gru(params, xs, carry):
    variables = jr.interop.to_haiku(jr.gru(H, reset_after=False), params, "gru")
    return unrolled(lambda: hk.GRU(H), variables, xs, carry.h)


@pytest.mark.parametrize(("run", "cell"), [(lstm, jr.lstm(H)), (gru, jr.gru(H, reset_after=False))])
def test_outputs_carry_and_every_gradient(x64, run, cell):
    params = random_params(cell)
    carry = random_carry(cell, params)
    got = evaluate(ours(cell), params, inputs(), carry)
    assert_close(got, evaluate(run, params, inputs(), carry))


def test_haiku_adds_one_to_the_forget_gate_where_we_start_its_bias_at_one(x64):
    params = jr.lstm(H).init(jax.random.key(0), 3)
    variables = jr.interop.to_haiku(jr.lstm(H), params, "lstm")
    assert not variables["lstm/linear"]["b"].any()
