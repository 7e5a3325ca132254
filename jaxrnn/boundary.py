"""What a mask and a reset mean for a step, in one place, and how time is turned round."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn import checks
from jaxrnn.sequences.masks import expand_mask
from jaxrnn.types import Cell


def select(flag: Any, yes: Any, no: Any) -> Any:
    """Takes `yes` where `flag` is True and `no` elsewhere, leaf by leaf.

    Args:
        flag: bool `[*prefix]`, a leading prefix of every leaf.
        yes: A tree of arrays `[*prefix, ...]`.
        no: A tree like `yes`.

    Returns:
        A tree like `yes`. The branch not taken reaches neither values nor cotangents.

    Example:
        >>> select(jnp.array([True, False]), jnp.ones((2, 3)), jnp.zeros((2, 3))).sum(axis=1)
        Array([3., 0.], dtype=float32)
    """

    return jax.tree.map(
        lambda yes_leaf, no_leaf: jnp.where(expand_mask(flag, yes_leaf), yes_leaf, no_leaf), yes, no
    )


def project(cell: Cell, params: Any, xs: Any) -> Any:
    """The cell's projection in the dtype of the recurrence.

    This is the engine's one cast of what enters a recurrence: x, its product with the kernel and z
    run in promote(params, float32), so half-precision inputs accumulate in float32.
    """
    return in_compute_dtype(params, cell.project(params, in_compute_dtype(params, xs)))


def in_compute_dtype(params: Any, tree: Any) -> Any:
    """The real leaves of a tree in promote(params, float32), the complex ones in its complex."""
    return cast(tree, checks.compute_dtype(params))


def cast(tree: Any, dtype: Any) -> Any:
    """The real leaves of a tree in a dtype, the complex ones in its complex, others as they are."""

    def leaf_cast(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            return leaf.astype(jnp.promote_types(dtype, jnp.complex64))
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(leaf_cast, tree)


def varying_like(tree: Any, like: Any) -> Any:
    """The tree with its leaves varying over every mesh axis that a leaf of `like` varies over.

    Under `shard_map` a scan wants its carry to vary over the same axes before and after a step;
    zeros vary over none.
    """
    axes = frozenset().union(*map(_varying_axes, jax.tree.leaves(like)))

    def vary(leaf):
        missing = tuple(axes - _varying_axes(leaf))
        return _vary(leaf, missing) if missing else leaf

    return jax.tree.map(vary, tree)


# Both names have changed since jax 0.8, the oldest that is tested; without either nothing varies.
def _varying_axes(leaf):
    aval = jax.typeof(leaf)
    old = getattr(aval, "vma", frozenset())
    return getattr(getattr(aval, "manual_axis_type", None), "varying", old)


def _vary(leaf, axes):
    if hasattr(lax, "pcast"):
        return lax.pcast(leaf, axes, to="varying")
    return lax.pvary(leaf, axes)  # pyright: ignore[reportAttributeAccessIssue]


def guarded(cell: Cell, params: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """The cell's step with the meaning of reset and mask.

        hₜ = mₜ ? advance(h', zₜ) : h',  h' = rₜ ? initial_carry : hₜ₋₁

    Reset acts first and mask second, so a reset on a masked step counts.

    Args:
        cell: The cell.
        params: Its parameters.

    Returns:
        `(carry, z, mask, reset) -> carry` with flags None or bool `[*batch]`.
    """

    def step(carry, z, mask, reset):
        if reset is not None:
            carry = select(reset, cell.initial_carry(params, reset.shape), carry)
        new_carry = cell.advance(params, carry, z)
        checks.same_tree(new_carry, carry, "advance(params, carry, z)")
        return new_carry if mask is None else select(mask, new_carry, carry)

    return step


def flip(tree: Any) -> Any:
    """Turns the time axis (axis 0) of every leaf round; None stays None."""
    return jax.tree.map(lambda leaf: jnp.flip(leaf, 0), tree)


def flip_reset(reset: Any) -> Any:
    """The reset flags of the sequence read backwards.

    reset[t] says that a boundary lies between t - 1 and t. Read backwards that boundary stands
    in front of step t - 1, so the flags turn round and move by one; what stood in front of step 0
    lies behind the last step and has no step to act on.

    Args:
        reset: None or bool `[T, *batch]`.

    Returns:
        None or bool `[T, *batch]`.

    Example:
        >>> flip_reset(jnp.array([True, False, True]))
        Array([False,  True, False], dtype=bool)
    """
    if reset is None or reset.shape[0] == 0:
        return reset
    return jnp.roll(jnp.flip(reset, 0).at[-1].set(False), 1, axis=0)


def in_reverse(run: Callable[..., Any], xs: Any, mask: Any, reset: Any) -> Any:
    """Runs `run(xs, mask, reset) -> Rollout` backwards in time, outputs in the order of `xs`."""
    rollout = run(flip(xs), flip(mask), flip_reset(reset))
    return rollout._replace(outputs=flip(rollout.outputs))


def detach(carry: Any) -> Any:
    """Keeps the values of a carry and cuts its derivative.

    Args:
        carry: Any tree of arrays.

    Returns:
        The same values; gradients do not pass. Detaching is not resetting.

    Example:
        >>> jax.grad(lambda h: (detach(h) * h))(jnp.float32(3.0))
        Array(3., dtype=float32)
    """
    return jax.tree.map(lax.stop_gradient, carry)


def select_carry(flag: Any, yes: Any, no: Any) -> Any:
    """Takes the carry `yes` in the rows where `flag` is True and `no` in the others.

    Args:
        flag: bool `[*batch]`.
        yes: A carry with leaves `[*batch, ...]`.
        no: A carry like `yes`.

    Returns:
        A carry like `yes`; NaN in the carry not taken reaches nothing.

    Raises:
        TypeError: `flag` is not bool, or the carries differ in structure or dtypes.
        ValueError: The carries differ in shape, or `flag` is no leading part of it.

    Example:
        >>> select_carry(jnp.array([True, False]), jnp.ones(2), jnp.array([jnp.nan, 5.0]))
        Array([1., 5.], dtype=float32)
    """
    flag = jnp.asarray(flag)
    if flag.dtype != bool:
        raise TypeError(f"flag must be bool, got {flag.dtype}.")
    checks.same_tree(yes, no, "yes")
    for leaf in jax.tree.leaves(yes):
        if jnp.shape(leaf)[: flag.ndim] != flag.shape:
            raise ValueError(
                f"flag must be a leading part of every leaf, got {flag.shape} "
                f"for a leaf {jnp.shape(leaf)}."
            )
    return select(flag, yes, no)


def broadcast_carry(carry: Any, batch_shape: tuple[int, ...]) -> Any:
    """Repeats a carry without batch axes over a batch.

    Args:
        carry: A carry with leaves `[...]`.
        batch_shape: The batch axes to put in front.

    Returns:
        The carry with leaves `[*batch, ...]`.

    Example:
        >>> broadcast_carry(jnp.array([1.0, 2.0]), (3,)).shape
        (3, 2)
    """
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (*batch_shape, *jnp.shape(leaf))), carry
    )
