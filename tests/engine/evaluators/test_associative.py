import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def test_a_nonlinear_cell_raises_at_trace_time():
    cell = jr.elman(3)
    params = cell.init(jax.random.key(0), 2)
    with pytest.raises(TypeError, match="needs a linear cell"):
        jax.eval_shape(
            lambda xs: jr.unroll(cell, params, xs, evaluator=jr.associative()), jnp.ones((4, 2))
        )


def test_a_fixed_coefficient_needs_no_time_axis(x64):
    rate = jnp.array([0.5, -0.25])
    cell = jr.simple_cell(
        lambda key, num_inputs: {"rate": rate},
        lambda params, carry, z: z.a * carry + z.b,
        2,
        project=lambda params, x: jr.Affine(params["rate"], x),
    )
    params = cell.init(None, 2)
    xs = jax.random.normal(jax.random.key(0), (3, 50, 2), jnp.float64)
    mask = jax.random.bernoulli(jax.random.key(1), 0.7, (3, 50))
    want = jr.unroll(cell, params, xs, mask=mask)
    for method in ("associative", "sequential", "chunked", "auto"):
        got = jr.unroll(cell, params, xs, mask=mask, evaluator=jr.associative(method))
        np.testing.assert_allclose(got.outputs, want.outputs, rtol=1e-12, atol=1e-14)
        assert got.info == jr.associative(method)
