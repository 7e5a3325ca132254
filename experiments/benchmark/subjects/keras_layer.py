"""keras on JAX, its layers called without a state of their own; rows first."""

import os

from experiments.benchmark.work import Model, Shape

PACKAGE = "keras"
MODELS = ("lstm", "gru", "elman", "gru before", "elman relu")


def model(name: str, shape: Shape) -> Model:
    # Keras reads it once, when it is imported.
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    layers = {
        "lstm": lambda: keras.layers.LSTM(shape.units, return_sequences=True),
        "gru": lambda: keras.layers.GRU(shape.units, return_sequences=True),
        "gru before": lambda: keras.layers.GRU(
            shape.units, reset_after=False, return_sequences=True
        ),
        "elman": lambda: keras.layers.SimpleRNN(shape.units, return_sequences=True),
        "elman relu": lambda: keras.layers.SimpleRNN(
            shape.units, activation="relu", return_sequences=True
        ),
    }
    layer = layers[name]()
    layer.build((shape.batch, shape.steps, shape.features))
    fixed = [variable.value for variable in layer.non_trainable_variables]

    def forward(params, xs):
        return layer.stateless_call(params, fixed, xs)[0]

    params = [variable.value for variable in layer.trainable_variables]
    return Model(params, forward, time_major=False)
