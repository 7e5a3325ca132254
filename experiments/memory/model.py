"""The ten models and a pair of twins, each in the same blocks at the same size."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments.frame import models as matched
from experiments.memory.task import NUM_SYMBOLS, NUM_TOKENS, TOLERANCE, Examples

# The twins differ in nothing but tanh(u / 2) against σ(u) for the eigenvalue of a step.
MIXERS = {
    **matched.MIXERS,
    "positive": lambda width: jr.diagonal_rnn(width, (0, 1), selective=True),
    "signed": lambda width: jr.diagonal_rnn(width, (-1, 1), selective=True),
}
LABELS: Mapping[str, str] = {
    **matched.LABELS,
    "positive": "eigenvalues in (0, 1)",
    "signed": "eigenvalues in (-1, 1)",
}
NUM_FEATURES, NUM_OUTPUTS = NUM_TOKENS + 1, NUM_SYMBOLS + 1


def make_network(model: str, num_params: int, num_blocks: int) -> tuple[int, jr.Layer]:
    """The width at which blocks of the model have about so many parameters, and the blocks."""

    def make(width):
        mixers = [MIXERS[model](width) for _ in range(num_blocks)]
        return jr.classifier(mixers, width, NUM_OUTPUTS)

    width = matched.matched_width(make, NUM_FEATURES, num_params)
    return width, make(width)


def outputs(network: jr.Layer, params: Any, examples: Examples) -> Any:
    """From one-hot tokens and a number to logits and a number, `[..., T, NUM_OUTPUTS]`."""
    tokens = jax.nn.one_hot(examples.tokens, NUM_TOKENS)
    features = jnp.concatenate([tokens, examples.numbers[..., None]], axis=-1)
    return jr.unroll(network, params, features, mask=examples.mask).outputs


def loss_and_right(outputs: Any, examples: Examples, is_number: Any) -> tuple[Any, Any]:
    """The mean loss over the answers due, and bool `[..., T]`, which of them are right."""
    logits, numbers = outputs[..., :NUM_SYMBOLS], outputs[..., NUM_SYMBOLS:]
    by_class = jr.cross_entropy(logits, examples.labels, examples.due)
    by_square = jr.squared_error(numbers, examples.sums[..., None], examples.due)
    losses = jnp.where(is_number, by_square, by_class)
    right = jnp.where(
        is_number,
        jnp.abs(numbers[..., 0] - examples.sums) < TOLERANCE,
        logits.argmax(axis=-1) == examples.labels,
    )
    return jr.mean_over_steps(losses, examples.due, empty=0), right & examples.due
