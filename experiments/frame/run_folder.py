"""Where a run is written: all of it or nothing, and never over something else."""

import csv
import dataclasses
import io
import itertools
import json
import os
import platform
import shutil
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.frame.errors import ExperimentError

CHECKPOINTS = "checkpoints"


class RunFolder:
    """A hidden folder beside the wanted one, which takes its name in `keep` or disappears."""

    def __init__(self, wanted: Path, partial: Path):
        self.wanted, self.partial = wanted, partial

    @classmethod
    def create(cls, name: str, out: Path | None, runs: Path = Path("runs")) -> "RunFolder":
        """Refuses a taken or unwritable place before any work is done."""
        wanted = out or runs / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        wanted = Path(os.path.abspath(wanted))
        if out is not None and _taken(wanted):
            raise ExperimentError(f"{out} already exists: give --out a new folder")
        partial = wanted.with_name(f".{wanted.name}.partial-{os.getpid()}")
        try:
            wanted.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
        except OSError as error:
            raise ExperimentError(f"cannot write to {wanted}: {error.strerror}") from error
        return cls(wanted, partial)

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise ExperimentError(f"cannot write to {self.wanted}: {error}") from error

    def path(self, name: str) -> Path:
        return self.partial / name

    def write(self, name: str, content: Any) -> None:
        """Writes rows with the same keys to a `.csv`, if any; or `.json`, `.npz`, text."""
        suffix = Path(name).suffix
        if suffix == ".json":
            self.write_text(name, json.dumps(content, indent=2, default=_plain) + "\n")
        elif suffix == ".npz":
            np.savez(self.path(name), **content)
        elif suffix != ".csv":
            self.write_text(name, content)
        elif rows := list(content):
            text = io.StringIO()
            writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            self.write_text(name, text.getvalue())

    def write_text(self, name: str, text: str) -> None:
        self.path(name).write_text(text, encoding="utf-8")

    def settle_checkpoints(self, keep: bool) -> bool:
        """Whether there are checkpoints that stay; those of a run that is through go."""
        if not keep:
            shutil.rmtree(self.path(CHECKPOINTS), ignore_errors=True)
        return self.path(CHECKPOINTS).exists()

    def keep(self) -> Path:
        """Gives the folder its name, with a number if that has been taken since `create`."""
        path = self.wanted
        for number in itertools.count(2):
            if not _taken(path):
                break
            path = self.wanted.with_name(f"{self.wanted.name}-{number}")
        self.partial.rename(path)  # onto an empty folder or nothing; anything else raises
        return path


def environment() -> dict[str, Any]:
    """What a person needs to get the same numbers again, and nothing about who ran it."""
    packages = ("jax", "jaxlib", "numpy", "optax", "jaxrnn")
    return {
        "versions": {package: metadata.version(package) for package in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "cpu_cores": os.cpu_count(),
    }


def _taken(path: Path) -> bool:
    try:
        return os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    except OSError as error:
        raise ExperimentError(f"cannot read {path}: {error.strerror}") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a JSON file")
