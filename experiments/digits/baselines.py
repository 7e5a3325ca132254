"""What needs no recurrence, on the split of the experiment and on one in the order of the file."""

from typing import NamedTuple

import numpy as np

from experiments.data.digits import Digits
from experiments.digits.task import Split, make_split

ITERATIONS = 2000


class Baseline(NamedTuple):
    """What can be done without a recurrence: accuracy on the test digits of two splits."""

    name: str
    shuffled: float
    file_order: float


class Baselines(NamedTuple):
    """All of them, and how many digits there are in each part."""

    entries: list[Baseline]
    sizes: tuple[int, int, int]


def make_baselines(digits: Digits, split: Split) -> Baselines:
    """All baselines; the second split says how much the writers in common are worth."""
    splits = (split, make_split(digits.labels, None))
    names = {
        "majority": majority,
        "nearest digit": nearest_digit,
        "logistic regression on all pixels": logistic_regression,
    }
    entries = [
        Baseline(name, *(_accuracy(predict, digits, one) for one in splits))
        for name, predict in names.items()
    ]
    training, validation, test = map(len, split)
    return Baselines(entries, (training, validation, test))


def majority(pixels: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The most frequent label, the smallest of several."""
    return np.full(len(asked), np.bincount(labels).argmax())


def nearest_digit(pixels: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The label of the training digit at the smallest Euclidean distance."""
    squares = (pixels**2).sum(axis=1) - 2 * asked @ pixels.T
    return labels[squares.argmin(axis=1)]


def logistic_regression(pixels: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """scikit-learn's, with its default penalty, on pixels from 0 to 1."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=ITERATIONS).fit(pixels / 16, labels)
    return model.predict(asked / 16)


def _accuracy(predict, digits, split):
    """Trained on the training digits alone, as the networks are."""
    seen, asked = split.training, split.test
    predicted = predict(digits.pixels[seen], digits.labels[seen], digits.pixels[asked])
    return float((predicted == digits.labels[asked]).mean())
