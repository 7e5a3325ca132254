"""The tasks of the memory experiment: what is due is what a slow reader of the tokens answers."""

import numpy as np
import pytest

from experiments.memory.task import (
    BLANK,
    MARK,
    NUM_KEPT,
    NUM_OUTPUTS,
    NUM_SYMBOLS,
    TASKS,
    TOLERANCE,
    Examples,
    loss_and_right,
    make_examples,
)

NUM_STEPS = 24


def answers_parity(tokens, numbers):
    return {step: sum(tokens[: step + 1]) % 2 for step in range(len(tokens))}


def answers_copying(tokens, numbers):
    bits = [token for token in tokens if token < 2]
    marks = [step for step, token in enumerate(tokens) if token == MARK]
    assert marks == list(range(len(bits), 2 * len(bits)))
    return dict(zip(marks, bits, strict=True))


def answers_selective_copy(tokens, numbers):
    symbols = [token for token in tokens if token < NUM_SYMBOLS]
    marks = [step for step, token in enumerate(tokens) if token == MARK]
    assert len(symbols) == NUM_KEPT and marks[-1] == len(tokens) - 1
    assert [token for token in tokens if token == BLANK] == [BLANK] * (len(tokens) - 2 * NUM_KEPT)
    return dict(zip(marks, symbols, strict=True))


def answers_induction(tokens, numbers):
    first, last = (step for step, token in enumerate(tokens) if token == MARK)
    assert last == len(tokens) - 1 and first <= (last - 1) // 2
    return {last: tokens[first + 1]}


def answers_adding(tokens, numbers):
    first, second = (number for token, number in zip(tokens, numbers, strict=True) if token == MARK)
    assert max(map(abs, numbers)) <= 1
    return {len(tokens) - 1: first + second}


READERS = {
    "parity": answers_parity,
    "copying": answers_copying,
    "selective_copy": answers_selective_copy,
    "induction": answers_induction,
    "adding": answers_adding,
}


@pytest.mark.parametrize("name", TASKS)
def test_what_is_due_is_what_a_slow_reader_answers(name):
    task = TASKS[name]
    lengths = np.arange(1, NUM_STEPS + 1).repeat(8)
    rows = make_examples(task, np.random.default_rng(0), lengths, NUM_STEPS)
    for index, length in enumerate(np.maximum(lengths, task.shortest)):
        row = Examples(*(leaf[index] for leaf in rows))
        assert row.mask.tolist() == [step < length for step in range(NUM_STEPS)]
        assert set(row.tokens[length:]) <= {BLANK} and not row.numbers[length:].any()
        tokens, numbers = row.tokens[:length].tolist(), row.numbers[:length].tolist()
        expected = READERS[name](tokens, numbers)
        assert np.flatnonzero(row.due).tolist() == sorted(expected)
        given = row.sums if task.is_number else row.labels
        for step, answer in expected.items():
            assert given[step] == pytest.approx(answer, abs=1e-6)


def test_rows_are_neither_all_alike_nor_the_same_from_seed_to_seed():
    lengths = np.full(64, NUM_STEPS)
    for task in TASKS.values():
        first, again, other = (
            make_examples(task, np.random.default_rng(seed), lengths, NUM_STEPS)
            for seed in (1, 1, 2)
        )
        read = np.concatenate([first.tokens, first.numbers], axis=1)
        assert len(np.unique(read, axis=0)) > 60
        assert (first.tokens == again.tokens).all() and (first.tokens != other.tokens).any()


def test_chance_of_adding_is_that_of_answering_zero():
    rows = make_examples(
        TASKS["adding"], np.random.default_rng(0), np.full(20_000, NUM_STEPS), NUM_STEPS
    )
    share = (np.abs(rows.sums[rows.due]) < TOLERANCE).mean()
    assert share == pytest.approx(TASKS["adding"].chance, abs=0.01)


def test_loss_and_right_by_hand():
    rows = make_examples(TASKS["copying"], np.random.default_rng(0), np.array([4]), 6)
    outputs = np.zeros((1, 6, NUM_OUTPUTS), np.float32)
    bits = rows.labels[0, 2:4]
    outputs[0, 2, bits[0]] = 1.0
    outputs[0, 3, 1 - bits[1]] = 1.0
    outputs[0, 5] = 50.0  # nothing is due there
    loss, right = loss_and_right(outputs, rows, False)
    total = np.log(np.e + NUM_SYMBOLS - 1)
    assert float(loss) == pytest.approx(total - 0.5)
    assert right[0].tolist() == [False, False, True, False, False, False]

    rows = make_examples(TASKS["adding"], np.random.default_rng(0), np.array([4, 4]), 6)
    outputs = np.zeros((2, 6, NUM_OUTPUTS), np.float32)
    outputs[:, 3, NUM_SYMBOLS] = rows.sums[:, 3] + [0.9 * TOLERANCE, 1.1 * TOLERANCE]
    loss, right = loss_and_right(outputs, rows, True)
    assert float(loss) == pytest.approx(TOLERANCE**2 * (0.81 + 1.21) / 2, rel=1e-4)
    assert right[:, 3].tolist() == [True, False]
