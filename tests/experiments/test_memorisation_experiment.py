"""Which characters predictions depend on: against the gradient by the table, and small runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.characters.config import Config as Training
from experiments.characters.model import Sized, sized, stream_of
from experiments.characters.train import files_of
from experiments.characters.writing import passages
from experiments.data.topics import load_topics, make_corpus
from experiments.frame import cli
from experiments.frame.run_folder import RunFolder
from experiments.memorisation import config, measure
from experiments.memorisation.measure import Results, Traced, connect
from experiments.memorisation.report import judged, report

TOPICS = {name: text[:600] for name, text in list(load_topics().items())[:12]}
TRAINING = Training(parameters=5_000, modes=("carried",), held_out=0.4)
FILES = ["config.json", "maps.png", "memorisation.html", "passage.png", "reach.csv", "reach.png"]
FILES += ["report.html", "summary.md", "verdicts.json"]
TRAINED = ["metrics.csv", "results.csv", "seconds.json"]


@pytest.fixture(autouse=True)
def few_topics(monkeypatch):
    monkeypatch.setattr(measure, "load_topics", lambda: TOPICS)


def test_strengths_are_the_gradient_by_the_rows_of_the_table():
    model, text = Sized("gru", 8, 1), "abcdefghij"  # each row is read once, so it is the input
    params = model.init(0)
    found = connect(model, params, [text])
    xs = jnp.asarray(stream_of([text]).xs)

    def asked(table, t):
        moved = (params[0]._replace(table=table), *params[1:])
        logits = jr.unroll(model.layer(), moved, xs).outputs[t]
        return logits[jnp.argmax(logits)] - logits.mean()

    slopes = jax.jit(jax.grad(asked))
    for t in range(len(text)):
        norms = np.linalg.norm(slopes(params[0].table, t), axis=-1)[np.append(xs[1:], 0)]
        np.testing.assert_allclose(found.strength[0, t, :t], norms[:t], rtol=1e-4)
        assert not found.strength[0, t, t:].any()
    logits = np.asarray(jr.unroll(model.layer(), params, xs).outputs)
    assert (found.likeliest[0, :, 0] == logits.argmax(-1)).all()
    chances = np.asarray(jax.nn.softmax(logits))
    ys = stream_of([text]).ys
    np.testing.assert_allclose(found.truth[0], chances[np.arange(len(ys)), ys], rtol=1e-5)
    assert (np.diff(found.probabilities) <= 0).all()


def traced(mixer, reach, bits):
    """A model whose prediction depends on the character `reach` places back alone."""
    length = 80
    strength = np.zeros((1, length, length))
    for t in range(reach, length):
        strength[0, t, t - reach] = 3
    chances = np.full((1, length, 5), 0.1)
    truth = np.full((1, length), 2.0**-bits)
    likeliest = np.tile(np.arange(5), (1, length, 1))
    return Traced(Sized(mixer, 8, 1), (), strength, likeliest, chances, truth)


def test_reach_is_the_distance():
    one = traced("gru", 20, 2)
    assert one.by_distance().argmax() == 19 and one.by_distance().sum() == pytest.approx(1)
    assert one.beyond(19) == pytest.approx(1) and one.beyond(20) == pytest.approx(0)
    assert one.bits == pytest.approx(2)


def test_both_lines_can_pass_and_can_fail():
    def words(*models):
        return [line.word for line in judged(models)]

    assert words(traced("gru", 2, 2.0), traced("lstm", 30, 2.1)) == ["pass", "pass"]
    assert words(traced("gru", 2, 2.0), traced("lstm", 30, 2.5)) == ["pass", "FAIL"]
    assert words(traced("gru", 30, 2.0), traced("lstm", 31, 2.1)) == ["pass", "FAIL"]
    late = traced("gru", 2, 2.0)
    late.strength[0, 3, 3] = 1
    assert words(late) == ["FAIL", "not run"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of `characters`, as far as it is read; its models are not trained."""
    out = tmp_path_factory.mktemp("finished") / "run"
    params, drawn = {}, np.random.default_rng(0)
    for mixer in config.MIXERS:
        model = sized(mixer, TRAINING.parameters, TRAINING.blocks)
        shapes = jax.eval_shape(lambda model=model: model.init(0))
        params[mixer, "carried"] = jax.tree.map(
            lambda leaf: drawn.normal(0, 0.3, leaf.shape).astype(np.float32), shapes
        )
    files = files_of(params, make_corpus(TOPICS, TRAINING.held_out, TRAINING.seed).digest)
    files["config.json"] = {"experiment": "characters", "options": vars(TRAINING)}
    with RunFolder.create("characters", out) as folder:
        for name, content in files.items():
            folder.write(name, content)
        return folder.keep()


def run(*options):
    return cli.main(["memorisation", "--passages", "2", "--length", "24", *options])


def test_a_run_with_the_models_of_another_writes_the_page(finished, tmp_path):
    out = tmp_path / "run"
    assert run("--characters", str(finished), "--out", str(out)) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    page = (out / "memorisation.html").read_text()
    for label in ("GRU", "LSTM", "Mamba"):
        assert f'"label":"{label}"' in page
    assert (out / "report.html").read_text().count("data:image/png;base64,") == 3


def test_it_trains_its_own_models_otherwise(tmp_path, monkeypatch):
    for module in (measure, config):
        monkeypatch.setattr(module, "MIXERS", ("gru",))
    out = tmp_path / "run"
    assert run("--parameters", "5000", "--epochs", "1", "--out", str(out)) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, *TRAINED])
    assert '"label":"LSTM"' not in (out / "memorisation.html").read_text()


def test_a_report_of_what_was_done_so_far(written):
    results = Results(passages(TOPICS, 1, 80, 0, 0, "--passages"))
    made = report(config.Config(), results)
    assert not made.pictures and [one.word for one in made.verdicts] == 2 * ["not run"]
    folder = written(report(config.Config(), results._replace(traced=(traced("gru", 3, 2),))))
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "2 similar scores, other uses of context: not run." in page


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--length", "8"], "--length must be at least 16, got 8"),
        (["--passages", "0"], "--passages must be at least 1, got 0"),
        (["--passages", "999"], "--passages must be at most"),
        (["--parameters", "9"], "--parameters must be at least 5000, got 9"),
        (["--characters", "nowhere"], "--characters: nowhere is no run"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("memorisation", options)


def test_models_of_another_text_or_run_are_refused(finished, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "load_topics", lambda: {**TOPICS, "new": "x" * 100})
    assert run("--characters", str(finished), "--out", str(tmp_path / "run")) == 2
    assert "is of another text" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"experiment": "vowels", "options": {}}))
    assert run("--characters", str(other), "--out", str(tmp_path / "run")) == 2
    assert "is a run of vowels" in capsys.readouterr().err
