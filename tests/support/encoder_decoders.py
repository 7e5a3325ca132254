"""Encoder-decoders in float64, and loops over unpadded rows that say what they give."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, V, S, T, BATCH = 2, 4, 6, 5, 4, 3


LENGTHS = np.array([5, 2, 0])


SOURCE_MASK = np.arange(S) < LENGTHS[:, None]


MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], bool)


SCORES = {
    "fixed": None,
    "dot": jr.dot_score(3, param_dtype=jnp.float64),
    "additive": jr.additive_score(3, param_dtype=jnp.float64),
}


f64 = {"param_dtype": jnp.float64}


@functools.cache
def model(kind, reverse_source=False):
    return jr.encoder_decoder(
        jr.gru(H, **f64),
        jr.serial(jr.embed(3, **f64), jr.gru(H, **f64)),
        jr.dense(V, **f64),
        attention=SCORES[kind],
        reverse_source=reverse_source,
        bridge=lambda carry: ((), carry),
    )


@functools.cache
def setting(kind, reverse_source=False):
    """The model, its parameters, sources with NaN in their padding, and targets."""
    with jax.enable_x64(True):
        built = model(kind, reverse_source)
        params = jax.tree.map(lambda leaf: 1.5 * leaf, built.init(jax.random.key(0), D, V))
    generator = np.random.default_rng(0)
    source = np.where(SOURCE_MASK[..., None], generator.standard_normal((BATCH, S, D)), np.nan)
    return built, params, source, generator.integers(0, V, (BATCH, T))


@functools.cache
def stepper(model):
    return jax.jit(functools.partial(jr.step, model))


def softmax(scores):
    weights = np.exp(scores - np.max(scores))
    return weights / weights.sum()


def scores_of(kind, params, query, memory):
    if kind == "dot":
        return [
            (query @ params.query_kernel) @ (m @ params.key_kernel) / np.sqrt(3) for m in memory
        ]
    hidden = [query @ params.query_kernel + m @ params.key_kernel + params.bias for m in memory]
    return [np.tanh(h) @ params.score_kernel for h in hidden]


def loop(kind, params, source, xs, reverse_source=False, num_written=0):
    """One unpadded row, step after step: logits, attention weights, tokens written greedily."""
    cell, embed = jr.gru(H, **f64), params.decoder[0][0].table
    carry, memory = cell.initial_carry(params.encoder), []
    for x in source[::-1] if reverse_source else source:
        carry, m = STEP(params.encoder, carry, x)
        memory.append(np.asarray(m))
    memory = memory[::-1] if reverse_source else memory
    logits, maps, tokens, xs = [], [], [], list(xs)
    for t in range(len(xs) + num_written):
        if t >= len(xs):
            tokens.append(int(np.argmax(logits[-1])))
        token = xs[t] if t < len(xs) else tokens[-1]
        carry, d = STEP(params.decoder[0][1], carry, embed[token])
        d = np.asarray(d)
        if kind != "fixed":
            weights = softmax(scores_of(kind, params.decoder[1], d, memory)) if memory else []
            context = sum((w * m for w, m in zip(weights, memory, strict=True)), np.zeros(H))
            d = np.concatenate([d, context])
            maps.append(weights)
        logits.append(d @ params.decoder[-1].kernel + params.decoder[-1].bias)
    return np.array(logits), maps, tokens


STEP = jax.jit(functools.partial(jr.step, jr.gru(H, **f64)))


KINDS = pytest.mark.parametrize(
    ("kind", "reverse_source"),
    [("fixed", False), ("fixed", True), ("dot", False), ("additive", True)],
)


INSIDE = {
    "bahdanau": {"attention": SCORES["additive"], "attention_cell": jr.gru(H, **f64)},
    "fed": {"attention": SCORES["dot"], "input_feeding": jr.gru(H, **f64)},
}


@functools.cache
def attending(kind):
    """As `setting`, with a cell that attends."""
    built = jr.encoder_decoder(
        jr.gru(H, **f64), jr.embed(3, **f64), jr.dense(V, **f64), **INSIDE[kind]
    )
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: 1.5 * leaf, built.init(jax.random.key(0), D, V))
    return built, params, *setting("additive")[2:]


def attending_loop(kind, params, source, xs, num_written=0):
    """One unpadded row: the last state looks before the step, or the new one after it."""
    embedding, attends, readout = params.decoder
    carry, memory = jr.gru(H, **f64).initial_carry(params.encoder), []
    for x in source:
        carry, m = STEP(params.encoder, carry, x)
        memory.append(np.asarray(m))

    def look(query):
        if not memory:
            return np.zeros(H), []
        score = "additive" if kind == "bahdanau" else "dot"
        weights = softmax(scores_of(score, attends.score, query, memory))
        return sum(w * m for w, m in zip(weights, memory, strict=True)), weights

    fed, logits, maps, xs = np.zeros(H), [], [], list(xs)
    for t in range(len(xs) + num_written):
        if t == len(xs):
            xs.append(int(np.argmax(logits[-1])))
        if kind == "bahdanau":
            context, weights = look(np.asarray(carry.h))
            read = np.concatenate([embedding.table[xs[t]], context])
            carry, d = STEP(attends.cell, carry, read)
            y = np.concatenate([d, context])
        else:
            carry, d = STEP(attends.cell, carry, np.concatenate([embedding.table[xs[t]], fed]))
            context, weights = look(np.asarray(d))
            y = fed = np.tanh(np.concatenate([context, d]) @ attends.kernel)
        logits.append(y @ readout.kernel + readout.bias)
        maps.append(weights)
    return np.array(logits), maps, xs


WORDS = jr.serial(jr.embed(5), jr.gru(H))


def bahdanau_of_words(bridge, decoder=None):
    built = jr.encoder_decoder(
        WORDS,
        decoder or jr.embed(5),
        jr.dense(V),
        attention=jr.additive_score(3),
        attention_cell=jr.gru(H),
        bridge=bridge,
    )
    return built, built.init(jax.random.key(0), V, V)
