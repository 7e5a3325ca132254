"""Five tasks on one vocabulary, in one shape, and the networks that learn them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame import models as matched

NUM_SYMBOLS, BLANK, MARK, NUM_TOKENS = 8, 8, 9, 10
NUM_KEPT = 4
# An answer to `adding` is right within this: Hochreiter and Schmidhuber 1997 ask for an error below
# 0.04 of the target 0.5 + sum / 4, of numbers in [-1, 1].
TOLERANCE = 0.16


class Examples(NamedTuple):
    """Rows of a task, padded on the right, `[..., T]`."""

    tokens: Any  # int8 below `NUM_TOKENS`; the symbols 0 … 7, of which 0 and 1 are the bits
    numbers: Any  # float32, what `adding` reads besides; elsewhere 0
    labels: Any  # int8, the symbol to answer with
    sums: Any  # float32, the number to answer with in `adding`
    due: Any  # bool, whether an answer is due at this step
    mask: Any  # bool, whether the step is real


class Task(NamedTuple):
    """What a row of a length is."""

    label: str  # what it is called
    shortest: int  # the least length
    chance: float  # the score of the best answer that does not look at the row
    # `(rng, rows, lengths [N])`, fills empty rows up to their lengths
    write: Callable[[np.random.Generator, Examples, np.ndarray], None]
    is_number: bool = False  # whether the answer is a number


def make_examples(task: Task, rng: np.random.Generator, lengths: Any, num_steps: int) -> Examples:
    """A row of each of `lengths [N]`, `[N, num_steps]`; a length is at least the task's least."""
    lengths = np.maximum(lengths, task.shortest)
    shape = (len(lengths), num_steps)
    rows = Examples(
        tokens=np.full(shape, BLANK, np.int8),
        numbers=np.zeros(shape, np.float32),
        labels=np.zeros(shape, np.int8),
        sums=np.zeros(shape, np.float32),
        due=np.zeros(shape, bool),
        mask=np.arange(num_steps) < lengths[:, None],
    )
    task.write(rng, rows, lengths)
    return rows


def _parity(rng, rows, lengths):
    """Bits; after each one, whether the number of ones so far is odd."""
    bits = rng.integers(0, 2, rows.tokens.shape)
    rows.tokens[rows.mask] = bits[rows.mask]
    rows.labels[:] = np.cumsum(bits, axis=1) % 2
    rows.due[:] = rows.mask


def _copy(rng, rows, lengths):
    """Bits, then a mark for each, to be answered by them in order; an odd row ends with a blank."""
    steps, half = np.arange(rows.tokens.shape[1]), (lengths // 2)[:, None]
    bits = rng.integers(0, 2, rows.tokens.shape)
    is_read, is_asked = steps < half, (half <= steps) & (steps < 2 * half)
    rows.tokens[is_read], rows.tokens[is_asked] = bits[is_read], MARK
    asked = np.take_along_axis(bits, np.maximum(steps - half, 0), axis=1)
    rows.labels[is_asked], rows.due[is_asked] = asked[is_asked], True


def _selective_copy(rng, rows, lengths):
    """Symbols at random places among blanks, then a mark for each, in their order."""
    steps, first_mark = np.arange(rows.tokens.shape[1]), (lengths - NUM_KEPT)[:, None]
    symbols = rng.integers(0, NUM_SYMBOLS, (len(lengths), NUM_KEPT))
    places = _random_places(rng, steps < first_mark, NUM_KEPT)
    np.put_along_axis(rows.tokens, places, symbols.astype(np.int8), axis=1)
    is_asked = (first_mark <= steps) & rows.mask
    rows.tokens[is_asked], rows.due[is_asked] = MARK, True
    rows.labels[is_asked] = symbols.ravel()


def _induction(rng, rows, lengths):
    """Symbols, a mark in the first half, and at the end one, to be answered by what followed it."""
    all_rows, last = np.arange(len(lengths)), lengths - 1
    symbols = rng.integers(0, NUM_SYMBOLS, rows.tokens.shape)
    rows.tokens[rows.mask] = symbols[rows.mask]
    first = rng.integers(0, np.maximum(1, (lengths - 2) // 2))
    rows.tokens[all_rows, first] = rows.tokens[all_rows, last] = MARK
    rows.labels[all_rows, last] = symbols[all_rows, first + 1]
    rows.due[all_rows, last] = True


def _adding(rng, rows, lengths):
    """Numbers from -1 to 1, two of them with a mark; at the end their sum."""
    all_rows, last = np.arange(len(lengths)), lengths - 1
    numbers = rng.uniform(-1, 1, rows.tokens.shape)
    rows.numbers[rows.mask] = numbers[rows.mask]
    places = _random_places(rng, rows.mask, 2)
    np.put_along_axis(rows.tokens, places, np.int8(MARK), axis=1)
    rows.sums[all_rows, last] = np.take_along_axis(numbers, places, axis=1).sum(axis=1)
    rows.due[all_rows, last] = True


def _random_places(rng, allowed, number):
    """Different places where `allowed`, in their order, `[N, number]`."""
    draws = np.where(allowed, rng.random(allowed.shape), 2.0)
    return np.sort(np.argsort(draws, axis=1)[:, :number], axis=1)


# The sum of two uniform numbers from -1 to 1 has the density (2 - |s|) / 4.
_NEAR_ZERO = TOLERANCE * (4 - TOLERANCE) / 4
TASKS: Mapping[str, Task] = {
    "parity": Task("parity", 1, 1 / 2, _parity),
    "copying": Task("copying", 2, 1 / 2, _copy),
    "selective_copy": Task("selective copy", 2 * NUM_KEPT, 1 / NUM_SYMBOLS, _selective_copy),
    "induction": Task("induction", 4, 1 / NUM_SYMBOLS, _induction),
    "adding": Task("adding", 2, _NEAR_ZERO, _adding, is_number=True),
}

# The twins differ in nothing but tanh(u / 2) against σ(u) for the eigenvalue of a step.
MIXERS = {
    **matched.MIXERS,
    "positive": lambda width: jr.diagonal_rnn(width, (0, 1), selective=True),
    "signed": lambda width: jr.diagonal_rnn(width, (-1, 1), selective=True),
}
LABELS: Mapping[str, str] = {
    **matched.LABELS,
    "positive": "eigenvalues in (0, 1)",
    "signed": "eigenvalues in (-1, 1)",
}
NUM_FEATURES, NUM_OUTPUTS = NUM_TOKENS + 1, NUM_SYMBOLS + 1


def make_network(model: str, num_params: int, num_blocks: int) -> tuple[int, jr.Layer]:
    """The width at which blocks of the model have about so many parameters, and the blocks."""

    def make(width):
        mixers = [MIXERS[model](width) for _ in range(num_blocks)]
        return jr.classifier(mixers, width, NUM_OUTPUTS)

    width = matched.matched_width(make, NUM_FEATURES, num_params)
    return width, make(width)


def outputs(network: jr.Layer, params: Any, examples: Examples) -> Any:
    """From one-hot tokens and a number to logits and a number, `[..., T, NUM_OUTPUTS]`."""
    tokens = jax.nn.one_hot(examples.tokens, NUM_TOKENS)
    features = jnp.concatenate([tokens, examples.numbers[..., None]], axis=-1)
    return jr.unroll(network, params, features, mask=examples.mask).outputs


def loss_and_right(outputs: Any, examples: Examples, is_number: Any) -> tuple[Any, Any]:
    """The mean loss over the answers due, and bool `[..., T]`, which of them are right."""
    logits, numbers = outputs[..., :NUM_SYMBOLS], outputs[..., NUM_SYMBOLS:]
    by_class = jr.cross_entropy(logits, examples.labels, examples.due)
    by_square = jr.squared_error(numbers, examples.sums[..., None], examples.due)
    losses = jnp.where(is_number, by_square, by_class)
    right = jnp.where(
        is_number,
        jnp.abs(numbers[..., 0] - examples.sums) < TOLERANCE,
        logits.argmax(axis=-1) == examples.labels,
    )
    return jr.mean_over_steps(losses, examples.due, empty=0), right & examples.due
