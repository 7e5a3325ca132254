"""The models that are compared, at the same number of parameters."""

from collections.abc import Callable, Mapping

import jaxrnn as jr
from experiments.matched import HEADS, LABELS, MIXERS, matched_width

NUM_OUTPUTS = 4
ATTENTION = "attention"
SQRT = "elman_sqrt"

# From the width and T to the mixer; only attention's memory has to know T.
MODELS: Mapping[str, Callable[[int, int], jr.Cell | jr.Layer]] = {
    "elman": lambda width, steps: MIXERS["elman"](width),
    SQRT: lambda width, steps: jr.recurrent(jr.elman(width), jr.sequential(checkpoint="sqrt")),
    "gru": lambda width, steps: MIXERS["gru"](width),
    "lstm": lambda width, steps: MIXERS["lstm"](width),
    "lru": lambda width, steps: MIXERS["lru"](width),
    "mamba": lambda width, steps: MIXERS["mamba"](width),
    "mlstm": lambda width, steps: MIXERS["mlstm"](width),
    ATTENTION: lambda width, steps: jr.self_attention(HEADS, window=steps),
}
SHOWN: Mapping[str, str] = {**LABELS, SQRT: "Elman, √T checkpoints"}


def model(name: str, width: int, num_steps: int) -> jr.Layer:
    """Features to `width`, the mixer, and a readout, for sequences of `num_steps`."""
    return jr.serial(jr.dense(width), MODELS[name](width, num_steps), jr.dense(NUM_OUTPUTS))


def width_of(name: str, num_features: int, num_params: int) -> int:
    """The width at which the model is nearest to so many parameters."""
    return matched_width(lambda width: model(name, width, 2), num_features, num_params)


def grows_quadratically(name: str) -> bool:
    """Whether all steps meet all others."""
    return name == ATTENTION
