"""What `unroll`, `step` and `carries` do with their arguments before anything runs."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask
from jaxrnn.types import Cell, Layer, Model, Steps


class Call(NamedTuple):
    """The sequence arguments after their checks, still in the caller's layout."""

    time_axis: int
    steps: Steps

    @classmethod
    def checked(cls, model: Model, xs: Any, mask: Any, reset: Any, time_major: Any) -> "Call":
        """Checks them against each other."""
        if not isinstance(model, Cell | Layer):
            raise TypeError(f"model must be a Cell or a Layer, got {type(model).__name__}.")
        checks.boolean(time_major, "time_major")
        xs = checks.arrays(xs, "xs")
        leading = checks.leading_shape(xs, model.num_feature_axes)
        mask = None if mask is None else as_mask(mask, leading)
        reset = None if reset is None else as_mask(reset, leading, "reset")
        return cls(0 if time_major else len(leading) - 1, Steps(xs, mask, reset))


# Models are equal by value, so equal ones share what was compiled. What is compiled for a model
# outlives it, and a model with a lambda is equal to no other one: old programs have to go.
@functools.lru_cache(maxsize=128)
def compiled(run: Callable[..., Any], model: Model, *options: Any) -> Callable[..., Any]:
    """`run(model, *options, *arrays)` jitted as a function of the arrays; the last 128 are kept.

    Args:
        run: what to jit.
        model: a cell or a layer.
        *options: further static arguments, which are hashable.

    Returns:
        The jitted function.
    """
    return jax.jit(functools.partial(run, model, *options), inline=True)


@contextlib.contextmanager
def naming_params(model, params, xs):
    """Says `params` where what went wrong has another structure than `init` makes."""
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
    """The structure of the parameters for such inputs, None where that cannot be told."""
    by_width = model.num_feature_axes == 1 and isinstance(xs, jax.Array)
    num_inputs = xs.shape[-1] if by_width else 1
    try:
        params = jax.eval_shape(lambda key: model.init(key, num_inputs), jax.random.key(0))
    except (AttributeError, TypeError, ValueError):
        return None
    return jax.tree.structure(params)
