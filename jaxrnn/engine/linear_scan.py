"""The linear recurrence hₜ = aₜ ⊙ hₜ₋₁ + bₜ, sequential or parallel, with its own derivative.

The parallel form: the map h ↦ a h + b after the map h ↦ a' h + b' is h ↦ a a' h + (a b' + b), so
pairs (a, b) form a monoid with the identity (1, 0). A masked step is that identity. A reset is a
flag of the pair and not a = 0, because 0 · NaN is NaN: a flagged map drops what came before it by
selection,

    (a', b', r') then (a, b, r) = r ? (a, b, True) : (a a', a b' + b, r').

The derivative of a linear recurrence is the same recurrence of tangents,
ḣₜ = aₜ ḣₜ₋₁ + (ȧₜ hₜ₋₁ + ḃₜ), whose transpose is one scan backwards. As a rule in forward mode it
serves forward, reverse, higher and complex derivatives, and stores only a and h.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.cpu_kernel import in_one_kernel
from jaxrnn.engine.masking import as_mask
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.time import flip, flip_reset

# Steps that the method "chunked" solves in parallel.
_CHUNK = 256


def linear_scan(
    a: Any,
    b: Any,
    h0: Any = None,
    *,
    mask: Any = None,
    reset: Any = None,
    initial: Any = 0,
    axis: int = -2,
    reverse: bool = False,
    method: str = "auto",
) -> Any:
    """Solves hₜ = aₜ ⊙ hₜ₋₁ + bₜ for all steps, elementwise, for real or complex numbers.

        h' = rₜ ? initial : hₜ₋₁,  hₜ = mₜ ? aₜ ⊙ h' + bₜ : h'

    Martin and Cundy 2018 (arXiv:1709.04057) for the parallel form; Blelloch 1990 for the scan. The
    derivative follows JAX's convention for complex numbers: cotangents are not conjugated.

    Args:
        a: coefficients `[..., T, N]`, with a time axis of 1 for a recurrence that does not change
            with time; broadcast against `b`.
        b: inputs `[..., T, N]`.
        h0: the state before the first step, `[..., N]`; None is `initial`, or zero where that has
            a time axis.
        mask: bool `[..., T]` over the axes of `b` up to time; False keeps h.
        reset: bool `[..., T]`; True starts from `initial` before the step, and stops NaN.
        initial: the state that a reset returns to, broadcast against `b` without its time axis; or
            one for each step, with all axes of `b`.
        axis: the time axis of `b`.
        reverse: whether to run from the end, hₜ = aₜ ⊙ hₜ₊₁ + bₜ; a reset at t then separates
            step t - 1 from step t.
        method: "sequential" (on CPU one kernel, if a step is smaller than 256 KiB), "associative",
            "chunked", or "auto": sequential on CPU, where it was measured to run and to compile
            several times faster, and associative, of depth O(log T), on other platforms, where
            nothing was measured. A symbolic T of `jax.export` is always sequential.

    Returns:
        h `[..., T, N]` for every step.

    Raises:
        ValueError: Shapes disagree, `method` is not one of the four words, or it is parallel and T
            is symbolic.
        TypeError: A flag array is not bool, int or float.

    Example:
        >>> a, b = jnp.full((3, 1), 0.5), jnp.array([[1.0], [0.0], [2.0]])
        >>> linear_scan(a, b)[:, 0]
        Array([1.  , 0.5 , 2.25], dtype=float32)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {tuple(METHODS)}, got {method!r}.")
    b = checks.array(b, "b")
    axis = _time_axis(b, axis)
    mask, reset = (
        None if flag is None else jnp.moveaxis(_flags(flag, b, axis, name), axis, 0)
        for flag, name in ((mask, "mask"), (reset, "reset"))
    )
    dtype = jnp.result_type(a, b, initial, 0 if h0 is None else h0)
    a = jnp.moveaxis(_coefficients(a, b, axis), axis, 0).astype(dtype)
    b = jnp.moveaxis(b, axis, 0).astype(dtype)
    has_time = np.ndim(initial) == b.ndim
    if has_time:
        initial = jnp.moveaxis(jnp.asarray(initial), axis, 0)
        h0 = 0 if h0 is None else h0
    shape = b.shape if has_time else b.shape[1:]
    initial = _broadcast(initial, shape, "initial").astype(dtype)
    h0 = initial if h0 is None else _broadcast(h0, b.shape[1:], "h0").astype(dtype)
    if b.shape[0] == 0:
        return jnp.moveaxis(b, 0, axis)
    if checks.is_symbolic(b.shape[0]):
        method = _for_symbolic_steps(method, b.shape[0])
    if reverse:
        a, b, mask, reset = flip(a), flip(b), flip(mask), flip_reset(reset)
        # As the flags are: what belongs to the boundary before step t is read at step t - 1.
        initial = jnp.roll(flip(initial), 1, axis=0) if has_time else initial
    h0 = varying_like(h0, (a, b, mask, reset, initial))
    h = _guarded_solve(method, a, b, h0, mask, reset, initial)
    return jnp.moveaxis(flip(h) if reverse else h, 0, axis)


def _for_symbolic_steps(method, num_steps):
    # The depth of a parallel method depends on T, and so does its program.
    if method in ("auto", "sequential"):
        return "sequential"
    raise ValueError(
        f"method {method!r} needs a number of steps that is known, got the symbol {num_steps}: use "
        'the method "sequential", or sequential() as the evaluator of a model.'
    )


def _guarded_solve(method, a, b, h0, mask, reset, initial):
    """Solves after writing the mask and the reset as the identity (1, 0) and a fresh start."""
    if mask is not None:
        # Before the reset, which then still acts on a masked step: there h = 1 · initial + 0.
        mask = _widen(mask, b)
        a, b = jnp.where(mask, a, 1), jnp.where(mask, b, 0)
    if reset is None:
        return _solve(method, a, b, h0, None)
    fresh = jnp.broadcast_to(_widen(reset, b), b.shape)
    # `initial` enters through b at the fresh steps. Both `where`s are needed: a may be NaN at other
    # steps, and NaN · 0 would be NaN in the product and in the cotangent of either factor.
    b = b + jnp.where(fresh, jnp.where(fresh, a, 0) * initial, 0)
    # A carry that is discarded may be NaN, so it is not multiplied by a at all.
    h0 = jnp.where(fresh[0], 0, h0)
    return _solve(method, jnp.where(fresh, 0, a), b, h0, fresh)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(method, a, b, h0, fresh):
    """Solves hₜ = freshₜ ? bₜ : aₜ hₜ₋₁ + bₜ from h₋₁ = h0, time first."""
    return METHODS[method](a, b, h0, fresh)


@_solve.defjvp
def _solve_jvp(method, primals, tangents):
    a, b, h0, fresh = primals
    a_dot, b_dot, h0_dot, _ = tangents
    h = _solve(method, a, b, h0, fresh)
    b_dot = a_dot * _before(h, h0, fresh) + b_dot
    # The tangent solver starts from zero; the tangent of h0 enters through the first step's b.
    start = a[0] * h0_dot if fresh is None else jnp.where(fresh[0], 0, a[0] * h0_dot)
    return h, _tangent_solve(method, a, b_dot.at[0].add(start), fresh)


def _tangent_solve(method, a, b, fresh):
    """The solver as a linear map of b, whose transpose is the solver run backwards."""
    # `custom_linear_solve` takes the transpose from us and every further derivative, also that
    # with respect to a, from `residual`, the equation that h satisfies.
    zero = jnp.zeros_like(b[0])

    def residual(h):
        return h - a * _before(h, zero, fresh)

    def solve(_, b):
        return METHODS[method](a, b, zero, fresh)

    def transpose_solve(_, cotangent):
        return TRANSPOSES[method](a, cotangent, fresh)

    return lax.custom_linear_solve(residual, b, solve, transpose_solve)


def _before(h, h0, fresh):
    """hₜ₋₁ for every step, zero where the step starts fresh."""
    shifted = jnp.concatenate([h0[None], h[:-1]])
    return shifted if fresh is None else jnp.where(fresh, 0, shifted)


@in_one_kernel
def _sequential(a, b, h0, fresh):
    def step(h, inputs):
        a, b, fresh = inputs
        h = a * h + b if fresh is None else jnp.where(fresh, b, a * h + b)
        return h, h

    # Coefficients that do not change are no input of the loop. There are no flags here, because
    # `_guarded_solve` gives `a` a time axis where there is a mask or a reset.
    def fixed_step(h, b):
        h = a[0] * h + b
        return h, h

    if a.shape[0] == b.shape[0]:
        return lax.scan(step, h0, (a, b, fresh))[1]
    return lax.scan(fixed_step, h0, b)[1]


@in_one_kernel
def _sequential_transpose(a, cotangent, fresh):
    """Solves gₜ = cotangentₜ + (freshₜ₊₁ ? 0 : aₜ₊₁ gₜ₊₁) without copies of a or the cotangent."""

    # The scan carries aₜ gₜ, already multiplied: that way step t needs aₜ and not aₜ₊₁, and no
    # array has to be shifted or flipped.
    def step(carried, inputs):
        a, cotangent, fresh = inputs
        g = cotangent + carried
        return (a * g if fresh is None else jnp.where(fresh, 0, a * g)), g

    def fixed_step(carried, cotangent):
        g = cotangent + carried
        return a[0] * g, g

    zero = jnp.zeros_like(cotangent[0])
    if a.shape[0] == cotangent.shape[0]:
        return lax.scan(step, zero, (a, cotangent, fresh), reverse=True)[1]
    return lax.scan(fixed_step, zero, cotangent, reverse=True)[1]


def _reversed(solve):
    """The transpose of a solver as the same solver run backwards, on copies."""

    def transpose(a, cotangent, fresh):
        after = None if fresh is None else flip_reset(fresh)
        coefficients = jnp.roll(flip(a), 1, axis=0)
        if a.shape[0] == cotangent.shape[0]:
            # The roll brings a[0] to the first place, where it multiplies the zero before the first
            # step; it may be NaN.
            coefficients = coefficients.at[0].set(0)
        return flip(solve(coefficients, flip(cotangent), jnp.zeros_like(cotangent[0]), after))

    return transpose


def _associative(a, b, h0, fresh):
    # The monoid of the module's docstring. `before` and `after` are blocks of maps, in time order.
    def compose(before, after):
        (a1, b1, *r1), (a2, b2, *r2) = before, after
        if not r1:
            return a2 * a1, a2 * b1 + b2
        return (
            jnp.where(r2[0], a2, a2 * a1),
            jnp.where(r2[0], b2, a2 * b1 + b2),
            r1[0] | r2[0],
        )

    # `associative_scan` has no start value, so h0 enters through the first b.
    b = b.at[0].add(a[0] * h0 if fresh is None else jnp.where(fresh[0], 0, a[0] * h0))
    elements = (jnp.broadcast_to(a, b.shape), b, *(() if fresh is None else (fresh,)))
    return lax.associative_scan(compose, elements)[1]


def _chunked(a, b, h0, fresh):
    """Sequential over chunks, associative inside them, so that the parallel part stays small."""
    num_steps = b.shape[0]
    if num_steps <= _CHUNK:
        return _associative(a, b, h0, fresh)
    padding = -num_steps % _CHUNK

    # The last chunk is filled with the identity (1, 0), whose results are cut off again.
    def chunks_of(leaf, fill):
        rows = jnp.full((padding, *leaf.shape[1:]), fill, leaf.dtype)
        return jnp.concatenate([leaf, rows]).reshape(-1, _CHUNK, *leaf.shape[1:])

    def chunk(h, inputs):
        a, b, fresh = inputs
        h = _associative(a, b, h, fresh)
        return h[-1], h

    inputs = (
        chunks_of(jnp.broadcast_to(a, b.shape), 1),
        chunks_of(b, 0),
        None if fresh is None else chunks_of(fresh, False),
    )
    h = lax.scan(chunk, h0, inputs)[1]
    return h.reshape(-1, *b.shape[1:])[:num_steps]


def _by_platform(a, b, h0, fresh):
    return lax.platform_dependent(a, b, h0, fresh, cpu=_sequential, default=_associative)


def _transpose_by_platform(a, cotangent, fresh):
    return lax.platform_dependent(
        *(a, cotangent, fresh), cpu=_sequential_transpose, default=_reversed(_associative)
    )


METHODS = {
    "auto": _by_platform,
    "sequential": _sequential,
    "associative": _associative,
    "chunked": _chunked,
}
TRANSPOSES = {
    "auto": _transpose_by_platform,
    "sequential": _sequential_transpose,
    "associative": _reversed(_associative),
    "chunked": _reversed(_chunked),
}


def _time_axis(b, axis):
    if not -b.ndim <= axis < b.ndim:
        raise ValueError(f"axis must be an axis of b, got {axis} for the shape {b.shape}.")
    return axis % b.ndim


def _broadcast(array, shape, name):
    """The array broadcast to a shape, or an error that names it."""
    array = checks.array(array, name)
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    fits = len(padded) == len(shape)
    if not fits or any(came not in (1, want) for came, want in zip(padded, shape, strict=True)):
        raise ValueError(f"{name} must broadcast to the shape {shape}, got {array.shape}.")
    return jnp.broadcast_to(array, shape)


def _coefficients(a, b, axis):
    """The coefficients with the axes of `b`; their time axis may stay 1."""
    a = checks.array(a, "a")
    fixed = a.ndim < b.ndim - axis or a.shape[axis - b.ndim] == 1
    shape = (*b.shape[:axis], 1, *b.shape[axis + 1 :]) if fixed else b.shape
    return _broadcast(a, shape, "a")


def _flags(flags, b, axis, name):
    """The flags checked against the leading axes of `b` up to time, or further."""
    ndim = np.ndim(flags)
    if ndim <= axis:
        raise ValueError(
            f"{name} must cover the axes of b up to time, {b.shape[: axis + 1]}, "
            f"got the shape {np.shape(flags)}."
        )
    return as_mask(flags, b.shape[:ndim], name)


def _widen(flags, b):
    return jnp.expand_dims(flags, tuple(range(flags.ndim, b.ndim)))
