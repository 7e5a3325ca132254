"""What the readers of language models share: stacks of blocks, and the cap of the logits."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._torch_arrays import as_numpy
from jaxrnn.layers import repeat, serial
from jaxrnn.types import Layer, Params


def soft_cap(x: Any, cap: float) -> Any:
    """cap tanh(x / cap), which is between -cap and cap and has the slope 1 at 0."""
    return cap * jnp.tanh(x / cap)


def stack_of(blocks: Sequence[tuple[Layer, Params]]) -> tuple[list[Layer], list[Params]]:
    """Blocks one after another, with those that come again in the same order as a loop.

    The blocks a, a, b, a, a, b, a become `repeat(serial(a, a, b), 2)` and a.
    """
    models = [model for model, _ in blocks]
    period = next(
        size for size in range(1, len(models) + 1) if models[size:] == models[: len(models) - size]
    )
    num_rounds = len(models) // period
    if num_rounds == 1:
        return models, [params for _, params in blocks]
    rounds = [
        tuple(params for _, params in blocks[start : start + period])
        for start in range(0, num_rounds * period, period)
    ]
    rest = blocks[num_rounds * period :]
    loop = repeat(serial(*models[:period]), num_rounds)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)
    return [loop, *(model for model, _ in rest)], [stacked, *(params for _, params in rest)]


def flat_arrays(arrays: Any, prefix: str) -> Arrays:
    """The arrays of a mapping whose names begin with `prefix`, by the rest of their names.

    Mappings in the mapping are joined to it with a dot.

    Raises:
        TypeError: `arrays` is not a mapping.
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(
            "arrays must be a mapping from names to arrays, such as module.state_dict(), got "
            f"{type(arrays).__name__}."
        )
    inside = {
        name.removeprefix(prefix): as_numpy(value, name)
        for name, value in _flat(arrays, "")
        if name.startswith(prefix)
    }
    return Arrays(inside, "the checkpoint")


def _flat(arrays: Mapping[str, Any], before: str) -> Any:
    for name, value in arrays.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def check_claims(config: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raises a ValueError where an option says something else than the arrays."""
    for key, value in found.items():
        claim = config.get(key)
        if claim is not None and claim != value:
            raise ValueError(
                f"config says {key!r} is {claim!r}, but by the arrays it is {value!r}."
            )


def check_known(config: Any, known: Collection[str], fixed: Mapping[str, Sequence[Any]]) -> None:
    """Raises where a config has a key that is not known, or a value without a counterpart.

    Raises:
        TypeError: `config` is not a mapping.
        ValueError: a key or a value is not one of these.
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a mapping of options, got {type(config).__name__}.")
    for key, value in config.items():
        if key in fixed and value not in fixed[key]:
            raise ValueError(
                f"config has {key!r}: {value!r}, which has no counterpart here; it must be "
                f"{fixed[key][0]!r}."
            )
        if key not in {*known, *fixed}:
            raise ValueError(
                f"config has the unknown key {key!r}; leave it out if the function of the network "
                "does not depend on it."
            )
