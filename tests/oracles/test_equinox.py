import jax
import pytest
from support.peer_case import (
    H,
    assert_close,
    evaluate,
    inputs,
    ours,
    random_carry,
    random_params,
)

import jaxrnn as jr

pytest.importorskip("equinox", reason="needs equinox")


def scanned(cell, xs, carry):
    """A cell of one row, over rows and steps."""

    def row(xs, carry):
        def step(carry, x):
            carry = cell(x, carry)
            return carry, jax.tree.leaves(carry)[0]

        return jax.lax.scan(step, carry, xs)

    last, outputs = jax.vmap(row)(xs, carry)
    return outputs, last


def lstm(params, xs, carry):
    return scanned(jr.interop.to_equinox(jr.lstm(H), params), xs, tuple(carry))


def gru(params, xs, carry):
    return scanned(jr.interop.to_equinox(jr.gru(H), params), xs, carry.h)


@pytest.mark.parametrize(("run", "cell"), [(lstm, jr.lstm(H)), (gru, jr.gru(H))])
def test_outputs_carry_and_every_gradient(x64, run, cell):
    params = random_params(cell)
    carry = random_carry(cell, params)
    got = evaluate(ours(cell), params, inputs(), carry)
    assert_close(got, evaluate(run, params, inputs(), carry))
