"""haiku: `hk.dynamic_unroll` of its cores; its GRU resets before the product, its RNN is relu."""

import jax

from experiments.benchmark.work import Model, Shape, inputs

PACKAGE = "haiku"
MODELS = ("lstm", "gru before", "elman relu")


def model(name: str, shape: Shape) -> Model:
    import haiku as hk

    cores = {"lstm": hk.LSTM, "gru before": hk.GRU, "elman relu": hk.VanillaRNN}

    def forward(xs):
        core = cores[name](shape.units)
        return hk.dynamic_unroll(core, xs, core.initial_state(xs.shape[1]))[0]

    transformed = hk.without_apply_rng(hk.transform(forward))
    return Model(transformed.init(jax.random.key(0), inputs(shape)), transformed.apply)
