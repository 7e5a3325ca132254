"""Parameters in files of safetensors: arrays by readable names, and nothing that can run."""

import os
import pathlib
import uuid
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn._version import __version__
from jaxrnn.interop._imported import Arrays, kept_by_jax
from jaxrnn.interop._names import by_name, from_names
from jaxrnn.types import Model, Params

# Dtypes by their names in a file.
DTYPES = {
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "BF16": jnp.dtype(jnp.bfloat16),
    "BOOL": np.dtype(bool),
    "C64": np.dtype(np.complex64),
}


def save_params(path: Any, params: Params, model: Model | None = None) -> None:
    """Writes parameters to a safetensors file, or nothing.

    Each array has the name of its path in the tree, such as `0.forward.recurrent_kernel`. The file
    says which version wrote it, and with `model` which model the parameters are for. It is written
    under another name and then renamed, so `path` holds either all of it or what it held before.

    Args:
        path: file to write; one that is there is replaced.
        params: tree of arrays, parameters or others.
        model: model of the parameters, whose call goes into the file for people to read.

    Returns:
        None.

    Raises:
        TypeError: A leaf is not an array of numbers that safetensors can hold.
        ValueError: Two leaves have the same name, or one is named `__metadata__`.
        ImportError: safetensors is not installed; `pip install '.[files]'` installs it.

    Example:
        >>> import jax, jaxrnn as jr, tempfile
        >>> model = jr.serial(jr.lstm(4), jr.dense(2))
        >>> params = model.init(jax.random.key(0), 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     jr.interop.save_params(f"{folder}/net.safetensors", params, model)
        ...     again = jr.interop.load_params(f"{folder}/net.safetensors", like=params)
        >>> bool((again[0].kernel == params[0].kernel).all())
        True
    """
    from safetensors.numpy import save

    arrays = {name: _as_array(leaf, name) for name, leaf in by_name(params).items()}
    if "__metadata__" in arrays:
        raise ValueError("params must not have a leaf named '__metadata__', as the file has one.")
    metadata = {"format": "jaxrnn", "version": __version__}
    if model is not None:
        metadata["model"] = repr(model)
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}.")
    whole = save(arrays, metadata)
    # A name that no other call has, so that each removes its own.
    unfinished = path.with_name(f".{uuid.uuid4().hex}.unfinished")
    try:
        with unfinished.open("xb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load_params(path: Any, like: Params) -> Params:
    """Reads parameters from a safetensors file.

    Args:
        path: file that `save_params` wrote, or any other with these names.
        like: parameters with the structure and the shapes of those in the file, or what
            `jax.eval_shape(lambda key: model.init(key, num_inputs), key)` says of them.

    Returns:
        The tree of `like` with the arrays of the file, which keep their dtypes.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: An array is of another kind than in `like`, such as ints for floats, or a leaf of
            `like` is not an array or a shape.
        ValueError: The file is damaged or no safetensors file; an array is missing, left over or of
            another shape; or an array is float64 where JAX computes in float32.
        ImportError: safetensors is not installed; `pip install '.[files]'` installs it.

    Example:
        See `save_params`.

        >>> import jaxrnn as jr
        >>> jr.interop.load_params("missing.safetensors", like=())
        Traceback (most recent call last):
        ...
        FileNotFoundError: [Errno 2] No such file or directory: 'missing.safetensors'
    """
    from safetensors import SafetensorError, deserialize

    try:
        stored = deserialize(pathlib.Path(path).read_bytes())
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    arrays = {name: _read(one, f"{name!r} of {path}") for name, one in stored}
    checked, read = Arrays(arrays, str(path)), {}
    for name, leaf in by_name(like).items():
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(
                "like must have arrays or their shapes as leaves, those of the parameters, got "
                f"{leaf!r} for {name!r}."
            )
        array = kept_by_jax(checked.take(name, *leaf.shape), name)
        if _kind(array.dtype) != _kind(leaf.dtype):
            raise TypeError(f"{name!r} of {path} must be like {leaf.dtype}, got {array.dtype}")
        read[name] = jnp.asarray(array)
    checked.finish()
    return from_names(read, like)


def _as_array(leaf: Any, name: str) -> np.ndarray:
    is_array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
    if not is_array or leaf.dtype not in DTYPES.values():
        raise TypeError(
            f"params must have arrays of {', '.join(map(str, DTYPES.values()))} as leaves, got "
            f"{leaf!r} for {name!r}"
        )
    # A transposed view lies in another order in memory, and safetensors writes memory as it lies.
    return np.asarray(leaf, order="C")


def _read(stored: dict[str, Any], name: str) -> np.ndarray:
    if stored["dtype"] not in DTYPES:
        raise ValueError(f"{name} has the dtype {stored['dtype']}, which cannot be read")
    return np.frombuffer(stored["data"], DTYPES[stored["dtype"]]).reshape(stored["shape"])


def _kind(dtype: Any) -> str:
    kinds = {"complex": np.complexfloating, "float": np.floating, "int": np.integer}
    return next((name for name, kind in kinds.items() if jnp.issubdtype(dtype, kind)), str(dtype))
