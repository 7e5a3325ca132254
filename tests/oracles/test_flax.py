import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.peer_case import (
    LENGTHS,
    RIGHT,
    D,
    H,
    assert_close,
    evaluate,
    inputs,
    normal,
    ours,
    random_carry,
    random_params,
)

import jaxrnn as jr

nn = pytest.importorskip("flax.linen", reason="needs flax")


def carry_to_flax(carry):
    return (carry.c, carry.h) if isinstance(carry, jr.cells.LSTMCarry) else carry.h


def carry_from_flax(carry, like):
    return (
        jr.cells.LSTMCarry(carry[1], carry[0])
        if isinstance(like, jr.cells.LSTMCarry)
        else type(like)(carry)
    )


KINDS = {
    "tanh": (lambda: nn.SimpleCell(H), lambda: jr.elman(H)),
    "relu": (lambda: nn.SimpleCell(H, activation_fn=nn.relu), lambda: jr.elman(H, jax.nn.relu)),
    "lstm": (lambda: nn.LSTMCell(H), lambda: jr.lstm(H)),
    "optimized lstm": (lambda: nn.OptimizedLSTMCell(H), lambda: jr.lstm(H)),
    "gru": (lambda: nn.GRUCell(H), lambda: jr.gru(H)),
}


def flax_run(cell, theirs, mask, **options):
    """The run of `nn.RNN`, masked outputs set to zero, where flax leaves what the cell makes."""

    def run(params, xs, carry):
        last, outputs = nn.RNN(theirs, **options).apply(
            jr.interop.to_flax(cell, params).variables,
            xs,
            initial_carry=carry_to_flax(carry),
            seq_lengths=None if mask is None else jnp.asarray(LENGTHS),
            return_carry=True,
        )
        if mask is not None:
            outputs = jnp.where(mask[..., None], outputs, 0)
        return outputs, carry_from_flax(last, carry)

    return run


@pytest.mark.parametrize("mask", [None, RIGHT], ids=["full", "lengths"])
@pytest.mark.parametrize("name", KINDS)
def test_outputs_carry_and_every_gradient(x64, name, mask):
    theirs, cell = (make() for make in KINDS[name])
    params = random_params(cell)
    carry = random_carry(cell, params)
    got = evaluate(ours(cell, mask), params, inputs(), carry)
    assert_close(got, evaluate(flax_run(cell, theirs, mask), params, inputs(), carry))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_read_backwards(x64, name):
    theirs, cell = (make() for make in KINDS[name])
    params = random_params(cell)
    carry = random_carry(cell, params)
    got = evaluate(ours(cell, RIGHT, reverse=True), params, inputs(), carry)
    run = flax_run(cell, theirs, RIGHT, reverse=True, keep_order=True)
    assert_close(got, evaluate(run, params, inputs(), carry))


def mgu_run(params, xs, carry):
    leaves = [jnp.split(leaf, 2, axis=-1) for leaf in params]
    (w_f, w_n), (u_f, u_n), (b_f, b_n) = leaves
    variables = {
        "if": {"kernel": -w_f, "bias": -b_f},
        "hf": {"kernel": -u_f},
        "in": {"kernel": w_n, "bias": b_n},
        "hn": {"kernel": u_n, "bias": jnp.zeros(H)},
    }
    last, outputs = nn.RNN(nn.MGUCell(H)).apply(
        {"params": {"cell": variables}}, xs, initial_carry=carry.h, return_carry=True
    )
    return outputs, jr.cells.MGUCarry(last)


def test_mgu_is_flaxs_where_the_candidate_does_not_see_the_state(x64):
    cell = jr.mgu(H)
    params = random_params(cell)
    carry = random_carry(cell, params)
    blind = params._replace(recurrent_kernel=params.recurrent_kernel.at[:, H:].set(0))
    got, got_gradients = evaluate(ours(cell), blind, inputs(), carry)
    want, want_gradients = evaluate(mgu_run, blind, inputs(), carry)
    assert_close(got, want)
    # Off U_n = 0 the two differ, and so do the gradients of U_n.
    without = [
        gradients[0]._replace(recurrent_kernel=gradients[0].recurrent_kernel[:, :H])
        for gradients in (got_gradients, want_gradients)
    ]
    assert_close(*without)
    assert_close(got_gradients[1:], want_gradients[1:])
    (got, _), (want, _) = ours(cell)(params, inputs(), carry), mgu_run(params, inputs(), carry)
    assert jnp.abs(got - want).max() > 0.1


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_flax_runs_over_the_padding_of_an_empty_row_and_we_do_not(x64, name):
    theirs, cell = (make() for make in KINDS[name])
    params = random_params(cell)
    carry = cell.initial_carry(params, (1,))
    xs = normal(0, 1, 3, D)
    last, _ = nn.RNN(theirs).apply(
        jr.interop.to_flax(cell, params).variables,
        xs,
        initial_carry=carry_to_flax(carry),
        seq_lengths=jnp.array([0]),
        return_carry=True,
    )
    assert np.abs(jax.tree.leaves(last)[0]).max() > 0.01
    ended = jr.unroll(cell, params, xs, mask=jnp.zeros((1, 3), bool)).carry
    assert_close(ended, carry)


@pytest.mark.parametrize("running", [False, True])
def test_batch_norm_with_a_mask(x64, running):
    """Outputs, statistics after the update, and the gradient of the inputs."""
    mask = RIGHT[..., None]
    xs = inputs() + 1.0
    layer = jr.batch_norm(running)
    params = jr.layers.BatchNormParams(*abs(normal(1, 4, D)))
    theirs = nn.BatchNorm(
        use_running_average=running, momentum=0.9, epsilon=1e-5, use_fast_variance=False
    )
    variables = {
        "params": {"scale": params.scale, "bias": params.offset},
        "batch_stats": {"mean": params.mean, "var": params.variance},
    }

    def their_loss(xs):
        ys, state = theirs.apply(variables, xs, mask=mask, mutable=["batch_stats"])
        return (jnp.where(mask, ys, 0) ** 3).sum(), (jnp.where(mask, ys, 0), state)

    def our_loss(xs):
        rollout = jr.unroll(layer, params, xs, mask=RIGHT)
        return (rollout.outputs**3).sum(), rollout

    (_, (ys, state)), slope = jax.value_and_grad(their_loss, has_aux=True)(xs)
    (_, rollout), gradient = jax.value_and_grad(our_loss, has_aux=True)(xs)
    assert_close(rollout.outputs, ys)
    assert_close(gradient, jnp.where(mask, slope, 0))
    if not running:
        folded = jr.fold_statistics(params, rollout, 0.1)
        assert_close((folded.mean, folded.variance), tuple(state["batch_stats"].values()))
