import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import CLASSICAL, MODELS, NUM_INPUTS, make

import jaxrnn as jr
from jaxrnn.testing import check_layer

D = 3


def test_the_block_is_what_it_says(x64):
    layer = jr.block(jr.elman(2), D)
    params = layer.init(jax.random.key(0), D)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
    xs = jax.random.normal(jax.random.key(1), (2, 6, D), jnp.float64)
    (norm, cell, dense), (mlp_norm, mlp) = params

    def normalise(x, params):
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + 1e-5) * params.scale + params.offset

    middle = np.array(xs)
    h = np.zeros((2, 2))
    for t in range(6):
        z = normalise(np.array(xs[:, t]), norm) @ cell.kernel + cell.bias
        h = np.tanh(z + h @ cell.recurrent_kernel)
        middle[:, t] += h @ dense.kernel
    normed = normalise(middle, mlp_norm)
    gate = np.array(jax.nn.gelu(normed @ mlp.gate_kernel))
    want = middle + (gate * (normed @ mlp.value_kernel)) @ mlp.output_kernel
    np.testing.assert_allclose(jr.unroll(layer, params, xs).outputs, want, rtol=1e-10)


LAYERS = {
    "gated mlp": lambda: jr.gated_mlp(4),
    "gated mlp with biases": lambda: jr.gated_mlp(4, use_bias=True),
    "block": lambda: jr.block(jr.gru(2), D, rate=0.2),
    "block both ways": lambda: jr.block(jr.bidirectional(jr.elman(2)), D),
    "classifier": lambda: jr.classifier([jr.elman(2), jr.lstm(2)], 4, 2),
    "language model": lambda: jr.language_model([jr.lstm(2)], 4, D),
}


@pytest.mark.parametrize("name", LAYERS)
def test_blocks_and_recipes_keep_the_laws(name):
    check_layer(LAYERS[name]())


@pytest.mark.parametrize("name", CLASSICAL | MODELS)
def test_recipes_take_every_model(name):
    mixers = [make(name), make(name)]
    for layer, xs in (
        (jr.classifier(mixers, NUM_INPUTS, 3), jnp.ones((2, 5, 6))),
        (jr.language_model(mixers, NUM_INPUTS, 6), jnp.ones((2, 5), int)),
    ):
        params = jax.eval_shape(lambda layer=layer: layer.init(jax.random.key(0), 6))
        run = jax.eval_shape(
            lambda params, xs, layer=layer: jr.unroll(layer, params, xs), params, xs
        )
        assert run.outputs.shape == (2, 5, layer.num_outputs(6))


@pytest.mark.parametrize(
    ("make_layer", "error", "message"),
    [
        (lambda: jr.block(jr.gru(2), 0), ValueError, "num_features must be at least 1"),
        (lambda: jr.block(jr.gru(2), 3, expansion=0), ValueError, "expansion must be at least 1"),
        (lambda: jr.block(jr.gru(2), 3, rate=1.0), ValueError, "rate"),
        (lambda: jr.block(None, 3), TypeError, "must be a Cell or a Layer"),
        (lambda: jr.gated_mlp(2, activation=3), TypeError, "activation must be a function"),
    ],
)
def test_wrong_options_raise(make_layer, error, message):
    with pytest.raises(error, match=message):
        make_layer()
