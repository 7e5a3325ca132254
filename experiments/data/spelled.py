"""Numbers written out in words of several languages, and the same numbers as digits."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}
LETTERS = " ,-abcdefghijklmnopqrstuvwxyzßéóöü"
PAD, START, STOP, FIRST_DIGIT = 0, 1, 2, 3
NUM_TARGETS = FIRST_DIGIT + 10
NUM_SOURCES = 1 + len(LETTERS)

_INDEX = {letter: index for index, letter in enumerate(LETTERS, 1)}


class Pairs(NamedTuple):
    """Written numbers and their digits, N of them."""

    numbers: np.ndarray  # ints [N]
    languages: np.ndarray  # codes [N], of `LANGUAGES`
    sources: np.ndarray  # tokens [N, S], a letter each, `PAD` behind
    lengths: np.ndarray  # letters of each source, [N]
    targets: np.ndarray  # tokens [N, T]: `START`, the digits, `STOP`, `PAD` behind

    def where(self, chosen: np.ndarray) -> "Pairs":
        return Pairs(*(array[chosen] for array in self))


def spelled(number: int, language: str) -> str:
    """The number in words, as num2words writes it, in small letters."""
    import num2words

    return num2words.num2words(number, lang=language).lower()


def source_tokens(text: str, num_steps: int) -> np.ndarray:
    """One token a letter; an ExperimentError for another letter, or more than `num_steps`."""
    strange = sorted(set(text) - set(LETTERS))
    if strange:
        raise ExperimentError(f"num2words wrote {text!r}, with {strange} unknown here")
    if len(text) > num_steps:
        raise ExperimentError(f"num2words wrote {text!r}, longer than {num_steps} letters")
    return np.array([_INDEX[letter] for letter in text] + [PAD] * (num_steps - len(text)), np.int32)


def source_text(tokens: Iterable[int]) -> str:
    return "".join(LETTERS[token - 1] for token in tokens if token != PAD)


def target_tokens(number: int, num_digits: int) -> np.ndarray:
    """`START`, the digits, the most significant first, `STOP`, and `PAD` up to `num_digits`."""
    digits = [FIRST_DIGIT + int(digit) for digit in str(number)]
    return np.array([START, *digits, STOP, *[PAD] * (num_digits - len(digits))], np.int32)


def target_text(tokens: Iterable[int]) -> str:
    """The digits of a target up to its end, for people; other tokens as · and a full stop."""
    marks = {PAD: "", START: "·", STOP: "."}
    return "".join(marks.get(int(token), str(int(token) - FIRST_DIGIT)) for token in tokens)


def make_pairs(
    numbers: Sequence[int] | np.ndarray, languages: Sequence[str], num_digits: int
) -> Pairs:
    every = [(int(number), language) for language in languages for number in numbers]
    texts = [spelled(number, language) for number, language in every]
    num_steps = max(map(len, texts))
    return Pairs(
        np.array([number for number, _ in every]),
        np.array([language for _, language in every]),
        np.stack([source_tokens(text, num_steps) for text in texts]),
        np.array([len(text) for text in texts]),
        np.stack([target_tokens(number, num_digits) for number, _ in every]),
    )


def draw_numbers(
    num_digits: int, per_digit: int, held_out_per_digit: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`(training, held out)`: numbers of 1 to `num_digits` digits, no number in both.

    So many of each number of digits, as far as there are; no more than a tenth is held out.
    """
    generator = np.random.default_rng([seed, 0])
    training, held_out = [], []
    for digits in range(1, num_digits + 1):
        low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
        numbers = low + generator.permutation(high - low)
        num_held_out = min(held_out_per_digit, len(numbers) // 10)
        held_out.append(numbers[:num_held_out])
        training.append(numbers[num_held_out : num_held_out + per_digit])
    return np.concatenate(training), np.concatenate(held_out)
