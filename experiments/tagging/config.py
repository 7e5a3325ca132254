"""The options of the experiment."""

import dataclasses
from pathlib import Path

from experiments.frame.options import require, require_counts, require_positive, require_seed


@dataclasses.dataclass(frozen=True)
class Config:
    """Which token does a character belong to? Aligned labels on Python's own source.

    Every character of files of the standard library has the class that `tokenize` gives its token:
    name, keyword, number, string, comment, operator, or the white space between them. A recurrence
    that reads forwards cannot know at `d` whether a name or a keyword begins; one that reads in
    both directions can. Files are trained on or tested on, never both. Paragraphs of very different
    length come in dense rows, several in each with a reset in front, or padded, one in each: the
    same loss and gradients, and another number of characters a second.
    """

    num_params: int = 16000
    """Parameters of each model, as nearly as its width allows."""
    num_features: int = 16
    """Width of the embedding of a character."""
    seeds: int = 2
    """Trainings of each model; they differ in initial parameters and the order of paragraphs."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    epochs: int = 8
    """Passes through the training files. The last one counts, whatever came before."""
    rows: int = 16
    """Rows of a minibatch of packed paragraphs."""
    row_length: int = 512
    """Steps of a row; longer paragraphs are cut between lines."""
    learning_rate: float = 1e-2
    """Of Adam at its peak; falls to zero along a cosine."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    padded_updates: int = 8
    """Updates that are made both ways and compared, from the same parameters."""
    rounds: int = 7
    """Rounds in which packed and padded minibatches are timed, in processor time."""
    out: Path | None = None
    """A new folder to write to; runs/tagging/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: fewer files, one seed, shorter rows, few epochs."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            num_params=6000, seeds=1, epochs=8, rows=8, row_length=256, padded_updates=2, rounds=3,
            quick=True,
        )  # fmt: skip

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        names = ("num_features", "seeds", "epochs", "rows", "padded_updates", "rounds")
        require_counts(self, *names)
        require_seed(self)
        require(self.num_params >= 2500, "num_params", self, "at least 2500")
        require(128 <= self.row_length <= 4096, "row_length", self, "from 128 to 4096")
        require_positive(self, "learning_rate", "gradient_clip")
