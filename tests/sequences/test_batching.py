import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrnn.sequences._batching import bucket_batches, stream_batches

lengths_lists = st.lists(st.integers(0, 12), min_size=1, max_size=14)
generators = st.sampled_from([None, 0, 7])


def sequences_of(lengths):
    """Sequences whose every value is its own and none is zero."""
    ends = np.cumsum(lengths)
    return [{"x": np.arange(end - n + 1, end + 1)} for end, n in zip(ends, lengths, strict=True)]


@settings(max_examples=100, deadline=None)
@given(lengths_lists, st.integers(1, 4), generators, st.one_of(st.none(), st.integers(1, 5)))
def test_every_sequence_comes_once_and_whole(lengths, batch_size, generator, num_buckets):
    sequences = sequences_of(lengths)
    boundaries = None if num_buckets else (3, 6, 12)
    seen = []
    batches = bucket_batches(
        sequences, batch_size, boundaries=boundaries, num_buckets=num_buckets, generator=generator
    )
    for batch in batches:
        assert batch.mask.shape == batch.xs["x"].shape
        assert len(batch.indices) == len(batch.mask) == batch_size
        assert (batch.xs["x"][~batch.mask] == 0).all()
        for xs, mask, index in zip(batch.xs["x"], batch.mask, batch.indices, strict=True):
            if index < 0:
                assert not mask.any()
                continue
            seen.append(index)
            assert mask.tolist() == [step < lengths[index] for step in range(len(mask))]
            np.testing.assert_array_equal(xs[mask], sequences[index]["x"])
    assert sorted(seen) == list(range(len(lengths)))


def test_a_bucket_has_one_shape_and_the_smallest_that_fits():
    lengths = [1, 4, 5, 8, 4, 2, 8, 8, 0]
    batches = list(bucket_batches(sequences_of(lengths), 2, boundaries=[4, 8, 16]))
    shapes = {batch.mask.shape for batch in batches}
    assert shapes == {(2, 4), (2, 8)}
    assert [batch.indices.tolist() for batch in batches] == [
        [0, 1],
        [4, 5],
        [8, -1],
        [2, 3],
        [6, 7],
    ]


def test_buckets_by_number_hold_about_as_many_sequences_each():
    lengths = np.random.default_rng(0).permutation(np.arange(1, 101))
    sizes = {}
    for batch in bucket_batches(sequences_of(lengths), 5, num_buckets=4):
        num_real = np.count_nonzero(batch.indices >= 0)
        sizes[batch.mask.shape[1]] = sizes.get(batch.mask.shape[1], 0) + num_real
    assert sizes == {25: 25, 50: 25, 75: 25, 100: 25}
    same = list(bucket_batches(sequences_of([3, 3, 3]), 2, num_buckets=4))
    assert [batch.mask.shape for batch in same] == [(2, 3), (2, 3)]


def test_the_generator_decides_the_order_and_only_that():
    sequences = sequences_of([3] * 20 + [9] * 20)

    def order(generator):
        batches = bucket_batches(sequences, 4, boundaries=(3, 9), generator=generator)
        return [batch.indices.tolist() for batch in batches]

    assert order(None) == np.arange(40).reshape(10, 4).tolist()
    assert order(1) == order(1) == order(np.random.default_rng(1)) != order(2)
    assert sum(order(1), []) != list(range(40))
    # Short and long batches alternate instead of all short ones coming first.
    assert sorted(map(min, order(1))) != list(map(min, order(1)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "exactly one of boundaries and num_buckets"),
        ({"boundaries": [5], "num_buckets": 1}, ValueError, "exactly one"),
        ({"boundaries": [4]}, ValueError, "longest sequence, 5 steps, got 4"),
        ({"boundaries": [5, 5]}, ValueError, "boundaries must rise"),
        ({"boundaries": [-1, 5]}, ValueError, "boundaries must rise"),
        ({"boundaries": [5.5]}, ValueError, "list of ints"),
        ({"boundaries": []}, ValueError, "list of ints"),
        ({"num_buckets": 0}, ValueError, "num_buckets must be at least 1, got 0"),
        ({"num_buckets": 2.0}, TypeError, "num_buckets must be an int"),
    ],
)
def test_bad_buckets_raise_at_the_call(options, error, message):
    with pytest.raises(error, match=message):
        bucket_batches(sequences_of([2, 5]), 2, **options)


def test_bad_sizes_raise_at_the_call():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        bucket_batches(sequences_of([2]), 0, num_buckets=1)
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        stream_batches(sequences_of([2]), 1, 0)
    with pytest.raises(ValueError, match="streams must hold at least one"):
        stream_batches([], 1, 1)


@settings(max_examples=100, deadline=None)
@given(lengths_lists, st.integers(1, 4), st.integers(1, 5), generators)
def test_rows_continue_and_every_stream_comes_once_and_whole(
    lengths, batch_size, num_steps, generator
):
    streams = sequences_of(lengths)
    seen = {index: [] for index in range(len(lengths))}
    before, num_chunks = np.full(batch_size, -1), 0
    for chunk in stream_batches(streams, batch_size, num_steps, generator=generator):
        num_chunks += 1
        assert chunk.mask.shape == chunk.reset.shape == (batch_size, num_steps)
        assert not chunk.reset[:, 1:].any()
        assert (chunk.xs["x"][~chunk.mask] == 0).all()
        for row, index in enumerate(chunk.indices):
            if index < 0:
                assert not chunk.mask[row].any() and not chunk.reset[row, 0]
                continue
            # A reset exactly where the row turns to another stream.
            assert chunk.reset[row, 0] == (index != before[row]) == (not seen[index])
            seen[index].append(chunk.xs["x"][row][chunk.mask[row]])
        before = chunk.indices
    for index, stream in enumerate(streams):
        np.testing.assert_array_equal(np.concatenate(seen[index]), stream["x"])
        assert len(seen[index]) == max(1, -(-lengths[index] // num_steps))
    # No row waits while there are streams left.
    work = sum(len(pieces) for pieces in seen.values())
    assert num_chunks <= -(-work // batch_size) + max(len(pieces) for pieces in seen.values())


def test_a_carry_handed_on_sums_each_stream():
    """A running sum whose carry is handed on, and zeroed at resets, ends at each stream's sum."""
    streams = sequences_of([5, 3, 8, 0, 1, 4])
    carry, sums = np.zeros(2), {}
    for chunk in stream_batches(streams, 2, 3):
        for step in range(3):
            carry = np.where(chunk.reset[:, step], 0, carry)
            carry = np.where(chunk.mask[:, step], carry + chunk.xs["x"][:, step], carry)
        sums.update({int(i): h for i, h in zip(chunk.indices, carry, strict=True) if i >= 0})
    assert sums == {index: stream["x"].sum() for index, stream in enumerate(streams)}


def test_chunks_are_not_changed_after_they_were_handed_out():
    chunks = list(stream_batches(sequences_of([2, 4, 2]), 2, 2))
    assert [chunk.indices.tolist() for chunk in chunks] == [[0, 1], [2, 1]]
    structures = {jax.tree.structure(chunk) for chunk in chunks}
    assert len(structures) == 1
