from collections.abc import Sequence

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.recurrent_policy import figures
from experiments.recurrent_policy.config import Config
from experiments.recurrent_policy.expect import judged
from experiments.recurrent_policy.measure import SOLVED, Results, Trained
from experiments.recurrent_policy.model import LABELS

CLAIM = (
    "A policy with a carry learns tasks in which the present observation is not enough, by "
    "reinforcement learning wholly inside one compiled program; without a carry it stays at "
    "chance. The update unrolls the policy from the carries that the rollout stored, and sees what "
    "it saw."
)
CAPTIONS = {
    "returns": "Mean return of the episodes of the last updates. Left: by the length of the "
    "corridor, thin: a seed, thick: their mean. Right: a dot a seed. Dotted: the best return "
    "without memory.",
    "learning": "Mean return of the episodes that end in a window, by the steps of all "
    "environments of a seed. Thin: a seed, thick: their mean. Dotted: the best return without "
    "memory. Returns below -1 are cut off.",
}


def report(config: Config, results: Results) -> Report:
    """Returns of all tasks and models, how they were learnt, and how fast."""
    trained = results.trained
    captions = CAPTIONS if trained else {}
    return Report(
        CLAIM,
        verdicts=judged(config, results),
        trainings=[_training(config, one) for one in trained],
        pictures=Picture.drawn(figures, captions, config, trained),
        tables=[_table(trained)],
    )


def _training(config: Config, one: Trained) -> Training:
    names = {"task": one.environment.name, "model": one.model}
    scores = {"return": one.score, "solved": one.solved}
    return Training(names, config.all_seeds, one.fitted, scores)


def _table(results: Sequence[Trained]) -> Table:
    columns = {
        "task": lambda one: one.environment.name,
        "model": lambda one: LABELS[one.model],
        "parameters": lambda one: str(one.fitted.num_params),
        "return": lambda one: mean_and_spread(one.fitted.of_good_seeds(one.score), 2),
        "worst": lambda one: f"{one.score.min():.2f}",
        "best": lambda one: f"{one.score.max():.2f}",
        "solved": lambda one: share(one.solved),
        "thousand steps a second": lambda one: _thousands(one.steps_per_second),
    }
    title = (
        "Mean return of the episodes of the last updates, mean ± deviation over seeds; solved: "
        f"{SOLVED} or more; steps of all seeds together, learning included"
    )
    return Table.by_columns(title, results, columns, num_names=2)


def _thousands(steps):
    return "-" if np.isnan(steps) else f"{steps / 1000:.0f}"
