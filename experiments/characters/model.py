"""The model around each mixer, all of one size, and what it makes of chunks of streams."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.characters.text import Chunks, pieces
from experiments.data.topics import ALPHABET
from experiments.frame.models import MIXERS, matched_width

# One step after the other: on two cores it compiles in a fraction of what a scan in blocks takes.
OWN_MIXERS: dict[str, Callable[[int], Any]] = {
    "mamba": lambda width: jr.mamba(16, evaluator=jr.sequential()),
}
CHUNKS_PER_CALL = 16
BITS = 1 / np.log(2)


class Sized(NamedTuple):
    """A language model of a name and a size; equal ones share what is compiled.

    Attributes:
        mixer: Its name in `MIXERS`.
        width: Features between the blocks.
        blocks: How many.
    """

    mixer: str
    width: int
    blocks: int

    def mixers(self) -> list[Any]:
        """One for each block."""
        make = OWN_MIXERS.get(self.mixer, MIXERS[self.mixer])
        return [make(self.width) for _ in range(self.blocks)]

    def layer(self) -> jr.Layer:
        """From characters to the logits of the next one."""
        return jr.language_model(self.mixers(), self.width, len(ALPHABET))

    def init(self, seed: int) -> Any:
        """Initial parameters."""
        return self.layer().init(jax.random.key(seed), len(ALPHABET))


class Scores(NamedTuple):
    """Of characters that a model predicts: `bits`, and whether the likeliest is `right`."""

    bits: np.ndarray
    right: np.ndarray


def sized(mixer: str, num_params: int, blocks: int) -> Sized:
    """The model with a number of parameters nearest to `num_params`."""

    def make(width):
        return Sized(mixer, width, blocks).layer()

    return Sized(mixer, matched_width(make, len(ALPHABET), num_params), blocks)


def score(model: Sized, params: Any, chunks: Chunks) -> Scores:
    """-log₂ p of every character, each from all before it in its text, `[N, B, K]`."""
    carry = model.layer().initial_carry(params, chunks.xs.shape[1:2])
    made = []
    for piece in pieces(chunks, CHUNKS_PER_CALL):
        carry, scores = _score_piece(model, params, carry, piece)
        made.append(jax.device_get(scores))
    return Scores(*(np.concatenate(leaves)[: len(chunks.xs)] for leaves in zip(*made, strict=True)))


@functools.partial(jax.jit, static_argnums=0)
def _score_piece(model, params, carry, chunks):
    layer = model.layer()

    def one(carry, chunk):
        rollout = jr.unroll(
            layer, params, chunk.xs, carry=carry, mask=chunk.mask, reset=chunk.reset
        )
        bits = BITS * jr.cross_entropy(rollout.outputs, chunk.ys, chunk.mask)
        right = (rollout.outputs.argmax(-1) == chunk.ys) & chunk.mask
        return rollout.carry, Scores(bits, right)

    return jax.lax.scan(one, carry, jax.tree.map(jnp.asarray, chunks))
