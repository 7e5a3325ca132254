"""JapaneseVowels: the facts of the data, and that only training recordings set the scale."""

import shutil
import socket

import numpy as np
import pytest

from experiments.data import vowels
from experiments.frame.errors import ExperimentError
from experiments.vowels.config import Config
from experiments.vowels.measure import prepare


@pytest.fixture(scope="module")
def splits():
    return vowels.load_vowels()


@pytest.fixture
def copy(tmp_path):
    """A folder with a copy of the files, to damage."""
    for name in ("TRAIN", "TEST"):
        file = f"JapaneseVowels_{name}.ts"
        shutil.copy(vowels._folder_in_aeon() / file, tmp_path / file)
    return tmp_path


def test_the_splits_are_the_official_ones(splits):
    train, test = splits
    assert train.xs.shape == (270, 29, 12) and test.xs.shape == (370, 29, 12)
    assert np.bincount(train.labels).tolist() == [30] * 9
    assert np.bincount(test.labels).tolist() == [31, 35, 88, 44, 29, 24, 40, 50, 29]
    lengths = np.concatenate([train.seq_lengths, test.seq_lengths])
    assert (lengths.min(), lengths.max()) == (7, 29)
    # The first numbers of the first recording in the file.
    np.testing.assert_array_equal(train.xs[0, :2, 0], [1.860936, 1.891651])
    assert train.xs[0, 0, 1] == -0.207383


def test_padding_is_zero_and_only_behind_the_end(splits):
    for recordings in splits:
        mask = vowels.real_steps(recordings)
        assert (recordings.xs[~mask] == 0).all()
        assert (mask.sum(axis=1) == recordings.seq_lengths).all()
        assert (np.abs(recordings.xs[mask]).sum(axis=-1) > 0).all()


def test_loading_needs_no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("it reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    vowels.load_vowels()


def test_a_missing_file_is_an_error_not_a_download(tmp_path):
    with pytest.raises(ExperimentError, match="JapaneseVowels_TRAIN.ts is missing"):
        vowels.load_vowels(tmp_path)


def cut_in_the_middle_of_a_recording(text):
    return text[:50000]


def cut_between_recordings(text):
    return "".join(text.splitlines(keepends=True)[:-1])


def no_recordings(text):
    return "nothing"


def empty(text):
    return ""


def not_a_number(text):
    return text.replace("1.860936", "hello", 1)


def infinite(text):
    return text.replace("1.860936", "inf", 1)


def a_coefficient_less(text):
    lines = [line.rsplit(":", 2) for line in text.splitlines() if line.endswith(":1")]
    for line in lines:
        text = text.replace(":".join(line), f"{line[0]}:{line[2]}")
    return text


@pytest.mark.parametrize(
    "damage",
    [
        cut_in_the_middle_of_a_recording,
        cut_between_recordings,
        no_recordings,
        empty,
        not_a_number,
        infinite,
        a_coefficient_less,
    ],
)
def test_a_damaged_file_is_named(copy, damage):
    path = copy / "JapaneseVowels_TRAIN.ts"
    text = path.read_text()
    path.write_text(damage(text))
    assert path.read_text() != text
    with pytest.raises(ExperimentError, match="JapaneseVowels_TRAIN.ts is damaged"):
        vowels.load_vowels(copy)


def test_normalized_training_steps_have_mean_0_and_deviation_1(splits):
    train, _ = splits
    normalized = vowels.normalized(train, vowels.statistics(train))
    mask = vowels.real_steps(train)
    assert normalized.xs.dtype == np.float32
    assert (normalized.xs[~mask] == 0).all()
    np.testing.assert_allclose(normalized.xs[mask].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(normalized.xs[mask].std(axis=0), 1, atol=1e-6)


def test_statistics_count_each_real_step_once_and_no_padding():
    recordings = vowels.Recordings(
        xs=np.array([[[2.0], [4.0], [0.0]], [[6.0], [0.0], [0.0]]]),
        seq_lengths=np.array([2, 1]),
        labels=np.array([0, 1]),
    )
    by = vowels.statistics(recordings)
    assert by.mean == 4.0
    np.testing.assert_allclose(by.standard_deviation, np.sqrt(8 / 3))


def test_what_is_scored_sets_no_scale(monkeypatch, splits):
    train, test = splits
    changed = test._replace(xs=10 * test.xs + 3)
    before = prepare(Config())
    monkeypatch.setattr(vowels, "load_vowels", lambda: (train, changed))
    after = prepare(Config())
    np.testing.assert_array_equal(after[0].xs, before[0].xs)
    mask = vowels.real_steps(test)
    by = vowels.statistics(train)
    np.testing.assert_allclose(
        after[1].xs[mask], (changed.xs[mask] - by.mean) / by.standard_deviation, rtol=1e-5
    )


def test_validation_never_sees_the_test_split(monkeypatch, splits):
    train, test = splits
    nan = test._replace(xs=np.full_like(test.xs, np.nan))
    monkeypatch.setattr(vowels, "load_vowels", lambda: (train, nan))
    training, scored = prepare(Config(evaluate_on="validation"))
    assert np.bincount(training.labels).tolist() == [24] * 9
    assert np.bincount(scored.labels).tolist() == [6] * 9
    assert np.isfinite(scored.xs).all() and np.isfinite(training.xs).all()
    mask = vowels.real_steps(training)
    np.testing.assert_allclose(training.xs[mask].mean(axis=0), 0, atol=1e-6)


def test_padding_to_more_steps_keeps_the_recordings(splits):
    padded = vowels.padded_to(splits[1], 40)
    assert padded.xs.shape == (370, 40, 12)
    np.testing.assert_array_equal(padded.xs[:, :29], splits[1].xs)
    assert (padded.xs[:, 29:] == 0).all()
