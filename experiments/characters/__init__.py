"""Five mixers predict the next character of Python's own reference texts."""

from collections.abc import Iterator
from typing import Any

from experiments.characters.config import Config
from experiments.characters.evaluation import (
    make_baselines,
    read_each_other,
    score_held_out,
    write_on,
)
from experiments.characters.model import sized
from experiments.characters.report import report
from experiments.characters.training import train
from experiments.data.topics import load_topics, make_corpus
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.models import LABELS
from experiments.frame.progress import progress_bar

__all__ = ["Config", "measure", "report"]

WRITING = 2  # the time it takes to write, in epochs


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Baselines; then every model in every mode, and what it writes; then all read each other."""
    corpus = make_corpus(load_topics(), config.held_out, config.seed)
    total = len(config.models) * (len(config.modes) * config.epochs + WRITING) + 1
    with progress_bar(total) as bar:
        bar.stage("counts and compressors")
        baselines = make_baselines(config, corpus)
        yield baselines
        bar.advance()
        scored, written = [], []
        for mixer in config.models:
            model = sized(mixer, config.parameters, config.blocks)
            for mode in config.modes:
                bar.stage(f"{LABELS[mixer]}, {mode}")
                texts = corpus.training.values()
                trained = train(config, model, mode, texts, checkpoints, bar.advance)
                one = score_held_out(trained, corpus, config.chunk)
                bar.finish_stage(f"{LABELS[mixer]}, {mode}: {one.mean_bits:.3f} bits per character")
                yield one
                if mode == config.modes[0]:
                    scored.append(one)
            bar.stage(f"{LABELS[mixer]} writes")
            written.append(write_on(config, scored[-1].trained, baselines))
            yield written[-1]
            bar.advance(WRITING)
        yield read_each_other(config, baselines, scored, written)
