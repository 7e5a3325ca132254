"""Axes, sizes, streaming and precision, and the errors of wrong calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.lstm_example import (
    MASK,
    NUM_STEPS,
    assert_close,
    assert_equal,
    inputs,
    lstm,
)

import jaxrnn as jr


def test_two_batch_axes_with_masks_and_a_carry():
    """Peers promise batch axes and take one."""
    cell, params = lstm()
    xs = inputs(2, 3, NUM_STEPS)
    mask = np.stack([MASK, ~MASK])
    carry = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_carry(params, (2, 3)))
    both = jr.unroll(cell, params, xs, mask=mask, carry=carry)
    assert both.carry.h.shape == (2, 3, 3)
    one = jr.unroll(cell, params, xs[1], mask=mask[1], carry=jax.tree.map(lambda h: h[1], carry))
    assert_close(both.outputs[1], one.outputs)


def test_time_major_moves_every_sequence():
    """jax#18867."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    want = jr.unroll(cell, params, xs, mask=MASK)
    got = jr.unroll(cell, params, np.swapaxes(xs, 0, 1), mask=MASK.T, time_major=True)
    assert_equal(got._replace(outputs=jnp.swapaxes(got.outputs, 0, 1)), want)


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_steps_change_nothing(checkpoint, reverse):
    """T = 0 raised in peers, or was refused."""
    cell, params = lstm()
    carry = jax.tree.map(jnp.ones_like, cell.initial_carry(params, (3,)))
    flags = np.zeros((3, 0), bool)
    rollout = jr.unroll(
        cell,
        params,
        inputs(3, 0),
        carry=carry,
        mask=flags,
        reset=flags,
        reverse=reverse,
        evaluator=jr.sequential(checkpoint=checkpoint),
    )
    assert_equal(rollout.carry, carry)
    assert rollout.outputs.shape == (3, 0, 3)


def test_step_is_unroll_of_one_step():
    cell, params = lstm()
    xs = inputs(3, 2)
    mask, reset = np.array([1, 0, 1], bool), np.array([0, 1, 1], bool)
    carry = jr.unroll(cell, params, xs[:, :1]).carry
    stepped = jr.step(cell, params, carry, xs[:, 1], mask=mask, reset=reset)
    flags = {"mask": mask[:, None], "reset": reset[:, None]}
    rollout = jr.unroll(cell, params, xs[:, 1:], carry=carry, **flags)
    assert_equal(stepped, (rollout.carry, rollout.outputs[:, 0]))


def test_carries_are_the_carry_behind_every_step():
    """flax#3151 and equinox#855: all states, with padding repeating the one before it."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    reset = np.arange(NUM_STEPS) == np.array([[2], [2], [2]])
    after = jr.carries(cell, params, xs, mask=MASK, reset=reset)
    for stop in range(1, NUM_STEPS + 1):
        span = np.s_[:, :stop]
        rollout = jr.unroll(cell, params, xs[span], mask=MASK[span], reset=reset[span])
        assert_close(jax.tree.map(lambda leaf: leaf[:, stop - 1], after), rollout.carry)  # noqa: B023
    of_layer = jr.carries(jr.recurrent(cell), params, xs, mask=MASK, reset=reset)
    assert_close(of_layer, after)
    time_first = jr.carries(cell, params, xs.swapaxes(0, 1), mask=MASK.T, time_major=True)
    assert time_first.c.shape == (NUM_STEPS, 3, 3)


def test_wrong_inputs_raise():
    cell, params = lstm()
    with pytest.raises(ValueError, match="time axis"):
        jr.unroll(cell, params, np.ones(2))
    with pytest.raises(TypeError, match="model must be a Cell or a Layer, got function"):
        jr.unroll(jr.lstm, params, np.ones((3, 2)))


def test_what_cannot_stream_raises():
    backwards = jr.recurrent(jr.elman(2), reverse=True)
    params = backwards.init(jax.random.key(0), 2)
    carry = backwards.initial_carry(params)
    with pytest.raises(ValueError, match="must be causal"):
        jr.step(backwards, params, carry, np.ones(2))
    unknown = jr.causal_conv(2)._replace(causal=False)
    with pytest.raises(ValueError, match="must be causal or say what is inside"):
        jr.carries(unknown, unknown.init(jax.random.key(0), 2), np.ones((4, 2)))


def test_a_layer_has_its_own_evaluator():
    layer = jr.recurrent(jr.elman(2))
    with pytest.raises(ValueError, match="evaluator must be None for a layer"):
        jr.unroll(layer, (), np.ones((4, 2)), evaluator=jr.sequential())


def test_an_advance_that_changes_the_carry_is_told():
    def advance(params, carry, z):
        return carry.astype(jnp.float32)

    cell = jr.simple_cell(
        lambda key, num_inputs: (), advance, 1, initial_carry=lambda *_: np.ones(1)
    )
    with pytest.raises(TypeError, match="must have the dtype"):
        jr.unroll(cell, (), np.ones((4, 1)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_the_carry_is_at_least_float32(dtype):
    """jax#18867 and jax#30176: low precision broke the scan's types, or crept into the carry."""
    cell = jr.lstm(3, param_dtype=dtype)
    params = cell.init(jax.random.key(0), 2)
    rollout = jr.unroll(cell, params, jnp.asarray(inputs(3, NUM_STEPS), dtype), mask=MASK)
    assert rollout.outputs.dtype == dtype
    assert {leaf.dtype for leaf in rollout.carry} == {jnp.dtype(jnp.float32)}


def test_outputs_have_the_dtype_of_xs_and_ints_have_none():
    table = jnp.arange(8.0, dtype=jnp.float32).reshape(4, 2)
    cell = jr.simple_cell(
        lambda key, num_inputs: table,
        lambda params, carry, z: 0.5 * carry + z,
        num_outputs=2,
        project=lambda params, x: params[x],
        num_feature_axes=0,
    )
    assert jr.unroll(cell, table, jnp.array([[0, 3, 1]])).outputs.dtype == jnp.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reverse": "yes"}, "reverse must be True or False"),
        ({"time_major": 1}, "time_major must be True or False"),
        ({"evaluator": "sequential"}, "evaluator must be an Evaluator"),
        ({"evaluator": jr.sequential}, "evaluator must be an Evaluator"),
        ({"key": 0}, "key must be one PRNG key"),
        ({"xs": "abc"}, "xs must be an array of jax or numpy, .*got str 'abc'"),
        ({"xs": {"a": jnp.ones((4, 2))}}, "xs must be one array, got"),
        ({"evaluator": [1]}, "evaluator must be an Evaluator"),
    ],
)
def test_arguments_of_another_kind_are_named(options, message):
    cell = jr.elman(3)
    params = cell.init(jax.random.key(0), 2)
    with pytest.raises(TypeError, match=message):
        jr.unroll(cell, params, **({"xs": jnp.ones((4, 2))} | options))


@pytest.mark.parametrize("made", [jr.elman, jr.gru, jr.mgu])
@pytest.mark.parametrize("run", [jr.elman, jr.gru, jr.mgu])
def test_parameters_of_another_cell_are_told_by_structure(made, run):
    params = made(3).init(jax.random.key(0), 2)
    if made is run:
        jr.unroll(run(3), params, jnp.ones((4, 2)))
        return
    with pytest.raises(TypeError, match="params must have the structure .* that init makes, got"):
        jr.unroll(run(3), params, jnp.ones((4, 2)))


@pytest.mark.parametrize("run", [jr.unroll, jr.carries])
def test_parameters_of_another_cell_are_named(run):
    params = jr.elman(2).init(jax.random.key(0), 2)
    stack = jr.serial(jr.elman(2), jr.lstm(2))
    for cell, wrong in (
        (jr.lstm(2), params),
        (stack, (params, params)),
        (jr.lstm(2), jnp.ones(2)),
        (jr.lstm(2), None),
        (stack, None),
    ):
        with pytest.raises(
            TypeError, match=r"params(\[1\])? must have the structure .* that init makes"
        ):
            run(cell, wrong, jnp.ones((4, 2)))


def test_an_attribute_error_of_the_cell_itself_passes():
    cell = jr.elman(3)._replace(advance=lambda params, carry, z: len.nothing)  # type: ignore
    with pytest.raises(AttributeError, match="nothing"):
        jr.unroll(cell, cell.init(jax.random.key(0), 2), jnp.ones((4, 2)))


def test_inputs_that_do_not_fit_the_feature_axes_are_named():
    cell = jr.elman(3)._replace(num_feature_axes={"observation": 1})
    with pytest.raises(TypeError, match="^xs must have the structure .*observation"):
        jr.unroll(cell, cell.init(jax.random.key(0), 2), jnp.ones((4, 2)))


def test_the_input_of_a_step_is_named_with_its_own_axes():
    cell = jr.elman(3)
    with pytest.raises(ValueError, match=r"x must have 1 feature axes, got the shape \(\)"):
        jr.step(cell, cell.init(jax.random.key(0), 2), None, 1.0)


def test_flags_of_a_step_have_the_batch_axes():
    cell = jr.elman(3)
    params = cell.init(jax.random.key(0), 2)
    for name in ("mask", "reset"):
        with pytest.raises(ValueError, match=rf"{name} must have the shape \(4,\), got \(4, 1\)"):
            jr.step(cell, params, None, jnp.ones((4, 2)), **{name: jnp.ones((4, 1))})


CELLS_WITH_A_KERNEL = {"elman": jr.elman, "lstm": jr.lstm, "gru": jr.gru, "mgu": jr.mgu}


@pytest.mark.parametrize("make", CELLS_WITH_A_KERNEL.values(), ids=CELLS_WITH_A_KERNEL)
def test_a_wrong_width_is_named(make):
    cell = make(3)
    params = cell.init(jax.random.key(0), 2)
    match = r"params.kernel must have the shape \(5, .* for inputs of width 5, got \(2, "
    with pytest.raises(ValueError, match=match):
        jr.unroll(cell, params, jnp.ones((4, 5)))
    with pytest.raises(ValueError, match="num_inputs must be at least 1, got 0"):
        cell.init(jax.random.key(0), 0)
