import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, H, BLOCKS, T, BATCH = 3, 4, 2, 9, 3


def test_the_laws():
    check_layer(jr.griffin_block(H, BLOCKS, conv_width=2, normalized_start=False))


def of_parts(params, xs, carry, normalized_start, **flags):
    """The block of public parts, with the scan of the cell that carries whether it began."""
    u, z = jnp.split(xs @ params.kernel + params.bias, 2, axis=-1)
    recurrence = jr.serial(jr.causal_conv(3), jr.rg_lru(BLOCKS, normalized_start=normalized_start))
    rollout = jr.unroll(recurrence, (params.conv, params.lru), u, carry=carry, **flags)
    gated = rollout.outputs * jax.nn.gelu(z)
    return rollout.carry, gated @ params.output_kernel + params.output_bias


@pytest.mark.parametrize("normalized_start", [True, False])
def test_it_is_its_parts_in_every_evaluation(x64, normalized_start):
    """Masks, resets (on padding too), a row cut in two, and a row that begins with padding."""
    options = {"conv_width": 3, "normalized_start": normalized_start, "param_dtype": jnp.float64}
    params = jr.griffin_block(H, BLOCKS, **options).init(jax.random.key(0), D)
    params = params._replace(bias=params.bias + 0.3, output_bias=params.output_bias - 0.2)
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D), jnp.float64)
    mask = np.random.default_rng(0).random((BATCH, T)) < 0.7
    mask[0, :4] = False
    reset = np.random.default_rng(1).random((BATCH, T)) < 0.3
    carry, want = None, []
    for span in (slice(0, 4), slice(4, T)):
        flags = {"mask": mask[:, span], "reset": reset[:, span]}
        carry, ys = of_parts(params, xs[:, span], carry, normalized_start, **flags)
        want.append(np.where(mask[:, span, None], ys, 0))
    want = np.concatenate(want, axis=1)
    for evaluator in (None, jr.sequential(), jr.chunked(4, jr.associative()), jr.newton()):
        layer = jr.griffin_block(H, BLOCKS, evaluator=evaluator, **options)
        got = jr.unroll(layer, params, xs, mask=mask, reset=reset)
        np.testing.assert_allclose(got.outputs, want, atol=1e-12)
        np.testing.assert_allclose(got.carry.lru.h, carry[1].h, atol=1e-12)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="num_blocks must divide num_units = 4, got 3"):
        jr.griffin_block(4, 3)
    with pytest.raises(ValueError, match="conv_width must be above 1 without a normalized start"):
        jr.griffin_block(4, conv_width=1, normalized_start=False)
    with pytest.raises(TypeError, match="to be a convolution"):
        jr.griffin_block(4, evaluator=jr.convolution())
