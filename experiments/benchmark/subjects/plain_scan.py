"""What a person writes with `lax.scan` alone, both products in every step, and JAX's derivative."""

import jax
import jax.numpy as jnp
from jax import lax

from experiments.benchmark.work import Model, Shape

PACKAGE = "jax"


def lstm(params, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def gru(params, h, x):
    z_r, z_z, z_n = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
    u_r, u_z, u_n = jnp.split(h @ params["u"], 3, axis=-1)
    z = jax.nn.sigmoid(z_z + u_z)
    n = jnp.tanh(z_n + jax.nn.sigmoid(z_r + u_r) * (u_n + params["c"]))
    h = (1 - z) * n + z * h
    return h, h


def gru_before(params, h, x):
    num_units = h.shape[-1]
    z_r, z_z, z_n = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
    u_r, u_z = jnp.split(h @ params["u"][:, : 2 * num_units], 2, axis=-1)
    z = jax.nn.sigmoid(z_z + u_z)
    n = jnp.tanh(z_n + (jax.nn.sigmoid(z_r + u_r) * h) @ params["u"][:, 2 * num_units :])
    h = (1 - z) * n + z * h
    return h, h


def _elman(activation):
    def step(params, h, x):
        h = activation(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    return step


# The step, how many times H its products are wide, and how many arrays its carry has.
MODELS = {
    "lstm": (lstm, 4, 2),
    "gru": (gru, 3, 1),
    "gru before": (gru_before, 3, 1),
    "elman": (_elman(jnp.tanh), 1, 1),
    "elman relu": (_elman(jax.nn.relu), 1, 1),
}


def model(name: str, shape: Shape) -> Model:
    step, num_gates, num_carries = MODELS[name]
    keys = jax.random.split(jax.random.key(0))
    width = num_gates * shape.units
    params = {
        "w": jax.random.normal(keys[0], (shape.features, width)) * shape.features**-0.5,
        "u": jax.random.normal(keys[1], (shape.units, width)) * shape.units**-0.5,
        "b": jnp.zeros(width),
    }
    if name == "gru":
        params["c"] = jnp.zeros(shape.units)

    def forward(params, xs):
        zeros = jnp.zeros((xs.shape[1], shape.units), xs.dtype)
        carry = (zeros, zeros) if num_carries == 2 else zeros
        return lax.scan(lambda carry, x: step(params, carry, x), carry, xs)[1]

    return Model(params, forward)
