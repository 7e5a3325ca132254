"""One evaluator object for one choice of options."""

import functools
from collections.abc import Callable
from typing import ParamSpec

from jaxrnn.types import Evaluator

Options = ParamSpec("Options")


def one_object(factory: Callable[Options, Evaluator]) -> Callable[Options, Evaluator]:
    """Makes a factory return the same evaluator for the same options.

    `unroll` compiles once for each evaluator it is given, and evaluators are functions, which are
    equal only to themselves.

    Args:
        factory: What makes an evaluator of its options.

    Returns:
        The factory, which keeps the evaluators it made last.
    """
    cached = functools.lru_cache(maxsize=256, typed=True)(factory)

    @functools.wraps(factory)
    def make(*args: Options.args, **kwargs: Options.kwargs) -> Evaluator:
        try:
            hash((args, tuple(kwargs.values())))
        except TypeError:
            return factory(*args, **kwargs)
        return cached(*args, **kwargs)

    return make
