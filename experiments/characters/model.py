"""Texts as streams, the model around each mixer, and what it makes of texts."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.data.topics import ALPHABET, encode
from experiments.frame.models import LABELS, MIXERS, matched_width

# One step after the other: on two cores it compiles in a fraction of what a scan in blocks takes.
OWN_MIXERS: dict[str, Any] = {"mamba": lambda width: jr.mamba(16, evaluator=jr.sequential())}
BITS = 1 / np.log(2)
ROWS = 8  # texts scored side by side
FIRST = 0  # the line break before every topic


class Stream(NamedTuple):
    """Characters, int32, each next one, where a topic starts: `[T]`, or `[N, B, K]` in chunks."""

    xs: np.ndarray
    ys: np.ndarray
    reset: np.ndarray


def stream_of(texts: Sequence[str]) -> Stream:
    """Texts one after another; every one starts anew, after a line break."""
    ys = [encode(text) for text in texts]
    xs = [np.concatenate([[FIRST], tokens[:-1]]).astype(np.int32) for tokens in ys]
    starts = [np.arange(len(tokens)) == 0 for tokens in ys]
    return Stream(*map(np.concatenate, (xs, ys, starts)))


class Sized(NamedTuple):
    """A language model of blocks around a mixer of `MIXERS`; equal ones share what is compiled."""

    mixer: str
    width: int
    blocks: int

    @property
    def label(self) -> str:
        return LABELS[self.mixer]

    def mixers(self) -> list[Any]:
        make = OWN_MIXERS.get(self.mixer, MIXERS[self.mixer])
        return [make(self.width) for _ in range(self.blocks)]

    def layer(self) -> jr.Layer:
        """From characters to the logits of the next one."""
        return jr.language_model(self.mixers(), self.width, len(ALPHABET))

    def init(self, seed: int) -> Any:
        return self.layer().init(jax.random.key(seed), len(ALPHABET))


class Scores(NamedTuple):
    """Of the characters of a text: their `bits`, and whether the likeliest is `right`, `[T]`."""

    bits: Any
    right: Any


def sized(mixer: str, num_params: int, blocks: int) -> Sized:
    def make(width):
        return Sized(mixer, width, blocks).layer()

    return Sized(mixer, matched_width(make, len(ALPHABET), num_params), blocks)


def score(
    model: Sized, params: Any, texts: Sequence[str], num_steps: int, cold: bool = False
) -> list[Scores]:
    """-log₂ p of every character of each text, from all before it, or with `cold` in its chunk."""
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    streams = [stream_of([texts[index]]) for index in order]
    params = jax.device_put(params)
    carry = model.layer().initial_carry(params, (ROWS,))
    scored = [[] for _ in texts]
    for batch in jr.stream_batches(streams, ROWS, num_steps):
        reset = batch.reset.copy()
        reset[:, 0] |= cold
        carry, scores = _score_chunk(model, params, carry, batch._replace(reset=reset))
        scores = jax.device_get(scores)
        for row, index in enumerate(batch.indices):
            if index >= 0:
                own = (leaf[row][batch.mask[row]] for leaf in scores)
                scored[order[index]].append(Scores(*own))
    return [Scores(*map(np.concatenate, zip(*parts, strict=True))) for parts in scored]


@functools.partial(jax.jit, static_argnums=0)
def _score_chunk(model, params, carry, batch):
    rollout = jr.unroll(
        model.layer(), params, batch.xs.xs, carry=carry, mask=batch.mask, reset=batch.reset
    )
    bits = BITS * jr.cross_entropy(rollout.outputs, batch.xs.ys, batch.mask)
    return rollout.carry, Scores(bits, rollout.outputs.argmax(-1) == batch.xs.ys)
