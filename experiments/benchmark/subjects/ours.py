"""jaxrnn, evaluated step after step."""

from collections.abc import Callable
from typing import Any

import jax

import jaxrnn as jr
from experiments.benchmark.work import Model, Shape

PACKAGE = "jaxrnn"
MODELS: dict[str, Callable[[int], jr.Cell]] = {
    "lstm": jr.lstm,
    "gru": jr.gru,
    "elman": jr.elman,
    "gru before": lambda num_units: jr.gru(num_units, reset_after=False),
    "elman relu": lambda num_units: jr.elman(num_units, jax.nn.relu),
}


def model(name: str, shape: Shape, evaluator: Any = None) -> Model:
    cell = MODELS[name](shape.units)
    evaluator = jr.sequential() if evaluator is None else evaluator

    def forward(params, xs):
        return jr.unroll(cell, params, xs, time_major=True, evaluator=evaluator).outputs

    return Model(cell.init(jax.random.key(0), shape.features), forward)
