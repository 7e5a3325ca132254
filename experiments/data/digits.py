"""Handwritten digits of 8 x 8 pixels, 0 to 16 (Alpaydin and Kaynak 1998, UCI optical recognition).

Read from the file inside the scikit-learn package, which holds the 1,797 digits of the UCI test
file: 13 writers, whom the file does not name. So no split by writer is possible.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

SIDE = 8
NUM_PIXELS = SIDE * SIDE
NUM_CLASSES = 10
DIGEST = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


class Digits(NamedTuple):
    """`pixels [N, 64]`, row by row, and `labels [N]`, 0 to 9, in the order of the file."""

    pixels: np.ndarray
    labels: np.ndarray


def load_digits() -> Digits:
    """All digits, as they are.

    Raises:
        ExperimentError: The file is missing or damaged.
    """
    from sklearn import datasets

    try:
        pixels, labels = datasets.load_digits(return_X_y=True)
    except Exception as error:  # whatever a missing or damaged file makes the reader raise
        raise ExperimentError(
            f"the digits of scikit-learn cannot be read, reinstall scikit-learn: {error}"
        ) from error
    return checked(Digits(np.asarray(pixels, np.float32), np.asarray(labels, np.int32)))


def checked(digits: Digits) -> Digits:
    """The digits, if they are those that the experiment was written for.

    Raises:
        ExperimentError: A number is another one.
    """
    if digest(digits) != DIGEST:
        raise ExperimentError("the digits of scikit-learn are not as expected: reinstall it")
    return digits


def digest(digits: Digits) -> str:
    """Of all numbers, as bytes."""
    content = hashlib.sha256(digits.pixels.astype(np.uint8).tobytes())
    content.update(digits.labels.astype(np.uint8).tobytes())
    return content.hexdigest()
