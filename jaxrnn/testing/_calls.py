"""The laws about ways to call: layouts, keys, layers in a stack, layers that cannot stream."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine.keys import MissingKey
from jaxrnn.engine.masking import select
from jaxrnn.engine.parameters import expected_params
from jaxrnn.engine.starts import StartsRefused
from jaxrnn.engine.time import flip_reset
from jaxrnn.engine.unroll import step, unroll
from jaxrnn.testing._cases import (
    MASK,
    PACKED,
    RESET,
    STARTED,
    Case,
    Result,
    Subject,
    compiled,
    is_real,
    whole,
)
from jaxrnn.testing._compare import LawBroken, assert_same, checks_law, require
from jaxrnn.testing._rows import ROUNDING, assert_same_result
from jaxrnn.types import Cell, Layer

AXES = "axes: any leading axes, time first or not, T = 0 and T = 1 agree"
KEYS = "keys: a key fixes the noise, and a missing one is an error"
OWNED = "owned: the initial carry shares no memory, so that it may be donated"
UNSETTLED = "unsettled: a layer does not read masked inputs, whether they are zero or not"
PARAMS = "params: a leaf of another shape raises ValueError before anything runs"
NOT_CAUSAL = "not causal: step raises ValueError"
STARTS = "starts: a sequence of a row, given its own start, is what it is alone with that carry"


@checks_law(AXES)
def check_axes(subject: Subject) -> None:
    """Two, one and no batch axes, time first, arguments given or omitted, no steps."""
    shape, short = (2, 2, 4), 2
    xs = subject.xs(*shape)

    def run(params, xs, **arguments):
        rollout = unroll(subject.record, params, xs, **arguments)
        return rollout.outputs, rollout.carry if subject.causal else None

    def variants(params, xs):
        initial = subject.initial_carry(shape[:2])
        # Of numpy, because a floating mask must not be traced.
        flags = {"mask": np.ones(shape), "reset": jnp.zeros(shape, int)}
        outputs, carry = run(params, xs)
        given = run(params, xs, carry=initial, **flags)
        cut = run(params, _until(short, xs))
        flat = run(params, _map(lambda leaf: leaf.reshape(4, *leaf.shape[2:]), xs))
        time_first = run(params, _map(lambda leaf: jnp.moveaxis(leaf, 2, 0), xs), time_major=True)
        padded = run(params, xs, mask=jnp.broadcast_to(jnp.arange(shape[2]) < short, shape))
        return {
            "all arguments given": (_as_long(given, outputs), (outputs, carry)),
            "one batch axis": (
                _map(lambda leaf: leaf.reshape(*shape[:2], *leaf.shape[1:]), flat),
                (outputs, carry),
            ),
            "no batch axis": (run(params, _last_row(xs)), _last_row((outputs, carry))),
            "time first": (
                (_map(lambda leaf: jnp.moveaxis(leaf, 0, 2), time_first[0]), time_first[1]),
                (outputs, carry),
            ),
            "no steps": (run(params, _until(0, xs)), (_until(0, outputs), initial)),
            "a masked end": (_as_long(padded, cut[0]), cut),
        }

    for name, pair in jax.device_get(jax.jit(variants)(subject.params, xs)).items():
        for part, got, want in zip(("outputs", "carry"), *pair, strict=True):
            assert_same(AXES, f"{part} with {name}", got, want, tolerance=ROUNDING)


@checks_law(KEYS)
def check_keys(subject: Subject, case: Case, clean: Result, evaluators: Any, key: Any) -> None:
    """Noise is the same under every evaluator and is reversed together with the sequence."""
    if isinstance(subject.record, Cell) and subject.record.prepare is None:
        return

    def noisy(key, xs=case.xs, mask=MASK, reset=RESET, **arguments):
        flags = {"mask": mask, "reset": reset}
        return unroll(subject.record, subject.params, xs, key=key, **flags, **arguments).outputs

    def variants(key):
        xs, mask = jax.tree.map(lambda leaf: jnp.flip(leaf, 1), (case.xs, MASK))
        reset = flip_reset(jnp.asarray(RESET).T).T
        others = enumerate(evaluators[1:])
        outputs = {f"evaluators[{i}]": noisy(key, evaluator=e) for i, e in others}
        reverse = noisy(key, xs=xs, mask=mask, reset=reset, reverse=True)
        return noisy(key), outputs | {"reverse": _map(lambda leaf: jnp.flip(leaf, 1), reverse)}

    want, variations = jax.device_get(jax.jit(variants)(key))
    for name, got in variations.items():
        assert_same(KEYS, f"outputs with {name}", got, want, tolerance=1e-10, axes=("row", "step"))
    try:
        assert_same(KEYS, "", want, clean.outputs, tolerance=1e-10)
    except LawBroken:
        _check_missing_key(noisy)


@checks_law(OWNED)
def check_owned(subject: Subject) -> None:
    """No leaf of the initial carry is another leaf or a parameter."""
    params = jax.tree.map(jnp.asarray, subject.params)
    for batch_shape in ((), (2,)):
        carry = subject.record.initial_carry(params, batch_shape)
        trees, owners = {"params": params, "initial_carry": carry}, {}
        for path, leaf in jax.tree_util.tree_flatten_with_path(trees)[0]:
            if leaf.size:
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                other = owners.setdefault(leaf.unsafe_buffer_pointer(), name)
                require(other == name, OWNED, f"{name} is {other}: copy one")


@checks_law(UNSETTLED)
def check_unsettled(subject: Subject, case: Case, clean: Result) -> None:
    """Replacing the zeros in masked inputs by 7 changes nothing."""
    layer = subject.record
    if not isinstance(layer, Layer):
        return

    def unroll_unsettled(params, carry, steps, key):
        if steps.mask is not None:
            sevens = _map(lambda leaf: jnp.full_like(leaf, 7) if is_real(leaf) else leaf, steps.xs)
            steps = steps._replace(xs=select(steps.mask, steps.xs, sevens))
        return layer.unroll(params, carry, steps, key)

    record = layer._replace(unroll=unroll_unsettled)
    run = compiled(whole(subject._replace(record=record)), subject.params)
    assert_same_result(UNSETTLED, run(case), clean, ROUNDING)


@checks_law(PARAMS)
def check_params(subject: Subject, num_inputs: int) -> None:
    """Every parameter with an axis too many is refused, unless `init` cannot be traced."""
    if expected_params(subject.record, (num_inputs,)) is None:
        return
    xs = subject.xs(2, 4)
    leaves, tree = jax.tree.flatten(subject.params)
    for number, leaf in enumerate(leaves):
        wrong = tree.unflatten([*leaves[:number], leaf[None], *leaves[number + 1 :]])

        def run(params):
            return unroll(subject.record, params, xs).carry

        where = f"parameter {number} of {tree} may have any shape"
        require(_raises(lambda wrong=wrong: jax.eval_shape(run, wrong)), PARAMS, where)


@checks_law(NOT_CAUSAL)
def check_not_causal(subject: Subject, case: Case) -> None:
    """A layer that is not causal refuses to stream."""
    x = jax.tree.map(lambda leaf: leaf[:, 0], case.xs)
    carry = subject.record.initial_carry(subject.params, (len(MASK),))
    is_refused = _raises(lambda: step(subject.record, subject.params, carry, x))
    require(is_refused, NOT_CAUSAL, "step raised no ValueError")


@checks_law(STARTS)
def check_starts(subject: Subject, case: Case, reached: Any) -> None:
    """Rows of several sequences with starts, and their sequences one by one with carries.

    Args:
        subject: what to check; one that cannot take starts raises an error that says so.
        case: the rows.
        reached: carries `[B, ...]` that the subject has reached; None for one that is not causal.
    """
    rows, num_starts = [PACKED, STARTED], 2
    xs, mask, reset = jax.tree.map(lambda leaf: leaf[rows], (case.xs, MASK, RESET))
    number = np.cumsum(reset, axis=1)
    numbers = np.arange(num_starts + 1)
    apart = mask[:, None] & (number[:, None] == numbers[:, None])

    def runs(params, xs, reached):
        if reached is None:
            reached = unroll(subject.record, params, subject.xs(4, 4)).carry
        starts = _map(lambda leaf: leaf[:4].reshape(2, num_starts, *leaf.shape[1:]), reached)
        flags = {"mask": mask, "reset": reset}
        packed = unroll(subject.record, params, xs, starts=starts, **flags)
        first = subject.record.initial_carry(params, (len(rows), 1))
        carry = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, 1), first, starts)
        xs = _map(lambda leaf: jnp.repeat(leaf[:, None], num_starts + 1, 1), xs)
        alone = unroll(subject.record, params, xs, carry=carry, mask=apart)
        return packed[:2], alone[:2], [run.flags and run.flags.mask for run in (packed, alone)]

    try:
        *got, masks = jax.device_get(jax.jit(runs)(subject.params, xs, reached))
    except StartsRefused:
        return
    real = [mask if own is None else own for own, mask in zip(masks, (mask, apart), strict=True)]
    # In both the real steps come row by row and sequence by sequence.
    outputs = [
        _map(lambda leaf, at=at: leaf[at], run[1]) for run, at in zip(got, real, strict=True)
    ]
    assert_same(STARTS, "outputs", *outputs, tolerance=ROUNDING, axes=("real step",))
    if subject.causal:
        last = _map(lambda leaf: leaf[np.arange(len(rows)), number[:, -1]], got[1][0])
        assert_same(STARTS, "the last carry", got[0][0], last, tolerance=ROUNDING, axes=("row",))


def _check_missing_key(noisy):
    where = "noise was drawn although the training step had no key: call drawing_key(key, name)"
    require(_raises(lambda: jax.eval_shape(lambda: noisy(MissingKey("step")))), KEYS, where)


def _raises(call):
    try:
        call()
    except ValueError:
        return True
    return False


def _last_row(tree):
    return _map(lambda leaf: leaf[-1, -1], tree)


def _until(stop, tree):
    return _map(lambda leaf: leaf[:, :, :stop], tree)


def _as_long(result, outputs):
    """The result with no more outputs than the other ones."""
    num_outputs = jax.tree.leaves(outputs)[0].shape[2]
    return _until(num_outputs, result[0]), result[1]


def _map(change, tree):
    return jax.tree.map(change, tree)
