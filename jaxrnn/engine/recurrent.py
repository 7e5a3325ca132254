"""A cell as a layer."""

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.auto import auto
from jaxrnn.engine.time import in_reverse
from jaxrnn.types import Cell, Evaluator, Layer


def recurrent(cell: Cell, evaluator: Evaluator | None = None, reverse: bool = False) -> Layer:
    """Runs a cell over the sequence.

        hₜ = advance(params, hₜ₋₁, project(params, xₜ)),  yₜ = emit(params, hₜ, xₜ)

    Args:
        cell: The cell; its params and carry are the layer's.
        evaluator: How it is evaluated; None is `auto()`. For forward mode (`jax.jvp`) give
            `sequential(derivative="autodiff")`.
        reverse: Read the sequence from its end. Such a layer is not causal.

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, H]`.

    Raises:
        TypeError: `cell` is not a Cell, `evaluator` no Evaluator, or `reverse` no bool.

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

    def unroll(params, carry, xs, mask, reset, key):
        def run(xs, mask, reset):
            prepared = xs if cell.prepare is None else cell.prepare(params, key, xs, reset)
            return evaluate(cell, params, carry, prepared, mask, reset)

        return in_reverse(run, xs, mask, reset) if reverse else run(xs, mask, reset)

    return Layer(
        init=cell.init,
        initial_carry=cell.initial_carry,
        unroll=unroll,
        num_outputs=cell.num_outputs,
        causal=not reverse,
        num_feature_axes=cell.num_feature_axes,
    )


def as_layer(cell_or_layer: Cell | Layer, name: str = "cell_or_layer") -> Layer:
    """A layer as it is, a cell as `recurrent(cell)`; anything else raises TypeError."""
    if isinstance(cell_or_layer, Layer):
        return cell_or_layer
    if isinstance(cell_or_layer, Cell):
        return recurrent(cell_or_layer)
    raise TypeError(f"{name} must be a Cell or a Layer, got {type(cell_or_layer).__name__}.")
