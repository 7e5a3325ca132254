"""Runs one network after the other; one whose package is absent is left out."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from experiments.frame.errors import ExperimentError
from experiments.frame.progress import progress_bar
from experiments.published.config import Config
from experiments.published.packages import Absent
from experiments.published.polyphones import Polyphones, polyphones
from experiments.published.sleep import Sleep, sleep
from experiments.published.speech import Speech, speech
from experiments.published.spelling import Spelling, spelling


class Results(NamedTuple):
    """What is known so far."""

    spelling: Spelling | None = None
    polyphones: Polyphones | None = None
    sleep: Sleep | None = None
    speech: Speech | None = None
    absent: tuple[str, ...] = ()  # why networks were left out


def measure(config: Config) -> Iterator[Results]:
    networks: dict[str, Callable[[], Any]] = {
        "spelling": lambda: spelling(config.num_words),
        "polyphones": polyphones,
        "sleep": lambda: sleep(config.hours),
        "speech": lambda: speech(config.audio),
    }
    results = Results()
    with progress_bar(len(config.networks)) as bar:
        for name in config.networks:
            bar.stage(name)
            try:
                results = results._replace(**{name: networks[name]()})
            except Absent as error:
                results = results._replace(absent=(*results.absent, f"{name}: {error}"))
            bar.advance()
            if len(results.absent) == len(config.networks):
                raise ExperimentError("; ".join(results.absent))
            yield results
