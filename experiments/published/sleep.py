"""sleepecg: the stages of sleep from the beats of a heart, by two bidirectional GRUs."""

import datetime
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxrnn as jr
from experiments.published.packages import Absent, folder

CLASSIFIERS = ("wrn-gru-mesa", "wrn-gru-mesa-weighted", "ws-gru-mesa")
MASK_VALUE = -1.0
# What the package computes its features from, as `info.yml` of each classifier says.
FEATURES: dict[str, Any] = {
    "feature_selection": [
        *("hrv-time", "hrv-frequency", "recording_start_time", "age", "gender"),
    ],
    "lookback": 120,
    "lookforward": 150,
    "max_nans": 0.5,
    "max_rri": 2,
    "min_rri": 0.3,
}
STAGES = ("undefined", "NREM", "REM", "wake")


class Sleep(NamedTuple):
    """How a night is read."""

    epochs: int  # of 30 seconds
    masked: int  # of them, in the batch of which some are taken away
    differences: dict[str, float]  # by classifier, on real steps
    ours: np.ndarray  # the likeliest stage of each epoch, by the first classifier
    theirs: np.ndarray  # the same, by keras
    heart_rate: np.ndarray  # beats per minute of each epoch


def sleep(hours: float) -> Sleep:
    """The networks here and in keras, on a simulated night.

    Raises:
        Absent: A package is not installed.
    """
    place = folder("sleepecg", "sleepecg") / "classifiers"
    folder("keras", "keras")
    xs = features(hours)
    mask = np.ones((3, len(xs)), bool)
    mask[1, : len(xs) // 5] = False  # padding on the left
    mask[2] = np.random.default_rng(1).random(len(xs)) < 0.8  # holes
    batch = np.where(mask[..., None], xs, MASK_VALUE).astype(np.float32)
    results = {name: _compare(place / f"{name}.zip", batch, mask) for name in CLASSIFIERS}
    ours, theirs, _ = results[CLASSIFIERS[0]]
    return Sleep(
        len(xs),
        int((~mask).sum()),
        {name: difference for name, (_, _, difference) in results.items()},
        ours[0].argmax(-1),
        theirs[0].argmax(-1),
        60 / xs[:, 0],
    )


def _compare(path: Path, batch: np.ndarray, mask: np.ndarray) -> tuple[Any, Any, float]:
    import keras

    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(path) as archive:
            archive.extract("classifier.keras", place)
        model, params, _ = jr.interop.from_keras(f"{place}/classifier.keras")
        original: Any = keras.saving.load_model(f"{place}/classifier.keras", compile=False)
    ours = np.asarray(jr.unroll(model, params, batch, mask=mask).outputs)
    theirs = np.asarray(keras.ops.convert_to_numpy(original(batch)))
    return ours, theirs, float(np.abs(ours - theirs)[mask].max())


def features(hours: float) -> np.ndarray:
    """What the package computes from the beats of a simulated night, `[T, 36]`."""
    try:
        from sleepecg import feature_extraction  # pyright: ignore[reportMissingImports]
        from sleepecg.io import sleep_readers  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Absent(f"sleepecg needs {error.name}") from error
    record = sleep_readers.SleepRecord(
        heartbeat_times=beats(hours),
        recording_start_time=datetime.time(23, 0),
        subject_data=sleep_readers.SubjectData(sleep_readers.Gender.FEMALE, age=40),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,), *_ = feature_extraction.extract_features([record], **FEATURES)
    return np.where(np.isfinite(found), found, MASK_VALUE)


def beats(hours: float) -> np.ndarray:
    """The times of the beats of a heart, in seconds: cycles of 90 minutes between calm and lively.

    In the calm part it beats slowly and with the breath, in the lively part faster and irregularly;
    the first quarter of an hour is awake. Nothing of it is a recording.
    """
    generator = np.random.default_rng(0)
    times, now, drift = [], 0.0, 0.0
    while now < 3600 * hours:
        calm = 0.5 + 0.5 * np.tanh(4 * np.cos(2 * np.pi * (now - 2700) / 5400))
        awake = now < 900
        drift += 0.02 * generator.standard_normal() - 0.01 * drift
        breath = (0.005 + 0.06 * calm) * np.sin(2 * np.pi * 0.25 * now)
        interval = 0.85 + 0.15 * calm - 0.2 * awake + breath + (1.2 - calm) * 0.6 * drift
        now += float(np.clip(interval + 0.008 * generator.standard_normal(), 0.4, 1.6))
        times.append(now)
    return np.array(times)
