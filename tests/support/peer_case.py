"""One batch of unequal rows, and what is compared on it: outputs, last carry, gradients."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr

# For H = 5 the CPU compiler of jaxlib 0.10.2 makes a wrong gradient, on AVX-512 and in float64 with
# these B and T, of equinox's GRU as well as of a reset-before GRU here; without its fusion
# emitters, and op by op, the gradient is right.
B, T, D, H, P = 4, 7, 3, 6, 2
LENGTHS = np.array([4, 7, 1, 5])
RIGHT = np.arange(T) < LENGTHS[:, None]
# Interior and left padding, a full row and an empty one.
ANY = np.array(
    [[1, 0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]],
    bool,
)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def inputs():
    return normal(0, B, T, D)


def random_like(tree, seed):
    """Normal numbers in the place of every leaf, float64."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(
        jnp.asarray(normal(seed + index, *leaf.shape)) for index, leaf in enumerate(leaves)
    )


def random_params(cell, scale=0.7):
    """Parameters of which none is zero, so that every term takes part."""
    params = jax.eval_shape(lambda key: cell.init(key, D), jax.random.key(0))
    return jax.tree.map(lambda leaf: scale * leaf, random_like(params, 100))


def random_carry(cell, params):
    carry = jax.eval_shape(lambda: cell.initial_carry(params, (B,)))
    return jax.tree.map(lambda leaf: 0.5 * leaf, random_like(carry, 200))


def weights(tree):
    """What outputs and carries are weighed with, so that every number reaches the gradients."""
    return [normal(300 + index, *leaf.shape) for index, leaf in enumerate(jax.tree.leaves(tree))]


def weighted(tree):
    pairs = zip(weights(tree), jax.tree.leaves(tree), strict=True)
    return sum(jnp.sum(weight * leaf) for weight, leaf in pairs)


def evaluate(run, params, xs, carry):
    """`(outputs, last carry)` of a run and the gradients of params, xs and carry."""

    def loss(params, xs, carry):
        rolled = run(params, xs, carry)
        return weighted(rolled), rolled

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    gradients, rolled = gradient(params, xs, carry)
    return rolled, gradients


def ours(model, mask=None, **options):
    """The run of a cell or layer, for `evaluate`."""

    def run(params, xs, carry):
        rollout = jr.unroll(model, params, xs, carry=carry, mask=mask, **options)
        return rollout.outputs, rollout.carry

    return run


def assert_close(got, want):
    """Float64 agreement, leaf by leaf, whatever the classes of the nodes."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    for got_leaf, want_leaf in zip(got, want, strict=True):
        assert got_leaf.dtype == jnp.float64, got_leaf.dtype
        np.testing.assert_allclose(got_leaf, want_leaf, rtol=1e-10, atol=1e-12)
