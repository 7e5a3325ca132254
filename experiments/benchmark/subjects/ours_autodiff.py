"""jaxrnn without its reverse rule."""

import jaxrnn as jr
from experiments.benchmark.subjects import ours
from experiments.benchmark.work import Model, Shape

PACKAGE = "jaxrnn"
MODELS = ours.MODELS


def model(name: str, shape: Shape) -> Model:
    return ours.model(name, shape, jr.sequential(derivative="autodiff"))
