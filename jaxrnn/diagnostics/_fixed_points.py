"""States in which a recurrence rests while its input is held still, and what it does near them.

The search is one compiled program over all starts. How many points there are is known only after
it, so merging and eigenvalues are computed outside, in numpy.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.core import Tracer
from jax.tree_util import keystr

from jaxrnn.diagnostics._jacobians import advance_with_jacobian, flat_carry
from jaxrnn.diagnostics._observe import Run, observe
from jaxrnn.engine import checks
from jaxrnn.engine.arguments import check_model
from jaxrnn.engine.masking import select
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.types import Carry, Key, Model, Params

_LEAST_NEWTON_STEPS, _MOST_NEWTON_STEPS = 3, 50
_LONGEST_STEP = 0.1  # the length of such a step, in units of the scale
_FLAT = 0.01  # the largest slope of the speed, per unit of distance, at a slow point


class FixedPoints(NamedTuple):
    """P points in the order of their speed, the slowest first.

    Attributes:
        carry: the points, a tree like the carry with leaves `[P, ...]`.
        speed: `[P]`, |F(h, x) - h|, the distance that one step moves.
        is_fixed: bool `[P]`, whether the speed is within the tolerance; False is a slow point.
        jacobian: `[P, N, N]`, ∂F / ∂h, over coordinates as in `carry_jacobians`.
        eigenvalues: complex `[P, N]`, those of the Jacobian, the largest modulus first.
        num_merged: int `[P]`, how many starts ended at the point.
        num_dropped: how many starts ended at no point: too fast, still descending, too far away, or
            not finite.
    """

    carry: Any
    speed: jax.Array
    is_fixed: jax.Array
    jacobian: jax.Array
    eigenvalues: jax.Array
    num_merged: jax.Array
    num_dropped: int

    @property
    def num_unstable(self) -> jax.Array:
        """int `[P]`, the number of eigenvalues whose modulus is 1 or more."""
        return (jnp.abs(self.eigenvalues) >= 1).sum(axis=-1)

    @property
    def is_stable(self) -> jax.Array:
        """bool `[P]`, whether all eigenvalues have a modulus below 1."""
        return self.num_unstable == 0

    @property
    def time_constants(self) -> jax.Array:
        """`[P, N]`, -1 / log|λ|: the steps in which a small deviation falls by a factor of e.

        Negative where it grows by that factor, infinite where |λ| is 1.
        """
        return -1 / jnp.log(jnp.abs(self.eigenvalues))

    def only(self, chosen: Any) -> "FixedPoints":
        """The points that a bool `[P]` or an array of indices chooses."""
        points = self._replace(num_dropped=())
        points = jax.tree.map(lambda leaf: leaf[np.asarray(chosen)], points)
        return points._replace(num_dropped=self.num_dropped)


def fixed_points(
    model: Model,
    params: Params,
    x: Any,
    carries: Carry,
    *,
    tolerance: float = 1e-5,
    slow_tolerance: float = 1e-2,
    merge_distance: float = 1e-2,
    max_distance: float = 10.0,
    noise: float = 0.0,
    learning_rate: float = 0.02,
    num_steps: int = 1000,
    key: Key = None,
) -> FixedPoints:
    """Finds the fixed and slow points of a recurrence whose input is held still.

        minimise q(h) = ½ |F(h, x) - h|²,   F(h, x) = the carry after one step

    Sussillo and Barak 2013. Every carry given is a start. Adam, with a rate that falls to 0, takes
    all of them downhill side by side; damped Newton steps on F(h, x) - h = 0 then give the last
    digits. These only ever lower q and are short, so a slow point, which is a minimum of q where it
    is not 0, does not become a fixed point far away. The descent of a start ends as soon as its
    speed |F(h, x) - h| is within `tolerance`, so a line attractor is found where the starts meet
    it. Ends within `merge_distance` are one point, represented by the slowest; along a line
    attractor as many remain as the distance allows. Points that no start leads to are not found.

    All tolerances and distances are relative to the scale of h: the root mean square, over the
    carries given, of the norm |h|.

    The search is compiled once per shape; merging depends on values, so the function itself cannot
    run under `jit`.

    Args:
        model: the cell or layer to run; a layer must be causal. Its carry must consist of floating
            arrays; a complex number is two coordinates.
        params: its parameters.
        x: the input that is held still, a tree of arrays `[D]`.
        carries: where to start, leaves `[..., H]` with any leading axes, such as what `carries`
            returns for some sequences.
        tolerance: largest speed of a fixed point. The larger it is, the more slow points are
            called fixed, and the earlier a start stops. Rounding in float32 leaves about 1e-7.
        slow_tolerance: largest speed of a slow point. A start that ends up faster is dropped, and
            so is one that was still descending.
        merge_distance: largest distance between two ends that are one point.
        max_distance: largest distance of a point from the mean of the carries.
        noise: standard deviation of the noise added to the carries, relative to the root mean
            square of a coordinate.
        learning_rate: first rate of Adam, relative to the root mean square of a coordinate.
        num_steps: number of steps of Adam.
        key: randomness of the noise; required with it. The model itself is deterministic.

    Returns:
        FixedPoints.

    Raises:
        ValueError: The layer is not causal, shapes disagree, a number is out of range, noise has
            no key, or there are no carries, or they are all zero or not finite.
        TypeError: The carry holds no floating numbers, or others too, such as a counter; an
            argument is traced, or has the wrong type, tree structure or dtype.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.elman(1)
        >>> params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.array([[2.0]]), jnp.zeros(1))
        >>> starts = jr.cells.ElmanCarry(jnp.linspace(-1, 1, 9)[:, None])
        >>> points = fixed_points(cell, params, jnp.zeros(1), starts)
        >>> order = jnp.argsort(points.carry.h[:, 0])
        >>> [round(float(h), 4) for h in points.carry.h[order, 0]]
        [-0.9575, 0.0, 0.9575]
        >>> points.is_stable[order].tolist()
        [True, False, True]
    """
    limits = _checked_limits(tolerance, slow_tolerance, merge_distance, max_distance)
    noise = checks.not_negative(noise, "noise")
    if (noise > 0) != (key is not None):
        raise ValueError(f"key must be given with noise and only then, got {noise=} and {key=}.")
    rate = checks.above_zero(learning_rate, "learning_rate")
    options = limits.tolerance, noise, rate, checks.positive(num_steps, "num_steps")
    xs, carries = _side_by_side(model, params, x, carries)
    ends = observe(_search, options, model, params, xs, carries, None, None, True, key)
    return _points(jax.tree.map(np.asarray, ends), limits)


class _Limits(NamedTuple):
    """The four arguments of these names, relative to the scale."""

    tolerance: float
    slow_tolerance: float
    merge_distance: float
    max_distance: float


class _Ends(NamedTuple):
    """Where S starts ended, as carries and as vectors, and what one step makes of that."""

    carry: Any  # [S, ...]
    points: Any  # [S, N]
    after: Any  # [S, N]
    jacobians: Any  # [S, N, N]
    starts: Any  # [S, N], the carries that were given, without noise


def _checked_limits(*limits):
    limits = _Limits(*map(checks.not_negative, limits, _Limits._fields))
    if limits.slow_tolerance < limits.tolerance:
        raise ValueError(
            f"slow_tolerance must be at least tolerance, which is {limits.tolerance}, "
            f"got {limits.slow_tolerance}."
        )
    return limits


def _side_by_side(model, params, x, carries):
    """The input, repeated `[1, S, D]`, and the carries with one leading axis `[S, ...]`."""
    check_model(model)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((params, x, carries))):
        raise TypeError(
            "params, x and carries must not be traced: how many points there are depends on their "
            "values. Call fixed_points outside jit."
        )
    x = checks.arrays(x, "x")
    leading = checks.leading_shape(x, model.num_feature_axes, "x", has_time=False)
    if leading:
        raise ValueError(f"x must be one input without leading axes, got the axes {leading}.")
    check_params(model, params, width_of(model, x))
    checks.array_leaves(carries, "carries")
    like = jax.eval_shape(model.initial_carry, params)
    leading = _leading_of(carries, like)
    size = math.prod(leading)
    if size == 0:
        raise ValueError(f"carries must hold at least one carry, got the leading axes {leading}.")
    carries = jax.tree.map(lambda leaf, one: jnp.reshape(leaf, (size, *one.shape)), carries, like)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (1, size, *leaf.shape)), x), carries


def _leading_of(carries, like):
    """The axes before those of one carry, which all leaves share; raises where they do not."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise TypeError(
                f"model must have a carry of floating arrays only, to rest in; got {leaf.dtype} "
                f"at carry{keystr(path)}."
            )
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(carries)]
    num_axes = [leaf.ndim for leaf in jax.tree.leaves(like)]
    leading = shapes[0][: max(len(shapes[0]) - num_axes[0], 0)] if shapes and num_axes else ()
    expected = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*leading, *leaf.shape), leaf.dtype), like
    )
    checks.same_tree(carries, expected, "carries")
    return leading


def _search(run: Run, tolerance, noise, learning_rate, num_steps):
    flat = flat_carry(run)
    step = jax.tree.map(lambda leaf: leaf[0], run.steps)
    given = flat.pack(run.carry)
    # Everything below is in units of the root mean square of a coordinate.
    unit = jnp.sqrt((given**2).mean())

    def residual(points):
        carry = flat.unpack(unit * points)
        after = run.layer.unroll(run.params, carry, run.steps, None).carry
        return flat.pack(after) / unit - points

    def with_jacobian(points):
        carry = flat.unpack(points)
        after, jacobians = advance_with_jacobian(run, flat, carry, step)
        return flat.pack(after), jacobians

    def with_slopes(points):
        after, jacobians = with_jacobian(unit * points)
        return after / unit - points, jacobians - jnp.eye(flat.size, dtype=flat.dtype)

    points = given / unit
    if noise:
        points += noise * jax.random.normal(run.key, points.shape, flat.dtype)
    # The scale is √N units.
    resting = tolerance * flat.size**0.5
    points = _descended(residual, points, resting, learning_rate, num_steps)
    points = unit * _with_last_digits(residual, with_slopes, points, resting)
    return _Ends(flat.unpack(points), points, *with_jacobian(points), given)


def _descended(residual, points, tolerance, learning_rate, num_steps):
    """The points after Adam has lowered q, each by itself: Adam treats coordinates one by one."""
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def energy(points):
        squares = (residual(points) ** 2).sum(axis=-1)
        return squares.sum() / 2, jnp.sqrt(squares)

    def descend(_, state):
        points, memory = state
        slopes, speeds = jax.grad(energy, has_aux=True)(points)
        updates, memory = optimizer.update(slopes, memory)
        # Adam would walk along a line of resting points, because it does not see how flat it is.
        resting = speeds <= tolerance
        return select(resting, points, optax.apply_updates(points, updates)), memory

    return lax.fori_loop(0, num_steps, descend, (points, optimizer.init(points)))[0]


def _with_last_digits(residual, with_slopes, points, tolerance):
    """Newton steps on F(h) - h = 0, damped as Levenberg and Marquardt do, for every point alone.

    The damped step vanishes with the slope of q, so it does not leave a slow point, where the
    undamped one leaps. A step that does not lower q is tried again with more damping.
    """
    num = points.shape[-1]
    longest = _LONGEST_STEP * jnp.sqrt(num)

    def improve(state):
        points, speeds, damping, count = state
        left, slopes = with_slopes(points)
        transposed = jnp.swapaxes(slopes, -1, -2)
        normal = transposed @ slopes + damping[:, None, None] * jnp.eye(num, dtype=slopes.dtype)
        steps = jnp.linalg.solve(normal, transposed @ left[..., None])[..., 0]
        steps *= (longest / jnp.maximum(norm(steps), longest))[:, None]
        new_speeds = norm(residual(points - steps))
        accepted = (new_speeds < speeds) & is_wanted(state)
        points = jnp.where(accepted[:, None], points - steps, points)
        speeds = jnp.where(accepted, new_speeds, speeds)
        return points, speeds, damping * jnp.where(accepted, 0.1, 10), count + 1

    def is_wanted(state):
        _, speeds, damping, count = state
        is_moving = (speeds > tolerance) & (damping < 1e6)
        return (is_moving | (count < _LEAST_NEWTON_STEPS)) & (count < _MOST_NEWTON_STEPS)

    def norm(vectors):
        return jnp.linalg.norm(vectors, axis=-1)

    damping = jnp.full(len(points), 1e-3, points.dtype)
    start = points, norm(residual(points)), damping, 0
    return lax.while_loop(lambda state: is_wanted(state).any(), improve, start)[0]


@np.errstate(invalid="ignore", over="ignore")  # Of starts that diverged, which are dropped.
def _points(ends: _Ends, limits: _Limits) -> FixedPoints:
    scale = np.sqrt((ends.starts**2).sum(axis=-1).mean())
    if not 0 < scale < np.inf:
        raise ValueError(
            "carries must be finite and not all zero: tolerances are relative to their root mean "
            f"square, which is {scale}. Take those of a run."
        )
    moves = ends.after - ends.points
    speeds = np.linalg.norm(moves, axis=-1)
    is_fixed = speeds <= limits.tolerance * scale
    # A start whose search has not reached a minimum of q is no slow point, however slow it is.
    slopes = ends.jacobians - np.eye(moves.shape[-1])
    slope_of_speed = np.linalg.norm(np.einsum("sij,si->sj", slopes, moves), axis=-1)
    is_slow = (speeds <= limits.slow_tolerance * scale) & (slope_of_speed <= _FLAT * speeds)
    distances = np.linalg.norm(ends.points - ends.starts.mean(axis=0), axis=-1)
    # A point that is not finite is dropped too, because it compares as False.
    kept = (is_fixed | is_slow) & (distances <= limits.max_distance * scale)
    kept &= np.isfinite(ends.jacobians).all(axis=(-1, -2))
    chosen, num_merged = _merged(ends.points, speeds, kept, limits.merge_distance * scale)
    jacobians = ends.jacobians[chosen]
    values = np.linalg.eigvals(jacobians).astype(np.result_type(jacobians, np.complex64))
    order = np.argsort(-np.abs(values), axis=-1)
    return FixedPoints(
        carry=jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]), ends.carry),
        speed=jnp.asarray(speeds[chosen]),
        is_fixed=jnp.asarray(is_fixed[chosen]),
        jacobian=jnp.asarray(jacobians),
        eigenvalues=jnp.asarray(np.take_along_axis(values, order, axis=-1)),
        num_merged=jnp.asarray(num_merged, jnp.int32),
        num_dropped=int((~kept).sum()),
    )


def _merged(points, speeds, kept, distance):
    """Indices of points that are further apart than a distance, and how many each stands for.

    The slowest point takes all that are near it, then the slowest of the rest, and so on.
    """
    left = np.argsort(speeds, kind="stable")
    left = left[kept[left]]
    chosen, num_merged = [], []
    while len(left):
        is_near = np.linalg.norm(points[left] - points[left[0]], axis=-1) <= distance
        chosen.append(left[0])
        num_merged.append(is_near.sum())
        left = left[~is_near]
    return np.array(chosen, int), np.array(num_merged, int)
