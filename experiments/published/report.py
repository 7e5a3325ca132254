"""The networks beside their originals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.verdicts import Expectation, Verdict
from experiments.published.config import Config
from experiments.published.measure import Results
from experiments.published.sleep import STAGES, Sleep
from experiments.published.speech import FRAME, RATE, Speech
from experiments.published.spelling import Spelling

CLAIM = (
    "Networks that other packages publish are read by a line of `jaxrnn.interop`, and give what "
    "the packages give."
)
SPELLED = Expectation("spelling", "the phonemes of every word are those of g2p-en")
READ = Expectation("polyphones", "the class of every character is that of g2pM")
SLEPT = Expectation("sleep", "within 1e-6 of keras on every real step, for three networks")
HEARD = Expectation("speech", "within 1e-5 of silero-vad in every frame, streamed too")


def judged(results: Results) -> list[Verdict]:
    return [
        SPELLED.judge(
            lambda one: (f"{one.identical} of {one.words}", one.identical == one.words),
            results.spelling,
        ),
        READ.judge(
            lambda one: (
                f"{one.identical} of {one.characters}",
                one.identical == one.characters and one.alike,
            ),
            results.polyphones,
        ),
        SLEPT.judge(lambda one: _at_most(1e-6, *one.differences.values()), results.sleep),
        HEARD.judge(
            lambda one: _at_most(1e-5, one.difference, one.step_difference), results.speech
        ),
    ]


def _at_most(bound: float, *differences: float) -> tuple[str, bool]:
    return f"at most {max(differences):.1e}", max(differences) <= bound


def report(config: Config, results: Results) -> Report:
    del config
    return Report(
        CLAIM,
        verdicts=judged(results),
        pictures=_pictures(results),
        tables=[_table(results)],
        found=[*_found(results), *(f"Left out: {line}." for line in results.absent)],
    )


def _found(results: Results) -> list[str]:
    found, (spelling, polyphones, *_) = [], results
    if spelling:
        found.append(
            f"g2p-en reads {spelling.exact:.1%} of {spelling.words} words as cmudict does, with a "
            f"phoneme error rate of {spelling.error_rate:.1%}; states differ by "
            f"{spelling.state_difference:.1e}."
        )
    if polyphones:
        found.append(f"{polyphones.sentence} {polyphones.pinyin}")
    return found


def _table(results: Results) -> Table:
    spelling, polyphones, sleep, speech, _ = results
    rows: list[tuple[str, ...]] = []
    if spelling:
        rows.append(
            (
                "g2p-en",
                "embed, gru; embed, gru, dense",
                f"{spelling.words} words",
                f"{spelling.state_difference:.1e}",
                f"{spelling.identical} of {spelling.words}",
            )
        )
    if polyphones:
        rows.append(
            (
                "g2pM",
                "embed, both ways lstm, dense, dense",
                f"{polyphones.characters} characters",
                f"{polyphones.logit_difference:.1e}",
                f"{polyphones.identical} of {polyphones.characters}",
            )
        )
    if sleep:
        # The stages are kept of the first classifier alone.
        same = f"{(sleep.ours == sleep.theirs).sum()} of {sleep.epochs}"
        answers = [same, *[""] * (len(sleep.differences) - 1)]
        for (name, difference), answer in zip(sleep.differences.items(), answers, strict=True):
            rows.append(
                (
                    f"sleepecg {name}",
                    "batch_norm, dense, two both ways gru, dense",
                    f"3 nights of {sleep.epochs} epochs",
                    f"{difference:.1e}",
                    answer,
                )
            )
    if speech:
        rows.append(
            (
                "silero-vad",
                "convolutions, lstm, convolution",
                f"{len(speech.probabilities)} frames",
                f"{speech.difference:.1e}",
                "",
            )
        )
    columns = ("network", "layers", "input", "largest difference", "same answers")
    return Table("Networks and their originals", columns, rows)


def _pictures(results: Results) -> list[Picture]:
    pictures = []
    if results.speech:
        caption = f"Probability of speech, frame by frame, in {results.speech.source}."
        pictures.append(Picture("published_speech", _speech(results.speech), caption))
    if results.sleep:
        caption = "Stages of a simulated night, by jaxrnn and by keras, and the heart rate."
        pictures.append(Picture("published_sleep", _sleep(results.sleep), caption))
    if results.spelling:
        caption = "How strongly the odds of each phoneme depend on each letter."
        pictures.append(Picture("published_spelling", _spelling(results.spelling), caption))
    return pictures


def _speech(one: Speech) -> Figure:
    canvas = new_figure(8.0, 3.6)
    upper, lower = canvas.subplots(2, 1, sharex=True)
    upper.plot(np.arange(len(one.wave)) / RATE, one.wave, color="gray", linewidth=0.4)
    upper.set(ylabel="wave", title="A recording")
    times = (np.arange(len(one.probabilities)) + 0.5) * FRAME / RATE
    lower.step(times, one.probabilities, where="mid", color=PALETTE[0])
    lower.fill_between(times, one.probabilities, step="mid", alpha=0.2, color=PALETTE[0])
    lower.set(ylabel="probability", xlabel="seconds", ylim=(0, 1.02), title="Speech")
    return canvas


def _sleep(one: Sleep) -> Figure:
    canvas = new_figure(8.0, 3.6)
    upper, lower = canvas.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    hours = np.arange(one.epochs) / 120
    upper.step(
        hours, one.theirs, where="post", color=PALETTE[1], linewidth=3.5, label="keras", alpha=0.5
    )
    upper.step(hours, one.ours, where="post", color=PALETTE[0], linewidth=1.0, label="jaxrnn")
    shown = range(1, len(STAGES))
    upper.set_yticks(list(shown), [STAGES[stage] for stage in shown])
    upper.set_title("Stages of sleep")
    upper.legend(ncols=2, loc="upper right")
    lower.plot(hours, one.heart_rate, color="gray", linewidth=0.8)
    lower.set(xlabel="hours", ylabel="beats per minute")
    return canvas


def _spelling(one: Spelling) -> Figure:
    canvas = new_figure(5.2, 3.4)
    axis = canvas.subplots()
    letters: Sequence[Any] = [*one.word, "end"]
    shown = one.sensitivity / one.sensitivity.max(axis=1, keepdims=True)
    image = axis.imshow(shown, cmap="Blues", aspect="auto", vmin=0)
    axis.set_xticks(range(len(letters)), letters)
    axis.set_yticks(range(len(one.phonemes)), one.phonemes)
    axis.set(
        xlabel="letter", ylabel="phoneme", title=f"Which letters a phoneme depends on: {one.word}"
    )
    axis.grid(False)
    canvas.colorbar(image, label="of the largest")
    return canvas
