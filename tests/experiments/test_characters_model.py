"""Models of text: training by chunks, scoring, writing, and what is made of it."""

import jax
import numpy as np
import pytest

import jaxrnn as jr
from experiments.characters.config import Config
from experiments.characters.measure import over_topics, score_after
from experiments.characters.model import BITS, Sized, score, sized
from experiments.characters.train import train
from experiments.characters.writing import (
    DECODINGS,
    LOOP,
    Judge,
    NGram,
    Passage,
    ends_in_a_loop,
    passages,
    write,
)
from experiments.data.topics import ALPHABET, encode
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.errors import ExperimentError
from experiments.frame.models import count_params

MODEL = Sized("gru", 8, 1)
TEXTS = ["for x in y:\n    pass\n# 123456789", "while True: pass"]


def drawn_params(deviation):
    """Those of no training; drawn here, because a draw by jax compiles for every shape."""
    generator = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: MODEL.init(0))
    return jax.tree.map(
        lambda leaf: generator.normal(0, deviation, leaf.shape).astype(np.float32), shapes
    )


@pytest.fixture(scope="module")
def params():
    return drawn_params(0.5)


def step_by_step(params, text, every=None):
    """-log₂ p of every character, a step of the model at a time."""
    layer = MODEL.layer()
    carry, bits, read = layer.initial_carry(params), [], [0, *encode(text)[:-1]]
    step = jax.jit(lambda carry, x: jr.step(layer, params, carry, x))
    for number, (x, y) in enumerate(zip(read, encode(text), strict=True)):
        if every and number % every == 0:
            carry = layer.initial_carry(params)
        carry, logits = step(carry, np.int32(x))
        bits.append(-float(jax.nn.log_softmax(logits)[y]) * BITS)
    return np.array(bits)


def test_scores_are_those_of_a_loop_of_steps(params):
    """A short text first: they are read in another order than they come back in."""
    texts = ["x", *TEXTS]
    for text, warm, cold in zip(
        texts, *(score(MODEL, params, texts, 8, cold) for cold in (False, True)), strict=True
    ):
        np.testing.assert_allclose(warm.bits, step_by_step(params, text), rtol=2e-5)
        np.testing.assert_allclose(cold.bits, step_by_step(params, text, every=8), rtol=2e-5)
        assert len(text) == 1 or abs(warm.bits - cold.bits)[8:].max() > 1e-3


def test_models_have_the_size_that_is_asked_for():
    for mixer in ("gru", "attention"):
        model = sized(mixer, 20_000, 1)
        shapes = jax.eval_shape(
            lambda key, model=model: model.layer().init(key, len(ALPHABET)), jax.random.key(0)
        )
        assert abs(count_params(shapes) / 20_000 - 1) < 0.12


def test_what_is_written_first_is_the_likeliest_and_is_scored_as_read(params):
    found = [Passage("t", TEXTS[0][:8], TEXTS[0][8:16]), Passage("t", TEXTS[1][:8], TEXTS[1][8:])]
    texts = write(MODEL, params, found, 8, seed=0)
    assert list(texts) == list(DECODINGS)
    assert all(len(text) == 8 for row in texts.values() for text in row)
    scores = score_after(MODEL, params, found, texts["greedy"], 8)
    assert scores.bits.shape == (2, 8) and scores.right.all()
    assert not score_after(MODEL, params, found, [one.truth for one in found], 8).right.all()
    assert texts["temperature 1"] != texts["greedy"]


def fit(folder, mode, num_epochs=2):
    config = Config(epochs=num_epochs, batch_size=1, chunk=5, learning_rate=1e-2)
    checkpoints = Checkpoints(folder, {})
    return train(config, MODEL, mode, ["aab" * 50], checkpoints, lambda epochs: None)


def test_training_hands_the_carry_on_unless_it_is_reset(tmp_path):
    carried, reset = (fit(tmp_path / mode, mode) for mode in ("carried", "reset"))
    losses = carried.history["loss"], reset.history["loss"]
    assert losses[0].shape == (1, 2, 30) and not carried.failed
    assert losses[0][0, 0, 0] == losses[1][0, 0, 0] and losses[0][0, 0, 1] != losses[1][0, 0, 1]
    # After an a there is an a or a b: at the start of a chunk the carry alone can tell.
    ends = [loss[0, 1, -9:].mean() for loss in losses]
    assert ends[0] < 0.9 * ends[1] < np.log2(len(ALPHABET))


def test_traits_of_texts():
    known = ["some words stand in this text and more of them are here: known words"]
    judge = Judge(known, NGram(known, 3))
    made = judge.judge([Passage("t", "x wo", "")], ["rds stand in this text and more of them are"])
    assert (
        made.bits.shape == (1, 43)
        and (made.bits == judge.ngram.bits("x wo" + made.texts[0])[4:]).all()
    )
    real = judge.traits(["x words stand in this text and more of them are here: known y"])
    assert real.known_words == 1 and real.distinct == 1 and real.copied > 0.5 and real.loops == 0
    loop = judge.traits(["qq zz " * 40])
    assert loop.known_words == 0 and loop.copied == 0 and loop.loops == 1
    assert loop.distinct == pytest.approx(6 / (240 - 11))


def test_a_loop_is_a_period_to_the_end():
    noise = "".join(np.random.default_rng(0).choice(list(ALPHABET), 200))
    assert not ends_in_a_loop(noise) and not ends_in_a_loop("ab" * 60 + noise[:LOOP])
    assert ends_in_a_loop(noise + "ab" * 60) and ends_in_a_loop(noise + "x" * LOOP)
    assert not ends_in_a_loop(noise + "ab" * 60 + "c")


def test_passages_do_not_overlap_and_have_both_parts():
    texts = {"a": "".join(map(chr, range(32, 126))), "b": "short"}
    found = passages(texts, 4, 12, 6, 0, "--prompts")
    assert len(found) == 4 == len({one.prompt for one in found})
    for one in found:
        assert len(one.prompt) == 12 and len(one.truth) == 6
        assert one.prompt + one.truth in texts[one.topic]
    with pytest.raises(ExperimentError, match="--prompts must be at most 5, .*, got 6"):
        passages(texts, 6, 12, 6, 0, "--prompts")


def test_an_interval_holds_the_mean_and_is_narrow_for_topics_that_agree():
    alike = over_topics([np.full(10, -1.0), np.full(30, -1.0)])
    assert alike == (-1, -1, -1)
    mixed = over_topics([np.full(10, -1.0), np.full(30, 1.0)])
    assert mixed.mean == 0.5 and mixed.low == -1 and mixed.high == 1
