"""The same matrix products, each as one over all steps, and nothing else: what XLA cannot beat.

A real recurrence can do the products with the recurrent matrix only step by step.
"""

import jax

from experiments.benchmark.subjects import plain_scan
from experiments.benchmark.work import Subject, Work, prepared

PACKAGE = "jax"
MODELS = plain_scan.MODELS


def prepare(work: Work) -> Subject:
    shape = work.shape
    rows, width = shape.steps * shape.batch, MODELS[work.model][1] * shape.units
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
