"""What a state can carry: counted for all binary histories, and learnt on five tasks."""

from collections.abc import Iterator
from typing import Any

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.memory.config import Config
from experiments.memory.counting import (
    Counted,
    all_histories,
    as_codes,
    carries_of_all,
    count,
    parity_cell,
    shift_register,
)
from experiments.memory.networks import LABELS
from experiments.memory.report import report
from experiments.memory.rounded import Bottleneck
from experiments.memory.training import Rows, train
from jaxrnn.diagnostics import state_capacity_bits

__all__ = ["Config", "measure", "report"]

# A training of rounded cells takes about so much of the time of a training of a model.
ROUNDED_WORK = 0.5


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Counts by hand-made cells, by trained cells with a rounded carry, then trains the models.

    Yields `(name, list of Counted)` for the three counts, and a `Trained` for each model.
    """
    rows, bottleneck = Rows(config), Bottleneck(config)
    work = ROUNDED_WORK * rows.num_epochs / bottleneck.num_epochs
    total = rows.num_epochs * (len(config.models) + ROUNDED_WORK)
    with progress_bar(total) as bar:
        bar.stage("hand-made cells")
        yield "parity", [one_bit(config.history_bits)]
        yield "register", registers(bottleneck.pairs, config.history_bits)
        bar.stage("rounded cells")
        yield "rounded", bottleneck.train(checkpoints, lambda epochs: bar.advance(work * epochs))
        bar.finish_stage("rounded cells")
        for model in config.models:
            bar.stage(LABELS[model])
            trained = train(config, model, rows, checkpoints, bar.advance)
            shown = ", ".join(
                f"{task} {100 * trained.chosen(config, task)[0]:.0f} %" for task in config.tasks
            )
            bar.finish_stage(f"{LABELS[model]}: {shown}")
            yield trained


def one_bit(history_bits: int) -> Counted:
    """The parity cell; `bits_right` is the share of histories whose parity it holds."""
    histories = all_histories(history_bits)
    cell = parity_cell()
    carries = carries_of_all(cell, (), histories)
    counted = count("parity", 1, state_capacity_bits(cell, ()), as_codes(carries, 2))
    right = carries[..., 0] == histories.cumsum(axis=1) % 2
    return counted._replace(bits_right=right.mean(axis=0))


def registers(pairs: list[tuple[int, int]], history_bits: int) -> list[Counted]:
    """Shift registers with so many numbers of so many bits."""
    histories = all_histories(history_bits)
    counted = []
    for units, bits in pairs:
        cell = shift_register(units, bits)
        capacity = state_capacity_bits(cell, (), bits_per_number=bits)
        codes = as_codes(carries_of_all(cell, (), histories), 2**bits)
        counted.append(count("shift register", units, capacity, codes))
    return counted
