"""How a generated sequence reads: what stands behind it, a prompt, and its own outputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call
from jaxrnn.engine.keys import fold_in
from jaxrnn.engine.masking import select, zero_masked
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.unroll import step, unroll
from jaxrnn.sequences._pooling import last_valid
from jaxrnn.types import Cell, Layer, Steps

Feed = Callable[[Any, Any, Any], Any]
"""`(y, x, key) -> x`: the next input, from an output and the input that gave it."""


class Reading(NamedTuple):
    """Where rows stand: the carry, the last x they read, its y, and whether there is one yet."""

    carry: Any
    x: Any
    y: Any
    known: Any


class Continuation(NamedTuple):
    """What rows made, time first: `ys`, `xs`, and whether a row was `live`, `[N, *batch]`.

    `carry` has read all of xs but the last; `goes_on` `[*batch]` says which rows have no end.
    """

    carry: Any
    ys: Any
    xs: Any
    live: Any
    goes_on: Any


def own_output(y: Any, x: Any, key: Any) -> Any:
    """The feed that takes an output as the next input, x' = y."""
    del x, key
    return y


def as_data(feed: Feed) -> Partial:
    """The feed as a tree, so that it goes through `jit` with what it holds."""
    if not callable(feed):
        raise TypeError(f"feed must be a function (y, x, key) -> x, got {feed!r}.")
    return feed if isinstance(feed, Partial) else Partial(feed)


def check_causal(model: Any) -> None:
    """Raises unless the record is a Cell or a causal Layer."""
    if not as_layer(model).causal:
        raise ValueError(
            "model must be causal to generate: the outputs of this layer have seen "
            "the steps that they would predict."
        )


def checked_prompt(model: Any, prompt: Any, num_steps: int, mask: Any, reset: Any) -> Steps:
    """`(prompt, mask, reset)` as arrays for a model that can run on from them."""
    check_causal(model)
    checks.positive(num_steps, "num_steps")
    prompt = checks.arrays(prompt, "prompt")
    leading = checks.leading_shape(prompt, model.num_feature_axes, "prompt")
    if leading[-1] == 0:
        raise ValueError(f"prompt must have at least one step, got the axes {leading}.")
    return Call.checked(model, prompt, mask, reset, time_major=False).steps


def time_back(tree: Any, num_batch_axes: int) -> Any:
    """Puts the time axis of every leaf behind the batch axes."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, num_batch_axes), tree)


def fed(feed: Feed, at: Reading, key: Any, use: Any) -> Any:
    """The input that `feed` makes of the last output; it sees zeros where `use` is False."""
    y, x = zero_masked(use, (at.y, at.x))
    made = checks.arrays(feed(y, x, key), "feed(y, x, key)")
    checks.same_tree(made, at.x, "feed(y, x, key)")
    return made


def read(
    model: Cell | Layer,
    params: Any,
    at: Reading,
    x: Any,
    mask: Any = None,
    reset: Any = None,
    key: Any = None,
) -> Reading:
    """One step further: masked rows stay where they are, a reset forgets what was read."""
    carry, y = step(model, params, at.carry, x, mask=mask, reset=reset, key=key)
    known = at.known if reset is None else at.known & ~reset
    if mask is None:
        return Reading(carry, x, y, jnp.ones_like(known))
    x, y = select(mask, (x, y), (at.x, at.y))
    return Reading(carry, x, y, known | mask)


def read_prompt(
    model: Cell | Layer, params: Any, carry: Any, prompt: Any, mask: Any, reset: Any
) -> Reading:
    """Reads a whole prompt `[..., P, D]`, whatever side its padding is on."""
    leading = checks.leading_shape(prompt, model.num_feature_axes)
    rollout = unroll(model, params, prompt, carry=carry, mask=mask, reset=reset)
    flags = jnp.ones(leading, bool) if mask is None else mask
    x, y = last_valid((prompt, rollout.outputs), flags)
    return Reading(rollout.carry, x, y, _has_read(flags, reset))


def _has_read(mask, reset):
    """Whether a row has read anything since its last reset."""
    if reset is None:
        return mask.any(-1)
    steps = jnp.arange(mask.shape[-1])
    last_real, last_reset = (jnp.where(flags, steps, -1).max(-1) for flags in (mask, reset))
    return mask.any(-1) & (last_real >= last_reset)


def run_on(
    model: Cell | Layer,
    params: Any,
    at: Reading,
    num_steps: int,
    feed: Feed,
    key: Any = None,
    *,
    is_last: Callable[[Any], Any] | None = None,
    blank: Any = 0,
) -> Continuation:
    """Feeds the outputs back, `num_steps` times in one scan.

    Args:
        model: What runs.
        params: Its parameters.
        at: Where the rows stand; one that has read nothing makes nothing.
        num_steps: N, at least 1.
        feed: What makes the next input.
        key: For `feed`, folded with the number of the step.
        is_last: `x -> bool [*batch]`, whether a row ends with this x.
        blank: What stands in xs behind the end.

    Returns:
        The Continuation.
    """

    def make(at, live, index):
        x = fed(feed, at, fold_in(key, index), live)
        goes_on = live if is_last is None else live & ~is_last(x)
        blanks = jax.tree.map(lambda leaf: jnp.full_like(leaf, blank), x)
        return goes_on, (zero_masked(live, at.y), select(live, x, blanks), live)

    def advance(state, index):
        at, live, x = state
        at = read(model, params, at, x, mask=live)
        goes_on, made = make(at, live, index)
        return (at, goes_on, made[1]), made

    at = varying_like(at, (params, at, key))
    live, first = make(at, at.known, 0)
    (at, live, _), rest = lax.scan(advance, (at, live, first[1]), jnp.arange(1, num_steps))
    ys, xs, lived = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, rest)
    return Continuation(at.carry, ys, xs, lived, live)
