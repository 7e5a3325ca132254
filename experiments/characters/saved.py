"""Trained parameters in a run folder, and how another experiment gets them back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.characters.config import Config
from experiments.characters.model import Sized, sized
from experiments.characters.training import Trained
from experiments.frame.errors import ExperimentError
from experiments.frame.run_folder import RunFolder

PARAMS, TEXT = "params.npz", "text.json"


def save(trained: Sequence[Trained], digest: str, folder: RunFolder) -> None:
    """Writes the parameters of trainings, and of which text they are."""
    arrays: dict[str, Any] = {
        f"{one.name}/{index}": np.asarray(leaf)
        for one in trained
        for index, leaf in enumerate(jax.tree.leaves(one.fitted.params))
    }
    np.savez(folder.path(PARAMS), **arrays)
    folder.write_json(TEXT, {"digest": digest})


def saved_config(folder: Path) -> Config:
    """The options of a finished run.

    Raises:
        ExperimentError: The folder holds none, or it is of another experiment.
    """
    try:
        run = json.loads((folder / "config.json").read_text())
        name = run["experiment"]
        options: dict[str, Any] = dict(run["options"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"--characters: {folder} is no run: {error}") from error
    if name != "characters":
        raise ExperimentError(f"--characters: {folder} is a run of {name}")
    changed: dict[str, Any] = {name: tuple(options[name]) for name in ("models", "modes")}
    return Config(**{**options, **changed, "out": None, "resume": None})


def load(folder: Path, config: Config, mixer: str, digest: str) -> tuple[Sized, Any]:
    """The model of a run and its parameters, trained in the first mode of the run.

    Raises:
        ExperimentError: It is not there, or was trained on the text of another Python.
    """
    model = sized(mixer, config.parameters, config.blocks)
    like, structure = jax.tree.flatten(jax.eval_shape(lambda: model.init(0)))
    names = [f"{mixer} {config.modes[0]}/{index}" for index in range(len(like))]
    try:
        found = json.loads((folder / TEXT).read_text())["digest"]
        with np.load(folder / PARAMS) as arrays:
            leaves = [arrays[name] for name in names]
    except (OSError, ValueError, KeyError) as error:
        raise ExperimentError(f"--characters: {folder} has no trained {mixer}: {error}") from error
    if found != digest:
        raise ExperimentError(
            f"--characters: {folder} is of another text, {found}, than this Python's, {digest}"
        )
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in like]:
        raise ExperimentError(f"--characters: {folder} has a {mixer} of another size")
    return model, jax.tree.unflatten(structure, leaves)
