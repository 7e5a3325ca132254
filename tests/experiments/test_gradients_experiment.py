"""The gradients experiment: a small run, reports of its prefixes, criteria that can fail."""

import json

import numpy as np
import pytest
from support.compiler import run_with_defaults

from experiments.frame.checkpoints import Checkpoints
from experiments.gradients.config import Config
from experiments.gradients.expect import judged
from experiments.gradients.measure import Results, measure, settings_of, train
from experiments.gradients.report import report
from experiments.gradients.warning import saturate

pytestmark = pytest.mark.slow  # small runs of the whole experiment

CONFIG = Config(
    num_units=12,
    num_steps=60,
    gains=(0.5, 1.0, 2.0),
    seeds=2,
    delays=(8,),
    truncations=(1, 9),
    updates=100,
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"), {})


@pytest.fixture(scope="module")
def prefixes(checkpoints):
    """The results after every step."""
    usual = {"float32": run_with_defaults(saturate, CONFIG, "float32")}
    measured = measure(CONFIG, checkpoints)
    return [one._replace(formats=one.formats | usual) if one.formats else one for one in measured]


@pytest.fixture(scope="module")
def results(prefixes):
    return prefixes[-1]


def words(results):
    return {line.point: line.word for line in judged(CONFIG, results)}


def test_every_part_is_there_and_what_must_hold_holds(results):
    counts = [len(part) for part in results[1:]]
    assert counts == [3, 5, 2, 3, 4, 3, 4, 4] and results.worked
    found = words(results)
    assert len(found) == 19 and "not run" not in found.values()
    for point in ("the product is ordered", "worked example", "ρ below 1 contracts"):
        assert found[point] == "pass"
    for point in ("float16 overflows, float32 carries", "float32 tanh is 1 beyond 9"):
        assert found[point] == "pass"
    # 100 updates teach nothing.
    assert found["a gradient that reaches teaches"] == "FAIL"


@pytest.mark.parametrize(
    ("number", "pictures"), [(1, 0), (2, 1), (3, 2), (5, 3), (7, 4), (8, 5), (12, 6)]
)
def test_every_prefix_has_a_report(prefixes, number, pictures, written, rows):
    made = report(CONFIG, prefixes[number - 1])
    assert len(made.pictures) == pictures
    folder = written(made, "interrupted")
    assert (folder / "report.html").read_text().count("data:image/png;base64,") == pictures
    lines = json.loads((folder / "verdicts.json").read_text())
    assert lines[0]["word"] == "pass" and lines[15]["word"] == "not run"
    assert (folder / "results.csv").exists() == (number > 7)


def test_the_whole_report_has_all_tables_and_rows(results, written, rows):
    made = report(CONFIG, results)
    folder = written(made)
    assert len(made.pictures) == 6 and len(made.tables) == 7
    trained = rows(folder / "results.csv")
    assert [row["part"] for row in trained] == 8 * ["truncation"] + 8 * ["clipping"]
    assert {row["status"] for row in trained} == {"ok"}
    assert len(rows(folder / "metrics.csv")) == 16 * 100
    assert len(rows(folder / "exponents.csv")) == 3 * 2 * 3 * 2


def test_the_trainings_come_back_from_their_checkpoints(results, checkpoints):
    trained = [*results.truncation, *results.clipping]
    for setting, before in zip(settings_of(CONFIG), trained, strict=True):
        again = train(CONFIG, setting, checkpoints, lambda epochs: None)
        assert again.setting == before.setting
        for name, values in again.fitted.history.items():
            assert np.array_equal(values, before.fitted.history[name])


def changed(results, part, change):
    """The results with every record of a part as `change(name, record)` makes it."""
    records = getattr(results, part)
    if isinstance(records, dict):
        records = {name: change(name, one) for name, one in records.items()}
    elif hasattr(records, "_replace"):
        records = change(part, records)
    else:
        records = [change(part, one) for one in records]
    return results._replace(**{part: records})


def replaced(**fields):
    """A change of some fields, which are given as functions of the record."""
    return lambda name, one: one._replace(**{k: make(one) for k, make in fields.items()})


def learned(reached):
    """A change of trainings: learned where the gradient reaches, or the other way round."""

    def change(name, one):
        value = 1.0 if one.setting.reaches == reached else 0.3
        history = one.fitted.history | {"accuracy": np.full((2, 2, 50), value)}
        return one._replace(fitted=one.fitted._replace(history=history))

    return change


@pytest.mark.parametrize(
    ("point", "part", "change"),
    [
        ("the product is ordered", "worked", replaced(reversed=lambda one: 0.01)),
        ("the product is ordered", "worked", replaced(in_order=lambda one: 0.01)),
        ("worked example", "worked", replaced(detached=lambda one: (*one.detached[:3], 0.5))),
        ("worked example", "worked", replaced(average=lambda one: (0.0, *one.average[1:]))),
        ("linear: log ρ", "radius", replaced(exponents=lambda one: one.exponents + 0.2)),
        ("ρ below 1 contracts", "radius", replaced(exponents=lambda one: one.exponents + 2)),
        ("float32 tanh is 1 beyond 9", "formats", replaced(end=lambda one: 10.0)),
        (
            "float16 overflows, float32 carries",
            "growth",
            replaced(states=lambda one: one.states | {"float16": np.ones(9)}),
        ),
        ("clipping shortens", "warnings", replaced(cosine=lambda one: 0.9)),
        ("clipping restores nothing", "warnings", replaced(long_share_clipped=lambda one: 0.5)),
        ("clipping restores nothing", "clipping", learned(True)),
        ("a gradient that reaches teaches", "truncation", learned(False)),
        ("truncation limits credit, tanh", "truncation", learned(False)),
        ("truncation limits credit, LSTM", "truncation", learned(False)),
    ],
)
def test_a_criterion_can_fail(results, point, part, change):
    if part != "truncation":  # 100 updates teach too little to pass.
        assert words(results)[point] == "pass"
    assert words(changed(results, part, change))[point] == "FAIL"


@pytest.mark.parametrize(("shift", "below", "above"), [(-9, "pass", "FAIL"), (9, "FAIL", "pass")])
def test_the_sign_of_exponents_is_judged_on_both_sides(results, shift, below, above):
    moved = changed(results, "radius", replaced(exponents=lambda one: one.exponents + shift))
    found = words(moved)
    assert (found["ρ below 1 contracts"], found["ρ above 1 explodes"]) == (below, above)


def with_horizons(results, horizons):
    def change(name, one):
        return one._replace(horizons=np.array([horizons[name.split()[-1]]]))

    return words(changed(results, "gates", change))["gates remember"]


def test_the_criterion_of_the_gates_goes_by_all_horizons(results):
    # The last words of the names: forget biases are "0" and "1".
    good = {"Elman": 4, "GRU": 5, "0": 3, "1": 9, "chrono": 20}
    assert with_horizons(results, good) == "pass"
    for name, value in (("Elman", 5), ("0", 9), ("1", 20), ("chrono", 19)):
        assert with_horizons(results, good | {name: value}) == "FAIL"


def drifting(results, last, mean):
    def change(name, one):
        norms = np.ones_like(one.norms)
        if name == "relu":
            norms[:, -1, :, -1] = last
        return one._replace(norms=norms, means=np.full_like(one.means, mean))

    return words(changed(results, "radius", change))["relu drifts upwards"]


def test_the_criterion_of_the_drift_goes_by_norm_and_mean(results):
    bound = 100 * np.sqrt(CONFIG.num_units)
    assert drifting(results, bound + 1, mean=1) == "pass"
    assert drifting(results, bound - 1, mean=1) == drifting(results, bound + 1, mean=0) == "FAIL"


def test_the_criteria_of_the_truncation_can_pass(results):
    found = words(changed(results, "truncation", learned(True)))
    for point in ("a gradient that reaches teaches", "truncation limits credit, LSTM"):
        assert found[point] == "pass"


def clipped_and_not(results, with_clip, without):
    """The verdict on clipping when so many of both seeds learned, None for those that failed."""

    def change(name, one):
        value = with_clip if np.isfinite(one.setting.clip) else without
        accuracy = np.full((2, 2, 50), np.nan if value is None else value)
        fitted = one.fitted._replace(history={"accuracy": accuracy})
        return one._replace(fitted=fitted._replace(failed=np.full(2, value is None)))

    return words(changed(results, "clipping", change))["clipping helps against explosion"]


def test_clipping_helps_where_it_learns_more_or_the_others_fail(results):
    assert clipped_and_not(results, 0.9, 0.7) == clipped_and_not(results, 0.9, None) == "pass"
    assert clipped_and_not(results, 0.9, 0.85) == "FAIL"


def test_trainings_are_judged_when_all_of_a_part_are_there(prefixes):
    assert words(prefixes[9])["a gradient that reaches teaches"] == "not run"
    assert words(Results())["the product is ordered"] == "not run"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--gains 0.5 2", "--gains must be from below 1 to above 1, with 1 among them"),
        ("--gains 1 2", "--gains must be from below 1 to above 1, with 1 among them"),
        ("--gains 2 1", "--gains must be one or more, rising, finite and above 0, got 2.0 1.0"),
        ("--updates 150", "--updates must be a positive multiple of 100, got 150"),
        ("--delays 4 4", "--delays must be one or more from 1 on, each once, got 4 4"),
        ("--truncations 0", "--truncations must be one or more from 1 on, each once, got 0"),
        ("--clips inf", "--clips must be one or more, each once, finite and above 0, got inf"),
        ("--num-steps 200", "--num-steps must be at most 115 for a radius of 2, got 200"),
        ("--num-steps 5", "--num-steps must be at least 20, got 5"),
        ("--num-units 1", "--num-units must be at least 2, got 1"),
    ],
)
def test_wrong_options_are_one_line(options, expected, refused):
    assert expected in refused("gradients", options.split())
