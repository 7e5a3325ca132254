from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from experiments.data.spelled import LANGUAGES, source_text, target_text
from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.translate import figures
from experiments.translate.config import FIXED, UPDATES_PER_EPOCH, Config
from experiments.translate.expect import judged
from experiments.translate.measure import LABELS, WITH_ATTENTION, Measured, Results
from experiments.translate.task import digit_groups, length_groups

CLAIM = (
    "A fixed vector between encoder and decoder has to hold all of the source, so its accuracy "
    "falls with the length of the source; attention, which looks back at every letter, has no "
    "such bottleneck. Numbers in words are read letter by letter and written in digits, and no "
    "number of the test is in training in any language."
)
CAPTIONS = {
    "lengths": "Held-out numbers by the length of their source. Left: all digits right when the "
    "model reads what it wrote itself. Right: tokens right after the true prefix. Each point is "
    "the mean over sources of up to 3 letters more or less; grey: longer than any in training.",
    "training": "Loss of the updates, the median of every 50, and the share of tokens that were "
    "right after the true prefix; dotted: the narrowed vector. Thin: seeds, thick: their mean.",
    "bottleneck": "The fixed vector when only some of its units reach the decoder: numbers "
    "written right, and its full width at the right end; dashed: additive attention.",
    "attention": "Where attention looks when it writes each digit (after the true prefix), for "
    "the longest held-out source of each language that is within the lengths in training; the "
    "stop token is ■.",
}
LEARNT = 99.0


def report(config: Config, results: Results) -> Report:
    whole, verdicts = results.whole, judged(config, results)
    drawn = {
        "lengths": bool(whole),
        "training": True,
        "bottleneck": any(one.setting.is_probe for one in results.measured),
        "attention": bool(set(WITH_ATTENTION) & set(whole)),
    }
    captions = {name: CAPTIONS[name] for name, is_drawn in drawn.items() if is_drawn}
    return Report(
        CLAIM,
        verdicts=verdicts,
        trainings=[_training(config, results, one) for one in results.measured],
        pictures=Picture.drawn(figures, captions, results),
        tables=[_models_table(results), *_shares_tables(config, results), _examples_table(results)],
        found=[*(f"{v.point}: {v.measured}." for v in verdicts if v.passed), *_found(results)],
        files={"answers.csv": _answer_rows(config, results)},
    )


def _training(config: Config, results: Results, one: Measured) -> Training:
    setting, within = one.setting, results.task.within
    scores = {
        "forced_tokens": one.forced_share[:, within].mean(axis=1),
        "written_tokens": one.written_share[:, within].mean(axis=1),
        "exact": one.exact[:, within].mean(axis=1),
        "exact_longer": "" if within.all() else one.exact[:, ~within].mean(axis=1),
    }
    sizes = {"model": setting.kind, "width": setting.width, "kept": setting.kept}
    return Training({"training": setting.label}, config.all_seeds, one.fitted, sizes | scores)


def _percent(one: Measured, values: np.ndarray) -> str:
    """Mean over the pairs `[S, N]`, mean and deviation over the seeds that did not fail."""
    if values.shape[1] == 0:
        return "-"
    return mean_and_spread(100 * one.fitted.of_good_seeds(values).mean(axis=1))


def _models_table(results: Results) -> Table:
    within = results.task.within
    columns = {
        "model": lambda one: one.setting.label,
        "width": lambda one: str(one.setting.width),
        "parameters": lambda one: f"{one.fitted.num_params:,}",
        "tokens right in training": lambda one: _percent(one, one.fitted.history["right"][:, -1]),
        "true prefix": lambda one: _percent(one, one.forced_share[:, within]),
        "tokens right, alone": lambda one: _percent(one, one.written_share[:, within]),
        "all right, alone": lambda one: _percent(one, one.exact[:, within]),
        "longer sources": lambda one: _percent(one, one.exact[:, ~within]),
        "failed seeds": lambda one: share(one.fitted.failed),
    }
    title = (
        f"Tokens of the last {UPDATES_PER_EPOCH} updates and of {within.sum()} held-out pairs with "
        f"sources of up to {results.task.longest} letters, as in training: right after the true "
        "prefix and left alone, and numbers with every token right, there and in "
        f"{(~within).sum()} longer sources; %"
    )
    return Table.by_columns(title, results.measured, columns)


def _shares_tables(config: Config, results: Results) -> Iterator[Table]:
    pairs, longest, within = results.task.held_out, results.task.longest, results.task.within

    def table(title: str, groups: Iterable[tuple[Mapping[str, str], np.ndarray]], names: int = 1):
        rows = [
            {**group, "pairs": str(mask.sum())}
            | {one.setting.label: _percent(one, one.exact[:, mask]) for one in results.measured}
            for group, mask in groups
        ]
        return Table.of(f"Numbers written right by {title}, %", rows, num_names=names)

    by_length = (
        ({"letters": name if within[mask].any() else f"{name}, not in training"}, mask)
        for name, mask in length_groups(pairs.lengths, longest)
    )
    yield table("the letters of the source", by_length)
    by_digits = (
        ({"digits": str(digits), "letters": f"{words} {median:g}"}, mask)
        for digits, median, *halves in digit_groups(pairs)
        for words, mask in zip(("up to", "above"), halves, strict=True)
    )
    yield table("digits, and by letters around the median of those digits", by_digits, 2)
    lengths = {"as in training": within, f"longer than {longest}": ~within}
    by_language = (
        ({"language": LANGUAGES[language], "letters": name}, (pairs.languages == language) & mask)
        for language in config.languages
        for name, mask in lengths.items()
    )
    yield table("language and length", by_language, 2)


def _examples_table(results: Results) -> Table:
    pairs, rows = results.task.held_out, []
    for row in results.task.examples.values():
        cells = {"source": source_text(pairs.sources[row]), "number": str(pairs.numbers[row])}
        for kind, one in results.whole.items():
            seed = np.argmin(one.fitted.failed)
            cells[LABELS[kind]] = target_text(one.answers.written[seed, row])
        rows.append(cells)
    title = (
        "The longest held-out source of each language within the lengths in training, as written"
    )
    return Table.of(title, rows)


def _found(results: Results) -> Iterator[str]:
    """What the length does where the number of digits does not change, and what was compared."""
    task, whole = results.task, results.whole
    *_, (digits, median, shorter, longer) = digit_groups(task.held_out)
    shares = [
        f"{LABELS[kind]} {100 * one.mean_exact[shorter].mean():.0f} and "
        f"{100 * one.mean_exact[longer].mean():.0f} %"
        for kind, one in whole.items()
    ]
    yield (
        f"Long sources are mostly large numbers. Of numbers of {digits} digits alone, sources of "
        f"up to {median:g} letters and longer ones: {', '.join(shares)}."
    )
    if FIXED in whole:
        fitted = whole[FIXED].fitted
        least = 100 * fitted.of_good_seeds(fitted.of_epochs()["right"])[:, -1].min()
        if least < LEARNT:
            yield (
                f"The fixed vector has not learnt its training either: {least:.1f} % of the tokens "
                "were right at its end. What is compared is what so many updates of so many "
                "parameters reach, not what a vector of that width could hold."
            )
    trained, asked = (
        f"{len(part.numbers):,} pairs of {len(np.unique(part.numbers)):,}"
        for part in (task.training, task.held_out)
    )
    yield f"{trained} numbers in training, {asked} other numbers in the test."


def _answer_rows(config: Config, results: Results) -> Iterator[dict[str, Any]]:
    pairs = results.task.held_out
    for one in results.measured:
        exact, forced = one.exact, one.forced_share
        for index, seed in enumerate(config.all_seeds):
            for row, number in enumerate(pairs.numbers):
                yield {
                    "training": one.setting.label,
                    "seed": seed,
                    "language": pairs.languages[row],
                    "number": number,
                    "letters": pairs.lengths[row],
                    "written": target_text(one.answers.written[index, row]),
                    "exact": int(exact[index, row]),
                    "forced_tokens": round(float(forced[index, row]), 4),
                }
