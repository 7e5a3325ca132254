"""Every model with a memory, in comparable sizes, and what a step of it costs on paper."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jaxrnn as jr
from experiments.errors import ExperimentError


class Sizes(NamedTuple):
    """Sizes of all models, under the letters that formulas use.

    Attributes:
        D: Input features.
        H: Units of a cell.
        N: State size: of the whole cell (lru, s5), or of each feature or head.
        G: Heads or blocks.
        K: Width of a head.
        W: Width of a convolution, or window of an attention.
    """

    D: int
    H: int
    N: int
    G: int
    K: int
    W: int

    @classmethod
    def of(cls, width: int, num_states: int, window: int = 64) -> "Sizes":
        """All models `width` wide, with heads of 4 or more."""
        num_heads = max(1, min(4, width // 4))
        return cls(width, width, num_states, num_heads, width // num_heads, window)


class Model(NamedTuple):
    """One public cell or layer.

    Attributes:
        kind: One of `KINDS`.
        make: From `Sizes` to the Cell or Layer.
        multiply_adds: Of a step and row in streaming, as an expression in the letters of `Sizes`:
            matrix products and real products with the state; gates and norms are left out.
        depth: Sequential steps of a layer's own forms over T; empty for a cell, which takes
            evaluators.
    """

    kind: str
    make: Callable[[Sizes], Any]
    multiply_adds: str
    depth: str = ""


KINDS = NONLINEAR, LINEAR, LAYER = ("cells", "linear cells", "layers")
CHUNKS = "T/C in chunks of C; T recurrent; 1 parallel"
CONVOLVED = "2 log2 T as a convolution; T with resets"

MODELS = {
    "elman": Model(NONLINEAR, lambda s: jr.elman(s.H), "D*H + H**2"),
    "lstm": Model(NONLINEAR, lambda s: jr.lstm(s.H), "4*(D*H + H**2)"),
    "gru": Model(NONLINEAR, lambda s: jr.gru(s.H), "3*(D*H + H**2)"),
    "mgu": Model(NONLINEAR, lambda s: jr.mgu(s.H), "2*(D*H + H**2)"),
    "slstm": Model(NONLINEAR, lambda s: jr.slstm(s.H, s.G), "4*(D*H + H**2/G)"),
    "ema": Model(LINEAR, lambda s: jr.ema(0.99), "2*D"),
    "diagonal_rnn": Model(LINEAR, lambda s: jr.diagonal_rnn(s.H), "D*H + H"),
    "min_gru": Model(LINEAR, lambda s: jr.min_gru(s.H), "2*D*H + 2*H"),
    "min_lstm": Model(LINEAR, lambda s: jr.min_lstm(s.H), "3*D*H + 2*H"),
    "rg_lru": Model(LINEAR, lambda s: jr.rg_lru(s.G), "2*D**2/G + 3*D"),
    "lru": Model(LINEAR, lambda s: jr.lru(s.H, s.N), "2*D*N + 6*N + 2*N*H + D*H"),
    "s4d": Model(LINEAR, lambda s: jr.s4d(s.N), "4*D*N + D"),
    "s5": Model(LINEAR, lambda s: jr.s5(s.H, s.N), "D*N + 4*N + N*H + D*H"),
    "s6": Model(LINEAR, lambda s: jr.s6(s.N), "3*D*N + 2*D*N + 2*D*ceil(D/16) + D"),
    "s4": Model(LAYER, lambda s: jr.s4(s.N), "8*D*N + D", CONVOLVED),
    "convolutional": Model(LAYER, lambda s: jr.convolutional(jr.s4d(s.N)), "4*D*N + D", CONVOLVED),
    "mamba": Model(
        LAYER, lambda s: jr.mamba(s.N), "6*D**2 + 8*D + 10*D*N + 4*D*ceil(D/16)", "sqrt(T) log2 T"
    ),
    "mamba2": Model(
        LAYER,
        lambda s: jr.mamba2(s.N, head_width=s.K),
        "D*(6*D + 2*N + 2*D/K) + 8*(D + N) + 6*D*N",
        CHUNKS,
    ),
    "mlstm": Model(
        LAYER, lambda s: jr.mlstm(s.G, s.K), "4*D*G*K + 2*D*G + 3*G*K**2 + 3*G*K", CHUNKS
    ),
    "gated_delta_net": Model(
        LAYER,
        lambda s: jr.gated_delta_net(s.G, s.K),
        "3*D*G*K + 2*D*G + 4*G*K**2",
        "T/C log2 C in chunks of C; T recurrent",
    ),
    "self_attention": Model(
        LAYER, lambda s: jr.self_attention(s.G, window=s.W), "4*D**2 + 2*W*D", "1"
    ),
    "causal_conv": Model(LAYER, lambda s: jr.causal_conv(s.W), "W*D", "1"),
}

OF_ITS_PARTS = "that of what it holds"
NONE = "none"
COMPOSED = {
    "dense": NONE,
    "embed": NONE,
    "gated_mlp": NONE,
    "layer_norm": NONE,
    "dropout": NONE,
    "cross_attention": "the source: S (M + A) numbers and S flags",
    "attending": "that of the cell, and the source: S (M + A) numbers and S flags",
    "recurrent": "that of the cell",
    "simple_cell": "H numbers, or what it is given",
    "learned_initial_carry": "that of the cell",
    "zoneout": "that of the cell",
    "recurrent_dropout": "that of the cell",
    "serial": OF_ITS_PARTS,
    "residual": OF_ITS_PARTS,
    "block": OF_ITS_PARTS,
    "classifier": OF_ITS_PARTS,
    "language_model": OF_ITS_PARTS,
    "bidirectional": "those of both directions; it sees the future and cannot stream",
}


def check_options(models: Sequence[str], width: int, num_states: int) -> None:
    """Raises ExperimentError for options that no model, or not every model, can be made of."""
    unknown = [name for name in models if name not in MODELS]
    if unknown or not models:
        shown = " ".join(unknown) or "nothing"
        raise ExperimentError(f"--models must be among {' '.join(MODELS)}, got {shown}")
    if width < 8 or width % 8:
        raise ExperimentError(f"--width must be a multiple of 8, got {width}")
    if num_states < 2 or num_states % 2:
        raise ExperimentError(f"--num-states must be even and positive, got {num_states}")
