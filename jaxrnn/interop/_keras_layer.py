"""A layer as keras describes it: its class, its configuration, its arrays and its state."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import hard_sigmoid
from jaxrnn.cells._activations import identity
from jaxrnn.interop._imported import Arrays, kept_by_jax

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "elu": jax.nn.elu,
    "exponential": jnp.exp,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "linear": identity,
    "relu": jax.nn.relu,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
    "softplus": jax.nn.softplus,
    "softsign": jax.nn.soft_sign,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}
# Where keras 2 means another function by the same name.
OLD_ACTIVATIONS = {**ACTIVATIONS, "hard_sigmoid": hard_sigmoid}


class KerasLayer(NamedTuple):
    """What keras says of a layer.

    Attributes:
        class_name: its class, such as "LSTM".
        config: its configuration.
        weights: its arrays, in the order of keras.
        states: the state of a layer that is stateful, else None.
        activations: the functions by their names, those of keras 3 or of keras 2.
    """

    class_name: str
    config: Mapping[str, Any]
    weights: Sequence[Any]
    states: Sequence[Any] | None = None
    activations: Mapping[str, Callable[[Any], Any]] = ACTIVATIONS

    def name(self) -> str:
        """Its class and its name, for errors."""
        return f"{self.class_name} {self.config.get('name', '')!r}"

    def inner(self, layer: Mapping[str, Any], weights: Sequence[Any]) -> "KerasLayer":
        """A layer inside of this one, as the configuration describes it."""
        return self._replace(
            class_name=layer["class_name"], config=layer["config"], weights=weights
        )

    def arrays(self, *names: str) -> Arrays:
        """The arrays by these names, which must be as many.

        Raises:
            ValueError: if there are more or fewer, or JAX would cut one to 32 bits.
        """
        if len(names) != len(self.weights):
            raise ValueError(
                f"{self.name()} must have the arrays {', '.join(names) or 'none'}, got "
                f"{len(self.weights)} of them"
            )
        pairs = zip(names, self.weights, strict=True)
        arrays = {name: kept_by_jax(np.asarray(weight), name) for name, weight in pairs}
        return Arrays(arrays, self.name())

    def refuse(self, **represented: Any) -> None:
        """Raises a ValueError if an option has another value than the one that we can represent."""
        for name, value in represented.items():
            if self.config.get(name, value) != value:
                raise ValueError(
                    f"{self.name()} has {name}={self.config[name]!r}, which cannot be represented; "
                    f"it must be {value!r}"
                )

    def function(self, option: str, default: str) -> Callable[[Any], Any]:
        """The function of an activation.

        Raises:
            ValueError: if it is not one of those that we know.
        """
        name = self.config.get(option, default)
        if isinstance(name, Mapping):
            name = name.get("config", name)
        name = "linear" if name is None else name
        if not isinstance(name, str) or name not in self.activations:
            raise ValueError(
                f"{self.name()} has the {option} {name!r}; readable are "
                f"{', '.join(self.activations)}"
            )
        return self.activations[name]
