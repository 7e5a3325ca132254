"""Trains one kind of model, for any width of what it hands over and any seed; compiled once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.data.spelled import PAD, Pairs
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted, Fitter
from experiments.translate.config import FIXED, UPDATES_PER_EPOCH, Config
from experiments.translate.model import initial_params, make_model
from experiments.translate.task import minibatches


class Setting(NamedTuple):
    """What is trained.

    Attributes:
        kind: One of `config.KINDS`.
        width: Units of the GRUs.
        kept: Units of the encoder's last carry that reach the decoder.
        seed: Of initial parameters and minibatches.
    """

    kind: str
    width: int
    kept: int
    seed: int

    @property
    def is_probe(self) -> bool:
        """Whether not all units pass."""
        return self.kept < self.width

    @property
    def name(self) -> str:
        """What the training is called in tables and files."""
        units = f", {self.kept} of {self.width} units" if self.is_probe else ""
        return f"{self.kind}{units}, seed {self.seed}"

    @property
    def flags(self) -> np.ndarray:
        """Which units pass, `[width]`."""
        return (np.arange(self.width) < self.kept).astype(np.float32)


def settings_of(config: Config, widths: dict[str, int]) -> list[Setting]:
    """With each seed all models, and then the fixed vector narrowed."""
    whole = [(kind, widths[kind]) for kind in config.models]
    narrowed = [(FIXED, kept) for kept in config.kept if FIXED in config.models]
    return [
        Setting(kind, widths[kind], kept, config.first_seed + index)
        for index in range(config.seeds)
        for kind, kept in whole + narrowed
    ]


def make_loss(kind: str, width: int) -> Callable[..., Any]:
    """Cross-entropy of the next token over all real ones, read with the true prefix."""

    def loss_fn(params, batch, key):
        del key
        sources, targets = batch["sources"], batch["targets"]
        following = targets[:, 1:]
        mask = following != PAD
        rollout = make_model(kind, width, batch["kept"]).teacher_forced(
            params, sources, targets[:, :-1], source_mask=sources != PAD, mask=mask
        )
        losses = jr.cross_entropy(rollout.outputs, following, mask)
        right = rollout.outputs.argmax(-1) == following
        return jr.mean_over_steps(losses, mask), {"right": jr.mean_over_steps(right, mask)}

    return loss_fn


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """Adam behind a clip of the global norm; the rate follows half a cosine to 0."""
    rate = optax.cosine_decay_schedule(config.learning_rate, config.updates)
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate))


def make_fitter(config: Config, kind: str, width: int) -> Fitter:
    """What trains every setting of a kind."""
    return Fitter(make_loss(kind, width), make_optimizer(config))


def train(
    config: Config,
    fitter: Fitter,
    setting: Setting,
    training: Pairs,
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Fitted:
    """Trains one setting."""
    kept = jnp.broadcast_to(setting.flags, (UPDATES_PER_EPOCH, setting.width))

    def batches(epoch):
        return minibatches(config, training, setting.seed, epoch) | {"kept": kept}

    return fitter.fit(
        setting.name,
        initial_params(setting.kind, setting.width, setting.seed),
        batches,
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        epoch_done=epoch_done,
    )
