"""What padding and boundaries do to a trained model, and whether training sees what is hidden.

The probes see functions, never the model.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.minimal.forecasts import make_baselines
from experiments.minimal.model import Setting, make_model
from experiments.minimal.task import Task, changes_to_choose_by, training_changes


class PaddingProbe(NamedTuple):
    """How many numbers differ when only padding does."""

    masked: int  # of outputs at real steps, the carry and gradients, with the mask
    unmasked: int  # of the carry when the mask is left out: the padding is read as data
    total: int  # numbers that were compared with the mask


class Difference(NamedTuple):
    """How far a run with boundaries is from the sequences alone, relative to the largest number."""

    name: str
    is_fault: bool
    value: float


def padding_runner(setting: Setting, params: Any) -> Callable[[Any, Any], Any]:
    """`(xs [B, T, D], mask or None) -> (outputs, carry, gradients)` of one seed, compiled."""
    model = make_model(setting)

    def loss(params, xs, mask):
        rollout = jr.unroll(model, params, xs, mask=mask)
        return (rollout.outputs**2).sum(), (rollout.outputs, rollout.carry)

    def run(xs, mask):
        gradients, made = jax.grad(loss, has_aux=True)(params, xs, mask)
        return *made, gradients

    return jax.jit(run)


def probe_padding(run: Callable[[Any, Any], Any], series: np.ndarray, seed: int) -> PaddingProbe:
    """Puts zeros, large numbers and NaN after, and in the middle of, series `[B, T, D]`."""
    generator = np.random.default_rng(seed)
    batch, num_steps, _ = series.shape
    mask = np.arange(num_steps) < generator.integers(num_steps // 2, num_steps, (batch, 1))
    mask[:, num_steps // 4 : num_steps // 3] = False
    fillings = (0.0, 1e3 * generator.normal(size=series.shape), np.nan)

    def filled(filling):
        return jnp.asarray(np.where(mask[..., None], series, filling), jnp.float32)

    def kept(made):
        outputs, carry, gradients = made
        return np.asarray(outputs)[mask], carry, gradients

    def differing(one, other):
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        return sum(int((np.asarray(a) != np.asarray(b)).sum()) for a, b in pairs)

    made = [kept(run(filled(filling), mask)) for filling in fillings]
    unmasked = [run(filled(filling), None)[1] for filling in fillings[:2]]
    return PaddingProbe(
        masked=sum(differing(made[0], other) for other in made[1:]),
        unmasked=differing(*unmasked),
        total=2 * sum(np.size(leaf) for leaf in jax.tree.leaves(made[0])),
    )


def boundary_runner(setting: Setting, params: Any) -> Callable[..., tuple[Any, Any]]:
    """`(xs [B, T, D], reset or None, carry or None) -> (outputs, carry)` of one seed, compiled."""
    model = make_model(setting)

    def run(xs, reset, carry=None):
        rollout = jr.unroll(model, params, xs, reset=reset, carry=carry)
        return rollout.outputs, rollout.carry

    return jax.jit(run)


def probe_boundaries(
    run: Callable[..., tuple[Any, Any]], series: np.ndarray, lengths: Sequence[int]
) -> list[Difference]:
    """Several sequences in one row, done right and in five wrong ways.

    `run` is as `boundary_runner` makes it; of row n of `series [N, T, D]` the first `lengths[n]`
    steps are used, at least 2.
    """
    pieces = [
        jnp.asarray(row[None, :length], jnp.float32)
        for row, length in zip(series, lengths, strict=True)
    ]
    alone = jnp.concatenate([run(piece, None)[0] for piece in pieces], axis=1)
    row = jnp.concatenate(pieces, axis=1)
    reset = np.zeros(row.shape[:2], bool)
    starts = np.cumsum([0, *lengths[:-1]])
    reset[:, starts] = True
    one_less = reset.copy()
    one_less[:, starts[-1]] = False

    def outputs(reset):
        return _difference(run(row, reset)[0], alone)

    right, wrong = _streamed(run, series, max(lengths))
    targets = [_shifted(piece, None) for piece in pieces]
    targets = jnp.concatenate(targets, axis=1)
    return [
        Difference("reset at every start", False, outputs(reset)),
        Difference("no reset", True, outputs(np.zeros_like(reset))),
        Difference("one reset missing", True, outputs(one_less)),
        Difference("reset a step late", True, outputs(np.roll(reset, 1, axis=1))),
        Difference("reset a step early", True, outputs(np.roll(reset, -1, axis=1))),
        Difference("carry handed to its own row", False, right),
        Difference("carry handed to another row", True, wrong),
        Difference("targets within sequences", False, _difference(_shifted(row, reset), targets)),
        Difference("targets across a boundary", True, _difference(_shifted(row, None), targets)),
    ]


def _streamed(run, series, num_steps):
    """Rows in two chunks, with the carry of each, and with that of the row before."""
    rows = jnp.asarray(series[:, :num_steps], jnp.float32)
    half = num_steps // 2
    whole = run(rows, None)[0][:, half:]
    carry = run(rows[:, :half], None)[1]
    moved = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), carry)
    return [_difference(run(rows[:, half:], None, one)[0], whole) for one in (carry, moved)]


def _shifted(xs, reset):
    """Targets and whether there is one, side by side."""
    targets, has_target = jr.shift_targets(xs, reset=reset, num_feature_axes=1)
    return jnp.concatenate([targets, has_target[..., None]], axis=-1)


def _difference(one, other):
    return float(jnp.abs(one - other).max() / jnp.abs(other).max())


def changed_by_what_is_hidden(task: Task) -> list[str]:
    """What in training changes with the months and industries held out; nothing, if it is right."""
    hidden = np.ones_like(task.changes, bool)
    hidden[task.is_training, : task.test_from] = False
    noise = 100 * np.random.default_rng(0).normal(size=task.changes.shape)
    other = task._replace(changes=np.where(hidden, noise, task.changes))
    changed = [
        name
        for name, part in _learned_from(task).items()
        if not np.array_equal(part, _learned_from(other)[name])
    ]
    past = task.changes[:, : task.test_from]
    for one, two in zip(make_baselines(task), make_baselines(other), strict=True):
        made, again = (of.forecast(past, 2)[task.is_training] for of in (one, two))
        if one.chosen != two.chosen or not np.array_equal(made, again):
            changed.append(one.name)
    return changed


def _learned_from(task: Task) -> dict[str, np.ndarray]:
    return {
        "series to train on": training_changes(task, task.test_from),
        "series to train on for the choice": training_changes(task, task.validation_from),
        "series to choose by": changes_to_choose_by(task),
    }
