"""Trainings as rows of files and as sentences: the same for every experiment that trains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.frame.fitting import Fitted
from experiments.frame.stats import share


class Training(NamedTuple):
    """One setting, trained from one seed or several."""

    names: Mapping[str, Any]  # the columns that name it, in all files
    seeds: Sequence[int]  # the seeds, in the order of `fitted`
    fitted: Fitted  # what `Fitter.fit_seeds` or, of a single seed, `Fitter.fit` returned
    # further columns of results.csv: a value for all seeds, or an array [S]
    results: Mapping[str, Any] = {}

    @property
    def label(self) -> str:
        """Its names, as a sentence has them."""
        return ", ".join(map(str, self.names.values()))

    def result_rows(self) -> Iterator[dict[str, Any]]:
        """A row a seed: whether it failed, and how it ended."""
        fitted = self.fitted.with_seeds()
        for index, seed in enumerate(self.seeds):
            row = {**self.names, "seed": seed}
            row |= {"status": "failed" if fitted.failed[index] else "ok"}
            for name, value in {"num_params": fitted.num_params, **self.results}.items():
                row[name] = value[index].item() if isinstance(value, np.ndarray) else value
            yield row

    def update_rows(self) -> Iterator[dict[str, Any]]:
        """A row an update and seed, in which a score of the epoch comes again and again."""
        history = self.fitted.with_seeds().history
        lengths = [values.shape[2] for values in history.values() if values.ndim == 3]
        updates = max(lengths, default=1)
        for index, seed in enumerate(self.seeds):
            of_seed = {name: values[index] for name, values in history.items()}
            for epoch in range(len(next(iter(of_seed.values()), ()))):
                for update in range(updates):
                    row = {**self.names, "seed": seed, "epoch": epoch + 1}
                    row["update"] = epoch * updates + update + 1
                    for name, values in of_seed.items():
                        value = values[epoch]
                        row[name] = float(value[update] if value.ndim else value)
                    yield row

    def failed(self) -> Iterator[str]:
        """A sentence, if a seed failed."""
        failed = np.atleast_1d(self.fitted.failed)
        if failed.any():
            had = f"{share(failed)} seeds had a number that is not finite, and are in no mean."
            yield f"{self.label}: {had}"
