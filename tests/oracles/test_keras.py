import jax
import jax.numpy as jnp
import pytest
from support.peer_case import (
    ANY,
    RIGHT,
    B,
    D,
    H,
    T,
    assert_close,
    evaluate,
    inputs,
    normal,
    ours,
    random_carry,
    random_params,
)

import jaxrnn as jr
from jaxrnn.interop._keras_export import weights_of

keras = pytest.importorskip("keras", reason="needs keras")


@keras.saving.register_keras_serializable()
def tanh(x):
    """In place of Keras's own, which rounds float64 to float32."""
    return jnp.tanh(x)


# Keras's layer, its options, and the cell.
KINDS = {
    "tanh": (keras.layers.SimpleRNN, {"activation": tanh}, lambda: jr.elman(H)),
    "relu": (keras.layers.SimpleRNN, {"activation": "relu"}, lambda: jr.elman(H, jax.nn.relu)),
    "lstm": (keras.layers.LSTM, {"activation": tanh, "use_cudnn": False}, lambda: jr.lstm(H)),
    "gru": (
        keras.layers.GRU,
        {"activation": tanh, "reset_after": True, "use_cudnn": False},
        lambda: jr.gru(H),
    ),
    "gru before": (
        keras.layers.GRU,
        {"activation": tanh, "reset_after": False, "use_cudnn": False},
        lambda: jr.gru(H, reset_after=False),
    ),
}
MASKS = {"full": None, "right": RIGHT, "any": ANY}


def layer_of(name, **more):
    factory, options, _ = KINDS[name]
    options = {"return_sequences": True, "zero_output_for_mask": True, **options, **more}
    return factory(H, dtype="float64", **options)


def call(layer, weights, xs, mask, **options):
    layer.build(xs.shape)
    constants = layer.non_trainable_variables
    outputs, _ = layer.stateless_call(weights, constants, xs, mask=mask, **options)
    return outputs


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", KINDS)
def test_outputs_carry_and_every_gradient(x64, name, mask):
    cell = KINDS[name][2]()
    params = random_params(cell)
    carry = random_carry(cell, params)
    layer = layer_of(name, return_state=True)

    def run(params, xs, carry):
        weights = weights_of(params)
        states = list(carry)
        outputs, *last = call(layer, weights, xs, mask, initial_state=states)
        return outputs, type(carry)(*last)

    got = evaluate(ours(cell, mask), params, inputs(), carry)
    assert_close(got, evaluate(run, params, inputs(), carry))


@pytest.mark.parametrize("name", ["lstm", "gru before"])
def test_without_zeros_for_masked_steps_keras_repeats_the_last_output(x64, name):
    cell = KINDS[name][2]()
    params = random_params(cell)
    outputs = call(
        layer_of(name, zero_output_for_mask=False),
        weights_of(params),
        jnp.asarray(inputs()),
        ANY,
    )
    carries = jr.carries(cell, params, inputs(), mask=ANY).h
    # Keras gives zeros before the first real step, where the carry is zero as well.
    assert_close(carries, outputs)


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize(("merge", "keras_merge"), [("concat", "concat"), ("mean", "ave")])
def test_both_directions_under_any_mask(x64, name, merge, keras_merge):
    cell = KINDS[name][2]()
    layer = jr.bidirectional(cell, merge=merge)
    params = jr.layers.Directions(random_params(cell), random_params(cell, scale=-0.5))
    both = keras.layers.Bidirectional(layer_of(name), merge_mode=keras_merge, dtype="float64")

    def run(params, xs, carry):
        weights = [leaf for direction in params for leaf in weights_of(direction)]
        return call(both, weights, xs, ANY)

    def ours_without_carry(params, xs, carry):
        return jr.unroll(layer, params, xs, mask=ANY).outputs

    got = evaluate(ours_without_carry, params, inputs(), ())
    assert_close(got, evaluate(run, params, inputs(), ()))


def test_keras_lets_nan_of_padding_into_gradients_and_we_do_not(x64):
    cell = jr.lstm(H)
    params = random_params(cell)
    carry = random_carry(cell, params)
    poisoned = jnp.where(RIGHT[..., None], inputs(), jnp.nan)
    layer = layer_of("lstm", return_state=True)

    def run(params, xs, carry):
        weights = weights_of(params)
        outputs, *last = call(layer, weights, xs, RIGHT, initial_state=list(carry))
        return outputs, last

    _, theirs = evaluate(run, params, poisoned, carry)
    assert jnp.isnan(theirs[0].kernel).any()
    clean = evaluate(ours(cell, RIGHT), params, inputs(), carry)
    assert_close(evaluate(ours(cell, RIGHT), params, poisoned, carry), clean)


# Spatial axes, and options of both.
CONVOLUTIONS = {
    "1-D": ((6,), {"strides": 2, "padding": "same"}),
    "2-D": ((4, 5), {"strides": (1, 2), "padding": "valid"}),
    "dilated": ((5, 4), {"dilation": (2, 1), "padding": "valid"}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv_lstm_outputs_carry_and_every_gradient(x64, name):
    shape, options = CONVOLUTIONS[name]
    cell = jr.conv_lstm(2, shape, 2, **options)
    params = random_params(cell)
    carry = random_carry(cell, params)
    factory = keras.layers.ConvLSTM1D if len(shape) == 1 else keras.layers.ConvLSTM2D
    more = {"dilation_rate" if key == "dilation" else key: options[key] for key in options}
    layer = factory(
        2, 2, activation=tanh, recurrent_activation="sigmoid", return_sequences=True,
        return_state=True, dtype="float64", **more,
    )  # fmt: skip
    xs = jnp.asarray(normal(0, B, 3, *shape, D))

    def run(params, xs, carry):
        weights = weights_of(params)
        outputs, *last = call(layer, weights, xs, None, initial_state=list(carry))
        return outputs, type(carry)(*last)

    got = evaluate(ours(cell), params, xs, carry)
    assert_close(got, evaluate(run, params, xs, carry))


@pytest.mark.parametrize("name", KINDS)
def test_parameter_counts(x64, name):
    # Keras keeps two rows of biases for a reset-after GRU: r and z are counted twice.
    layer = layer_of(name)
    layer.build((B, T, D))
    params = KINDS[name][2]().init(jax.random.key(0), D)
    excess = 2 * H if name == "gru" else 0
    assert layer.count_params() == sum(leaf.size for leaf in jax.tree.leaves(params)) + excess
