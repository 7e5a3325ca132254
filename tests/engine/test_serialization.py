"""Every record and static value of the package has a name under which `jax.export` writes it."""

import importlib
import inspect
import pkgutil

import jax
import pytest

import jaxrnn as jr
from jaxrnn.factories import EvaluatorValue, ModelValue

# What an import or an export returns holds models and programs, not arrays alone.
OUTSIDE = "jaxrnn.interop"


def public_classes():
    """The classes that the public modules show."""
    names = [jr.__name__]
    for module in pkgutil.iter_modules(jr.__path__, "jaxrnn."):
        if module.ispkg and module.name != OUTSIDE:
            names.append(module.name)
    shown = {
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value)
    }
    return sorted(shown, key=lambda shown: shown.__qualname__)


def is_record(value):
    return issubclass(value, tuple) and hasattr(value, "_fields")


def test_every_record_is_registered():
    records = [
        one for one in public_classes() if is_record(one) and not issubclass(one, ModelValue)
    ]
    assert len(records) > 50
    for record in records:
        print(record)  # names the one that is missing, if the test fails
        with pytest.raises(ValueError, match="[Dd]uplicate"):
            jax.export.register_namedtuple_serialization(record, serialized_name="another")


def test_every_static_value_is_registered():
    statics = [jr.MissingKey, *EvaluatorValue.__subclasses__()]
    assert len(statics) >= 6
    for static in statics:
        with pytest.raises(ValueError, match="[Dd]uplicate"):
            jax.export.register_pytree_node_serialization(
                static,
                serialized_name="another",
                serialize_auxdata=repr,
                deserialize_auxdata=repr,
            )
