import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.cells._hippo import diagonal_eigenvalues
from jaxrnn.cells._s4d import eigenvalues_of

D, N, T = 3, 8, 40
KINDS = ("lin", "inv", "legs", "real")


def kernel(params, discretization, num_steps):
    """K_l for every feature by the formula of the convolution, in numpy."""
    params = jax.tree.map(np.asarray, params)
    is_real = params.eigenvalue_imag is None
    eigenvalues = -np.exp(params.decay_log) + (0 if is_real else 1j * params.eigenvalue_imag)
    readout = params.output_kernel_real + (0 if is_real else 1j * params.output_kernel_imag)
    step = np.exp(params.step_log)[:, None]
    if discretization == "zoh":
        decay = np.exp(step * eigenvalues)
        gain = (decay - 1) / eigenvalues
    else:
        decay = (1 + step * eigenvalues / 2) / (1 - step * eigenvalues / 2)
        gain = step / (1 - step * eigenvalues / 2)
    powers = decay[:, :, None] ** np.arange(num_steps)
    total = ((readout * gain)[:, :, None] * powers).sum(axis=1)
    return (total if is_real else 2 * total.real).T


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_impulse_response_is_the_kernel_of_the_formula(x64, kind, discretization):
    cell = jr.s4d(N, kind, discretization=discretization, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    impulse = jnp.zeros((T, D)).at[0].set(1.0)
    want = kernel(params, discretization, T)
    want[0] += params.skip
    np.testing.assert_allclose(jr.unroll(cell, params, impulse).outputs, want, rtol=1e-10)


def test_outputs_are_the_convolution_with_the_kernel(x64):
    # A transform of length 2 T: one of length T would wrap round.
    cell = jr.s4d(N, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (T, D))
    spectrum = np.fft.rfft(kernel(params, "zoh", T), 2 * T, axis=0)
    want = np.fft.irfft(spectrum * np.fft.rfft(xs, 2 * T, axis=0), axis=0)[:T]
    want = want + np.asarray(params.skip) * xs
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
@pytest.mark.parametrize("kind", ["legs", "real"])
def test_against_a_loop_over_features_and_states(x64, kind, discretization):
    cell = jr.s4d(N, kind, discretization=discretization, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs = np.random.default_rng(0).standard_normal((T, D))
    rollout = jr.unroll(cell, params, xs)
    for d in range(D):
        ys, last = params.skip[d] * xs[:, d], []
        step = np.exp(params.step_log[d])
        for n in range(params.decay_log.shape[1]):
            rate, read, copies = -np.exp(params.decay_log[d, n]), params.output_kernel_real[d, n], 1
            if kind == "legs":
                rate = rate + 1j * params.eigenvalue_imag[d, n]
                read, copies = read + 1j * params.output_kernel_imag[d, n], 2
            h = 0
            for t, x in enumerate(xs[:, d]):
                # h' = rate h + x solved over a step, or its trapezoidal rule.
                if discretization == "zoh":
                    h = h * np.exp(step * rate) + x * (np.exp(step * rate) - 1) / rate
                else:
                    h = (h + step / 2 * rate * h + step * x) / (1 - step / 2 * rate)
                ys = ys.at[t].add(copies * (read * h).real)
            last.append(h)
        np.testing.assert_allclose(rollout.outputs[:, d], ys, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rollout.carry.h[d], last, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_half_the_step_at_twice_the_rate_gives_the_same_states(x64, kind):
    cell = jr.s4d(N, kind, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (T, D))
    fine = params._replace(step_log=params.step_log - jnp.log(2.0))
    want = jr.carries(cell, params, xs).h
    got = jr.carries(cell, fine, jnp.repeat(xs, 2, axis=0)).h[1::2]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-13)


def test_the_two_discretizations_meet_with_the_third_power_of_the_step(x64):
    params = jr.s4d(N, "lin").init(jax.random.key(0), D)

    def gap(step):
        tied = params._replace(step_log=jnp.full(D, jnp.log(step)))
        zoh, bilinear = (
            jr.s4d(N, "lin", discretization=word).project(tied, jnp.ones(D)).a.h
            for word in ("zoh", "bilinear")
        )
        return np.abs(zoh - bilinear).max()

    np.testing.assert_allclose(gap(0.02) / gap(0.01), 8, rtol=0.02)


@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_stable_for_every_parameter(x64, discretization):
    cell = jr.s4d(N, discretization=discretization, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 200)
    noise = jax.random.normal(jax.random.key(1), (2, 200, N // 2))
    params = params._replace(
        decay_log=4 * noise[0], eigenvalue_imag=100 * noise[1], step_log=3 * noise[0, :, 0]
    )
    sizes = np.abs(cell.project(params, jnp.ones(200)).a.h)
    assert (sizes < 1).all() and sizes.max() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_parameters_start(x64, kind):
    cell = jr.s4d(N, kind, step_min=0.01, step_max=1.0, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 5000)
    want = np.broadcast_to(diagonal_eigenvalues(kind, N), params.decay_log.shape)
    np.testing.assert_allclose(eigenvalues_of(params), want, rtol=1e-12)
    steps = np.log10(np.exp(params.step_log))
    np.testing.assert_allclose(np.quantile(steps, [0, 0.5, 1]), [-2, -1, 0], atol=0.05)
    power = np.square(params.output_kernel_real).mean()
    if kind != "real":
        power += np.square(params.output_kernel_imag).mean()
    np.testing.assert_allclose(power, 1, rtol=0.05)


def test_real_eigenvalues_keep_a_real_carry():
    for kind, dtype, states in (("real", jnp.float32, N), ("legs", jnp.complex64, N // 2)):
        cell = jr.s4d(N, kind)
        carry = cell.initial_carry(cell.init(jax.random.key(0), D), (2,))
        assert carry.h.dtype == dtype and carry.h.shape == (2, D, states)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="state_size must be even"):
        jr.s4d(5)
    with pytest.raises(ValueError, match="eigenvalues must be one of"):
        jr.s4d(4, "legt")
    with pytest.raises(ValueError, match="discretization must be one of"):
        jr.s4d(4, discretization="euler")
    with pytest.raises(ValueError, match="0 < step_min <= step_max, got 1.0 and 0.1"):
        jr.s4d(4, step_min=1.0, step_max=0.1)
