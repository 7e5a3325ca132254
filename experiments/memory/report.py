"""Files, tables and the page of what was counted and learnt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table, what_failed
from experiments.memory import plots
from experiments.memory.config import UPDATES_PER_CALL, Config
from experiments.memory.counting import Counted, most_bits_right, most_states
from experiments.memory.expected import CLAIMS, UNKNOWN, Judged, judge, verdicts
from experiments.memory.networks import LABELS
from experiments.memory.tasks import TASKS
from experiments.memory.training import Trained

CLAIM = (
    "Parity of a binary history needs one bit of state; to give the history back, a state of H "
    "numbers with p bits needs n ≤ p H. What training finds within that depends on the recurrence: "
    "GRU, LSTM and sLSTM learn parity and hold on longer rows, linear models whose eigenvalues "
    "are positive do not, and eigenvalues in (-1, 1) help."
)


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, figures and tables, and prints the tables."""
    counted: dict[str, list[Counted]] = dict(one for one in results if not _is_trained(one))
    trained = [one for one in results if _is_trained(one)]
    judged = [each for one in trained for each in judge(config, one)]
    lines = verdicts(config, counted, judged)
    folder.write_json("verdicts.json", verdict_rows(lines))
    folder.write_csv("counting.csv", _count_rows(counted))
    tables = [verdicts_table("What was expected, and what became of it", lines)]
    pictures = []
    if "register" in counted:
        tables.append(_counts_table(counted))
        cells = counted["register"], counted.get("rounded", ())
        plots.counting(*cells, config, folder.path("counting.png"))
        pictures.append(Picture("counting.png", plots.CAPTIONS["counting"]))
    if trained:
        folder.write_csv("scores.csv", _score_rows(config, trained))
        folder.write_csv("metrics.csv", _epoch_rows(config, trained))
        tables += [_scores_table(config, trained, index) for index in range(len(config.tasks))]
        tables.append(_models_table(config, trained))
        for draw in (plots.lengths, plots.training):
            name = f"{draw.__name__}.png"
            draw(trained, config, folder.path(name))
            pictures.append(Picture(name, plots.CAPTIONS[draw.__name__]))
    folder.write_text("summary.md", "\n".join(["# memory\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    failed = [*what_failed(lines), *_disagreements(judged), *_failed_seeds(config, trained)]
    found = [*_found(lines, counted, judged), *_beside_the_bound(config, trained)]
    return Page("memory", CLAIM, tables, pictures, found, failed)


def _is_trained(result: Any) -> bool:
    return isinstance(result, Trained)


def _found(lines, counted, judged) -> Iterator[str]:
    passed = sum(line.passed is True for line in lines)
    yield f"{passed} of {len(lines)} lines of the expectation passed."
    for line in lines:
        if line.passed:
            yield f"{line.point}: {line.measured}."
    for one in counted.get("rounded", ()):
        longest = len(one.states)
        states, limit = one.states[-1], most_states(one.capacity, longest)
        yield (
            f"{one.name}: all {2**longest:,} histories of {longest} bits end in "
            f"{states:,} of {limit:,} states."
        )
    for task in dict.fromkeys(one.task for one in judged):
        here = [one for one in judged if one.task == task]
        learnt, held = (
            ", ".join(LABELS[one.model] for one in here if getattr(one, flag)) or "none"
            for flag in ("learns", "holds")
        )
        yield f"{TASKS[task].label}: learnt by {learnt}; holds on the longest rows for {held}."
        if here[0].seeds > 1:
            seeds = ", ".join(f"{LABELS[one.model]} {one.seeds_that_hold}" for one in here)
            yield f"{TASKS[task].label}: seeds of {here[0].seeds} that hold: {seeds}."
    claims = [one for one in judged if one.claim != UNKNOWN]
    agreeing = sum(not one.disagreements for one in claims)
    yield f"{agreeing} of {len(claims)} claims about a model and a task came out as expected."


def _beside_the_bound(config: Config, trained: Sequence[Trained]) -> Iterator[str]:
    if trained and "copying" in config.tasks:
        bits, least = max(config.test_lengths) // 2, min(one.state_bits for one in trained)
        yield (
            f"copying: the longest rows hold {bits} bits, the smallest carry {least:,} in float32. "
            f"Where copying fails {'it is not for want of states' if bits <= least else 'it must'}."
        )


def _disagreements(judged: Sequence[Judged]) -> Iterator[str]:
    for one in judged:
        for phrase in one.disagreements:
            yield f"{TASKS[one.task].label}, {LABELS[one.model]}: {phrase}."


def _failed_seeds(config: Config, trained: Sequence[Trained]) -> Iterator[str]:
    for one in trained:
        for place in np.flatnonzero(one.failed):
            task, seed = config.replicas[place]
            yield (
                f"{LABELS[one.model]}, {TASKS[task].label}, seed {seed}: a loss or a parameter was "
                "not finite."
            )


def _counts_table(counted: Mapping[str, Sequence[Counted]]) -> Table:
    rows = []
    for one in (*counted["register"], *counted.get("rounded", ())):
        longest = len(one.states)
        past = min(longest, one.capacity + 3)
        rows.append(
            (
                one.name,
                str(one.capacity),
                f"{one.states[-1]:,} of {most_states(one.capacity, longest):,}",
                _share(one, one.capacity),
                _share(one, past),
                f"{100 * most_bits_right(one.capacity, past):.1f}",
            )
        )
    columns = (
        "cell", "p H", "carries of all histories",
        "bits right, n = p H (%)", "n = p H + 3 (%)", "at most (%)",
    )  # fmt: skip
    return Table("What the best reader of a rounded carry can give back", columns, rows)


def _share(one: Counted, step: int) -> str:
    return f"{100 * one.bits_right[step - 1]:.1f}"


def _scores_table(config: Config, trained: Sequence[Trained], index: int) -> Table:
    task = config.tasks[index]
    rows = []
    for one in trained:
        judged = list(judge(config, one))[index]
        scores = (
            " ".join("-" if np.isnan(score) else f"{100 * score:.0f}" for score in seeds)
            for seeds in one.scores[config.places(task)].T
        )
        claim = CLAIMS[task].get(one.model, UNKNOWN)
        word = "-" if claim == UNKNOWN else "differs" if judged.disagreements else "as expected"
        rows.append((LABELS[one.model], _claimed(claim), *scores, word))
    columns = ("model", "expected", *(f"{length} steps" for length in config.test_lengths), "")
    chance = f"chance {100 * TASKS[task].chance:.0f}"
    title = f"{TASKS[task].label}: answers right (%), a number for each seed; {chance}"
    return Table(title, columns, rows, num_names=2)


def _claimed(claim) -> str:
    words = {True: "yes", False: "no", None: "?"}
    return f"learns: {words[claim.learns]}, holds: {words[claim.holds]}"


def _models_table(config: Config, trained: Sequence[Trained]) -> Table:
    rows = [
        (
            LABELS[one.model],
            str(one.width),
            f"{one.num_params:,}",
            f"{one.state_bits:,}",
            str(int(one.failed.sum())),
        )
        for one in trained
    ]
    columns = ("model", "features", "parameters", "bits of carry in float32", "failed")
    return Table(f"The models; blocks: {config.num_blocks}", columns, rows)


def _count_rows(counted: Mapping[str, Sequence[Counted]]) -> Iterator[dict[str, Any]]:
    for kind, cells in counted.items():
        for one in cells:
            for index, (states, right) in enumerate(zip(one.states, one.bits_right, strict=True)):
                yield {
                    "kind": kind,
                    "cell": one.name,
                    "capacity_bits": one.capacity,
                    "history_bits": index + 1,
                    "carries": int(states),
                    "most_carries": most_states(one.capacity, index + 1),
                    "histories_right": float(one.histories_right[index]),
                    "bits_right": float(right),
                    "most_bits_right": most_bits_right(one.capacity, index + 1),
                }


def _replicas(config: Config, trained: Sequence[Trained]) -> Iterator[tuple[Any, ...]]:
    for one in trained:
        for place, (task, seed) in enumerate(config.replicas):
            yield one, place, {"model": one.model, "task": task, "seed": seed}


def _score_rows(config: Config, trained: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for one, place, name in _replicas(config, trained):
        status = "failed" if one.failed[place] else "ok"
        for length, score in zip(config.test_lengths, one.scores[place], strict=True):
            yield name | {"steps": length, "right": float(score), "status": status}


def _epoch_rows(config: Config, trained: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    """Means of the updates of each epoch."""
    for one, place, name in _replicas(config, trained):
        losses, scores = (
            values[place].reshape(-1, UPDATES_PER_CALL).mean(axis=1)
            for values in (one.losses, one.training_scores)
        )
        for epoch, (loss, score) in enumerate(zip(losses, scores, strict=True), 1):
            updates = epoch * UPDATES_PER_CALL
            yield name | {"updates": updates, "loss": float(loss), "right": float(score)}
