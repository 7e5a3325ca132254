"""A linear-chain conditional random field on top of a tagger: likelihood, marginals, best labels.

    log p(y | x) = start[y₁] + Σₜ logitsₜ[yₜ] + Σₜ transitions[yₜ₋₁, yₜ] + end[yₙ] - log Z(x)

Lafferty, McCallum and Pereira 2001. The sums over all taggings are recurrences in the log semiring,

    aₜ[c] = logitsₜ[c] + (start[c], or log Σ_b exp(aₜ₋₁[b] + transitions[b, c])),

and are run as cells by `unroll`, so masks and resets mean what they mean everywhere: the transition
goes from one real step to the next, over padding and gaps, and each reset ends one chain and starts
another, with scores of its own for start and end.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells._wrappers import simple_cell
from jaxrnn.engine import checks
from jaxrnn.engine.loss_arguments import as_labels, as_predictions
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.unroll import unroll
from jaxrnn.types import Steps


class CRFParams(NamedTuple):
    """`transitions [C, C]` from the row's class to the column's, `start [C]` and `end [C]`.

    A score of -inf forbids. So that an optimiser leaves it alone, put it there inside of the loss,
    `params._replace(transitions=jnp.where(allowed, params.transitions, -jnp.inf))`.
    """

    transitions: Any
    start: Any
    end: Any
    roles = "readout"


def crf_init(num_classes: int, *, param_dtype: Any = jnp.float32) -> CRFParams:
    """The parameters of a CRF before training: zeros.

    With them log p(y | x) is that of independent steps, minus the sum of their cross-entropies.

    Args:
        num_classes: C.
        param_dtype: dtype of the parameters. The recurrence runs in promote(params, logits,
            float32).

    Returns:
        The parameters.

    Raises:
        TypeError: `num_classes` is not an int.
        ValueError: `num_classes` is below 1.

    Example:
        >>> crf_init(3).transitions.shape
        (3, 3)
    """
    checks.positive(num_classes, "num_classes")
    scores = jnp.zeros(num_classes, param_dtype)
    return CRFParams(jnp.zeros((num_classes, num_classes), param_dtype), scores, scores)


def crf_log_likelihood(
    params: CRFParams, logits: Any, labels: Any, mask: Any = None, *, reset: Any = None
) -> jax.Array:
    """The log-likelihood of the labels of each sequence.

        log p(y | x) = start[y₁] + Σₜ logitsₜ[yₜ] + Σₜ transitions[yₜ₋₁, yₜ] + end[yₙ] - log Z(x)

    Z(x) is the sum of the exponentials of these scores over all labels (Lafferty, McCallum and
    Pereira 2001), by a recurrence over the steps; a transition goes from one real step to the next.

    A row of several packed sequences has the sum of theirs. The loss of a tagger is the negative
    sum over rows, divided by the number of real steps or of sequences.

    Args:
        params: the parameters.
        logits: `[..., T, C]`, floating, the scores of a tagger.
        labels: ints `[..., T]` in 0 ... C - 1 where the mask is True.
        mask: `[..., T]`, True where a step is real, in any pattern. None: all steps are.
        reset: `[..., T]`, True where a new sequence starts, as in `unroll`.

    Returns:
        `[...]`, float32 or wider; 0 for a sequence without a real step, -inf for labels that are
        forbidden, NaN where a traced label is out of range.

    Raises:
        TypeError: `params` are not `CRFParams`, or a dtype is not as above.
        ValueError: The shapes do not fit, or a concrete real label is out of range.

    Example:
        >>> params, logits = crf_init(2), jnp.zeros((1, 3, 2))
        >>> print(jnp.exp(crf_log_likelihood(params, logits, jnp.array([[0, 1, 1]]))))
        [0.125]
    """
    params, logits, steps = _checked(params, logits, mask, reset)
    labels = as_labels(labels, mask, (jnp.integer,), logits.shape[:-1], logits.shape[-1] - 1)
    labels = zero_masked(steps.mask, labels)
    before, after = (_neighbours(labels, steps, reverse) for reverse in (False, True))
    scores = _score(params, logits, labels, before, after)
    scores = zero_masked(steps.mask, scores).sum(-1)
    log_partition = _log_partition(params, logits, steps, after)
    # Forbidden labels have no probability, also where no tagging is allowed and Z is 0.
    return jnp.where(scores == -jnp.inf, scores, scores - log_partition)


def crf_marginals(
    params: CRFParams, logits: Any, mask: Any = None, *, reset: Any = None
) -> jax.Array:
    """The probability of each class at each step, given the whole sequence.

        p(yₜ = c | x) = ∂ log Z(x) / ∂ logitsₜ[c]

    Args:
        params: the parameters.
        logits: `[..., T, C]`, floating.
        mask: `[..., T]`, True where a step is real, in any pattern. None: all steps are.
        reset: `[..., T]`, True where a new sequence starts, as in `unroll`.

    Returns:
        `[..., T, C]`, float32 or wider, sums to 1 over the classes; 0 where masked, and everywhere
        in a chain in which no tagging is allowed.

    Raises:
        TypeError: `params` are not `CRFParams`, or a dtype is not as above.
        ValueError: The shapes do not fit.

    Example:
        >>> marginals = crf_marginals(crf_init(2), jnp.array([[0.0, 0.0], [0.0, 1.0]]))
        >>> print((100 * marginals).round())
        [[50. 50.] [27. 73.]]
    """
    params, logits, steps = _checked(params, logits, mask, reset)
    after = _neighbours(jnp.zeros(logits.shape[:-1], jnp.int32), steps, reverse=True)
    return jax.grad(lambda logits: _log_partition(params, logits, steps, after).sum())(logits)


def viterbi(params: CRFParams, logits: Any, mask: Any = None, *, reset: Any = None) -> jax.Array:
    """The most probable labels of each sequence, by the algorithm of Viterbi (1967).

        bₜ[c] = logitsₜ[c] + (start[c], or max_b bₜ₋₁[b] + transitions[b, c]),
        yₜ = argmax_c bₜ[c] + (end[c], or transitions[c, yₜ₊₁])

    Args:
        params: the parameters.
        logits: `[..., T, C]`, floating.
        mask: `[..., T]`, True where a step is real, in any pattern. None: all steps are.
        reset: `[..., T]`, True where a new sequence starts, as in `unroll`.

    Returns:
        int32 `[..., T]`, 0 where masked, and -1, which is no label, from a step with a NaN logit to
        the end of its sequence.

    Raises:
        TypeError: `params` are not `CRFParams`, or a dtype is not as above.
        ValueError: The shapes do not fit.

    Example:
        Alone the second step would be a 0, but a 0 may not follow a 1:

        >>> params = crf_init(2)
        >>> params = params._replace(transitions=params.transitions.at[1, 0].set(-jnp.inf))
        >>> print(viterbi(params, jnp.array([[0.0, 3.0], [1.0, 0.0]])))
        [1 1]
    """
    params, logits, steps = _checked(params, logits, mask, reset)
    scores = _unrolled(_BEST, params, logits, steps)
    labels = _unrolled(_TRACE, params, scores, steps, reverse=True)
    return jnp.where(jnp.isnan(scores).any(-1), -1, labels)


def _checked(params, logits, mask, reset):
    """Parameters and logits in one dtype, and the flags that belong to the logits."""
    if not isinstance(params, CRFParams):
        raise TypeError(f"params must be CRFParams, got {type(params).__name__}.")
    (logits,), flags = as_predictions(mask, logits=logits)
    num_classes = logits.shape[-1]
    shapes = CRFParams((num_classes, num_classes), (num_classes,), (num_classes,))
    params = checks.arrays(params, "params")
    for name, shape, leaf in zip(params._fields, shapes, params, strict=True):
        if leaf.shape != shape:
            raise ValueError(
                f"params.{name} must have the shape {shape}, because logits have {num_classes} "
                f"classes, got {leaf.shape}."
            )
    dtype = jnp.result_type(logits, *params)
    params, logits = jax.tree.map(lambda leaf: leaf.astype(dtype), (params, logits))
    return params, zero_masked(flags, logits), Steps((), flags, reset)


def _unrolled(cell, params, xs, steps, reverse=False):
    return unroll(cell, params, xs, mask=steps.mask, reset=steps.reset, reverse=reverse).outputs


def _score(params, logits, labels, before, after):
    """What each step adds to log p(y | x) + log Z(x), `[..., T]`."""
    arriving = jnp.where(before < 0, params.start[labels], params.transitions[before, labels])
    leaving = jnp.where(after < 0, params.end[labels], 0)
    here = jnp.take_along_axis(logits, labels[..., None], axis=-1).squeeze(-1)
    inside = (labels >= 0) & (labels < logits.shape[-1])
    return jnp.where(inside, arriving + here + leaving, jnp.nan)


def _log_partition(params, logits, steps, after):
    """log Z(x), the sum over the chains of a row, `[...]`; a chain ends where nothing is after."""
    scores = _unrolled(_FORWARD, params, logits, steps)
    ends = zero_masked(steps.mask, after < 0)
    return zero_masked(ends, _log_sum_exp(scores + params.end, axis=-1)).sum(-1)


def _neighbours(labels, steps, reverse):
    """The label of the real step before (or after) each step of its chain, -1 without one."""
    return _unrolled(_NEIGHBOUR, (), labels.astype(jnp.int32), steps, reverse)


def _log_sum_exp(scores, axis):
    # -inf is left out, because where all are -inf the derivative would be NaN; NaN stays.
    return jax.nn.logsumexp(scores, axis, where=scores != -jnp.inf)


class _ChainCarry(NamedTuple):
    scores: Any  # [..., C], of all taggings that end in a class, combined
    arriving: Any  # [..., C], the same with the transition to the class of the next step


def _init(key, num_inputs):
    del key
    return crf_init(num_inputs)


def _start(params, batch_shape=()):
    start = jnp.broadcast_to(params.start, (*batch_shape, *params.start.shape))
    return _ChainCarry(jnp.zeros_like(start), start)


def _read_logits(combine, params, carry, logits):
    scores = carry.arriving + logits
    return _ChainCarry(scores, combine(scores[..., None] + params.transitions, axis=-2))


def _emit_scores(params, carry, x):
    del params, x
    return carry.scores


def _chain(combine):
    """A cell that reads logits and combines the scores of all taggings up to each step."""
    advance = functools.partial(_read_logits, combine)
    return simple_cell(_init, advance, 1, initial_carry=_start, emit=_emit_scores)


def _no_label(params, batch_shape=()):
    del params
    return jnp.full(batch_shape, -1, jnp.int32)


def _trace_back(params, following, scores):
    leaving = jnp.where((following < 0)[..., None], params.end, params.transitions.T[following])
    return jnp.argmax(scores + leaving, axis=-1).astype(jnp.int32)


class _Labels(NamedTuple):
    here: Any  # int32 [...], of the last real step
    before: Any  # int32 [...], of the real step before that


def _no_parameters(key, num_inputs):
    del key, num_inputs
    return ()


def _no_labels(params, batch_shape=()):
    return _Labels(_no_label(params, batch_shape), _no_label(params, batch_shape))


def _read_label(params, carry, label):
    del params
    return _Labels(label, carry.here)


def _emit_before(params, carry, x):
    del params, x
    return carry.before


_FORWARD, _BEST = _chain(_log_sum_exp), _chain(jnp.max)
# Read from the end: the label of each step, given that of the next real one, which is the carry.
_TRACE = simple_cell(_init, _trace_back, 1, initial_carry=_no_label)
_NEIGHBOUR = simple_cell(
    _no_parameters,
    _read_label,
    1,
    initial_carry=_no_labels,
    emit=_emit_before,
    num_feature_axes=0,
)
