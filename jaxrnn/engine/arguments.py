"""What `unroll`, `step` and `carries` do with their arguments before anything runs."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask
from jaxrnn.types import Cell, Layer


class Call(NamedTuple):
    """The sequence arguments after their checks, still in the caller's layout."""

    time_axis: int
    arrays: tuple[Any, Any, Any]

    @classmethod
    def checked(cls, cell_or_layer, xs, mask, reset, time_major):
        """Checks them against each other."""
        if not isinstance(cell_or_layer, Cell | Layer):
            raise TypeError(
                f"cell_or_layer must be a Cell or a Layer, got {type(cell_or_layer).__name__}."
            )
        checks.boolean(time_major, "time_major")
        xs = checks.arrays(xs, "xs")
        leading = checks.leading_shape(xs, cell_or_layer.num_feature_axes)
        mask = None if mask is None else as_mask(mask, leading)
        reset = None if reset is None else as_mask(reset, leading, "reset")
        return cls(0 if time_major else len(leading) - 1, (xs, mask, reset))


class ByIdentity:
    """A record as a static argument: equal when its fields are the same objects.

    The fields may hold trees (`num_feature_axes`), which have no hash of their own.
    """

    def __init__(self, record):
        """Wraps a Cell or a Layer."""
        self.record = record

    def __hash__(self):
        """Of the objects that the fields are."""
        return hash(tuple(map(id, self.record)))

    def __eq__(self, other):
        """Whether both have the same objects as fields."""
        return type(self.record) is type(other.record) and all(
            mine is theirs for mine, theirs in zip(self.record, other.record, strict=True)
        )


def jit_by_record(num_options: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Jits `run(record, *options, *arrays)` for each record and its options.

    So a cell that is kept compiles once per shape outside `jit` too. The last 128 programs are
    kept, and not all, because what is compiled for a cell outlives the cell.

    Args:
        num_options: How many arguments behind the record are options, which are hashable.

    Returns:
        The decorator.
    """

    def decorate(run):
        @functools.lru_cache(maxsize=128)
        def compiled(static, *options):
            return jax.jit(functools.partial(run, static.record, *options), inline=True)

        @functools.wraps(run)
        def call(record, *args):
            return compiled(ByIdentity(record), *args[:num_options])(*args[num_options:])

        return call

    return decorate


@contextlib.contextmanager
def naming_params(cell_or_layer, params, xs):
    """Says `params` where what went wrong has another structure than `init` makes."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        came, wanted = jax.tree.structure(params), _structure_of_init(cell_or_layer, xs)
        if wanted is not None and came != wanted:
            raise TypeError(
                f"params must have the structure {wanted} that init makes, got {came}."
            ) from error
        raise


def _structure_of_init(cell_or_layer, xs):
    """The structure of the parameters for such inputs, None where that cannot be told."""
    by_width = cell_or_layer.num_feature_axes == 1 and isinstance(xs, jax.Array)
    num_inputs = xs.shape[-1] if by_width else 1
    try:
        params = jax.eval_shape(lambda key: cell_or_layer.init(key, num_inputs), jax.random.key(0))
    except (AttributeError, TypeError, ValueError):
        return None
    return jax.tree.structure(params)
