"""flax nnx: `nnx.RNN` around its cells, split into a graph and its parameters."""

from experiments.benchmark.work import Model, Shape

PACKAGE = "flax"
MODELS = ("lstm", "gru", "elman")


def model(name: str, shape: Shape) -> Model:
    from flax import nnx

    cells = {"lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell, "elman": nnx.SimpleCell}
    cell = cells[name](shape.features, shape.units, rngs=nnx.Rngs(0))
    module = nnx.RNN(cell, time_major=True)
    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def forward(params, xs):
        return nnx.merge(graph, params, rest)(xs, rngs=nnx.Rngs(0))

    return Model(params, forward)
