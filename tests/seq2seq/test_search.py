"""`beam_search` of encoder-decoders, against all sequences."""

import itertools

import jax
import numpy as np
import pytest
from support.encoder_decoders import SOURCE_MASK, V, attending, setting

import jaxrnn as jr

N, STOP = 2, 2
EVERY = np.array(list(itertools.product(range(V), repeat=N)))
SETTINGS = {
    "fixed": (setting, "fixed"),
    "dot": (setting, "dot"),
    "bahdanau": (attending, "bahdanau"),
    "fed": (attending, "fed"),
}


def every_sequence(model, params, source, mask, start):
    """The log-probabilities of all sequences of one row, cut at the stop token, the best first."""
    read = np.concatenate([np.full((len(EVERY), 1), start), EVERY[:, :-1]], axis=1)
    rows = np.broadcast_to(source, (len(EVERY), *source.shape))
    masks = np.broadcast_to(mask, rows.shape[:2])
    logits = model.teacher_forced(params, rows, read, source_mask=masks).outputs
    steps = -np.asarray(jr.cross_entropy(logits, EVERY))
    found = {
        (first,) if first == STOP else (first, second): own[0] if first == STOP else own.sum()
        for (first, second), own in zip(EVERY.tolist(), steps, strict=True)
    }
    return sorted(((value, tokens) for tokens, value in found.items()), reverse=True)


@pytest.mark.parametrize("kind", SETTINGS)
def test_it_finds_the_best_of_all_sequences(kind, x64):
    make, name = SETTINGS[kind]
    model, params, source, xs = make(name)
    starts, options = xs[:, 0], {"beams": V**N, "max_steps": N, "stop_token": STOP}

    def search(params, source, starts):
        return model.beam_search(params, source, starts, source_mask=SOURCE_MASK, **options)

    found = search(params, source, starts)
    for row, start in enumerate(starts):
        want = every_sequence(model, params, source[row], SOURCE_MASK[row], start)
        values, tokens = zip(*want, strict=True)
        np.testing.assert_allclose(found.scores[row, : len(want)], values, rtol=1e-9)
        lengths = found.lengths[row]
        got = [tuple(found.tokens[row, n, : lengths[n]].tolist()) for n in range(len(want))]
        assert got == list(tokens)
    # The source is the same for all beams of a row, and there is one copy of it.
    rows, num_beams, steps = len(starts), V**N, source.shape[1]
    assert f"[{rows},{num_beams},{steps},4]" not in str(
        jax.make_jaxpr(search)(params, source, starts)
    )


def test_start_must_have_the_rows_of_the_source(x64):
    model, params, source, xs = setting("dot")
    with pytest.raises(ValueError, match=r"^start must have the batch axes \(3,\) of source"):
        model.beam_search(params, source, xs[:2, 0], beams=2, max_steps=2, stop_token=1)
