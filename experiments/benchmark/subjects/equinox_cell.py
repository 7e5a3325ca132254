"""equinox: its cells of one row, in a scan and under `vmap`; it has no simple recurrent network."""

import jax
import jax.numpy as jnp

from experiments.benchmark.work import Model, Shape

PACKAGE = "equinox"
MODELS = ("lstm", "gru")


def model(name: str, shape: Shape) -> Model:
    import equinox as eqx

    cells = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}
    cell = cells[name](shape.features, shape.units, key=jax.random.key(0))
    params, rest = eqx.partition(cell, eqx.is_array)
    zeros = jnp.zeros(shape.units)

    def row(cell, xs):
        def step(carry, x):
            carry = cell(x, carry)
            return carry, jax.tree.leaves(carry)[0]

        return jax.lax.scan(step, (zeros, zeros) if name == "lstm" else zeros, xs)[1]

    def forward(params, xs):
        cell = eqx.combine(params, rest)
        return jax.vmap(lambda xs: row(cell, xs), in_axes=1, out_axes=1)(xs)

    return Model(params, forward)
