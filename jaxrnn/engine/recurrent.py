"""`recurrent`, which makes a layer of a cell and an evaluator."""

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.auto import auto
from jaxrnn.engine.time import backwards
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Evaluator, Inside, Layer


@model_factory
def recurrent(cell: Cell, evaluator: Evaluator | None = None, reverse: bool = False) -> Layer:
    """Runs a cell over the sequence.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    Args:
        cell: the cell; its params and carry are those of the layer.
        evaluator: how it is evaluated; None is `auto()`.
        reverse: whether the sequence is read from its end. Such a layer is not causal.

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, H]`.

    Raises:
        TypeError: `cell` is not a Cell, `evaluator` is not an Evaluator, `reverse` is not a bool,
            or the evaluator cannot evaluate this cell (some also raise ValueError).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.recurrent(jr.gru(4), reverse=True)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    checks.is_cell(cell)
    checks.boolean(reverse, "reverse")
    evaluate = auto() if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, cell)

    # Noise is drawn for all steps before the evaluator sees them, so every evaluator gets the same
    # numbers.
    def prepared(params, steps, key):
        if cell.prepare is None:
            return steps
        return steps._replace(xs=cell.prepare(params, key, steps.xs, steps.reset))

    def unroll(params, carry, steps, key):
        return evaluate(cell, params, carry, prepared(params, steps, key))

    def inside(params, carry, steps, key):
        steps = prepared(params, steps, key)

        # The cell once more, with its carry for its output: the same noise, and one unroll.
        def carries():
            watched = cell._replace(emit=lambda params, carry, x: carry)
            return auto()(watched, params, carry, steps).outputs

        return Inside(evaluate(cell, params, carry, steps), carries)

    layer = Layer(
        init=cell.init,
        initial_carry=cell.initial_carry,
        unroll=unroll,
        num_outputs=cell.num_outputs,
        num_feature_axes=cell.num_feature_axes,
        roles=cell.roles,
        inside=inside,
    )
    return backwards(layer) if reverse else layer


def as_layer(model: Cell | Layer, name: str = "model") -> Layer:
    """A layer as it is, a cell as `recurrent(cell)`; anything else raises TypeError."""
    if isinstance(model, Layer):
        return model
    if isinstance(model, Cell):
        return recurrent(model)
    raise TypeError(f"{name} must be a Cell or a Layer, got {type(model).__name__}.")
