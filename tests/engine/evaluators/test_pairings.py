"""Every evaluator with every layer that has a recurrence: equal to `sequential`, or refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, T = 4, 7
EVALUATORS = {
    "checkpoint": jr.sequential(checkpoint=2),
    "chunked": jr.chunked(3),
    "associative": jr.associative(),
    "newton": jr.newton(),
    "convolution": jr.convolution(),
    "chunkwise": jr.chunkwise(3),
    "chunked associative": jr.chunked(3, jr.associative()),
    "chunked convolution": jr.chunked(3, jr.convolution()),
    "chunked chunkwise": jr.chunked(4, jr.chunkwise(2)),
}
PLAIN = {"checkpoint", "chunked"}
LINEAR = PLAIN | {"associative", "chunked associative"}
PAIRS = {"chunkwise", "chunked chunkwise"}
CONVOLUTIONS = {"s4", "s4d"}
LAYERS = {
    "gru": (lambda e: jr.recurrent(jr.gru(3), e), PLAIN | {"newton"}),
    "slstm": (lambda e: jr.recurrent(jr.slstm(4), e), PLAIN | {"newton"}),
    "lru": (lambda e: jr.recurrent(jr.lru(3, 4), e), LINEAR),
    "min_gru": (lambda e: jr.recurrent(jr.min_gru(3), e), LINEAR | {"newton"}),
    "s4d": (lambda e: jr.recurrent(jr.s4d(4), e), LINEAR | {"convolution", "chunked convolution"}),
    "s4": (lambda e: jr.s4(4, evaluator=e), PLAIN | {"convolution", "chunked convolution"}),
    "mamba": (lambda e: jr.mamba(2, evaluator=e), LINEAR | {"newton"}),
    "mamba2": (lambda e: jr.mamba2(2, head_width=4, evaluator=e), LINEAR | PAIRS | {"newton"}),
    "mlstm": (lambda e: jr.mlstm(2, 2, evaluator=e), PLAIN | PAIRS | {"newton"}),
    # A full first step, in parallel as well.
    "griffin_block": (
        lambda e: jr.griffin_block(4, 2, conv_width=2, normalized_start=False, evaluator=e),
        LINEAR | {"newton"},
    ),
    "gated_delta_net": (
        lambda e: jr.gated_delta_net(2, 2, evaluator=e),
        PLAIN | PAIRS | {"newton"},
    ),
}


def run(name, evaluator):
    layer, params = LAYERS[name][0](evaluator), init(name)
    rng = np.random.default_rng(0)
    xs, mask = rng.standard_normal((2, T, D)), rng.random((2, T)) < 0.8
    reset = np.zeros((2, T), bool)
    reset[0, 4] = True

    def loss(params, flags):
        rollout = jr.unroll(layer, params, xs, mask=mask, **flags)
        return jnp.sum(jnp.sin(rollout.outputs)), rollout[:2]

    # A convolution of a row with resets is another computation; all others only read the flags.
    rows = [{}, {"reset": reset}] if name in CONVOLUTIONS else [{"reset": reset}]
    gradient = jax.value_and_grad(loss, has_aux=True)
    both = jax.jit(lambda params: [gradient(params, flags) for flags in rows])
    return jax.device_get(both(params))


@functools.cache
def init(name):
    layer = LAYERS[name][0](jr.sequential())
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), layer.init(jax.random.key(0), D))


@functools.cache
def in_sequence(name):
    return run(name, jr.sequential())


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_evaluated_alike_or_refuses(x64, name, evaluator):
    if evaluator not in LAYERS[name][1]:
        with pytest.raises((TypeError, ValueError), match=r"use \w+\(|to be a convolution"):
            run(name, EVALUATORS[evaluator])
        return
    got, want = run(name, EVALUATORS[evaluator]), in_sequence(name)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_no_steps_are_refused_as_steps_are(x64, name):
    if "associative" not in LAYERS[name][1]:
        with pytest.raises(TypeError, match=r"use \w+\("):
            jr.unroll(LAYERS[name][0](jr.associative()), init(name), jnp.zeros((2, 0, D)))


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_not_an_evaluator_is_refused_at_once(name):
    with pytest.raises(TypeError, match="evaluator must be an Evaluator"):
        LAYERS[name][0](jr.gru(3))
