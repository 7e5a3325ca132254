"""The same arrays written and read once, and no arithmetic: what memory cannot beat.

Forward reads xs and writes the outputs. Training also writes every carry, and then reads them, xs
and what the loss needs of the outputs back.
"""

import jax
import jax.numpy as jnp

from experiments.benchmark.subjects import plain_scan
from experiments.benchmark.work import Subject, Work, inputs, prepared

PACKAGE = "jax"
MODELS = plain_scan.MODELS


def prepare(work: Work) -> Subject:
    shape = work.shape
    size = shape.steps, shape.batch, shape.units
    num_carries = MODELS[work.model][2]
    xs = inputs(shape)

    def forward(xs):
        return jnp.full(size, xs.sum())

    def training(xs, carries):
        made = [jnp.full(size, xs.sum() + index) for index in range(num_carries)]
        return made, sum(carry.sum() for carry in carries) + (xs**2).sum()

    if work.quantity == "forward":
        return prepared(forward, xs)
    return prepared(training, xs, [jax.random.normal(jax.random.key(0), size)] * num_carries)
