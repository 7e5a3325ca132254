import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

T = 8
STACK = jr.serial(
    jr.embed(4),
    jr.lstm(5, layer_norm=True),
    jr.layer_norm(),
    jr.residual(jr.elman(5)),
    jr.dropout(0.5),
    jr.dense(3, jax.nn.gelu),
)


@pytest.fixture
def case(x64):
    """Params of the stack in float64, tokens, and flags with every kind of padding and resets."""
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), STACK.init(jax.random.key(0), 7))
    xs = jax.random.randint(jax.random.key(1), (4, T), 0, 7)
    mask = jnp.array([[1] * 8, [1] * 5 + [0] * 3, [0, 0, 1, 0, 1, 1, 0, 1], [0] * 8])
    reset = jnp.zeros((4, T)).at[(0, 0, 1, 2), (2, 6, 0, 3)].set(1)
    return params, xs, {"mask": mask, "reset": reset}


def assert_same(got, want):
    for leaf, wanted in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-12, atol=1e-12)


def test_worked_numbers():
    """A running sum, doubled, and a half added: of 1, 2, 0 with a reset at the last step."""
    layer = jr.serial(jr.elman(1, activation=lambda u: u), jr.dense(1))
    one = jnp.ones((1, 1))
    params = (
        jr.cells.ElmanParams(one, one, jnp.zeros(1)),
        jr.layers.DenseParams(2 * one, jnp.array([0.5])),
    )
    xs, reset = jnp.array([[1.0], [2.0], [0.0]]), jnp.array([0, 0, 1])
    rollout = jr.unroll(layer, params, xs, reset=reset)
    np.testing.assert_array_equal(rollout.outputs[:, 0], [2.5, 6.5, 0.5])
    assert rollout.carry == (jr.cells.ElmanCarry(jnp.zeros(1)), ())
    assert [getattr(info, "evaluator", info) for info in rollout.info] == [jr.sequential(), ()]


def test_it_is_one_call_after_another(case):
    params, xs, flags = case
    want = xs
    layers = (
        jr.embed(4),
        jr.lstm(5, layer_norm=True),
        jr.layer_norm(),
        jr.residual(jr.elman(5)),
        jr.dense(3, jax.nn.gelu),
    )
    for layer, own in zip(layers, params[:4] + params[5:], strict=True):
        want = jr.unroll(layer, own, want, **flags).outputs
    assert_same(jr.unroll(STACK, params, xs, **flags).outputs, want)


def test_streaming_is_unrolling(case):
    params, xs, flags = case
    want = jr.unroll(STACK, params, xs, **flags)
    carry = STACK.initial_carry(params, (4,))
    for t in range(T):
        now = {name: flag[:, t] for name, flag in flags.items()}
        carry, y = jr.step(STACK, params, carry, xs[:, t], **now)
        assert_same(y, want.outputs[:, t])
    assert_same(carry, want.carry)


def test_chunks_are_one_sequence(case):
    params, xs, flags = case
    want = jr.unroll(STACK, params, xs, **flags)
    carry, outputs = None, []
    for span in (np.s_[:, :1], np.s_[:, 1:4], np.s_[:, 4:4], np.s_[:, 4:]):
        now = {name: flag[span] for name, flag in flags.items()}
        rollout = jr.unroll(STACK, params, xs[span], carry=carry, **now)
        carry = rollout.carry
        outputs.append(rollout.outputs)
    assert_same((jnp.concatenate(outputs, 1), carry), (want.outputs, want.carry))


def test_init_hands_widths_on():
    params = STACK.init(jax.random.key(0), 7)
    assert [type(own).__name__ for own in params] == [
        "EmbedParams",
        "LSTMParams",
        "LayerNormParams",
        "ElmanParams",
        "tuple",
        "DenseParams",
    ]
    assert params[0].table.shape == (7, 4)
    assert params[1].kernel.shape == (4, 20)
    assert params[-1].kernel.shape == (5, 3)
    assert STACK.num_outputs(7) == 3
    assert (STACK.causal, STACK.num_feature_axes) == (True, 0)
    twice = jr.serial(jr.dense(3), jr.dense(3)).init(jax.random.key(0), 3)
    assert (twice[0].kernel != twice[1].kernel).any()


def test_every_layer_draws_from_a_key_of_its_own():
    layer = jr.serial(jr.dropout(0.5), jr.dropout(0.5))
    outputs = jr.unroll(layer, ((), ()), jnp.ones((50, 40)), key=jax.random.key(0)).outputs
    # Both keep with probability 1/4; one mask for both would keep 1/2. Five sigma are 0.05.
    assert abs(np.mean(np.asarray(outputs) == 4) - 0.25) < 0.05


@pytest.mark.parametrize(
    "inner", [jr.bidirectional(jr.elman(2)), jr.recurrent(jr.elman(2), reverse=True)]
)
def test_one_layer_that_sees_the_future_ends_streaming(inner):
    layer = jr.serial(jr.lstm(3), jr.serial(inner))
    assert not layer.causal
    params = layer.init(jax.random.key(0), 3)
    carry = layer.initial_carry(params, (2,))
    with pytest.raises(ValueError, match="model must be causal to stream"):
        jr.step(layer, params, carry, jnp.ones((2, 3)))
    assert jnp.isfinite(jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs).all()


def test_bfloat16_inputs_are_rounded_once():
    layer = jr.serial(jr.elman(4), jr.layer_norm(), jr.dense(4))
    params = layer.init(jax.random.key(0), 3)
    xs = jax.random.normal(jax.random.key(1), (20, 3), jnp.bfloat16)
    wide = jr.unroll(layer, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_array_equal(jr.unroll(layer, params, xs).outputs, wide.astype(jnp.bfloat16))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="layers must hold at least one cell or layer, got none"):
        jr.serial()
    with pytest.raises(TypeError, match=r"layers\[1\] must be a Cell or a Layer, got str"):
        jr.serial(jr.lstm(3), "tanh")  # pyright: ignore[reportArgumentType]
    layer = jr.serial(jr.elman(3), jr.dense(2))
    params = layer.init(jax.random.key(0), 3)
    xs = jnp.ones((5, 3))
    for wrong in (params[:1], (*params, ())):
        with pytest.raises(TypeError, match="params must have the structure .*ElmanParams"):
            jr.unroll(layer, wrong, xs)
        match = f"params must have one entry for each of the 2 layers, got {len(wrong)}"
        with pytest.raises(ValueError, match=match):
            layer.initial_carry(wrong)
    with pytest.raises(TypeError, match="carry must have the structure"):
        jr.unroll(layer, params, xs, carry=layer.initial_carry(params)[:1])
