"""The six checks: a criterion that is here before the run, and how each is judged."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.stats import LEVEL
from experiments.frame.verdicts import Expectation, Verdict
from experiments.minimal.config import Config
from experiments.minimal.forecasts import Entry, Forecasts, change_errors, difference
from experiments.minimal.measure import Results
from experiments.minimal.probes import Difference, PaddingProbe
from experiments.minimal.task import scaled_changes
from experiments.minimal.train import Trained

UNEXPLAINED = 1e-3
TOLERANCE, CAUGHT = 1e-5, 1e-3
FAILED_SHARE = 0.2
NORMS = ("gradient_norm", "recurrent_gradient_norm", "input_gradient_norm")
RECORDED = ("width", "truncation", "evaluator", "num_params", "status")


OVERFIT = Expectation(
    "1 overfits a short sequence",
    f"of 24 targets at most {UNEXPLAINED:g} of the variance is left, for every seed",
)
PADDING = Expectation(
    "2 masked padding changes nothing",
    "no bit of outputs, carry or gradients differs; without the mask the carry does",
)
BOUNDARIES = Expectation(
    "3 mixed boundaries are caught",
    f"right ways within {TOLERANCE:g} of the sequences alone, every wrong way beyond {CAUGHT:g}",
)
GENERATION = Expectation(
    "4 teacher-forced and free-running apart",
    f"equal at the first month (to {TOLERANCE:g}); no truth after the origin reaches a free run",
)
BASELINES = Expectation(
    "5 split, and compared with baselines",
    "nothing of the training depends on what is tested on; better than without memory, and no "
    f"baseline better ({LEVEL} % intervals)",
)
RECORD = Expectation(
    "6 recorded",
    "norms of every update beside truncation, width and evaluator; the seed provoked to fail is "
    f"marked failed, and of the others at most {100 * FAILED_SHARE:g} %",
)


def judged(config: Config, results: Results, trainings: Sequence[Training]) -> list[Verdict]:
    """All six, as far as the results go; the last one judges the rows that are written."""
    evaluated = results.evaluated
    seed_rows = [row for one in trainings for row in one.result_rows()]
    update_rows = [row for one in trainings for row in one.update_rows()]
    return [
        OVERFIT.judge(overfit, results.overfit),
        PADDING.judge(lambda made: padding(made.padding), evaluated),
        BOUNDARIES.judge(lambda made: boundaries(made.boundaries), evaluated),
        GENERATION.judge(
            lambda made: generation(made.forecasts, scaled_changes(made.task, made.task.test_from)),
            evaluated,
        ),
        BASELINES.judge(lambda made: baselines(made.entries, made.leaks), evaluated),
        RECORD.judge(lambda made: record(config, seed_rows, update_rows), evaluated),
    ]


def overfit(trained: Trained) -> tuple[str, Any]:
    """The last seed is the provoked one and does not count."""
    left = trained.fitted.last("loss")[:-1]
    return f"at most {left.max():.1e} left", np.all(left <= UNEXPLAINED)


def padding(probe: PaddingProbe) -> tuple[str, Any]:
    """Also fails when padding that is read as data leaves no trace: then nothing was tested."""
    measured = (
        f"{probe.masked} of {probe.total:,} numbers differ; without the mask {probe.unmasked} do"
    )
    return measured, probe.masked == 0 and probe.unmasked > 0


def boundaries(differences: Sequence[Difference]) -> tuple[str, Any]:
    """NaN is neither right nor caught."""
    right = [one.value for one in differences if not one.is_fault]
    wrong = [one.value for one in differences if one.is_fault]
    caught = sum(value > CAUGHT for value in wrong)
    measured = (
        f"right ways off by at most {max(right):.0e}; {caught} of {len(wrong)} wrong ways caught, "
        f"the least of them off by {min(wrong):.0e}"
    )
    passed = all(value <= TOLERANCE for value in right) and caught == len(wrong) > 0
    return measured, passed


def generation(forecasts: Forecasts, truth: np.ndarray) -> tuple[str, Any]:
    """Both scores are errors of the same changes of the same months, in units of the scale."""
    forced = forecasts.forced()
    apart = np.abs(forced[..., 0] - forecasts.free[..., 0]).max()
    errors = [
        change_errors(made, truth, forecasts.origins).mean(axis=(0, 1, 2))
        for made in (forced, forecasts.free)
    ]
    measured = (
        f"first months differ by {apart:.0e}; {forecasts.leaked} leaks; error in month "
        f"{len(errors[0])}: {errors[0][-1]:.2f} forced, {errors[1][-1]:.2f} free"
    )
    finite = np.isfinite(errors).all()
    passed = apart <= TOLERANCE and forecasts.leaked == 0 and forecasts.forced_sees and finite
    return measured, passed


def baselines(entries: Sequence[Entry], leaks: Sequence[str]) -> tuple[str, Any]:
    """The hybrid comes first, its stateless twin second, baselines after them."""
    hybrid, stateless, *others = entries
    memory = difference(hybrid.one_step, stateless.one_step)
    better = [one.name for one in others if not difference(hybrid.one_step, one.one_step).low <= 0]
    best = min(others, key=lambda entry: entry.one_step.mean())
    measured = (
        f"hybrid {hybrid.one_step.mean():.3f}, stateless {stateless.one_step.mean():.3f}, best "
        f"baseline {best.one_step.mean():.3f} ({best.name}); "
        f"{len(leaks)} leaks; better than the hybrid beyond doubt: {', '.join(better) or 'none'}"
    )
    return measured, not leaks and memory.high < 0 and not better


def record(
    config: Config, seed_rows: Sequence[Mapping[str, Any]], update_rows: Sequence[Mapping[str, Any]]
) -> tuple[str, Any]:
    """Judges the rows that are written, not what they were made of."""
    of_seed: dict[Any, list[Mapping[str, Any]]] = {}
    for row in update_rows:
        of_seed.setdefault((row["training"], row["seed"]), []).append(row)
    gaps, failed, provoked = 0, 0, []
    for row in seed_rows:
        updates = of_seed.get((row["training"], row["seed"]), [])
        is_failed = row["status"] == "failed"
        if row["provoked"]:
            provoked.append(is_failed)
            continue
        failed += is_failed
        expected = config.overfit_updates if row["purpose"] == "overfit" else config.updates
        complete = len(updates) == expected and all(row[name] for name in RECORDED)
        norms = [one[name] for one in updates for name in NORMS]
        gaps += not (complete and (is_failed or np.isfinite(norms).all()))
    num_seeds = len(seed_rows) - len(provoked)
    measured = (
        f"{len(seed_rows)} trainings, {gaps} with gaps; {failed} of {num_seeds} failed; the "
        f"provoked one is {'marked' if provoked and all(provoked) else 'NOT marked'}"
    )
    passed = gaps == 0 and provoked and all(provoked) and failed <= FAILED_SHARE * num_seeds
    return measured, passed
