"""`matrix_scan` against a loop in numpy and a plain scan, in one program for each kind of memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

T, B, H, K, V = 11, 3, 2, 3, 2
# name: writes in each step (0 is one without an axis), decay, erases, options
KINDS = {
    "plain": (0, None, False, {}),
    "shared decay": (0, "shared", False, {"initial": True}),
    "decay of keys": (0, "keys", False, {"read_before": True}),
    "erase": (0, "shared", True, {"read_before": True, "initial": True}),
    "three writes": (3, "keys", True, {"initial": True}),
    "two writes": (2, "shared", True, {}),
}


def data(kind, seed=0):
    """Arrays of several sizes: heads share queries, and rows the erase vectors."""
    num_writes, decay, erases, _ = KINDS[kind]
    rng = np.random.default_rng(seed)
    writes = (num_writes,) if num_writes else ()
    arrays = {
        "query": rng.standard_normal((T, B, 1, K)),
        "key": rng.standard_normal((T, B, H, *writes, K)),
        "value": rng.standard_normal((T, B, H, *writes, V)),
        "state": rng.standard_normal((B, H, K, V)),
    }
    if decay:
        shape = (T, 1, H) if decay == "shared" else (T, B, H, K)
        # A step that forgets nearly all, and one that forgets all.
        arrays["log_decay"] = -rng.exponential(size=shape)
        arrays["log_decay"][3], arrays["log_decay"][7, 0, 0] = -300, -np.inf
    if erases:
        arrays["erase"] = 0.5 * rng.standard_normal((T, 1, H, *writes, K))
    if KINDS[kind][3].get("initial"):
        arrays["initial"] = rng.standard_normal((H, K, V))
    mask, reset = rng.random((T, B)) < 0.7, rng.random((T, B)) < 0.25
    return arrays, mask, reset


def loop(arrays, mask, reset, read_before=False):
    """Numbers one after another, from the definition."""
    query, key, value = (
        np.broadcast_to(arrays[name], (*np.shape(arrays[name])[:1], B, H, *tail))
        for name, tail in (
            ("query", (K,)),
            ("key", arrays["key"].shape[3:]),
            ("value", arrays["value"].shape[3:]),
        )
    )
    log_decay = np.asarray(arrays.get("log_decay", np.zeros((T, 1, 1))))
    log_decay = np.broadcast_to(log_decay.reshape(*log_decay.shape[:3], -1), (T, B, H, K))
    erase = np.broadcast_to(arrays.get("erase", np.zeros(())), key.shape)
    initial = np.broadcast_to(arrays.get("initial", np.zeros(())), (B, H, K, V))
    outputs, last = np.zeros((T, B, H, V)), np.array(arrays["state"])
    for b, h in np.ndindex(B, H):
        s = last[b, h]
        for t in range(T):
            s = initial[b, h] if reset[t, b] else s
            if not mask[t, b]:
                continue
            before, s = s, np.exp(log_decay[t, b, h])[:, None] * s
            writes = (
                np.reshape(leaf[t, b, h], (-1, leaf.shape[-1])) for leaf in (key, value, erase)
            )
            for k, v, e in zip(*writes, strict=True):
                s = s + np.outer(k, v - e @ s)
            outputs[t, b, h] = query[t, b, h] @ (before if read_before else s)
        last[b, h] = s
    return outputs, last


def run(kind, chunk_size, arrays, mask, reset):
    options = {name: on for name, on in KINDS[kind][3].items() if name != "initial"}
    return jr.matrix_scan(**arrays, **options, mask=mask, reset=reset, chunk_size=chunk_size)


def derivatives(kind, chunk_size, arrays, mask, reset):
    """Values, tangent and gradient."""

    def loss(arrays):
        outputs, last = run(kind, chunk_size, arrays, mask, reset)
        return jnp.sin(outputs).sum() + jnp.sin(2 * last).sum()

    tangents = jax.tree.map(lambda leaf: jnp.where(leaf > -jnp.inf, jnp.cos(leaf), 0), arrays)
    primal = lambda arrays: run(kind, chunk_size, arrays, mask, reset)  # noqa: E731
    return *jax.jvp(primal, (arrays,), (tangents,)), jax.grad(loss)(arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_derivatives_are_those_of_the_loop(x64, kind):
    arrays, mask, reset = data(kind)
    sizes = (1, 4, 5, None)

    @jax.jit
    def every(arrays, mask, reset):
        return [derivatives(kind, size, arrays, mask, reset) for size in sizes]

    in_sequence, *in_chunks = every(arrays, mask, reset)
    want = loop(arrays, mask, reset, KINDS[kind][3].get("read_before", False))
    for got, expected in zip(in_sequence[0], want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    for got in in_chunks:
        jax.tree.map(
            lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-11), got, in_sequence
        )
