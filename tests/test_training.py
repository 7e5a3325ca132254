import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr

NUM_STEPS, NUM_INPUTS, NUM_UNITS = 6, 3, 4


def make_cell():
    return jr.learned_initial_carry(jr.lstm(NUM_UNITS, param_dtype=jnp.float64))


def squared_outputs(cell):
    def loss_fn(params, batch, key):
        outputs = jr.unroll(cell, params, batch, key=key).outputs
        return (outputs**2).sum(), {"largest": jnp.abs(outputs).max()}

    return loss_fn


def batch_of(seed=0, dtype=jnp.float64):
    return jax.random.normal(jax.random.key(seed), (2, NUM_STEPS, NUM_INPUTS), dtype)


def start(cell, optimizer):
    return jr.TrainState.create(cell.init(jax.random.key(1), NUM_INPUTS), optimizer)


def test_train_step_is_the_optax_update_of_the_gradient(x64):
    cell, optimizer = make_cell(), optax.adam(1e-2)
    loss_fn, state, batch = squared_outputs(cell), start(make_cell(), optimizer), batch_of()
    new_state, metrics = jax.jit(jr.make_train_step(loss_fn, optimizer))(state, batch)
    (loss, _), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state.params, batch, None)
    updates, _ = optimizer.update(gradients, state.opt_state, state.params)
    chex.assert_trees_all_close(
        new_state.params, optax.apply_updates(state.params, updates), rtol=1e-12
    )
    assert int(new_state.step) == 1
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-12)


def test_gradient_norms_are_before_clipping_and_apart(x64):
    optimizer = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0))
    cell = make_cell()
    loss_fn, state, batch = squared_outputs(cell), start(cell, optimizer), batch_of()
    new_state, metrics = jr.make_train_step(loss_fn, optimizer)(state, batch)
    gradients = jax.grad(loss_fn, has_aux=True)(state.params, batch, None)[0]
    lstm = gradients.cell
    recurrent = [lstm.recurrent_kernel, *jax.tree.leaves(gradients.initial_carry)]
    expected = {
        "gradient_norm": jax.tree.leaves(gradients),
        "recurrent_gradient_norm": recurrent,
        "input_gradient_norm": [lstm.kernel, lstm.bias],
    }
    for name, leaves in expected.items():
        norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in leaves))
        np.testing.assert_allclose(metrics[name], norm, rtol=1e-12)
    moved = jax.tree.map(jnp.subtract, new_state.params, state.params)
    np.testing.assert_allclose(optax.tree.norm(moved), 1e-3, rtol=1e-9)
    assert metrics["gradient_norm"] > 1e-2


def leaky(roles=None):
    """The cell of the README, whose parameters are a dict."""

    def init(key, num_inputs):
        return {"kernel": jax.random.normal(key, (num_inputs, 8)) * 0.3, "rate": jnp.zeros(8)}

    def project(params, x):
        return jnp.tanh(x @ params["kernel"])

    def advance(params, carry, z):
        rate = jax.nn.sigmoid(params["rate"])
        return rate * carry + (1 - rate) * z

    return jr.simple_cell(init, advance, num_outputs=8, project=project, roles=roles)


def test_no_norm_is_a_silent_zero(x64):
    """Guessing from names gave this cell a recurrent and an input norm of 0."""
    optimizer, batches = optax.sgd(0.1), jnp.stack([batch_of(seed=seed) for seed in range(2)])
    unknown, known = leaky(), leaky({"kernel": "input", "rate": "ssm"})
    state, loss_fn = start(unknown, optimizer), squared_outputs(unknown)
    metrics = jr.make_train_step(loss_fn, optimizer)(state, batches[0])[1]
    assert metrics.keys() == {"loss", "gradient_norm", "largest"}

    metrics = jr.make_train_step(loss_fn, optimizer, model=known)(state, batches[0])[1]
    gradients = jax.grad(loss_fn, has_aux=True)(state.params, batches[0], None)[0]
    for name, key in (("recurrent_gradient_norm", "rate"), ("input_gradient_norm", "kernel")):
        norm = np.linalg.norm(gradients[key])
        assert norm > 1e-3
        np.testing.assert_allclose(metrics[name], norm, rtol=1e-12)

    without, rows = (
        jax.jit(jr.make_epoch_step(loss_fn, optimizer, model=model))(state, batches)[1]
        for model in (None, known)
    )
    assert set(rows) - set(without) == {"recurrent_gradient_norm", "input_gradient_norm"}
    assert all(row.shape == (2,) for row in rows.values())
    np.testing.assert_allclose(rows["input_gradient_norm"][0], metrics[name], rtol=1e-9)


def test_truncated_steps_take_the_roles_of_a_model():
    cell, optimizer = leaky({"rate": "ssm"}), optax.sgd(0.1)
    state, chunk = start(cell, optimizer), (jnp.ones((2, 3, NUM_INPUTS)), jnp.zeros((2, 3), bool))
    step = jr.make_tbptt_step(tbptt_loss(cell), optimizer, model=cell)
    metrics = step(state, cell.initial_carry(state.params, (2,)), chunk)[2]
    assert metrics["recurrent_gradient_norm"] > 0 and "input_gradient_norm" not in metrics


def test_epoch_step_equals_a_loop_of_train_steps(x64):
    cell, optimizer = make_cell(), optax.adam(1e-2)
    loss_fn = squared_outputs(cell)
    batches = jnp.stack([batch_of(seed=seed) for seed in range(3)])
    state = start(cell, optimizer)
    after, metrics = jax.jit(jr.make_epoch_step(loss_fn, optimizer))(state, batches)
    train_step, losses = jr.make_train_step(loss_fn, optimizer), []
    for batch in batches:
        state, one = train_step(state, batch)
        losses.append(one["loss"])
    chex.assert_trees_all_close(after, state, rtol=1e-10)
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-10)


@pytest.mark.parametrize("batches", [{}, 3.0, {"xs": jnp.ones((3, 2)), "labels": jnp.ones(2)}])
def test_batches_have_one_leading_axis(batches):
    epoch_step = jr.make_epoch_step(lambda params, batch, key: (params.sum(), {}), optax.sgd(0.1))
    with pytest.raises(ValueError, match="batches must have one leading axis of minibatches, got"):
        epoch_step(jr.TrainState.create(jnp.ones(2), optax.sgd(0.1)), batches)


def test_complex_parameters_go_downhill():
    def loss_fn(params, batch, key):
        return jnp.abs(params - (1 + 1j)) ** 2, {}

    step = jr.make_train_step(loss_fn, optax.sgd(0.1))
    state = jr.TrainState.create(jnp.zeros((), jnp.complex64), optax.sgd(0.1))
    losses = [float(step(state, None)[1]["loss"])]
    for _ in range(30):
        state, metrics = step(state, None)
        losses.append(float(metrics["loss"]))
    assert losses[0] > 1.9 and losses[-1] < 1e-4


def test_a_loss_function_splits_any_key():
    def loss_fn(params, batch, key):
        first, second = jr.training.split_key(key, 2)
        return params.sum(), {"same": jnp.asarray(first is second)}

    state = jr.TrainState.create(jnp.ones(2), optax.sgd(0.1))
    step = jr.make_train_step(loss_fn, optax.sgd(0.1))
    assert step(state, None)[1]["same"] and not step(state, None, jax.random.key(0))[1]["same"]


def test_norms_of_half_precision_do_not_overflow():
    train_step = jr.make_train_step(
        lambda params, batch, key: ((300 * params["kernel"]).sum(), {}), optax.sgd(0.0)
    )
    state = jr.TrainState.create({"kernel": jnp.ones(4, jnp.float16)}, optax.sgd(0.0))
    np.testing.assert_allclose(train_step(state, None)[1]["gradient_norm"], 600)


def test_epoch_step_gives_every_step_its_own_key():
    def loss_fn(params, batch, key):
        return params.sum() * 0.0, {"draw": jax.random.uniform(key)}

    optimizer = optax.sgd(0.1)
    state = jr.TrainState.create(jnp.zeros(2), optimizer)
    epoch_step = jr.make_epoch_step(loss_fn, optimizer)
    draws = epoch_step(state, jnp.zeros((4, 1)), jax.random.key(0))[1]["draw"]
    assert len(set(np.asarray(draws).tolist())) == 4


def tbptt_loss(cell):
    def loss_fn(params, carry, batch, key):
        xs, reset = batch
        rollout = jr.unroll(cell, params, xs, carry=carry, reset=reset, key=key)
        return (rollout.outputs**2).sum(), (rollout.carry, {})

    return loss_fn


def test_tbptt_keeps_the_carry_and_cuts_the_gradient(x64):
    cell, optimizer = make_cell(), optax.sgd(0.0)
    xs, no_reset = batch_of(), jnp.zeros((2, 3), bool)
    loss_fn, state = tbptt_loss(cell), start(cell, optax.sgd(0.0))
    step = jax.jit(jr.make_tbptt_step(loss_fn, optimizer))
    carry = cell.initial_carry(state.params, (2,))
    state, middle, first = step(state, carry, (xs[:, :3], no_reset))
    state, last, second = step(state, middle, (xs[:, 3:], no_reset))
    whole = jr.unroll(cell, state.params, xs)
    chex.assert_trees_all_close(last, whole.carry, rtol=1e-12)
    np.testing.assert_allclose(first["loss"] + second["loss"], (whole.outputs**2).sum(), rtol=1e-12)
    constant = jax.tree.map(jnp.asarray, middle)
    cut = jax.grad(lambda p: loss_fn(p, constant, (xs[:, 3:], no_reset), None)[0])(state.params)
    np.testing.assert_allclose(second["gradient_norm"], optax.tree.norm(cut), rtol=1e-12)

    def through(params):
        carry = jr.unroll(cell, params, xs[:, :3]).carry
        return loss_fn(params, carry, (xs[:, 3:], no_reset), None)[0]

    uncut = optax.tree.norm(jax.grad(through)(state.params))
    assert abs(float(uncut - second["gradient_norm"])) > 1e-3


def test_tbptt_over_one_chunk_is_full_backpropagation(x64):
    cell, optimizer = make_cell(), optax.adam(1e-2)
    xs, state = batch_of(), start(make_cell(), optimizer)
    no_reset = jnp.zeros((2, NUM_STEPS), bool)
    carry = cell.initial_carry(state.params, (2,))

    def whole_loss(params, batch, key):
        return (jr.unroll(cell, params, batch[0], carry=carry).outputs ** 2).sum(), {}

    whole = jr.make_train_step(whole_loss, optimizer)(state, (xs, no_reset))[0]
    chunk = jr.make_tbptt_step(tbptt_loss(cell), optimizer)(state, carry, (xs, no_reset))[0]
    chex.assert_trees_all_close(whole, chunk, rtol=1e-12)


def test_a_reset_in_one_row_starts_only_that_row_anew(x64):
    cell, optimizer = make_cell(), optax.sgd(0.0)
    xs, state = batch_of(), start(make_cell(), optimizer)
    step = jr.make_tbptt_step(tbptt_loss(cell), optimizer)
    fresh = cell.initial_carry(state.params, (2,))
    old = jr.unroll(cell, state.params, batch_of(seed=7)).carry
    ended = jnp.zeros((2, NUM_STEPS), bool).at[0, 0].set(True)
    _, carry, _ = step(state, old, (xs, ended))
    start_anew = jr.unroll(cell, state.params, xs, carry=fresh).carry
    go_on = jr.unroll(cell, state.params, xs, carry=old).carry
    np.testing.assert_allclose(carry.h[0], start_anew.h[0], rtol=1e-12)
    np.testing.assert_allclose(carry.h[1], go_on.h[1], rtol=1e-12)


def test_noise_without_a_key_raises_and_with_key_none_inside_is_deterministic():
    cell, optimizer = jr.zoneout(jr.gru(NUM_UNITS), 0.5), optax.sgd(0.1)
    state = start(cell, optimizer)
    xs = jnp.ones((2, 4, NUM_INPUTS))
    train_step = jax.jit(jr.make_train_step(squared_outputs(cell), optimizer))
    with pytest.raises(ValueError, match="zoneout draws noise but train_step got no key"):
        train_step(state, xs)
    losses = [float(train_step(state, xs, jax.random.key(seed))[1]["loss"]) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]

    def deterministic(params, batch, key):
        return (jr.unroll(cell, params, batch, key=None).outputs ** 2).sum(), {}

    jr.make_train_step(deterministic, optimizer)(state, xs)
    with pytest.raises(ValueError, match="zoneout draws noise but epoch_step got no key"):
        jr.make_epoch_step(squared_outputs(cell), optimizer)(state, xs[None])


def test_a_step_compiles_once():
    cell, optimizer = jr.lstm(NUM_UNITS), optax.adam(1e-3)
    train_step = chex.assert_max_traces(jr.make_train_step(squared_outputs(cell), optimizer), n=1)
    jitted, state = jax.jit(train_step), start(cell, optimizer)
    for seed in range(3):
        state, _ = jitted(state, batch_of(seed, jnp.float32))


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda loss: loss, TypeError, r"must return \(loss, metrics\)"),
        (lambda loss: (loss[None], {}), TypeError, "real scalar"),
        (lambda loss: (loss.astype(int), {}), TypeError, "real scalar"),
        (lambda loss: (loss, [1]), TypeError, "metrics as a dict"),
        (lambda loss: (loss, {"loss": loss}), ValueError, "must not be named"),
    ],
)
def test_what_a_loss_function_may_return(returned, error, message):
    step = jr.make_train_step(lambda params, batch, key: returned(params.sum()), optax.sgd(0.1))
    with pytest.raises(error, match=message):
        step(jr.TrainState.create(jnp.ones(2), optax.sgd(0.1)), None)


def test_tbptt_refuses_a_carry_of_another_kind():
    def loss_fn(params, carry, batch, key):
        return params.sum(), (carry[:1], {})

    step = jr.make_tbptt_step(loss_fn, optax.sgd(0.1))
    state = jr.TrainState.create(jnp.ones(2), optax.sgd(0.1))
    with pytest.raises(ValueError, match="the carry of loss_fn must have the shape"):
        step(state, jnp.zeros(3), None)


def test_tbptt_needs_a_carry():
    step = jr.make_tbptt_step(lambda *_: None, optax.sgd(0.1))
    with pytest.raises(TypeError, match="carry must be given"):
        step(jr.TrainState.create(jnp.ones(2), optax.sgd(0.1)), None, None)


def test_labels_over_a_stack():
    params = {
        "body": (
            jr.embed(3).init(jax.random.key(0), 5),
            jr.learned_initial_carry(jr.lstm(4, peephole=True)).init(jax.random.key(0), 3),
        ),
        "head": jr.dense(2).init(jax.random.key(0), 4),
    }
    labels = jr.parameter_labels(params)
    assert labels["body"][0].table == "input"
    assert labels["body"][1].cell.kernel == "input"
    assert labels["body"][1].cell.bias == "input"
    assert labels["body"][1].cell.recurrent_kernel == "recurrent"
    assert labels["body"][1].cell.peephole == "recurrent"
    assert labels["body"][1].initial_carry == jr.cells.LSTMCarry("recurrent", "recurrent")
    assert set(labels["head"]) == {"readout"}


def test_labels_of_linear_cells():
    def labels(cell):
        params = cell.init(jax.random.key(0), 4)
        return parameters_by_label(params, jr.parameter_labels(params))

    ring = {"nu_log", "theta_log", "gamma_log"}
    spectrum = {"decay_log", "eigenvalue_imag", "step_log"}
    assert labels(jr.ema())["ssm"] == {"decay_logit"}
    assert labels(jr.diagonal_rnn(4))["ssm"] == {"eigenvalue_logit"}
    assert labels(jr.rg_lru()) == {
        "ssm": {"eigenvalue_logit"},
        "input": {"gate_kernel", "gate_bias"},
    }
    assert labels(jr.s4d(4))["ssm"] == labels(jr.s5(4, 4))["ssm"] == spectrum
    lru = labels(jr.lru(4, 4))
    assert lru["ssm"] == ring and lru["input"] == {"kernel_real", "kernel_imag"}
    assert lru["readout"] == {"output_kernel_real", "output_kernel_imag", "skip_kernel"}


def parameters_by_label(params, labels):
    named = {}
    for name, label in labels._asdict().items():
        if getattr(params, name) is not None:
            named.setdefault(label, set()).add(name)
    return named


def test_labels_drive_multi_transform():
    cell = jr.elman(NUM_UNITS)
    optimizer = optax.multi_transform(
        {"recurrent": optax.set_to_zero(), "input": optax.sgd(0.1)}, jr.parameter_labels
    )
    state = start(cell, optimizer)
    batch = batch_of(dtype=jnp.float32)
    new_state, _ = jr.make_train_step(squared_outputs(cell), optimizer)(state, batch)
    old, new = state.params, new_state.params
    assert (new.recurrent_kernel == old.recurrent_kernel).all()
    assert (new.kernel != old.kernel).any()


@pytest.mark.parametrize("make", [jr.gru, lambda size: jr.lstm(size, layer_norm=True)])
def test_a_state_and_a_learned_carry_can_be_donated(make):
    cell, optimizer = jr.learned_initial_carry(make(NUM_UNITS)), optax.sgd(0.1)

    def loss_fn(params, carry, xs, key):
        rollout = jr.unroll(cell, params, xs, carry=carry, key=key)
        return (rollout.outputs**2).mean(), (rollout.carry, {})

    step = jax.jit(jr.make_tbptt_step(loss_fn, optimizer), donate_argnums=(0, 1))
    state = start(cell, optimizer)
    xs = jnp.ones((4, NUM_INPUTS))
    state, carry, _ = step(state, cell.initial_carry(state.params), xs)
    assert int(step(state, carry, xs)[0].step) == 2
