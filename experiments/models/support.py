"""What a model does with masks, resets and directions, seen by running it."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr

EVALUATORS = {
    "sequential": jr.sequential(),
    "chunked": jr.chunked(4),
    "associative": jr.associative(),
    "newton": jr.newton(),
}
NUM_STEPS, BOUNDARY, NUM_FEATURES = 8, 5, 8
MASKED = (1, 4)
TOLERANCE = 1e-4


class Support(NamedTuple):
    """Whether both sides of a law came out the same.

    Attributes:
        mask: NaN at masked steps inside a sequence, and the real steps alone.
        reset: One row with two sequences, and each sequence alone.
        reverse: Both of these with the sequence read from its end.
        step: A loop of steps, and the whole sequence.
    """

    mask: bool
    reset: bool
    reverse: bool
    step: bool


def accepted_evaluators(cell: Any, params: Any, num_features: int) -> tuple[str, ...]:
    """The evaluators that do not refuse the cell while tracing."""
    xs = jax.ShapeDtypeStruct((NUM_STEPS, num_features), jnp.float32)
    accepted = []
    for name, evaluator in EVALUATORS.items():
        try:
            jax.eval_shape(functools.partial(jr.unroll, cell, evaluator=evaluator), params, xs)
        except TypeError:
            continue
        accepted.append(name)
    return tuple(accepted)


def support(model: Any) -> Support:
    """Runs the laws on a small sequence."""
    params = model.init(jax.random.key(0), NUM_FEATURES)
    xs = jax.random.normal(jax.random.key(1), (NUM_STEPS, NUM_FEATURES))
    run, backwards = (_runner(model, params, reverse) for reverse in (False, True))
    no_reset = jnp.zeros(NUM_STEPS, bool)
    all_real = ~no_reset
    reset = no_reset.at[BOUNDARY].set(True)
    mask = all_real.at[jnp.array(MASKED)].set(False)
    padded = jnp.where(mask[:, None], xs, jnp.nan)
    plain = run(xs, all_real, no_reset)

    def alone(xs):
        """The outputs of a shorter sequence, which are those of its steps in a longer one."""
        longer = jnp.concatenate([xs, jnp.zeros((NUM_STEPS - len(xs), NUM_FEATURES))])
        return run(longer, all_real, no_reset)[: len(xs)]

    def turned(xs):
        return alone(xs[::-1])[::-1]

    def two(part):
        return jnp.concatenate([part(xs[:BOUNDARY]), part(xs[BOUNDARY:])])

    return Support(
        mask=_same(run(padded, mask, no_reset)[mask], alone(xs[mask])),
        reset=_same(run(xs, all_real, reset), two(alone)),
        reverse=_same(backwards(padded, mask, no_reset)[mask], turned(xs[mask]))
        and _same(backwards(xs, all_real, reset), two(turned)),
        step=_same(_steps(model, params, xs), plain),
    )


def _runner(model, params, reverse):
    def run(xs, mask, reset):
        return jr.unroll(model, params, xs, mask=mask, reset=reset, reverse=reverse).outputs

    return jax.jit(run)


def _steps(model, params, xs):
    carry, outputs = model.initial_carry(params), []
    for x in xs:
        carry, y = jr.step(model, params, carry, x)
        outputs.append(y)
    return jnp.stack(outputs)


def _same(a, b):
    scale = jnp.maximum(1, jnp.abs(b).max())
    return bool(jnp.all(jnp.abs(a - b) <= TOLERANCE * scale))
