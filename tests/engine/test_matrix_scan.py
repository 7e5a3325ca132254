"""`matrix_scan` against a loop in numpy, whose derivatives are complex steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes

from jaxrnn.engine.matrix_scan import matrix_scan

T, B, H, K, V = 11, 3, 2, 3, 2
# name: writes in each step (None has no axis of writes), decay, whether it erases, options
KINDS = {
    "shared decay": (None, "shared", False, {"initial"}),
    "decay of channels": (None, "channels", False, {"read_before"}),
    "erase without decay": (None, None, True, {"read_before", "initial"}),
    "three writes": (3, "channels", True, {"initial"}),
    "two writes": (2, "shared", True, set()),
}


def data(kind):
    """Heads share queries, and rows share decays and erase vectors."""
    num_writes, decay, erases, options = KINDS[kind]
    rng = np.random.default_rng(0)
    writes = (num_writes,) if num_writes else ()
    arrays = {
        "query": rng.standard_normal((T, B, 1, K)),
        "key": rng.standard_normal((T, B, H, *writes, K)),
        "value": rng.standard_normal((T, B, H, *writes, V)),
        "state": rng.standard_normal((B, H, K, V)),
    }
    if decay:
        shape = (T, 1, H) if decay == "shared" else (T, B, H, K)
        arrays["log_decay"] = -rng.exponential(size=shape)
        # A step that forgets nearly all, and one that forgets all.
        arrays["log_decay"][3], arrays["log_decay"][7, 0, 0] = -300, -np.inf
    if erases:
        arrays["erase"] = 0.5 * rng.standard_normal((T, 1, H, *writes, K))
    if "initial" in options:
        arrays["initial"] = rng.standard_normal((H, K, V))
    return arrays, rng.random((T, B)) < 0.7, rng.random((T, B)) < 0.25


def loop(arrays, mask, reset, read_before):
    """Numbers one after another, from the definition."""

    def every(name, *features):
        return np.broadcast_to(arrays.get(name, np.zeros(())), (T, B, H, *features))

    key, value = every("key", *arrays["key"].shape[3:]), every("value", *arrays["value"].shape[3:])
    query, erase = every("query", K), every("erase", *key.shape[3:])
    log_decay = arrays.get("log_decay", np.zeros((T, 1, 1)))
    log_decay = np.broadcast_to(log_decay.reshape(*log_decay.shape[:3], -1), (T, B, H, K))
    initial = np.broadcast_to(arrays.get("initial", np.zeros(())), (B, H, K, V))
    last = np.array(arrays["state"])
    outputs = np.zeros((T, B, H, V), last.dtype)
    for b, h in np.ndindex(B, H):
        s = last[b, h]
        for t in range(T):
            s = initial[b, h] if reset[t, b] else s
            if not mask[t, b]:
                continue
            before, s = s, np.exp(log_decay[t, b, h])[:, None] * s
            writes = (leaf[t, b, h].reshape(-1, leaf.shape[-1]) for leaf in (key, value, erase))
            for k, v, e in zip(*writes, strict=True):
                s = s + np.outer(k, v - e @ s)
            outputs[t, b, h] = query[t, b, h] @ (before if read_before else s)
        last[b, h] = s
    return outputs, last


def run(kind, chunk_size, arrays, mask, reset):
    options = {"read_before": True} if "read_before" in KINDS[kind][3] else {}
    return matrix_scan(**arrays, **options, mask=mask, reset=reset, chunk_size=chunk_size)


def loss(results):
    return sum(np.sin(leaf).sum() for leaf in results)


def gradient(kind, chunk_size, arrays, mask, reset):
    def result(arrays):
        outputs, last = run(kind, chunk_size, arrays, mask, reset)
        finite = (jnp.where(jnp.isfinite(leaf), leaf, 0) for leaf in (outputs, last))
        return sum(jnp.sin(leaf).sum() for leaf in finite), (outputs, last)

    return jax.grad(result, has_aux=True)(arrays)


def assert_close(got, want):
    jax.tree.map(
        lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-11), tuple(got), want
    )


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_derivatives_are_those_of_the_loop(x64, kind):
    arrays, mask, reset = data(kind)
    tangents = {name: np.sin(np.nan_to_num(leaf, neginf=0)) for name, leaf in arrays.items()}

    @jax.jit
    def compiled(arrays, tangents, mask, reset):
        gradients = [gradient(kind, size, arrays, mask, reset) for size in (1, 4, None)]
        in_chunks = functools.partial(run, kind, 4, mask=mask, reset=reset)
        return gradients, jax.jvp(lambda arrays: in_chunks(arrays=arrays), (arrays,), (tangents,))[
            1
        ]

    gradients, tangent = compiled(arrays, tangents, mask, reset)
    step = 1e-30
    moved = {name: arrays[name] + 1j * step * tangents[name] for name in arrays}
    want = loop(moved, mask, reset, "read_before" in KINDS[kind][3])
    assert_close(tangent, tuple(leaf.imag / step for leaf in want))
    for of_arrays, results in gradients:
        assert_close(results, tuple(leaf.real for leaf in want))
        assert_close(of_arrays.values(), tuple(gradients[0][0].values()))
        slope = sum((of_arrays[name] * tangents[name]).sum() for name in arrays)
        np.testing.assert_allclose(slope, loss(want).imag / step, rtol=1e-9)


@pytest.mark.parametrize("kind", ["shared decay", "three writes"])
def test_what_is_not_finite_stays_in_its_sequence(x64, kind):
    arrays, mask, _ = data(kind)
    arrays = {name: np.nan_to_num(leaf, neginf=-9.0) for name, leaf in arrays.items()}
    mask[:, :2], reset = True, np.zeros((T, B), bool)
    mask[8, 0], reset[6, 0] = False, True
    dirty = jax.tree.map(np.copy, arrays)
    dirty["value"][2, 0], dirty["key"][8, 0] = np.inf, np.nan
    dirty["query"][4, 1], dirty["state"][2] = np.nan, np.nan
    unknown = np.zeros((T, B), bool)
    unknown[2:6, 0] = unknown[4, 1] = unknown[:, 2] = True
    known = ~(unknown | ~mask)

    compiled = jax.jit(functools.partial(gradient, kind, 4))
    want_gradient, (want, want_last) = compiled(arrays, mask, reset)
    got_gradient, (got, got_last) = compiled(dirty, mask, reset)
    assert np.isnan(got[unknown & mask]).all()
    assert_close((got[known], got_last[:2]), (want[known], want_last[:2]))
    assert np.isnan(got_last[2]).all()
    # After the reset of row 0, and of the row whose query alone is not finite.
    for name in ("key", "value"):
        assert_close(
            (got_gradient[name][6:, 0], got_gradient[name][5:, 1]),
            (want_gradient[name][6:, 0], want_gradient[name][5:, 1]),
        )
        assert np.isfinite(got_gradient[name]).all()


def test_memory_is_that_of_a_state_for_each_chunk():
    def temporary(num_steps):
        rows = jax.ShapeDtypeStruct((num_steps, 1, 8), jnp.float32)
        return temporary_bytes(
            jax.grad(lambda *qkv: matrix_scan(*qkv, chunk_size=64)[0].sum(), (0, 1, 2)),
            *(rows, rows, rows),
        )

    # A state for each step would take 4 MiB.
    assert temporary(2**14) < 2**21


def test_rows_dtypes_and_lengths():
    ones = functools.partial(jnp.ones, dtype=jnp.bfloat16)
    for rows in ((), (2,), (2, 1, 3)):
        for num_steps in (0, 1, 70):
            features = ones((num_steps, *rows, 4))
            outputs, state = jax.eval_shape(matrix_scan, features, features, features[..., :2])
            assert (outputs.shape, outputs.dtype) == ((num_steps, *rows, 2), jnp.float32)
            assert state.shape == (*rows, 4, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"query": np.ones(3)}, ValueError, r"query must have the shape \[T, ..., K\]"),
        ({"key": np.ones((5, 2, 4))}, ValueError, r"key must have the shape \(5, 2, 3\)"),
        ({"value": np.ones((4, 2, 2))}, ValueError, "must have the shape"),
        ({"log_decay": np.ones((5, 2, 2))}, ValueError, "log_decay must have the shape"),
        ({"erase": np.ones((5, 2, 1, 3))}, ValueError, "erase must have the shape"),
        ({"state": np.ones((2, 2, 2))}, ValueError, "state must broadcast to the shape"),
        ({"initial": np.ones(3)}, ValueError, "initial must broadcast to the shape"),
        ({"mask": np.ones(4)}, ValueError, "mask"),
        ({"reset": True}, ValueError, "reset must have the shape"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"read_before": 1}, TypeError, "read_before must be True or False"),
        ({"value": 1j * np.ones((5, 2, 2))}, TypeError, "takes real arrays"),
    ],
)
def test_errors_name_the_argument(options, error, message):
    arrays = {"query": np.ones((5, 2, 3)), "key": np.ones((5, 2, 3)), "value": np.ones((5, 2, 2))}
    with pytest.raises(error, match=message):
        matrix_scan(**(arrays | options))
