"""The models that are compared, at the same number of parameters, and formulas for their sizes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.models import HEADS, LABELS, MIXERS, count_params, matched_width

NUM_OUTPUTS = 4
ATTENTION, AT_END, SQRT = "attention", "elman_end", "elman_sqrt"
# The loss of these is of the last carry alone, and they read one feature: then nothing but the
# carries in between has to be kept for every step, or at √T of them.
JUDGED_AT_END = (AT_END, SQRT)
MODELS = ("elman", "gru", "lstm", "lru", "mamba", "mlstm", ATTENTION, *JUDGED_AT_END)
SHOWN: dict = {**LABELS, AT_END: "Elman, loss at the end", SQRT: "the same, √T checkpoints"}

FLOAT_BYTES = 4
CONV_STEPS, EXPANSION, STATES = 3, 2, 16


def model(name: str, width: int, num_steps: int) -> jr.Layer:
    """Features to `width`, the mixer, and a readout; or the mixer alone, judged at its end."""
    if name in JUDGED_AT_END:
        checkpoint: Any = "sqrt" if name == SQRT else None
        return jr.recurrent(jr.elman(width), jr.sequential(checkpoint=checkpoint))
    if name == ATTENTION:  # its memory alone has to know T
        mixer = jr.self_attention(HEADS, window=num_steps)
    else:
        mixer = MIXERS[name](width)
    return jr.serial(jr.dense(width), mixer, jr.dense(NUM_OUTPUTS))


def features_of(name: str, num_features: int) -> int:
    return 1 if name in JUDGED_AT_END else num_features


def width_of(name: str, num_features: int, num_params: int) -> int:
    features = features_of(name, num_features)
    return matched_width(lambda width: model(name, width, 2), features, num_params)


def carry_bytes(name: str, width: int, num_steps: int) -> int:
    """Bytes of the carry of one sequence, with the 1 of a window that counts how many it holds."""
    head = width // HEADS
    numbers = {
        "lstm": 2 * width,
        "lru": 2 * width,
        "mamba": EXPANSION * width * (CONV_STEPS + STATES) + 1,
        "mlstm": HEADS * (head**2 + head + 1),
        ATTENTION: 2 * (num_steps - 1) * width + 1,
    }
    return FLOAT_BYTES * numbers.get(name, width)


class Simple(NamedTuple):
    """A simple recurrent cell with a readout: formulas and counts."""

    sizes: Mapping[str, int]  # D, H, C and T
    params: int  # HD + H² + H + CH + C
    counted_params: int  # in the arrays
    work: int  # T (HD + H² + CH)
    counted_work: int  # multiply-adds in the traced forward pass
    compiled_work: float  # half of the operations that XLA counts in one step, times T


def count_simple(
    num_inputs: int = 16, num_units: int = 64, num_outputs: int = 8, num_steps: int = 256
) -> Simple:
    layer = jr.serial(jr.elman(num_units), jr.dense(num_outputs))
    params = layer.init(jax.random.key(0), num_inputs)
    products = num_units * num_inputs + num_units**2 + num_outputs * num_units
    step = jax.jit(lambda params, carry, x: jr.step(layer, params, carry, x))
    compiled = step.lower(params, layer.initial_carry(params), jnp.zeros(num_inputs)).compile()
    analysis = compiled.cost_analysis()
    return Simple(
        {"D": num_inputs, "H": num_units, "C": num_outputs, "T": num_steps},
        products + num_units + num_outputs,
        count_params(params),
        num_steps * products,
        jr.count_cost(layer, params, jnp.zeros((num_steps, num_inputs))).multiply_adds,
        num_steps * (np.nan if analysis is None else analysis["flops"] / 2),
    )
