"""The characters experiment: a small run, one that goes on, its lines, bad options."""

import json

import numpy as np
import pytest

from experiments.characters import expect, measure
from experiments.characters.config import Config
from experiments.characters.measure import Scored, Written, before_training
from experiments.characters.model import Scores, Sized, sized
from experiments.characters.train import load, saved_config
from experiments.characters.writing import DECODINGS, Judged, Traits
from experiments.data.topics import load_topics, make_corpus
from experiments.frame import cli
from experiments.frame.errors import ExperimentError
from experiments.frame.fitting import Fitted

SMALL = ["--models", "gru", "--epochs", "1", "--parameters", "5000", "--batch-size", "2"]
SMALL += ["--chunk", "16", "--training-share", "0.2", "--prompts", "2", "--prompt-length", "16"]
SMALL += ["--written-length", "96", "--held-out", "0.3"]
FIGURES = ["bits.png", "decodings.png", "free_running.png", "positions.png", "training.png"]
ROWS = ["metrics.csv", "results.csv", "text.json", "topics.csv", "verdicts.json"]
TEXTS = ["config.json", "params.npz", "report.html", "seconds.json", "summary.md", "texts.json"]


@pytest.fixture(autouse=True)
def few_topics(monkeypatch):
    """Parts of some topics, which are counted in no time."""
    topics = {name: text[:1500] for name, text in list(load_topics().items())[:16]}
    monkeypatch.setattr(measure, "load_topics", lambda: topics)


def run(folder, *options):
    return cli.main(["characters", "--quick", *SMALL, *options, "--out", str(folder)])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_a_small_run_writes_everything_and_an_interrupted_one_goes_on_to_the_same_bits(
    tmp_path, monkeypatch, rows, stop_after
):
    whole, stopped, resumed = (tmp_path / name for name in ("whole", "stopped", "resumed"))
    with monkeypatch.context() as patch:
        stop_after(patch, 3)  # in the second of two trainings
        assert run(stopped) == 130
    report = (stopped / "report.html").read_text()
    assert "The run was interrupted" in report and "not run" in report
    assert (stopped / "training.png").is_file() and not (stopped / "free_running.png").exists()
    assert run(resumed, "--resume", str(stopped)) == 0
    assert run(whole) == 0
    assert names(whole) == sorted([*FIGURES, *ROWS, *TEXTS])
    for name in [*ROWS, "texts.json"]:
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name
    with np.load(whole / "params.npz") as one, np.load(resumed / "params.npz") as other:
        assert all((one[name] == other[name]).all() for name in one)
    results = rows(whole / "results.csv")
    trained = [(row["training"], row["seed"], row["status"]) for row in results]
    assert trained == [("carried", "0", "ok"), ("reset", "0", "ok")]
    assert all(2 < float(row["bits"]) < 8 for row in results)
    page = (whole / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(FIGURES)
    digest = json.loads((whole / "text.json").read_text())["digest"]
    for expected in (digest, "bz2", "5-gram", "nucleus 0.9", "with back-off", "⏎"):
        assert expected in page
    the_parameters_can_be_read_again(whole, digest)


def the_parameters_can_be_read_again(folder, digest):
    config = saved_config(folder)
    assert config.chunk == 16 and config.models == ("gru",)
    model = sized("gru", config.parameters, config.blocks)
    params = load(folder, "carried", model, digest)
    with np.load(folder / "params.npz") as arrays:
        assert (params[0].table == arrays["gru carried/0"]).all()
    assert params[0].table.shape == (96, model.width)
    for other, wanted, message in (
        (model._replace(mixer="lstm"), digest, "has no trained lstm"),
        (model, "another", "of another text"),
        (model._replace(width=8), digest, "of another size"),
    ):
        with pytest.raises(ExperimentError, match=message):
            load(folder, "carried", other, wanted)


def scored(mixer, mode, bits, cold=1.0):
    rng = np.random.default_rng(0)
    history = {"loss": np.ones((1, 1, 2)), "gradient_norm": np.ones((1, 1, 2))}
    positions = {"carried": np.full(16, bits), "reset": np.full(16, bits + cold)}
    values = [bits + 0.01 * rng.normal(size=size) for size in (30, 40, 50)]
    fitted = Fitted((), history, 9, np.array([False]), 0.0)
    return Scored(Sized(mixer, 8, 1), mode, fitted, values, 0.5, bits + cold, positions)


def written(mixer, greedy_loops, nucleus_loops, free_right):
    def judged(loops):
        return Judged([], np.ones(1), Traits(1.0, 0.1, 0.0, loops))

    loops = dict.fromkeys(DECODINGS, 0.0) | {"greedy": greedy_loops, "nucleus 0.9": nucleus_loops}
    forced = Scores(np.ones((4, 128)), np.ones((4, 128), bool))
    free = np.arange(4)[:, None] < np.full((1, 128), 4 * free_right)
    return Written(Sized(mixer, 8, 1), {n: judged(v) for n, v in loops.items()}, forced, free)


@pytest.fixture(scope="module")
def untrained():
    config = Config(prompts=2, prompt_length=16, written_length=96)
    letters = list("abcdefghijklmnop ")
    rng = np.random.default_rng(0)
    topics = {f"t{i}": "".join(rng.choice(letters, 400)) for i in range(8)}
    return before_training(config, make_corpus(topics, 0.5, 0))


def words(untrained, scored, written=()):
    config = Config(models=("gru",), written_length=128)
    results = untrained._replace(scored=scored, written=written)
    return [line.word for line in expect.judged(config, results)]


def test_every_line_can_pass_and_can_fail(untrained):
    good = scored("gru", "carried", 1.0), scored("gru", "reset", 1.1)
    bad = scored("gru", "carried", 9.0, cold=0.01), scored("gru", "reset", 8.9)
    fine = (written("gru", 0.9, 0.0, 0.25),)
    assert words(untrained, good, fine) == 6 * ["pass"]
    leak = untrained._replace(corpus=untrained.corpus._replace(seen=0.5))
    assert words(leak, bad, (written("gru", 0.9, 0.9, 0.75),)) == 6 * ["FAIL"]
    assert words(untrained, good, (written("gru", 0.05, 0.0, 0.25),))[-1] == "FAIL"
    assert words(untrained, good) == ["pass", *5 * ["not run"]]
    assert words(untrained, good[:1], fine)[2] == "not run"


def test_real_text_is_no_loop_and_the_counts_know_the_alphabet(untrained):
    traits = untrained.truth.traits
    assert traits.loops == 0 and traits.distinct > 0.9
    assert untrained.baselines["1-gram"] == pytest.approx(np.log2(17), abs=0.1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models", "gru", "gru"], "--models must be one or more, each once, got gru gru"),
        (["--chunk", "1"], "--chunk must be at least 2, got 1"),
        (["--held-out", "0.9"], "--held-out must be from 0.01 to 0.5, got 0.9"),
        (["--learning-rate", "nan"], "--learning-rate must be finite and above 0, got nan"),
        (["--training-share", "0"], "--training-share must be above 0 and at most 1, got 0"),
        (["--prompts", "9999"], "--prompts must be at most"),
        (["--resume", "nowhere"], "nowhere has no checkpoint to go on from"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("characters", options)


def test_the_text_of_this_python_is_what_the_split_was_made_for():
    corpus = make_corpus(load_topics(), Config().held_out, 0)
    assert sum(map(len, corpus.held_out.values())) > 20_000
