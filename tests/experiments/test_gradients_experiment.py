"""The gradients experiment: a small run, reports of its prefixes, criteria that can fail."""

import csv
import json

import numpy as np
import pytest
from support.compiler import run_with_defaults

from experiments.frame import cli
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.legacy import html_page
from experiments.frame.run_folder import RunFolder
from experiments.gradients import measure, report
from experiments.gradients.config import Config
from experiments.gradients.expectations import verdicts
from experiments.gradients.gates import Gated
from experiments.gradients.precision import Grown, Saturated, saturate
from experiments.gradients.recall import Clipped, Recalled, train_truncated
from experiments.gradients.sweep import Swept
from experiments.gradients.warning import Warned
from experiments.gradients.worked import Worked

CONFIG = Config(
    num_units=4,
    num_steps=60,
    gains=(0.5, 1.0, 2.0),
    seeds=1,
    delays=(2,),
    truncations=(1, 3),
    updates=100,
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"), {})


@pytest.fixture(scope="module")
def results(checkpoints):
    saturated = run_with_defaults(saturate, CONFIG)
    measured = measure(CONFIG, checkpoints)
    return [saturated if isinstance(one, Saturated) else one for one in measured]


def words(results):
    return {line.point: line.word for line in verdicts(CONFIG, results)}


def test_every_part_is_there_and_what_must_hold_holds(results):
    kinds = [type(one) for one in results]
    expected = {Worked: 1, Swept: 3, Gated: 5, Saturated: 1, Grown: 4, Warned: 3}
    expected |= {Recalled: 4, Clipped: 4}
    assert {kind: kinds.count(kind) for kind in expected} == expected
    found = words(results)
    assert "not run" not in found.values()
    for point in ("the product is ordered", "worked example", "ρ below 1 contracts"):
        assert found[point] == "pass"
    for point in ("float16 overflows, float32 carries", "float32 tanh is 1 beyond 9"):
        assert found[point] == "pass"
    # 100 updates teach nothing.
    assert found["a gradient that reaches teaches"] == "FAIL"


@pytest.mark.parametrize("number", [1, 2, 10, 13, 17, 20, 23])
def test_every_prefix_has_a_report(results, number, tmp_path):
    with RunFolder.create("gradients", tmp_path / "run") as folder:
        page = report(CONFIG, results[:number], folder)
        run = {"status": "interrupted", "seconds": 1, "options": {}, "environment": {}}
        document = html_page(page, run, folder.partial)
        written = {path.name for path in folder.partial.iterdir()}
        lines = json.loads((folder.partial / "verdicts.json").read_text())
    assert document.count("data:image/png;base64,") == len(page.pictures)
    assert {picture.name for picture in page.pictures} <= written
    assert lines[0]["word"] == "pass" and "not run" in [line["word"] for line in lines]
    assert ("trainings.csv" in written) == (number > 17)


def test_the_whole_report_has_all_pictures_and_rows(results, tmp_path):
    with RunFolder.create("gradients", tmp_path / "run") as folder:
        page = report(CONFIG, results, folder)
        rows = list(csv.DictReader((folder.partial / "trainings.csv").read_text().splitlines()))
    assert len(page.pictures) == 6 and len(page.tables) == 8
    assert [row["part"] for row in rows] == 4 * ["truncation"] + 4 * ["clipping"]
    assert {row["status"] for row in rows} == {"ok"}


def test_the_trainings_come_back_from_their_checkpoints(results, checkpoints):
    again = list(train_truncated(CONFIG, checkpoints, lambda epochs: None))
    before = [one for one in results if isinstance(one, Recalled)]
    for one, other in zip(again, before, strict=True):
        assert one[:4] == other[:4]
        for name, values in one.fitted.history.items():
            assert np.array_equal(values, other.fitted.history[name])


def changed(results, kind, change):
    return [change(one) if isinstance(one, kind) else one for one in results]


def learned(one, reached):
    accuracy = (
        np.ones((2, 50)) if (one.truncation > one.delay) == reached else np.full((2, 50), 0.3)
    )
    history = one.fitted.history | {"accuracy": accuracy}
    return one._replace(fitted=one.fitted._replace(history=history))


@pytest.mark.parametrize(
    ("point", "kind", "change"),
    [
        ("the product is ordered", Worked, lambda one: one._replace(reversed=0.01)),
        ("worked example", Worked, lambda one: one._replace(detached_sensitivity=0.5)),
        ("linear: log ρ", Swept, lambda one: one._replace(exponents=one.exponents + 0.2)),
        ("ρ below 1 contracts", Swept, lambda one: one._replace(exponents=one.exponents + 2)),
        (
            "float32 tanh is 1 beyond 9",
            Saturated,
            lambda one: one._replace(ends=one.ends | {"float32": 10.0}),
        ),
        (
            "float16 overflows, float32 carries",
            Grown,
            lambda one: one._replace(states=one.states | {"float16": np.ones(9)}),
        ),
        ("clipping shortens", Warned, lambda one: one._replace(cosine=0.9)),
        ("clipping restores nothing", Warned, lambda one: one._replace(long_share_clipped=0.5)),
        ("a gradient that reaches teaches", Recalled, lambda one: learned(one, False)),
        ("truncation limits credit, tanh", Recalled, lambda one: learned(one, False)),
        ("truncation limits credit, LSTM", Recalled, lambda one: learned(one, False)),
    ],
)
def test_a_criterion_can_fail(results, point, kind, change):
    if kind is not Recalled:  # 100 updates teach too little to pass.
        assert words(results)[point] == "pass"
    assert words(changed(results, kind, change))[point] == "FAIL"


def with_horizons(results, **horizons):
    return changed(
        results,
        Gated,
        lambda one: one._replace(horizons=np.array([horizons[one.name.split()[-1]]])),
    )


def test_the_criterion_of_the_gates_goes_by_all_horizons(results):
    # The last words of the names: forget biases are "0" and "1".
    good = {"Elman": 4, "GRU": 5, "0": 3, "1": 9, "chrono": 20}
    assert words(with_horizons(results, **good))["gates remember"] == "pass"
    for name, value in (("Elman", 5), ("0", 9), ("1", 20), ("chrono", 19)):
        assert words(with_horizons(results, **good | {name: value}))["gates remember"] == "FAIL"


def drifting(results, last, mean):
    def change(one):
        norms = np.ones_like(one.norms)
        if one.activation == "relu":
            norms[:, -1, :, -1] = last
        return one._replace(norms=norms, means=np.full_like(one.means, mean))

    return words(changed(results, Swept, change))["relu drifts upwards"]


def test_the_criterion_of_the_drift_goes_by_norm_and_mean(results):
    # 100 √H is 200.
    assert drifting(results, last=201, mean=1) == "pass"
    assert drifting(results, last=199, mean=1) == drifting(results, last=201, mean=0) == "FAIL"


def test_the_criteria_of_the_truncation_can_pass(results):
    taught = changed(results, Recalled, lambda one: learned(one, True))
    found = words(taught)
    for point in ("a gradient that reaches teaches", "truncation limits credit, LSTM"):
        assert found[point] == "pass"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gains", "0.5", "2"], "--gains must be rising, finite, above 0, with 1 among them"),
        (["--gains", "2", "1"], "--gains must be rising"),
        (["--updates", "150"], "--updates must be 100, 200, ..., got 150"),
        (["--delays", "4", "4"], "--delays must be one or more, each once, got 4 4"),
        (["--truncations", "0"], "--truncations must be from 1 on, got 0"),
        (["--clips", "inf"], "--clips must be finite and above 0, got inf"),
        (["--num-steps", "200"], "--num-steps must be at most 115 for a radius of 2, got 200"),
        (["--num-steps", "5"], "--num-steps must be at least 20, got 5"),
        (["--num-units", "1"], "--num-units must be at least 2, got 1"),
    ],
)
def test_wrong_options_are_one_line(options, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["gradients", *options]) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
