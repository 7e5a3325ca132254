"""A learned bridge, and a decoder whose table is also its readout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

f64 = {"param_dtype": jnp.float64}
ENCODER = jr.serial(jr.lru(3, 2, **f64), jr.elman(2, **f64))
SOURCE = np.random.default_rng(0).standard_normal((2, 5, 3))
SOURCE_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
XS = np.array([[1, 0, 2], [2, 2, 1]])


def moved(params):
    """The parameters with numbers in the place of zeros."""
    leaves, structure = jax.tree.flatten(params)
    draw = np.random.default_rng(1)
    return structure.unflatten(leaf + 0.3 * draw.standard_normal(leaf.shape) for leaf in leaves)


def test_it_is_an_affine_map_between_carries_of_any_structure(x64):
    """From a complex carry and a real one to a cell with two leaves."""
    model = jr.encoder_decoder(
        ENCODER, jr.lstm(4, **f64), jr.dense(4, **f64), bridge=jr.dense_bridge(**f64)
    )
    params = moved(model.init(jax.random.key(0), 3, 4))
    assert params.bridge.kernel.shape == (2 + 2 * 2, 8)
    assert jr.parameter_labels(params).bridge.kernel == "recurrent"

    @jax.jit
    def run(params):
        def total(params):
            carry = model.encode(params, SOURCE, mask=SOURCE_MASK)
            return sum(jax.tree.leaves(jax.tree.map(jnp.sum, carry))), carry[0]

        last = jr.unroll(ENCODER, params.encoder, SOURCE, mask=SOURCE_MASK).carry
        return last, *jax.grad(total, has_aux=True)(params)

    (complex_carry, real_carry), slopes, start = run(params)
    flat = np.concatenate([complex_carry.h.real, complex_carry.h.imag, real_carry.h], axis=1)
    want = np.tanh(flat @ params.bridge.kernel + params.bridge.bias)
    np.testing.assert_allclose(np.concatenate(jax.tree.leaves(start), axis=1), want, rtol=1e-10)
    assert slopes.bridge.kernel.any() and slopes.bridge.bias.any()
    assert slopes.encoder[0].kernel_imag.any() and slopes.encoder[1].recurrent_kernel.any()


def test_packed_sources_and_a_table_that_is_also_the_readout(x64):
    model = jr.encoder_decoder(
        jr.gru(2, **f64),
        jr.tied_embed(3, jr.gru(3, **f64), **f64),
        jr.lift(jnp.asarray),
        bridge=jr.dense_bridge(None, **f64),
    )
    params = moved(model.init(jax.random.key(0), 3, 4))
    alone = model.teacher_forced(params, SOURCE[:, :2], XS)
    starts = np.tile([1, 0], (1, 2)), np.tile([1, 0, 0], (1, 2))
    packed = model.teacher_forced(
        params,
        SOURCE[:, :2].reshape(1, 4, 3),
        XS.reshape(1, 6),
        source_reset=starts[0],
        reset=starts[1],
    )
    np.testing.assert_allclose(packed.outputs.reshape(2, 3, 4), alone.outputs, rtol=1e-10)
    h = jr.unroll(jr.gru(2, **f64), params.encoder, SOURCE[:, :2]).carry.h
    h = jr.cells.GRUCarry(h @ params.bridge.kernel + params.bridge.bias)
    tied = params.decoder[0]
    ys = jr.unroll(jr.gru(3, **f64), tied.layers[0], tied.table[XS], carry=h).outputs
    np.testing.assert_allclose(alone.outputs, ys @ tied.table.T + tied.bias, rtol=1e-10)


def test_what_is_refused():
    with pytest.raises(TypeError, match="bridge must be a function, a Bridge or None, got 3"):
        jr.encoder_decoder(jr.gru(2), jr.gru(2), jr.dense(4), bridge=3)
    with pytest.raises(TypeError, match="activation must be a function or None, got 'tanh'"):
        jr.dense_bridge("tanh")
    model = jr.encoder_decoder(jr.dense(2), jr.gru(2), jr.dense(4), bridge=jr.dense_bridge())
    with pytest.raises(ValueError, match="needs numbers in the carry of the encoder, got none"):
        model.init(jax.random.key(0), 3, 4)
    two = jr.dense_bridge(lambda h: (h, h))
    model = jr.encoder_decoder(
        jr.gru(2), jr.serial(jr.embed(2), jr.gru(2)), jr.dense(4), bridge=two
    )
    with pytest.raises(TypeError, match=r"activation\(h\) must have the structure"):
        model.encode(model.init(jax.random.key(0), 3, 4), SOURCE)
