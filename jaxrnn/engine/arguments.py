"""The arguments of `unroll`, `step` and `carries`: their checks, and the compiled function."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask
from jaxrnn.types import Cell, Layer, Mask, Model, Reset, Steps


def check_model(model: Any) -> None:
    """Raises TypeError unless `model` is a Cell or a Layer."""
    if not isinstance(model, Cell | Layer):
        raise TypeError(f"model must be a Cell or a Layer, got {type(model).__name__}.")


class Call(NamedTuple):
    """The arguments that are sequences, checked, and still in the caller's layout."""

    time_axis: int
    steps: Steps

    @classmethod
    def checked(cls, model: Model, xs: Any, mask: Mask, reset: Reset, time_major: Any) -> "Call":
        """Checks the sequences against each other."""
        check_model(model)
        checks.boolean(time_major, "time_major")
        xs = checks.arrays(xs, "xs")
        leading = checks.leading_shape(xs, model.num_feature_axes)
        mask = None if mask is None else as_mask(mask, leading)
        reset = None if reset is None else as_mask(reset, leading, "reset")
        return cls(0 if time_major else len(leading) - 1, Steps(xs, mask, reset))


# Models are values, so equal ones share a program. The cache is bounded because a program outlives
# its model, and a model made with a new lambda each time is equal to no earlier one.
@functools.lru_cache(maxsize=128)
def compiled(run: Callable[..., Any], model: Model, *options: Any) -> Callable[..., Any]:
    """`run(model, *options, *arrays)` jitted as a function of the arrays; the last 128 are kept.

    Args:
        run: the function to jit.
        model: a cell or a layer, its first argument.
        *options: further static arguments, hashable.

    Returns:
        The jitted function.
    """
    # Inlined, a call under a caller's `jit` leaves no nested program there.
    return jax.jit(functools.partial(run, model, *options), inline=True)


@contextlib.contextmanager
def naming_params(model, params, xs):
    """Blames an error on `params` when they do not have the structure that `init` makes."""
    # Only after an error, because the comparison costs a trace of `init`.
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        came, wanted = jax.tree.structure(params), _structure_of_init(model, xs)
        if wanted is not None and came != wanted:
            raise TypeError(
                f"params must have the structure {wanted} that init makes, got {came}."
            ) from error
        raise


def _structure_of_init(model, xs):
    """The structure of the parameters that `init` makes, or None if it cannot be found out."""
    # Inputs that are a tree or indices do not show their number; 1 gives the same structure.
    by_width = model.num_feature_axes == 1 and isinstance(xs, jax.Array)
    num_inputs = xs.shape[-1] if by_width else 1
    try:
        params = jax.eval_shape(lambda key: model.init(key, num_inputs), jax.random.key(0))
    except (AttributeError, TypeError, ValueError):
        return None
    return jax.tree.structure(params)
