"""`associative`: a linear cell over all steps at once, by `linear_scan`."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrnn.engine.evaluators.sequential.sequential import Sequential
from jaxrnn.engine.linear_scan import METHODS, linear_scan
from jaxrnn.engine.precision import project
from jaxrnn.engine.starts import at_every_step
from jaxrnn.factories import EvaluatorValue
from jaxrnn.types import Affine, Carry, Cell, Params, Rollout, Steps


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class Associative(EvaluatorValue):
    """The evaluator that `associative` makes."""

    method: str = "associative"

    def __post_init__(self):
        """Checks the option."""
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {tuple(METHODS)}, got {self.method!r}.")

    def __call__(self, cell: Cell, params: Params, carry: Carry, steps: Steps) -> Rollout:
        """Runs the cell over the steps, which are time first."""
        z = project(cell, params, steps.xs)
        if not isinstance(z, Affine):
            raise TypeError(
                "associative() needs a linear cell, whose project returns Affine(a, b), "
                f"got {type(z).__name__}: use sequential(), or newton() for a real floating carry."
            )
        num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
        if num_steps == 0:
            return Sequential()(cell, params, carry, steps)

        carry, starts, steps = at_every_step(carry, steps)
        initial = cell.initial_carry(params) if starts is None else starts

        # Coefficients that do not depend on x have no time axis, and `linear_scan` keeps them so.
        def solve(a, b, h0, initial):
            b = jnp.broadcast_to(b, (num_steps, *h0.shape))
            flags = {"mask": steps.mask, "reset": steps.reset}
            return linear_scan(a, b, h0, **flags, initial=initial, axis=0, method=self.method)

        carries = jax.tree.map(solve, z.a, z.b, carry, initial)
        outputs = cell.emit(params, carries, steps.xs)
        return Rollout(jax.tree.map(lambda h: h[-1], carries), outputs, self)


def associative(method: str = "associative") -> Associative:
    """Evaluates a linear cell through `linear_scan`: depth O(log T) where its method is parallel.

        (aₜ, bₜ) = project(params, xₜ) for all t,  h = linear_scan(a, b),  yₜ = emit(params, hₜ, xₜ)

    All carries are kept until the outputs are computed: memory O(T · N).

    Args:
        method: the method of `linear_scan`.

    Returns:
        The evaluator, which is also the `info` of its rollouts. While tracing it raises TypeError
        for a cell whose `project` does not return an `Affine`; `newton` and `sequential` take such
        cells.

    Raises:
        ValueError: `method` is not a method of `linear_scan`.

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
    return Associative(method)
