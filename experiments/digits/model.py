"""Every model in the same block, at the same size."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

import jaxrnn as jr
from experiments.digits.config import Config
from experiments.digits.task import NUM_CLASSES, NUM_PIXELS
from experiments.frame.models import count_params, matched_width, mixer

ATTENTION = "attention"
FAMILIES = {
    "RNN": ("elman", "gru", "lstm", "slstm"),
    "linear": ("min_gru", "lru", "s5", "s4d", "mamba", "mlstm"),
    "attention": (ATTENTION,),
}
REPRESENTATIVES = {"RNN": "gru", "linear": "s5", "attention": ATTENTION}


class Sized(NamedTuple):
    """A model at a width: the whole of it, and what mixes its steps alone."""

    name: str
    width: int
    model: jr.Layer
    num_params: int


def family(name: str) -> str:
    return next(family for family, names in FAMILIES.items() if name in names)


def make_mixer(name: str, width: int, context: int = NUM_PIXELS) -> jr.Cell | jr.Layer:
    """What mixes the steps; attention sees all of `context`."""
    return mixer("self_attention" if name == ATTENTION else name, width, context)


def make_model(name: str, width: int, num_blocks: int, context: int = NUM_PIXELS) -> jr.Layer:
    """One pixel in, the logits of ten digits out."""
    mixers = [make_mixer(name, width, context) for _ in range(num_blocks)]
    return jr.classifier(mixers, width, NUM_CLASSES)


def in_parallel(name: str, width: int, num_blocks: int, context: int) -> jr.Layer:
    """The same model with linear cells as parallel scans, which is not the default on a CPU."""
    mixing = make_mixer(name, width, context)
    if isinstance(mixing, jr.Cell) and family(name) == "linear":
        mixing = jr.recurrent(mixing, evaluator=jr.associative())
    return jr.classifier([mixing] * num_blocks, width, NUM_CLASSES)


def sized(name: str, config: Config) -> Sized:
    def make(width):
        return make_model(name, width, config.num_blocks)

    width = matched_width(make, 1, config.num_params)
    model = make(width)
    shapes = jax.eval_shape(lambda key: model.init(key, 1), jax.random.key(0))
    return Sized(name, width, model, count_params(shapes))


def last_logits(model: jr.Layer) -> Callable[[Any, Any], Any]:
    """`(params, xs [B, T, 1]) -> [B, 10]`, what the last step says."""

    def logits(params, xs):
        return jr.unroll(model, params, xs).outputs[:, -1]

    return logits
