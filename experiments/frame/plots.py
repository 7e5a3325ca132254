"""A picture of each diagnostic, drawn on axes that the caller has made.

Logarithmic axes show no zeros: what is 0 is left out of the line, as is what is not finite.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from experiments.frame.figures import PALETTE
from jaxrnn.diagnostics import Cost

Curves = Mapping[str, Any]  # from the name of a model to its numbers
_LOG10 = np.log(10)


def draw_carry_norms(axes: Axes, norms: Curves) -> None:
    """Norms `[T]` of the carry over the steps."""
    _curves(axes, {name: _positive(values) for name, values in norms.items()})
    axes.set(yscale="log", xlabel="step t", ylabel="norm of the carry ‖hₜ‖")


def draw_gradient_norms(axes: Axes, recurrent: Curves, inputs: Curves) -> None:
    """Norms `[updates]` of the gradients of recurrent (solid) and input weights (dashed)."""
    _curves(axes, {f"{name}, recurrent": _positive(values) for name, values in recurrent.items()})
    _curves(axes, {f"{name}, input": _positive(values) for name, values in inputs.items()}, "--")
    axes.set(yscale="log", xlabel="update", ylabel="norm of the gradient")


def draw_input_sensitivity(axes: Axes, sensitivity: Any, decades: float = 6.0) -> None:
    """The map `[T, T]` of outputs by inputs, `decades` powers of ten below the largest."""
    size = _positive(sensitivity)
    top = np.ceil(np.nanmax(np.log10(size))) if np.isfinite(size).any() else 0.0
    shades = np.maximum(np.log10(size), top - decades)
    image = axes.imshow(shades, cmap="cividis", vmin=top - decades, vmax=top, origin="lower")
    axes.set(xlabel="input of step k", ylabel="output of step t")
    axes.grid(False)
    label = "log₁₀ ‖∂yₜ / ∂xₖ‖"
    axes.figure.colorbar(image, ax=axes, label=label, extend="min")


def draw_last_output_sensitivity(axes: Axes, rows: Curves) -> None:
    """Rows `[T]`: what the last output still hears, by how long ago it was."""
    for (name, row), color in _colored(rows):
        size = _positive(row)
        axes.plot(np.arange(len(size))[::-1], size, color=color, label=name)
    axes.set(yscale="log", xlabel="steps before the last one", ylabel="‖∂y_last / ∂xₖ‖")
    _legend(axes)


def draw_memory_horizon(axes: Axes, horizons: Curves) -> None:
    """Horizons of any shape: a dot for each, a bar for their median."""
    for index, ((name, values), color) in enumerate(_colored(horizons)):
        known = np.ravel(np.asarray(values, float))
        known = known[np.isfinite(known)]
        axes.plot(known, np.full(len(known), index), "o", color=color, alpha=0.5, label=name)
        if len(known):
            axes.plot(np.median(known), index, "|", color=color, markersize=24, markeredgewidth=3)
    axes.set_yticks(range(len(horizons)), list(horizons))
    axes.set(xlabel="memory horizon (steps)", ylim=(-0.5, len(horizons) - 0.5))


def draw_jacobian_spectrum(axes: Axes, logs: Any, name: str, color: str = PALETTE[0]) -> None:
    """Singular values `[T, N]` of ∂hₜ / ∂hₖ: the largest, the median, and the band of all."""
    decades = np.where(np.isfinite(logs), np.asarray(logs, float) / _LOG10, np.nan)
    steps = np.arange(1, len(decades) + 1)
    alive = np.isfinite(decades).any(axis=1)
    steps, decades = steps[alive], decades[alive]
    lowest, highest = np.nanmin(decades, axis=1), np.nanmax(decades, axis=1)
    axes.fill_between(steps, lowest, highest, color=color, alpha=0.2, linewidth=0)
    axes.plot(steps, highest, color=color, label=f"{name}, largest")
    axes.plot(steps, np.nanmedian(decades, axis=1), "--", color=color, label=f"{name}, median")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="step t", ylabel="log₁₀ singular value of ∂hₜ / ∂hₖ")
    _legend(axes)


def draw_lyapunov_exponents(axes: Axes, exponents: Curves) -> None:
    """Exponents `[N]`, the largest first; gradients explode above 0 and vanish below."""
    for (name, values), color in _colored(exponents):
        values = np.where(np.isfinite(values), np.asarray(values, float), np.nan)
        axes.plot(np.arange(1, len(values) + 1), values, "o-", ms=3, color=color, label=name)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="number of the exponent", ylabel="Lyapunov exponent (nats per step)")
    _legend(axes)


def draw_saturation(axes: Axes, shares: Curves) -> None:
    """Shares `[T]` of saturated units over the steps."""
    _curves(axes, {name: 100 * np.asarray(values, float) for name, values in shares.items()})
    axes.set(xlabel="step t", ylabel="saturated units (%)", ylim=(-2, 102))


def draw_spectral_radius(axes: Axes, matrix: Any, color: str = PALETTE[0]) -> None:
    """Eigenvalues of `[N, N]` in the complex plane: their radius, and the unit circle in black."""
    eigenvalues = np.linalg.eigvals(np.asarray(matrix, complex))
    radius = float(np.abs(eigenvalues).max())
    axes.plot(eigenvalues.real, eigenvalues.imag, ".", color=color)
    axes.add_patch(Circle((0, 0), radius, fill=False, color=color, linestyle="--"))
    axes.add_patch(Circle((0, 0), 1.0, fill=False, color="black"))
    limit = 1.1 * max(1.0, radius)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axes.set(xlabel="real part", ylabel="imaginary part", title=f"spectral radius {radius:.3g}")


def draw_cost(axes: Axes, lengths: Sequence[int], costs: Mapping[str, Sequence[Cost]]) -> None:
    """Memory of training (solid) and of streaming (dashed) over sequences of `lengths`."""
    for (name, counted), color in _colored(costs):
        training = _positive([each.training_memory for each in counted]) / 2**10
        streaming = _positive([each.streaming_memory or 0 for each in counted]) / 2**10
        axes.plot(lengths, training, "o-", color=color, label=f"{name}, training")
        axes.plot(lengths, streaming, "s--", color=color, label=f"{name}, streaming")
    axes.set(xscale="log", yscale="log", xlabel="steps T", ylabel="memory (KiB)")
    _legend(axes)


def draw_state_capacity(axes: Axes, bits: Mapping[str, int], num_steps: int) -> None:
    """Bits of the carry as levels, beside the bits of a binary history of up to `num_steps`."""
    axes.plot([1, num_steps], [1, num_steps], color="black", label="bits of a binary history")
    for (name, capacity), color in _colored(bits):
        axes.axhline(capacity, color=color, linestyle="--", label=f"{name}: {capacity:,} bits")
    axes.set(xscale="log", yscale="log", xlabel="steps T", ylabel="bits")
    _legend(axes)


def _curves(axes, curves, line="-"):
    for (name, values), color in _colored(curves):
        axes.plot(np.arange(1, len(values) + 1), values, line, color=color, label=name)
    _legend(axes)


def _colored(named):
    """The items with a color each; more models than colors share some."""
    return [(item, PALETTE[index % len(PALETTE)]) for index, item in enumerate(named.items())]


def _positive(values):
    """The numbers as floats, NaN where a logarithmic axis has no place for them."""
    values = np.asarray(values, float)
    return np.where((values > 0) & np.isfinite(values), values, np.nan)


def _legend(axes):
    axes.legend(fontsize="small")
