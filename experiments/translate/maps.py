"""Where attention looks: whether tens are read behind the ones where a language says them so."""

import numpy as np

from experiments.data.spelled import Pairs
from experiments.translate.results import Measured

ONES_FIRST = ("de",)


def has_both(numbers: np.ndarray) -> np.ndarray:
    """Numbers whose last two digits are two words in every language, 21 to 99 without tens."""
    return (numbers % 100 > 20) & (numbers % 10 != 0)


def centres(weights: np.ndarray) -> np.ndarray:
    """The mean position of each row of weights `[..., S]`, from 0."""
    return weights @ np.arange(weights.shape[-1])


def order_of_last_digits(measured: Measured, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """By language, letters from where the ones are read to where the tens are, `[n]`.

    Of the `chosen` pairs that the model wrote right and that say both; above 0: tens later.
    """
    pairs = measured.task.held_out
    assert measured.answers.weights is not None
    chosen = chosen & measured.exact & has_both(pairs.numbers)
    found = {}
    for language in dict.fromkeys(pairs.languages.tolist()):
        rows = np.flatnonzero(chosen & (pairs.languages == language))
        ones = np.array([len(str(number)) - 1 for number in pairs.numbers[rows]], int)
        position = centres(measured.answers.weights[rows])
        index = np.arange(len(rows))
        found[language] = position[index, ones - 1] - position[index, ones]
    return found


def examples(pairs: Pairs, longest: int) -> list[int]:
    """Of each language the longest source that is no longer than those in training."""
    chosen = []
    for language in dict.fromkeys(pairs.languages.tolist()):
        rows = np.flatnonzero((pairs.languages == language) & (pairs.lengths <= longest))
        chosen.append(int(rows[np.argmax(pairs.lengths[rows])]))
    return chosen
