"""Times that can be compared on a shared machine, by rounds of every subject; and memory."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

MIB = 2**20


def interleaved_seconds(
    subjects: Mapping[str, Callable[[], Any]],
    rounds: int,
    advance: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, np.ndarray]:
    """Seconds `[rounds]` of every subject after one unmeasured call; their order turns by one."""
    names = list(subjects)
    for name in names:
        jax.block_until_ready(subjects[name]())
    seconds = {name: np.zeros(rounds) for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = clock()
            jax.block_until_ready(subjects[name]())
            seconds[name][number] = clock() - start
        advance()
    return seconds


def compiled_fresh(make: Callable[[], Callable[..., Any]], *args: Any) -> tuple[Any, float]:
    """A function that has not been seen before, compiled, and the seconds of trace and compiler."""
    function = jax.jit(make())
    start = time.perf_counter()
    compiled = function.lower(*args).compile()
    return compiled, time.perf_counter() - start


def temporary_bytes(compiled: Any) -> float:
    """The temporary memory that XLA planned for a compiled function; NaN where it does not say."""
    analysis = compiled.memory_analysis()
    return math.nan if analysis is None else float(analysis.temp_size_in_bytes)


def temporary_mib(compiled: Any) -> float:
    return temporary_bytes(compiled) / MIB
