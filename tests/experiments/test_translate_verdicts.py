"""Scores and expectations of made-up answers, among them some that fail."""

import dataclasses

import numpy as np
import pytest

from experiments.data.spelled import PAD, START, make_pairs
from experiments.frame.fitting import Fitted
from experiments.translate.config import KINDS, Config
from experiments.translate.expect import difference, judged, order_of_last_digits
from experiments.translate.measure import Answers, Measured, Results, Setting
from experiments.translate.task import Task, digit_groups, length_groups

CONFIG = Config(languages=("en", "de"), longest=24, kept=(2, 4), width=8)
NUMBERS = [*range(3, 100, 6), *range(131, 1000, 41)]
PAIRS = make_pairs(NUMBERS, CONFIG.languages, 3)
TRUTH = PAIRS.targets[:, 1:]
TASK = Task(PAIRS, PAIRS, CONFIG.longest)


def weights_on(tens_first):
    """All weight on letter 10 + i for the digit i; ones and tens change places if asked."""
    weights = np.zeros((*TRUTH.shape, 40))
    for row, (number, language) in enumerate(zip(PAIRS.numbers, PAIRS.languages, strict=True)):
        order = np.arange(TRUTH.shape[1])
        ones = len(str(number)) - 1
        if ones and not tens_first[language]:
            order[[ones - 1, ones]] = order[[ones, ones - 1]]
        weights[row, np.arange(len(order)), 10 + order] = 1
    return weights


GOOD_MAPS = weights_on({"en": True, "de": False})


def measured(kind, wrong, kept=8, failed=False, weights=GOOD_MAPS, forced=None):
    """Answers that are wrong in their first digit where `wrong [N]` or `[S, N]` says so."""
    wrong = np.atleast_2d(wrong)
    written = np.where(wrong[..., None] & (np.arange(TRUTH.shape[1]) == 0), START, TRUTH)
    history = {name: np.ones((len(wrong), 1, 2)) for name in ("loss", "right")}
    fitted = Fitted((), history, 100, np.full(len(wrong), failed), 1.0)
    answers = Answers(written if forced is None else forced[None], written, weights[None])
    return Measured(Setting(kind, 8, kept), fitted, PAIRS, answers)


def words(measured, config=CONFIG):
    return [one.word for one in judged(config, Results(TASK, tuple(measured)))]


def wrong_behind(letters, every=1):
    return (PAIRS.lengths > letters) & (np.arange(len(PAIRS.lengths)) % every == 0)


AS_EXPECTED = {
    "fixed": wrong_behind(12),
    "reversed": wrong_behind(12) & ((PAIRS.numbers % 4 != 1) | (PAIRS.lengths > 18)),
    "dot": wrong_behind(28, 3),
    "additive": wrong_behind(99),
}


def all_kinds(**changed):
    return [measured(kind, wrong) for kind, wrong in (AS_EXPECTED | changed).items()]


PROBES = [measured("fixed", wrong_behind(4), 2), measured("fixed", wrong_behind(8), 4)]


def test_everything_can_hold():
    assert words(all_kinds() + PROBES) == ["pass"] * 8


NOTHING_WRONG, ALL_WRONG = wrong_behind(99), wrong_behind(0)


@pytest.mark.parametrize(
    ("results", "fails"),
    [
        (all_kinds(dot=ALL_WRONG) + PROBES, [1, 2, 4, 7]),
        (all_kinds(fixed=NOTHING_WRONG, reversed=NOTHING_WRONG) + PROBES, [2, 3, 4, 5]),
        (all_kinds(fixed=ALL_WRONG, reversed=ALL_WRONG), [3, 5]),
        (all_kinds() + [PROBES[0], measured("fixed", ALL_WRONG, 4)], [6]),
        (
            all_kinds()[:3] + [measured("additive", NOTHING_WRONG, weights=0 * GOOD_MAPS)] + PROBES,
            [7],
        ),
        (all_kinds()[:3] + [measured("additive", NOTHING_WRONG, forced=0 * TRUTH)] + PROBES, [8]),
    ],
)
def test_every_expectation_can_fail(results, fails):
    assert [number for number, word in enumerate(words(results), 1) if word == "FAIL"] == fails


def test_a_prefix_of_the_run_leaves_lines_that_were_not_run():
    every = all_kinds() + PROBES
    assert words(every[:1]) == ["not run"] * 7 + ["pass"]
    assert words(every[:3]) == [*["not run"] * 4, "pass", *["not run"] * 2, "pass"]
    assert words(every[:4]) == ["pass"] * 5 + ["not run"] + ["pass"] * 2
    two = [every[0], every[2]]
    held = ["pass"] * 4 + ["not run"] * 2 + ["pass"] * 2
    assert words(two, dataclasses.replace(CONFIG, models=("fixed", "dot"))) == held
    assert words(every[:5])[5] == "not run"
    broken = [*every[:3], measured("additive", NOTHING_WRONG, failed=True), *PROBES]
    assert words(broken) == ["not run"] * 4 + ["pass"] * 2 + ["not run", "pass"]


def test_shares_of_tokens_count_real_ones_alone():
    one = measured("fixed", ALL_WRONG)
    num_tokens = np.array([len(str(number)) + 1 for number in PAIRS.numbers])
    np.testing.assert_allclose(one.written_share[0], (num_tokens - 1) / num_tokens)
    assert not one.exact.any() and not one.all_forced.any()
    # What comes after the end counts in neither.
    behind = np.where(TRUTH == PAD, START, TRUTH)
    other = measured("fixed", NOTHING_WRONG, forced=behind)
    assert other.all_forced.all() and (other.forced_share == 1).all()


def test_length_groups_are_quarters_and_what_is_beyond():
    groups = dict(length_groups(np.array([1, 6, 7, 24, 25, 40]), 24))
    assert [(name, mask.nonzero()[0].tolist()) for name, mask in groups.items()] == [
        ("1 to 6", [0, 1]),
        ("7 to 12", [2]),
        ("19 to 24", [3]),
        ("25 to 40", [4, 5]),
    ]


def test_digit_groups_split_sources_of_the_same_number_of_digits():
    groups = list(digit_groups(PAIRS))
    assert [digits for digits, *_ in groups] == [2, 3]
    for digits, median, shorter, longer in groups:
        both = shorter | longer
        assert not (shorter & longer).any()
        of_digits = [len(str(number)) == digits for number in PAIRS.numbers]
        np.testing.assert_array_equal(both, of_digits)
        assert PAIRS.lengths[shorter].max() <= median < PAIRS.lengths[longer].min()


def test_an_interval_is_over_numbers_not_pairs_and_of_the_mean_of_good_seeds():
    wrong = np.random.default_rng(0).random((3, len(NUMBERS))) < 0.4
    one = measured("dot", np.tile(wrong, len(CONFIG.languages)))
    both = difference(one, measured("fixed", NOTHING_WRONG), np.arange(len(PAIRS.numbers)))
    assert both.low < both.mean < both.high
    points = -100 * wrong.mean(axis=0)
    assert both.mean == pytest.approx(points.mean())
    # 1.96 standard errors to either side, roughly: as of so many numbers, not of so many pairs
    width = 3.92 * points.std() / np.sqrt(len(NUMBERS))
    assert both.high - both.low == pytest.approx(width, rel=0.15)
    failed = measured("dot", np.tile([wrong[0], ~wrong[0]], 2))
    failed = failed._replace(fitted=failed.fitted._replace(failed=np.array([False, True])))
    np.testing.assert_array_equal(failed.mean_exact, failed.exact[0])


def test_the_order_of_tens_and_ones_in_a_map():
    every = np.ones(len(PAIRS.numbers), bool)
    found = order_of_last_digits(measured("dot", NOTHING_WRONG), CONFIG.languages, every)
    chosen = [number for number in NUMBERS if number % 100 > 20 and number % 10]
    assert {language: letters.tolist() for language, letters in found.items()} == {
        "en": [-1.0] * len(chosen),
        "de": [1.0] * len(chosen),
    }
    none = order_of_last_digits(measured("dot", ALL_WRONG), CONFIG.languages, every)
    assert not any(map(len, none.values()))


def test_examples_are_the_longest_within_training():
    assert list(TASK.examples) == ["en", "de"]
    for language, row in TASK.examples.items():
        others = (PAIRS.languages == language) & (PAIRS.lengths <= 24)
        assert PAIRS.lengths[row] == PAIRS.lengths[others].max() <= 24


def test_every_kind_is_judged():
    assert set(AS_EXPECTED) == set(KINDS)
