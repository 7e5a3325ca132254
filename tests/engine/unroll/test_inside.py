"""The carries of layers that read from both ends, and the outputs of the layers in a model."""

import jax
import jax.numpy as jnp
import numpy as np
from support.lstm_example import SMOOTHER, assert_close, assert_equal

import jaxrnn as jr
from jaxrnn.layers import Directions

MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0]], bool)
RESET = np.array([[0, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]], bool)
FLAGS = {"mask": MASK, "reset": RESET}
KEY = jax.random.key(3)


def inputs(*leading):
    return np.random.default_rng(0).standard_normal((*leading, 2))


def test_carries_read_backwards():
    """h = (h + x) / 2 from the end, in the order of x; a masked step repeats the one before."""
    xs = np.array([[0.0], [4.0], [9.0], [2.0]])
    given = {"mask": np.array([1, 1, 0, 1], bool), "carry": jnp.array([2.0])}
    carries = jr.carries(SMOOTHER, np.float64(0.5), xs, reverse=True, **given)
    assert carries[:, 0].tolist() == [1.5, 3, 2, 2]


def test_carries_of_both_directions_in_a_stack():
    """Each direction has the carries of its cell alone, on what the layer before it gave."""
    first = Directions(jr.lstm(2), jr.elman(3))
    stack = jr.serial(jr.bidirectional(*first), jr.bidirectional(jr.gru(2), merge="mean"))
    params, xs = stack.init(jax.random.key(0), 2), inputs(2, 6)

    def both(params, xs, **flags):
        between = jr.unroll(jr.bidirectional(*first), params[0], xs, **flags).outputs
        cells, reads = (first, (jr.gru(2),) * 2), (xs, between)
        return tuple(
            Directions(
                jr.carries(cell[0], own.forward, read, **flags),
                jr.carries(cell[1], own.backward, read, reverse=True, **flags),
            )
            for cell, own, read in zip(cells, params, reads, strict=True)
        )

    carries = jr.carries(stack, params, xs, **FLAGS)
    assert_close(carries, both(params, xs, **FLAGS))
    last = jr.unroll(stack, params, xs, **FLAGS).carry
    for run, ended in zip(carries, last, strict=True):
        assert_close(jax.tree.map(lambda leaf: leaf[:, -1], run.forward), ended.forward)
        assert_close(jax.tree.map(lambda leaf: leaf[:, 0], run.backward), ended.backward)
    turned = jr.carries(stack, params, xs[:, ::-1], reverse=True)
    unflagged = jr.carries(stack, params, xs)
    assert_close(turned, jax.tree.map(lambda leaf: leaf[:, ::-1], unflagged))


def test_the_outputs_of_inner_layers_are_those_of_the_run():
    """One run: the noise and the masks of `unroll`, nested as the layers are, time first or not."""
    inner = jr.serial(jr.zoneout(jr.elman(2), 0.5), jr.dropout(0.5))
    model = jr.serial(jr.bidirectional(jr.elman(1)), jr.residual(inner), jr.dense(3))
    params, xs = model.init(jax.random.key(0), 2), inputs(2, 6)
    run = jr.layer_outputs(model, params, xs, key=KEY, **FLAGS)
    rollout = jr.unroll(model, params, xs, key=KEY, **FLAGS)
    assert_equal(run.outputs, rollout.outputs)
    assert_equal(run.layers[2], jr.LayerOutputs(rollout.outputs))
    both, around = run.layers[:2]
    joined = [direction.outputs for direction in both.layers]
    assert_equal(both.outputs, jnp.concatenate(joined, -1))
    (within,) = around.layers
    assert_close(around.outputs, both.outputs + within.outputs, rtol=1e-5)
    assert_equal(within.outputs, within.layers[1].outputs)
    assert not any(leaf[~MASK].any() for leaf in jax.tree.leaves(run))
    # The carries are those of the same run, noise included.
    carries = jr.carries(model, params, xs, key=KEY, **FLAGS)
    assert_close(carries[1][0].h[MASK], within.layers[0].outputs[MASK], rtol=1e-5)
    major = {name: flag.T for name, flag in FLAGS.items()}
    turned = jr.layer_outputs(model, params, xs.swapaxes(0, 1), key=KEY, time_major=True, **major)
    assert_close(turned, jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), run))


def test_equal_layers_and_layers_side_by_side():
    """`repeat` has the layers of `serial`, noise included, with its carries stacked."""
    one = jr.residual(jr.zoneout(jr.elman(2), 0.5))
    branches = jr.concatenate(jr.ema(0.5), jr.recurrent(jr.ema(0.5), reverse=True))
    model = jr.serial(jr.repeat(one, 2), branches)
    params, xs = model.init(jax.random.key(0), 2), inputs(2, 6)
    own = tuple(jax.tree.map(lambda leaf, i=i: leaf[i], params[0]) for i in range(2))
    unrolled = jr.serial(jr.serial(one, one), branches)
    run = jr.layer_outputs(model, params, xs, key=KEY, **FLAGS)
    assert_close(run, jr.layer_outputs(unrolled, (own, params[1]), xs, key=KEY, **FLAGS))
    carries = jr.carries(model, params, xs, key=KEY, **FLAGS)
    (first, second), last = jr.carries(unrolled, (own, params[1]), xs, key=KEY, **FLAGS)
    assert_close(carries[0].h, jnp.stack([first.h, second.h], 2))
    assert_close(carries[1], last)


def test_inner_outputs_with_steps_of_their_own():
    """After `subsample` outputs have its mask, also where the row is read backwards."""
    model = jr.serial(jr.subsample(2, "last"), SMOOTHER)
    params, xs = ((), np.float64(0.5)), np.array([[2.0], [4.0], [7.0], [8.0], [16.0]])
    mask = np.array([1, 1, 0, 1, 1], bool)
    run = jr.layer_outputs(model, params, xs, mask=mask)
    assert run.layers[0].outputs[:, 0].tolist() == [4, 16, 0]
    assert run.outputs[:, 0].tolist() == [2, 9, 0]
    turned = jr.layer_outputs(model, params, xs, mask=mask, reverse=True)
    assert_equal(turned.outputs, jr.unroll(model, params, xs, mask=mask, reverse=True).outputs)
