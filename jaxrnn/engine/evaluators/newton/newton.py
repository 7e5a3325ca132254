"""`newton`: a nonlinear cell over all steps at once, by Newton's method on the whole sequence.

The carries h₁ … h_T solve hₜ = F(hₜ₋₁, zₜ). Linearised at a guess g this is a linear recurrence,

    hₜ = Jₜ hₜ₋₁ + (F(gₜ₋₁, zₜ) - Jₜ gₜ₋₁),   Jₜ = ∂F/∂h at (gₜ₋₁, zₜ),

whose solution is the next guess. Where J is zero outside of blocks, as it is for cells whose units
do not read one another, each block is solved alone. F is the guarded step: at a masked step it is
the identity, and so is J. The first step and every step with a reset depend on no unknown carry, so
the scan starts fresh there. A guess that is right up to step k is right up to step k + 1 after one
iteration, whatever stands for J, so T iterations suffice.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.newton.blocks import (
    Blocks,
    apply_blocks,
    block_jacobian,
    diagonal_jacobian,
    one_block,
    single_entries,
    solve_blocks,
)
from jaxrnn.engine.evaluators.newton.coupling import coupled_blocks
from jaxrnn.engine.evaluators.sequential.sequential import Sequential
from jaxrnn.engine.flat_carry import FlatCarry
from jaxrnn.engine.masking import guarded
from jaxrnn.engine.precision import project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import at_every_step
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Array, Carry, Cell, Evaluator, Params, Rollout, Steps


class NewtonInfo(NamedTuple):
    """A report on one run of Newton's method.

    Attributes:
        iterations: int32, the number of linear scans that were solved.
        residual: the largest |hₜ - F(hₜ₋₁, zₜ)| at the last guess, relative to max(1, |hₜ|).
        converged: bool, True when the residual is within the tolerance.
    """

    iterations: Array
    residual: Array
    converged: Array


_JACOBIANS = ("auto", "full", "diagonal")


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Newton(EvaluatorValue):
    """The evaluator that `newton` makes."""

    tol: float | None = None
    max_iterations: int | None = None
    jacobian: str = "auto"
    damping: float | str | None = "auto"
    fallback: Evaluator | None = None

    def __post_init__(self):
        """Checks the options."""
        if self.max_iterations is not None:
            checks.positive(self.max_iterations, "max_iterations")
        if self.tol is not None:
            checks.not_negative(self.tol, "tol")
        if self.fallback is not None:
            checks.evaluator(self.fallback, "fallback")
        if self.jacobian not in _JACOBIANS:
            raise ValueError(f"jacobian must be one of {_JACOBIANS}, got {self.jacobian!r}.")
        if isinstance(self.damping, str) and self.damping != "auto":
            raise ValueError(f'damping must be "auto", None or a fraction, got {self.damping!r}.')
        if self.damping not in ("auto", None):
            checks.fraction(self.damping, "damping")

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
        if checks.is_symbolic(num_steps):
            raise ValueError(
                f"newton() needs a number of steps that is known, got the symbol {num_steps}: use "
                "sequential()."
            )
        # Without a step or a row there is no largest change to compare with the tolerance.
        if any(leaf.size == 0 for leaf in jax.tree.leaves((carry, steps.xs))):
            return Sequential()(cell, params, carry, steps)
        step, data = _problem(cell, params, carry, steps, whole=self.jacobian == "full")
        # A while loop has no reverse derivative. The guess gets that of the solution from
        # `_at_solution`, which needs no iterations.
        guess, info = self._iterated(step, lax.stop_gradient(data))
        carries = step.flat.unpack(_at_solution(step, guess, data))
        last = jax.tree.map(lambda leaf: leaf[-1], carries)
        rollout = Rollout(last, cell.emit(params, carries, steps.xs), info)
        if self.fallback is None:
            return rollout
        instead = self.fallback
        # One decision for the whole batch; under `jax.vmap` both branches are run.
        carry, outputs = lax.cond(
            info.converged,
            lambda: (rollout.carry, rollout.outputs),
            lambda: instead(cell, params, carry, steps)[:2],
        )
        return Rollout(carry, outputs, info)

    def _iterated(self, step, data):
        """The last guess `[T, *batch, N]`, and the report."""
        linearise, blocks = _block_jacobian, step.blocks
        if self.jacobian == "diagonal":
            linearise, blocks = _diagonal_jacobian, single_entries(step.flat.size)
        num_steps, dtype = len(data.fresh), data.first.dtype
        most = num_steps if self.max_iterations is None else self.max_iterations
        limit = 100 * jnp.finfo(dtype).eps if self.tol is None else self.tol
        # Shortening J does not move the solution: b = F(g) - J g has the same J, so the scan
        # returns g wherever F(g) = g. A worse J only takes more iterations.
        shrink = 1.0 - self.damping if isinstance(self.damping, float | int) else 1.0

        def image_of(guess):
            return _image(step, data, _before(data.first, guess))

        def solved(guess, image):
            before = _before(data.first, guess)
            slopes = tuple(shrink * slope for slope in linearise(step, data, before))
            # At a fresh step F is a constant, so h is its value and J is not read.
            b = image - jnp.where(data.fresh[..., None], 0, apply_blocks(slopes, before, blocks))
            return solve_blocks(slopes, b, data.fresh, blocks)

        def iterate(state):
            guess, image, _, iterations = state
            new_guess = solved(guess, image)
            new_image = image_of(new_guess)
            if self.damping == "auto":
                better = _changes(new_guess, new_image) < _changes(guess, image)
                new_guess = jnp.where(better[..., None], new_guess, image)
                new_image = lax.cond(better.all(), lambda _: new_image, image_of, new_guess)
            return new_guess, new_image, _change(new_guess, guess), iterations + 1

        def goes_on(state):
            # Not `>`, which is False for NaN: a change that is NaN must not end the iteration.
            return ~(state[2] <= limit) & (state[3] < most)

        # The first guess is one step from the first carry, at every step.
        guess = _image(step, data, jnp.broadcast_to(data.first, (num_steps, *data.first.shape)))
        counters = varying_like((jnp.full((), jnp.inf, dtype), jnp.int32(0)), data)
        guess, image, _, iterations = lax.while_loop(
            goes_on, iterate, (guess, image_of(guess), *counters)
        )
        residual = _change(guess, image)
        return guess, NewtonInfo(iterations, residual, residual <= limit)


def newton(
    tol: float | None = None,
    max_iterations: int | None = None,
    jacobian: str = "auto",
    damping: float | str | None = "auto",
    fallback: Evaluator | None = None,
) -> Newton:
    """Evaluates any cell with a real carry by iterated linear scans.

    Lim et al. 2024 (DEER, arXiv:2309.12252), Gonzalez et al. 2024 (quasi-DEER and ELK,
    arXiv:2407.19115), Danieli et al. 2025 (blocks and the first guess, arXiv:2510.21450).
    The gradient is that of the solution (by the implicit function theorem, one more linear scan),
    so it does not depend on the number of iterations. The method converges in few iterations where
    the recurrence forgets (its largest Lyapunov exponent is negative), and in up to T where it does
    not. Batch rows iterate together until the slowest one has converged.

    Args:
        tol: largest change of a carry, relative to max(1, |h|), that ends the iteration; None is
            100 times the rounding error of its dtype.
        max_iterations: largest number of iterations; None is T, which always suffices in exact
            arithmetic.
        jacobian: "auto" finds the blocks of coordinates that a step of the cell does not couple,
            in the program of its derivative, and solves each block alone: `para_gru` by an
            elementwise scan, `para_lstm` by one of 2 × 2 matrices, `slstm` head by head, a cell
            with a full recurrent matrix as "full". "full" takes `[N, N]` at each step. "diagonal"
            takes the diagonal of either in the iterations, of which it needs more; a gradient
            computes the blocks once.
        damping: "auto" drops J for a row and an iteration in which the whole J would raise the
            residual of the row, and takes hₜ = F(gₜ₋₁, zₜ) there: so a bounded cell has bounded
            guesses, and where stretches of a sequence expand, fewer iterations suffice. None always
            takes the whole J; a fraction in [0, 1) always shortens it by as much, as the quasi-ELK
            of Gonzalez et al. does. The solution is the same.
        fallback: an evaluator to use when the method has not converged, for example
            `sequential()`; None returns the last guess, and `info` says that it has not converged.

    Returns:
        The evaluator; `info` is a `NewtonInfo`.

    Raises:
        TypeError: An option is not a number, `fallback` is not an Evaluator, or (while tracing) a
            carry has leaves that are not real.
        ValueError: A count is below 1, `tol` is below 0 or not finite, `jacobian` is not one of
            the three words, or `damping` is another word or not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(cell, params, jnp.ones((50, 3)), evaluator=jr.newton())
        >>> bool(rollout.info.converged), int(rollout.info.iterations) < 20
        (True, True)
    """
    return Newton(tol, max_iterations, jacobian, damping, fallback)


@dataclass(frozen=True, eq=False)
class _Step:
    """The guarded step on carries that are packed into vectors; it closes over no array.

    So it can be a static argument of the derivative rule, which gets all arrays as `_Data`.
    """

    advance: Callable[..., Any]
    flat: FlatCarry
    blocks: Blocks

    def __call__(self, params, packed, inputs):
        return self.flat.pack(self.advance(params, self.flat.unpack(packed), inputs))


class _Data(NamedTuple):
    """The arrays of the problem, time first: `first [*batch, N]`, `fresh [T, *batch]`."""

    params: Params
    first: Array
    inputs: Any
    fresh: Array


def _problem(cell, params, carry, steps, whole):
    like = jax.eval_shape(cell.initial_carry, params)
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(like)]
    if not dtypes or not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
        raise TypeError(
            "newton() needs a carry of real floating arrays, "
            f"got {[str(dtype) for dtype in dtypes]}: use sequential(), or associative() for a "
            "linear cell."
        )
    flat = FlatCarry(like, jnp.result_type(*dtypes))

    def advance(params, carry, inputs):
        z, mask, reset, initial = inputs
        if initial is None and reset is not None:
            # All steps are run at once, so it has their leading axes, those of reset.
            initial = cell.initial_carry(params, reset.shape)
        return guarded(cell, params, initial, carry, z, mask, reset)

    carry, starts, steps = at_every_step(carry, steps)
    first = flat.pack(carry)
    num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
    fresh = jnp.zeros((num_steps, *first.shape[:-1]), bool) if steps.reset is None else steps.reset
    inputs = (_with_leading(cell, params, steps.xs, fresh.shape), steps.mask, steps.reset, starts)
    step = _Step(advance, flat, one_block(flat.size))
    derivative = _derivative(step, params, inputs, num_leading=fresh.ndim)
    if any(isinstance(const, Tracer) for const in derivative.consts):
        raise TypeError(
            "newton() needs a cell whose advance and initial_carry close over no traced array: "
            "make it a parameter, or use sequential()."
        )
    if not whole:
        step = replace(step, blocks=coupled_blocks(derivative.jaxpr, flat.size))
    # The first step reads the given carry, which is data: there is no unknown before it.
    return step, _Data(params, first, inputs, fresh.at[0].set(True))


def _derivative(step, params, inputs, num_leading):
    """The program of the derivative of one step of one row, a function of the tangent."""
    packed = jax.ShapeDtypeStruct((step.flat.size,), step.flat.dtype)
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[num_leading:], leaf.dtype), inputs
    )

    def push(tangent, packed, params, inputs):
        return jax.jvp(lambda packed: step(params, packed, inputs), (packed,), (tangent,))[1]

    return jax.make_jaxpr(push)(packed, packed, params, one)


def _with_leading(cell, params, xs, leading):
    """z for every step and row, also where the coefficients of a linear cell vary with neither."""
    # `vmap` and the diagonal Jacobian need every leaf of z to have the leading axes.
    z = project(cell, params, xs)
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(leading) :], leaf.dtype), xs
    )
    like = jax.eval_shape(lambda x: project(cell, params, x), one)
    return jax.tree.map(lambda leaf, want: jnp.broadcast_to(leaf, (*leading, *want.shape)), z, like)


def _before(first, guess):
    return jnp.concatenate([first[None], guess[:-1]])


def _image(step, data, before):
    """F(hₜ₋₁, zₜ) for all steps at once, as the functions of a cell take any leading axes."""
    return step(data.params, before, data.inputs)


def _block_jacobian(step, data, before):
    return block_jacobian(
        lambda packed, inputs: step(data.params, packed, inputs), before, data.inputs, step.blocks
    )


def _diagonal_jacobian(step, data, before):
    return diagonal_jacobian(lambda before: _image(step, data, before), before, step.blocks)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _at_solution(step, guess, data):
    """The guess, with the derivatives of the exact solution: ḣₜ = Jₜ ḣₜ₋₁ + Ḟₜ."""
    del step, data
    return guess


@_at_solution.defjvp
def _at_solution_jvp(step, primals, tangents):
    guess, data = primals
    # The guess is a constant, the solution depends on the data: reading it through `_at_solution`
    # gives this derivative a derivative of its own.
    solution = _at_solution(step, guess, data)
    # The whole Jacobian also for "diagonal": an approximation would only slow the iterations down,
    # but here it would be a wrong gradient.
    slopes = _block_jacobian(step, data, _before(data.first, solution))
    _, change = jax.jvp(
        lambda data: _image(step, data, _before(data.first, solution)), (data,), tangents[1:]
    )
    return solution, solve_blocks(slopes, change, data.fresh, step.blocks)


def _change(new, old):
    return jnp.max(_changes(new, old))


def _changes(new, old):
    """For each row the largest |new - old| relative to max(1, |new|)."""
    difference = jnp.abs(new - old) / jnp.maximum(1, jnp.abs(new))
    # XLA's maximum over a large array on CPU can lose a NaN, but not an infinity.
    difference = jnp.where(jnp.isnan(difference), jnp.inf, difference)
    # What is NaN in both has not changed, and neither have equal infinities.
    same = (new == old) | (jnp.isnan(new) & jnp.isnan(old))
    return jnp.max(jnp.where(same, 0, difference), axis=(0, -1))
