"""`beam_search`: the likeliest continuations of a token, of which only the best are followed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import compiled
from jaxrnn.engine.masking import expand_mask, select, zero_masked
from jaxrnn.engine.parameters import check_params
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.unroll import step
from jaxrnn.generation._decoding import check_fits, check_tokens, fitting_pad, stop_tokens
from jaxrnn.generation._feedback import check_causal
from jaxrnn.generation._sampling import check_numbers, checked_logits
from jaxrnn.types import Carry, Model, Params


class Hypotheses(NamedTuple):
    """The result of `beam_search`: sequences, the best first.

    Attributes:
        tokens: `[..., n, N]`, `pad` after the end.
        scores: `[..., n]`, log-probability / length penalty; -inf where there are fewer than n
            possible sequences.
        lengths: int `[..., n]`, how many tokens there are, a stop token included.
        stopped: bool `[..., n]`, True where a stop token ended the sequence.
    """

    tokens: Any
    scores: Any
    lengths: Any
    stopped: Any


class _Beams(NamedTuple):
    """The sequences that have not ended.

    Attributes:
        carry: what the model remembers of each, the leaves `[*batch, K, ...]` that it changes.
        tokens: `[*batch, K, N]`.
        last: `[*batch, K]`, the token to read.
        log_probability: `[*batch, K]`, -inf where there is no sequence.
    """

    carry: Any
    tokens: Any
    last: Any
    log_probability: Any


def beam_search(
    model: Model,
    params: Params,
    carry: Carry,
    start: Any,
    *,
    beams: int,
    max_steps: int,
    stop_token: int | Sequence[int] | None,
    length_penalty: Any = 0.0,
    n_best: int | None = None,
    pad: int = 0,
) -> Hypotheses:
    """Searches for the likeliest sequences after a start token.

        score(x₀ … xₙ₋₁) = Σᵢ log p(xᵢ | start, x₀, …, xᵢ₋₁) / ((5 + n) / 6)^α

    Every step extends each of K sequences by every token and keeps the K likeliest of all
    extensions. Those that end with a stop token leave the search and are kept apart, the K with the
    best scores of them; the others go on. The result holds these and the sequences that are still
    going after `max_steps`, the best scores first (Graves 2012, arXiv:1211.3711; Sutskever et al.
    2014, arXiv:1409.3215). α is the length penalty of Wu et al. 2016 (arXiv:1609.08144, equation
    14, without coverage): with α = 0 the score is the log-probability, and a larger α prefers
    longer sequences. Sequences of one length compete within a step, so α decides only among those
    that are complete.

    One beam is greedy `generate`, and if K is at least the number of all sequences, nothing is
    missed. Among equal scores the lower beam wins, then the lower token, and in the result what has
    stopped first. One scan, without noise; gradients of `scores` are those of the chosen sequences.
    Carries move with their beams, save what the model hands on unchanged, such as the memory of a
    source, which all beams of a row share.

    Args:
        model: the cell or layer to run, from tokens to logits, such as
            `serial(embed(D), ..., dense(V))`; causal.
        params: its parameters.
        carry: the carry before the start token, leaves `[..., H]`; None is the initial carry.
        start: ints `[...]`, the token that each row reads first. For a longer prompt, `unroll` the
            model over all of it but the last token and pass the carry.
        beams: K, the number of sequences that are followed.
        max_steps: N, the largest number of tokens.
        stop_token: the token or tokens that end a sequence; None: all have N tokens.
        length_penalty: α, a number of at least 0. It is data, so a new value does not compile
            again.
        n_best: the number n of sequences to return, at most K; None: all K.
        pad: the token after the end of a sequence.

    Returns:
        `Hypotheses(tokens [..., n, N], scores [..., n], lengths [..., n], stopped [..., n])`, with
        tokens in the dtype of `start` and scores in float32 at least. A logit of -inf forbids a
        token, and one of inf forces it. Where logits hold NaN the token is -1 and the score NaN.

    Raises:
        ValueError: The layer is not causal, a number is out of its range, or shapes disagree.
        TypeError: `start` does not hold ints, the model returns no logits, or an argument has the
            wrong type.

    Example:
        >>> import jaxrnn as jr
        >>> layer = jr.language_model([jr.gru(8)], num_features=4, num_tokens=10)
        >>> params = layer.init(jax.random.key(0), 10)
        >>> found = jr.beam_search(
        ...     layer, params, None, jnp.array([3, 1]), beams=4, max_steps=6, stop_token=9, n_best=2
        ... )
        >>> found.tokens.shape, found.scores.shape
        ((2, 2, 6), (2, 2))
    """
    check_causal(model)
    for name, value in {"beams": beams, "max_steps": max_steps}.items():
        checks.positive(value, name)
    n_best = beams if n_best is None else checks.positive(n_best, "n_best")
    if n_best > beams:
        raise ValueError(f"n_best must be at most beams, {beams}, got {n_best}.")
    if np.ndim(length_penalty):
        raise ValueError(
            f"length_penalty must be one number, got the shape {np.shape(length_penalty)}."
        )
    check_numbers(length_penalty, "length_penalty", "of at least 0", _is_penalty)
    start = checks.array(start, "start")
    check_tokens(model, start, "start")
    check_params(model, params, None)
    checks.array_leaves(carry, "carry")
    choices = stop_tokens(stop_token), jnp.asarray(length_penalty), fitting_pad(pad, start, "start")
    arrays = params, carry, start, choices
    return compiled(_search, (model, beams, max_steps, n_best), arrays)(*arrays)


def _is_penalty(alpha):
    return (alpha >= 0) & (alpha < np.inf)


def _search(model, num_beams, max_steps, n_best, params, carry, start, choices):
    stops, alpha, pad = choices
    shape = *start.shape, num_beams
    if carry is None:
        carry = model.initial_carry(params, start.shape)
    read, carry = _reader(model, params, carry, start, num_beams)

    def complete_at(length, beams, is_complete):
        penalty = jnp.asarray(((5 + length) / 6) ** alpha, beams.log_probability.dtype)
        # Chosen before the division too, whose derivative at -inf is not finite.
        is_some = is_complete & (beams.log_probability != -jnp.inf)
        scores = jnp.where(is_some, zero_masked(is_some, beams.log_probability) / penalty, -jnp.inf)
        lengths = jnp.full(shape, length, jnp.int32)
        return Hypotheses(beams.tokens, scores, lengths, jnp.zeros(shape, bool))

    def advance(state, index):
        beams, complete = state
        carry, log_probabilities = read(beams.carry, beams.last)
        beams = _extended(beams._replace(carry=carry), log_probabilities, index)
        has_stopped = (beams.last[..., None] == stops).any(-1)
        stopped = complete_at(index + 1, beams, has_stopped)._replace(stopped=has_stopped)
        goes_on = jnp.where(has_stopped, -jnp.inf, beams.log_probability)
        return (beams._replace(log_probability=goes_on), _best(num_beams, complete, stopped)), None

    last = jnp.broadcast_to(start[..., None], shape)
    nothing = jnp.full(shape, -jnp.inf, jax.eval_shape(read, carry, last)[1].dtype)
    tokens = jnp.full((*shape, max_steps), pad, start.dtype)
    none_complete = Hypotheses(tokens, nothing, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool))
    # The start is one sequence, so only the first beam holds one.
    beams = _Beams(carry, tokens, last, nothing.at[..., 0].set(0))
    state = varying_like((beams, none_complete), (params, carry, start))
    (beams, complete), _ = lax.scan(advance, state, jnp.arange(max_steps))
    found = _best(n_best, complete, complete_at(max_steps, beams, jnp.ones(shape, bool)))
    blank = _best(n_best, none_complete)
    return select(found.scores != -jnp.inf, found, blank)


def _reader(model, params, carry, start, num_beams):
    """A function that reads a token with every beam, and what it changes of the carry.

    Returns:
        `(changing, last) -> (changing, log_probabilities)`, leaves `[*batch, K, ...]`, and
        `changing`, the leaves of the carry that a step changes, repeated for every beam.
    """
    leaves, tree = jax.tree.flatten(carry)

    def advance(leaves, token):
        carry, logits = step(model, params, jax.tree.unflatten(tree, leaves), token)
        return jax.tree.leaves(carry), logits

    # A leaf that a step hands on is the same for all beams. It can be large, as the memory of a
    # source is, and is neither repeated nor moved.
    jaxpr = jax.make_jaxpr(lambda *read: advance(*read)[0])(leaves, start).jaxpr
    changes = [
        after is not before for before, after in zip(jaxpr.invars, jaxpr.outvars, strict=False)
    ]

    def changing(leaves):
        return [leaf for leaf, does in zip(leaves, changes, strict=True) if does]

    def read(changed, token):
        changed = iter(changed)
        own = [next(changed) if does else leaf for leaf, does in zip(leaves, changes, strict=True)]
        after, logits = advance(own, token)
        check_fits(logits.shape[-1] - 1, token, "start", "the last token of the logits")
        return changing(after), _log_softmax(checked_logits(logits))

    axis = start.ndim
    repeated = [
        jnp.repeat(jnp.expand_dims(leaf, axis), num_beams, axis) for leaf in changing(leaves)
    ]
    return jax.vmap(read, axis, axis), repeated


def _log_softmax(logits):
    """As usual, but -inf for all tokens where all are forbidden, and 0 for one of logit inf."""
    # NaN stays NaN in the difference.
    is_forced = logits == jnp.inf
    only_forced = jnp.where(is_forced, 0, logits - jnp.inf)
    logits = jnp.where(is_forced.any(-1, keepdims=True), only_forced, logits)
    # Chosen before and after, because the derivative at -inf alone is NaN.
    is_open = (logits != -jnp.inf).any(-1, keepdims=True)
    return jnp.where(is_open, jax.nn.log_softmax(jnp.where(is_open, logits, 0)), -jnp.inf)


def _extended(beams, log_probabilities, index):
    """The K likeliest of all beams with one more token."""
    before = beams.log_probability[..., None]
    # An empty beam has read something too, and must not count where that gave NaN.
    totals = jnp.where(before == -jnp.inf, -jnp.inf, before + log_probabilities)
    *batch_shape, num_beams, num_tokens = totals.shape
    likeliest, place = _top(totals.reshape(*batch_shape, num_beams * num_tokens), num_beams)
    parent, token = jnp.divmod(place, num_tokens)
    token = jnp.where(jnp.isnan(likeliest), -1, token).astype(beams.last.dtype)
    carry, tokens = _taken((beams.carry, beams.tokens), parent)
    return _Beams(carry, tokens.at[..., index].set(token), token, likeliest)


def _best(count, *groups):
    """The hypotheses with the best scores, in order; among equals those of the first group."""
    axis = groups[0].scores.ndim - 1
    everything = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *groups)
    _, places = _top(everything.scores, count)
    return _taken(everything, places)


def _top(values, count):
    """The largest values of the last axis and their places; NaN comes first, so that it shows."""
    _, places = lax.top_k(jnp.where(jnp.isnan(values), jnp.inf, values), count)
    return jnp.take_along_axis(values, places, axis=-1), places


def _taken(tree, places):
    """Entries `[*batch, n, ...]` of leaves `[*batch, K, ...]`."""
    return jax.tree.map(
        lambda leaf: jnp.take_along_axis(leaf, expand_mask(places, leaf), axis=places.ndim - 1),
        tree,
    )
