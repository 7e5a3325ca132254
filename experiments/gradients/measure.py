"""Looks at networks as they are drawn, then trains."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter
from experiments.frame.progress import progress_bar
from experiments.gradients import jacobians
from experiments.gradients.config import JUDGED, UPDATES_PER_EPOCH, Config
from experiments.gradients.jacobians import ORTHOGONAL, Gated, Swept, Worked, recurrent_kernel
from experiments.gradients.warning import (
    FORMATS,
    NETS,
    RATES,
    Grown,
    Saturated,
    Warned,
    grow,
    saturate,
    warn,
)

NUM_SYMBOLS, BATCH = 4, 32
VANISHING_GAIN, EXPLODING_GAIN = 0.5, 3.0
EPOCHS_PER_CHECKPOINT = 8
EPOCHS_PER_LOOK = 20  # as long as so many epochs, roughly
CELLS = TANH, LSTM = "tanh", "LSTM"
TRUNCATION, CLIPPING = "truncation", "clipping"


class Setting(NamedTuple):
    """What is trained."""

    part: str  # by Adam with a cut gradient, or by gradient descent through the whole sequence
    cell: str  # `TANH` or `LSTM`
    clip: float  # largest norm of a gradient; infinite where it is not clipped
    delay: int  # steps from the symbol to its recall
    truncation: int  # steps the gradient goes back through
    gain: float = 1.0  # spectral radius of the recurrent kernel of the tanh cell before training

    @property
    def name(self) -> str:
        if self.part == CLIPPING:
            return f"clipping {self.clip:g}, gain {self.gain:g}"
        return f"truncation {self.truncation}, {self.cell}, delay {self.delay}"

    @property
    def reaches(self) -> bool:
        """Whether the gradient of the recall goes back as far as the symbol."""
        return self.truncation > self.delay


class Trained(NamedTuple):
    """All seeds of a setting after training."""

    setting: Setting
    fitted: Fitted

    def last(self, name: str) -> np.ndarray:
        """The mean over the last updates, each on new sequences; NaN where it failed, `[S]`."""
        means = self.fitted.of_updates()[name][:, -JUDGED:].mean(axis=1)
        return np.where(self.fitted.failed, np.nan, means)

    @property
    def accuracy(self) -> np.ndarray:
        """The share of symbols recalled, `[S]`."""
        return self.last("accuracy")

    @property
    def median(self) -> float:
        """The median accuracy over the seeds; one that failed counts as 0."""
        return float(np.median(np.nan_to_num(self.accuracy)))


def settings_of(config: Config) -> list[Setting]:
    """Every delay with every truncation; both gains with every clip, at the longest delay."""
    cut = itertools.product(CELLS, (config.gradient_clip,), config.delays, config.truncations)
    gains = itertools.product((math.inf, *config.clips), (VANISHING_GAIN, EXPLODING_GAIN))
    whole = max(config.delays), num_steps(config)
    return [
        *(Setting(TRUNCATION, *one) for one in cut),
        *(Setting(CLIPPING, TANH, clip, *whole, gain) for clip, gain in gains),
    ]


def train(config: Config, setting: Setting, checkpoints: Checkpoints, advance: Advance) -> Trained:
    fitted = _fitter(config, setting.part, setting.cell, setting.clip).fit_seeds(
        setting.name,
        initial_params(config, setting.cell, setting.gain),
        lambda epoch: batches(config, setting, epoch),
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        every=EPOCHS_PER_CHECKPOINT,
        advance=advance,
    )
    return Trained(setting, fitted)


@functools.cache
def _fitter(config, part, cell, clip):
    """The same for all settings that one compiled epoch can train."""
    rule = optax.adam(config.learning_rate)
    if part == CLIPPING:
        rule = optax.sgd(config.sgd_learning_rate)
    if math.isfinite(clip):
        rule = optax.chain(optax.clip_by_global_norm(clip), rule)
    return Fitter(loss_of(make_model(config, cell)), rule)


def make_model(config: Config, cell: str) -> jr.Layer:
    make = {TANH: jr.elman, LSTM: jr.lstm}[cell]
    return jr.serial(make(config.num_units), jr.dense(NUM_SYMBOLS))


def initial_params(config: Config, cell: str, gain: float) -> Any:
    """Parameters of all seeds `[S, ...]`; the tanh cell has orthogonal kernels but for the gain."""
    keys = jax.vmap(jax.random.key)(np.array(config.all_seeds))
    model = make_model(config, cell)
    params, readout = jax.vmap(lambda key: model.init(key, NUM_SYMBOLS + 1))(keys)
    if cell == TANH:
        kernels = [recurrent_kernel(ORTHOGONAL, config.num_units, s) for s in config.all_seeds]
        params = params._replace(recurrent_kernel=jnp.float32(gain * np.stack(kernels)))
    return params, readout


def num_steps(config: Config) -> int:
    """T: what the longest delay takes."""
    return max(config.delays) + 1


def batches(config: Config, setting: Setting, epoch: int) -> dict[str, np.ndarray]:
    """The minibatches of all seeds, `[S, updates, ...]`; every sequence is drawn anew."""
    shape = UPDATES_PER_EPOCH, BATCH, num_steps(config)
    generators = [np.random.default_rng((seed, epoch)) for seed in config.all_seeds]
    symbols = np.stack([one.integers(NUM_SYMBOLS, size=shape) for one in generators])
    start = num_steps(config) - 1 - setting.delay
    marks = np.zeros((*symbols.shape, 1), np.float32)
    marks[..., start, :] = 1
    return {
        "xs": np.concatenate([np.eye(NUM_SYMBOLS, dtype=np.float32)[symbols], marks], axis=-1),
        "target": symbols[..., start],
        "start": np.full(symbols.shape[:2], start),
        "cut": np.full(symbols.shape[:2], num_steps(config) - setting.truncation),
    }


def loss_of(model: jr.Layer) -> Callable[..., Any]:
    """Cross-entropy of the recall; no gradient reaches the steps before `cut`."""

    def loss_fn(params, batch, key):
        del key
        xs, steps = batch["xs"], jnp.arange(batch["xs"].shape[1])

        def run(real, carry):
            mask = jnp.broadcast_to(real, xs.shape[:2])
            return jr.unroll(model, params, xs, mask=mask, carry=carry)

        before = run((steps >= batch["start"]) & (steps < batch["cut"]), None)
        after = run(steps >= jnp.maximum(batch["start"], batch["cut"]), jr.detach(before.carry))
        logits = after.outputs[:, -1]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()
        return loss, {"accuracy": (logits.argmax(-1) == batch["target"]).mean()}

    return loss_fn


class Results(NamedTuple):
    worked: Worked | None = None  # what can be worked out by hand
    radius: Mapping[str, Swept] = {}  # activation to what it does at every spectral radius
    gates: Mapping[str, Gated] = {}  # cell to how far it looks back
    spectra: Mapping[str, np.ndarray] = {}  # cell to singular values of products of Jacobians
    formats: Mapping[str, Saturated] = {}  # number format to where tanh is flat in it
    growth: Mapping[float, Grown] = {}  # rate to a state that grows by it
    warnings: Mapping[str, Warned] = {}  # network to what warns of it
    truncation: Sequence[Trained] = ()  # trainings with gradients that are cut off
    clipping: Sequence[Trained] = ()  # trainings with gradients that are clipped or not


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
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
            yield (results := results._replace(**{name: look()}))
            bar.advance(EPOCHS_PER_LOOK)
            bar.finish_stage(name)
        for setting in settings:
            bar.stage(setting.name)
            trained = train(config, setting, checkpoints, bar.advance)
            before = getattr(results, setting.part)
            results = results._replace(**{setting.part: (*before, trained)})
            bar.finish_stage(f"{setting.name}: accuracy {trained.median:.2f}")
            yield results
