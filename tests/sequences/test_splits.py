import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrnn.sequences._splits import split_by_entity_and_time

windows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(1, 6)),
    min_size=1,
    max_size=30,
)


def test_a_string_holds_out_no_letters():
    with pytest.raises(TypeError, match="held_out must be a list of entities, got the string 'ab'"):
        split_by_entity_and_time(["a", "b"], [0, 0], [1, 1], held_out="ab")


@settings(max_examples=150, deadline=None)
@given(windows, st.integers(0, 20), st.integers(0, 3), st.sampled_from(["", "c"]))
def test_no_step_and_no_held_out_entity_is_on_both_sides(rows, test_from, gap, held_out):
    # Two windows that are always there keep both parts from being empty.
    rows = [*rows, ("a", -20, 1), ("a", 30, 1), ("c", 30, 1)]
    entity, start, num_steps = map(np.array, zip(*rows, strict=True))
    split = split_by_entity_and_time(
        entity, start, start + num_steps, test_from=test_from, held_out=list(held_out), gap=gap
    )
    parts = np.sort(np.concatenate(split))
    np.testing.assert_array_equal(parts, np.arange(len(rows)))
    steps = {
        name: {
            (entity[window], time)
            for window in getattr(split, name)
            for time in range(start[window], start[window] + num_steps[window])
        }
        for name in ("train", "test")
    }
    assert not steps["train"] & steps["test"]
    assert max(time for _, time in steps["train"]) < test_from - gap
    assert min(time for _, time in steps["test"]) >= test_from
    assert not {name for name, _ in steps["train"]} & set(held_out)
    for window in split.dropped:
        straddles = start[window] < test_from < start[window] + num_steps[window] + gap
        early = start[window] < test_from and entity[window] in held_out
        assert straddles or early


def test_random_windows_overlap_and_these_do_not():
    """Windows of 10 steps every 2 steps: a random split shares steps, this one shares none."""
    start = np.arange(0, 190, 2)
    stop = start + 10
    entity = np.zeros(len(start), int)

    def shared(train, test):
        steps = [{t for w in part for t in range(start[w], stop[w])} for part in (train, test)]
        return len(steps[0] & steps[1])

    drawn = np.random.default_rng(0).permutation(len(start))
    assert shared(drawn[:70], drawn[70:]) > 50
    split = split_by_entity_and_time(entity, start, stop, test_from=140)
    assert shared(split.train, split.test) == 0
    np.testing.assert_array_equal(split.dropped, [66, 67, 68, 69])


def test_the_gap_is_the_time_between_last_training_and_first_test_step():
    stop = np.array([7, 8, 9, 20])
    start = np.array([5, 6, 7, 10])
    train = {
        gap: split_by_entity_and_time([0] * 4, start, stop, test_from=9, gap=gap).train.tolist()
        for gap in (0, 1, 2)
    }
    assert train == {0: [0, 1, 2], 1: [0, 1], 2: [0]}


def test_by_entity_alone():
    split = split_by_entity_and_time(["a", "b", "a"], [0, 0, 5], [9, 9, 9], held_out=["b"])
    assert [part.tolist() for part in split] == [[0, 2], [1], []]


def test_by_both_drops_the_early_windows_of_held_out_entities():
    split = split_by_entity_and_time(
        [1, 2, 1, 2], [0, 0, 5, 5], [5, 5, 9, 9], test_from=5, held_out=[2]
    )
    assert [part.tolist() for part in split] == [[0], [2, 3], [1]]


def test_datetimes():
    day = np.datetime64("2024-01-01") + np.arange(10)
    split = split_by_entity_and_time(
        np.zeros(10),
        day,
        day + 1,
        test_from=np.datetime64("2024-01-06"),
        gap=np.timedelta64(2, "D"),
    )
    assert [part.tolist() for part in split] == [[0, 1, 2], [5, 6, 7, 8, 9], [3, 4]]
    assert len(split_by_entity_and_time(np.zeros(10), day, day + 1, test_from=day[5]).train) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_from": 0}, "got 0 for training and 2"),
        ({"test_from": 100}, "got 2 for training and 0"),
        ({"held_out": ["a", "b"]}, "got 0 for training and 2 for testing of 2"),
        ({"test_from": float("nan")}, "got 0 for training and 0"),
        ({}, "test_from or held_out must be given"),
        ({"held_out": ["d"]}, r"held_out must name entities that have windows, got \['d'\]"),
        ({"test_from": 5, "gap": -1}, "gap must be at least 0, got -1"),
        ({"held_out": ["a"], "gap": 1}, "gap must come with test_from"),
    ],
)
def test_bad_splits_raise(options, message):
    with pytest.raises(ValueError, match=message):
        split_by_entity_and_time(["a", "b"], [0, 5], [5, 9], **options)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((["a"], [0, 5], [5, 9]), r"entity must have the shape \[N\] like start"),
        ((["a", "b"], [0, 5], [[5], [9]]), "stop must have the shape"),
        ((["a", "b"], [0, 5], [5, 5]), "start must be below stop .* 5 and 5 for window 1"),
        ((["a", "b"], [0, np.nan], [5, 9]), "start must be below stop"),
        (("a", 0, 5), "entity must have the shape"),
    ],
)
def test_bad_windows_raise(arrays, message):
    with pytest.raises(ValueError, match=message):
        split_by_entity_and_time(*arrays, test_from=5)
