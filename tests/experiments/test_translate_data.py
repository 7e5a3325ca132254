"""Written numbers: what they say, how they are split, and what they look like to a model."""

import re

import numpy as np
import pytest

from experiments.data.spelled import (
    FIRST_DIGIT,
    LANGUAGES,
    LETTERS,
    PAD,
    START,
    STOP,
    draw_numbers,
    make_pairs,
    source_text,
    source_tokens,
    spelled,
    target_text,
    target_tokens,
)
from experiments.frame.errors import ExperimentError
from experiments.translate.config import Config
from experiments.translate.task import make_task, minibatches

WORDS = {
    "en": "one hundred and twenty-three thousand, four hundred and fifty-six",
    "de": "einhundertdreiundzwanzigtausendvierhundertsechsundfünfzig",
    "fr": "cent vingt-trois mille quatre cent cinquante-six",
    "es": "ciento veintitrés mil cuatrocientos cincuenta y seis",
    "it": "centoventitremilaquattrocentocinquantasei",
}
SMALL = Config(languages=("en", "it"), num_digits=3, numbers=40, held_out=5, longest=20)


def read_english(text):
    """The number of English words below a million, read word by word."""
    ones = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    ones = (ones + " fifteen sixteen seventeen eighteen nineteen").split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    total = now = 0
    for word in re.split(r"[ ,-]+", text):
        if word in ones:
            now += ones.index(word)
        elif word in tens:
            now += 20 + 10 * tens.index(word)
        elif word == "hundred":
            now *= 100
        elif word == "thousand":
            total, now = 1000 * now, 0
        else:
            assert word == "and"
    return total + now


def test_numbers_are_written_in_five_languages():
    assert {language: spelled(123456, language) for language in LANGUAGES} == WORDS


def test_english_says_the_number():
    numbers = [*range(120), *range(977, 1013), 20_000, 100_100, 999_999]
    assert [read_english(spelled(number, "en")) for number in numbers] == numbers


def test_no_text_has_two_meanings_and_every_letter_is_known():
    numbers, meaning = [*range(0, 1000, 3), *range(999_000, 1_000_000, 7)], {}
    for language in LANGUAGES:
        texts = [spelled(number, language) for number in numbers]
        assert len(set(texts)) == len(numbers)
        assert set("".join(texts)) <= set(LETTERS)
        for text, number in zip(texts, numbers, strict=True):
            assert meaning.setdefault(text, number) == number


def test_tokens_and_back():
    tokens = source_tokens("fünf", 6)
    assert source_text(tokens) == "fünf" and tokens[4:].tolist() == [PAD, PAD]
    digits = [FIRST_DIGIT + digit for digit in (3, 0, 7)]
    assert target_tokens(307, 5).tolist() == [START, *digits, STOP, PAD, PAD]
    assert target_text(target_tokens(307, 5)[1:]) == "307."
    with pytest.raises(ExperimentError, match="'ñ'.* unknown here"):
        source_tokens("año", 6)
    with pytest.raises(ExperimentError, match="longer than 3 letters"):
        source_tokens("vier", 3)


def test_a_number_is_in_training_or_held_out():
    training, held_out = draw_numbers(4, per_digit=100, held_out_per_digit=20, seed=3)
    assert not set(training) & set(held_out)
    of_digits = [
        [(np.char.str_len(part.astype(str)) == d).sum() for d in (1, 2, 3, 4)]
        for part in (training, held_out)
    ]
    assert of_digits == [[9, 81, 100, 100], [1, 9, 20, 20]]
    assert len(np.unique(training)) == len(training)
    again = draw_numbers(4, per_digit=100, held_out_per_digit=20, seed=3)
    np.testing.assert_array_equal(training, again[0])
    assert (draw_numbers(4, 100, 20, seed=4)[0] != training).any()


def test_the_task_keeps_numbers_apart_in_all_languages_and_long_sources_for_the_test():
    task = make_task(SMALL)
    assert not set(task.training.numbers) & set(task.held_out.numbers)
    assert task.training.lengths.max() <= 20 == task.training.sources.shape[1]
    assert task.held_out.lengths.max() > 20
    for language in ("en", "it"):
        assert sum(task.held_out.languages == language) == len(np.unique(task.held_out.numbers))
    for pairs in (task.training, task.held_out):
        for row in range(len(pairs.numbers)):
            text = spelled(pairs.numbers[row], pairs.languages[row])
            assert source_text(pairs.sources[row]) == text and pairs.lengths[row] == len(text)
            assert target_text(pairs.targets[row]) == f"·{pairs.numbers[row]}."


def test_minibatches_are_those_of_their_seed_and_epoch():
    training = make_task(SMALL).training
    one = minibatches(SMALL, training, 0, 0)
    assert one["sources"].shape == (50, 64, 20) and one["targets"].shape == (50, 64, 5)
    of_text = {source_text(row): target_text(to) for row, to in zip(*training[2::2], strict=True)}
    for source, target in zip(one["sources"][0], one["targets"][0], strict=True):
        assert of_text[source_text(source)] == target_text(target)
    # 9 numbers of one digit, 40 of two, 40 of three, in two languages: drawn by roots.
    drawn = np.bincount((one["targets"] > STOP).sum(-1).ravel())[1:]
    in_training = np.bincount((training.targets > STOP).sum(-1))[1:]
    np.testing.assert_allclose(
        drawn / drawn.sum(), np.sqrt(in_training) / np.sqrt(in_training).sum(), atol=0.03
    )
    np.testing.assert_array_equal(one["sources"], minibatches(SMALL, training, 0, 0)["sources"])
    for other in ((1, 0), (0, 1)):
        assert (minibatches(SMALL, training, *other)["sources"] != one["sources"]).any()


def test_pairs_are_numbers_times_languages():
    pairs = make_pairs([5, 17], ["de", "fr"], 2)
    assert pairs.languages.tolist() == ["de", "de", "fr", "fr"]
    assert [source_text(row) for row in pairs.sources] == ["fünf", "siebzehn", "cinq", "dix-sept"]
    assert pairs.where(pairs.lengths < 5).numbers.tolist() == [5, 5]
