"""Training and test windows that share no time and no entity they should not share."""

from typing import Any, NamedTuple

import numpy as np


class EntityTimeSplit(NamedTuple):
    """Which windows are for what; every window is in exactly one of the three.

    Attributes:
        train: ints, the indices of the training windows, rising.
        test: ints, the indices of the test windows.
        dropped: ints, the indices of the windows that may be in neither.
    """

    train: np.ndarray
    test: np.ndarray
    dropped: np.ndarray


def split_by_entity_and_time(
    entity: Any,
    start: Any,
    stop: Any,
    *,
    test_from: Any = None,
    held_out: Any = (),
    gap: Any = 0,
) -> EntityTimeSplit:
    """Splits windows of time series by time, by entity, or by both.

    Windows drawn at random put overlapping and neighbouring steps on both sides. Here a window
    [start, stop) is for

        training  when stop + gap ≤ test_from and its entity is not held out,
        testing   when test_from ≤ start,

    and is dropped otherwise: it straddles `test_from`, lies in the gap, or shows a held-out entity
    at a time when the others were trained on. Without `test_from` the split is by entity alone:
    all windows of the held-out entities are for testing.

    Args:
        entity: `[N]`, whose series the window is of; ints or strings.
        start: `[N]`, the time of its first step; ints, floats or datetimes.
        stop: `[N]`, the time behind its last step (exclusive), targets included.
        test_from: The first test time. None: no split by time.
        held_out: The entities that are never trained on.
        gap: The time left out between the last training time and `test_from`; with datetimes a
            timedelta.

    Returns:
        `EntityTimeSplit(train, test, dropped)` of indices into `[N]`.

    Raises:
        TypeError: `held_out` is a string.
        ValueError: Shapes differ, a window is empty or its times are NaN, an entity held out has
            no window, `gap` is below 0 or without `test_from`, or a part would be empty.

    Example:
        >>> split = split_by_entity_and_time(
        ...     entity=["a", "a", "a", "a", "b", "b"],
        ...     start=[0, 4, 8, 12, 0, 12],
        ...     stop=[6, 10, 14, 18, 6, 18],
        ...     test_from=12,
        ...     held_out=["b"],
        ... )
        >>> print(split.train, split.test, split.dropped)
        [0 1] [3 5] [2 4]
    """
    entity, start, stop = _windows(entity, start, stop)
    if isinstance(held_out, str):
        raise TypeError(f"held_out must be a list of entities, got the string {held_out!r}.")
    held_out = np.asarray(list(held_out) or entity[:0])
    _check(entity, held_out, test_from, gap)
    is_held_out = np.isin(entity, held_out)
    before = after = np.ones(len(entity), bool)
    if test_from is not None:
        before, after = stop + gap <= test_from, start >= test_from
    else:
        after = is_held_out
    train, test = before & ~is_held_out, after
    if not train.any() or not test.any():
        raise ValueError(
            f"both parts must have a window, got {train.sum()} for training and {test.sum()} "
            f"for testing of {len(entity)}."
        )
    return EntityTimeSplit(*map(np.flatnonzero, (train, test, ~train & ~test)))


def _windows(entity, start, stop):
    entity, start, stop = np.asarray(entity), np.asarray(start), np.asarray(stop)
    for name, values in (("entity", entity), ("start", start), ("stop", stop)):
        if values.ndim != 1 or len(values) != len(start):
            raise ValueError(
                f"{name} must have the shape [N] like start, {start.shape}, got {values.shape}."
            )
    wrong = np.flatnonzero(~(start < stop))
    if wrong.size:
        first = wrong[0]
        raise ValueError(
            f"start must be below stop (exclusive), got {start[first]} and {stop[first]} "
            f"for window {first}."
        )
    return entity, start, stop


def _check(entity, held_out, test_from, gap):
    if test_from is None and held_out.size == 0:
        raise ValueError("test_from or held_out must be given, got neither.")
    if gap < 0 * gap:
        raise ValueError(f"gap must be at least 0, got {gap}.")
    if test_from is None and gap != 0 * gap:
        raise ValueError(f"gap must come with test_from, got {gap} without one.")
    unknown = held_out[~np.isin(held_out, entity)]
    if unknown.size:
        raise ValueError(f"held_out must name entities that have windows, got {unknown.tolist()}.")
