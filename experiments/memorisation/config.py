"""The options of the experiment."""

import dataclasses
from pathlib import Path

from experiments.characters import Config as Training
from experiments.frame.options import require, require_counts, require_seed

MIXERS = ("gru", "lstm", "mamba")


@dataclasses.dataclass(frozen=True)
class Config:
    """Point at a character and see which earlier ones the prediction of it depends on.

    After "Visualizing memorization in RNNs" (Madsen, Distill 2019): a GRU, an LSTM and Mamba of
    `characters`, side by side on the same held-out passages. Shaded is the gradient of what a model
    says about the character that it thinks the likeliest. The page memorisation.html needs no
    network and nothing beside it.
    """

    characters: Path | None = None
    """The folder of a finished run of `characters` to take the models from; else a short training
    makes them."""
    epochs: int = 4
    """Passes over the training text, if the models are trained here."""
    parameters: int = 60_000
    """Parameters of every model, if they are trained here."""
    training_share: float = 1.0
    """The share of the training text, if they are trained here."""
    passages: int = 4
    """Held-out passages to show."""
    length: int = 160
    """Characters of a passage."""
    seed: int = 0
    """Of the passages, and of the training if there is one."""
    out: Path | None = None
    """A new folder to write to; runs/memorisation/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: small models, little training, short passages."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            epochs=1, parameters=20_000, training_share=0.4, passages=2, length=96, quick=True
        )

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_counts(self, "passages")
        require_seed(self, "seed")
        require(self.length >= 16, "length", self, "at least 16")
        self.training().check()

    def training(self) -> Training:
        """The options with which `characters` trains the models."""
        return Training(
            models=MIXERS,
            modes=("carried",),
            epochs=self.epochs,
            parameters=self.parameters,
            training_share=self.training_share,
            seed=self.seed,
        )
