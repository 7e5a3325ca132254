import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

C, H, T = 2, 3, 4


def convolved(x, kernel, strides, padding, dilation):
    """Every place of the result is a sum over the window above it."""
    sizes = kernel.shape[:-2]
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    if padding == "same":
        counts = [-(-n // s) for n, s in zip(x.shape, strides, strict=False)]
        needed = [
            max((count - 1) * s + r - n, 0)
            for count, s, r, n in zip(counts, strides, reach, x.shape, strict=False)
        ]
        x = np.pad(x, [(n // 2, n - n // 2) for n in needed] + [(0, 0)])
    else:
        counts = [(n - r) // s + 1 for n, r, s in zip(x.shape, reach, strides, strict=False)]
    out = np.zeros((*counts, kernel.shape[-1]))
    for place in itertools.product(*map(range, counts)):
        for entry in itertools.product(*map(range, sizes)):
            at = tuple(
                p * s + e * d for p, s, e, d in zip(place, strides, entry, dilation, strict=True)
            )
            out[place] += x[at] @ kernel[entry]
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


CASES = {
    "1-D": ((5,), {"kernel_size": 3}),
    "strides": ((6,), {"kernel_size": 2, "strides": 2}),
    "2-D": ((3, 4), {"kernel_size": (2, 3), "strides": (1, 2), "padding": "valid"}),
    "dilated": ((5, 3), {"kernel_size": 2, "dilation": (3, 1), "padding": "same"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("make", [jr.conv_lstm, jr.conv_gru])
def test_it_is_a_loop_over_steps_and_places(make, name, x64):
    shape, options = CASES[name]
    cell = make(H, shape, **options, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), C)
    params = params._replace(bias=jnp.linspace(-0.5, 0.5, params.bias.size))
    count = len(shape)
    strides, dilation = (
        value if isinstance(value, tuple) else (value,) * count
        for value in (options.get("strides", 1), options.get("dilation", 1))
    )
    xs = np.random.default_rng(0).standard_normal((T, *shape, C))
    rollout = jr.unroll(cell, params, xs)
    kernel, recurrent, bias = map(np.asarray, params)

    def of_state(h, block):
        return convolved(h, recurrent[..., block], (1,) * count, "same", (1,) * count)

    every, h, c = slice(None), *(np.zeros(rollout.outputs.shape[1:]) for _ in range(2))
    for x, y in zip(xs, rollout.outputs, strict=True):
        z = convolved(x, kernel, strides, options.get("padding", "same"), dilation) + bias
        if make is jr.conv_lstm:
            i, f, g, o = np.split(z + of_state(h, every), 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            gates, new = slice(0, 2 * H), slice(2 * H, None)
            r, keep = np.split(sigmoid(z[..., gates] + of_state(h, gates)), 2, -1)
            n = np.tanh(z[..., new] + of_state(r * h, new))
            h = (1 - keep) * n + keep * h
        np.testing.assert_allclose(y, h, rtol=1e-9, atol=1e-12)


def pictures(*shape):
    return lambda key, leading: jax.random.normal(key, (*leading, *shape))


def test_conv_lstm_keeps_the_laws():
    check_cell(jr.conv_lstm(1, (2, 3), 2), num_inputs=1, make_xs=pictures(2, 3, 1))


def test_conv_gru_keeps_the_laws():
    check_cell(jr.conv_gru(1, 4, 2, strides=2), num_inputs=2, make_xs=pictures(4, 2))


@pytest.mark.parametrize("make", [jr.conv_lstm, jr.conv_gru])
def test_other_evaluators(make, x64):
    cell = make(H, (2, 2), 2, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), C)
    xs = np.random.default_rng(0).standard_normal((T, 2, 2, C))
    want = jr.unroll(cell, params, xs).outputs
    for evaluator in (jr.newton(), jr.chunked(3)):
        got = jr.unroll(cell, params, xs, evaluator=evaluator).outputs
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


def test_the_initial_kernels():
    params = jr.conv_lstm(4, (6, 6), 3).init(jax.random.key(0), 2)
    assert params.kernel.shape == (3, 3, 2, 16)
    np.testing.assert_array_equal(params.bias, np.repeat([0, 1, 0, 0], 4))
    gate = params.recurrent_kernel[..., 4:8].reshape(-1, 4)
    np.testing.assert_allclose(gate.T @ gate, np.eye(4), atol=1e-5)
    assert jr.conv_gru(4, 6, 3).init(jax.random.key(0), 2).kernel.shape == (3, 2, 12)


def test_ints_are_pictures():
    frames = np.random.default_rng(0).integers(0, 255, (T, 4, 1), np.uint8)
    cell = jr.conv_gru(H, 4)
    params = cell.init(jax.random.key(0), 1)
    want = jr.unroll(cell, params, frames.astype(np.float32)).outputs
    np.testing.assert_allclose(jr.unroll(cell, params, frames).outputs, want, rtol=1e-6)


def test_wrong_arguments_raise():
    cases = [
        ({"num_units": 0}, ValueError, "^num_units must be at least 1"),
        ({"shape": (4, 0)}, ValueError, "^shape must be at least 1"),
        ({"shape": ()}, ValueError, "^shape must have one to three spatial axes"),
        ({"kernel_size": (3, 3, 3)}, ValueError, "^kernel_size must be one number or 2"),
        ({"strides": 1.5}, TypeError, "^strides must be an int"),
        ({"padding": "causal"}, ValueError, "^padding must be one of"),
        ({"kernel_size": 5, "padding": "valid"}, ValueError, "^shape must be large enough"),
    ]
    for changed, error, message in cases:
        for make in (jr.conv_lstm, jr.conv_gru):
            with pytest.raises(error, match=message):
                make(**{"num_units": 2, "shape": (4, 4)} | changed)
    cell = jr.conv_lstm(2, (4, 4))
    params = cell.init(jax.random.key(0), 1)
    with pytest.raises(ValueError, match=r"^xs must have the spatial .* \(4, 4, 1\)"):
        jr.unroll(cell, params, jnp.ones((3, 4, 5, 1)))
