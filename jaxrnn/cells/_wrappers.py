"""`simple_cell`, a short way to write a cell, and `learned_initial_carry`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks, precision
from jaxrnn.engine.carry import broadcast_carry
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.factories import model_factory
from jaxrnn.roles import check_roles
from jaxrnn.types import Cell, Split


@model_factory
def simple_cell(
    init: Callable[..., Any],
    advance: Callable[[Any, Any, Any], Any],
    num_outputs: int,
    *,
    initial_carry: Callable[..., Any] | None = None,
    project: Callable[[Any, Any], Any] | None = None,
    emit: Callable[[Any, Any, Any], Any] | None = None,
    num_feature_axes: Any = 1,
    roles: Any = None,
) -> Cell:
    """Makes a cell from an initialiser and a step, with defaults for everything else.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    Args:
        init: `(key, num_inputs) -> params`.
        advance: `(params, carry, z) -> carry`; keeps the carry's structure, shapes and dtypes.
        num_outputs: width of y.
        initial_carry: `(params, batch_shape=()) -> carry`; None is zeros `[*batch, num_outputs]` in
            promote(params, float32).
        project: `(params, x) -> z`; None is z = x.
        emit: `(params, carry, x) -> y`; None is y = carry, which must then be one array.
        num_feature_axes: number of axes of x after batch and time; an int, or a tree of ints like
            x.
        roles: what the parameters are for, in the words of `parameter_labels`: one word for all of
            them, or a tree prefix of params. None: the classes of the parameters declare it, and
            parameters without a declaration are unlabelled.

    Returns:
        The cell.

    Raises:
        TypeError: `num_outputs` is not an int, a role is not a string, or (while tracing) the carry
            is not a single array and there is no `emit`.
        ValueError: `num_outputs` is below 1, or `roles` has a word that is not a role.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> def init(key, num_inputs):
        ...     return {"rate": jnp.full(num_inputs, 0.5)}
        >>> def advance(params, carry, z):
        ...     return params["rate"] * carry + (1 - params["rate"]) * z
        >>> smoother = jr.simple_cell(init, advance, num_outputs=1, roles={"rate": "ssm"})
        >>> xs = jnp.array([[2.0], [0.0], [4.0]])
        >>> jr.unroll(smoother, smoother.init(jax.random.key(0), 1), xs).outputs[:, 0]
        Array([1.  , 0.5 , 2.25], dtype=float32)
    """
    checks.positive(num_outputs, "num_outputs")
    check_roles(roles)

    def zeros(params, batch_shape=()):
        return jnp.zeros((*batch_shape, num_outputs), precision.compute_dtype(params))

    def the_input(params, x):
        del params
        return x

    def the_carry(params, carry, x):
        del params, x
        if not jax.tree_util.all_leaves([carry]):
            raise TypeError(
                "emit must be given to simple_cell when the carry is not a single array, "
                f"got the carry {jax.tree.structure(carry)}."
            )
        return carry

    return Cell(
        init=init,
        initial_carry=zeros if initial_carry is None else initial_carry,
        project=the_input if project is None else project,
        advance=advance,
        emit=the_carry if emit is None else emit,
        num_outputs=lambda num_inputs: num_outputs,
        num_feature_axes=num_feature_axes,
        roles=roles,
    )


class LearnedInitialCarryParams(NamedTuple):
    """`cell`, the cell's parameters, and `initial_carry`, a carry without batch axes.

    Complex leaves of the carry are `ComplexParts`.
    """

    cell: Any
    initial_carry: Any
    roles = {"initial_carry": "recurrent"}


class ComplexParts(NamedTuple):
    """A complex parameter as two real ones, which any optimiser moves in the right direction."""

    real: Any
    imag: Any


@model_factory
def learned_initial_carry(cell: Cell) -> Cell:
    """Makes the initial carry of every sequence, to which resets return, a parameter.

        h₀ = params.initial_carry

    Before training it is the cell's own initial carry. Complex leaves are stored as `ComplexParts`,
    because `jax.grad` gives the conjugate of a complex gradient and optax does not conjugate it
    back. Integer leaves have gradients of dtype float0, so a cell with them needs
    `jax.grad(..., allow_int=True)`.

    Args:
        cell: the cell.

    Returns:
        The cell with `LearnedInitialCarryParams(cell, initial_carry)`.

    Raises:
        TypeError: `cell` is not a Cell.

    Example:
        >>> import jax, jaxrnn as jr
        >>> cell = jr.learned_initial_carry(jr.gru(4))
        >>> cell.init(jax.random.key(0), 3).initial_carry.h.shape
        (4,)
    """

    checks.is_cell(cell)

    def init(key, num_inputs):
        params = cell.init(key, num_inputs)
        return LearnedInitialCarryParams(params, _parted(cell.initial_carry(params)))

    def initial_carry(params, batch_shape=()):
        carry = _joined(in_compute_dtype(params, params.initial_carry))
        # A copy: a carry that shared its buffer with the parameter could not be donated.
        return broadcast_carry(jax.tree.map(jnp.copy, carry), batch_shape)

    def on_inner(function):
        return lambda params, *args: function(params.cell, *args)

    if isinstance(cell.advance, Split):
        advance = cell.advance._replace(mix=on_inner(cell.advance.mix))
    else:
        advance = on_inner(cell.advance)
    return cell._replace(
        init=init,
        initial_carry=initial_carry,
        project=on_inner(cell.project),
        advance=advance,
        emit=on_inner(cell.emit),
        prepare=cell.prepare and on_inner(cell.prepare),
        response=cell.response and on_inner(cell.response),
        roles=LearnedInitialCarryParams(cell.roles, None),
    )


def _parted(carry: Any) -> Any:
    return jax.tree.map(
        lambda leaf: ComplexParts(leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else leaf, carry
    )


def _joined(carry: Any) -> Any:
    def is_parts(node):
        return isinstance(node, ComplexParts)

    return jax.tree.map(
        lambda node: lax.complex(*node) if is_parts(node) else node, carry, is_leaf=is_parts
    )
