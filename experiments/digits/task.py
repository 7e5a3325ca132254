"""What is learned: digits as sequences, split by class, in the order of the page or another."""

from typing import NamedTuple

import numpy as np

from experiments.data.digits import NUM_CLASSES, NUM_PIXELS, Digits

TRAINING_OF_CLASS, VALIDATION_OF_CLASS = 110, 30
NUM_TRAINING = TRAINING_OF_CLASS * NUM_CLASSES
NUM_VALIDATION = VALIDATION_OF_CLASS * NUM_CLASSES
ORDERS = ("in order", "permuted")


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

    Args:
        labels: `[N]`.
        seed: Of the order in which they are taken; None is the order of the file, where digits
            that stand far apart are less often of one writer.
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
