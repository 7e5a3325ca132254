"""A linear cell over all steps at once."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.evaluators.one_object import one_object
from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.linear_scan import METHODS, linear_scan
from jaxrnn.engine.precision import project
from jaxrnn.types import Affine, Cell, Evaluator, Path, Rollout


@one_object
def associative(method: str = "associative") -> Evaluator:
    """Evaluates a linear cell through `linear_scan`: depth O(log T) where its method is parallel.

        (aₜ, bₜ) = project(params, xₜ) for all t,  h = linear_scan(a, b),  yₜ = emit(params, hₜ, xₜ)

    All carries are kept until the outputs are made: memory O(T · N).

    Args:
        method: The method of `linear_scan`.

    Returns:
        The evaluator; `info` names it and the method. It raises TypeError, while tracing, for a
        cell whose `project` returns no `Affine`; `newton` and `sequential` take such cells.

    Raises:
        ValueError: `method` is none of `linear_scan`'s.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> halve = jr.simple_cell(
        ...     init=lambda key, num_inputs: (), num_outputs=1,
        ...     project=lambda params, x: jr.Affine(jnp.full_like(x, 0.5), x),
        ...     advance=lambda params, carry, z: z.a * carry + z.b,
        ... )
        >>> xs = jnp.array([[1.0], [2.0], [0.0]])
        >>> jr.unroll(halve, (), xs, evaluator=jr.associative()).outputs[:, 0]
        Array([1.  , 2.5 , 1.25], dtype=float32)
    """

    if method not in METHODS:
        raise ValueError(f"method must be one of {tuple(METHODS)}, got {method!r}.")

    def evaluate(cell: Cell, params: Any, carry: Any, xs: Any, mask: Any, reset: Any) -> Rollout:
        z = project(cell, params, xs)
        if not isinstance(z, Affine):
            raise TypeError(
                "associative() needs a linear cell, whose project returns Affine(a, b), "
                f"got {type(z).__name__}: use sequential() or newton()."
            )
        num_steps = jax.tree.leaves(xs)[0].shape[0]
        if num_steps == 0:
            return sequential()(cell, params, carry, xs, mask, reset)

        def solve(a, b, h0, initial):
            b = jnp.broadcast_to(b, (num_steps, *h0.shape))
            return linear_scan(
                a, b, h0, mask=mask, reset=reset, initial=initial, axis=0, method=method
            )

        carries = jax.tree.map(solve, z.a, z.b, carry, cell.initial_carry(params))
        outputs = cell.emit(params, carries, xs)
        return Rollout(
            jax.tree.map(lambda h: h[-1], carries), outputs, Path(f"associative ({method})")
        )

    return evaluate
