"""torch's modules, in this process, with as many threads as there are cores for it."""

import os
from typing import Any

import numpy as np

from experiments.benchmark.work import LEARNING_RATE, Shape, Subject, Work, inputs

PACKAGE = "torch"
MODELS = ("lstm", "gru", "elman", "elman relu")


def module(name: str, shape: Shape) -> Any:
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    sizes = shape.features, shape.units
    if name in ("lstm", "gru"):
        return (torch.nn.LSTM if name == "lstm" else torch.nn.GRU)(*sizes)
    return torch.nn.RNN(*sizes, nonlinearity="relu" if name == "elman relu" else "tanh")


def prepare(work: Work) -> Subject:
    import torch

    layer = module(work.model, work.shape)
    xs = torch.tensor(np.asarray(inputs(work.shape)))
    if work.quantity == "forward":

        def call():
            with torch.inference_mode():
                return layer(xs)[0]

    else:
        optimizer = torch.optim.Adam(layer.parameters(), LEARNING_RATE, fused=True)

        def call():
            optimizer.zero_grad(set_to_none=True)
            loss = (layer(xs)[0] ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

    return Subject(call)
