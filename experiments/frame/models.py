"""The one catalogue of models: every cell and layer with a memory, in comparable sizes."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import jax

import jaxrnn as jr
from experiments.frame.options import Options, among, multiple_of

Factory = Callable[[int], jr.Cell | jr.Layer]


class Sizes(NamedTuple):
    """Sizes of all models, under the letters that formulas use."""

    D: int  # input features
    H: int  # units of a cell
    N: int  # state size: of the whole cell (lru, s5), or of each feature or head
    G: int  # heads or blocks
    K: int  # width of a head
    W: int  # width of a convolution, or window of an attention

    @classmethod
    def of(cls, width: int, state_size: int, window: int = 64) -> "Sizes":
        """All models `width` wide, with heads of 4 or more."""
        num_heads = max(1, min(4, width // 4))
        return cls(width, width, state_size, num_heads, width // num_heads, window)


class Model(NamedTuple):
    """One public cell or layer."""

    label: str  # its name in tables and figures
    kind: str  # one of `KINDS`
    make: Callable[..., Any]  # `(sizes, **options) -> Cell or Layer`, options of its factory
    # of a step and row in streaming, as an expression in the letters of `Sizes`: matrix products
    # and real products with the state; gates and norms are left out
    multiply_adds: str
    depth: str = ""  # sequential steps of a layer's own forms over T; "" for a cell


KINDS = NONLINEAR, LINEAR, LAYER = ("cells", "linear cells", "layers")
CHUNKS = "T/C in chunks of C; T recurrent; 1 parallel"
CONVOLVED = "2 log2 T as a convolution; T with resets"

MODELS: Mapping[str, Model] = {
    "elman": Model("Elman", NONLINEAR, lambda s, **o: jr.elman(s.H, **o), "D*H + H**2"),
    "lstm": Model("LSTM", NONLINEAR, lambda s, **o: jr.lstm(s.H, **o), "4*(D*H + H**2)"),
    "gru": Model("GRU", NONLINEAR, lambda s, **o: jr.gru(s.H, **o), "3*(D*H + H**2)"),
    "mgu": Model("MGU", NONLINEAR, lambda s, **o: jr.mgu(s.H, **o), "2*(D*H + H**2)"),
    "slstm": Model("sLSTM", NONLINEAR, lambda s, **o: jr.slstm(s.H, s.G, **o), "4*(D*H + H**2/G)"),
    "para_gru": Model("ParaGRU", NONLINEAR, lambda s, **o: jr.para_gru(s.H, **o), "3*(D*H + H)"),
    "para_lstm": Model("ParaLSTM", NONLINEAR, lambda s, **o: jr.para_lstm(s.H, **o), "3*D*H + 5*H"),
    "ema": Model("EMA", LINEAR, lambda s, decay=0.99, **o: jr.ema(decay, **o), "2*D"),
    "diagonal_rnn": Model(
        "diagonal RNN", LINEAR, lambda s, **o: jr.diagonal_rnn(s.H, **o), "D*H + H"
    ),
    "min_gru": Model("minGRU", LINEAR, lambda s, **o: jr.min_gru(s.H, **o), "2*D*H + 2*H"),
    "min_lstm": Model("minLSTM", LINEAR, lambda s, **o: jr.min_lstm(s.H, **o), "3*D*H + 2*H"),
    "rg_lru": Model("RG-LRU", LINEAR, lambda s, **o: jr.rg_lru(s.G, **o), "2*D**2/G + 3*D"),
    "lru": Model("LRU", LINEAR, lambda s, **o: jr.lru(s.H, s.N, **o), "2*D*N + 6*N + 2*N*H + D*H"),
    "s4d": Model("S4D", LINEAR, lambda s, **o: jr.s4d(s.N, **o), "4*D*N + D"),
    "s5": Model("S5", LINEAR, lambda s, **o: jr.s5(s.H, s.N, **o), "D*N + 4*N + N*H + D*H"),
    "s6": Model("S6", LINEAR, lambda s, **o: jr.s6(s.N, **o), "3*D*N + 2*D*N + 2*D*ceil(D/16) + D"),
    "s4": Model("S4", LAYER, lambda s, **o: jr.s4(s.N, **o), "8*D*N + D", CONVOLVED),
    "convolutional": Model(
        "S4D as a convolution",
        LAYER,
        lambda s, **o: jr.recurrent(jr.s4d(s.N, **o), jr.convolution()),
        "4*D*N + D",
        CONVOLVED,
    ),
    "griffin_block": Model(
        "Griffin block",
        LAYER,
        lambda s, **o: jr.griffin_block(s.H, s.G, **o),
        "3*D*H + 7*H + 2*H**2/G",
        "sqrt(T) log2 T",
    ),
    "mamba": Model(
        "Mamba",
        LAYER,
        lambda s, **o: jr.mamba(s.N, **o),
        "6*D**2 + 8*D + 10*D*N + 4*D*ceil(D/16)",
        "sqrt(T) log2 T",
    ),
    "mamba2": Model(
        "Mamba-2",
        LAYER,
        lambda s, **o: jr.mamba2(s.N, head_width=s.K, **o),
        "D*(6*D + 2*N + 2*D/K) + 8*(D + N) + 6*D*N",
        CHUNKS,
    ),
    "mlstm": Model(
        "mLSTM",
        LAYER,
        lambda s, **o: jr.mlstm(s.G, s.K, **o),
        "4*D*G*K + 2*D*G + 3*G*K**2 + 3*G*K",
        CHUNKS,
    ),
    "mlstm_block": Model(
        "mLSTM block",
        LAYER,
        lambda s, **o: jr.mlstm_block(s.H, s.G, **o),
        "3*D*H + 19*H + 6*H*G + 3*H**2/G",
        CHUNKS,
    ),
    "slstm_block": Model(
        "sLSTM block",
        LAYER,
        lambda s, **o: jr.slstm_block(s.H, s.G, **o),
        "4*D + 4*(D*H + H**2)/G",
        "T",
    ),
    "gated_delta_net": Model(
        "gated DeltaNet",
        LAYER,
        lambda s, **o: jr.gated_delta_net(s.G, s.K, **o),
        "3*D*G*K + 2*D*G + 4*G*K**2",
        "T/C log2 C in chunks of C; T recurrent",
    ),
    "self_attention": Model(
        "attention",
        LAYER,
        lambda s, **o: jr.self_attention(s.G, window=s.W, **o),
        "4*D**2 + 2*W*D",
        "1",
    ),
    "causal_conv": Model(
        "causal convolution", LAYER, lambda s, **o: jr.causal_conv(s.W, **o), "W*D", "1"
    ),
}


EVEN = multiple_of(2)._replace(expected="even and positive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CatalogueOptions(Options):
    """Options of an experiment that runs every model of the catalogue."""

    models: Annotated[tuple[str, ...], among(MODELS)] = tuple(MODELS)
    """Names of models."""
    width: Annotated[int, multiple_of(8)] = 8
    """Input features and units."""
    state_size: Annotated[int, EVEN] = 8
    """State size of the linear models."""


# Models of the same size: each in the same block, at the width with so many parameters.

HEADS = 2
STATES_OF_A_FEATURE = 16
HAS_STATES_OF_A_FEATURE = ("s4d", "s6", "s4", "mamba", "mamba2")


def mixer(name: str, width: int, window: int = 256) -> jr.Cell | jr.Layer:
    """The model for sequences of `width` features, which is a multiple of 2 `HEADS`."""
    state_size = STATES_OF_A_FEATURE if name in HAS_STATES_OF_A_FEATURE else width
    return MODELS[name].make(Sizes(width, width, state_size, HEADS, width // HEADS, window))


# From the width of a block to the mixer in it.
MIXERS: Mapping[str, Factory] = {
    name: functools.partial(mixer, name)
    for name in ("elman", "gru", "lstm", "slstm", "min_gru", "lru", "s5", "mamba", "mlstm")
} | {"attention": functools.partial(mixer, "self_attention")}
LABELS: Mapping[str, str] = {n: model.label for n, model in MODELS.items()} | {
    "attention": "attention"
}


def count_params(params: Any) -> int:
    """How many real numbers are in a tree of parameters or of their shapes."""
    return sum(
        leaf.size * (2 if jax.numpy.issubdtype(leaf.dtype, jax.numpy.complexfloating) else 1)
        for leaf in jax.tree.leaves(params)
    )


def matched_width(
    make: Factory,
    num_inputs: int,
    num_params: int,
    widths: Iterable[int] = range(4 * HEADS, 256 * HEADS, 2 * HEADS),
) -> int:
    """The width in increasing `widths` at which what `make` makes is nearest to `num_params`."""

    def distance(width):
        key = jax.random.key(0)
        params = jax.eval_shape(lambda key: make(width).init(key, num_inputs), key)
        return abs(count_params(params) - num_params)

    best, least = None, None
    for width in widths:
        now = distance(width)
        if least is not None and now > least:
            break
        best, least = width, now
    if best is None:
        raise ValueError("widths must hold one or more, got none.")
    return best
