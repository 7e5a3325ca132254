"""The digits of scikit-learn, pixel by pixel, in two orders and three splits."""

import hashlib
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

SIDE = 8
NUM_PIXELS = SIDE * SIDE
NUM_CLASSES = 10
DIGEST = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
TRAINING_OF_CLASS, VALIDATION_OF_CLASS = 110, 30
NUM_TRAINING = TRAINING_OF_CLASS * NUM_CLASSES
NUM_VALIDATION = VALIDATION_OF_CLASS * NUM_CLASSES
ORDERS = ("in order", "permuted")
ITERATIONS = 2000


class Digits(NamedTuple):
    """`pixels [N, 64]`, row by row, and `labels [N]`, 0 to 9, in the order of the file."""

    pixels: np.ndarray
    labels: np.ndarray


def load_digits() -> Digits:
    """All digits, as they are; an ExperimentError if the file is missing or damaged."""
    from sklearn import datasets

    try:
        pixels, labels = datasets.load_digits(return_X_y=True)
    except Exception as error:  # whatever a missing or damaged file makes the reader raise
        raise ExperimentError(
            f"the digits of scikit-learn cannot be read, reinstall scikit-learn: {error}"
        ) from error
    return checked(Digits(np.asarray(pixels, np.float32), np.asarray(labels, np.int32)))


def checked(digits: Digits) -> Digits:
    """The digits, if they are those that the experiment was written for; or an ExperimentError."""
    if digest(digits) != DIGEST:
        raise ExperimentError("the digits of scikit-learn are not as expected: reinstall it")
    return digits


def digest(digits: Digits) -> str:
    content = hashlib.sha256(digits.pixels.astype(np.uint8).tobytes())
    content.update(digits.labels.astype(np.uint8).tobytes())
    return content.hexdigest()


class Split(NamedTuple):
    """Indices of digits, each digit in one of them."""

    training: np.ndarray
    validation: np.ndarray
    test: np.ndarray


class Task(NamedTuple):
    """One order of the pixels."""

    order: str  # one of `ORDERS`
    xs: np.ndarray  # [N, 64, 1], in units of the deviation of training pixels
    labels: np.ndarray  # [N]
    split: Split  # what is trained on, validated on and tested on


def make_split(labels: np.ndarray, seed: int | None) -> Split:
    """The same number of digits of every class to train on and to validate on; the rest tests.

    They are taken in an order drawn with the seed; with None in that of the file, where digits that
    stand far apart are less often of one writer.
    """
    generator = None if seed is None else np.random.default_rng(seed)
    parts = []
    for digit in range(NUM_CLASSES):
        members = np.flatnonzero(labels == digit)
        if generator is not None:
            members = generator.permutation(members)
        ends = [TRAINING_OF_CLASS, TRAINING_OF_CLASS + VALIDATION_OF_CLASS]
        parts.append(np.split(members, ends))
    return Split(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def make_tasks(digits: Digits, split: Split, permutation_seed: int) -> list[Task]:
    """The digits in both orders, scaled by what the training digits say."""
    seen = digits.pixels[split.training]
    scaled = (digits.pixels - seen.mean()) / seen.std()
    permutation = np.random.default_rng(permutation_seed).permutation(NUM_PIXELS)
    return [
        Task(order, pixels[..., None].astype(np.float32), digits.labels, split)
        for order, pixels in zip(ORDERS, (scaled, scaled[:, permutation]), strict=True)
    ]


class Baseline(NamedTuple):
    """What can be done without a recurrence: accuracy on the test digits of two splits."""

    name: str
    shuffled: float
    file_order: float


def make_baselines(digits: Digits, split: Split) -> list[Baseline]:
    """All baselines; the second split says how much the writers in common are worth."""
    splits = (split, make_split(digits.labels, None))
    names = {
        "majority": majority,
        "nearest digit": nearest_digit,
        "logistic regression on all pixels": logistic_regression,
    }
    return [
        Baseline(name, *(_accuracy(predict, digits, one) for one in splits))
        for name, predict in names.items()
    ]


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
