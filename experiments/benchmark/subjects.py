"""One layer of every package that has it, beside two floors.

A model is "lstm", "gru" (reset after the product), "gru before", "elman" (tanh) or "elman relu".
What is on JAX makes a `Model` of a name and a shape. A package is imported where it is used, so
that nobody needs all of them.
"""

import importlib.util
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxrnn as jr
from experiments.benchmark.work import (
    LEARNING_RATE,
    OURS,
    Case,
    Model,
    Shape,
    Subject,
    Work,
    inputs,
    prepare_model,
    prepared,
)

MODELS = ("lstm", "gru", "elman", "gru before", "elman relu")
CELLS: dict[str, Callable[[int], Any]] = {
    "lstm": jr.lstm,
    "gru": jr.gru,
    "elman": jr.elman,
    "gru before": lambda num_units: jr.gru(num_units, reset_after=False),
    "elman relu": lambda num_units: jr.elman(num_units, jax.nn.relu),
}


def ours(name: str, shape: Shape, **options: Any) -> Model:
    """jaxrnn, evaluated step after step; options are those of `unroll`."""
    cell = CELLS[name](shape.units)

    def forward(params, xs):
        return jr.unroll(cell, params, xs, time_major=True, **options).outputs

    return Model(cell.init(jax.random.key(0), shape.features), forward)


def ours_autodiff(name: str, shape: Shape) -> Model:
    return ours(name, shape, evaluator=jr.sequential(derivative="autodiff"))


def flax_linen(name: str, shape: Shape) -> Model:
    """`nn.RNN` around its cells."""
    from flax import linen as nn

    cells = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell, "elman": nn.SimpleCell}
    module = nn.RNN(cells[name](shape.units), time_major=True)
    return Model(module.init(jax.random.key(0), inputs(shape)), module.apply)


def flax_nnx(name: str, shape: Shape) -> Model:
    """`nnx.RNN` around its cells, split into a graph and its parameters."""
    from flax import nnx

    cells = {"lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell, "elman": nnx.SimpleCell}
    cell = cells[name](shape.features, shape.units, rngs=nnx.Rngs(0))
    graph, params, rest = nnx.split(nnx.RNN(cell, time_major=True), nnx.Param, ...)

    def forward(params, xs):
        return nnx.merge(graph, params, rest)(xs, rngs=nnx.Rngs(0))

    return Model(params, forward)


def haiku_core(name: str, shape: Shape) -> Model:
    """`hk.dynamic_unroll` of its cores; its GRU resets before the product, its RNN is relu."""
    import haiku as hk

    cores = {"lstm": hk.LSTM, "gru before": hk.GRU, "elman relu": hk.VanillaRNN}

    def forward(xs):
        core = cores[name](shape.units)
        return hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0]

    transformed = hk.without_apply_rng(hk.transform(forward))
    return Model(transformed.init(jax.random.key(0), inputs(shape)), transformed.apply)


def equinox_cell(name: str, shape: Shape) -> Model:
    """Its cells of one row, in a scan and under `vmap`; it has no simple recurrent network."""
    import equinox as eqx

    cells = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}
    cell = cells[name](shape.features, shape.units, key=jax.random.key(0))
    params, rest = eqx.partition(cell, eqx.is_array)
    zeros = jnp.zeros(shape.units)

    def row(cell, xs):
        def step(carry, x):
            carry = cell(x, carry)
            return carry, jax.tree.leaves(carry)[0]

        return lax.scan(step, (zeros, zeros) if name == "lstm" else zeros, xs)[1]

    def forward(params, xs):
        cell = eqx.combine(params, rest)
        return jax.vmap(lambda xs: row(cell, xs), in_axes=1, out_axes=1)(xs)

    return Model(params, forward)


def keras_layer(name: str, shape: Shape) -> Model:
    """Layers of keras on JAX, called without a state of their own; rows first."""
    os.environ["KERAS_BACKEND"] = "jax"  # read once, when it is imported
    from keras import layers

    kind, options = {
        "lstm": (layers.LSTM, {}),
        "gru": (layers.GRU, {}),
        "gru before": (layers.GRU, {"reset_after": False}),
        "elman": (layers.SimpleRNN, {}),
        "elman relu": (layers.SimpleRNN, {"activation": "relu"}),
    }[name]
    layer = kind(shape.units, return_sequences=True, **options)
    layer.build((shape.batch, shape.steps, shape.features))
    fixed = [variable.value for variable in layer.non_trainable_variables]

    def forward(params, xs):
        return layer.stateless_call(params, fixed, xs)[0]

    params = [variable.value for variable in layer.trainable_variables]
    return Model(params, forward, time_major=False)


# What a person writes with `lax.scan` alone, both products in every step, and JAX's derivative.


def lstm_step(params, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def _gru_step(params, h, x):
    z_r, z_z, z_n = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
    u_r, u_z, u_n = jnp.split(h @ params["u"], 3, axis=-1)
    z = jax.nn.sigmoid(z_z + u_z)
    n = jnp.tanh(z_n + jax.nn.sigmoid(z_r + u_r) * (u_n + params["c"]))
    h = (1 - z) * n + z * h
    return h, h


def _gru_before_step(params, h, x):
    num_units = h.shape[-1]
    z_r, z_z, z_n = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
    u_r, u_z = jnp.split(h @ params["u"][:, : 2 * num_units], 2, axis=-1)
    z = jax.nn.sigmoid(z_z + u_z)
    n = jnp.tanh(z_n + (jax.nn.sigmoid(z_r + u_r) * h) @ params["u"][:, 2 * num_units :])
    h = (1 - z) * n + z * h
    return h, h


def _elman_step(activation):
    def step(params, h, x):
        h = activation(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    return step


# The step, how many times H its products are wide, and how many arrays its carry has.
WRITTEN = {
    "lstm": (lstm_step, 4, 2),
    "gru": (_gru_step, 3, 1),
    "gru before": (_gru_before_step, 3, 1),
    "elman": (_elman_step(jnp.tanh), 1, 1),
    "elman relu": (_elman_step(jax.nn.relu), 1, 1),
}


def plain_scan(name: str, shape: Shape) -> Model:
    """The step written by hand, in a `lax.scan`."""
    step, num_gates, num_carries = WRITTEN[name]
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


def torch_module(name: str, shape: Shape, num_layers: int = 1) -> Any:
    """torch's module, in this process, with as many threads as there are cores for it."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    sizes = shape.features, shape.units, num_layers
    if name in ("lstm", "gru"):
        return (torch.nn.LSTM if name == "lstm" else torch.nn.GRU)(*sizes)
    return torch.nn.RNN(*sizes, nonlinearity="relu" if name == "elman relu" else "tanh")


def _in_torch(work: Work) -> Subject:
    import torch

    module = torch_module(work.model, work.shape)
    xs = torch.tensor(np.asarray(inputs(work.shape)))
    optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE, fused=True)

    def forward():
        with torch.inference_mode():
            return module(xs)[0]

    def training():
        optimizer.zero_grad(set_to_none=True)
        loss = (module(xs)[0] ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return Subject(forward if work.quantity == "forward" else training)


def _products_alone(work: Work) -> Subject:
    """The same matrix products, each over all steps at once, as no real recurrence can do them."""
    shape = work.shape
    rows, width = shape.steps * shape.batch, WRITTEN[work.model][1] * shape.units
    keys = jax.random.split(jax.random.key(0), 3)
    both = jax.random.normal(keys[0], (rows, shape.features + shape.units))
    weights = jax.random.normal(keys[1], (shape.features + shape.units, width))
    slopes = jax.random.normal(keys[2], (rows, width))

    def forward(both, weights):
        return both @ weights

    def training(both, weights, slopes):
        gradients = both.T @ slopes
        return both @ weights, slopes @ weights[shape.features :].T, gradients

    if work.quantity == "forward":
        return prepared(forward, both, weights)
    return prepared(training, both, weights, slopes)


def _bytes_alone(work: Work) -> Subject:
    """The same arrays written and read once, and no arithmetic.

    Forward reads xs and writes the outputs. Training also writes every carry, and then reads them,
    xs and what the loss needs of the outputs back.
    """
    shape, num_carries = work.shape, WRITTEN[work.model][2]
    size = shape.steps, shape.batch, shape.units
    xs = inputs(shape)

    def forward(xs):
        return jnp.full(size, xs.sum())

    def training(xs, carries):
        made = [jnp.full(size, xs.sum() + index) for index in range(num_carries)]
        return made, sum(carry.sum() for carry in carries) + (xs**2).sum()

    if work.quantity == "forward":
        return prepared(forward, xs)
    return prepared(training, xs, [jax.random.normal(jax.random.key(0), size)] * num_carries)


class Package(NamedTuple):
    """What must be installed, the models it has, and how it does a piece of work."""

    requires: str
    models: Collection[str]
    prepare: Callable[[Work], Subject]


def _on_jax(model: Callable[[str, Shape], Model]) -> Callable[[Work], Subject]:
    return lambda work: prepare_model(model(work.model, work.shape), work)


AUTODIFF, PRODUCTS, BYTES = "jaxrnn autodiff", "products alone", "bytes alone"
# The rivals on JAX; the plain scan is not a package, but what a person would write.
JAX_PEERS = ("flax linen", "flax nnx", "haiku", "equinox", "keras", "plain scan")
SUBJECTS = {
    OURS: Package("jaxrnn", MODELS, _on_jax(ours)),
    AUTODIFF: Package("jaxrnn", MODELS, _on_jax(ours_autodiff)),
    "flax linen": Package("flax", ("lstm", "gru", "elman"), _on_jax(flax_linen)),
    "flax nnx": Package("flax", ("lstm", "gru", "elman"), _on_jax(flax_nnx)),
    "haiku": Package("haiku", ("lstm", "gru before", "elman relu"), _on_jax(haiku_core)),
    "equinox": Package("equinox", ("lstm", "gru"), _on_jax(equinox_cell)),
    "keras": Package("keras", MODELS, _on_jax(keras_layer)),
    "plain scan": Package("jax", MODELS, _on_jax(plain_scan)),
    "torch": Package("torch", ("lstm", "gru", "elman", "elman relu"), _in_torch),
    PRODUCTS: Package("jax", MODELS, _products_alone),
    BYTES: Package("jax", MODELS, _bytes_alone),
}


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def cases(config: Any, quantity: str) -> Iterator[Case]:
    for model in config.models:
        for shape in config.grid:
            work = Work(model, shape, quantity)
            yield Case(model, str(shape), lambda work=work: prepare(work))


def prepare(work: Work) -> dict[str, Subject]:
    return {
        name: package.prepare(work)
        for name, package in SUBJECTS.items()
        if installed(package.requires) and work.model in package.models
    }
