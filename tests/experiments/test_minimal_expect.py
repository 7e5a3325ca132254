"""Each of the six checks passes what is right and fails what is sabotaged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted
from experiments.minimal import expect
from experiments.minimal.config import Config
from experiments.minimal.forecasts import (
    Entry,
    exponential_smoothing,
    make_forecasts,
    one_step_runner,
)
from experiments.minimal.model import Setting, with_share
from experiments.minimal.probes import Difference, PaddingProbe, probe_boundaries, probe_padding
from experiments.minimal.task import with_mean
from experiments.minimal.train import Trained, initial_params, outputs, train

SERIES = np.random.default_rng(3).normal(size=(3, 24))
INPUTS = SERIES[..., None]


def passes(judge, *parts):
    return bool(judge(*parts)[1])


def trained(loss):
    history = {"loss": np.asarray(loss)[:, None]}
    fitted = Fitted(None, history, 1, np.zeros(len(loss), bool), 0.0)
    return Trained("overfit", Setting(4, 25, 0.8), "sequential", fitted)


@pytest.mark.parametrize(
    ("last", "passed"),
    [([1e-4, 1e-3, np.nan], True), ([1e-4, 2e-3, 0], False), ([1e-4, np.nan, 0], False)],
)
def test_1_fails_when_any_seed_leaves_something(last, passed):
    assert passes(expect.overfit, trained([[1.0, value] for value in last])) is passed


def smoothed(xs, mask, reset, carry):
    """h ← h / 2 + x, by a loop: the outputs and the last h."""
    xs = np.asarray(xs)
    h = np.zeros((len(xs), 1), xs.dtype) if carry is None else carry
    outputs = []
    for t in range(xs.shape[1]):
        h = h if reset is None else np.where(reset[:, t, None], 0, h)
        h = np.where(mask[:, t, None], h / 2 + xs[:, t], h)
        outputs.append(h)
    return np.stack(outputs, axis=1), h


def padding_run(sees_mask=True, reads=True):
    def run(xs, mask):
        mask = np.ones(xs.shape[:2], bool) if mask is None or not sees_mask else mask
        outputs, carry = smoothed(xs if reads else 0 * mask[..., None], mask, None, None)
        return outputs, carry, carry.sum()

    return run


def test_2_passes_a_mask_and_fails_what_reads_the_padding():
    measured, right = expect.padding(probe_padding(padding_run(), INPUTS, 0))
    assert right and measured.startswith("0 of")
    assert not passes(expect.padding, probe_padding(padding_run(sees_mask=False), INPUTS, 0))


def test_2_fails_when_padding_leaves_no_trace_without_a_mask():
    blind = probe_padding(padding_run(reads=False), INPUTS, 0)
    assert blind.masked == 0 and not passes(expect.padding, blind)
    assert passes(expect.padding, PaddingProbe(0, 5, 100))


def boundary_run(sees_reset=True, sees_carry=True, forgets=False):
    def run(xs, reset, carry=None):
        if forgets:
            reset = np.ones(xs.shape[:2], bool)
        mask = np.ones(xs.shape[:2], bool)
        reset, carry = reset if sees_reset else None, carry if sees_carry else None
        return smoothed(xs, mask, reset, carry)

    return run


@pytest.mark.parametrize(
    ("sabotage", "passed"),
    [
        ({}, True),
        ({"sees_reset": False}, False),
        ({"sees_carry": False}, False),
        ({"forgets": True}, False),
    ],
)
def test_3_passes_resets_and_fails_a_model_that_mixes_or_forgets(sabotage, passed):
    differences = probe_boundaries(boundary_run(**sabotage), INPUTS, (5, 4, 7))
    assert passes(expect.boundaries, differences) is passed


def test_3_fails_when_nothing_is_wrong_on_purpose_or_something_is_nan():
    right, wrong = Difference("right", False, 0.0), Difference("wrong", True, 0.5)
    assert passes(expect.boundaries, [right, wrong])
    for value in (np.nan, 1e-4):
        assert not passes(expect.boundaries, [right, wrong, wrong._replace(value=value)])
    assert not passes(expect.boundaries, [right._replace(value=np.nan), wrong])


ORIGINS = np.array([10, 14, 18])


def one_step(series):
    return series[None, :, :-1] / 2


def free(known, origins, late=0, sees_truth=False):
    """Halves the last known change, again and again."""
    made = []
    for index, origin in enumerate(origins):
        last = known[:, index, origin - 1 - late]
        powers = [last / 2**step for step in range(1, 5)]
        if sees_truth:
            powers[2] = powers[2] + 1e-3 * known[:, index, origin + 1]
        made.append(np.stack(powers, axis=-1))
    return np.stack(made, axis=1)[None]


@pytest.mark.parametrize(
    ("sabotage", "passed"),
    [({}, True), ({"late": 1}, False), ({"sees_truth": True}, False)],
)
def test_4_fails_a_free_run_that_reads_the_truth_or_another_month(sabotage, passed):
    def run(known, origins):
        return free(known, origins, **sabotage)

    made = make_forecasts(one_step, run, SERIES, ORIGINS)
    assert passes(expect.generation, made, SERIES) is passed


def test_4_fails_when_teacher_forcing_is_blind_or_a_score_is_not_finite():
    made = make_forecasts(one_step, free, SERIES, ORIGINS)
    assert passes(expect.generation, made, SERIES)
    assert not passes(expect.generation, made._replace(forced_sees=False), SERIES)
    endless = made.free.copy()
    endless[0, 0, 0, 3] = np.inf
    assert not passes(expect.generation, made._replace(free=endless), SERIES)


def entries(hybrid, stateless, *baselines):
    noise = np.abs(np.random.default_rng(0).normal(size=(1, 15, 36)))
    means = {"hybrid": hybrid, "stateless": stateless}
    means |= {f"baseline {number}": value for number, value in enumerate(baselines)}
    return [Entry(name, "", noise + mean, None) for name, mean in means.items()]


@pytest.mark.parametrize(
    ("made", "leaks", "passed"),
    [
        (entries(0.5, 0.6, 0.5, 0.9), [], True),
        (entries(0.5, 0.6, 0.5, 0.9), ["series to train on"], False),
        (entries(0.5, 0.5, 0.6, 0.9), [], False),
        (entries(0.5, 0.6, 0.9, 0.4), [], False),
        (entries(np.nan, 0.6, 0.5, 0.9), [], False),
    ],
)
def test_5_fails_for_a_leak_for_no_use_of_memory_and_for_a_better_baseline(made, leaks, passed):
    assert passes(expect.baselines, made, leaks) is passed


CONFIG = Config(seeds=2, updates=25, overfit_updates=25)


def record():
    seed_rows, update_rows = [], []
    for purpose, num_seeds in (("overfit", 3), ("choice", 2), ("test", 2), ("other", 2)):
        for seed in range(num_seeds):
            provoked = seed == 2
            names = {"training": purpose, "seed": seed}
            seed_rows.append(
                names
                | {"purpose": purpose, "provoked": provoked, "evaluator": "sequential"}
                | {"status": "failed" if provoked else "ok", "width": 4, "truncation": 6}
                | {"num_params": 9}
            )
            norms = dict.fromkeys(expect.NORMS, np.nan if provoked else 1.0)
            update_rows += [names | {"update": update} | norms for update in range(25)]
    return seed_rows, update_rows


def complete(seed_rows, update_rows):
    pass


def an_update_missing(seed_rows, update_rows):
    del update_rows[-1]


def a_norm_that_is_not_finite(seed_rows, update_rows):
    update_rows[-1]["recurrent_gradient_norm"] = np.inf


def no_evaluator(seed_rows, update_rows):
    seed_rows[0]["evaluator"] = ""


def no_truncation(seed_rows, update_rows):
    seed_rows[-1]["truncation"] = 0


def the_provoked_seed_unmarked(seed_rows, update_rows):
    next(row for row in seed_rows if row["provoked"])["status"] = "ok"


def nothing_provoked(seed_rows, update_rows):
    seed_rows.remove(next(row for row in seed_rows if row["provoked"]))


def two_failed(seed_rows, update_rows):
    for row in seed_rows[-2:]:
        row["status"] = "failed"


def one_failed(seed_rows, update_rows):
    seed_rows[-1]["status"] = "failed"
    update_rows[-1]["gradient_norm"] = np.nan


GAPS = [an_update_missing, a_norm_that_is_not_finite, no_evaluator, no_truncation]
UNMARKED = [the_provoked_seed_unmarked, nothing_provoked, two_failed]


@pytest.mark.parametrize("change", [complete, one_failed, *GAPS, *UNMARKED])
def test_6_fails_for_gaps_and_for_failed_seeds_that_are_not_marked_or_too_many(change):
    rows = record()
    change(*rows)
    assert passes(expect.record, CONFIG, *rows) is (change in (complete, one_failed))


def test_a_truncation_cuts_the_gradient_and_no_value():
    params = jax.tree.map(lambda leaf: leaf[0], initial_params(Setting(3, 1, 0.8), np.arange(1)))
    xs = with_mean(jnp.asarray(SERIES[:, :10], jnp.float32))
    made, reached = {}, {}
    for truncation in (4, 120):

        def last(xs, truncation=truncation):
            ys = outputs(Setting(3, truncation, 0.8), params, xs)
            return ys[:, 9].sum(), ys

        (_, ys), gradient = jax.jit(jax.value_and_grad(last, has_aux=True))(xs)
        made[truncation], reached[truncation] = ys, np.abs(gradient).max(axis=(0, 2)) > 0
    np.testing.assert_allclose(made[4], made[120], rtol=1e-5)
    assert reached[4].tolist() == 8 * [False] + 2 * [True]
    assert reached[120].all()


def test_a_stateless_model_sees_the_last_change_alone():
    params = jax.tree.map(lambda leaf: leaf[0], initial_params(Setting(3, 1, 0.8), np.arange(1)))
    xs = with_mean(jnp.asarray(SERIES[:, :10], jnp.float32))
    changed = xs.at[:, :9].add(1.0)
    for stateless in (True, False):
        setting = Setting(3, 120, 0.8, stateless=stateless)
        one, other = (outputs(setting, params, some)[:, 9] for some in (xs, changed))
        assert bool((one == other).all()) is stateless


def test_without_its_correction_a_trained_hybrid_is_exponential_smoothing(tmp_path):
    setting = Setting(3, 120, 0.6, ahead=3)
    checkpoints = Checkpoints(tmp_path, {})
    trained = train(CONFIG, "test", setting, SERIES, checkpoints, lambda epochs: None)
    params = trained.fitted.params
    made, smoothed = (
        one_step_runner(setting, with_share(params, share))(SERIES) for share in (1.0, 0.0)
    )
    smooth = exponential_smoothing(0.6)
    expected = [smooth(SERIES[:, :month], 1)[:, 0] for month in range(1, SERIES.shape[1])]
    np.testing.assert_allclose(smoothed, np.stack(2 * [np.stack(expected, 1)]), atol=1e-6)
    assert np.abs(made - smoothed).max() > 1e-3


def test_the_correction_reads_what_the_smoothing_left_and_the_gap_to_the_mean():
    setting = Setting(3, 24, 0.6)
    params = jax.tree.map(lambda leaf: leaf[0], initial_params(setting, np.arange(1)))
    xs = np.float32(with_mean(SERIES))
    levels, level = [], 0
    for x in np.moveaxis(xs, 1, 0):
        level = 0.6 * level + 0.4 * x
        levels.append(level)
    levels = np.stack(levels, axis=1)
    read = np.concatenate([xs - levels, levels[..., 1:] - levels[..., :1]], axis=-1)
    correction = jr.serial(jr.gru(3), jr.dense(2, use_bias=False))
    corrected = jr.unroll(correction, params[1], read).outputs
    np.testing.assert_allclose(outputs(setting, params, xs), levels + corrected, atol=1e-5)
