"""LSTM and GRU over pictures or signals: convolutions in place of the matrix products."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.cells import _gru as gru
from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells import _lstm as lstm
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split

PADDINGS = ("same", "valid")


class ConvLSTMParams(NamedTuple):
    """`kernel [*K, C, 4*H]`, `recurrent_kernel [*K, H, 4*H]` and `bias [4*H]`, gates i, f, g, o."""

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


class ConvGRUParams(NamedTuple):
    """`kernel [*K, C, 3*H]`, `recurrent_kernel [*K, H, 3*H]` and `bias [3*H]`, gates r, z, n."""

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


class _Window(NamedTuple):
    """How a convolution moves over an input of spatial axes `shape`; a number for each axis."""

    shape: tuple[int, ...]
    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    dilation: tuple[int, ...]

    def output_shape(self) -> tuple[int, ...]:
        """The spatial axes of the result."""
        reach = [(k - 1) * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        lost = [0] * len(reach) if self.padding == "same" else reach
        return tuple(
            -(-(size - less) // stride)
            for size, less, stride in zip(self.shape, lost, self.strides, strict=True)
        )


@model_factory
def conv_lstm(
    num_units: int,
    shape: int | tuple[int, ...],
    kernel_size: int | tuple[int, ...] = 3,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: str = "same",
    dilation: int | tuple[int, ...] = 1,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The LSTM over signals or pictures, with convolutions in place of its products.

        i, f, o = σ(xₜ * Wᵢ + hₜ₋₁ * Uᵢ + bᵢ), …    g = tanh(xₜ * W_g + hₜ₋₁ * U_g + b_g)
        cₜ = f ⊙ cₜ₋₁ + i ⊙ g,   hₜ = o ⊙ tanh(cₜ),   yₜ = hₜ

    Shi et al. 2015 (arXiv:1506.04214), without their peepholes, as in Keras. h and c have the
    spatial axes of the convolved input, and every place has the same parameters. `strides`,
    `padding` and `dilation` are those of x * W; h * U keeps the shape. The forget bias starts at 1,
    and the recurrent kernel of each gate with orthonormal columns.

    Args:
        num_units: H, channels of the output.
        shape: the spatial axes S of x, such as 28 or (28, 28).
        kernel_size: K, of both convolutions; one number for all axes, or one for each.
        strides: step of the window over x.
        padding: "same" (the output has ⌈S / strides⌉ places) or "valid" (no padding of x).
        dilation: distance between the entries of the kernel over x.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., *S, C] -> [..., *S', H]`, carry `LSTMCarry(h, c)`, each `[..., *S', H]`.

    Raises:
        TypeError: A size is not an int.
        ValueError: A size is below 1, there is a wrong number of them, there are more than three
            spatial axes, `padding` is not one of the two words, the kernel does not fit into x, or
            (while tracing) x has other axes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.conv_lstm(4, shape=(8, 6), kernel_size=3)
        >>> params = cell.init(jax.random.key(0), 2)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 8, 6, 2))).outputs.shape
        (2, 5, 8, 6, 4)
    """
    window = _window(num_units, shape, kernel_size, strides, padding, dilation)

    def init(key, num_inputs):
        kernels = _initial_kernels(key, window.kernel_size, num_inputs, num_units, 4, param_dtype)
        forget_bias = jnp.zeros((4, num_units), param_dtype).at[1].set(1)
        return ConvLSTMParams(*kernels, forget_bias.ravel())

    def initial_carry(params, batch_shape=()):
        zeros = _zeros(params, batch_shape, window, num_units)
        return lstm.LSTMCarry(h=zeros, c=zeros.copy())

    def mix(params, carry, z):
        return lstm.LSTMMix(z + _convolved(carry.h, params.recurrent_kernel))

    return _cell(init, initial_carry, Split(mix, lstm.update), window, num_units)


@model_factory
def conv_gru(
    num_units: int,
    shape: int | tuple[int, ...],
    kernel_size: int | tuple[int, ...] = 3,
    *,
    strides: int | tuple[int, ...] = 1,
    padding: str = "same",
    dilation: int | tuple[int, ...] = 1,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The GRU over signals or pictures, with convolutions in place of its products.

        r, z = σ(xₜ * W + hₜ₋₁ * U + b),   n = tanh(xₜ * W_n + b_n + (r ⊙ hₜ₋₁) * U_n)
        hₜ = (1 - z) ⊙ n + z ⊙ hₜ₋₁,   yₜ = hₜ

    Ballas et al. 2016 (arXiv:1511.06432), with the reset gate before the product; there z admits
    the new value, which is the same cell with the parameters of z negated, see `gru`. Shapes and
    the convolution of x are those of `conv_lstm`.

    Args:
        num_units: H, channels of the output.
        shape: the spatial axes S of x, such as 28 or (28, 28).
        kernel_size: K, of both convolutions; one number for all axes, or one for each.
        strides: step of the window over x.
        padding: "same" (the output has ⌈S / strides⌉ places) or "valid" (no padding of x).
        dilation: distance between the entries of the kernel over x.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., *S, C] -> [..., *S', H]`, carry `GRUCarry(h [..., *S', H])`.

    Raises:
        TypeError: A size is not an int.
        ValueError: As in `conv_lstm`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.conv_gru(4, shape=9, kernel_size=3, strides=2)
        >>> params = cell.init(jax.random.key(0), 2)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 9, 2))).outputs.shape
        (2, 5, 5, 4)
    """
    window = _window(num_units, shape, kernel_size, strides, padding, dilation)

    def init(key, num_inputs):
        kernels = _initial_kernels(key, window.kernel_size, num_inputs, num_units, 3, param_dtype)
        return ConvGRUParams(*kernels, jnp.zeros(3 * num_units, param_dtype))

    def initial_carry(params, batch_shape=()):
        return gru.GRUCarry(_zeros(params, batch_shape, window, num_units))

    def mix(params, carry, z):
        z_gates, z_n = jnp.split(z, [2 * num_units], axis=-1)
        kernel_gates, kernel_n = jnp.split(params.recurrent_kernel, [2 * num_units], axis=-1)
        r, gates = jnp.split(z_gates + _convolved(carry.h, kernel_gates), 2, axis=-1)
        return gru.GRUMix(gates, z_n + _convolved(jax.nn.sigmoid(r) * carry.h, kernel_n))

    return _cell(init, initial_carry, Split(mix, gru.update), window, num_units)


def _cell(init, initial_carry, advance, window, num_units):
    """The cell that convolves x, steps, and shows h."""
    num_axes = len(window.shape)

    def project(params, x):
        wanted = *window.shape, params.kernel.shape[-2]
        if x.shape[-num_axes - 1 :] != wanted:
            raise ValueError(
                f"xs must have the spatial axes and channels {wanted}, got the shape {x.shape}."
            )
        z = _convolved(x, params.kernel, window.strides, window.padding, window.dilation)
        return z + params.bias

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=advance,
        emit=lstm.emit,
        num_outputs=lambda num_inputs: num_units,
        num_feature_axes=num_axes + 1,
    )


def _convolved(x, kernel, strides=None, padding="same", dilation=None):
    """x * kernel for x `[..., *S, C]`, whatever the number of leading axes."""
    num_axes = kernel.ndim - 2
    leading, rest = x.shape[: -num_axes - 1], x.shape[-num_axes - 1 :]
    axes = "DHW"[-num_axes:]
    # A convolution does not promote, and pictures are often ints.
    dtype = jnp.result_type(x, kernel, jnp.float32)
    out = lax.conv_general_dilated(
        x.reshape(math.prod(leading), *rest).astype(dtype),
        kernel.astype(dtype),
        strides or (1,) * num_axes,
        padding.upper(),
        rhs_dilation=dilation,
        dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
    )
    return out.reshape(*leading, *out.shape[1:])


def _zeros(params, batch_shape, window, num_units):
    shape = *batch_shape, *window.output_shape(), num_units
    return jnp.zeros(shape, precision.compute_dtype(params))


def _initial_kernels(key, kernel_size, num_inputs, num_units, num_gates, dtype):
    """Both kernels, as if every place read the row of all entries under its window."""
    key_input, key_recurrent = jax.random.split(key)
    size = math.prod(kernel_size)
    checks.positive(num_inputs, "num_inputs")
    kernel = initializers.input_kernel(key_input, size * num_inputs, num_gates * num_units, dtype)
    recurrent = initializers.orthogonal_per_gate(
        key_recurrent, size * num_units, num_units, num_gates, dtype
    )
    kernel = kernel.reshape(*kernel_size, num_inputs, -1)
    return kernel, recurrent.reshape(*kernel_size, num_units, -1)


def _window(num_units, shape, kernel_size, strides, padding, dilation):
    """The checked arguments, with a number for each spatial axis."""
    checks.positive(num_units, "num_units")
    shape = shape if isinstance(shape, tuple) else (shape,)
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"shape must have one to three spatial axes, got {shape}.")
    if padding not in PADDINGS:
        raise ValueError(f"padding must be one of {PADDINGS}, got {padding!r}.")
    window = _Window(
        _numbers(shape, "shape", len(shape)),
        _numbers(kernel_size, "kernel_size", len(shape)),
        _numbers(strides, "strides", len(shape)),
        padding,
        _numbers(dilation, "dilation", len(shape)),
    )
    if min(window.output_shape()) < 1:
        raise ValueError(
            f"shape must be large enough for one place of the kernel without padding, got {shape} "
            f"and kernel_size {window.kernel_size}."
        )
    return window


def _numbers(value, name, count):
    values = value if isinstance(value, tuple) else (value,) * count
    if len(values) != count:
        raise ValueError(f"{name} must be one number or {count}, got {value}.")
    return tuple(checks.positive(one, name) for one in values)
