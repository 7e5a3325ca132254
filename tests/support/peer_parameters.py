"""The same parameters in the layouts of other packages.

Those of packages on JAX are functions of ours, so that their gradients come back in our layout.
"""

import jax.numpy as jnp

import jaxrnn as jr


def regrouped(leaf, order):
    """Gates of the last axis in another order."""
    blocks = jnp.split(leaf, len(order), axis=-1)
    return jnp.concatenate([blocks[gate] for gate in order], axis=-1)


def keras_weights(params):
    """keras: kernel, recurrent kernel, bias; LSTM i, f, g, o and GRU z, r, n.

    The reset-after GRU has two rows of biases, of inputs and of the recurrent product.
    """
    if not isinstance(params, jr.cells.GRUParams):
        return [params.kernel, params.recurrent_kernel, params.bias]
    kernel, recurrent_kernel, bias = (regrouped(leaf, (1, 0, 2)) for leaf in params[:3])
    if params.recurrent_bias is not None:
        zeros = jnp.zeros(2 * params.recurrent_bias.shape[0])
        bias = jnp.stack([bias, jnp.concatenate([zeros, params.recurrent_bias])])
    return [kernel, recurrent_kernel, bias]
