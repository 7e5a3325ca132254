"""A causal convolution over time with one filter per feature."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells._eigenvalues import open_uniform
from jaxrnn.engine import checks, precision
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.factories import model_factory
from jaxrnn.mixers._window import Window, empty_window, through_window
from jaxrnn.types import Layer, Rollout, Steps


class CausalConvParams(NamedTuple):
    """`kernel [W, D]`, whose last row is for the newest step, and `bias [D]` or None."""

    kernel: Any
    bias: Any = None
    roles = "input"


@model_factory
def causal_conv(
    width: int,
    activation: Callable[[Any], Any] | None = None,
    *,
    use_bias: bool = True,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Mixes the last steps of each feature: a depthwise causal convolution.

        yₜ = φ(Σⱼ kernel[W-1-j] ⊙ xₜ₋ⱼ + b),  j = 0 ... W-1

    xₜ₋ⱼ is the j-th real step before t in the same sequence, and zero where there is none. The
    kernel starts as U(-1/√W, 1/√W) and the bias at zero.

    Args:
        width: W.
        activation: φ, elementwise; None is the identity.
        use_bias: whether there is a b.
        param_dtype: dtype of the parameters. Sums run in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, with `CausalConvParams(kernel [W, D], bias [D])` and the
        carry `Window(steps [..., W-1, D], count [...])`. It raises ValueError, while tracing, when
        x has another width than the kernel.

    Raises:
        TypeError: `width` is not an int or `activation` is not a function.
        ValueError: `width` is below 1.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> params = jr.mixers.CausalConvParams(jnp.array([[1.0], [10.0]]), bias=jnp.zeros(1))
        >>> xs = jnp.array([[1.0], [2.0], [3.0]])
        >>> reset = jnp.array([False, False, True])
        >>> jr.unroll(jr.causal_conv(2), params, xs, reset=reset).outputs[:, 0]
        Array([10., 21., 30.], dtype=float32)
    """
    checks.positive(width, "width")
    if activation is not None and not callable(activation):
        raise TypeError(f"activation must be a function or None, got {activation!r}.")

    def unroll(params, carry, steps, key):
        del key
        if checks.one_array(steps.xs, "xs").shape[-1:] != params.kernel.shape[1:]:
            raise ValueError(
                f"xs must have the width of params.kernel {params.kernel.shape}, "
                f"got {steps.xs.shape[-1]}."
            )
        window, ys = convolve(params, carry, steps)
        return Rollout(window, ys if activation is None else activation(ys))

    return Layer(
        init=lambda key, num_inputs: init(key, width, num_inputs, use_bias, param_dtype),
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs,
    )


def init(key: Any, width: int, num_inputs: int, use_bias: bool, dtype: Any) -> CausalConvParams:
    """The kernel `[width, num_inputs]` and the bias `[num_inputs]`."""
    kernel = (2 * open_uniform(key, (width, num_inputs), dtype) - 1) * width**-0.5
    return CausalConvParams(
        kernel.astype(dtype), jnp.zeros(num_inputs, dtype) if use_bias else None
    )


def initial_carry(params: CausalConvParams, batch_shape: tuple[int, ...] = ()) -> Window:
    """A window that holds no steps."""
    width, num_inputs = params.kernel.shape
    step = jax.ShapeDtypeStruct((num_inputs,), precision.compute_dtype(params))
    return empty_window(step, width - 1, batch_shape)


def convolve(params: CausalConvParams, window: Window, steps: Steps) -> tuple[Window, Any]:
    """The window after the last step, and the convolution, time first."""
    steps = steps._replace(xs=in_compute_dtype(params, steps.xs))
    return through_window(_reader(params), window, steps)


def convolve_and_tell_first(
    params: CausalConvParams, window: Window, steps: Steps
) -> tuple[Window, Any]:
    """As `convolve`, with `(ys, is_first)`: whether a step is the first real one of its sequence.

    The width of the kernel must be above 1, because a window that holds no steps cannot tell.
    """
    size = len(params.kernel) - 1
    convolution = _reader(params)

    def read(window, sequence, current):
        is_first = sequence[size:] != sequence[size - 1 : -1]
        return convolution(window, sequence, current), is_first

    steps = steps._replace(xs=in_compute_dtype(params, steps.xs))
    return through_window(read, window, steps)


def _reader(params: CausalConvParams) -> Callable[[Any, Any, Any], Any]:
    """The convolution as a function for `through_window`."""
    kernel, bias = in_compute_dtype(params, params)

    def read(window, sequence, current):
        del current
        num_steps = window.shape[0] - len(kernel) + 1
        ys = jnp.zeros((), window.dtype) if bias is None else bias
        for offset, weights in enumerate(kernel):
            span = slice(offset, offset + num_steps)
            # Other sequences are zeroed before the product: they may hold NaN, and 0 · NaN is NaN.
            same = sequence[span] == sequence[len(kernel) - 1 :]
            ys = ys + zero_masked(same, window[span]) * weights
        return ys

    return read
