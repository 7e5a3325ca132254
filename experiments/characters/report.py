from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.characters import figures
from experiments.characters.config import Config
from experiments.characters.expect import FAR, cold_cost, judged, right_shares
from experiments.characters.measure import Results, Scored, carried_less_reset
from experiments.characters.train import files_of
from experiments.characters.writing import DECODINGS, GREEDY, SAMPLED
from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table

CLAIM = (
    "A language model of characters can be judged: bits per character on topics it has never seen, "
    "beside counts and compressors. How its carry was treated in training shows, and a low loss "
    "with the truth to read says little about the text it writes when it reads its own."
)
OF_SCORED = {
    "training": "Bits per character and gradient norms (before clipping) in training, means of "
    f"{figures.UPDATES} updates. Solid: carry handed on; dashed: reset at every chunk.",
    "bits": "Held-out bits per character, the carry handed on. Bars: 95 % over topics, of the "
    "models. Dotted: what needs no training.",
    "positions": "Held-out bits by the place in the chunk. Left trained with the carry handed on, "
    "right with resets. Solid: read with the carry handed on; dashed: reset at every chunk.",
}
OF_WRITTEN = {
    "free_running": "After the prompt. Left: characters as in the truth, with the truth to read "
    "(solid) and with the own greedy text (dashed). Right: bits of the texts for the n-gram judge, "
    f"greedy dashed, {SAMPLED} solid, the truth in black.",
    "decodings": "Every model and way of choosing: how surprising its text is to the n-gram judge, "
    "and how much of it is said for the first time. The cross is the truth.",
}
TRAITS = ("known words", "first said", "copied", "loops")
SAMPLES, SAMPLE_LENGTH = 2, 160


def report(config: Config, results: Results) -> Report:
    scored, written = results.scored, results.written
    tables, files = [_bits_table(results), _text_table(config, results.corpus)], {}
    captions = (OF_SCORED if scored else {}) | (OF_WRITTEN if written else {})
    if scored:
        params = {(one.model.mixer, one.mode): one.fitted.params_of(0) for one in scored}
        files |= files_of(params, results.corpus.digest) | {"topics.csv": _topic_rows(results)}
    if written:
        files["texts.json"] = list(_texts(results))
        tables += [_forced_table(config, results), _traits_table(results)]
        tables += [_cross_table(results.cross)] if results.cross else []
        tables.append(_samples_table(results))
    return Report(
        CLAIM,
        verdicts=judged(config, results),
        trainings=[_training(config, one) for one in scored],
        pictures=Picture.drawn(figures, captions, config, results),
        tables=tables,
        found=list(_found(results)),
        failed=_clipped(config, results),
        files=files,
    )


def _training(config: Config, one: Scored) -> Training:
    scores = {"width": one.model.width, "bits": one.mean_bits, "right": one.right}
    scores |= {"cold_bits": one.cold_bits, "cold_cost": cold_cost(one)}
    names = {"model": one.model.mixer, "training": one.mode}
    return Training(names, [config.seed], one.fitted, scores)


def _topic_rows(results: Results) -> Iterator[dict[str, Any]]:
    for one in results.scored:
        for topic, bits in zip(results.corpus.held_out, one.bits, strict=True):
            row = {"model": one.model.mixer, "training": one.mode, "topic": topic}
            yield row | {"characters": len(bits), "bits": float(bits.mean())}


def _texts(results: Results) -> Iterator[dict[str, Any]]:
    for index, passage in enumerate(results.passages):
        row = passage._asdict()
        for own in results.written:
            by_decoding = own.by_decoding.items()
            row[own.model.mixer] = {name: one.texts[index] for name, one in by_decoding}
        yield row


def _bits_table(results: Results) -> Table:
    differences = carried_less_reset(results.scored)
    columns = {
        "model": lambda one: one.model.label,
        "carry in training": lambda one: one.mode,
        "width": lambda one: f"{one.model.width}",
        "parameters": lambda one: f"{one.fitted.num_params:,}",
        "last epoch": lambda one: f"{one.fitted.history['loss'][0, -1].mean():.3f}",
        "held out": lambda one: f"{one.mean_bits:.3f}",
        "held out, reset": lambda one: f"{one.cold_bits:.3f}",
        "right (%)": lambda one: f"{100 * one.right:.1f}",
        "carried less reset": lambda one: (
            differences[one.model.label].shown(3)
            if one.mode == "carried" and one.model.label in differences
            else ""
        ),
        "seconds": lambda one: f"{one.fitted.seconds:.0f}",
    }
    ordered = sorted(results.scored, key=lambda one: one.mean_bits)
    title = "Bits per character; in brackets 95 % over topics"
    table = Table.by_columns(title, ordered, columns, num_names=2)
    without = dict.fromkeys(columns, "-") | {"carried less reset": ""}
    untrained = (
        without | {"model": name, "held out": f"{bits:.3f}"}
        for name, bits in sorted(results.baselines.items(), key=lambda item: item[1])
    )
    return table._replace(rows=[*table.rows, *(tuple(row.values()) for row in untrained)])


def _text_table(config: Config, corpus) -> Table:
    training, held_out = (
        f"{len(texts)} topics, {sum(map(len, texts.values())):,} characters"
        for texts in (corpus.training, corpus.held_out)
    )
    rows = [
        ("all topics of pydoc_data.topics", f"{corpus.num_characters:,} characters"),
        ("digest of all topics (SHA-256)", corpus.digest),
        ("left out, being part of a longer topic", f"{len(corpus.left_out)} topics"),
        ("training", training),
        ("held out", held_out),
        ("held-out runs of 60 characters that are in training too", f"{corpus.seen:.2%}"),
        ("share of every training topic that is read", f"{config.training_share:g}"),
        ("topics held out", ", ".join(corpus.held_out)),
    ]
    return Table("The text", ("what", "value"), rows, num_names=2)


def _forced_table(config: Config, results: Results) -> Table:
    start, rows = min(FAR, config.written_length // 2), []
    for own in results.written:
        forced, free = right_shares(own, start)
        row = {"model": own.model.label, "truth, teacher-forced": f"{own.forced.bits.mean():.3f}"}
        row |= {f"right from {start} on (%)": f"{100 * forced:.1f}"}
        row |= {"greedy text (%)": f"{100 * free:.1f}"}
        rows.append(row | {name: f"{own.by_decoding[name].bits.mean():.3f}" for name in DECODINGS})
    title = (
        "Teacher-forced against free-running, on the same passages: bits of the truth for the "
        "model itself, characters as in the truth, and bits of the texts for the n-gram judge"
    )
    return Table.of(title, rows)


def _traits_table(results: Results) -> Table:
    texts = [("truth", "-", results.truth)]
    for own in results.written:
        texts += [(own.model.label, name, one) for name, one in own.by_decoding.items()]
    rows = [
        (*names, f"{one.bits.mean():.3f}", *(f"{100 * value:.1f}" for value in one.traits))
        for *names, one in texts
    ]
    title = (
        "What the texts are like: bits per character for a 5-gram of the training text; in %: "
        "words of the training text, runs of 12 characters said for the first time, runs of 40 "
        "characters copied from the training text, texts that end in a loop"
    )
    columns = ("text of", "decoding", "judge (bits)", *TRAITS)
    return Table(title, columns, rows, num_names=2)


def _cross_table(cross: Mapping[str, Mapping[str, float]]) -> Table:
    title = f"Bits per character of the texts written with {SAMPLED}, read by every model"
    rows = [
        {"written by": writer} | {f"read by {reader}": f"{bits:.3f}" for reader, bits in by.items()}
        for writer, by in cross.items()
    ]
    return Table.of(title, rows)


def _samples_table(results: Results) -> Table:
    rows = []
    for index, passage in enumerate(results.passages[:SAMPLES]):
        rows.append((passage.topic, "prompt, its end", passage.prompt[-SAMPLE_LENGTH:]))
        rows.append(("", "truth", passage.truth))
        for own in results.written:
            for name in (GREEDY, SAMPLED):
                text = own.by_decoding[name].texts[index]
                rows.append(("", f"{own.model.label}, {name}", text))
    rows = [(*names, _shown(text)) for *names, text in rows]
    return Table("Samples; ⏎ is a line break", ("topic", "what", "text"), rows, num_names=3)


def _shown(text: str) -> str:
    """The start of a text in one line, no space of which is lost."""
    return text[:SAMPLE_LENGTH].replace("\n", "⏎").replace("  ", " \N{NO-BREAK SPACE}")


def _found(results: Results) -> Iterator[str]:
    if results.scored:
        best = min(results.scored, key=lambda one: one.mean_bits)
        bits, baseline = min((bits, name) for name, bits in results.baselines.items())
        yield (
            f"Fewest bits per character on the held-out topics: {best.name}, {best.mean_bits:.3f}. "
            f"Of what needs no training, {baseline} with {bits:.3f}; the compressors learn from "
            "the held-out text as they go, the models and the counts do not."
        )
    for name, interval in carried_less_reset(results.scored).items():
        yield (
            f"{name}: training with the carry handed on changes the held-out bits by "
            f"{interval.shown(3)} against training with resets, both read with the carry handed on."
        )
    for own in results.written:
        greedy, sampled = (own.by_decoding[name].traits.loops for name in (GREEDY, SAMPLED))
        yield (
            f"{own.model.label}: {own.forced.bits.mean():.2f} bits on the truth; greedy text ends "
            f"in a loop in {greedy:.0%} of the cases, {SAMPLED} in {sampled:.0%}."
        )


def _clipped(config: Config, results: Results) -> list[str]:
    norms = {one.name: one.fitted.history["gradient_norm"] for one in results.scored}
    often = [name for name, of in norms.items() if np.mean(of > config.gradient_clip) > 0.5]
    return [f"More than half of the gradients were clipped: {', '.join(often)}."] if often else []
