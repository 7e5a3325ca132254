"""Checks that a cell or a layer keeps the laws."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.precision import cast
from jaxrnn.testing import _calls as calls
from jaxrnn.testing import _laws as laws
from jaxrnn.testing import _rows as rows
from jaxrnn.testing import _traced as traced
from jaxrnn.testing._cases import (
    NUM_VECTORS,
    Subject,
    compiled,
    in_the_middle,
    is_real,
    make_case,
    normal_like,
    whole,
)
from jaxrnn.types import Cell, Evaluator, Layer

MakeXs = Callable[[Any, tuple[int, ...]], Any]

AGREEMENT = 1e-10
EVALUATORS = "evaluators: they agree in values and gradients"


def check_cell(
    cell: Cell,
    *,
    num_inputs: int = 3,
    params: Any = None,
    make_xs: MakeXs | None = None,
    evaluators: Sequence[Evaluator] | None = None,
    seed: int = 0,
) -> None:
    """Checks a cell against the laws on which the engine relies.

    The checks run in float64 on rows of seven steps, with padding at the start, in the middle and
    at the end, resets, and several sequences in a row. They compare values and the gradients of
    params, inputs and carry. The laws: types, purity, carries that may be donated, parameters of
    another shape, finite derivatives, padding, independent rows, shielded NaN, copied carries,
    resets, both directions, finite differences, step, one compilation per shape, chunks, axes,
    starts, evaluators and keys.

    Args:
        cell: the cell to check.
        num_inputs: D.
        params: the parameters to check it with; None is those of `init`, with small random numbers
            instead of leaves of zeros, so that these have an effect.
        make_xs: `(key, leading_shape) -> xs`, leaves `[*leading, ...]`; None is normal numbers
            `[*leading, D]`, or ints below D when x has no feature axis.
        evaluators: evaluators that must agree with `sequential()`; None is
            `(sequential(checkpoint="sqrt"),)`. For a linear cell pass `associative()` too.
        seed: seed of params and inputs.

    Raises:
        LawBroken: A law is broken. This AssertionError names the law, the leaf, row and step, and
            the difference.
        TypeError: `cell` is not a Cell.
        ValueError: `make_xs` is needed and missing.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> from jaxrnn.testing import check_cell
        >>> def init(key, num_inputs):
        ...     return {"rate": jnp.full(num_inputs, 0.5)}
        >>> def advance(params, carry, z):
        ...     return params["rate"] * carry + (1 - params["rate"]) * z
        >>> check_cell(jr.simple_cell(init, advance, num_outputs=3))
    """
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must be a Cell, got {type(cell).__name__}.")
    if evaluators is None:
        evaluators = (sequential(checkpoint="sqrt"),)
    _check(cell, num_inputs, params, make_xs, (sequential(), *evaluators), seed)


def check_layer(
    layer: Layer,
    *,
    num_inputs: int = 3,
    params: Any = None,
    make_xs: MakeXs | None = None,
    seed: int = 0,
) -> None:
    """Checks a layer against the laws, as `check_cell` does a cell.

    A layer that is not causal is not streamed; it must raise when asked to. Every layer must also
    give the same results when masked inputs are not zero, as happens after another layer. The
    outputs of a layer that returns flags of its own are compared sequence by sequence.

    Args:
        layer: the layer to check.
        num_inputs: D, or the size of the vocabulary.
        params: the parameters to check it with, as in `check_cell`.
        make_xs: a function that makes inputs, as in `check_cell`.
        seed: seed of params and inputs.

    Raises:
        LawBroken: A law is broken, as in `check_cell`.
        TypeError: `layer` is not a Layer.
        ValueError: `make_xs` is needed and missing.

    Example:
        >>> import jaxrnn as jr
        >>> from jaxrnn.testing import check_layer
        >>> check_layer(jr.recurrent(jr.elman(2)))
    """
    if not isinstance(layer, Layer):
        raise TypeError(f"layer must be a Layer, got {type(layer).__name__}.")
    _check(layer, num_inputs, params, make_xs, (None,), seed)


def _check(record, num_inputs, params, make_xs, evaluators, seed):
    make_xs = _default_xs(record, num_inputs, seed) if make_xs is None else make_xs
    with jax.enable_x64(True):
        key_params, key = jax.random.split(jax.random.key(seed))
        initial = record.init(key_params, num_inputs) if params is None else params
        arrays = jax.tree.map(jnp.asarray, (initial, make_xs(key, (NUM_VECTORS,))))
        initial, vectors = jax.device_get(cast(arrays, jnp.float64))
        initial = _without_zeros(initial) if params is None else initial
        _check_subject(Subject(record, initial, vectors), num_inputs, evaluators, key)


def _check_subject(subject, num_inputs, evaluators, key):
    traced.check_types(subject, num_inputs)
    traced.check_pure(subject)
    calls.check_owned(subject)
    calls.check_params(subject, num_inputs)
    start, other_xs = make_case(subject)
    run = compiled(whole(subject, evaluators[0]), subject.params)
    case = in_the_middle(run, start, reverse=False)
    clean = rows.check_finite(run, case)
    rows.check_padding(run, case, other_xs, clean)
    rows.check_rows_apart(run, case, other_xs, clean, subject.causal)
    # A layer that changes its steps streams in chunks alone.
    if subject.causal and run(start).flags.mask is start.mask:
        laws.check_step(subject, start, run(start))
    _check_flags(subject, run, case, clean, reverse=False)
    laws.check_gradient(run, case, clean, subject.params)
    calls.check_unsettled(subject, case, clean)
    if subject.causal:
        laws.check_chunks(subject, case, clean)
    else:
        calls.check_not_causal(subject, start)
    calls.check_axes(subject)
    calls.check_starts(subject, start, clean.carry)
    # The engine turns a layer round without its doing; `check_keys` compares its outputs both ways.
    if isinstance(subject.record, Cell):
        _check_reverse(subject, start, other_xs)
    for number, evaluator in enumerate(evaluators[1:]):
        _check_evaluator(subject, evaluator, f"evaluators[{number}]", case, other_xs, clean)
    calls.check_keys(subject, start, run(start), evaluators, key)


def _check_flags(subject, run, case, clean, reverse):
    rows.check_copy(run, case, clean, exact=isinstance(subject.record, Cell))
    rows.check_reset(run, case, clean, subject, reverse)
    rows.check_shield(run, case, clean)


def _check_reverse(subject, start, other_xs):
    run = compiled(whole(subject, reverse=True), subject.params)
    case = in_the_middle(run, start, reverse=True)
    clean = run(case)
    rows.check_padding(run, case, other_xs, clean)
    _check_flags(subject, run, case, clean, reverse=True)


def _check_evaluator(subject, evaluator, name, case, other_xs, clean):
    run = compiled(whole(subject, evaluator), subject.params)
    got = run(case)
    rows.assert_same_result(f"{EVALUATORS} ({name})", got, clean, AGREEMENT)
    rows.check_padding(run, case, other_xs, got)
    rows.check_shield(run, case, got, AGREEMENT)


def _default_xs(record, num_inputs, seed):
    if record.num_feature_axes not in (0, 1):
        raise ValueError(
            "make_xs must be given when x is neither a token nor one vector, "
            f"got num_feature_axes {record.num_feature_axes}."
        )

    def make_xs(key, shape):
        if record.num_feature_axes == 0:
            return jax.random.randint(key, shape, 0, num_inputs)
        return np.random.default_rng(seed).standard_normal((*shape, num_inputs))

    return make_xs


def _without_zeros(params):
    noise = normal_like(0, params)
    return jax.tree.map(
        lambda leaf, new: 0.1 * new if is_real(leaf) and not leaf.any() else leaf, params, noise
    )
