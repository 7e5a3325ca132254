"""Formulas for what a model keeps and computes, and how they compare with counting."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments.cost.models import AT_END, ATTENTION, SQRT
from experiments.frame.models import HEADS, count_params

FLOAT_BYTES = 4
CONV_STEPS, EXPANSION, STATES = 3, 2, 16


def carry_bytes(name: str, width: int, num_steps: int) -> int:
    """Bytes of the carry of one sequence; T counts for attention alone.

    Windows of steps count how many they hold: the 1 of Mamba and attention.
    """
    head = width // HEADS
    numbers = {
        "elman": width,
        AT_END: width,
        SQRT: width,
        "gru": width,
        "lstm": 2 * width,
        "lru": 2 * width,
        "mamba": EXPANSION * width * (CONV_STEPS + STATES) + 1,
        "mlstm": HEADS * (head**2 + head + 1),
        ATTENTION: 2 * (num_steps - 1) * width + 1,
    }
    return FLOAT_BYTES * numbers[name]


class Simple(NamedTuple):
    """A simple recurrent cell with a readout: formulas and counts.

    Attributes:
        sizes: D, H, C and T.
        params: HD + H² + H + CH + C.
        counted_params: In the arrays.
        work: T (HD + H² + CH).
        counted_work: Multiply-adds in the traced forward pass.
        compiled_work: Half of the operations that XLA counts in one step, times T.
    """

    sizes: tuple[int, int, int, int]
    params: int
    counted_params: int
    work: int
    counted_work: int
    compiled_work: float


def count_simple(
    num_inputs: int = 16, num_units: int = 64, num_outputs: int = 8, num_steps: int = 256
) -> Simple:
    """Formulas beside counts."""
    layer = jr.serial(jr.elman(num_units), jr.dense(num_outputs))
    params = layer.init(jax.random.key(0), num_inputs)
    products = num_units * num_inputs + num_units**2 + num_outputs * num_units
    carry = layer.initial_carry(params)

    def step(params, carry, x):
        return jr.step(layer, params, carry, x)

    analysis = jax.jit(step).lower(params, carry, jnp.zeros(num_inputs)).compile().cost_analysis()
    return Simple(
        (num_inputs, num_units, num_outputs, num_steps),
        products + num_units + num_outputs,
        count_params(params),
        num_steps * products,
        jr.count_cost(layer, params, jnp.zeros((num_steps, num_inputs))).multiply_adds,
        num_steps * (float("nan") if analysis is None else analysis["flops"] / 2),
    )
