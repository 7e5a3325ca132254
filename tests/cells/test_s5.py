import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.cells._hippo import hippo_eigen, hippo_normal
from jaxrnn.cells._s5 import in_eigenvectors
from jaxrnn.testing import check_cell

D, H, N, BLOCKS, T = 3, 4, 12, 2, 20


def make(**options):
    cell = jr.s5(H, N, BLOCKS, param_dtype=jnp.float64, **options)
    return cell, cell.init(jax.random.key(0), D)


def oracle(params, xs, dts):
    params = jax.tree.map(np.asarray, params)
    eigenvalues = -np.exp(params.decay_log) + 1j * params.eigenvalue_imag
    input_matrix = params.kernel_real + 1j * params.kernel_imag
    output_matrix = params.output_kernel_real + 1j * params.output_kernel_imag
    h, ys = np.zeros(N // 2, complex), []
    for x, dt in zip(np.asarray(xs), np.asarray(dts), strict=True):
        decay = np.exp(dt * np.exp(params.step_log) * eigenvalues)
        h = decay * h + (decay - 1) / eigenvalues * (x @ input_matrix)
        ys.append(2 * (h @ output_matrix).real + x @ params.skip_kernel)
    return np.array(ys), h


def test_against_the_equations(x64):
    cell, params = make()
    xs = jax.random.normal(jax.random.key(1), (T, D))
    rollout = jr.unroll(cell, params, xs)
    ys, h = oracle(params, xs, np.ones(T))
    np.testing.assert_allclose(rollout.outputs, ys, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.h, h, rtol=1e-10)


def test_steps_of_any_length_against_the_equations(x64):
    cell, params = make(timed=True)
    xs = jax.random.normal(jax.random.key(1), (T, D))
    dts = np.random.default_rng(0).exponential(size=T)
    ys, _ = oracle(params, xs, dts)
    np.testing.assert_allclose(jr.unroll(cell, params, jr.Timed(xs, dts)).outputs, ys, rtol=1e-10)


def exponential(matrix):
    """exp(matrix) by its series, scaled and squared."""
    scaled = matrix / 2**20
    term = total = np.eye(len(matrix))
    for order in range(1, 10):
        term = term @ scaled / order
        total = total + term
    for _ in range(20):
        total = total @ total
    return total


def test_it_starts_as_a_real_system_with_blocks_of_hippo(x64):
    # h' = S h + B x held over a step: exp of [[S, B], [0, 0]] holds both discrete matrices.
    cell, params = make()
    generator = np.random.default_rng(0)
    input_matrix, output_matrix = (
        generator.standard_normal((D, N)),
        generator.standard_normal((N, H)),
    )
    kernel, output_kernel = in_eigenvectors(
        hippo_eigen(N // BLOCKS)[1], input_matrix, output_matrix
    )
    step = 0.05
    params = params._replace(
        kernel_real=kernel.real,
        kernel_imag=kernel.imag,
        output_kernel_real=output_kernel.real,
        output_kernel_imag=output_kernel.imag,
        step_log=jnp.full(N // 2, np.log(step)),
        skip_kernel=jnp.zeros((D, H)),
    )
    system = np.zeros((N + D, N + D))
    system[:N, :N] = np.kron(np.eye(BLOCKS), hippo_normal(N // BLOCKS))
    system[:N, N:] = input_matrix.T
    discrete = exponential(step * system)
    xs = generator.standard_normal((T, D))
    h, want = np.zeros(N), []
    for x in xs:
        h = discrete[:N, :N] @ h + discrete[:N, N:] @ x
        want.append(h @ output_matrix)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-7, atol=1e-9)


def test_with_one_input_and_one_step_it_is_s4d(x64):
    s4d = jr.s4d(N, param_dtype=jnp.float64)
    theirs = s4d.init(jax.random.key(0), 1)
    s5 = jr.s5(1, N, param_dtype=jnp.float64)
    ours = jr.cells.S5Params(
        decay_log=theirs.decay_log[0],
        eigenvalue_imag=theirs.eigenvalue_imag[0],
        step_log=jnp.full(N // 2, theirs.step_log[0]),
        kernel_real=jnp.ones((1, N // 2)),
        kernel_imag=jnp.zeros((1, N // 2)),
        output_kernel_real=theirs.output_kernel_real.T,
        output_kernel_imag=theirs.output_kernel_imag.T,
        skip_kernel=theirs.skip[None],
    )
    xs = jax.random.normal(jax.random.key(1), (T, 1))
    want = jr.unroll(s4d, theirs, xs).outputs
    np.testing.assert_allclose(jr.unroll(s5, ours, xs).outputs, want, rtol=1e-11)


def test_a_step_in_parts_is_the_step(x64):
    # Each input held for dt is the same as held for s dt and then for (1 - s) dt.
    cell, params = make(timed=True)
    xs = jax.random.normal(jax.random.key(1), (T, D))
    dts, shares = np.random.default_rng(0).uniform(0.1, 2, (2, T)) * [[1], [0.5]]
    parts = np.stack([shares * dts, (1 - shares) * dts], axis=1).reshape(-1)
    want = jr.unroll(cell, params, jr.Timed(xs, dts)).outputs
    got = jr.unroll(cell, params, jr.Timed(jnp.repeat(xs, 2, axis=0), parts)).outputs[1::2]
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_step_rescale_is_another_sampling_rate(x64):
    (coarse, params), (fine, _) = make(step_rescale=2.0), make()
    xs = jax.random.normal(jax.random.key(1), (T, D))
    want = jr.unroll(coarse, params, xs).outputs
    got = jr.unroll(fine, params, jnp.repeat(xs, 2, axis=0)).outputs[1::2]
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_a_step_of_no_length_changes_nothing_and_has_derivatives(x64):
    cell, params = make(timed=True)
    carry = jr.cells.LinearCarry(jnp.ones(N // 2) + 1j)

    def after(dt):
        return jr.step(cell, params, carry, jr.Timed(jnp.ones(D), dt))[0].h.real.sum()

    _, y = jr.step(cell, params, carry, jr.Timed(jnp.ones(D), jnp.zeros(())))
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(after(jnp.zeros(())), N // 2)
    # dh/dt = λ h + x B, in units of the step.
    eigenvalues = -np.exp(params.decay_log) + 1j * params.eigenvalue_imag
    slope = eigenvalues * carry.h + (params.kernel_real + 1j * params.kernel_imag).sum(axis=0)
    want = (np.exp(params.step_log) * slope).real.sum()
    np.testing.assert_allclose(jax.grad(after)(jnp.zeros(())), want, rtol=1e-12)


def test_laws_with_steps_of_any_length():
    def make_xs(key, leading):
        key_x, key_dt = jax.random.split(key)
        dt = jax.random.uniform(key_dt, leading, minval=0.1, maxval=3.0)
        return jr.Timed(jax.random.normal(key_x, (*leading, D)), dt)

    check_cell(jr.s5(2, 4, timed=True), make_xs=make_xs, evaluators=(jr.associative(),))


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="state_size must be a multiple of 2 num_blocks = 4"):
        jr.s5(H, 6, 2)
    with pytest.raises(ValueError, match="step_rescale must be above 0"):
        jr.s5(H, 6, step_rescale=0.0)
    with pytest.raises(ValueError, match="0 < step_min <= step_max"):
        jr.s5(H, 6, step_min=0.0)
    with pytest.raises(TypeError, match="timed must be True or False"):
        jr.s5(H, 6, timed=1)
    cell, xs = jr.s5(H, 6), jnp.ones((T, D))
    params = cell.init(jax.random.key(0), D)
    with pytest.raises(ValueError, match="xs.dt must have a time axis and 1 feature axes"):
        jr.unroll(cell, params, jr.Timed(xs, jnp.ones(T)))
    with pytest.raises(TypeError, match=r"xs must be one array; only s5\(timed=True\) takes Timed"):
        jr.unroll(cell, params, jr.Timed(xs, jnp.ones((T, 1))))
    with pytest.raises(TypeError, match="Timed"):
        jr.unroll(jr.s5(H, 6, timed=True), params, xs)
