from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

T, D, H = 24, 3, 4


def setup(cell, scale=1.0):
    params = cell.init(jax.random.key(0), D)
    params = params._replace(recurrent_kernel=scale * params.recurrent_kernel)
    keys = jax.random.split(jax.random.key(1), 3)
    xs = jax.random.normal(keys[0], (2, T, D), jnp.float64)
    mask = jax.random.bernoulli(keys[1], 0.8, (2, T))
    reset = jax.random.bernoulli(keys[2], 0.1, (2, T))
    return params, xs, {"mask": mask, "reset": reset}


def uneven():
    """Blocks of 1, 2 and 5 coordinates, which do not lie side by side."""

    def init(key, num_inputs):
        return Tied(0.5 * jax.random.normal(key, (8,)), jnp.ones((num_inputs, 8)))

    def advance(params, h, z):
        w = params.recurrent_kernel
        pair = jnp.tanh(h[..., 2:0:-1] * w[1:3] + h[..., 1:3])
        five = w[3:] * jnp.cumsum(h[..., 3:], axis=-1) / 5
        alone = w[:1] * h[..., :1]
        return jnp.tanh(jnp.concatenate([alone, pair, five], axis=-1) + z)

    return jr.simple_cell(init, advance, 8, project=lambda params, x: x @ params.kernel)


class Tied(NamedTuple):
    recurrent_kernel: Any
    kernel: Any


CELLS = {
    "elman": lambda: jr.elman(H, param_dtype=jnp.float64),
    "lstm": lambda: jr.lstm(H, param_dtype=jnp.float64),
    "gru": lambda: jr.gru(H, param_dtype=jnp.float64),
    "gru before": lambda: jr.gru(H, reset_after=False, param_dtype=jnp.float64),
    "mgu": lambda: jr.mgu(H, param_dtype=jnp.float64),
    "para_gru": lambda: jr.para_gru(H, param_dtype=jnp.float64),
    "para_lstm": lambda: jr.para_lstm(H, param_dtype=jnp.float64),
    "uneven": uneven,
}


RUNS = [
    *((name, jacobian) for name in list(CELLS)[:5] for jacobian in ("auto", "diagonal")),
    *((name, "auto") for name in ("para_gru", "para_lstm", "uneven")),
    ("para_lstm", "full"),
]


@pytest.mark.parametrize(("name", "jacobian"), RUNS)
def test_solves_every_nonlinear_cell(x64, name, jacobian):
    cell = CELLS[name]()
    params, xs, flags = setup(cell)

    def run(evaluator):
        def loss(params, xs):
            rollout = jr.unroll(cell, params, xs, evaluator=evaluator, **flags)
            return jnp.sin(rollout.outputs).sum(), rollout

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(params, xs)

    (_, want), want_gradient = run(jr.sequential())
    (_, got), gradient = run(jr.newton(jacobian=jacobian))
    chex.assert_trees_all_close(got[:2], want[:2], rtol=1e-10, atol=1e-12)
    chex.assert_trees_all_close(gradient, want_gradient, rtol=1e-10, atol=1e-12)
    assert bool(got.info.converged) and int(got.info.iterations) <= T


def run_elman(x64_scale, evaluator, **flags):
    cell = jr.elman(H, param_dtype=jnp.float64)
    params, xs, _ = setup(cell, x64_scale)
    return jr.unroll(cell, params, xs, evaluator=evaluator, **flags)


def test_k_iterations_solve_the_first_k_steps(x64):
    """Even where the recurrence is chaotic: weights three times orthogonal."""
    want = run_elman(3.0, jr.sequential()).outputs
    for iterations in (1, 2, 5):
        got = run_elman(3.0, jr.newton(tol=0.0, max_iterations=iterations)).outputs
        np.testing.assert_allclose(got[:, :iterations], want[:, :iterations], rtol=1e-12)
        assert not np.allclose(got, want, rtol=1e-6)
    whole = run_elman(3.0, jr.newton(tol=0.0))
    np.testing.assert_allclose(whole.outputs, want, rtol=1e-8)
    assert int(whole.info.iterations) <= T


def test_not_converged_is_reported_and_falls_back_only_when_asked(x64):
    want = run_elman(3.0, jr.sequential())
    plain = run_elman(3.0, jr.newton(max_iterations=2))
    assert not plain.info.converged and plain.info.residual > 1e-3
    assert not np.allclose(plain.outputs, want.outputs, rtol=1e-6)
    safe = run_elman(3.0, jr.newton(max_iterations=2, fallback=jr.sequential()))
    assert not safe.info.converged
    np.testing.assert_array_equal(safe.outputs, want.outputs)


def test_a_large_overflow_is_not_convergence():
    """XLA's maximum over a large array on CPU forgets NaN."""
    cell = jr.simple_cell(
        lambda key, num_inputs: (), lambda params, carry, z: (10 * carry) ** 2 + z, H
    )
    plain = jr.newton(max_iterations=9, damping=None)
    rollout = jr.unroll(cell, (), jnp.ones((16, 256, H)), evaluator=plain)
    assert jnp.isnan(rollout.outputs).any() and not rollout.info.converged
    # Without J where it does harm the method finds what the loop finds: infinities.
    rollout = jr.unroll(cell, (), jnp.ones((16, 256, H)), evaluator=jr.newton())
    np.testing.assert_array_equal(
        rollout.outputs, jr.unroll(cell, (), jnp.ones((16, 256, H))).outputs
    )
    assert rollout.info.converged


def test_damping_changes_the_path_and_not_the_solution(x64):
    plain, damped = (run_elman(1.0, jr.newton(damping=damping)) for damping in (None, 0.5))
    np.testing.assert_allclose(damped.outputs, plain.outputs, rtol=1e-10)
    assert int(damped.info.iterations) > int(plain.info.iterations)


def chaotic():
    cell = jr.gru(8, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    params = params._replace(recurrent_kernel=3.0 * params.recurrent_kernel)
    return cell, params, jax.random.normal(jax.random.key(1), (2, 256, D), jnp.float64)


def test_dropping_the_jacobian_where_it_does_harm_saves_iterations(x64):
    cell, params, xs = chaotic()
    want = jr.unroll(cell, params, xs).outputs
    safe, plain = (
        jr.unroll(cell, params, xs, evaluator=jr.newton(1e-10, 40, damping=damping))
        for damping in ("auto", None)
    )
    assert safe.info.converged and not plain.info.converged
    np.testing.assert_allclose(safe.outputs, want, rtol=1e-8, atol=1e-10)


def test_a_masked_step_has_the_identity_as_jacobian(x64):
    """All masked but one step: one iteration carries it over, and a second finds nothing to do."""
    mask = jnp.zeros((2, T), bool).at[:, 0].set(True)
    got = run_elman(1.0, jr.newton(), mask=mask)
    want = run_elman(1.0, jr.sequential(), mask=mask)
    chex.assert_trees_all_close(got[:2], want[:2], rtol=1e-12)
    assert int(got.info.iterations) <= 3


def test_the_gradient_does_not_depend_on_the_iterations(x64):
    cell = jr.gru(H, param_dtype=jnp.float64)
    params, xs, flags = setup(cell)

    def gradient(**options):
        def loss(params):
            evaluator = jr.newton(**options)
            return (jr.unroll(cell, params, xs, evaluator=evaluator, **flags).outputs ** 2).sum()

        return jax.jit(jax.grad(loss))(params)

    chex.assert_trees_all_close(
        gradient(), gradient(tol=0.0, max_iterations=T), rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize("with_flags", [False, True])
def test_second_derivatives_are_those_of_the_loop(x64, with_flags):
    cell = jr.gru(2, param_dtype=jnp.float64)
    params, xs, flags = setup(cell)
    xs, flags = jax.tree.map(lambda leaf: leaf[:1, :8], (xs, flags if with_flags else {}))
    carry = cell.initial_carry(params, (1,))
    carry = carry._replace(h=carry.h + 0.3)

    def hessian(evaluator):
        def loss(first):
            point = params._replace(bias=params.bias + first[:6]), carry._replace(h=first[None, 6:])
            rollout = jr.unroll(cell, point[0], xs, carry=point[1], evaluator=evaluator, **flags)
            return jnp.sin(rollout.outputs).sum()

        return jax.jit(jax.jacfwd(jax.jacrev(loss)))(jnp.arange(8.0) / 10)

    want = hessian(jr.sequential())
    assert abs(want).max() > 0.1
    np.testing.assert_allclose(hessian(jr.newton()), want, rtol=1e-9, atol=1e-12)


def test_a_nan_before_a_reset_stays_there(x64):
    cell = jr.lstm(H, param_dtype=jnp.float64)
    params, xs, _ = setup(cell)
    reset = jnp.zeros((2, T), bool).at[:, 8].set(True)
    clean = jr.unroll(cell, params, xs, reset=reset)
    poisoned = xs.at[:, 3].set(jnp.nan)
    got = jr.unroll(cell, params, poisoned, reset=reset, evaluator=jr.newton())
    np.testing.assert_allclose(got.outputs[:, 8:], clean.outputs[:, 8:], rtol=1e-10)
    assert jnp.isnan(got.outputs[:, 3:8]).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"jacobian": "dense"}, ValueError, "jacobian must be one of"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1"),
        ({"damping": 1.0}, ValueError, "damping must lie in"),
        ({"damping": "no"}, ValueError, "damping must be \"auto\", None or a fraction, got 'no'"),
        ({"tol": "x"}, TypeError, "tol must be a float, got 'x'"),
        ({"tol": float("nan")}, ValueError, "tol must be finite and not below 0, got nan"),
        ({"tol": -1.0}, ValueError, "tol must be finite and not below 0, got -1.0"),
        ({"jacobian": ["full"]}, ValueError, "jacobian must be one of"),
        ({"fallback": jr.sequential}, TypeError, "fallback must be an Evaluator"),
    ],
)
def test_wrong_options_raise(options, error, message):
    with pytest.raises(error, match=message):
        jr.newton(**options)


def test_a_carry_that_is_not_real_raises():
    cell = jr.simple_cell(
        lambda key, num_inputs: (),
        lambda params, carry, z: carry + 1,
        1,
        initial_carry=lambda params, batch_shape=(): jnp.zeros((*batch_shape, 1), jnp.int32),
    )
    with pytest.raises(TypeError, match="carry of real floating arrays"):
        jr.unroll(cell, (), jnp.ones((3, 1)), evaluator=jr.newton())


def test_an_empty_batch_and_a_coefficient_that_never_changes(x64):
    cell = jr.gru(H)
    params = cell.init(jax.random.key(0), D)
    empty = jr.unroll(cell, params, jnp.zeros((0, 5, D)), evaluator=jr.newton())
    assert empty.outputs.shape == (0, 5, H)
    smooth = jr.ema(0.5)
    params = smooth.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (2, T, D), jnp.float32)
    got = jr.unroll(smooth, params, xs, evaluator=jr.newton())
    np.testing.assert_allclose(got.outputs, jr.unroll(smooth, params, xs).outputs, rtol=1e-5)


def test_a_cell_that_closes_over_a_traced_array_is_refused():
    def outputs(w):
        cell = jr.simple_cell(
            lambda key, num_inputs: (), lambda params, carry, z: jnp.tanh(w * carry + z), 3
        )
        return jr.unroll(cell, (), jnp.ones((5, 3)), evaluator=jr.newton()).outputs.sum()

    with pytest.raises(TypeError, match="close over no traced array"):
        jax.grad(outputs)(0.5)
    assert jnp.isfinite(outputs(0.5))
