"""A convolution over time, one filter for each feature."""

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
    """`kernel [W, D]`, the last row for the newest step, and `bias [D]`, None without one."""

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
    """Mixes the last steps of every feature by itself: a depthwise causal convolution.

        yₜ = φ(Σⱼ kernel[W-1-j] ⊙ xₜ₋ⱼ + b),  j = 0 ... W-1

    xₜ₋ⱼ is the j-th real step back in the same sequence, and zero where there is none. The kernel
    starts as U(-1/√W, 1/√W) and the bias at zero.

    Args:
        width: W.
        activation: φ, elementwise; None is the identity.
        use_bias: False leaves b out.
        param_dtype: Of the parameters. Sums run in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, with `CausalConvParams(kernel [W, D], bias [D])` and the
        carry `Window(steps [..., W-1, D], count [...])`. It raises ValueError, while tracing, when
        x has another width than the kernel.

    Raises:
        TypeError: `width` is no int or `activation` no function.
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
        if steps.xs.shape[-1:] != params.kernel.shape[1:]:
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
    """No steps."""
    width, num_inputs = params.kernel.shape
    step = jax.ShapeDtypeStruct((num_inputs,), precision.compute_dtype(params))
    return empty_window(step, width - 1, batch_shape)


def convolve(params: CausalConvParams, window: Window, steps: Steps) -> tuple[Window, Any]:
    """The convolution with its window, time first, in promote(params, float32)."""
    kernel, bias = in_compute_dtype(params, params)

    def read(window, sequence, own):
        del own
        num_steps = len(window) - len(kernel) + 1
        ys = jnp.zeros((), window.dtype) if bias is None else bias
        for place, weights in enumerate(kernel):
            span = slice(place, place + num_steps)
            # Selected before it multiplies: what another sequence holds may be NaN.
            same = sequence[span] == sequence[len(kernel) - 1 :]
            ys = ys + zero_masked(same, window[span]) * weights
        return ys

    return through_window(read, window, steps._replace(xs=in_compute_dtype(params, steps.xs)))
