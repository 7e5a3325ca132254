"""Looks at networks as they are drawn, then trains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.gradients import jacobians
from experiments.gradients.config import UPDATES_PER_EPOCH, Config
from experiments.gradients.jacobians import Gated, Swept, Worked
from experiments.gradients.precision import FORMATS, RATES, Grown, Saturated, grow, saturate
from experiments.gradients.train import Trained, settings_of, train
from experiments.gradients.warning import NETS, Warned, warn

EPOCHS_PER_LOOK = 20  # as long as so many epochs, roughly


class Results(NamedTuple):
    """What was measured so far."""

    worked: Worked | None = None  # what can be worked out by hand
    radius: Mapping[str, Swept] = {}  # activation to what it does at every spectral radius
    gates: Mapping[str, Gated] = {}  # cell to how far it looks back
    # cell to the singular values of its products of Jacobians
    spectra: Mapping[str, np.ndarray] = {}
    formats: Mapping[str, Saturated] = {}  # number format to where tanh is flat in it
    growth: Mapping[float, Grown] = {}  # rate to a state that grows by it
    warnings: Mapping[str, Warned] = {}  # network to what warns of it
    truncation: Sequence[Trained] = ()  # trainings with gradients that are cut off
    clipping: Sequence[Trained] = ()  # trainings with gradients that are clipped or not


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """One question after the other, and then one training after the other."""
    extremes = jacobians.ELMAN, jacobians.CHRONO
    looks = {
        "worked": lambda: jacobians.work_out(config.first_seed),
        "radius": lambda: {name: jacobians.sweep(config, name) for name in jacobians.ACTIVATIONS},
        "gates": lambda: {name: jacobians.look_at(config, name) for name in jacobians.CELLS},
        "spectra": lambda: {name: jacobians.spectrum(config, name) for name in extremes},
        "formats": lambda: {name: saturate(config, name) for name in FORMATS},
        "growth": lambda: {rate: grow(rate) for rate in RATES},
        "warnings": lambda: {name: warn(config, name) for name in NETS},
    }
    settings, results = settings_of(config), Results()
    epochs = len(settings) * config.updates // UPDATES_PER_EPOCH
    with progress_bar(EPOCHS_PER_LOOK * len(looks) + epochs) as bar:
        for name, look in looks.items():
            bar.stage(name)
            results = results._replace(**{name: look()})
            yield results
            bar.advance(EPOCHS_PER_LOOK)
            bar.finish_stage(name)
        for setting in settings:
            bar.stage(setting.name)
            trained = train(config, setting, checkpoints, bar.advance)
            before = getattr(results, setting.part)
            results = results._replace(**{setting.part: (*before, trained)})
            bar.finish_stage(f"{setting.name}: accuracy {trained.median:.2f}")
            yield results
