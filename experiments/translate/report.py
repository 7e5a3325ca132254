"""Tables and files of what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.data.spelled import LANGUAGES, source_text, target_text
from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table, what_failed
from experiments.translate import plots
from experiments.translate.config import FIXED, UPDATES_PER_EPOCH, Config
from experiments.translate.expectations import judged
from experiments.translate.maps import examples
from experiments.translate.model import LABELS, WITH_ATTENTION
from experiments.translate.results import Measured
from experiments.translate.scores import (
    digit_groups,
    exact_by_kind,
    length_groups,
    whole_kinds,
)

CLAIM = (
    "A fixed vector between encoder and decoder has to hold all of the source, so its accuracy "
    "falls with the length of the source; attention, which looks back at every letter, has no "
    "such bottleneck. Numbers in words are read letter by letter and written in digits, and no "
    "number of the test is in training in any language."
)
LEARNT = 99.0


def report(config: Config, results: Sequence[Measured], folder: RunFolder) -> Page:
    """Writes rows, figures and tables, and prints the tables, the expectations last."""
    lines = judged(config, results)
    folder.write_csv("results.csv", _result_rows(config, results))
    folder.write_csv("answers.csv", _answer_rows(results))
    folder.write_csv("metrics.csv", _update_rows(results))
    folder.write_json("verdicts.json", verdict_rows(lines))
    tables = [
        verdicts_table("What was expected, and what came", lines),
        _models_table(config, results),
        _lengths_table(config, results),
        _digits_table(results),
        _languages_table(config, results),
        _examples_table(config, results),
    ]
    folder.write_text("summary.md", "\n".join(["# translate\n", *map(markdown, tables)]))
    for table in [*tables[1:], tables[0]]:
        show(table)
    failed = what_failed(lines) + [
        f"{one.setting.name}: not all numbers stayed finite."
        for one in results
        if one.fitted.failed
    ]
    found = [f"{sum(line.passed is True for line in lines)} of {len(lines)} expectations held."]
    found += [f"{line.point}: {line.measured}." for line in lines if line.passed]
    found += [*_letters_apart(results), *_learnt(results), _sizes(results)]
    return Page("translate", CLAIM, tables, _pictures(config, results, folder), found, failed)


def _pictures(config, results, folder) -> list[Picture]:
    whole = whole_kinds(results)
    drawn = {"training": lambda path: plots.training(results, path)}
    if whole:
        drawn = {"lengths": lambda path: plots.lengths(results, config.longest, path)} | drawn
    if any(one.setting.is_probe for one in results):
        drawn["bottleneck"] = lambda path: plots.bottleneck(results, config.longest, path)
    if set(WITH_ATTENTION) & set(whole):
        drawn["attention"] = lambda path: plots.attention(results, config.longest, path)
    for name, draw in drawn.items():
        draw(folder.path(f"{name}.png"))
    return [Picture(f"{name}.png", plots.CAPTIONS[name]) for name in drawn]


def _label(measured: Measured) -> str:
    setting = measured.setting
    if setting.is_probe:
        return f"{LABELS[setting.kind]}, {setting.kept} of {setting.width} units"
    return LABELS[setting.kind]


def _by_label(results: Sequence[Measured]) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for one in results:
        groups.setdefault(_label(one), []).append(one)
    return groups


def _models_table(config: Config, results: Sequence[Measured]) -> Table:
    within = results[0].task.held_out.lengths <= config.longest
    rows = []
    for label, group in _by_label(results).items():
        good = [one for one in group if not one.fitted.failed]
        scores = [
            (one.fitted.history["right"][-1], one.forced_share[within])
            + (one.written_share[within], one.exact[within], one.exact[~within])
            for one in good
        ]
        cells = [_percent([seed[index] for seed in scores]) for index in range(5)]
        first = group[0]
        sizes = f"{first.setting.width}", f"{first.fitted.num_params:,}"
        num_failed = f"{len(group) - len(good)} of {len(group)}"
        rows.append((label, *sizes, *cells, num_failed))
    columns = ("model", "width", "parameters", "tokens right in training", "true prefix")
    columns += ("tokens right, alone", "all right, alone", "longer sources", "failed seeds")
    title = (
        f"Tokens of the last {UPDATES_PER_EPOCH} updates and of {within.sum()} held-out pairs with "
        f"sources of up to {config.longest} letters, as in training: right behind the true prefix "
        f"and left alone, and numbers with every token right, there and in {(~within).sum()} "
        "longer sources; %"
    )
    return Table(title, columns, rows)


def _percent(parts: Sequence[np.ndarray]) -> str:
    """Mean over the pairs of each seed, mean and deviation over the seeds."""
    values = np.array([100 * part.mean() for part in parts if len(part)])
    return mean_and_spread(values)


def _lengths_table(config: Config, results: Sequence[Measured]) -> Table:
    pairs, labels = results[0].task.held_out, _by_label(results)
    rows = []
    for name, mask in length_groups(pairs.lengths, config.longest):
        beyond = bool((pairs.lengths[mask] > config.longest).all())
        shares = [_percent([one.exact[mask] for one in group]) for group in labels.values()]
        rows.append((f"{name}{', not in training' if beyond else ''}", str(mask.sum()), *shares))
    title = "Numbers written right by the letters of the source, %"
    return Table(title, ("letters", "pairs", *labels), rows)


def _digits_table(results: Sequence[Measured]) -> Table:
    labels = _by_label(results)
    rows = []
    for digits, median, *halves in digit_groups(results[0].task.held_out):
        for words, mask in zip(("up to", "above"), halves, strict=True):
            shares = [_percent([one.exact[mask] for one in group]) for group in labels.values()]
            rows.append((str(digits), f"{words} {median:g}", str(mask.sum()), *shares))
    title = "Numbers written right by digits, and by letters around the median of those digits, %"
    return Table(title, ("digits", "letters", "pairs", *labels), rows, num_names=2)


def _languages_table(config: Config, results: Sequence[Measured]) -> Table:
    pairs, labels = results[0].task.held_out, _by_label(results)
    rows = []
    for language in config.languages:
        for beyond in (False, True):
            mask = (pairs.languages == language) & ((pairs.lengths > config.longest) == beyond)
            shares = [_percent([one.exact[mask] for one in group]) for group in labels.values()]
            which = f"longer than {config.longest}" if beyond else "as in training"
            rows.append((LANGUAGES[language], which, str(mask.sum()), *shares))
    title = "Numbers written right by language and length, %"
    return Table(title, ("language", "letters", "pairs", *labels), rows, num_names=2)


def _examples_table(config: Config, results: Sequence[Measured]) -> Table:
    pairs, whole = results[0].task.held_out, whole_kinds(results)
    rows = []
    for row in examples(pairs, config.longest):
        written = [target_text(whole[kind][0].answers.written[row]) for kind in whole]
        rows.append((source_text(pairs.sources[row]), str(pairs.numbers[row]), *written))
    title = (
        "The longest held-out source of each language within the lengths in training, as written"
    )
    return Table(title, ("source", "number", *(LABELS[kind] for kind in whole)), rows)


def _learnt(results: Sequence[Measured]) -> list[str]:
    """Whether the fixed vector has learnt its training; if not, more updates could change it."""
    shares = [
        100 * float(one.fitted.history["right"][-1].mean())
        for one in whole_kinds(results).get(FIXED, [])
    ]
    if not shares or min(shares) >= LEARNT:
        return []
    return [
        f"The fixed vector has not learnt its training either: {min(shares):.1f} % of the tokens "
        "were right at its end. What is compared is what so many updates of so many parameters "
        "reach, not what a vector of that width could hold."
    ]


def _letters_apart(results: Sequence[Measured]) -> list[str]:
    """What the length does where the number of digits does not change; no expectation of it."""
    exact = exact_by_kind(results)
    *_, (digits, median, shorter, longer) = digit_groups(results[0].task.held_out)
    shares = [
        f"{LABELS[kind]} {100 * right[shorter].mean():.0f} and {100 * right[longer].mean():.0f} %"
        for kind, right in exact.items()
    ]
    return [
        f"Long sources are mostly large numbers. Of numbers of {digits} digits alone, sources of "
        f"up to {median:g} letters and longer ones: {', '.join(shares)}."
    ]


def _sizes(results: Sequence[Measured]) -> str:
    task = results[0].task
    return (
        f"{len(task.training.numbers):,} pairs of {len(np.unique(task.training.numbers)):,} "
        f"numbers in training, {len(task.held_out.numbers):,} pairs of "
        f"{len(np.unique(task.held_out.numbers)):,} other numbers in the test."
    )


def _result_rows(config: Config, results: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    within = results[0].task.held_out.lengths <= config.longest
    for one in results:
        setting = one.setting
        yield {
            "model": setting.kind,
            "width": setting.width,
            "kept": setting.kept,
            "seed": setting.seed,
            "status": "failed" if one.fitted.failed else "ok",
            "num_params": one.fitted.num_params,
            "forced_tokens": one.forced_share[within].mean(),
            "written_tokens": one.written_share[within].mean(),
            "exact": one.exact[within].mean(),
            "exact_longer": one.exact[~within].mean() if not within.all() else "",
        }


def _answer_rows(results: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    pairs = results[0].task.held_out
    for one in results:
        answers = one.exact, one.forced_share, map(target_text, one.answers.written)
        rows = zip(pairs.numbers, pairs.languages, pairs.lengths, *answers, strict=True)
        for number, language, length, exact, forced, written in rows:
            yield {
                "training": one.setting.name,
                "language": language,
                "number": number,
                "letters": length,
                "written": written,
                "exact": int(exact),
                "forced_tokens": round(float(forced), 4),
            }


def _update_rows(results: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    for one in results:
        history = {name: values.reshape(-1) for name, values in one.fitted.history.items()}
        for update in range(len(history["loss"])):
            values = {name: float(values[update]) for name, values in history.items()}
            yield {"training": one.setting.name, "update": update + 1} | values
