import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrnn.sequences._masks import reset_from_segments
from jaxrnn.sequences._packing import pack, unpack


def trees(lengths):
    """A tree with two leaves for each length; no value comes twice."""
    ends = np.cumsum(lengths)
    return [
        {
            "x": np.arange(end - n, end, dtype=np.float32)[:, None] + [[0, 0.5]],
            "token": np.arange(n),
        }
        for end, n in zip(ends, lengths, strict=True)
    ]


def first_fit_decreasing(lengths, row_length):
    """The textbook form: for each sequence look at every row."""
    rows = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        fits = [row for row in rows if sum(lengths[i] for i in row) + lengths[index] <= row_length]
        if fits:
            fits[0].append(index)
        elif lengths[index]:
            rows.append([index])
    return [[index for index in row if lengths[index]] for row in rows]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=14), st.integers(0, 6))
def test_packing_is_first_fit_decreasing_and_unpacking_undoes_it(lengths, room):
    sequences, row_length = trees(lengths), max(lengths) + room
    packed = pack(sequences, row_length)
    rows = [[int(i) for i in dict.fromkeys(row[row >= 0])] for row in packed.segment_ids]
    assert rows == first_fit_decreasing(lengths, row_length)
    assert packed.mask.shape == (len(rows), row_length)
    unpacked = unpack(packed.xs, packed)
    assert len(unpacked) == len(sequences)
    for came, sequence in zip(unpacked, sequences, strict=True):
        jax.tree.map(np.testing.assert_array_equal, came, sequence)
        assert jax.tree.map(lambda leaf: leaf.dtype, came) == {
            "x": sequence["x"].dtype,
            "token": sequence["token"].dtype,
        }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=14))
def test_flags_and_padding(lengths):
    packed = pack(trees(lengths), 12)
    np.testing.assert_array_equal(packed.mask, packed.segment_ids >= 0)
    starts = packed.mask & np.asarray(reset_from_segments(packed.segment_ids))
    np.testing.assert_array_equal(packed.reset, starts)
    assert packed.reset.sum() == np.count_nonzero(lengths)
    assert packed.mask.sum() == sum(lengths)
    # Rows are filled from the front, so what is padded is the end.
    assert not (packed.mask[:, 1:] & ~packed.mask[:, :-1]).any()
    assert (packed.xs["x"][~packed.mask] == 0).all()


def test_worked_rows():
    packed = pack([np.array([1, 1]), np.array([2, 2, 2]), np.array([3])], 4)
    np.testing.assert_array_equal(packed.xs, [[2, 2, 2, 3], [1, 1, 0, 0]])
    np.testing.assert_array_equal(packed.segment_ids, [[1, 1, 1, 2], [0, 0, -1, -1]])
    np.testing.assert_array_equal(packed.reset, [[1, 0, 0, 1], [1, 0, 0, 0]])


def test_the_row_length_is_the_longest_sequence_by_default():
    assert pack(trees([2, 5, 3])).mask.shape == (2, 5)
    with pytest.raises(ValueError, match="longest sequence, 5 steps, got 4"):
        pack(trees([2, 5, 3]), 4)


def test_sequences_of_length_0_survive():
    """pytorch issue 4582 and 144207: neither refused nor lost, and T is not cut."""
    for lengths in ([0, 3, 0], [0, 0], [0]):
        packed = pack(trees(lengths), 7)
        assert packed.mask.shape == (min(sum(lengths), 1), 7)
        assert [len(sequence["x"]) for sequence in unpack(packed.xs, packed)] == lengths
    assert pack(trees([0])).mask.shape == (0, 0)


def test_a_recurrence_over_packed_rows_gives_what_single_rows_give():
    """h = r ? 0 : h, then h = h / 2 + x, on three sequences in one row and on each alone."""

    @jax.jit
    def run(xs, reset):
        def step(h, inputs):
            x, fresh = inputs
            h = jnp.where(fresh[:, None], 0, h) / 2 + x
            return h, h

        flags = jnp.swapaxes(reset, 0, 1)
        _, ys = jax.lax.scan(step, jnp.zeros_like(xs[:, 0]), (jnp.swapaxes(xs, 0, 1), flags))
        return jnp.swapaxes(ys, 0, 1)

    sequences = [tree["x"].astype(np.float32) for tree in trees([3, 4, 2])]
    packed = pack(sequences, 9)
    assert packed.mask.shape == (1, 9)
    for ys, xs in zip(unpack(run(packed.xs, packed.reset), packed), sequences, strict=True):
        padded = np.zeros((1, 9, 2), np.float32)
        padded[0, : len(xs)] = xs
        alone = run(padded, np.zeros((1, 9), bool))[0, : len(xs)]
        np.testing.assert_allclose(ys, alone, rtol=1e-6)
    wrong = unpack(run(packed.xs, np.zeros((1, 9), bool)), packed)[2]
    assert np.abs(wrong - unpack(run(packed.xs, packed.reset), packed)[2]).max() > 0.1


def test_outputs_of_another_structure_unpack_too():
    packed = pack([jnp.arange(3), jnp.arange(2)], 5)
    ys = jnp.zeros((1, 5, 2, 3), jnp.bfloat16)
    first, second = unpack((ys, packed.segment_ids), packed)
    assert first[0].shape == (3, 2, 3) and first[0].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(second[1], [1, 1])
    with pytest.raises(ValueError, match=r"ys must start with the axes \(1, 5\), got \(5, 1\)"):
        unpack(np.zeros((5, 1)), packed)


def test_many_sequences_fill_their_rows():
    lengths = np.random.default_rng(0).integers(0, 200, 5000)
    packed = pack([np.zeros(length, np.int8) for length in lengths], 512)
    assert packed.mask.mean() > 0.99
    assert [len(sequence) for sequence in unpack(packed.xs, packed)] == lengths.tolist()


@pytest.mark.parametrize("row_length", [2.5, True])
def test_a_row_length_that_is_no_int_raises(row_length):
    with pytest.raises(TypeError, match="row_length must be an int"):
        pack([np.ones(1)], row_length)


@pytest.mark.parametrize(
    ("sequences", "error", "message"),
    [
        ([], ValueError, "at least one sequence"),
        ([()], ValueError, r"sequences\[0\] must have at least one array"),
        ([np.float32(1)], ValueError, r"sequences\[0\] must have a time axis"),
        ([np.ones(2), {"x": np.ones(2)}], TypeError, r"sequences\[1\] must have the structure"),
        ([np.ones((2, 3)), np.ones((2, 4))], ValueError, r"\[1\] must have the shape \(2, 3\)"),
        ([np.ones(2), np.ones(2, int)], TypeError, r"\[1\] must have the dtype float64, got int64"),
        ([(np.ones(2), np.ones(3))], ValueError, r"sequences\[0\]\[1\] must have the shape \(2,\)"),
    ],
)
def test_sequences_that_do_not_fit_together_raise(sequences, error, message):
    with pytest.raises(error, match=message):
        pack(sequences)
