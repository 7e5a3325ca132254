"""Four encoder-decoders of the same size."""

import bisect
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import jaxrnn as jr
from experiments.data.spelled import NUM_SOURCES, NUM_TARGETS
from experiments.frame.models import count_params
from experiments.translate.config import ADDITIVE, DOT, FIXED, REVERSED, Config

FIXEDS, WITH_ATTENTION = (FIXED, REVERSED), (DOT, ADDITIVE)
LABELS: Mapping[str, str] = {
    FIXED: "fixed",
    REVERSED: "fixed, reversed",
    DOT: "dot attention",
    ADDITIVE: "additive attention",
}
_SOURCE_FEATURES, _TARGET_FEATURES = 32, 16


def make_model(kind: str, kept: Any) -> jr.seq2seq.EncoderDecoder:
    """A GRU that reads letters and a GRU that writes digits.

    Args:
        kind: One of `config.KINDS`.
        kept: Flags `[width]` for as many units of each GRU, and of the keys of a dot product; twice
            those of additive keys. The flagged units of the encoder's last carry reach the
            decoder's first; being data, the width of the bottleneck compiles nothing again.
    """
    width = len(kept)
    score = {DOT: jr.dot_score(width), ADDITIVE: jr.additive_score(width // 2)}.get(kind)
    return jr.encoder_decoder(
        encoder=jr.serial(jr.embed(_SOURCE_FEATURES), jr.gru(width)),
        decoder=jr.serial(jr.embed(_TARGET_FEATURES), jr.gru(width)),
        readout=jr.dense(NUM_TARGETS),
        attention=score,
        reverse_source=kind == REVERSED,
        bridge=lambda carry: jax.tree.map(lambda units: kept * units, carry),
    )


def initial_params(kind: str, width: int, seed: Any) -> Any:
    """The parameters before training."""
    model = make_model(kind, np.ones(width))
    return model.init(jax.random.key(seed), NUM_SOURCES, NUM_TARGETS)


def matched_widths(config: Config) -> dict[str, int]:
    """The width of each kind at which it has about as many parameters as the fixed vector."""

    def num_params(kind, width):
        return count_params(jax.eval_shape(lambda: initial_params(kind, width, 0)))

    wanted = num_params(FIXED, config.width)
    widths = range(config.width // 2, config.width + 1)

    def nearest(kind):
        above = bisect.bisect_left(widths, wanted, key=lambda width: num_params(kind, width))
        around = widths[max(above - 1, 0) : above + 1]
        return min(around, key=lambda width: abs(num_params(kind, width) - wanted))

    return {kind: nearest(kind) for kind in config.models}
