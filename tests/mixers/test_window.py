import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.mixers._window import empty_window, through_window
from jaxrnn.testing import check_layer


def seen_by(window, xs, mask=None, reset=None):
    """What `read` is given for one row, and the window behind it."""
    given = {}

    def read(steps, sequence, own):
        given.update(steps=steps, sequence=sequence)
        return own

    xs = jnp.asarray(xs, jnp.float32)
    mask, reset = (None if flag is None else jnp.array(flag, bool) for flag in (mask, reset))
    window, ys = through_window(read, window, jr.Steps(xs, mask, reset), current=10 * xs)
    return given["steps"], given["sequence"], window, ys


def empty(size):
    return empty_window(jax.ShapeDtypeStruct((), jnp.float32), size, ())


def test_padding_goes_to_the_end_and_resets_count_sequences():
    steps, sequence, window, ys = seen_by(
        empty(3), [1, 2, 3, 4, 5, 6], mask=[0, 1, 1, 0, 1, 0], reset=[0, 0, 1, 1, 0, 0]
    )
    np.testing.assert_array_equal(steps, [0, 0, 0, 2, 3, 5, 1, 4, 6])
    np.testing.assert_array_equal(sequence, [-1, -1, -1, 0, 1, 2, -1, -1, -1])
    np.testing.assert_array_equal(ys, [0, 20, 30, 0, 50, 0])
    np.testing.assert_array_equal(window.steps, [0, 0, 5])
    assert window.count == 1


def test_the_carried_steps_stand_in_front():
    _, _, window, _ = seen_by(empty(3), [1, 2])
    np.testing.assert_array_equal(window.steps, [0, 1, 2])
    steps, sequence, window, _ = seen_by(window, [3, 4], reset=[0, 0])
    np.testing.assert_array_equal(steps, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(sequence, [-1, 0, 0, 0, 0])
    np.testing.assert_array_equal(window.steps, [2, 3, 4])
    assert window.count == 3


def test_no_steps_and_a_reset_on_padding():
    _, _, window, _ = seen_by(empty(2), [1, 2])
    for mask, reset in ((None, None), ([], [])):
        _, _, after, ys = seen_by(window, [], mask=mask, reset=reset)
        assert ys.shape == (0,)
        np.testing.assert_array_equal(after.steps, window.steps)
        assert after.count == window.count
    _, _, after, _ = seen_by(window, [7], mask=[0], reset=[1])
    np.testing.assert_array_equal(after.steps, [0, 0])
    assert after.count == 0


def stack():
    attention = jr.self_attention(1, window=3, head_width=2)
    return jr.serial(jr.causal_conv(2, jnp.tanh), jr.residual(attention))


@pytest.mark.parametrize("both_ways", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_laws_in_a_stack(both_ways):
    check_layer(jr.bidirectional(stack()) if both_ways else stack())


def test_a_stream_compiles_once():
    traces = []
    layer = stack()

    def unroll(*args):
        traces.append(args)
        return layer.unroll(*args)

    counted = layer._replace(unroll=unroll)
    params = counted.init(jax.random.key(0), 2)
    carry = counted.initial_carry(params, (3,))
    for t in range(4):
        carry, _ = jr.step(counted, params, carry, jnp.full((3, 2), t, jnp.float32))
        assert len(traces) == 1


def test_rows_under_vmap_are_the_batch():
    layer = stack()
    params = layer.init(jax.random.key(0), 2)
    xs = jax.random.normal(jax.random.key(1), (3, 9, 2))
    mask, reset = np.random.default_rng(0).random((2, 3, 9)) < 0.5

    def run(xs, mask, reset):
        return jr.unroll(layer, params, xs, mask=mask, reset=reset)

    for got, want in zip(
        *map(jax.tree.leaves, (jax.vmap(run)(xs, mask, reset), run(xs, mask, reset))), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
