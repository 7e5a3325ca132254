import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

# A letter is a real step and a capital starts a new sequence; "." is padding, and "," padding that
# starts a new sequence.
ROWS = ("abcd..", "..abcd", "a.bc.d", "abCdEf", ".aB,cD", "ab,...", "......")
SIGNS = np.array([list(row) for row in ROWS])
MASK = np.char.isalpha(SIGNS)
RESET = np.char.isupper(SIGNS) | (SIGNS == ",")
FORWARD, BACKWARD = jr.lstm(3), jr.elman(2)
LAYER = jr.bidirectional(FORWARD, BACKWARD)


def sequences(row):
    """The real steps of each sequence of a row, some of which may have none."""
    starts = [0, *np.flatnonzero(RESET[row]), RESET.shape[1]]
    spans = zip(starts, starts[1:], strict=False)
    return [np.arange(*span)[MASK[row, slice(*span)]] for span in spans]


@jax.jit
def alone(params, xs):
    """One sequence by itself, without flags, turned round by its own index."""
    onward = jr.unroll(FORWARD, params.forward, xs)
    turned = jr.unroll(BACKWARD, params.backward, xs[::-1])
    outputs = jnp.concatenate([onward.outputs, turned.outputs[::-1]], -1)
    return outputs, jr.layers.Directions(onward.carry, turned.carry)


def row_alone(params, xs, row):
    """The outputs of a row, and the carries at its two ends."""
    outputs, carries = jnp.zeros((xs.shape[1], 5)), []
    for steps in sequences(row):
        own_outputs, carry = alone(params, xs[row, steps])
        outputs = outputs.at[steps].set(own_outputs)
        carries.append(carry)
    return outputs, jr.layers.Directions(carries[-1].forward, carries[0].backward)


def each_alone(params, xs):
    rows = [row_alone(params, xs, row) for row in range(len(ROWS))]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


@jax.jit
def together(params, xs):
    rollout = jr.unroll(LAYER, params, xs, mask=MASK, reset=RESET)
    return rollout.outputs, rollout.carry


def with_gradients(run, params, xs):
    def loss(params, xs):
        rolled = run(params, xs)
        leaves = jax.tree.leaves(rolled)
        return sum(jnp.sum(jnp.sin((1 + i) * leaf)) for i, leaf in enumerate(leaves)), rolled

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, xs)


def test_padding_and_resets_give_what_every_sequence_gives_alone(x64):
    params = LAYER.init(jax.random.key(0), 3)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
    xs = jax.random.normal(jax.random.key(1), (*MASK.shape, 3))
    poisoned = jnp.where(MASK[..., None], xs, jnp.nan)
    pairs = with_gradients(together, params, poisoned), with_gradients(each_alone, params, xs)
    assert jax.tree.structure(pairs[0]) == jax.tree.structure(pairs[1])
    for leaf, wanted in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-10, atol=1e-12)


def sums():
    """Running sums from both ends."""
    one = jnp.ones((1, 1))
    params = jr.cells.ElmanParams(one, one, jnp.zeros(1))
    return jr.elman(1, activation=lambda u: u), jr.layers.Directions(params, params)


@pytest.mark.parametrize(
    ("merge", "want"),
    [
        ("concat", [[1, 6], [3, 5], [6, 3]]),
        ("sum", [[7], [8], [9]]),
        ("mean", [[3.5], [4], [4.5]]),
        (lambda forward, backward: forward * backward, [[6], [15], [18]]),
        (
            lambda forward, backward: jnp.concatenate([forward, backward, -forward], -1),
            [[1, 6, -1], [3, 5, -3], [6, 3, -6]],
        ),
    ],
    ids=["concat", "sum", "mean", "product", "three"],
)
def test_merges_of_running_sums(merge, want):
    cell, params = sums()
    layer = jr.bidirectional(cell, merge=merge)
    outputs = jr.unroll(layer, params, jnp.array([[1.0], [2.0], [3.0]])).outputs
    np.testing.assert_array_equal(outputs, want)
    assert layer.num_outputs(1) == np.shape(want)[1]


def test_the_architecture_is_copied_and_the_parameters_are_not():
    params = jr.bidirectional(jr.lstm(3)).init(jax.random.key(0), 2)
    assert jax.tree.map(jnp.shape, params.forward) == jax.tree.map(jnp.shape, params.backward)
    assert (params.forward.kernel != params.backward.kernel).any()


def test_both_directions_draw_from_keys_of_their_own():
    layer = jr.bidirectional(jr.dropout(0.5, variational=True), merge="sum")
    params = jr.layers.Directions((), ())
    outputs = jr.unroll(layer, params, jnp.ones((50, 2, 40)), key=jax.random.key(0)).outputs
    # One mask for both, the same for all steps, would give 0 and 4 alone. Five sigma of the share
    # of 2 are 0.06.
    assert abs(np.mean(np.asarray(outputs) == 2) - 0.5) < 0.06


def test_a_stack_of_layers_in_each_direction():
    inner = jr.serial(jr.embed(3), jr.elman(4))
    layer = jr.bidirectional(inner, jr.serial(jr.embed(2), jr.lstm(4)), merge="mean")
    params = layer.init(jax.random.key(0), 9)
    xs = jnp.array([[1, 8, 0, 4]])
    onward = jr.unroll(inner, params.forward, xs).outputs
    turned = jr.unroll(jr.serial(jr.embed(2), jr.lstm(4)), params.backward, xs[:, ::-1]).outputs
    want = (onward + turned[:, ::-1]) / 2
    np.testing.assert_allclose(jr.unroll(layer, params, xs).outputs, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [0, 1])
def test_few_steps(length):
    params = LAYER.init(jax.random.key(0), 3)
    xs = jnp.ones((2, length, 3))
    reset = jnp.ones((2, length), bool)
    rollout = jr.unroll(LAYER, params, xs, reset=reset)
    assert rollout.outputs.shape == (2, length, 5)
    want = (FORWARD, params.forward), (BACKWARD, params.backward)
    for carry, (cell, own) in zip(rollout.carry, want, strict=True):
        wanted = jr.unroll(cell, own, xs).carry
        for leaf, wanted_leaf in zip(*map(jax.tree.leaves, (carry, wanted)), strict=True):
            np.testing.assert_allclose(leaf, wanted_leaf, rtol=1e-6)


@pytest.mark.parametrize("layer", [LAYER, jr.recurrent(jr.elman(2), reverse=True)])
def test_no_streaming(layer):
    params = layer.init(jax.random.key(0), 3)
    carry = layer.initial_carry(params, (2,))
    with pytest.raises(ValueError, match="model must be causal to stream"):
        jr.step(layer, params, carry, jnp.ones((2, 3)))


@pytest.mark.parametrize("merge", ["sum", "mean"])
@pytest.mark.parametrize("num_units", [1, 2])
def test_other_widths_raise(merge, num_units):
    layer = jr.bidirectional(jr.elman(3), jr.elman(num_units), merge=merge)
    match = rf'backward must have the width of forward for merge "sum".*got {num_units} and 3'
    params = jr.bidirectional(jr.elman(3), jr.elman(num_units)).init(jax.random.key(0), 3)
    for call in (
        lambda: layer.num_outputs(3),
        lambda: layer.init(jax.random.key(0), 3),
        lambda: jr.unroll(layer, params, jnp.ones((4, 3))),
    ):
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize(
    "merge",
    [lambda y, other: (y, other), lambda y, other: y.sum(), lambda y, other: y.sum(0)],
    ids=["tuple", "scalar", "over steps"],
)
def test_a_merge_must_return_one_array_of_all_steps(merge):
    layer = jr.bidirectional(jr.elman(3), merge=merge)
    with pytest.raises(ValueError, match=r"merge must return one array \(1,\) \+ \(width,\)"):
        layer.init(jax.random.key(0), 3)


def test_errors_name_the_argument():
    cell = jr.elman(3)
    with pytest.raises(TypeError, match="forward must be a Cell or a Layer, got int"):
        jr.bidirectional(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="backward must be a Cell or a Layer, got str"):
        jr.bidirectional(cell, "concat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="merge must be one of .*'concat', 'sum', 'mean'.*'mul'"):
        jr.bidirectional(cell, merge="mul")
    with pytest.raises(ValueError, match="merge must be one of"):
        jr.bidirectional(jr.elman(2), merge=["sum"])
    with pytest.raises(ValueError, match="backward must be causal"):
        jr.bidirectional(cell, jr.recurrent(cell, reverse=True))
    with pytest.raises(ValueError, match="forward must be causal"):
        jr.bidirectional(jr.bidirectional(cell), cell)
    with pytest.raises(ValueError, match="backward must take the same .* num_feature_axes 0 for 1"):
        jr.bidirectional(cell, jr.embed(3))
