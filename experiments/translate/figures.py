import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.spelled import LANGUAGES, PAD, source_text, target_text
from experiments.frame.figures import PALETTE, draw_seeds, line_styles, new_figure
from experiments.translate.config import ADDITIVE, DOT, FIXED, KINDS, REVERSED, UPDATES_PER_EPOCH
from experiments.translate.measure import LABELS, WITH_ATTENTION, Measured, Results

WINDOW = 3  # letters on either side of a point
_DASHES = {FIXED: "-", REVERSED: "--", DOT: "-", ADDITIVE: "--"}
_STYLES = {kind: style | {"linestyle": _DASHES[kind]} for kind, style in line_styles(KINDS).items()}


def lengths(results: Results) -> Figure:
    letters, longest = results.task.held_out.lengths, results.task.longest
    canvas = new_figure(10, 3.8)
    exact, forced = canvas.subplots(1, 2)
    for kind, one in results.whole.items():
        shares = one.fitted.of_good_seeds(one.forced_share).mean(axis=0)
        for axes, values in ((exact, one.mean_exact), (forced, shares)):
            at, means = _moving(letters, values)
            axes.plot(at, 100 * means, **_STYLES[kind], markevery=6, label=LABELS[kind])
    for axes in (exact, forced):
        axes.axvspan(longest + 0.5, letters.max() + 1, color="black", alpha=0.07, lw=0)
        axes.set(xlabel="letters of the source", ylim=(-2, 102), xlim=(0, None))
    exact.set(ylabel="numbers written right (%)", title="left alone")
    forced.set(ylabel="tokens right (%)", title="after the true prefix")
    exact.legend(loc="lower left")
    return canvas


def training(results: Results) -> Figure:
    canvas = new_figure(10, 3.4)
    loss, right = canvas.subplots(1, 2)
    for one in results.measured:
        style, fitted = _STYLES[one.setting.kind], one.fitted
        line = ":" if one.setting.is_probe else style["linestyle"]
        label = None if one.setting.is_probe else one.setting.label
        losses, shares = np.median(fitted.history["loss"], axis=-1), fitted.of_epochs()["right"]
        updates = UPDATES_PER_EPOCH * np.arange(1, losses.shape[1] + 1)
        for axes, values in ((loss, losses), (right, 100 * shares)):
            draw_seeds(axes, values, fitted.failed, style["color"], label, xs=updates, line=line)
    loss.set(yscale="log", xlabel="update", ylabel="cross-entropy (nats per token)")
    right.set(xlabel="update", ylabel="tokens right in training (%)", ylim=(0, 102))
    loss.legend(loc="lower left")
    return canvas


def bottleneck(results: Results) -> Figure:
    masks = {
        "shorter half": results.task.shorter_half,
        "longest quarter in training": results.task.longest_quarter,
    }
    narrowed, additive = results.by_units, results.whole.get(ADDITIVE)
    canvas = new_figure(6, 3.6)
    axes = canvas.subplots()
    for color, (name, mask) in zip(PALETTE, masks.items(), strict=False):
        shares = [100 * one.mean_exact[mask].mean() for one in narrowed.values()]
        axes.plot(list(narrowed), shares, "o-", color=color, label=f"{LABELS[FIXED]}, {name}")
        if additive is not None:
            share, label = 100 * additive.mean_exact[mask].mean(), f"{LABELS[ADDITIVE]}, {name}"
            axes.axhline(share, color=color, linestyle="--", label=label)
    axes.set(xscale="log", xlabel="units that reach the decoder", ylim=(-2, 102))
    axes.set_xticks(list(narrowed), [str(units) for units in narrowed])
    axes.minorticks_off()
    axes.set(ylabel="numbers written right (%)")
    axes.legend()
    return canvas


def attention(results: Results) -> Figure:
    shown = {kind: one for kind, one in results.whole.items() if kind in WITH_ATTENTION}
    rows = results.task.examples.values()
    canvas = new_figure(5.6 * len(shown), 1.5 * len(rows) + 0.3)
    grid = canvas.subplots(len(rows), len(shown), squeeze=False)
    for column, (kind, one) in enumerate(shown.items()):
        for axes, row in zip(grid[:, column], rows, strict=True):
            draw_map(axes, one, row)
        title = grid[0, column].get_title(loc="left")
        grid[0, column].set_title(f"{LABELS[kind]}\n{title}")
        grid[-1, column].set_xlabel("letters that were read")
    canvas.colorbar(grid[0, 0].images[0], ax=grid, label="weight", shrink=0.4, aspect=30)
    return canvas


def draw_map(axes: Axes, measured: Measured, row: int) -> None:
    """Weights `[T, L]` of one pair, letters below and digits at the side."""
    pairs, answers, seed = measured.pairs, measured.answers, np.argmin(measured.fitted.failed)
    target = pairs.targets[row, 1:]
    target = target[target != PAD]
    length = pairs.lengths[row]
    weights = answers.weights[seed, row, : len(target), :length]
    axes.imshow(weights, "cividis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    text = source_text(pairs.sources[row]).replace(" ", "␣")
    digits = [target_text([token]).replace(".", "■") for token in target]
    axes.set_xticks(range(length), list(text), fontsize=7)
    axes.set_yticks(range(len(digits)), digits, fontsize=8)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_ylabel("digits")
    written = target_text(answers.written[seed, row])
    axes.set_title(f"{LANGUAGES[pairs.languages[row]]}: written {written}")


def _moving(lengths: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and the mean of the values around each."""
    at = np.arange(lengths.min(), lengths.max() + 1)
    near = np.abs(lengths - at[:, None]) <= WINDOW
    kept = near.any(axis=1)
    return at[kept], (near @ values)[kept] / near.sum(axis=1)[kept]
