"""The figures of the report."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.data.spelled import LANGUAGES, PAD, source_text, target_text
from experiments.frame.figures import PALETTE, figure, line_styles
from experiments.translate.config import ADDITIVE, DOT, FIXED, KINDS, REVERSED
from experiments.translate.maps import examples
from experiments.translate.model import LABELS, WITH_ATTENTION
from experiments.translate.results import Measured
from experiments.translate.scores import (
    exact_by_kind,
    exact_by_units,
    longest_quarter,
    shortest_half,
    whole_kinds,
)

WINDOW = 3  # letters on either side of a point
CAPTIONS = {
    "lengths": "Held-out numbers by the length of their source. Left: all digits right when the "
    "model reads what it wrote itself. Right: tokens right behind the true prefix. Each point is "
    "the mean over sources of up to 3 letters more or less; grey: longer than any in training.",
    "attention": "Where attention looks when it writes each digit (behind the true prefix), for "
    "the longest held-out source of each language that is within the lengths in training; the "
    "stop token is ■.",
    "bottleneck": "The fixed vector when only some of its units reach the decoder: numbers "
    "written right, and its full width at the right end; dashed: additive attention.",
    "training": "Loss of the updates, the median of every 50, and the share of tokens that were "
    "right behind the true prefix; dotted: the narrowed vector.",
}
_DASHES = {FIXED: "-", REVERSED: "--", DOT: "-", ADDITIVE: "--"}
_STYLES = {kind: style | {"linestyle": _DASHES[kind]} for kind, style in line_styles(KINDS).items()}


def lengths(results: Sequence[Measured], longest: int, path: Path) -> None:
    """Exact matches and forced tokens against the letters of the source."""
    pairs = results[0].task.held_out
    with figure(path, 10, 3.8) as canvas:
        exact, forced = canvas.subplots(1, 2)
        for kind, measured in whole_kinds(results).items():
            shares = np.mean([one.forced_share for one in measured], axis=0)
            for axes, values in ((exact, exact_by_kind(results)[kind]), (forced, shares)):
                at, means = _moving(pairs.lengths, values)
                axes.plot(at, 100 * means, **_STYLES[kind], markevery=6, label=LABELS[kind])
        for axes in (exact, forced):
            axes.axvspan(longest + 0.5, pairs.lengths.max() + 1, color="black", alpha=0.07, lw=0)
            axes.set(xlabel="letters of the source", ylim=(-2, 102), xlim=(0, None))
        exact.set(ylabel="numbers written right (%)", title="left alone")
        forced.set(ylabel="tokens right (%)", title="behind the true prefix")
        exact.legend(loc="lower left")


def training(results: Sequence[Measured], path: Path) -> None:
    """Loss and share of right tokens over the updates; the narrowed vectors dotted."""
    with figure(path, 10, 3.4) as canvas:
        loss, right = canvas.subplots(1, 2)
        for one in results:
            kind, history = one.setting.kind, one.fitted.history
            style = _STYLES[kind] | {"marker": ""}
            label = LABELS[kind] if one.setting.seed == results[0].setting.seed else None
            if one.setting.is_probe:
                style["linestyle"], label = ":", None
            updates = np.arange(1, len(history["loss"]) + 1) * history["loss"].shape[1]
            loss.plot(updates, np.median(history["loss"], axis=1), **style, label=label)
            right.plot(updates, 100 * history["right"].mean(axis=1), **style)
        loss.set(yscale="log", xlabel="update", ylabel="cross-entropy (nats per token)")
        right.set(xlabel="update", ylabel="tokens right in training (%)", ylim=(0, 102))
        loss.legend(loc="lower left")


def bottleneck(results: Sequence[Measured], longest: int, path: Path) -> None:
    """Exact matches against the units that pass, for short and for long sources."""
    pairs = results[0].task.held_out
    masks = {
        "shorter half": shortest_half(pairs, longest),
        "longest quarter in training": longest_quarter(pairs, longest),
    }
    with figure(path, 6, 3.6) as canvas:
        axes = canvas.subplots()
        narrowed, whole = exact_by_units(results), exact_by_kind(results)
        for color, (name, mask) in zip(PALETTE, masks.items(), strict=False):
            shares = [100 * exact[mask].mean() for exact in narrowed.values()]
            axes.plot(list(narrowed), shares, "o-", color=color, label=f"{LABELS[FIXED]}, {name}")
            if ADDITIVE in whole:
                share, label = 100 * whole[ADDITIVE][mask].mean(), f"{LABELS[ADDITIVE]}, {name}"
                axes.axhline(share, color=color, linestyle="--", label=label)
        axes.set(xscale="log", xlabel="units that reach the decoder", ylim=(-2, 102))
        axes.set_xticks(list(narrowed), [str(units) for units in narrowed])
        axes.minorticks_off()
        axes.set(ylabel="numbers written right (%)")
        axes.legend()


def attention(results: Sequence[Measured], longest: int, path: Path) -> None:
    """A map for each language (row) and kind of attention (column)."""
    whole = whole_kinds(results)
    shown = {kind: whole[kind][0] for kind in WITH_ATTENTION if kind in whole}
    rows = examples(results[0].task.held_out, longest)
    with figure(path, 5.6 * len(shown), 1.5 * len(rows) + 0.3) as canvas:
        grid = canvas.subplots(len(rows), len(shown), squeeze=False)
        for column, (kind, one) in enumerate(shown.items()):
            for axes, row in zip(grid[:, column], rows, strict=True):
                draw_map(axes, one, row)
            title = grid[0, column].get_title(loc="left")
            grid[0, column].set_title(f"{LABELS[kind]}\n{title}")
            grid[-1, column].set_xlabel("letters that were read")
        canvas.colorbar(grid[0, 0].images[0], ax=grid, label="weight", shrink=0.4, aspect=30)


def draw_map(axes: Axes, measured: Measured, row: int) -> None:
    """Weights `[T, S]` of one pair, letters below and digits at the side."""
    pairs, answers = measured.task.held_out, measured.answers
    target = pairs.targets[row, 1:]
    target = target[target != PAD]
    length = pairs.lengths[row]
    assert answers.weights is not None
    axes.imshow(
        answers.weights[row, : len(target), :length],
        cmap="cividis",
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
    )
    text = source_text(pairs.sources[row]).replace(" ", "␣")
    digits = [target_text([token]).replace(".", "■") for token in target]
    axes.set_xticks(range(length), list(text), fontsize=7)
    axes.set_yticks(range(len(digits)), digits, fontsize=8)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_ylabel("digits")
    axes.set_title(
        f"{LANGUAGES[pairs.languages[row]]}: written {target_text(answers.written[row])}"
    )


def _moving(lengths: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and the mean of the values around each."""
    at = np.arange(lengths.min(), lengths.max() + 1)
    near = np.abs(lengths - at[:, None]) <= WINDOW
    kept = near.any(axis=1)
    return at[kept], (near @ values)[kept] / near.sum(axis=1)[kept]
