"""The loop of `linear_scan` is one kernel on CPU, and plain everywhere else."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import compiled_with_defaults

import jaxrnn as jr

MARK = "xla_cpu_small_call"
METHODS = ("sequential", "auto")


def gradient(method, a, b):
    def loss(a, b):
        return (jr.linear_scan(a, b, method=method) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1))(a, b)


def coefficients(dtype=jnp.float32):
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.uniform(-1, 1, (40, 6)), dtype) for _ in range(2))


@pytest.mark.parametrize("method", METHODS)
def test_both_directions_are_marked_and_the_mark_stays(method):
    compiled = compiled_with_defaults(functools.partial(gradient, method), *coefficients())
    # Without `inlineable`, those that XLA marks itself because the loop is short.
    ours = 'inlineable="false",' + f'{MARK}="true"'
    calls = [line for line in compiled.as_text().splitlines() if " call(" in line and ours in line]
    assert len(calls) == 2


def test_the_mark_is_seen_without_jit_and_under_vmap():
    from jaxrnn.engine.linear_scan import _sequential

    a, b = coefficients()
    h0 = jnp.zeros_like(b[0])
    program = jax.make_jaxpr(lambda: _sequential(a, b, h0, None))()
    assert MARK in str(program)
    batched = compiled_with_defaults(jax.vmap(jr.linear_scan), a[None], b[None])
    assert f'{MARK}="true"' in batched.as_text()


def test_a_wide_step_is_left_to_all_cores():
    def program(width):
        xs = jax.ShapeDtypeStruct((3, width), jnp.float32)
        return jax.jit(jr.linear_scan).lower(xs, xs).as_text()

    assert MARK in program(2**16 - 1)
    assert MARK not in program(2**16)


def test_a_symbolic_batch_is_exported_without_the_mark():
    (batch,) = jax.export.symbolic_shape("batch")
    xs = jax.ShapeDtypeStruct((batch, 7, 3), jnp.float32)
    program = jax.jit(jax.grad(lambda xs: jr.linear_scan(xs, xs).sum()))
    exported = jax.export.export(program)(xs)
    assert MARK not in exported.mlir_module()
    ones = jnp.ones((2, 7, 3))
    np.testing.assert_allclose(exported.call(ones), program(ones), rtol=1e-6)


def test_without_jit_at_all():
    a, b = coefficients()
    with jax.disable_jit():
        got = jr.linear_scan(a, b)
    np.testing.assert_allclose(got, jr.linear_scan(a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("tpu",), ("cpu", "cuda", "tpu")])
def test_it_is_for_cpu_alone(platforms):
    program = jax.jit(gradient, static_argnums=0)
    exported = jax.export.export(program, platforms=platforms)("auto", *coefficients())
    assert (MARK in exported.mlir_module()) == ("cpu" in platforms)
    if "cpu" in platforms:
        got, want = exported.call(*coefficients()), gradient("associative", *coefficients())
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64])
@pytest.mark.parametrize("flags", [False, True])
def test_every_kind_of_number(dtype, flags):
    a, b = coefficients(dtype)
    mask, reset = (jnp.arange(40) % 7 != 3, jnp.arange(40) % 11 == 5) if flags else (None, None)
    got = jr.linear_scan(a, b, mask=mask, reset=reset, method="sequential")
    h, want = jnp.zeros_like(b[0]), []
    for t in range(40):
        h = jnp.zeros_like(h) if flags and reset[t] else h
        h = a[t] * h + b[t] if not flags or mask[t] else h
        want.append(h)
    assert got.dtype == dtype
    tolerance = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        got.astype(jnp.complex64), jnp.stack(want).astype(jnp.complex64), tolerance, tolerance
    )
