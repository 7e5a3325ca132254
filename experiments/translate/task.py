"""What is trained on and what is tested on."""

from typing import NamedTuple

import numpy as np

from experiments.data.spelled import Pairs, draw_numbers, make_pairs
from experiments.translate.config import UPDATES_PER_EPOCH, Config


class Task(NamedTuple):
    """Pairs to train on, none longer than `config.longest`, and pairs to test on, of any length.

    A number is either in `training` or in `held_out`, in all languages.
    """

    training: Pairs
    held_out: Pairs


def make_task(config: Config) -> Task:
    """The numbers are split, and only then written out, so no language tells of another one."""
    numbers = draw_numbers(config.num_digits, config.numbers, config.held_out, config.first_seed)
    every, held_out = (make_pairs(part, config.languages, config.num_digits) for part in numbers)
    training = every.where(every.lengths <= config.longest)
    return Task(training._replace(sources=training.sources[:, : config.longest]), held_out)


def minibatches(config: Config, training: Pairs, seed: int, epoch: int) -> dict[str, np.ndarray]:
    """`sources [U, B, S]` and `targets [U, B, T]` of the updates of an epoch, drawn anew.

    There are few numbers of one or two digits: each is drawn more often, by the root of how few.
    """
    generator = np.random.default_rng([seed, 1, epoch])
    num_digits = np.char.str_len(training.numbers.astype(str))
    chances = np.bincount(num_digits)[num_digits] ** -0.5
    shape = UPDATES_PER_EPOCH, config.batch_size
    chosen = generator.choice(len(chances), size=shape, p=chances / chances.sum())
    return {"sources": training.sources[chosen], "targets": training.targets[chosen]}
