"""Training that can be killed at any moment and goes on from there, bit for bit."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.frame.errors import ExperimentError
from experiments.frame.run_folder import CHECKPOINTS, RunFolder

ARRAYS = "arrays"
NOT_IDENTITY = ("out", "resume")  # options that change no result
Advance = Callable[[int], Any]  # told of so many more epochs
_PACKAGES = ("jax", "jaxlib", "numpy", "optax")


class Checkpoints:
    """The checkpoints of one run: a folder for each training, in it the last finished epochs.

    A checkpoint is a folder `EPOCH/` with the arrays, written by orbax, and `about.json`: whose it
    is, and a digest of their files. It is written under another name, which it loses when it is
    whole, and the one before it goes after that: a kill leaves one that is whole.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]):
        self.folder = folder
        self.identity = json.loads(json.dumps(identity, default=str))

    @classmethod
    def of_run(cls, folder: RunFolder, name: str, config: Any) -> "Checkpoints":
        """Those of an experiment in its run folder, copied from `config.resume` if that is given.

        An ExperimentError if there is nothing to go on from, or it is of another experiment, of
        other options or versions, or damaged.
        """
        checkpoints = cls(folder.path(CHECKPOINTS), identity(name, config))
        if config.resume is not None:
            old = _found(config.resume)
            checkpoints.check(old)
            shutil.copytree(old, checkpoints.folder)
        return checkpoints

    def check(self, old: Path) -> None:
        """Raises ExperimentError unless every training in `old` can be gone on with."""
        for training in sorted(old.iterdir()):
            if last := _last(training):
                self._read(last)

    def run(
        self,
        training: str,
        state: Any,
        num_epochs: int,
        one_epoch: Callable[[Any, int], tuple[Any, Mapping[str, Any]]],
        *,
        every: int = 1,
        advance: Advance = lambda epochs: None,
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Runs the epochs of a training that have not been run yet.

        Args:
            training: Its name, one of its own within the run.
            state: The tree of arrays in front of epoch 0.
            num_epochs: All epochs, those done before included.
            one_epoch: `(state, epoch) -> (state, metrics)`, arrays whose shapes do not change. It
                has no other memory: randomness comes from `epoch` and constants, or is in `state`.
            every: Epochs from one checkpoint to the next; the last epoch always makes one.
            advance: Is told of so many more epochs, those done before at the start.

        Returns:
            The last state, and the metrics of all epochs with a leading axis of epochs, in the
            order of their names.

        Raises:
            ExperimentError: The checkpoint does not fit `state`.
        """
        folder = self.folder / training.replace(" ", "_")
        done, state, history = self._restored(folder, state)
        advance(done)
        for epoch in range(done, num_epochs):
            state, metrics = one_epoch(state, epoch)
            one = {name: np.asarray(value)[None] for name, value in sorted(metrics.items())}
            history = {n: np.concatenate([history[n], v]) if history else v for n, v in one.items()}
            if (epoch + 1) % every == 0 or epoch + 1 == num_epochs:
                self._write(folder, epoch + 1, state, history)
            advance(1)
        return state, history

    def _write(self, folder, epoch, state, history):
        import orbax.checkpoint as ocp

        arrays = {f"state_{i}": leaf for i, leaf in enumerate(map(_raw, jax.tree.leaves(state)))}
        arrays |= {f"history_{name}": values for name, values in history.items()}
        partial, final = folder / f".{epoch}.partial", folder / str(epoch)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(partial.absolute() / ARRAYS, arrays)
        about = {"identity": self.identity, "epoch": epoch, "digest": _digest(partial / ARRAYS)}
        (partial / "about.json").write_text(json.dumps(about, indent=2) + "\n")
        before = _last(folder)
        partial.rename(final)
        if before is not None:
            shutil.rmtree(before)

    def _restored(self, folder, state):
        last = _last(folder)
        if last is None:
            return 0, state, {}
        epoch, arrays = self._read(last)
        leaves, structure = jax.tree.flatten(state)
        num_saved = sum(name.startswith("state_") for name in arrays)
        saved = [arrays[f"state_{index}"] for index in range(num_saved)]
        if list(map(_kind, saved)) != list(map(_kind, map(_raw, leaves))):
            raise ExperimentError(f"the checkpoint {last} is of another model")
        state = jax.tree.unflatten(structure, map(_like, saved, leaves))
        mark = "history_"
        history = {n.removeprefix(mark): v for n, v in sorted(arrays.items()) if n.startswith(mark)}
        return epoch, state, history

    def _read(self, path):
        """`(epoch, arrays)` of a checkpoint that is this run's and whole."""
        try:
            about = json.loads((path / "about.json").read_text())
            found, epoch, digest = about["identity"], about["epoch"], about["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"the checkpoint {path} is damaged: {error!r}") from error
        if found != self.identity:
            differences = _differences(found, self.identity)
            raise ExperimentError(f"the checkpoint {path} is of another run: {differences}")
        # Before orbax reads them: what it cannot read it complains about on stderr, and late.
        if _digest(path / ARRAYS) != digest:
            raise ExperimentError(f"the checkpoint {path} is damaged: its arrays have changed")
        return epoch, _load(path)


def identity(name: str, config: Any) -> dict[str, Any]:
    options = {k: v for k, v in vars(config).items() if k not in NOT_IDENTITY}
    versions = {package: metadata.version(package) for package in _PACKAGES}
    return {"experiment": name} | options | versions | {"backend": jax.default_backend()}


def _found(folder: Path) -> Path:
    """The checkpoints in a run folder, or in what a killed run of that name left behind."""
    folder = Path(os.path.abspath(folder))
    left = sorted(folder.parent.glob(f".{folder.name}.partial-*"), key=os.path.getmtime)
    for candidate in (folder, *reversed(left)):
        if any(_last(training) for training in (candidate / CHECKPOINTS).glob("*")):
            return candidate / CHECKPOINTS
    raise ExperimentError(f"{folder} has no checkpoint to go on from")


def _last(training: Path) -> Path | None:
    if not training.is_dir():
        return None
    epochs = [path for path in training.iterdir() if path.name.isdigit()]
    return max(epochs, key=lambda path: int(path.name), default=None)


def _load(path: Path) -> dict[str, np.ndarray]:
    import orbax.checkpoint as ocp

    try:
        with ocp.StandardCheckpointer() as checkpointer:
            arrays = checkpointer.restore(path.absolute() / ARRAYS)
        return {name: np.asarray(value) for name, value in arrays.items()}
    except Exception as error:  # whatever orbax raises for what another version of it wrote
        line = str(error).partition("\n")[0]
        raise ExperimentError(f"orbax cannot read the checkpoint {path}: {line}") from error


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _differences(found: Any, wanted: Mapping[str, Any]) -> str:
    if not isinstance(found, Mapping):
        return "it does not say which"
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} was {found.get(name)!r}, is {wanted.get(name)!r}" for name in names)


def _kind(array: np.ndarray) -> tuple[Any, Any]:
    return array.shape, array.dtype


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.dtypes.prng_key)


def _raw(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(array: np.ndarray, leaf: Any) -> Any:
    """The array as what `leaf` is: a key with the same generator, or numbers on the device."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=jax.random.key_impl(leaf))
    return jax.numpy.asarray(array)
