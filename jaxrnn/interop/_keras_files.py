"""Files of keras: `.keras`, which keras reads, and `.h5`, which is read without it."""

import json
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxrnn.interop._keras import MASKS, check_chain, layers_of
from jaxrnn.interop._keras_layer import ACTIVATIONS, OLD_ACTIVATIONS, KerasLayer


def read_file(path: str) -> list[KerasLayer]:
    """The layers of the model of a file."""
    if not pathlib.Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    if zipfile.is_zipfile(path):
        return layers_of(_load(path))
    return _read_h5(path)


def _load(path: str) -> Any:
    from keras import saving

    try:
        return saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise ValueError(f"keras cannot read {path}: {error}") from error


def _read_h5(path: str) -> list[KerasLayer]:
    """The layers of a file of the format of keras 2, whatever version of keras wrote it."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if "model_config" not in file.attrs or "model_weights" not in file:
                raise ValueError(
                    f"{path} must hold the configuration and the weights of a model, as "
                    "`model.save` writes them; weights alone do not say what they are for"
                )
            config = json.loads(_text(file.attrs["model_config"]))
            version = _text(file.attrs.get("keras_version", "2"))
            old = version.split(".")[0] in ("1", "2")
            activations = OLD_ACTIVATIONS if old else ACTIVATIONS
            return list(_layers(config, file["model_weights"], activations))
    except (OSError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a whole file of keras: {error}") from None


def _layers(config: Any, weights: Any, activations: Mapping[str, Any]) -> Iterator[KerasLayer]:
    """The layers of a configuration, with their arrays in the order of keras."""
    inner = config["config"]
    # The oldest files list the layers of a Sequential without a name for the list.
    inner = {"layers": inner} if isinstance(inner, list) else inner
    check_chain(inner)
    for layer in inner["layers"]:
        name = layer["config"]["name"]
        if layer["class_name"] in MASKS:
            continue
        arrays = []
        if name in weights:
            names = map(_text, weights[name].attrs.get("weight_names", []))
            arrays = [np.asarray(weights[name][one]) for one in names]
        yield KerasLayer(layer["class_name"], layer["config"], arrays, None, activations)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
