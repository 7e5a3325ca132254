"""A skip connection around a layer."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine.flags import check_keeps_steps
from jaxrnn.engine.inside import look_inside, rollout_of
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Inside, Layer


@model_factory
def residual(layer: Cell | Layer) -> Layer:
    """Adds a layer's outputs to its inputs.

        y = x + layer(x)

    He et al. 2016 (arXiv:1512.03385). The sum has the dtype promote(x, layer(x)): bfloat16 inputs
    are added to a float32 recurrence in float32.

    Args:
        layer: a cell or a layer that keeps the width.

    Returns:
        The layer, `[..., D] -> [..., D]`, with the params, carry and info of `layer`. It raises
        ValueError in `init`, `num_outputs` and while tracing when the widths of x and of the
        outputs differ, and while tracing when `layer` changes the steps, as `subsample` does.

    Raises:
        TypeError: `layer` is neither a Cell nor a Layer.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> identity = jr.elman(2, activation=lambda u: u)
        >>> params = jr.cells.ElmanParams(2 * jnp.eye(2), jnp.zeros((2, 2)), jnp.zeros(2))
        >>> jr.unroll(jr.residual(identity), params, jnp.array([[1.0, 0.0]])).outputs
        Array([[3., 0.]], dtype=float32)
    """
    inner = as_layer(layer, "layer")

    def num_outputs(num_inputs):
        width = inner.num_outputs(num_inputs)
        if width != num_inputs:
            raise ValueError(
                "layer must keep the width to be residual, "
                f"got the width {width} for inputs of width {num_inputs}."
            )
        return width

    def init(key, num_inputs):
        num_outputs(num_inputs)
        return inner.init(key, num_inputs)

    def inside(params, carry, steps, key):
        run = look_inside(inner, params, carry, steps, key)
        rollout = run.rollout
        num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
        check_keeps_steps(inner, rollout, num_steps, "to be residual")
        shape, wanted = (jax.tree.map(np.shape, tree) for tree in (rollout.outputs, steps.xs))
        if shape != wanted:
            raise ValueError(
                f"layer must keep the shape to be residual, got outputs {shape} for xs {wanted}."
            )
        outputs = jax.tree.map(jnp.add, steps.xs, rollout.outputs)
        return Inside(rollout._replace(outputs=outputs), run.carries, lambda: (run,))

    return inner._replace(
        init=init, unroll=rollout_of(inside), num_outputs=num_outputs, inside=inside
    )
