"""The blocks of a step, against its Jacobian: outside of them it is zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxrnn.engine.evaluators.newton.coupling import coupled_blocks

N = 6
EACH = [[0], [1], [2], [3], [4], [5]]
ALL = [[0, 1, 2, 3, 4, 5]]
PAIRS = [[0, 1], [2, 3], [4, 5]]
HALVES = [[0, 1, 2], [3, 4, 5]]
ACROSS = [[0, 3], [1, 4], [2, 5]]


@jax.custom_jvp
def elementwise_by_name(h):
    return jnp.tanh(h)


@elementwise_by_name.defjvp
def _mixing_derivative(primals, tangents):
    return jnp.tanh(primals[0]), jnp.cumsum(tangents[0])


def in_a_loop(h):
    return lax.fori_loop(0, 2, lambda i, h: jnp.roll(h, 1), h)


W = jnp.arange(1.0, 37.0).reshape(N, N) / 36
STEPS = {
    "elementwise": (lambda h: jnp.tanh(h) * jax.nn.relu(h) ** 3 / (1 + h**2), EACH),
    "where and clip": (
        lambda h: jnp.where(h > 0.1, jnp.clip(h, -1, 0.5), jax.nn.softplus(h)),
        EACH,
    ),
    "constant": (jnp.ones_like, EACH),
    "one entry is dropped": (lambda h: h.at[:].mul(jnp.arange(6.0)), None),
    "product": (lambda h: h @ W, ALL),
    "heads": (
        lambda h: jnp.einsum("nk,nkj->nj", h.reshape(2, 3), W[:, :3].reshape(2, 3, 3)).ravel(),
        HALVES,
    ),
    "heads from the right": (
        lambda h: jnp.einsum("nkj,nk->jn", W[:, :3].reshape(2, 3, 3), h.reshape(2, 3)).T.ravel(),
        HALVES,
    ),
    "outer axes": (lambda h: jnp.einsum("ab,cb->ca", W[:2, :2], h.reshape(3, 2)).ravel(), PAIRS),
    "transposed": (lambda h: h.reshape(2, 3).T.reshape(-1), [[0], [1, 2, 3, 4], [5]]),
    "split and joined": (lambda h: jnp.concatenate([h[3:] * h[:3], jnp.tanh(h[:3])]), ACROSS),
    "every second": (lambda h: h.at[::2].add(h[1::2]), None),
    "strides": (lambda h: jnp.stack([h[::2] * h[1::2], h[1::2]], axis=1).ravel(), PAIRS),
    "padded": (
        lambda h: lax.pad(h[::2], 0.0, ((0, 1, 1),)) + lax.pad(h, 0.0, ((-2, 2, 0),)) * 0 + h,
        None,
    ),
    "reversed": (lambda h: jnp.flip(h), [[0, 5], [1, 4], [2, 3]]),
    "tiled": (lambda h: h + jnp.tile(h[:3], 2), ACROSS),
    "sums": (lambda h: h * jnp.repeat(h.reshape(3, 2).sum(1), 2, total_repeat_length=6), None),
    "sums of halves": (
        lambda h: (h.reshape(2, 3) - h.reshape(2, 3).mean(1, keepdims=True)).ravel(),
        HALVES,
    ),
    "running sums": (lambda h: jnp.cumsum(h.reshape(2, 3), axis=1).ravel(), HALVES),
    "normalised": (lambda h: jax.nn.softmax(h.reshape(3, 2)).ravel(), PAIRS),
    "sorted": (jnp.sort, ALL),
    "gathered": (lambda h: h[jnp.array([1, 0, 3, 2, 5, 4])], None),
    "in a loop": (in_a_loop, ALL),
    "in a branch": (
        lambda h: lax.cond(h[0] > 0, lambda h: h[::-1], jnp.tanh, h),
        [[0, 5], [1, 4], [2, 3]],
    ),
    "called": (jax.jit(lambda h: jax.checkpoint(jnp.sin)(h)), EACH),
    "a derivative that mixes": (elementwise_by_name, ALL),
    "reshaped in another order": (
        lambda h: lax.reshape(h.reshape(2, 3), (6,), dimensions=(1, 0)),
        [[0], [1, 2, 3, 4], [5]],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_outside_of_the_blocks_the_jacobian_is_zero(name):
    step, want = STEPS[name]
    h = jnp.linspace(-0.9, 1.3, N)
    program = jax.make_jaxpr(lambda tangent, h: jax.jvp(step, (h,), (tangent,))[1])(h, h)
    blocks = [block.tolist() for array in coupled_blocks(program.jaxpr, N) for block in array.T]
    assert sorted(sum(blocks, [])) == list(range(N))
    outside = np.ones((N, N), bool)
    for block in blocks:
        outside[np.ix_(block, block)] = False
    assert not np.asarray(jax.jacfwd(step)(h))[outside].any()
    # Where nothing is expected the blocks may be larger than they have to be.
    assert want is None or sorted(blocks) == want


def test_blocks_of_one_size_are_one_array():
    program = jax.make_jaxpr(lambda h: jnp.concatenate([h[1:3].sum()[None], h[1:3], h[3:]]))(
        jnp.ones(N)
    )
    shapes = [array.shape for array in coupled_blocks(program.jaxpr, N)]
    assert shapes == [(1, 3), (3, 1)]
