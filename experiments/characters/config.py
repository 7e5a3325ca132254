import dataclasses
from typing import Annotated, Literal

from experiments.frame.options import (
    Count,
    EachOnce,
    NonNegative,
    Positive,
    Requirement,
    ResumableOptions,
    Seed,
    at_least,
    within,
)

Model = Literal["lstm", "gru", "mamba", "mlstm", "attention"]
Mode = Literal["carried", "reset"]
Share = Annotated[float, Requirement(lambda share: 0 < share <= 1, "above 0 and at most 1")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ResumableOptions):
    """Five mixers learn to predict the next character of Python's own reference texts.

    Everything but the mixer is equal: blocks, number of parameters, data, order, optimizer. Every
    one is trained by truncated backpropagation twice, with the carry handed from chunk to chunk
    and with a carry that is reset at every chunk; scored on topics it has never seen, in bits per
    character beside counts and compressors; and let run freely on its own output.
    """

    QUICK = {
        "models": ("gru", "lstm"),
        "epochs": 1,
        "parameters": 20_000,
        "training_share": 0.5,
        "held_out": 0.05,
        "prompts": 8,
        "prompt_length": 64,
        "written_length": 128,
    }

    models: EachOnce[Model] = ("lstm", "gru", "mamba", "mlstm", "attention")
    """Which mixers."""
    modes: EachOnce[Mode] = ("carried", "reset")
    """What happens to the carry between the chunks of training; the first one writes the text."""
    epochs: Count = 6
    """Passes over the training text. The last one counts."""
    parameters: Annotated[int, at_least(5_000)] = 60_000
    """Parameters of every model; the width is the nearest."""
    blocks: Count = 1
    """Blocks of mixer and perceptron."""
    batch_size: Count = 16
    """Streams side by side."""
    chunk: Annotated[int, at_least(2)] = 64
    """Characters a gradient goes back through."""
    learning_rate: Positive = 8e-3
    """Learning rate of AdamW at its peak, after a twentieth; falls along a cosine."""
    weight_decay: NonNegative = 1e-2
    """Weight decay of AdamW."""
    gradient_clip: Positive = 1.0
    """Largest global norm of a gradient."""
    held_out: Annotated[float, within(0.01, 0.5)] = 0.12
    """The share of the text that is held out, by topic."""
    training_share: Share = 1.0
    """The share of every training topic that is used."""
    prompts: Count = 32
    """Held-out passages to write on from."""
    prompt_length: Count = 128
    """Characters of a prompt."""
    written_length: Annotated[int, at_least(16)] = 256
    """Characters written freely after each prompt."""
    seed: Seed = 0
    """Seed of the parameters, the order of the topics and the draws."""
