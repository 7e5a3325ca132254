"""The options of the experiment."""

import dataclasses
from pathlib import Path
from typing import Literal

from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)

Model = Literal["lstm", "gru", "mamba", "mlstm", "attention"]
Mode = Literal["carried", "reset"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Five mixers learn to predict the next character of Python's own reference texts.

    Everything but the mixer is equal: blocks, number of parameters, data, order, optimizer. Every
    one is trained by truncated backpropagation twice, with the carry handed from chunk to chunk
    and with a carry that is reset at every chunk; scored on topics it has never seen, in bits per
    character beside counts and compressors; and let run freely on its own output.
    """

    models: tuple[Model, ...] = ("lstm", "gru", "mamba", "mlstm", "attention")
    """Which mixers."""
    modes: tuple[Mode, ...] = ("carried", "reset")
    """What happens to the carry between the chunks of training; the first one writes the text."""
    epochs: int = 6
    """Passes over the training text. The last one counts."""
    parameters: int = 60_000
    """Parameters of every model; the width is the nearest."""
    blocks: int = 1
    """Blocks of mixer and perceptron."""
    batch_size: int = 16
    """Streams side by side."""
    chunk: int = 64
    """Characters a gradient goes back through."""
    learning_rate: float = 8e-3
    """Of AdamW at its height; it rises over the first twentieth and falls along a cosine."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    held_out: float = 0.12
    """The share of the text that is held out, by topic."""
    training_share: float = 1.0
    """The share of every training stream that is used."""
    prompts: int = 32
    """Held-out passages to write on from."""
    prompt_length: int = 128
    """Characters of a prompt."""
    written_length: int = 256
    """Characters written freely behind each prompt."""
    seed: int = 0
    """Of the parameters, the order of the topics and the draws."""
    out: Path | None = None
    """A new folder to write to; runs/characters/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: two mixers, half of the text, little training."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            models=("gru", "lstm"),
            epochs=1,
            parameters=20_000,
            training_share=0.5,
            held_out=0.05,
            prompts=8,
            prompt_length=64,
            written_length=128,
            quick=True,
        )

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_counts(self, "epochs", "blocks", "batch_size", "prompts", "prompt_length")
        require_each_once(self, "models", "modes")
        require_seed(self, "seed")
        require_positive(self, "learning_rate", "gradient_clip")
        require(self.weight_decay >= 0, "weight_decay", self, "at least 0")
        require(self.parameters >= 5_000, "parameters", self, "at least 5000")
        require(self.chunk >= 2, "chunk", self, "at least 2")
        require(0.01 <= self.held_out <= 0.5, "held_out", self, "from 0.01 to 0.5")
        require(0 < self.training_share <= 1, "training_share", self, "above 0 and at most 1")
        require(self.written_length >= 16, "written_length", self, "at least 16")
