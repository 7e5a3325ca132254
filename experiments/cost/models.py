"""The models that are compared, at the same number of parameters."""

from collections.abc import Callable, Mapping

import jaxrnn as jr
from experiments.frame.models import HEADS, LABELS, MIXERS, matched_width
from jaxrnn.engine.recurrent import as_layer

NUM_OUTPUTS = 4
ATTENTION, AT_END, SQRT = "attention", "elman_end", "elman_sqrt"

# From the width and T to the mixer; only attention's memory has to know T.
MODELS: Mapping[str, Callable[[int, int], jr.Cell | jr.Layer]] = {
    "elman": lambda width, steps: MIXERS["elman"](width),
    "gru": lambda width, steps: MIXERS["gru"](width),
    "lstm": lambda width, steps: MIXERS["lstm"](width),
    "lru": lambda width, steps: MIXERS["lru"](width),
    "mamba": lambda width, steps: MIXERS["mamba"](width),
    "mlstm": lambda width, steps: MIXERS["mlstm"](width),
    ATTENTION: lambda width, steps: jr.self_attention(HEADS, window=steps),
    AT_END: lambda width, steps: jr.recurrent(jr.elman(width)),
    SQRT: lambda width, steps: jr.recurrent(jr.elman(width), jr.sequential(checkpoint="sqrt")),
}
SHOWN: Mapping[str, str] = {
    **LABELS,
    AT_END: "Elman, loss at the end",
    SQRT: "the same, √T checkpoints",
}


def model(name: str, width: int, num_steps: int) -> jr.Layer:
    """Features to `width`, the mixer, and a readout; or the mixer alone, judged at its end."""
    mixer = MODELS[name](width, num_steps)
    if judged_at_end(name):
        return as_layer(mixer)
    return jr.serial(jr.dense(width), mixer, jr.dense(NUM_OUTPUTS))


def judged_at_end(name: str) -> bool:
    """Whether the loss is of the last carry alone.

    Then nothing but the carries in between has to be kept for every step, or at √T of them.
    """
    return name in (AT_END, SQRT)


def features_of(name: str, num_features: int) -> int:
    """Input features: one where anything else that grows with T would hide the carries."""
    return 1 if judged_at_end(name) else num_features


def width_of(name: str, num_features: int, num_params: int) -> int:
    """The width at which the model is nearest to so many parameters."""
    features = features_of(name, num_features)
    return matched_width(lambda width: model(name, width, 2), features, num_params)
