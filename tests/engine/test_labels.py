"""Labels say what a program mixes, and never leave out what its Jacobian has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxrnn.engine.labels import MANY, NONE, carry_labels

SIZE = 6


def heads(x):
    blocks = x.reshape(2, 3)
    return jnp.einsum("bk,bkj->bj", blocks, jnp.ones((2, 3, 3))).ravel()


def gates(x):
    r, z = jnp.split(jnp.concatenate([jnp.tanh(x), x * x]), 2)
    return jnp.where(r > 0, jnp.pad(z, (0, 1))[:-1], r[::-1][::-1])


def scanned(x):
    last, ys = lax.scan(lambda h, u: (h + x, h * u), x, jnp.ones((3, 1)))
    return last + ys[2]


def shifted_twice(x):
    return lax.scan(lambda h, _: (jnp.roll(h, 1), None), x, None, length=2)[0]


def looped(x):
    return lax.while_loop(
        lambda pair: pair[0] < 3, lambda pair: (pair[0] + 1, pair[1] * 2), (0, x)
    )[1]


def branched(x):
    return lax.cond(jnp.ones(1).sum() > 0, jnp.sin, lambda x: x[:1] * jnp.ones(SIZE), x)


def summed(x):
    return jnp.stack([x, 2 * x], 1).sum(1) + x.reshape(3, 2).T.reshape(2, 3).T.ravel()


EXACT = [heads, gates, scanned, summed, looped, lambda x: jnp.broadcast_to(x, (4, SIZE)).max(0)]
CAREFUL = [shifted_twice, branched, jnp.cumsum, jnp.sort, lambda x: x[jnp.argsort(x)]]


@pytest.mark.parametrize("function", [*EXACT, *CAREFUL])
def test_labels_cover_the_jacobian(function):
    x = jax.random.normal(jax.random.key(0), (SIZE,))
    program = jax.make_jaxpr(function)(x).jaxpr
    (labels,) = carry_labels(program, [np.arange(SIZE)])
    reads = np.array(jax.jacfwd(function)(x)) != 0
    for label, row in zip(labels, reads, strict=True):
        if label != MANY:
            assert set(np.flatnonzero(row)) <= {label}
    if function in EXACT:
        expected = [
            NONE if not row.any() else row.argmax() if row.sum() == 1 else MANY for row in reads
        ]
        assert labels.tolist() == expected


def test_what_is_read_from_elsewhere_has_no_label():
    program = jax.make_jaxpr(lambda x, w: (w * 2, x * w))(jnp.ones(2), jnp.ones(2)).jaxpr
    other, both = carry_labels(program, [np.arange(2), np.full(2, NONE)])
    assert other.tolist() == [NONE, NONE] and both.tolist() == [0, 1]
