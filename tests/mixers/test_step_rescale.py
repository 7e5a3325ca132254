"""One set of parameters at another sampling rate, for every model with a step size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.mixers._ssd import ssd

D, T = 3, 6
RATE = 2.0


def longer_steps(params):
    return params._replace(step_log=params.step_log + np.log(RATE))


def faster_and_stronger(params):
    """exp(Δ r A) and Δ r B: both factors of Δ are in the parameters."""
    rank, state_size = params.dt_kernel.shape[0], params.a_log.shape[1]
    b = slice(rank, rank + state_size)
    kernel = params.kernel.at[:, b].multiply(RATE)
    return params._replace(a_log=params.a_log + np.log(RATE), kernel=kernel)


MODELS = {
    "s4d": (functools.partial(jr.s4d, 4), longer_steps),
    "s4d bilinear": (functools.partial(jr.s4d, 4, discretization="bilinear"), longer_steps),
    "s5": (functools.partial(jr.s5, D, 4), longer_steps),
    "s4": (functools.partial(jr.s4, 4), longer_steps),
    "s6": (functools.partial(jr.s6, 4), faster_and_stronger),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_a_factor_of_the_step(name, x64):
    make, changed = MODELS[name]
    params = make(param_dtype=jnp.float64).init(jax.random.key(0), D)
    xs = np.random.default_rng(0).standard_normal((2, T, D))
    got = jr.unroll(make(param_dtype=jnp.float64, step_rescale=RATE), params, xs).outputs
    want = jr.unroll(make(param_dtype=jnp.float64), changed(params), xs).outputs
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


HELD = {
    "s4d": functools.partial(jr.s4d, 4),
    "s6": functools.partial(jr.s6, 4, discretization="zoh"),
    "mamba": functools.partial(jr.mamba, 4, conv_width=1, discretization="zoh"),
}


@pytest.mark.parametrize("name", HELD)
def test_one_step_is_two_with_the_same_input(name, x64):
    coarse, fine = (HELD[name](param_dtype=jnp.float64, step_rescale=r) for r in (RATE, 1.0))
    params = fine.init(jax.random.key(0), D)
    xs = np.random.default_rng(0).standard_normal((T, D))
    want = jr.unroll(fine, params, np.repeat(xs, 2, axis=0)).outputs[1::2]
    np.testing.assert_allclose(jr.unroll(coarse, params, xs).outputs, want, rtol=1e-9, atol=1e-12)


def test_mamba2_in_both_of_its_forms(x64):
    # u, B, C and δ of one head: B and the rate take the factor of Δ.
    state_size, width = 2, 2
    fine = ssd(state_size, width, jnp.float64)
    coarse = ssd(state_size, width, jnp.float64, step_rescale=RATE)
    num_inputs = width + 2 * state_size + 1
    params = fine.init(jax.random.key(0), num_inputs)
    xs = jnp.asarray(np.random.default_rng(0).standard_normal((T, num_inputs)))
    changed = params._replace(a_log=params.a_log + np.log(RATE))
    stronger = xs.at[:, width : width + state_size].multiply(RATE)
    want = jr.unroll(fine, changed, stronger).outputs
    for evaluator in (jr.sequential(), jr.chunkwise(None)):
        got = jr.unroll(coarse, params, xs, evaluator=evaluator).outputs
        np.testing.assert_allclose(got, want, rtol=1e-9)
    slow, plain = jr.mamba2(2, head_width=2, step_rescale=RATE), jr.mamba2(2, head_width=2)
    params, xs = plain.init(jax.random.key(0), D + 1), jnp.ones((T, D + 1))
    assert (jr.unroll(slow, params, xs).outputs != jr.unroll(plain, params, xs).outputs).any()


@pytest.mark.parametrize("make", [jr.s4d, jr.s4, jr.s6, jr.mamba, jr.mamba2])
def test_it_must_be_above_0(make):
    with pytest.raises(ValueError, match="step_rescale must be above 0, got 0"):
        make(step_rescale=0)
    with pytest.raises(TypeError, match="step_rescale must be a float, got 'half'"):
        make(step_rescale="half")
