"""Models and evaluators as values: compared, printed and pickled by the call that made them."""

import dataclasses
import functools
import importlib
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


class FactoryCall(NamedTuple):
    """A call of a factory, without the arguments that are at their default."""

    factory: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    compared: Any


class ModelValue:
    """Base of `Cell` and `Layer`: it remembers the call that made the model, and compares by it.

    A record that no `model_factory` made, and one whose fields were replaced, has no such call. It
    is compared by its fields, which are functions and equal only to themselves.
    """

    made_by: FactoryCall | None = None

    # Cached, because `unroll` compares models in every call.
    @functools.cached_property
    def _compared(self) -> Any:
        if self.made_by is None:
            return type(self), comparable(tuple(self))  # pyright: ignore[reportArgumentType]
        return type(self), self.made_by.compared

    def __eq__(self, other: Any) -> bool:
        """Whether both were made by the same call, or have the same fields."""
        return isinstance(other, ModelValue) and self._compared == other._compared

    def __ne__(self, other: Any) -> bool:
        """The opposite of `==`."""
        return not self == other

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._compared)

    def __hash__(self) -> int:
        """A hash of what `==` compares."""
        return self._hash

    def __repr__(self) -> str:
        """The call that made the model, or its fields."""
        if self.made_by is None:
            return written(type(self).__name__, (), self._asdict())  # pyright: ignore
        return written(self.made_by.factory.__name__, self.made_by.args, self.made_by.kwargs)

    def __copy__(self) -> Any:
        """The model itself, because it cannot be changed."""
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        """The model itself, because it cannot be changed."""
        return self

    def __reduce__(self) -> Any:
        """Pickles by the call, because what factories close over cannot be pickled."""
        if self.made_by is None:
            return type(self), tuple(self)  # pyright: ignore[reportArgumentType]
        factory, args, kwargs, _ = self.made_by
        kwargs = {name: _by_name(value) for name, value in kwargs.items()}
        return functools.partial(factory, **kwargs), tuple(map(_by_name, args))


def model_factory(factory: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Turns the models that `factory` returns into values: equal calls give equal models.

    `unroll` compiles once for equal models, so a model may be made where it is used. A factory
    must return the same model for the same arguments. Arguments are compared by value if they are
    numbers, strings, models, evaluators, or trees of those, and by identity otherwise: a lambda
    that is written twice is two functions.

    Args:
        factory: function of any arguments that returns a `Cell` or a `Layer`. Its models can be
            pickled if it can be imported by its name.

    Returns:
        The factory, whose models remember the call that made them.

    Example:
        >>> import jaxrnn as jr
        >>> @jr.model_factory
        ... def tagger(num_units, num_tags):
        ...     return jr.serial(jr.bidirectional(jr.gru(num_units)), jr.dense(num_tags))
        >>> tagger(8, 3) == tagger(8, num_tags=3), tagger(8, 3) == tagger(8, 4)
        (True, False)
        >>> tagger(8, 3)
        tagger(8, 3)
    """
    signature = inspect.signature(factory)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    # What follows in `*args`, or has no name to be given by, holds the place of a default.
    in_place = kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}

    @functools.wraps(factory)
    def make(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        model: Any = factory(*args, **kwargs)
        # A copy, because the factory may return a model that remembers another call.
        model = type(model)(*model)
        bound, complete = (signature.bind(*args, **kwargs) for _ in range(2))
        complete.apply_defaults()
        for name, parameter in signature.parameters.items():
            is_droppable = parameter.kind is parameter.KEYWORD_ONLY or not in_place
            value = bound.arguments.get(name, parameter.empty)
            if is_droppable and comparable(value) == comparable(parameter.default):
                bound.arguments.pop(name, None)
        # Compared as they are now, because a list may change later.
        compared = make, comparable(complete.arguments)
        model.made_by = FactoryCall(make, bound.args, bound.kwargs, compared)
        return model

    return make


def comparable(value: Any) -> Any:
    """A hashable value, equal for two arguments exactly when they mean the same.

    Types are compared too: 1, 1.0 and True are equal in Python, but different arguments here, and
    so are 0.0 and -0.0. What can change in place and has no hash, such as an array of numpy or an
    object, is equal to nothing, because equal models share what was compiled.
    """
    if isinstance(value, ModelValue):
        return value
    if isinstance(value, functools.partial):
        return functools.partial, *map(comparable, (value.func, value.args, value.keywords))
    if isinstance(value, tuple | list):
        return type(value), *map(comparable, value)
    if isinstance(value, Mapping):
        items = ((comparable(key), comparable(item)) for key, item in value.items())
        return type(value), *items
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if not value.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
            return _Identity(object())
        fields = dataclasses.fields(value)
        return type(value), *(comparable(getattr(value, field.name)) for field in fields)
    if isinstance(value, float):
        return type(value), value.hex()
    if isinstance(value, jax.Array):
        return _Identity(value)
    try:
        hash(value)
    except TypeError:
        return _Identity(object())
    return type(value), value


class _Named:
    """A function that is pickled by its name: those of `jax.numpy` cannot pickle themselves."""

    def __init__(self, module: str, name: str):
        self.place = module, name

    def __reduce__(self) -> Any:
        return _find, self.place


class _Partial:
    """A `functools.partial` that is pickled with its function by name."""

    def __init__(self, value: functools.partial):
        self.call = _by_name(value.func), value.args, value.keywords

    def __reduce__(self) -> Any:
        return _partial, self.call


def _partial(function: Callable[..., Any], args: Any, keywords: Any) -> Any:
    return functools.partial(function, *args, **keywords)


def _find(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))


def _by_name(value: Any) -> Any:
    """A function as its name, where the name leads back to it; anything else as it is."""
    if type(value) is functools.partial:
        return _Partial(value)
    try:
        place = value.__module__, value.__qualname__
        return _Named(*place) if _find(*place) is value else value
    except (AttributeError, ImportError):
        return value


class EvaluatorValue:
    """Base of the evaluators, which are frozen dataclasses: its repr is the call that makes one."""

    def __repr__(self) -> str:
        """The call that makes the evaluator, without options that are at their default."""
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        options = {
            field.name: getattr(self, field.name)
            for field in fields
            if getattr(self, field.name) != field.default
        }
        # The first option is written without its name, as a person writes `chunked(16)`.
        first = () if not fields or fields[0].name not in options else (fields[0].name,)
        args = tuple(options.pop(name) for name in first)
        return written(type(self).__name__.lower(), args, options)


class _Identity:
    """A value that is equal only to itself."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


def written(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A call as a person would write it, with functions by their names."""
    words = [word(value) for value in args]
    words += [f"{key}={word(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(words)})"


def word(value: Any) -> str:
    """An argument as a person would write it."""
    if isinstance(value, functools.partial):
        return written("partial", (value.func, *value.args), value.keywords)
    if hasattr(value, "_asdict") and not isinstance(value, ModelValue):
        return written(type(value).__name__, (), value._asdict())
    # Evaluators are callable values without a name, and print themselves.
    return getattr(value, "__name__", None) or repr(value)
