"""JapaneseVowels: nine men say /ae/, 7 to 29 frames of 12 cepstral coefficients (Kudo et al. 1999).

Read from the files inside the aeon package, never from the network: aeon's own
`load_japanese_vowels` downloads what is missing.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

NUM_COEFFICIENTS = 12
NUM_SPEAKERS = 9
LENGTHS = (7, 29)
NUM_TRAINING, NUM_TEST = 270, 370


class Recordings(NamedTuple):
    """`xs [N, T, 12]`, zero behind the end; `seq_lengths [N]`; `labels [N]`, 0 to 8."""

    xs: np.ndarray
    seq_lengths: np.ndarray
    labels: np.ndarray


class Statistics(NamedTuple):
    """`mean [12]` and `standard_deviation [12]` over real steps."""

    mean: np.ndarray
    standard_deviation: np.ndarray


def load_vowels(folder: Path | None = None) -> tuple[Recordings, Recordings]:
    """The official training and test recordings, as they are, padded with zeros to 29 steps."""
    folder = _folder_in_aeon() if folder is None else folder
    splits = ("TRAIN", NUM_TRAINING), ("TEST", NUM_TEST)
    train, test = (_load_split(folder / f"JapaneseVowels_{name}.ts", num) for name, num in splits)
    return train, test


def real_steps(recordings: Recordings) -> np.ndarray:
    """The mask, bool `[N, T]`."""
    return np.arange(recordings.xs.shape[1]) < recordings.seq_lengths[:, None]


def statistics(recordings: Recordings) -> Statistics:
    """Mean and standard deviation of each coefficient over the real steps of all recordings."""
    steps = recordings.xs[real_steps(recordings)]
    return Statistics(steps.mean(axis=0), steps.std(axis=0))


def normalized(recordings: Recordings, by: Statistics) -> Recordings:
    """The recordings in units of `by`, as float32; the padding stays zero."""
    xs = (recordings.xs - by.mean) / by.standard_deviation
    xs = np.where(real_steps(recordings)[..., None], xs, 0)
    return recordings._replace(xs=xs.astype(np.float32))


def padded_to(recordings: Recordings, length: int) -> Recordings:
    missing = length - recordings.xs.shape[1]
    return recordings._replace(xs=np.pad(recordings.xs, ((0, 0), (0, missing), (0, 0))))


def held_out(recordings: Recordings, num_per_speaker: int) -> tuple[Recordings, Recordings]:
    """The recordings without the last ones of each speaker, and those last ones."""
    last = np.zeros(len(recordings.labels), bool)
    for speaker in range(NUM_SPEAKERS):
        last[np.flatnonzero(recordings.labels == speaker)[-num_per_speaker:]] = True
    return _rows(recordings, ~last), _rows(recordings, last)


def _rows(recordings: Recordings, chosen: np.ndarray) -> Recordings:
    return Recordings(*(field[chosen] for field in recordings))


def _folder_in_aeon() -> Path:
    import aeon.datasets

    return Path(aeon.datasets.__file__).parent / "data" / "JapaneseVowels"


def _load_split(path: Path, num_recordings: int) -> Recordings:
    from aeon.datasets import load_from_ts_file

    if not path.is_file():
        raise ExperimentError(f"{path} is missing: reinstall aeon")
    try:
        series, labels = load_from_ts_file(str(path))[:2]
        series = [np.asarray(one, np.float64).T for one in series]
        labels = np.asarray(labels).astype(np.int32) - 1
    except Exception as error:  # whatever a damaged file makes the parser raise
        raise ExperimentError(f"{path} is damaged, reinstall aeon: {error}") from error
    _check(path, series, labels, num_recordings)
    xs = np.zeros((num_recordings, LENGTHS[1], NUM_COEFFICIENTS))
    for row, steps in zip(xs, series, strict=True):
        row[: len(steps)] = steps
    return Recordings(xs, np.array([len(steps) for steps in series], np.int32), labels)


def _check(path, series, labels, num_recordings):
    facts = {
        f"{num_recordings} recordings": len(series) == len(labels) == num_recordings,
        f"{NUM_COEFFICIENTS} coefficients": all(
            one.ndim == 2 and one.shape[1] == NUM_COEFFICIENTS for one in series
        ),
        "7 to 29 steps": all(LENGTHS[0] <= len(one) <= LENGTHS[1] for one in series),
        "finite values": all(np.isfinite(one).all() for one in series),
        "speakers 1 to 9": set(labels) == set(range(NUM_SPEAKERS)),
    }
    wrong = [fact for fact, holds in facts.items() if not holds]
    if wrong:
        raise ExperimentError(f"{path} is damaged, reinstall aeon: it lacks {' and '.join(wrong)}")
