"""A whole training step lowers for every platform, and low precision stays out of the carry."""

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr
from experiments.frame.models import CONVOLVED, LAYER, MODELS, Sizes

CELLS = {
    "elman": lambda **options: jr.elman(8, **options),
    "lstm": lambda **options: jr.lstm(8, **options),
    "gru": lambda **options: jr.gru(8, **options),
    "mgu": lambda **options: jr.mgu(8, **options),
}


@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
def test_lstm_training_step_exports(checkpoint):
    cell = jr.lstm(8)
    evaluator = jr.sequential(checkpoint=checkpoint)

    def loss_fn(params, batch, key):
        outputs = jr.unroll(
            cell,
            params,
            batch["xs"],
            mask=batch["mask"],
            reset=batch["reset"],
            evaluator=evaluator,
        ).outputs
        return jr.mean_over_steps((outputs**2).sum(-1), batch["mask"]), {}

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    state = jr.TrainState.create(cell.init(jax.random.key(0), 3), optimizer)
    batch = {
        "xs": jnp.ones((2, 12, 3)),
        "mask": jr.mask_from_lengths(jnp.array([12, 5]), 12),
        "reset": jnp.zeros((2, 12), bool).at[0, 6].set(True),
    }
    train_step = jax.jit(jr.make_train_step(loss_fn, optimizer))
    platforms = ("cpu", "cuda", "tpu")
    exported = jax.export.export(train_step, platforms=platforms)(state, batch)
    assert exported.platforms == platforms
    called, direct = exported.call(state, batch), train_step(state, batch)
    chex.assert_trees_all_close(called, direct, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_inputs_run_in_a_float32_carry(name):
    cell = CELLS[name]()
    params = cell.init(jax.random.key(0), 4)
    xs = jax.random.normal(jax.random.key(1), (3, 20, 4), jnp.bfloat16)
    rollout = jr.unroll(cell, params, xs)
    assert rollout.outputs.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(rollout.carry)} == {jnp.dtype("float32")}
    exact = jr.unroll(cell, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_allclose(rollout.outputs.astype(jnp.float32), exact, atol=4e-3)


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_parameters_are_drawn_in_float32(name):
    cell = CELLS[name](param_dtype=jnp.bfloat16)
    params = cell.init(jax.random.key(0), 4)
    exact = CELLS[name]().init(jax.random.key(0), 4)
    for leaf, wide in zip(jax.tree.leaves(params), jax.tree.leaves(exact), strict=True):
        assert leaf.dtype == jnp.bfloat16
        np.testing.assert_array_equal(leaf, wide.astype(jnp.bfloat16))
    rollout = jr.unroll(cell, params, jnp.ones((2, 5, 4), jnp.bfloat16))
    assert {leaf.dtype for leaf in jax.tree.leaves(rollout.carry)} == {jnp.dtype("float32")}
    assert jnp.isfinite(rollout.outputs).all()


def test_a_state_beyond_float16_stays_finite():
    """A relu state that grows by 5 % a step leaves float16 (65,504) within 400 steps."""
    cell = jr.elman(1, activation=jax.nn.relu)
    params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.full((1, 1), 1.05), jnp.zeros(1))
    xs = jnp.ones((400, 1), jnp.bfloat16)
    rollout = jr.unroll(cell, params, xs)
    expected = (1.05**400 - 1) / 0.05
    assert expected > float(np.finfo(np.float16).max)
    np.testing.assert_allclose(rollout.carry.h[0], expected, rtol=1e-3)
    assert jnp.isfinite(rollout.outputs).all()

    def half(h, x):
        return (h * jnp.float16(1.05) + x).astype(jnp.float16), None

    naive, _ = jax.lax.scan(half, jnp.float16(0), jnp.ones(400, jnp.float16))
    assert not jnp.isfinite(naive)


D = 4
OTHERS = {
    "both ways": lambda: (jr.bidirectional(jr.serial(jr.gru(2), jr.causal_conv(2))), None),
    "pyramid": lambda: (jr.serial(jr.gru(2), jr.subsample(2), jr.gru(2)), None),
    "repeat": lambda: (jr.repeat(jr.residual(jr.elman(D)), 2), None),
    "a checkpoint": lambda: (jr.gru(2), jr.sequential(checkpoint="sqrt")),
    "chunks": lambda: (jr.min_gru(2), jr.chunked(2, jr.associative())),
}


def of_kind(is_layer):
    sizes = Sizes.of(D, 2, window=3)
    return {n: (m.make(sizes), None) for n, m in MODELS.items() if (m.kind == LAYER) == is_layer}


GROUPS = {
    "cells": lambda: of_kind(is_layer=False),
    "layers": lambda: of_kind(is_layer=True),
    "others": lambda: {name: make() for name, make in OTHERS.items()},
}


def symbolic(run, *args):
    """`run` exported for inputs `[b, t, D]` and flags `[b, t]`, written to bytes and read again."""
    shape = jax.export.symbolic_shape(f"b, t, {D}")
    xs = jax.ShapeDtypeStruct(shape, jnp.float32)
    flags = jax.ShapeDtypeStruct(shape[:2], bool)
    exported = jax.export.export(jax.jit(run))(*args, xs, flags)
    return jax.export.deserialize(exported.serialize())


@pytest.mark.parametrize("group", GROUPS)
def test_a_symbolic_batch_and_length(group):
    """One program for any B and T: what it gives at two of them is what `unroll` gives.

    Parameters go in as they are, and rollouts and carries come out, so the bytes hold all records.
    """
    models = GROUPS[group]()
    params = {n: model.init(jax.random.key(0), D) for n, (model, _) in models.items()}

    def run(params, xs, mask):
        rollouts, steps = {}, {}
        for name, (model, evaluator) in models.items():
            rollout = jr.unroll(model, params[name], xs, mask=mask, evaluator=evaluator)
            rollouts[name] = rollout
            if getattr(model, "causal", True):
                steps[name] = jr.step(model, params[name], rollout.carry, xs[:, 0])
        return rollouts, steps

    def numbers(results, lengths):
        rollouts, steps = results
        return steps, {n: (r.carry, r.outputs[:, : lengths[n]]) for n, r in rollouts.items()}

    exported = symbolic(run, params)
    xs = jax.random.normal(jax.random.key(1), (2, 7, D))
    mask = jr.mask_from_lengths(jnp.array([4, 3]), 7)
    want = jax.jit(run)(params, xs, mask)
    # Padding makes a row longer and changes nothing else, so there is no need to compile again.
    for num_steps in (7, 4):
        got = exported.call(params, xs[:, :num_steps], mask[:, :num_steps])
        lengths = {name: rollout.outputs.shape[1] for name, rollout in got[0].items()}
        chex.assert_trees_all_close(
            numbers(got, lengths), numbers(want, lengths), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("cell", "evaluator", "name"),
    [
        (jr.gru(2), jr.newton(), "newton"),
        (jr.min_gru(2), jr.associative(), "associative"),
    ],
)
def test_an_evaluator_that_needs_a_number_of_steps_names_one_that_does_not(cell, evaluator, name):
    params = cell.init(jax.random.key(0), D)
    with pytest.raises(ValueError, match=f"{name}.* the symbol t.*use .*sequential"):
        symbolic(
            lambda xs, mask: jr.unroll(cell, params, xs, mask=mask, evaluator=evaluator).outputs
        )


def test_a_convolution_of_symbolic_length_is_a_loop():
    symbolic_info, rest = {}, {n: m for n, m in MODELS.items() if m.depth == CONVOLVED}

    def run(xs, mask):
        for name, model in rest.items():
            layer = model.make(Sizes.of(D, 2))
            params = layer.init(jax.random.key(0), D)
            symbolic_info[name] = jr.unroll(layer, params, xs, mask=mask).info
        return xs

    symbolic(run)
    assert set(symbolic_info.values()) == {jr.sequential()}


def test_a_symbolic_source():
    """What is read, and what is written, under attention; and a loss of it."""
    model = jr.encoder_decoder(jr.gru(2), jr.gru(2), jr.dense(3), attention=jr.dot_score(2))
    params = model.init(jax.random.key(0), D, D)
    sizes = jax.export.symbolic_shape(f"b, t, s, {D}")
    batch, time, source, width = sizes

    def run(xs, ys, lengths):
        mask = jr.mask_from_lengths(lengths, ys.shape[1])
        outputs = model.teacher_forced(params, xs, ys, mask=mask).outputs
        return jr.mean_over_steps((outputs**2).sum(-1), mask)

    specs = [
        jax.ShapeDtypeStruct((batch, source, width), jnp.float32),
        jax.ShapeDtypeStruct((batch, time, width), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
    ]
    args = jnp.ones((2, 5, D)), jnp.ones((2, 3, D)), jnp.array([3, 1])
    exported = jax.export.export(jax.jit(run))(*specs)
    np.testing.assert_allclose(exported.call(*args), run(*args), rtol=1e-5)
