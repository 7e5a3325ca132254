"""The laws of derivatives and streaming."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from jaxrnn.engine.unroll import step, unroll
from jaxrnn.testing._cases import (
    MASK,
    NUM_STEPS,
    RESET,
    Case,
    Result,
    Subject,
    compiled,
    is_real,
    normal_like,
)
from jaxrnn.testing._compare import assert_same, checks_law, require
from jaxrnn.testing._rows import ROUNDING, Run, assert_same_result
from jaxrnn.types import Cell

GRADIENT = "gradient: it agrees with finite differences"
STEP = "step: a loop of step gives the same as unroll"
TRACES = "traces: one compilation per shape"
CHUNKS = "chunks: cutting a sequence and passing the carry on changes nothing"

CUTS = (0, 1, 4, NUM_STEPS)


class Point(NamedTuple):
    """The point at which a gradient is taken, or the gradient there."""

    params: Any
    carry: Any
    xs: Any


@checks_law(GRADIENT)
def check_gradient(run: Run, case: Case, clean: Result, params: Any) -> None:
    """The slope along a random direction in every leaf of params, carry and xs."""
    point = Point(params, case.carry, case.xs)
    leaves, structure = jax.tree.flatten(point)
    directions = jax.tree.leaves(normal_like(3, point))
    gradients = Point(clean.params_gradient, clean.carry_gradient, clean.xs_gradient)

    def loss_along(index, size):
        moved = list(leaves)
        moved[index] = leaves[index] + size * directions[index]
        moved_params, carry, xs = structure.unflatten(moved)
        return run(case._replace(carry=carry, xs=xs), moved_params).loss

    for index, (path, gradient) in enumerate(tree_flatten_with_path(gradients)[0]):
        if is_real(leaves[index]):
            size = 1e-5
            losses = [loss_along(index, step * size) for step in (-2, -1, 1, 2)]
            # Central differences of fourth order.
            want = np.dot((1, -8, 8, -1), losses) / (12 * size)
            got = np.sum(np.real(gradient * directions[index]))
            allowed = 1e-6 * max(1, np.linalg.norm(gradient))
            where = f"{keystr(path)[1:]}: slope {got}, finite differences {want} ± {allowed:.1e}"
            require(abs(got - want) <= allowed, GRADIENT, where)


@checks_law(STEP)
def check_step(subject: Subject, case: Case, want: Result) -> None:
    """A loop of `step` outside `jit` gives the values of `unroll` and traces only once."""
    traces, num_traces = [], []
    record = _counted(subject.record, traces)
    carry, outputs = case.carry, []
    for t in range(NUM_STEPS):
        x, mask, reset = _span((case.xs, MASK, RESET), t)
        carry, y = step(record, subject.params, carry, x, mask=mask, reset=reset)
        outputs.append(y)
        num_traces.append(len(traces))
        where = f"step {t} compiled again: the carry before it changed its type"
        require(num_traces[t] == num_traces[0], TRACES, where)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *jax.device_get(outputs))
    axes = ("row", "step")
    assert_same(STEP, "outputs", stacked, want.outputs, tolerance=ROUNDING, axes=axes)
    got = jax.device_get(carry)
    assert_same(STEP, "the last carry", got, want.carry, tolerance=ROUNDING, axes=axes[:1])


@checks_law(CHUNKS)
def check_chunks(subject: Subject, case: Case, want: Result) -> None:
    """Chunks of 1, 3 and 3 steps give the same outputs, last carry and gradients."""
    got = compiled(_in_chunks(subject), subject.params)(case)
    assert_same_result(CHUNKS, got, want, ROUNDING)


def _in_chunks(subject: Subject) -> Callable[..., Any]:
    """`(params, carry, xs, mask, reset) -> (outputs, carry, flags)`, one `unroll` a chunk."""

    def roll(params, carry, xs, mask, reset):
        made = []
        for start, stop in zip(CUTS, CUTS[1:], strict=False):
            x, x_mask, x_reset = _span((xs, mask, reset), np.s_[start:stop])
            flags = {"mask": x_mask, "reset": x_reset}
            rollout = unroll(subject.record, params, x, carry=carry, **flags)
            carry = rollout.carry
            made.append((rollout.outputs, rollout.flags))
        outputs, flags = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, 1), *made)
        return outputs, carry, flags

    return roll


def _span(tree, steps):
    return jax.tree.map(lambda leaf: leaf[:, steps], tree)


def _counted(record, traces):
    """The record, changed so that every trace of its step is appended to `traces`."""
    field = "advance" if isinstance(record, Cell) else "unroll"

    def counted(*args):
        traces.append(field)
        return getattr(record, field)(*args)

    return record._replace(**{field: counted})
