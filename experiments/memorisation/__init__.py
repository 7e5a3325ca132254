"""Which earlier characters a prediction depends on, as a page to point at."""

from collections.abc import Iterator
from typing import Any

from experiments.characters.model import sized
from experiments.characters.saved import load, saved_config
from experiments.characters.training import train
from experiments.characters.writing import passages
from experiments.data.topics import load_topics, make_corpus
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.errors import ExperimentError
from experiments.frame.models import LABELS
from experiments.frame.progress import progress_bar
from experiments.memorisation.config import MIXERS, Config
from experiments.memorisation.connections import connect
from experiments.memorisation.report import report
from experiments.memorisation.results import Chosen, Traced

__all__ = ["Config", "measure", "report"]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """The passages; then every model, trained or read, and what its predictions depend on."""
    given = config.characters
    training = config.training() if given is None else saved_config(given)
    corpus = make_corpus(load_topics(), training.held_out, training.seed)
    found = passages(corpus.held_out, config.passages, config.length, 0, config.seed)
    if len(found) < config.passages:
        raise ExperimentError(
            f"--passages must be at most {len(found)}, the held-out passages of that length, "
            f"got {config.passages}"
        )
    models = {}
    if given is not None:  # all at once, before anything is written about one of them
        models = {mixer: load(given, training, mixer, corpus.digest) for mixer in MIXERS}
    yield Chosen(corpus, found)
    epochs = config.epochs if given is None else 0
    with progress_bar(len(MIXERS) * (epochs + 1)) as bar:
        for mixer in MIXERS:
            bar.stage(LABELS[mixer])
            if given is None:
                model = sized(mixer, training.parameters, training.blocks)
                texts = corpus.training.values()
                trained = train(training, model, "carried", texts, checkpoints, bar.advance)
                models[mixer] = model, trained.fitted.params
            connections = connect(*models[mixer], [passage.prompt for passage in found])
            bar.advance()
            bar.finish_stage(f"{LABELS[mixer]}: {connections.bits:.2f} bits per character")
            yield Traced(*models[mixer], connections)
