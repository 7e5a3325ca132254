import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def test_it_adds_the_inputs(x64):
    cell = jr.lstm(3)
    layer = jr.residual(cell)
    params = layer.init(jax.random.key(0), 3)
    xs = jax.random.normal(jax.random.key(1), (2, 5, 3))
    mask, reset = jr.mask_from_lengths([5, 2], 5), jnp.zeros((2, 5)).at[0, 3].set(1)
    got, want = (jr.unroll(model, params, xs, mask=mask, reset=reset) for model in (layer, cell))
    visible = jnp.where(mask[..., None], xs, 0)
    np.testing.assert_array_equal(got.outputs, visible + want.outputs)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for leaf, wanted in zip(*map(jax.tree.leaves, (got.carry, want.carry)), strict=True):
        np.testing.assert_array_equal(leaf, wanted)


def test_bfloat16_inputs_add_in_float32():
    cell = jr.elman(3)
    layer = jr.residual(cell)
    params = layer.init(jax.random.key(0), 3)
    xs = jax.random.normal(jax.random.key(1), (50, 3), jnp.bfloat16)
    wide = xs.astype(jnp.float32)
    exact = wide + jr.unroll(cell, params, wide).outputs
    got = jr.unroll(layer, params, xs).outputs
    np.testing.assert_array_equal(got, exact.astype(jnp.bfloat16))
    rounded_twice = xs + jr.unroll(cell, params, xs).outputs
    assert (got != rounded_twice).any()
    inside = layer.unroll(params, layer.initial_carry(params), jr.Steps(xs), None)
    assert inside.outputs.dtype == jnp.float32


def test_another_width_raises_everywhere():
    layer = jr.residual(jr.elman(4))
    match = "layer must keep the width to be residual, got the width 4 for inputs of width 3"
    with pytest.raises(ValueError, match=match):
        layer.init(jax.random.key(0), 3)
    with pytest.raises(ValueError, match=match):
        layer.num_outputs(3)
    params = jr.elman(4).init(jax.random.key(0), 3)
    match = r"layer must keep the shape .* got outputs \(5, 2, 4\) for xs \(5, 2, 3\)"
    with pytest.raises(ValueError, match=match):
        jr.unroll(layer, params, jnp.ones((2, 5, 3)))


@pytest.mark.parametrize("width", [1, 3])
def test_nothing_broadcasts(width):
    """Outputs of width 1 would broadcast, and tokens `[T]` against vectors `[T, T]`."""
    layer = jr.residual(jr.dense(1))
    with pytest.raises(ValueError, match="must keep the shape"):
        jr.unroll(layer, jr.dense(1).init(jax.random.key(0), 3), jnp.ones((5, 3)))
    layer = jr.residual(jr.embed(width))
    params = layer.init(jax.random.key(0), width)
    with pytest.raises(ValueError, match="must keep the shape"):
        jr.unroll(layer, params, jnp.zeros(width, int))


def test_it_takes_cells_and_layers_alone():
    with pytest.raises(TypeError, match="layer must be a Cell or a Layer, got function"):
        jr.residual(jr.lstm)  # pyright: ignore[reportArgumentType]
    assert jr.residual(jr.recurrent(jr.elman(3), reverse=True)).causal is False
