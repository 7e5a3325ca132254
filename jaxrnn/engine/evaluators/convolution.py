"""`convolution`: a recurrence that does not change with time, as one long convolution."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.nan_shield import nan_shielded
from jaxrnn.engine.evaluators.sequential.sequential import Sequential
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.starts import first_carry
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Affine, Array, Carry, Cell, Mask, Params, Rollout, Steps


class Response(NamedTuple):
    """The response of a linear recurrence without resets over T steps, for each feature.

    Attributes:
        kernel: `[T, D]`, the outputs for an input of 1 at the first step, without the part of
            `skip`.
        skip: `[D]`, the factor of xₜ in yₜ that does not pass through the carry.
        started: `h -> [T, *batch, D]`, the outputs without input when the state starts at h.
        last: `(h, xs, counts) -> h`, the state after the last `counts [*batch]` steps of xs
            `[T, *batch, D]`; the steps before those are zero.
    """

    kernel: Array
    skip: Array
    started: Callable[[Array], Array]
    last: Callable[[Array, Array, Array], Array]


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Convolution(EvaluatorValue):
    """The evaluator that `convolution` makes."""

    def check_cell(self, cell: Cell) -> None:
        """Raises unless the cell is linear, the same at all steps, and keeps features apart."""
        # A cell with its own `response` need not be tested.
        if cell.response is None:
            _check_cell(cell)

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        # With resets the sum over past steps starts elsewhere in every row, which no single kernel
        # can express. The length of a Fourier transform must be a number.
        num_steps = checks.one_array(steps.xs, "xs").shape[0]
        if steps.reset is not None or checks.is_symbolic(num_steps) or num_steps <= 1:
            return Sequential()(cell, params, carry, steps)
        # Without a reset only the first start counts.
        return nan_shielded(self._at_once, cell, params, first_carry(carry), steps)

    def _at_once(self, cell, params, carry, steps):
        (h,), tree = jax.tree.flatten(carry)
        xs = in_compute_dtype(params, steps.xs)
        if cell.response is None:
            coefficients = _coefficients(cell, params, tree, h.dtype, xs.shape[-1])
            response = _response(coefficients, len(xs))
        else:
            response = cell.response(params, len(xs))
        h, outputs = convolve(response, h, xs, steps.mask)
        return Rollout(tree.unflatten([h]), outputs, self)


def convolution() -> Convolution:
    """Evaluates a linear cell that is the same at all steps as one long convolution.

        hₜ = a ⊙ hₜ₋₁ + b xₜ,  yₜ = Re(c · hₜ) + e xₜ    for each feature, a the same at all t
        yₜ = Σ_{s≤t} Re(c · aᵗ⁻ˢ b) xₛ + Re(c · aᵗ⁺¹ h₋₁) + e xₜ

    Gu et al. 2022 (arXiv:2206.11893). The N states are summed before the convolution, whose Fourier
    transforms cost O(T log T) for each feature; the recurrence computes N states for every row and
    step. The kernel takes O(T N) memory, whatever the batch size. Masks may have any pattern: the
    real steps are moved together. Sequences with resets, T = 1, and a symbolic T of `jax.export`
    are run as `sequential()`. The results agree up to the rounding of the largest input of the row,
    including later inputs.

    Returns:
        The evaluator, for `s4` and for linear cells such as `s4d`: yₜ of a feature depends on x of
        this feature alone, is linear in it, and the carry is one array `[..., D, N]`. For other
        cells `recurrent` raises TypeError (a cell that is not linear, draws noise, or has another
        carry) or ValueError (coefficients change with x, features mix, or y is not linear in x).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.recurrent(jr.s4d(16), evaluator=jr.convolution())
        >>> params = layer.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 100, 3)))
        >>> rollout.outputs.shape, rollout.info == jr.convolution()
        ((2, 100, 3), True)
    """
    return Convolution()


def convolve(response: Response, h: Array, xs: Array, mask: Mask) -> tuple[Array, Array]:
    """Runs a linear recurrence by Fourier transforms of length 2 T or more.

        yₜ = Σₛ kernelₜ₋ₛ xₛ + startedₜ + skip xₜ

    With a mask the real steps of each row are moved together at its end, and the outputs are moved
    back.

    Args:
        response: the response of the recurrence over T steps.
        h: the state before the first step.
        xs: inputs `[T, *batch, D]`.
        mask: None or bool `[T, *batch]`.

    Returns:
        The state after the last step, and the outputs `[T, *batch, D]`.
    """
    num_steps = xs.shape[0]
    started = response.started(h)
    if mask is None:
        counts = jnp.full(xs.shape[1:-1], num_steps)
        outputs = _causal_product(response.kernel, xs) + started + response.skip * xs
        return response.last(h, xs, counts), outputs
    # To the end and not to the start: zeros before the real steps add nothing to any output, and
    # the last step is then the last real one of every row. A stable sort keeps the order in time.
    order = jnp.argsort(mask, axis=0, stable=True)
    moved = _at(zero_masked(mask, xs), order)
    counts = mask.sum(axis=0)
    # For every step the index of the last real step, counted over real steps, and its place after
    # the move. Both are clipped where there is no real step yet; those outputs are masked.
    number = jnp.maximum(jnp.cumsum(mask, axis=0) - 1, 0)
    place = jnp.minimum(number + num_steps - counts, num_steps - 1)
    outputs = _at(_causal_product(response.kernel, moved), place) + _at(started, number)
    return response.last(h, moved, counts), outputs + response.skip * xs


def _causal_product(kernel, xs):
    """Σₛ kernelₜ₋ₛ xₛ for s <= t, by Fourier transforms."""
    # A product of transforms is a circular convolution: shorter than 2 T, the end of the sequence
    # would wrap round to its start. Powers of two are the fastest lengths.
    num_steps = xs.shape[0]
    length = 1 << (2 * num_steps - 1).bit_length()
    kernel = jnp.fft.rfft(kernel, length, axis=0)
    kernel = kernel.reshape(len(kernel), *[1] * (xs.ndim - 2), -1)
    product = kernel * jnp.fft.rfft(xs, length, axis=0)
    return jnp.fft.irfft(product, length, axis=0)[:num_steps]


def _at(leaf, steps):
    return jnp.take_along_axis(leaf, steps[..., None], axis=0)


class _Coefficients(NamedTuple):
    """`a`, `b`, `c` `[D, N]` and `e [D]` of a linear cell, as in `convolution`."""

    a: Array
    b: Array
    c: Array
    e: Array


def _coefficients(cell, params, tree, dtype, num_inputs):
    """The coefficients of a cell, found by running it on ones and on unit vectors of its state."""
    one = jnp.ones(num_inputs)
    (a,), (b,) = (jax.tree.leaves(part) for part in project(cell, params, one))

    def read(state, x):
        h = jnp.broadcast_to(state, b.shape).astype(dtype)
        return cell.emit(params, tree.unflatten([h]), in_compute_dtype(params, x))

    states = jnp.eye(b.shape[-1])
    c = jax.vmap(read, (0, None), -1)(states, 0 * one)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        # Re(c h) is Re c for h = 1 and -Im c for h = i.
        c = jax.lax.complex(c, -jax.vmap(read, (0, None), -1)(1j * states, 0 * one))
    return _Coefficients(jnp.broadcast_to(a, b.shape), b, c, read(jnp.zeros(1), one))


def _response(coefficients: _Coefficients, num_steps: int) -> Response:
    a, b, c, skip = coefficients
    powers = _powers(a, num_steps)
    product = "tdn,...dn->t...d"

    def started(h):
        return jnp.einsum(product, c * powers[1:], h).real

    def last(h, xs, counts):
        entered = jnp.einsum("tdn,t...d->...dn", powers[num_steps - 1 :: -1] * b, xs)
        return powers[counts] * h + entered

    return Response(jnp.einsum(product, c * powers[:-1], b).real, skip, started, last)


def _powers(a: Array, num_steps: int) -> Array:
    """aᵗ for t = 0 … T, `[T + 1, D, N]`, by doubling: no logarithm, so a may be 0."""
    powers = jnp.ones_like(a)[None]
    while len(powers) <= num_steps:
        powers = jnp.concatenate([powers, powers * a])
        a = a * a
    return powers[: num_steps + 1]


# A model may be made where it is used, and the probe takes a while.
@functools.lru_cache(maxsize=64)
def _check_cell(cell):
    """Raises unless a small instance is linear, constant in time, and keeps features apart."""
    if cell.prepare is not None:
        raise TypeError("cell must not draw noise to be a convolution, but it has a prepare.")
    if cell.num_feature_axes != 1:
        raise TypeError(
            "cell must take one array [..., D] to be a convolution, "
            f"got num_feature_axes {cell.num_feature_axes}."
        )
    # The answer decides whether to raise, so it is computed now, also when a caller is traced.
    with jax.ensure_compile_time_eval():
        x = jax.random.normal(jax.random.key(1), (3, 2))
        try:
            # Away from initial values: a gate that starts at 0 or a mixing matrix that starts as
            # the identity would hide what the cell does after training.
            params = _moved(cell.init(jax.random.key(0), 2))
            z, other_z = (project(cell, params, some) for some in (x[0], x[1]))
        except (TypeError, ValueError) as error:
            raise ValueError(
                "cell must take any number of features to be a convolution, as s4d does."
            ) from error
        carry = jax.tree.map(jnp.zeros_like, cell.initial_carry(params))
        _check_affine(z, other_z, carry)
        # Compared exactly, without a tolerance: a factor of -2 rounds nothing, and a feature that
        # is kept apart is computed by the same operations whatever the other one holds.
        first, scaled, without_first_feature = (
            Sequential()(cell, params, carry, Steps(some)).outputs
            for some in (x, -2 * x, x.at[:, 0].set(0))
        )
        if first.shape != x.shape or (without_first_feature[:, 1] != first[:, 1]).any():
            raise ValueError(
                "cell must keep features apart to be a convolution, but it mixes them."
            )
        if (scaled != -2 * first).any():
            raise ValueError(
                "cell must be linear in x to be a convolution, but -2 x does not give -2 y."
            )


def _moved(params):
    """Parameters near the given ones, none of them 0."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    return tree.unflatten(
        leaf + 0.1 * jax.random.normal(key, leaf.shape, leaf.dtype)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
        else leaf
        for key, leaf in zip(keys, leaves, strict=True)
    )


def _check_affine(z, other_z, carry):
    if not isinstance(z, Affine):
        raise TypeError(
            "convolution() needs a linear cell, whose project returns Affine(a, b), "
            f"got {type(z).__name__}: use sequential(), or newton() for a real floating carry."
        )
    shapes = [leaf.shape for leaf in jax.tree.leaves(carry)]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise TypeError(
            f"cell must have one array [..., D, N] as its carry to be a convolution, got {shapes}."
        )
    (a,), (other_a,) = jax.tree.leaves(z.a), jax.tree.leaves(other_z.a)
    if (a != other_a).any():
        raise ValueError(
            "cell must have the same coefficients at all steps to be a convolution, but they "
            "change with x: use associative()."
        )
