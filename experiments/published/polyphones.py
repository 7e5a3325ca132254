"""g2pM: how a Chinese character with several pronunciations is read in its sentence."""

from typing import Any, NamedTuple

import jax.nn
import numpy as np

import jaxrnn as jr
from experiments.published.packages import folder, read_pickle

MODEL = jr.serial(
    jr.embed(64), jr.bidirectional(jr.lstm(32)), jr.dense(32, jax.nn.relu), jr.dense(876)
)
PREFIX = ("embedding.", "lstm.", "logit_layer.0.", "logit_layer.2.")
# The first is the example of its README.
SENTENCES = (
    "然而，他红了20年以后，他竟退出了大家的视线。",
    "他长得很高，头发也很长。",
    "银行的行长在路上行走。",
    "我们都觉得睡觉很重要，重复三次。",
    "音乐使人快乐，他教书教了十年。",
    "今天还得还书，数一数有多少数。",
)


class Polyphones(NamedTuple):
    """How characters are read."""

    characters: int  # with several pronunciations
    identical: int  # whose class is that of the package
    logit_difference: float
    sentence: str  # an example
    pinyin: str
    alike: bool  # whether the package writes the same for the whole example


def polyphones() -> Polyphones:
    """The network on all sentences at once, padded, and the package on one after the other.

    Raises:
        Absent: The package is not installed.
        ExperimentError: Its pickle holds something else than arrays.
    """
    place = folder("g2pM", "g2pM")
    arrays = read_pickle(place / "np_ckpt.pkl")
    params = jr.interop.from_torch(arrays, MODEL, prefix=PREFIX).params
    index, dictionary, classes = (
        read_pickle(place / f"{name}.pkl") for name in ("char2idx", "digest_cedict", "class2idx")
    )
    rows = [read_sentence(sentence, index) for sentence in SENTENCES]
    (batch,) = jr.bucket_batches(rows, len(rows), num_buckets=1)
    order = np.argsort(batch.indices)
    outputs = np.asarray(jr.unroll(MODEL, params, batch.xs, mask=batch.mask).outputs)[order]
    from g2pM import G2pM  # pyright: ignore[reportMissingImports]

    original, ours, wanted = G2pM(), [], []
    readings = [[dictionary.get(one, [one]) for one in sentence] for sentence in SENTENCES]
    for row, each, logits in zip(rows, readings, outputs, strict=True):
        # A mark is before the first character.
        places = [at + 1 for at, found in enumerate(each) if len(found) > 1]
        ours += [logits[places]]
        wanted += [_logits(original, row[None], places)]
    names = {number: name for name, number in classes.items()}
    chosen = iter(ours[0].argmax(-1))
    pinyin = [names[int(next(chosen))] if len(found) > 1 else found[0] for found in readings[0]]
    alike = pinyin == original(SENTENCES[0], char_split=True)
    here, there = np.concatenate(ours), np.concatenate(wanted)
    same = int((here.argmax(-1) == there.argmax(-1)).sum())
    difference = float(np.abs(here - there).max())
    return Polyphones(len(here), same, difference, SENTENCES[0], " ".join(pinyin), alike)


def read_sentence(sentence: str, index: dict[str, int]) -> np.ndarray:
    """The characters between the marks of the start and the end."""
    return np.array(
        [index["시"], *(index.get(one, index["<UNK>"]) for one in sentence), index["끝"]]
    )


def _logits(original: Any, row: np.ndarray, places: list[int]) -> np.ndarray:
    """What the package computes before it takes the largest."""
    kept = []
    layer = original.fc_layer
    original.fc_layer = lambda inputs: kept.append(layer(inputs)) or kept[-1]
    original.predict(row, places)
    original.fc_layer = layer
    return kept[0]
