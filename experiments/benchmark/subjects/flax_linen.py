"""flax linen: `nn.RNN` around its cells."""

import jax

from experiments.benchmark.work import Model, Shape, inputs

PACKAGE = "flax"
MODELS = ("lstm", "gru", "elman")


def model(name: str, shape: Shape) -> Model:
    from flax import linen as nn

    cells = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell, "elman": nn.SimpleCell}
    module = nn.RNN(cells[name](shape.units), time_major=True)
    return Model(module.init(jax.random.key(0), inputs(shape)), module.apply)
