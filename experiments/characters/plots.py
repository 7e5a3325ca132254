"""The figures: training, bits beside the baselines, places in a chunk, free running, decodings."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.characters.config import Config
from experiments.characters.evaluation import CROSS, Baselines, Scored, Written, interval
from experiments.characters.writing import DECODINGS
from experiments.frame.figures import PALETTE, figure
from experiments.frame.models import LABELS
from experiments.frame.run_folder import RunFolder

GRAY = "#666666"
UPDATES = 32  # in a point of the training curves
STEPS = 16  # characters in a point of the curves of free running
MARKERS = ("o", "s", "^", "D", "v")


def draw_all(
    config: Config,
    baselines: Baselines,
    scored: Sequence[Scored],
    written: Sequence[Written],
    folder: RunFolder,
) -> Iterator[tuple[str, str]]:
    """Draws what there is; the name and the caption of each."""
    if scored:
        training(config, scored, folder.path("training.png"))
        yield (
            "training.png",
            f"Bits per character and gradient norms (before clipping) in training, means of "
            f"{UPDATES} updates. Solid: carry handed on; dashed: reset at every chunk.",
        )
        bits(baselines, scored, folder.path("bits.png"))
        yield (
            "bits.png",
            "Held-out bits per character, the carry handed on. Bars: 95 % over topics, of the "
            "models. Dotted: what needs no training.",
        )
        positions(config, scored, folder.path("positions.png"))
        yield (
            "positions.png",
            "Held-out bits by the place in the chunk. Left trained with the carry handed on, right "
            "with resets. Solid: read with the carry handed on; dashed: reset at every chunk.",
        )
    if written:
        free_running(written, baselines, folder.path("free_running.png"))
        yield (
            "free_running.png",
            "Behind the prompt. Left: characters as in the truth, with the truth to read (solid) "
            "and with the own greedy text (dashed). Right: bits of the texts for the n-gram judge, "
            f"greedy dashed, {CROSS} solid, the truth in black.",
        )
        decodings(baselines, written, folder.path("decodings.png"))
        yield (
            "decodings.png",
            "Every model and way of choosing: how surprising its text is to the n-gram judge, and "
            "how much of it is said for the first time. The cross is the truth.",
        )


def training(config: Config, scored: Sequence[Scored], path: Path) -> None:
    """Loss and gradient norms."""
    rows = (("loss", "bits per character"), ("gradient_norm", "norm of the gradient"))
    with figure(path, 10, 4) as canvas:
        for axes, (name, label) in zip(canvas.subplots(1, 2), rows, strict=True):
            for one in scored:
                values = one.trained.fitted.history[name].ravel()
                size = min(UPDATES, len(values))
                means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
                updates = size * np.arange(1, len(means) + 1)
                axes.plot(updates, means, _line(one.trained.mode), **_look(one))
            axes.set(xlabel="update", ylabel=label)
            if name != "loss":
                axes.axhline(config.gradient_clip, color=GRAY, linestyle=":", label="clipped above")
                axes.set_yscale("log")
            axes.legend(fontsize=7, ncols=2)


def bits(baselines: Baselines, scored: Sequence[Scored], path: Path) -> None:
    """Models and baselines on one axis."""
    ordered = sorted(scored, key=lambda one: -one.mean_bits)
    with figure(path, 8, 1.4 + 0.32 * len(ordered)) as canvas:
        axes = canvas.subplots()
        for row, one in enumerate(ordered):
            _, low, high = interval(one.bits)
            look = _look(one)
            axes.plot([low, high], [row, row], color=look["color"], linewidth=1)
            fill = look["color"] if one.trained.mode == "carried" else "white"
            axes.plot(one.mean_bits, row, "o", color=look["color"], markerfacecolor=fill)
        axes.set_yticks(range(len(ordered)), [_name(one) for one in ordered])
        axes.set_ylim(-0.7, len(ordered) + 0.4)
        for name, value in baselines.bits.items():
            axes.axvline(value, color=GRAY, linestyle=":", linewidth=1)
            axes.text(value, len(ordered) - 0.3, f" {name}", fontsize=7, rotation=45, color=GRAY)
        axes.set_xlabel("held-out bits per character")


def positions(config: Config, scored: Sequence[Scored], path: Path) -> None:
    """By the place in the chunk, for both ways to train and to read."""
    modes = [mode for mode in config.modes if any(one.trained.mode == mode for one in scored)]
    with figure(path, 5 * len(modes), 4) as canvas:
        for axes, mode in zip(
            np.ravel(canvas.subplots(1, len(modes), sharey=True)), modes, strict=True
        ):
            for one in (one for one in scored if one.trained.mode == mode):
                look = _look(one) | {"label": LABELS[one.trained.model.mixer]}
                places = np.arange(1, len(one.by_position["carried"]) + 1)
                axes.plot(places, one.by_position["carried"], "-", **look)
                axes.plot(places, one.by_position["reset"], "--", color=look["color"])
            axes.set(xscale="log", xlabel="place in the chunk (characters)")
            axes.set_title(f"carry {'handed on' if mode == 'carried' else 'reset'} in training")
            axes.set_ylabel("held-out bits per character")
            axes.legend(fontsize=8)


def free_running(written: Sequence[Written], baselines: Baselines, path: Path) -> None:
    """What is right, and what the judge says, by the distance from the prompt."""
    with figure(path, 10, 4) as canvas:
        left, right = canvas.subplots(1, 2)
        for own in written:
            color, label = _color(own.model.mixer), LABELS[own.model.mixer]
            for values, line, name in (
                (own.forced.right, "-", label),
                (own.free_right, "--", None),
            ):
                left.plot(*_by_steps(100 * values), line, color=color, label=name)
            for name, line in (("greedy", "--"), (CROSS, "-")):
                shown = label if line == "-" else None
                right.plot(*_by_steps(own.judged[name]), line, color=color, label=shown)
        right.plot(*_by_steps(baselines.real_bits), "-", color="black", label="truth")
        left.set(ylabel="characters as in the truth (%)", ylim=(0, None))
        right.set(ylabel="bits per character for the judge", ylim=(0, None))
        for axes in (left, right):
            axes.set_xlabel("characters behind the prompt")
            axes.legend(fontsize=7, ncols=2)


def decodings(baselines: Baselines, written: Sequence[Written], path: Path) -> None:
    """Surprise against repetition; a color a model, a marker a decoding."""
    with figure(path, 7, 4.6) as canvas:
        axes = canvas.subplots()
        for own in written:
            for name, marker in zip(DECODINGS, MARKERS, strict=True):
                x, y = own.judged[name].mean(), 100 * own.traits[name].distinct
                axes.plot(x, y, marker, color=_color(own.model.mixer), markersize=7, alpha=0.85)
        real = baselines.real_bits.mean(), 100 * baselines.real.distinct
        axes.plot(*real, "X", color="black", markersize=11, label="truth")
        for name, marker in zip(DECODINGS, MARKERS, strict=True):
            axes.plot([], [], marker, color=GRAY, label=name)
        for own in written:
            axes.plot(
                [], [], "-", color=_color(own.model.mixer), label=LABELS[own.model.mixer], lw=4
            )
        axes.set_xlabel("bits per character for the n-gram judge")
        axes.set_ylabel("runs of 12 characters said first (%)")
        axes.legend(fontsize=8, loc="lower right")


def _by_steps(values):
    """Means over the passages and over `STEPS` characters."""
    steps = values.shape[1] // STEPS
    means = values[:, : steps * STEPS].reshape(len(values), steps, STEPS).mean(axis=(0, 2))
    return STEPS * (np.arange(steps) + 0.5), means


def _look(one: Scored):
    return {"color": _color(one.trained.model.mixer), "label": _name(one)}


def _name(one: Scored):
    return f"{LABELS[one.trained.model.mixer]}, {one.trained.mode}"


def _color(mixer):
    return PALETTE[("lstm", "gru", "mamba", "mlstm", "attention").index(mixer)]


def _line(mode):
    return "-" if mode == "carried" else "--"
