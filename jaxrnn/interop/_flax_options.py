"""The options of a module of flax: those that a reader takes, and those that it refuses."""

import inspect
from typing import Any

import jax.numpy as jnp

from jaxrnn.factories import word

# Options that say nothing about the function: sizes that the arrays have too, how parameters are
# made, how a loop is compiled, and what the parts of a module are.
_WITHOUT_MEANING = {
    *("name", "parent", "rngs", "keep_rngs", "deterministic", "rng_collection"),
    *("features", "in_features", "hidden_features", "out_features", "num_features"),
    *("kernel_init", "recurrent_kernel_init", "bias_init", "scale_init", "embedding_init"),
    *("param_dtype", "unroll", "state_axes", "use_fast_variance"),
    *("cell", "layers", "forward_rnn", "backward_rnn"),
}
_ADVICE = {
    "time_major": "import it with time_major=False and pass time_major=True to unroll",
    "return_carry": "inside a Sequential only outputs are passed on",
    "dtype": "unroll computes in the dtype of the parameters, and in float32 at least",
    "carry_init": "import it without, and pass the carry to unroll",
    "keep_order": "unroll returns outputs in the order of xs; flip them where they are used",
}


def check_read(module: Any, path: str, *read: str) -> None:
    """Raises for an option that is neither read, nor without meaning here, nor at its default."""
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        if parameter.default is parameter.empty or name in _WITHOUT_MEANING or name in read:
            continue
        value = getattr(module, name, parameter.default)
        if name == "dtype":
            # None is that of the parameters.
            if value is not None and jnp.dtype(value) != jnp.dtype(module.param_dtype):
                raise unsupported(path, module, name, jnp.dtype(module.param_dtype))
        elif value != parameter.default:
            raise unsupported(path, module, name, parameter.default)


def unsupported(path: str, module: Any, name: str, supported: Any) -> ValueError:
    """The error of an option, with the one value that it may have."""
    advice = f": {_ADVICE[name]}" if name in _ADVICE else ""
    return ValueError(
        f"{name} of {place(path)}, {type(module).__name__}, must be {word(supported)}, "
        f"got {word(getattr(module, name))}{advice}"
    )


def place(path: str) -> str:
    """A part of the module, for errors."""
    return f"the part at {path.rstrip('/')!r}" if path else "module"
