"""Tables and files of what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.characters import plots
from experiments.characters.config import Config
from experiments.characters.evaluation import CROSS, Baselines, Cross, Scored, Written
from experiments.characters.saved import save
from experiments.characters.training import clipped_share
from experiments.characters.verdicts import (
    FAR,
    carried_against_reset,
    cold_cost,
    right_shares,
    verdicts,
)
from experiments.characters.writing import DECODINGS, Traits
from experiments.frame.legacy import Page, Picture
from experiments.frame.models import LABELS
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdicts_table, what_failed

CLAIM = (
    "A language model of characters can be judged: bits per character on topics it has never seen, "
    "beside counts and compressors. How its carry was treated in training shows, and a low loss "
    "with the truth to read says little about the text it writes when it reads its own."
)
SHOWN_DECODINGS = ("greedy", CROSS)
SAMPLES, SAMPLE_LENGTH = 2, 160


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, parameters, figures and tables, and prints the tables."""
    baselines = next(one for one in results if isinstance(one, Baselines))
    scored = [one for one in results if isinstance(one, Scored)]
    written = [one for one in results if isinstance(one, Written)]
    lines = verdicts(config, results)
    tables = [
        verdicts_table("What was expected, and what was measured", lines),
        _bits_table(baselines, scored),
        _text_table(config, baselines),
    ]
    if scored:
        _write_scored(baselines, scored, folder)
    if written:
        folder.write_json("texts.json", _texts(baselines, written))
        tables += [_forced_table(config, written), _traits_table(baselines, written)]
        tables += [_cross_table(one) for one in results if isinstance(one, Cross)]
        tables.append(_samples_table(baselines, written))
    folder.write_text("summary.md", "\n".join(["# characters\n", *map(markdown, tables)]))
    for table in tables[: -1 if written else None]:
        show(table)
    pictures = []
    for name, caption in plots.draw_all(config, baselines, scored, written, folder):
        pictures.append(Picture(name, caption))
    failed = [*what_failed(lines), *_failed(config, scored)]
    return Page("characters", CLAIM, tables, pictures, _found(baselines, scored, written), failed)


def _write_scored(baselines: Baselines, scored: Sequence[Scored], folder: RunFolder) -> None:
    folder.write_csv("results.csv", _result_rows(scored))
    folder.write_csv("metrics.csv", _epoch_rows(scored))
    folder.write_csv("topics.csv", _topic_rows(baselines, scored))
    folder.write_json(
        "seconds.json", {one.trained.name: round(one.trained.fitted.seconds, 1) for one in scored}
    )
    save([one.trained for one in scored], baselines.corpus.digest, folder)


def _names(one: Scored) -> dict[str, Any]:
    return {"model": one.trained.model.mixer, "training": one.trained.mode}


def _result_rows(scored: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    for one in scored:
        yield _names(one) | {
            "status": "failed" if one.trained.fitted.failed else "ok",
            "width": one.trained.model.width,
            "num_params": one.trained.fitted.num_params,
            "bits": one.mean_bits,
            "right": one.right,
            "cold_bits": one.cold_bits,
            "cold_cost": cold_cost(one),
        }


def _epoch_rows(scored: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    for one in scored:
        history = one.trained.fitted.history
        for epoch in range(len(history["loss"])):
            means = {name: float(values[epoch].mean()) for name, values in history.items()}
            yield _names(one) | {"epoch": epoch + 1} | means


def _topic_rows(baselines: Baselines, scored: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    for one in scored:
        for topic, bits in zip(baselines.corpus.held_out, one.bits, strict=True):
            yield _names(one) | {
                "topic": topic,
                "characters": len(bits),
                "bits": float(bits.mean()),
            }


def _texts(baselines: Baselines, written: Sequence[Written]) -> list[dict[str, Any]]:
    """Every prompt with the truth and with what each model wrote."""
    return [
        passage._asdict()
        | {own.model.mixer: {n: t[i] for n, t in own.texts.items()} for own in written}
        for i, passage in enumerate(baselines.passages)
    ]


def _bits_table(baselines: Baselines, scored: Sequence[Scored]) -> Table:
    intervals = carried_against_reset(scored)
    rows = []
    for one in sorted(scored, key=lambda one: one.mean_bits):
        trained = one.trained
        interval = intervals.get(trained.model.mixer) if trained.mode == "carried" else None
        against = (
            ""
            if interval is None
            else f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
        )
        rows.append(
            (
                LABELS[trained.model.mixer],
                trained.mode,
                f"{trained.model.width}",
                f"{trained.fitted.num_params:,}",
                f"{trained.fitted.history['loss'][-1].mean():.3f}",
                f"{one.mean_bits:.3f}",
                f"{one.cold_bits:.3f}",
                f"{100 * one.right:.1f}",
                against,
                f"{trained.fitted.seconds:.0f}",
            )
        )
    for name, bits in sorted(baselines.bits.items(), key=lambda item: item[1]):
        rows.append((name, "-", "-", "-", "-", f"{bits:.3f}", "-", "-", "", "-"))
    columns = ("model", "carry in training", "width", "parameters", "last epoch", "held out")
    columns += ("held out, reset", "right (%)", "carried less reset", "seconds")
    title = "Bits per character; in brackets 95 % over topics"
    return Table(title, columns, rows, num_names=2)


def _text_table(config: Config, baselines: Baselines) -> Table:
    corpus = baselines.corpus
    rows = [
        ("all topics of pydoc_data.topics", f"{corpus.num_characters:,} characters"),
        ("digest of all topics (SHA-256)", corpus.digest),
        ("left out, being part of a longer topic", f"{len(corpus.left_out)} topics"),
        ("training", _size(corpus.training)),
        ("held out", _size(corpus.held_out)),
        ("held-out runs of 60 characters that are in training too", f"{corpus.seen:.2%}"),
        ("share of every training stream that is read", f"{config.training_share:g}"),
        ("topics held out", ", ".join(corpus.held_out)),
    ]
    return Table("The text", ("what", "value"), rows, num_names=2)


def _size(texts) -> str:
    return f"{len(texts)} topics, {sum(map(len, texts.values())):,} characters"


def _forced_table(config: Config, written: Sequence[Written]) -> Table:
    start = min(FAR, config.written_length // 2)
    rows = []
    for own in written:
        forced, free = right_shares(own, start)
        rows.append(
            (
                LABELS[own.model.mixer],
                f"{own.forced.bits.mean():.3f}",
                f"{100 * forced:.1f}",
                f"{100 * free:.1f}",
                *(f"{own.judged[name].mean():.3f}" for name in DECODINGS),
            )
        )
    columns = ("model", "truth, teacher-forced", f"right from {start} on (%)", "greedy text (%)")
    title = (
        "Teacher-forced against free-running, on the same passages: bits of the truth for the "
        "model itself, characters as in the truth, and bits of the texts for the n-gram judge"
    )
    return Table(title, (*columns, *DECODINGS), rows)


def _traits_table(baselines: Baselines, written: Sequence[Written]) -> Table:
    rows = [("truth", "-", f"{baselines.real_bits.mean():.3f}", *_percent(baselines.real))]
    for own in written:
        for name, traits in own.traits.items():
            judged = f"{own.judged[name].mean():.3f}"
            rows.append((LABELS[own.model.mixer], name, judged, *_percent(traits)))
    columns = (
        "text of",
        "decoding",
        "judge (bits)",
        "known words",
        "first said",
        "copied",
        "loops",
    )
    title = (
        "What the texts are like: bits per character for a 5-gram of the training text; in %: "
        "words of the training text, runs of 12 characters said for the first time, runs of 40 "
        "characters copied from the training text, texts that end in a loop"
    )
    return Table(title, columns, rows, num_names=2)


def _percent(traits: Traits) -> list[str]:
    return [f"{100 * value:.1f}" for value in traits]


def _cross_table(cross: Cross) -> Table:
    rows = [
        (LABELS.get(writer, writer), *(f"{bits:.3f}" for bits in row))
        for writer, row in zip(cross.writers, cross.bits, strict=True)
    ]
    title = f"Bits per character of the texts written with {CROSS}, read by every model"
    return Table(
        title, ("written by", *(f"read by {LABELS[name]}" for name in cross.readers)), rows
    )


def _samples_table(baselines: Baselines, written: Sequence[Written]) -> Table:
    rows = []
    for index, passage in enumerate(baselines.passages[:SAMPLES]):
        rows.append((passage.topic, "prompt, its end", _shown(passage.prompt[-SAMPLE_LENGTH:])))
        rows.append(("", "truth", _shown(passage.truth[:SAMPLE_LENGTH])))
        for own in written:
            for name in SHOWN_DECODINGS:
                text = _shown(own.texts[name][index][:SAMPLE_LENGTH])
                rows.append(("", f"{LABELS[own.model.mixer]}, {name}", text))
    return Table("Samples; ⏎ is a line break", ("topic", "what", "text"), rows, num_names=3)


def _shown(text: str) -> str:
    """A text in one line, no space of which is lost."""
    return text.replace("\n", "⏎").replace("  ", " \N{NO-BREAK SPACE}")


def _found(baselines, scored, written) -> list[str]:
    if not scored:
        return []
    best = min(scored, key=lambda one: one.mean_bits)
    baseline = min(baselines.bits, key=lambda name: baselines.bits[name])
    found = [
        f"Fewest bits per character on the held-out topics: {LABELS[best.trained.model.mixer]}, "
        f"{best.trained.mode}, {best.mean_bits:.3f}. Of what needs no training, {baseline} with "
        f"{baselines.bits[baseline]:.3f}; the compressors learn from the held-out text as they go, "
        "the models and the counts do not."
    ]
    for mixer, interval in carried_against_reset(scored).items():
        found.append(
            f"{LABELS[mixer]}: training with the carry handed on changes the held-out bits by "
            f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}] against training "
            "with resets, both read with the carry handed on."
        )
    for own in written:
        found.append(
            f"{LABELS[own.model.mixer]}: {own.forced.bits.mean():.2f} bits on the truth; greedy "
            f"text ends in a loop in {own.traits['greedy'].loops:.0%} of the cases, {CROSS} in "
            f"{own.traits[CROSS].loops:.0%}."
        )
    return found


def _failed(config: Config, scored: Sequence[Scored]) -> list[str]:
    failed = [
        f"{one.trained.name}: a number of the training was not finite."
        for one in scored
        if one.trained.fitted.failed
    ]

    def share(one):
        return clipped_share(one.trained.fitted, config.gradient_clip)

    clipped = {one.trained.name: share(one) for one in scored}
    often = [name for name, share in clipped.items() if share > 0.5]
    if often:
        failed.append(f"More than half of the gradients were clipped: {', '.join(often)}.")
    return failed
