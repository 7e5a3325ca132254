"""The parts of the gradients experiment against slow, obvious versions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.jacobians import GAUSSIAN, ORTHOGONAL, product, recurrent_kernel
from experiments.gradients.measure import (
    NUM_SYMBOLS,
    TANH,
    TRUNCATION,
    Setting,
    batches,
    initial_params,
    loss_of,
    make_model,
    num_steps,
)
from experiments.gradients.warning import Grown, from_on, share

CONFIG = Config(num_units=4, seeds=2, delays=(2, 5), truncations=(1, 3, 6))


def drawn(delay, truncation, epoch=0, seed=0):
    """The minibatches of one seed."""
    setting = Setting(TRUNCATION, TANH, 1.0, delay, truncation)
    return jax.tree.map(lambda leaf: leaf[seed], batches(CONFIG, setting, epoch))


@pytest.fixture(scope="module")
def tanh():
    """The loss of the tanh cell, and the parameters of the first seed."""
    params = jax.tree.map(lambda leaf: leaf[0], initial_params(CONFIG, TANH, 1.0))
    return loss_of(make_model(CONFIG, TANH)), params


def test_the_product_takes_the_last_factor_first():
    first, second = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    assert product(np.stack([first, second])).tolist() == [[0, 0], [0, 1]]
    assert product(np.stack([second, first])).tolist() == [[1, 0], [0, 0]]


def test_kernels_have_the_radius_they_are_drawn_for():
    orthogonal, gaussian = (recurrent_kernel(kind, 6, 3) for kind in (ORTHOGONAL, GAUSSIAN))
    assert np.linalg.svd(orthogonal)[1] == pytest.approx(np.ones(6))
    assert np.abs(np.linalg.eigvals(gaussian)).max() == pytest.approx(1)
    assert np.linalg.svd(gaussian)[1].max() > 1.2
    assert not np.array_equal(recurrent_kernel(GAUSSIAN, 6, 3), recurrent_kernel(GAUSSIAN, 6, 4))


@pytest.mark.parametrize("delay", [2, 5])
def test_the_marked_symbol_is_what_is_asked_for(delay):
    batch = drawn(delay, 3, epoch=4, seed=1)
    xs, target = batch["xs"], batch["target"]
    for update in range(len(xs)):
        for row in range(xs.shape[1]):
            marked = [step for step in range(xs.shape[2]) if xs[update, row, step, -1] == 1]
            assert marked == [xs.shape[2] - 1 - delay]
            symbols = [list(x[:-1]).index(1.0) for x in xs[update, row]]
            assert symbols[marked[0]] == target[update, row]
    assert set(np.unique(target)) == set(range(NUM_SYMBOLS))
    assert set(batch["start"]) == {5 - delay} and set(batch["cut"]) == {3}
    assert np.array_equal(drawn(delay, 3, epoch=4, seed=1)["xs"], xs)
    for other in (drawn(delay, 3, epoch=5, seed=1), drawn(delay, 3, epoch=4, seed=0)):
        assert not np.array_equal(other["xs"], xs)


@pytest.fixture(scope="module")
def slopes(tanh):
    """From delay and truncation to norms of the loss's gradient by the inputs, a step each."""
    loss_fn, params = tanh

    @jax.jit
    def by_xs(xs, batch):
        return jax.grad(lambda xs: loss_fn(params, batch | {"xs": xs}, None)[0])(xs)

    def of(delay, truncation):
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), drawn(delay, truncation))
        return np.linalg.norm(by_xs(batch["xs"], batch), axis=(0, 2))

    return of


@pytest.mark.parametrize("delay", [2, 5])
@pytest.mark.parametrize("truncation", [1, 3, 6])
def test_the_gradient_reaches_as_many_steps_as_the_truncation_and_no_padding(
    slopes, delay, truncation
):
    heard = slopes(delay, truncation) > 0
    steps = np.arange(num_steps(CONFIG))
    assert list(heard) == list(steps >= max(6 - truncation, 5 - delay))


def test_the_cut_keeps_the_loss(tanh):
    loss_fn, params = tanh

    def loss(truncation):
        batch = jax.tree.map(lambda leaf: leaf[0], drawn(5, truncation))
        return float(loss_fn(params, batch, None)[0])

    cell, readout = params
    batch = drawn(5, 1)
    h = jr.unroll(jr.elman(4), cell, batch["xs"][0]).carry.h
    logits = np.asarray(h @ readout.kernel + readout.bias, np.float64)
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(h)), batch["target"][0]]
    assert loss(1) == pytest.approx(losses.mean(), rel=1e-5)
    assert loss(6) == pytest.approx(losses.mean(), rel=1e-5)


def test_a_share_is_what_the_recent_steps_lack():
    whole = np.array([3.0, 0.0, 4.0])
    assert share(whole, np.array([0.0, 0.0, 4.0])) == pytest.approx(0.6)
    assert share(whole, whole) == 0
    assert math.isnan(share(np.zeros(2), np.zeros(2)))


def test_where_a_property_holds_from():
    places = np.array([0.0, 1.0, 2.0, 3.0])
    assert from_on(places, np.array([True, False, True, True])) == 2
    assert from_on(places, np.ones(4, bool)) == 0
    assert from_on(places, np.array([True, True, True, False])) == math.inf


def test_the_step_of_an_overflow():
    grown = Grown(2.0, {"a": np.array([1.0, 2.0, np.inf, np.inf]), "b": np.ones(4)})
    assert grown.overflow("a") == 3 and grown.overflow("b") is None
    assert grown.predicted(1000.0) == 10  # 2**9 = 512, 2**10 = 1024
