"""One of every model that mixes time, small, from the catalogue of the experiments."""

import functools

import jax.numpy as jnp

import jaxrnn as jr
from experiments.frame.models import MODELS as CATALOGUE
from experiments.frame.models import Sizes

NUM_INPUTS = 4
"""D of every model."""

_SIZES = Sizes(D=NUM_INPUTS, H=4, N=6, G=2, K=2, W=5)
# Sizes of a model that must not be equal, and options that are not the default.
_OTHER_SIZES = {
    "lru": {"H": 5},
    "s5": {"H": 5, "N": 8},
    "s6": {"N": 3},
    "causal_conv": {"W": 3},
    "mamba": {"N": 3},
    "mamba2": {"N": 3, "K": 4},
    "gated_delta_net": {"K": 3},
}
_OPTIONS = {
    "ema": {"decay": 0.7},
    "diagonal_rnn": {"eigenvalue_range": (-1, 1), "selective": True},
    "lru": {"r_max": 0.99},
    "s5": {"num_blocks": 2},
    "s6": {"dt_rank": 2},
    "griffin_block": {"normalized_start": False},
    "mamba2": {"evaluator": jr.chunkwise(7)},
    "mlstm": {"evaluator": jr.chunkwise(7)},
    "gated_delta_net": {"evaluator": jr.chunkwise(7), "negative_eigenvalues": True},
}


def make(name, dtype=jnp.float32):
    sizes = _SIZES._replace(**_OTHER_SIZES.get(name, {}))
    return CATALOGUE[name].make(sizes, param_dtype=dtype, **_OPTIONS.get(name, {}))


_MAKERS = {name: functools.partial(make, name) for name in CATALOGUE}
CLASSICAL = {name: _MAKERS.pop(name) for name in ("elman", "lstm", "gru", "mgu")}
MODELS = _MAKERS
