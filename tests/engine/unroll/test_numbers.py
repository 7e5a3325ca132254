"""Worked numbers: smoothing, detaching, a scalar tanh state."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from support.lstm_example import (
    smooth,
)

import jaxrnn as jr


def test_exponential_smoothing_has_the_states_of_the_worked_example():
    """α = 1/2 on [2, 0, 4] from 0."""
    rollout = smooth([2.0, 0.0, 4.0])
    assert rollout.outputs[:, 0].tolist() == [1.0, 0.5, 2.25]
    assert rollout.carry.tolist() == [2.25]


def test_sensitivity_to_the_first_carry_is_alpha_to_the_third():
    def last(carry):
        return smooth([2.0, 0.0, 4.0], carry=carry).carry[0]

    assert jax.grad(last)(jnp.zeros(1)).tolist() == [1 / 8]


def test_an_input_m_steps_old_weighs_one_minus_alpha_alpha_to_the_m():
    def last(xs):
        return smooth(xs, rate=0.75).carry[0]

    weights = jax.grad(last)(jnp.zeros(5))
    np.testing.assert_allclose(weights, [0.25 * 0.75**m for m in (4, 3, 2, 1, 0)], rtol=1e-14)


def test_detaching_keeps_the_value_and_cuts_the_gradient():
    """keras#8945: a detached carry goes on with 0.5; a reset one starts from 0."""

    def in_two_chunks(carry, cut):
        first = smooth([2.0, 0.0], carry=carry).carry
        second = smooth([4.0], carry=cut(first)).carry[0]
        return second, first[0]

    def value_and_slope(cut):
        (second, first), slope = jax.value_and_grad(in_two_chunks, has_aux=True)(jnp.zeros(1), cut)
        return float(first), float(second), float(slope[0])

    assert value_and_slope(lambda carry: carry) == (0.5, 2.25, 1 / 8)
    assert value_and_slope(jr.detach) == (0.5, 2.25, 0.0)
    assert value_and_slope(jnp.zeros_like) == (0.5, 2.0, 0.0)


def test_a_scalar_tanh_state_and_its_gradient():
    """u = w = 1/2 on [1, 2, 0], forward and backward by hand."""
    h = [0.0]
    xs = [1.0, 2.0, 0.0]
    for x in xs:
        h.append(math.tanh(0.5 * x + 0.5 * h[-1]))
    pulled, of_w = 1.0, 0.0
    for t in (2, 1, 0):
        pulled *= 1 - h[t + 1] ** 2
        of_w += pulled * h[t]
        pulled *= 0.5
    params = jr.cells.ElmanParams(jnp.full((1, 1), 0.5), jnp.full((1, 1), 0.5), jnp.zeros(1))

    def last(params):
        rollout = jr.unroll(jr.elman(1), params, jnp.array(xs)[:, None])
        return rollout.carry.h[0], rollout.outputs[:, 0]

    gradient, outputs = jax.grad(last, has_aux=True)(params)
    np.testing.assert_allclose(outputs, h[1:], rtol=1e-14)
    np.testing.assert_allclose(gradient.recurrent_kernel[0, 0], of_w, rtol=1e-14)
