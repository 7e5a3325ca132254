import dataclasses
from pathlib import Path
from typing import Annotated

from experiments.characters.config import Config as Training
from experiments.characters.config import Share
from experiments.frame.options import Count, ResumableOptions, Seed, at_least

MIXERS = ("gru", "lstm", "mamba")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ResumableOptions):
    """Point at a character and see which earlier ones the prediction of it depends on.

    After "Visualizing memorization in RNNs" (Madsen, Distill 2019): a GRU, an LSTM and Mamba of
    `characters`, side by side on the same held-out passages. Shaded is the gradient of what a model
    says about the character that it thinks the likeliest. The page memorisation.html needs no
    network and nothing beside it.
    """

    QUICK = {"epochs": 1, "parameters": 20_000, "training_share": 0.4, "passages": 2, "length": 96}

    characters: Path | None = None
    """The folder of a finished run of `characters` to take the models from; else a short training
    makes them."""
    epochs: Count = 4
    """Passes over the training text, if the models are trained here."""
    parameters: Annotated[int, at_least(5_000)] = 60_000
    """Parameters of every model, if they are trained here."""
    training_share: Share = 1.0
    """The share of the training text, if they are trained here."""
    passages: Count = 4
    """Held-out passages to show."""
    length: Annotated[int, at_least(16)] = 160
    """Characters of a passage."""
    seed: Seed = 0
    """Seed of the passages, and of the training if there is one."""

    def training(self) -> Training:
        shared = ("epochs", "parameters", "training_share", "seed")
        own = {name: getattr(self, name) for name in shared}
        return Training(models=MIXERS, modes=("carried",), **own)
