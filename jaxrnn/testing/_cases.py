"""The rows that the laws are checked on, and one compiled function that runs them."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine.carry import broadcast_carry
from jaxrnn.engine.unroll import unroll
from jaxrnn.types import Cell, Flags, Layer

# A string is a row, a character a step. A letter is a real input, the same input wherever it
# occurs; a capital starts a new sequence. "." is padding, "," padding that starts a new sequence.
ROWS = (
    "abcdefg",
    "abcd...",
    ".a.bc.d",
    ".......",
    "ab,cdEf",
    "ab.....",
    "cd.....",
    "ef.....",
    "ab,cd..",
    "...cdEf",
    "Ef.....",
    "...,...",
)
PLAIN, PADDED, SCATTERED, EMPTY, PACKED, FIRST, SECOND, THIRD = range(8)
FIRST_TWO, LAST_TWO, STARTED, ONLY_RESET = range(8, 12)
NUM_STEPS = len(ROWS[0])

SIGNS = np.array([list(row) for row in ROWS])
MASK = np.char.isalpha(SIGNS)
RESET = np.char.isupper(SIGNS) | (SIGNS == ",")
# One vector for each letter, and two sets of padding.
NUM_VECTORS = NUM_STEPS + 2 * MASK.size


class Subject(NamedTuple):
    """A cell or layer to check, its float64 params, and `NUM_VECTORS` inputs `[N, ...]`."""

    record: Cell | Layer
    params: Any
    vectors: Any

    def xs(self, *leading: int) -> Any:
        """Inputs `[*leading, ...]`."""
        count = np.prod(leading)
        return jax.tree.map(
            lambda leaf: leaf[:count].reshape(*leading, *leaf.shape[1:]), self.vectors
        )

    @property
    def causal(self) -> bool:
        """Whether the subject can stream."""
        return getattr(self.record, "causal", True)

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Any:
        """The carry before the first step; None for a layer that takes none."""
        return self.record.initial_carry(self.params, batch_shape) if self.causal else None


class Case(NamedTuple):
    """The arguments of one run over a table of rows, and the `weights` of its loss."""

    carry: Any
    xs: Any
    mask: Any
    reset: Any
    weights: Any


class Result(NamedTuple):
    """The results of a run, as numpy.

    The loss is a weighted sum of the outputs and the last carry; `flags` are those of the outputs.
    """

    loss: Any
    outputs: Any
    carry: Any
    flags: Flags
    params_gradient: Any
    carry_gradient: Any
    xs_gradient: Any


ROW_FIELDS = {"outputs": ("step",), "carry": (), "carry_gradient": (), "xs_gradient": ("step",)}
"""The fields of a Result that have a row axis, and their axes after it."""


def outputs_of(result: Result, row: int, letters: str) -> list[int]:
    """Which outputs of a row are the real ones of the sequence that has these letters."""
    number = RESET[row].cumsum()[steps_of(row, letters[0])]
    mask, reset = (flag[row] for flag in result.flags)
    return np.flatnonzero(mask & (reset.cumsum() == number)).tolist()


def steps_of(row: int, letters: str) -> list[int]:
    """The steps at which a row of the table has these letters."""
    text = ROWS[row].lower()
    return [text.index(letter) for letter in letters]


def whole(subject: Subject, evaluator: Any = None, reverse: bool = False) -> Callable[..., Any]:
    """`(params, carry, xs, mask, reset) -> (outputs, carry, flags)` by one call of `unroll`."""

    def roll(params, carry, xs, mask, reset):
        flags = {"mask": mask, "reset": reset, "reverse": reverse}
        rollout = unroll(subject.record, params, xs, carry=carry, evaluator=evaluator, **flags)
        return rollout.outputs, rollout.carry if subject.causal else None, rollout.flags

    return roll


def compiled(roll: Callable[..., Any], params: Any) -> Callable[..., Result]:
    """Compiles `roll` with its gradients, once for all cases.

    Args:
        roll: `(params, carry, xs, mask, reset) -> (outputs, carry, flags)`, with None for the
            flags of the inputs.
        params: the parameters of a run that is given none.

    Returns:
        `(case, params=params) -> Result`.
    """

    def loss(params, carry, xs, mask, reset, weights):
        outputs, last, flags = rolled = roll(params, carry, xs, mask, reset)
        if flags is not None:
            weights = _like_outputs(weights[0], Flags(mask, reset), flags), weights[1]
        return _weighted_sum(weights, (outputs, last)), rolled

    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True, allow_int=True)
    run = jax.jit(gradient)

    def result(case: Case, params: Any = params) -> Result:
        (loss, rolled), gradients = jax.device_get(run(params, *case))
        outputs, last, flags = rolled
        flags = Flags(case.mask, case.reset) if flags is None else flags
        return Result(loss, outputs, last, flags, *gradients)

    return result


def make_case(subject: Subject) -> tuple[Case, Any]:
    """The table as a case that starts from the initial carry, and its xs with different padding."""
    xs = _lay_out(subject.vectors, 0)
    carry = jax.device_get(subject.initial_carry((len(ROWS),)))
    outputs, last, _ = jax.eval_shape(whole(subject), subject.params, carry, xs, MASK, RESET)
    weights = normal_like(1, outputs, lambda leaf: (NUM_VECTORS, *leaf.shape[2:]))
    # The same for all rows, so that two rows with the same letters have the same loss.
    last_weights = normal_like(2, last, lambda leaf: leaf.shape[1:])
    last_weights = jax.device_get(broadcast_carry(last_weights, (len(ROWS),)))
    return Case(carry, xs, MASK, RESET, (_lay_out(weights, 0), last_weights)), _lay_out(
        subject.vectors, 1
    )


def in_the_middle(run: Callable[..., Result], start: Case, reverse: bool) -> Case:
    """The case with rows that all start from one carry that the cell has reached.

    Only the rows that correspond to a later sequence of the packed row start from the initial
    carry.
    """
    reached = run(start._replace(mask=np.ones_like(MASK), reset=np.zeros_like(RESET))).carry
    fresh = np.isin(np.arange(len(ROWS)), (FIRST, SECOND) if reverse else (SECOND, THIRD))

    def choose(initial, leaf):
        leaf = np.broadcast_to(leaf[PLAIN], leaf.shape)
        return np.where(np.expand_dims(fresh, tuple(range(1, leaf.ndim))), initial, leaf)

    return start._replace(carry=jax.tree.map(choose, start.carry, reached))


def normal_like(seed: int, tree: Any, shape: Callable[[Any], tuple[int, ...]] = jnp.shape) -> Any:
    """Normal numbers for the floating and complex leaves of a tree, zeros for the others."""
    generator = np.random.default_rng(seed)

    def draw(leaf):
        if not is_real(leaf):
            return np.zeros(shape(leaf), leaf.dtype)
        numbers = generator.standard_normal((2, *shape(leaf)))
        is_complex = jnp.issubdtype(leaf.dtype, jnp.complexfloating)
        return (numbers[0] + 1j * numbers[1] if is_complex else numbers[0]).astype(leaf.dtype)

    return jax.tree.map(draw, tree)


def put(tree: Any, row: int, steps: Any, value: Any) -> Any:
    """Replaces steps of a row by those of a tree, or floating leaves there by a number."""

    def leaf_put(leaf, new):
        leaf = leaf.copy()
        leaf[row, steps] = new[row, steps] if isinstance(new, np.ndarray) else new
        return leaf

    if isinstance(value, float):
        return jax.tree.map(lambda leaf: leaf_put(leaf, value) if is_real(leaf) else leaf, tree)
    return jax.tree.map(leaf_put, tree, value)


def is_real(leaf: Any) -> bool:
    """Whether a leaf holds floating or complex numbers."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def gradient_through_carry(subject: Subject, carry_gradient: Any, rows: Iterable[int]) -> Any:
    """The gradient that reaches params through the initial carry of these rows."""

    def initial_carry(params):
        return subject._replace(params=params).initial_carry((len(ROWS),))

    _, pull = jax.vjp(initial_carry, subject.params)
    return jax.device_get(pull(_keep(rows, carry_gradient))[0])


def weigh(case: Case, outputs_of: Iterable[int], carry_of: Iterable[int]) -> Case:
    """The case with only these rows weighted; the weights of all others are zero."""
    outputs, carry = case.weights
    return case._replace(weights=(_keep(outputs_of, outputs), _keep(carry_of, carry)))


def _keep(rows, tree):
    flag = np.isin(np.arange(len(ROWS)), list(rows))
    return jax.tree.map(lambda leaf: (leaf.T * flag).T if is_real(leaf) else leaf, tree)


def _lay_out(vectors, padding):
    """Leaves `[B, T, ...]` of a tree `[N, ...]` that holds the letters and two sets of padding."""
    index = NUM_STEPS + padding * MASK.size + np.arange(MASK.size).reshape(MASK.shape)
    letters = np.char.lower(SIGNS[MASK])
    index[MASK] = [ord(letter) - ord("a") for letter in letters]
    return jax.tree.map(lambda leaf: leaf[index], vectors)


def _like_outputs(weights, given, made):
    """Weights `[B, T', ...]` of outputs, from those of the steps `[B, T, ...]`.

    The i-th real output of a sequence has the weight of the i-th real step of it, so that it does
    not depend on where in a row either is.
    """

    def names(flags):
        number = jnp.cumsum(flags.mask, axis=1)
        starts = jnp.where(flags.reset, number - flags.mask, 0)
        return jnp.cumsum(flags.reset, axis=1), number - lax.cummax(starts, axis=1)

    same = made.mask[:, :, None] & given.mask[:, None, :]
    for of_output, of_step in zip(names(made), names(given), strict=True):
        same &= of_output[:, :, None] == of_step[:, None, :]
    return jax.tree.map(lambda leaf: jnp.einsum("rjt,rt...->rj...", same, leaf), weights)


def _weighted_sum(weights, rolled):
    # Bounded, so that a stabiliser that starts at -1e30 leaves the other leaves their digits.
    products = jax.tree.map(lambda w, leaf: w * leaf / (1 + jnp.abs(leaf) / 100), weights, rolled)
    return sum((jnp.sum(jnp.real(leaf)) for leaf in jax.tree.leaves(products)), start=0.0)
