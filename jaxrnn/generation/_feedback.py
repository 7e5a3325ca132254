"""The loop that feeds outputs back as inputs."""

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
from jaxrnn.types import Key, Mask, Model, Params, Reset, Steps

Feed = Callable[[Any, Any, Any], Any]
"""`(y, x, key) -> x`: the next input, from the output before it and the step that it replaces."""


class Progress(NamedTuple):
    """How far each row has read.

    Attributes:
        carry: the carry after the last real step.
        x: the input of that step.
        y: its output.
        has_read: bool `[*batch]`; where it is False, x and y mean nothing.
    """

    carry: Any
    x: Any
    y: Any
    has_read: Any


class Continuation(NamedTuple):
    """The outputs of N steps of feeding back, time first.

    Attributes:
        carry: the carry after reading all of `xs` but the last.
        ys: the outputs.
        xs: the inputs that were made of them.
        live: bool `[N, *batch]`, whether a row had not ended before this step.
        goes_on: bool `[*batch]`, whether a row had not ended after the last step.
    """

    carry: Any
    ys: Any
    xs: Any
    live: Any
    goes_on: Any


def own_output(y: Any, x: Any, key: Any) -> Any:
    """The feed that uses an output as the next input, x' = y."""
    del x, key
    return y


def as_data(feed: Feed) -> Partial:
    """The feed as a tree, so that the data of a `Partial` passes through `jit` as arrays."""
    if not callable(feed):
        raise TypeError(f"feed must be a function (y, x, key) -> x, got {feed!r}.")
    checks.hashable(feed.func if isinstance(feed, Partial) else feed, "feed")
    return feed if isinstance(feed, Partial) else Partial(feed)


def check_causal(model: Any) -> None:
    """Raises unless the record is a Cell or a causal Layer."""
    if not as_layer(model).causal:
        raise ValueError(
            "model must be causal to generate: the outputs of this layer depend on "
            "the steps that they would predict."
        )


def checked_prompt(model: Any, prompt: Any, num_steps: int, mask: Any, reset: Any) -> Steps:
    """The prompt with its mask and resets as arrays, for a model that can continue from it."""
    check_causal(model)
    if not checks.is_symbolic(num_steps):
        checks.positive(num_steps, "num_steps")
    prompt = checks.arrays(prompt, "prompt")
    leading = checks.leading_shape(prompt, model.num_feature_axes, "prompt")
    if leading[-1] == 0:
        raise ValueError(f"prompt must have at least one step, got the axes {leading}.")
    return Call.checked(model, prompt, mask, reset, time_major=False).steps


def next_input(feed: Feed, y: Any, x: Any, key: Any, use: Any) -> Any:
    """The input that `feed` makes of an output and of the step that it replaces.

    Where `use` is False the result is discarded and `feed` gets zeros: a derivative that is not
    finite at the old values would give NaN gradients even so.
    """
    y, x = zero_masked(use, (y, x))
    new_x = checks.arrays(feed(y, x, key), "feed(y, x, key)")
    checks.same_tree(new_x, x, "feed(y, x, key)")
    return new_x


def read_step(
    model: Model,
    params: Params,
    progress: Progress,
    x: Any,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> Progress:
    """Reads one step: masked rows keep their progress, a reset forgets what was read."""
    carry, y = step(model, params, progress.carry, x, mask=mask, reset=reset, key=key)
    has_read = progress.has_read if reset is None else progress.has_read & ~reset
    if mask is None:
        return Progress(carry, x, y, jnp.ones_like(has_read))
    x, y = select(mask, (x, y), (progress.x, progress.y))
    return Progress(carry, x, y, has_read | mask)


def read_prompt(
    model: Model, params: Any, carry: Any, prompt: Any, mask: Any, reset: Any
) -> Progress:
    """Reads a whole prompt `[..., P, D]`, whichever side its padding is on."""
    leading = checks.leading_shape(prompt, model.num_feature_axes)
    rollout = unroll(model, params, prompt, carry=carry, mask=mask, reset=reset)
    mask = jnp.ones(leading, bool) if mask is None else mask
    x, y = last_valid((prompt, rollout.outputs), mask)
    return Progress(rollout.carry, x, y, _has_read(mask, reset))


def _has_read(mask, reset):
    """Whether a row has read anything since its last reset."""
    if reset is None:
        return mask.any(-1)
    steps = jnp.arange(mask.shape[-1])
    last_real, last_reset = (jnp.where(flags, steps, -1).max(-1) for flags in (mask, reset))
    return mask.any(-1) & (last_real >= last_reset)


def feed_back(
    model: Model,
    params: Params,
    progress: Progress,
    num_steps: int,
    feed: Feed,
    key: Key = None,
    *,
    future: Any = None,
    is_last: Callable[[Any], Any] | None = None,
    blank: Any = 0,
) -> Continuation:
    """Feeds the outputs back `num_steps` times, in one scan.

    The prompt has already produced the first output, so N outputs and N inputs take N - 1 steps of
    the model. The last input is returned unread: whoever continues reads it first.

    Args:
        model: the cell or layer to run.
        params: its parameters.
        progress: where the rows start; a row that has read nothing has ended already.
        num_steps: N, at least 1.
        feed: the function that makes the next input.
        key: PRNG key for `feed`, folded with the number of the step.
        future: the steps that are replaced, leaves `[N, *batch, ...]`. Without it nothing is known
            of them, and `feed` gets the input that was read last.
        is_last: `x -> bool [*batch]`, whether a row ends with this x.
        blank: what `xs` holds after the end of a row.

    Returns:
        The Continuation.
    """

    def emit(progress, live, replaced, index):
        replaced = progress.x if replaced is None else replaced
        x = next_input(feed, progress.y, replaced, fold_in(key, index), live)
        goes_on = live if is_last is None else live & ~is_last(x)
        blanks = jax.tree.map(lambda leaf: jnp.full_like(leaf, blank), x)
        return goes_on, (zero_masked(live, progress.y), select(live, x, blanks), live)

    def advance(state, inputs):
        progress, live, x = state
        index, replaced = inputs
        progress = read_step(model, params, progress, x, mask=live)
        goes_on, emitted = emit(progress, live, replaced, index)
        return (progress, goes_on, emitted[1]), emitted

    progress = varying_like(progress, (params, progress, future, key))
    first_replaced, replaced = (
        jax.tree.map(lambda leaf, part=part: leaf[part], future) for part in (0, slice(1, None))
    )
    goes_on, first = emit(progress, progress.has_read, first_replaced, 0)
    state = progress, goes_on, first[1]
    # Not `arange(1, N)`, which a symbolic N of `jax.export` could make empty.
    inputs = 1 + jnp.arange(num_steps - 1), replaced
    (progress, goes_on, _), rest = lax.scan(advance, state, inputs)
    ys, xs, live = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, rest)
    return Continuation(progress.carry, ys, xs, live, goes_on)
