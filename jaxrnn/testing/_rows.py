"""The laws of masks and resets, checked on the rows of `_cases.ROWS`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrnn.testing._cases import (
    EMPTY,
    FIRST,
    FIRST_TWO,
    LAST_TWO,
    MASK,
    NUM_STEPS,
    ONLY_RESET,
    PACKED,
    PADDED,
    PLAIN,
    ROW_FIELDS,
    ROWS,
    SCATTERED,
    SECOND,
    STARTED,
    THIRD,
    Case,
    Result,
    Subject,
    gradient_through_carry,
    is_real,
    outputs_of,
    put,
    steps_of,
    weigh,
)
from jaxrnn.testing._compare import assert_finite, assert_same, checks_law

FINITE = "finite: values and gradients are finite, also at x = 0, which masked inputs become"
PADDING = "padding: values in masked steps have no effect"
COPY = "copy on padding: a masked step leaves the carry as it is"
RESET = "reset: one row of three sequences gives the same as three rows"
SHIELD = "shield: NaN reaches no other row and no other sequence of its row"
APART = "rows: a row does not depend on the other rows of the batch"
CAUSAL = "causal: an output does not depend on later inputs"

Run = Callable[..., Result]
# Rows with equal inputs may be rounded differently, since matrix products work on blocks of rows.
ROUNDING = 1e-12


@checks_law(FINITE)
def check_finite(run: Run, case: Case) -> Result:
    """Values and gradients are finite on the case, and where every input is zero."""
    zeros = jax.tree.map(lambda leaf: np.zeros_like(leaf) if is_real(leaf) else leaf, case.xs)
    at_zero = run(case._replace(xs=zeros, mask=np.ones_like(case.mask)))
    result = run(case)
    for name, tree in (("at x = 0, ", at_zero), ("", result)):
        for field, value in tree._asdict().items():
            axes = ("row", *ROW_FIELDS[field]) if field in ROW_FIELDS else ()
            assert_finite(FINITE, name + field, value, axes=axes)
    return result


@checks_law(PADDING)
def check_padding(run: Run, case: Case, other_xs: Any, clean: Result) -> None:
    """NaN, Inf and other numbers in masked steps change no bit; masked outputs are zero."""
    for name, xs in (
        ("NaN", _poisoned(case.xs, np.nan)),
        ("Inf", _poisoned(case.xs, np.inf)),
        ("other numbers", other_xs),
    ):
        assert_same_result(f"{PADDING} ({name})", run(case._replace(xs=xs)), clean)
    for field, mask in (("outputs", clean.flags.mask), ("xs_gradient", MASK)):
        masked = jax.tree.map(lambda leaf, real=mask: leaf[~real], getattr(clean, field))
        zeros = jax.tree.map(np.zeros_like, masked)
        assert_same(PADDING, f"{field} of masked steps", masked, zeros)


@checks_law(COPY)
def check_copy(run: Run, case: Case, clean: Result, exact: bool) -> None:
    """Padding has the same effect wherever it is, and without a real step the carry stays."""
    tolerance = 0.0 if exact else ROUNDING
    _assert_same_carry(COPY, clean.carry, EMPTY, case.carry, EMPTY, tolerance)
    scattered = run(jax.tree.map(_padded_becomes_scattered, case))
    _assert_same_carry(COPY, scattered.carry, PADDED, clean.carry, PADDED, tolerance)
    want = run(weigh(case, [PADDED], [PADDED]))
    got = run(weigh(case, [SCATTERED], [SCATTERED]))
    for field in ("outputs", "xs_gradient"):
        _assert_same_letters(COPY, field, got, SCATTERED, want, PADDED, "abcd")
    _assert_same_carry(COPY, clean.carry, SCATTERED, clean.carry, PADDED)
    _assert_same_carry(COPY, got.carry_gradient, SCATTERED, want.carry_gradient, PADDED)
    name = f"params_gradient of row {ROWS[SCATTERED]!r}"
    assert_same(COPY, name, got.params_gradient, want.params_gradient, tolerance=ROUNDING)


@checks_law(RESET)
def check_reset(run: Run, case: Case, clean: Result, subject: Subject, reverse: bool) -> None:
    """Compares a row of three sequences with three rows: outputs, carries and gradients."""
    read_first, read_last = (THIRD, FIRST) if reverse else (FIRST, THIRD)
    packed = run(weigh(case, [PACKED], [PACKED]))
    parts = run(weigh(case, [FIRST, SECOND, THIRD], [read_last]))
    for row, letters in ((FIRST, "ab"), (SECOND, "cd"), (THIRD, "ef")):
        for field in ("outputs", "xs_gradient"):
            _assert_same_letters(RESET, field, packed, PACKED, parts, row, letters)
    _assert_same_letters(RESET, "outputs", clean, STARTED, clean, THIRD, "ef")
    two_sequences = LAST_TWO if reverse else FIRST_TWO
    for row, like in ((PACKED, read_last), (two_sequences, SECOND), (STARTED, THIRD)):
        _assert_same_carry(RESET, clean.carry, row, clean.carry, like)
    initial_carry = jax.device_get(subject.initial_carry((len(ROWS),)))
    _assert_same_carry(RESET, clean.carry, ONLY_RESET, initial_carry, ONLY_RESET)
    _assert_same_carry(RESET, packed.carry_gradient, PACKED, parts.carry_gradient, read_first)
    name = f"params_gradient of row {ROWS[PACKED]!r}"
    started = {FIRST, SECOND, THIRD} - {read_first}
    # In the packed row a reset starts from an initial carry that depends on params; separate rows
    # are given theirs as an argument.
    through_carry = gradient_through_carry(subject, parts.carry_gradient, started)
    want = jax.tree.map(
        lambda leaf, more: leaf + more if is_real(leaf) else leaf,
        parts.params_gradient,
        through_carry,
    )
    assert_same(RESET, name, packed.params_gradient, want, tolerance=ROUNDING)


@checks_law(SHIELD)
def check_shield(run: Run, case: Case, clean: Result, tolerance: float = 0.0) -> None:
    """NaN or Inf in the second of three sequences changes nothing outside it."""
    touched = {"outputs": outputs_of(clean, PACKED, "cd"), "xs_gradient": steps_of(PACKED, "cd")}
    for poison in (np.nan, np.inf):
        xs = put(case.xs, PACKED, steps_of(PACKED, "c"), poison)
        dirty = run(case._replace(xs=xs))
        for field, steps in touched.items():
            healed = put(getattr(dirty, field), PACKED, steps, getattr(clean, field))
            dirty = dirty._replace(**{field: healed})
        _assert_same_rows(f"{SHIELD} ({poison} at 'c')", dirty, clean, range(len(ROWS)), tolerance)


@checks_law(APART)
def check_rows_apart(run: Run, case: Case, other_xs: Any, clean: Result, causal: bool) -> None:
    """New inputs late in a row change no other row and, if causal, no earlier output."""
    late = NUM_STEPS // 2
    new = jax.tree.map(lambda leaf: np.broadcast_to(leaf[EMPTY], leaf.shape), other_xs)
    changed = run(case._replace(xs=put(case.xs, PLAIN, np.s_[late:], new)))
    _assert_same_rows(APART, changed, clean, set(range(len(ROWS))) - {PLAIN})
    if causal:
        early = [
            jax.tree.map(lambda leaf: leaf[PLAIN, :late], result.outputs)
            for result in (changed, clean)
        ]
        assert_same(CAUSAL, f"outputs before step {late}", *early, axes=("step",))


def assert_same_result(law: str, got: Result, want: Result, tolerance: float = 0.0) -> None:
    """Raises LawBroken where two results on the table differ."""
    _assert_same_rows(law, got, want, range(len(ROWS)), tolerance)
    for field in ("params_gradient", "loss"):
        assert_same(law, field, getattr(got, field), getattr(want, field), tolerance=tolerance)


def _assert_same_rows(law, got, want, rows, tolerance=0.0):
    for field, axes in ROW_FIELDS.items():
        for row in rows:
            pair = (_row(getattr(result, field), row) for result in (got, want))
            name = f"{field} of row {ROWS[row]!r}"
            assert_same(law, name, *pair, tolerance=tolerance, axes=axes)


def _assert_same_letters(law, field, got, row, want, like, letters):
    def steps_in(result, row):
        in_outputs = field == "outputs"
        steps = outputs_of(result, row, letters) if in_outputs else steps_of(row, letters)
        return jax.tree.map(lambda leaf: leaf[row, steps], getattr(result, field))

    pair = (steps_in(got, row), steps_in(want, like))
    name = f"{field} of {letters!r} in row {ROWS[row]!r}"
    assert_same(law, name, *pair, tolerance=ROUNDING, axes=("letter",))


def _assert_same_carry(law, got, row, want, like, tolerance=ROUNDING):
    name = f"carry of row {ROWS[row]!r}"
    assert_same(law, name, _row(got, row), _row(want, like), tolerance=tolerance)


def _row(tree, row):
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _poisoned(xs, value):
    def leaf_poisoned(leaf):
        leaf = leaf.copy()
        leaf[~MASK] = value
        return leaf

    return jax.tree.map(lambda leaf: leaf_poisoned(leaf) if is_real(leaf) else leaf, xs)


def _padded_becomes_scattered(leaf):
    leaf = leaf.copy()
    leaf[PADDED] = leaf[SCATTERED]
    return leaf
