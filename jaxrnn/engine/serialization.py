"""Names under which `jax.export` writes our records, so that programs with them become bytes."""

import dataclasses
import inspect
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from jax import export

from jaxrnn.factories import ModelValue


def register_records(packages: dict[str, ModuleType], statics: tuple[type, ...]) -> None:
    """Registers every record that a package shows, and the values that are leaves of no tree.

    A program that takes parameters or a carry, or returns a `Rollout`, can then be serialized, and
    read by a process that has imported jaxrnn.

    Args:
        packages: modules by the name that their records get: `{"jaxrnn.cells": cells}`.
        statics: frozen dataclasses that are static nodes of trees: evaluators, `MissingKey`.
    """
    registered = set()
    for name, package in packages.items():
        for record in _records(package):
            if record not in registered:
                registered.add(record)
                export.register_namedtuple_serialization(
                    record, serialized_name=f"{name}.{record.__name__}"
                )
    by_name = {static.__name__: static for static in statics}
    for static in statics:
        export.register_pytree_node_serialization(
            static,
            serialized_name=f"jaxrnn.{static.__name__}",
            serialize_auxdata=lambda value: json.dumps(_fields(value)).encode(),
            deserialize_auxdata=lambda written: _value(json.loads(written), by_name),
        )


def _records(package: ModuleType) -> Iterator[type]:
    """The named tuples that a package shows and that hold arrays: not models."""
    for value in vars(package).values():
        is_record = (
            inspect.isclass(value) and issubclass(value, tuple) and hasattr(value, "_fields")
        )
        if is_record and not issubclass(value, ModelValue):
            yield value


def _fields(value: Any) -> Any:
    """A static value as what json can write."""
    if not dataclasses.is_dataclass(value):
        return value
    fields = {
        field.name: _fields(getattr(value, field.name)) for field in dataclasses.fields(value)
    }
    return {"class": type(value).__name__, **fields}


def _value(written: Any, by_name: dict[str, type]) -> Any:
    if not isinstance(written, dict):
        return written
    fields = {name: _value(field, by_name) for name, field in written.items() if name != "class"}
    return by_name[written["class"]](**fields)
