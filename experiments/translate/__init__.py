"""From written numbers in five languages to digits: a fixed vector, or attention."""

from collections.abc import Iterator

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.translate.answers import make_answerer
from experiments.translate.config import UPDATES_PER_EPOCH, Config
from experiments.translate.model import matched_widths
from experiments.translate.report import report
from experiments.translate.results import Measured
from experiments.translate.task import make_task
from experiments.translate.training import make_fitter, settings_of, train

__all__ = ["Config", "measure", "report"]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Measured]:
    """Trains every model, and asks it for the digits of the held-out numbers."""
    task = make_task(config)
    widths = matched_widths(config)
    settings = settings_of(config, widths)
    fitters = {kind: make_fitter(config, kind, width) for kind, width in widths.items()}
    answerers = {kind: make_answerer(kind, width) for kind, width in widths.items()}
    epochs = config.updates // UPDATES_PER_EPOCH
    with progress_bar(len(settings) * (epochs + 1)) as bar:
        for setting in settings:
            bar.stage(setting.name)
            fitter = fitters[setting.kind]
            fitted = train(config, fitter, setting, task.training, checkpoints, bar.advance)
            answer = answerers[setting.kind]
            answers = answer(fitted.params, setting.flags, task.held_out)
            measured = Measured(setting, fitted, task, answers)
            bar.advance()
            bar.finish_stage(f"{setting.name}: {100 * measured.exact.mean():.0f} % written right")
            yield measured
