"""What a trained model makes of the held-out pairs: token by token, and left alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.data.spelled import PAD, START, STOP, Pairs
from experiments.translate.model import WITH_ATTENTION, make_model

ROWS = 256


class Answers(NamedTuple):
    """Of N pairs, with targets of T tokens behind the start.

    Attributes:
        forced: Tokens `[N, T]`, each the likeliest behind the true prefix.
        written: Tokens `[N, T]`, each the likeliest behind those before it; `PAD` behind the end.
        weights: `[N, T, S]` where the model looked behind the true prefix; None without attention.
    """

    forced: np.ndarray
    written: np.ndarray
    weights: np.ndarray | None


def make_answerer(kind: str, width: int) -> Callable[[Any, np.ndarray, Pairs], Answers]:
    """`(params, kept [width], pairs) -> Answers`; compiled once for one size of source."""

    @jax.jit
    def forced(params, kept, sources, targets):
        rollout = make_model(kind, width, kept).teacher_forced(
            params, sources, targets[:, :-1], source_mask=sources != PAD, mask=targets[:, 1:] != PAD
        )
        weights = jr.attention_weights(rollout) if kind in WITH_ATTENTION else ()
        return rollout.outputs.argmax(-1), weights

    @jax.jit
    def written(params, kept, sources, targets):
        num_steps = targets.shape[1] - 1
        model = make_model(kind, width, kept)
        start = jnp.full((len(sources), 1), START, jnp.int32)
        return model.generate(
            params, sources, start, num_steps, source_mask=sources != PAD, stop_token=STOP, pad=PAD
        ).tokens

    def answer(params, kept, pairs):
        num_rows = len(pairs.numbers)
        pieces = []
        for first in range(0, num_rows, ROWS):
            rows = np.minimum(np.arange(first, first + ROWS), num_rows - 1)
            arguments = params, kept, pairs.sources[rows], pairs.targets[rows]
            pieces.append(jax.device_get((*forced(*arguments), written(*arguments))))
        right, weights, tokens = jax.tree.map(
            lambda *parts: np.concatenate(parts)[:num_rows], *pieces
        )
        return Answers(right, tokens, None if kind not in WITH_ATTENTION else weights)

    return answer
