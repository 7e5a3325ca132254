"""The same parameters in the layouts of other packages.

Those of packages on JAX are functions of ours, so that their gradients come back in our layout.
"""

import jax.numpy as jnp
import numpy as np

import jaxrnn as jr


def regrouped(leaf, order):
    """Gates of the last axis in another order."""
    blocks = jnp.split(leaf, len(order), axis=-1)
    return jnp.concatenate([blocks[gate] for gate in order], axis=-1)


def torch_arrays(module, suffix, read):
    """`read(parameter)` of one layer and direction of a torch module, by torch's names."""
    names = [name for name, _ in module.named_parameters() if name.endswith(suffix)]
    return {name.removesuffix(f"_{suffix}"): read(getattr(module, name)) for name in names}


def from_torch(kind, arrays):
    """torch: `[G*H, D]`, gates in our order, two biases of which the sum matters, but for GRU n."""
    kernel, recurrent_kernel = arrays["weight_ih"].T, arrays["weight_hh"].T
    bias = arrays["bias_ih"] + arrays["bias_hh"]
    if kind == "rnn":
        return jr.cells.ElmanParams(kernel, recurrent_kernel, bias)
    if kind == "lstm":
        projection = arrays["weight_hr"].T if "weight_hr" in arrays else None
        return jr.cells.LSTMParams(kernel, recurrent_kernel, bias, projection_kernel=projection)
    rz = 2 * recurrent_kernel.shape[0]
    bias = np.concatenate([bias[:rz], arrays["bias_ih"][rz:]])
    return jr.cells.GRUParams(kernel, recurrent_kernel, bias, arrays["bias_hh"][rz:])


def torch_gradients(kind, gradients):
    """Our gradients by torch's names: both biases get that of their sum."""
    names = {
        "weight_ih": gradients.kernel.T,
        "weight_hh": gradients.recurrent_kernel.T,
        "bias_ih": gradients.bias,
        "bias_hh": gradients.bias,
    }
    if kind == "gru":
        rz = gradients.bias[: 2 * gradients.recurrent_bias.shape[0]]
        names["bias_hh"] = np.concatenate([rz, gradients.recurrent_bias])
    if kind == "lstm" and gradients.projection_kernel is not None:
        names["weight_hr"] = gradients.projection_kernel.T
    return names


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


def flax_variables(params):
    """flax linen: one dense a gate and side; biases on the h side (LSTM) or the x side."""
    gates = {
        jr.cells.ElmanParams: ("",),
        jr.cells.LSTMParams: "ifgo",
        jr.cells.GRUParams: "rzn",
        jr.cells.MGUParams: "fn",
    }
    gates = gates[type(params)]
    split = [jnp.split(leaf, len(gates), axis=-1) for leaf in params[:3]]
    dense = {}
    for gate, kernel, recurrent_kernel, bias in zip(gates, *split, strict=True):
        dense[f"i{gate}"] = {"kernel": kernel}
        dense[f"h{gate}"] = {"kernel": recurrent_kernel}
        side = "h" if isinstance(params, jr.cells.LSTMParams) else "i"
        dense[f"{side}{gate}"]["bias"] = bias
    if isinstance(params, jr.cells.GRUParams):
        dense["hn"]["bias"] = params.recurrent_bias
    return dense


def haiku_lstm(params):
    """haiku: one product of x and h, gates i, g, f, o, and the step adds 1 to the bias of f."""
    rows = jnp.concatenate([params.kernel, params.recurrent_kernel])
    num_units = params.recurrent_kernel.shape[0]
    ones = jnp.repeat(jnp.array([0.0, 0.0, 1.0, 0.0]), num_units)
    return {"w": regrouped(rows, (0, 2, 1, 3)), "b": regrouped(params.bias, (0, 2, 1, 3)) - ones}


def haiku_gru(params):
    """haiku: gates z, r, n, reset before, and z admits the new state: negated."""
    num_units = params.recurrent_kernel.shape[0]
    sign = jnp.repeat(jnp.array([-1.0, 1.0, 1.0]), num_units)
    leaves = [sign * regrouped(leaf, (1, 0, 2)) for leaf in params[:3]]
    return dict(zip(("w_i", "w_h", "b"), leaves, strict=True))
