"""Training for experiments: the same bits after a stop, and models of the same size."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitter, Training
from experiments.frame.models import LABELS, MIXERS, count_params, matched_width


def loss_fn(params, batch, key):
    noise = jax.random.normal(jax.random.key(7), batch.shape)
    return ((params["w"] * batch - 3 + 0.1 * noise) ** 2).mean(), {}


def batches(epoch):
    return jax.random.uniform(jax.random.key(epoch), (4, 2), minval=1.0)


def fit(folder, num_epochs, start=1.0, **options):
    fitter = Fitter(loss_fn, optax.sgd(0.1), lambda params: {"w": params["w"]})
    params = {"w": jnp.array(start)}
    checkpoints = Checkpoints(folder, {})
    return fitter.fit("one", params, batches, num_epochs, checkpoints, **options)


def test_a_training_in_two_runs_is_the_training_in_one(tmp_path):
    told = []
    whole = fit(tmp_path / "whole", 6, every=2)
    fit(tmp_path / "parts", 2)
    resumed = fit(tmp_path / "parts", 6, advance=told.append)
    assert told == [2, 1, 1, 1, 1]
    assert whole.history["loss"].shape == (1, 6, 4)
    assert whole.history["w"].shape == (1, 6)
    for name in whole.history:
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])
    assert resumed.params["w"] == whole.params["w"] == whole.history["w"][:, -1]


def test_it_learns_and_says_when_it_fails(tmp_path):
    good, bad = fit(tmp_path / "good", 20), fit(tmp_path / "bad", 2, start=jnp.inf)
    assert good.of_epochs()["loss"][0, -1] < 0.2 * good.of_epochs()["loss"][0, 0]
    assert (good.failed.tolist(), bad.failed.tolist()) == ([False], [True])
    assert good.num_params == 1


def test_seeds_side_by_side_are_each_as_if_alone(tmp_path):
    def of_seeds(folder, num_epochs, **options):
        fitter = Fitter(loss_fn, optax.sgd(0.1), score)
        params = {"w": jnp.array([1.0, jnp.inf, 2.0])}
        seeds = [lambda epoch, seed=seed: batches(epoch + 100 * seed) for seed in range(3)]
        checkpoints = Checkpoints(folder, {})
        alone = [
            fitter.fit(f"{seed}", {"w": params["w"][seed]}, one, num_epochs, checkpoints)
            for seed, one in enumerate(seeds)
        ]
        together = fitter.fit_seeds(
            "all", params, lambda e: jnp.stack([one(e) for one in seeds]), num_epochs, checkpoints
        )
        return alone, together

    def score(params):
        return {"w": params["w"]}

    alone, together = of_seeds(tmp_path, 3)
    assert together.failed.tolist() == [False, True, False] and together.num_params == 1
    for seed, one in enumerate(alone):
        assert one.failed == together.failed[[seed]]
        for name, values in one.history.items():
            np.testing.assert_allclose(together.history[name][seed], values[0], rtol=1e-5)
    assert together.history["loss"].shape == (3, 3, 4) and together.history["w"].shape == (3, 3)
    assert together.of_updates()["loss"].shape == (3, 12) and "w" not in together.of_updates()
    assert together.of_epochs()["loss"].shape == together.of_epochs()["w"].shape == (3, 3)
    np.testing.assert_array_equal(together.last("loss"), together.history["loss"][:, -1, -1])
    assert together.of_good_seeds(together.params)["w"].shape == (2,)
    resumed = of_seeds(tmp_path, 4)[1]
    np.testing.assert_array_equal(resumed.history["loss"][:, :3], together.history["loss"])


def test_a_training_is_a_row_a_seed_and_a_row_an_update(tmp_path):
    fitted = fit(tmp_path, 2, start=jnp.inf)
    training = Training({"model": "gru"}, [3], fitted, {"score": np.array([0.5]), "kind": "a"})
    [row] = training.result_rows()
    named = {"model": "gru", "seed": 3, "status": "failed", "num_params": 1}
    assert row == named | {"score": 0.5, "kind": "a"}
    rows = list(training.update_rows())
    assert [(row["epoch"], row["update"]) for row in rows] == [
        *((1, update) for update in (1, 2, 3, 4)),
        *((2, update) for update in (5, 6, 7, 8)),
    ]
    assert {"loss", "w"} <= set(rows[0])
    [sentence] = training.failed()
    assert sentence == "gru: 1 of 1 seeds had a number that is not finite, and are in no mean."
    assert list(training._replace(fitted=fit(tmp_path / "good", 2)).failed()) == []


def test_some_seeds_of_all(tmp_path):
    fitted = fit(tmp_path, 2)
    assert fitted.history["loss"].shape == (1, 2, 4)
    assert fitted.params_of(0)["w"] == fitted.params["w"][0]
    assert fitted.only(slice(0, 0)).history["w"].shape == (0, 2)


def test_count_params_counts_complex_numbers_twice():
    assert count_params({"a": jnp.zeros((2, 3)), "b": jnp.zeros(4, complex)}) == 14


def test_matched_width_is_the_nearest():
    # kernels and bias of an Elman cell: 5 w + w² + w
    assert matched_width(jr.elman, 5, 16**2 + 6 * 16, range(1, 40)) == 16
    assert matched_width(jr.elman, 5, 1, range(3, 9)) == 3
    assert matched_width(jr.elman, 5, 10**6, range(3, 9)) == 8
    with pytest.raises(ValueError, match="widths"):
        matched_width(jr.elman, 5, 10, ())


def test_every_mixer_can_be_matched():
    assert set(MIXERS) <= set(LABELS)
    for mixer in MIXERS.values():

        def make(width, mixer=mixer):
            return jr.language_model([mixer(width)], width, 20)

        width = matched_width(make, 20, 20_000)
        params = jax.eval_shape(lambda key, w=width: make(w).init(key, 20), jax.random.key(0))
        assert abs(count_params(params) / 20_000 - 1) < 0.12
