"""The arguments of `unroll`, `step` and `carries`: their checks, and the compiled function."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask
from jaxrnn.engine.remade import Alike, use_with_warning
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


@dataclass
class Program:
    """A jitted function, whether it was used, and what is known of programs that are alike."""

    jitted: Callable[..., Any]
    is_new: bool = True
    alike: Alike | None = None


# Models are values, so equal ones share a program. The cache is bounded because a program outlives
# its model, and a model made with a new lambda each time is equal to no earlier one.
@functools.lru_cache(maxsize=128)
def program(run: Callable[..., Any], *static: Any) -> Program:
    """`run(*static, *arrays)` as a function of the arrays."""
    # Inlined, a call under a caller's `jit` leaves no nested program there.
    return Program(jax.jit(functools.partial(run, *static), inline=True))


def compiled(run: Callable[..., Any], static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Any:
    """`run(*static, *arrays)` jitted as a function of the arrays; the last 128 are kept.

    Warns where a model is made anew at every call with a function that no other is equal to.

    Args:
        run: the function to jit.
        static: a model and further options, all hashable.
        arrays: what it will be called with.

    Returns:
        The jitted function.
    """
    made = program(run, *static)
    if made.is_new:
        made.is_new, made.alike = False, use_with_warning(static, arrays, "model")
    elif made.alike is not None:
        made.alike.num_uses += 1
    return made.jitted
