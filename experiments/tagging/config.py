import dataclasses
from typing import Annotated

from experiments.frame.options import Count, TrainingOptions, at_least, within


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Which token does a character belong to? Aligned labels on Python's own source.

    Every character of files of the standard library has the class that `tokenize` gives its token:
    name, keyword, number, string, comment, operator, or the white space between them. A recurrence
    that reads forwards cannot know at `d` whether a name or a keyword begins; one that reads in
    both directions can. Files are trained on or tested on, never both. Paragraphs of very different
    length come in dense rows, several in each with a reset before each, or padded, one in each: the
    same loss and gradients, and another number of characters a second.
    """

    QUICK = {
        "num_params": 6000,
        "seeds": 1,
        "rows": 8,
        "row_length": 256,
        "padded_updates": 2,
        "rounds": 3,
    }

    num_params: Annotated[int, at_least(2500)] = 16000
    """Parameters of each model, as nearly as its width allows."""
    num_features: Count = 16
    """Width of the embedding of a character."""
    seeds: Count = 2
    """Trainings of each model; they differ in initial parameters and the order of paragraphs."""
    epochs: Count = 8
    """Passes through the training files. The last one counts."""
    rows: Count = 16
    """Rows of a minibatch of packed paragraphs."""
    row_length: Annotated[int, within(128, 4096)] = 512
    """Steps of a row; longer paragraphs are cut between lines."""
    padded_updates: Count = 8
    """Updates that are made both ways and compared, from the same parameters."""
    rounds: Count = 7
    """Rounds in which packed and padded minibatches are timed, in processor time."""
