import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def test_the_table_is_read_twice_and_its_gradient_has_both_parts(x64):
    layer = jr.tied_embed(3, jr.elman(3))
    params = layer.init(jax.random.key(0), 5)
    assert (
        params.table.shape == (5, 3)
        and jr.tied_embed(3, jr.elman(3), use_bias=False).init(jax.random.key(0), 5).bias is None
    )
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) + 0.1, params)
    tokens = jnp.array([[0, 3, 1], [4, 4, 2]])
    untied = jr.serial(jr.embed(3), jr.elman(3), jr.dense(5))

    def loss(table, kernel):
        own = (
            jr.layers.EmbedParams(table),
            *params.layers,
            jr.layers.DenseParams(kernel, params.bias),
        )
        outputs = jr.unroll(untied, own, tokens).outputs
        return (outputs**2).sum(), outputs

    def tied_loss(table):
        outputs = jr.unroll(layer, params._replace(table=table), tokens).outputs
        return (outputs**2).sum(), outputs

    (of_table, of_kernel), want = jax.grad(loss, (0, 1), has_aux=True)(params.table, params.table.T)
    slope, outputs = jax.grad(tied_loss, has_aux=True)(params.table)
    np.testing.assert_allclose(outputs, want, rtol=1e-10)
    np.testing.assert_allclose(slope, of_table + of_kernel.T, rtol=1e-10)


def test_roles_and_what_is_refused():
    layer = jr.tied_embed(3, jr.elman(4))
    with pytest.raises(ValueError, match="layers must end in the width 3 of the table, got 4"):
        layer.init(jax.random.key(0), 5)
    params = jr.tied_embed(3, jr.elman(3)).init(jax.random.key(0), 5)
    labels = jr.parameter_labels(params, jr.tied_embed(3, jr.elman(3)))
    assert (labels.table, labels.layers[0].recurrent_kernel, labels.bias) == (
        "input",
        "recurrent",
        "readout",
    )
    assert jnp.isnan(jr.unroll(jr.tied_embed(3, jr.elman(3)), params, jnp.array([7])).outputs).all()
