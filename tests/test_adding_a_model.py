"""A model is added in one file: everything else takes it as it is."""

import jax
import numpy as np
import optax
import pytest
from support.toy_model import ToyParams, toy

import jaxrnn as jr
from experiments import models
from experiments.frame.models import MODELS, NONLINEAR, Model
from jaxrnn.testing import check_cell

D, H, T = 3, 5, 12
CELL = toy(H)
ROLES = ToyParams("input", "recurrent", "ssm")


@pytest.fixture(scope="module")
def params():
    return CELL.init(jax.random.key(0), D)


@pytest.fixture(scope="module")
def xs():
    return jax.random.normal(jax.random.key(1), (2, T, D))


def test_it_is_a_value():
    assert toy(H) == CELL != toy(H + 1) and repr(CELL) == f"toy({H})"


def test_labels(params):
    assert jr.parameter_labels(params) == jr.parameter_labels(params, CELL) == ROLES


@pytest.mark.parametrize("embed", [lambda cell: jr.block(cell, D), jr.bidirectional, jr.zoneout])
def test_labels_of_what_it_is_part_of(embed):
    model = embed(CELL, 0.1) if embed is jr.zoneout else embed(CELL)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), D))
    labels = jax.tree.leaves(
        jr.parameter_labels(params, model), is_leaf=lambda node: isinstance(node, ToyParams)
    )
    assert ROLES in labels and "unlabelled" not in labels


def test_the_laws():
    check_cell(CELL, evaluators=[jr.sequential(checkpoint="sqrt"), jr.newton()])


def test_cost(params, xs):
    cost = jr.count_cost(CELL, params, xs)
    assert cost.parameters == D * H + H**2 + H
    assert cost.streaming_memory == 4 * 2 * H
    assert cost.multiply_adds >= 2 * T * (D * H + H**2)


@pytest.mark.parametrize(
    "diagnose",
    [
        jr.carry_norms,
        jr.input_sensitivity,
        jr.memory_horizon,
        jr.carry_jacobians,
        jr.jacobian_spectrum,
        jr.lyapunov_exponents,
        jr.saturation,
    ],
)
def test_diagnostics(diagnose, params, xs):
    assert np.isfinite(diagnose(CELL, params, xs)).all()


def test_training_with_a_rule_for_each_role(params, xs):
    def loss_fn(params, batch, key):
        return (jr.unroll(CELL, params, batch, key=key).outputs ** 2).mean(), {}

    transforms = {"input": optax.sgd(1.0), "recurrent": optax.set_to_zero(), "ssm": optax.sgd(0.1)}
    optimizer = optax.multi_transform(transforms, jr.parameter_labels)
    state = jr.TrainState.create(params, optimizer)
    train_step = jax.jit(jr.make_train_step(loss_fn, optimizer))
    losses = []
    for _ in range(20):
        state, metrics = train_step(state, xs)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.5 * losses[0]
    assert metrics["recurrent_gradient_norm"] > 0 and metrics["input_gradient_norm"] > 0
    assert (state.params.recurrent_kernel == params.recurrent_kernel).all()
    assert (state.params.rate_logit != params.rate_logit).all()


def test_the_models_experiment(monkeypatch):
    entry = Model("toy", NONLINEAR, lambda sizes, **o: toy(sizes.H, **o), "D*H + H**2 + 2*H")
    monkeypatch.setitem(MODELS, "toy", entry)
    config = models.Config(models=("toy",), width=8, num_steps=4)
    config.check()
    [[one]] = models.measure(config)
    assert (one.num_params, one.carry_numbers, one.multiply_adds) == (8 * 17, 8, 8 * 18)
    assert one.evaluators == ("sequential", "chunked", "newton") and all(one.support)
    report = models.report(config, [one])
    assert [table.rows[0][0] for table in report.tables[:3]] == ["toy"] * 3 and not report.failed
