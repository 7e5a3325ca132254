"""The checks fail where they should: one broken cell, layer or engine for each law."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from support.sound_models import advance, leaky, scanned

import jaxrnn as jr
from jaxrnn.engine import arguments, masking, precision, time, unroll
from jaxrnn.engine.carry import broadcast_carry
from jaxrnn.engine.evaluators.sequential import plain_scan
from jaxrnn.engine.keys import MissingKey
from jaxrnn.testing import LawBroken, check_cell, check_layer


def kernel_after(change):
    return lambda params, x: change(x) @ params["kernel"]


def sound(h, x, mask, reset):
    h = masking.select(reset, jnp.zeros_like(h), h)
    return masking.select(mask, 0.5 * h + x, h)


def test_a_sound_cell_and_a_sound_layer_pass():
    check_cell(leaky())
    check_layer(scanned(sound))


def narrowing(params, carry, z):
    return advance(params, carry, z).astype(jnp.float32)


def without_batch(params, batch_shape=()):
    return jnp.zeros(2, precision.compute_dtype(params))


def infinite(params, batch_shape=()):
    return jnp.full((*batch_shape, 2), -jnp.inf, precision.compute_dtype(params))


def one_of_the_params(params, batch_shape=()):
    carry = params["recurrent"].astype(precision.compute_dtype(params))
    return broadcast_carry(carry, batch_shape)


def always_float32(params, batch_shape=()):
    return jnp.zeros((*batch_shape, 2), jnp.float32)


counter = itertools.count()


def counting(params, carry, z):
    return advance(params, carry, z) * next(counter)


def batch_norm(x):
    return x - x.mean(axis=tuple(range(x.ndim - 1)), keepdims=True)


@jax.custom_vjp
def wrong_derivative(x):
    return x**2


wrong_derivative.defvjp(lambda x: (x**2, x), lambda x, cotangent: (cotangent * x,))

half_mix = jr.Split(
    mix=lambda params, carry, z: z + 0.5 * carry * params["recurrent"],
    update=lambda carry, u: jnp.tanh(u),
)


def careless_noise(params, key, xs, reset):
    return xs if key is None else xs + 1.0


BROKEN_CELLS = {
    "a carry in float32": ("types", leaky(advance=narrowing)),
    "an initial carry without batch axes": ("types", leaky(initial_carry=without_batch)),
    "an infinite initial carry": ("types", leaky(initial_carry=infinite)),
    "a parameter as the initial carry": ("owned", leaky(initial_carry=one_of_the_params)),
    "an initial carry always in float32": ("types", leaky(initial_carry=always_float32)),
    "a wrong width": ("types", leaky(num_outputs=lambda num_inputs: 3)),
    "a counter outside": ("pure", leaky(advance=counting)),
    "a norm at zero": (
        "finite",
        leaky(project=kernel_after(lambda x: x * jnp.sqrt((x**2).sum(-1, keepdims=True)))),
    ),
    "a norm over the batch": ("rows", leaky(project=kernel_after(batch_norm))),
    "neighbours in the batch": (
        "rows",
        leaky(project=kernel_after(lambda x: x + (jnp.roll(x, 1, 0) if x.ndim > 1 else 0))),
    ),
    "a wrong derivative": ("gradient", leaky(project=kernel_after(wrong_derivative))),
    "a step that sees how many axes there are": (
        "axes",
        leaky(advance=lambda params, carry, z: advance(params, carry, z * (1 + (z.ndim == 1)))),
    ),
    "noise that ignores a missing key": ("keys", leaky(prepare=careless_noise)),
}


@pytest.mark.parametrize("name", BROKEN_CELLS)
def test_a_broken_cell_is_told_its_law(name):
    law, cell = BROKEN_CELLS[name]
    with pytest.raises(LawBroken, match=f"law broken: {law}") as broken:
        check_cell(cell)
    assert broken.value.law.startswith(law) and broken.value.where


def ignoring_mask(h, x, mask, reset):
    return sound(h, x, jnp.ones_like(mask), reset)


def ignoring_reset(h, x, mask, reset):
    return sound(h, x, mask, jnp.zeros_like(reset))


def multiplying_reset(h, x, mask, reset):
    h = h * (1 - reset[..., None])
    return masking.select(mask, 0.5 * h + x, h)


def mask_before_reset(h, x, mask, reset):
    return masking.select(mask, sound(h, x, mask, reset), h)


def reading_padding(h, x, mask, reset):
    h = masking.select(reset, jnp.zeros_like(h), h)
    return masking.select(mask, 0.5 * h, h) + x


def with_unroll(layer, change):
    return layer._replace(unroll=change(layer.unroll))


def peeking(unroll):
    def wrapped(params, carry, steps, key):
        rollout = unroll(params, carry, steps, key)
        return rollout._replace(outputs=rollout.outputs + steps.xs[-1:])

    return wrapped


def forgetting(unroll):
    def wrapped(params, carry, *arguments):
        return unroll(params, carry, *arguments)._replace(carry=carry)

    return wrapped


def forgetting_in_chunks_of_three(unroll):
    def wrapped(params, carry, steps, key):
        carry = 0 * carry if steps.xs.shape[0] == 3 else carry
        return unroll(params, carry, steps, key)

    return wrapped


def dropping(unroll):
    def wrapped(params, carry, steps, key):
        keep = jax.random.bernoulli(key, 0.5, steps.xs.shape)
        return unroll(params, carry, steps._replace(xs=steps.xs * keep), key)

    return wrapped


BROKEN_LAYERS = {
    "the mask is ignored": ("copy on padding", scanned(ignoring_mask)),
    "the reset is ignored": ("reset", scanned(ignoring_reset)),
    "the reset multiplies": ("shield", scanned(multiplying_reset)),
    "a reset on a masked step is ignored": ("reset", scanned(mask_before_reset)),
    "padding is read": ("unsettled", scanned(reading_padding)),
    "the future is seen": ("causal", with_unroll(scanned(sound), peeking)),
    "the carry stays": ("step", with_unroll(scanned(sound), forgetting)),
    "chunks lose the carry": ("chunks", with_unroll(scanned(sound), forgetting_in_chunks_of_three)),
    "dropout without a key": ("types", with_unroll(scanned(sound), dropping)),
}


@pytest.mark.parametrize("name", BROKEN_LAYERS)
def test_a_broken_layer_is_told_its_law(name):
    law, layer = BROKEN_LAYERS[name]
    with pytest.raises(LawBroken, match=f"law broken: {law}"):
        check_layer(layer)


def guarded_without_mask(cell, params, initial, carry, z, mask, reset):
    return masking.guarded(cell, params, initial, carry, z, None, reset)


def guarded_with_mask_first(cell, params, initial, carry, z, mask, reset):
    new = masking.guarded(cell, params, initial, carry, z, None, reset)
    return masking.held(new, carry, mask)


def numbered_as_the_first(carry, steps):
    return steps._replace(reset=masking.Restart(steps.reset, 0 * steps.reset))


def compiled_anew(run, static, arrays):
    return arguments.program.__wrapped__(run, *static).jitted


BROKEN_ENGINES = {
    "masked inputs stay": ("padding", unroll, "zero_masked", lambda mask, xs: xs),
    "no copy": ("copy on padding", plain_scan, "guarded", guarded_without_mask),
    "mask first": ("reset", plain_scan, "guarded", guarded_with_mask_first),
    "flags only turned round": ("reset", time, "flip_reset", time.flip),
    "all start from the first": ("starts", plain_scan, "numbered", numbered_as_the_first),
    "every call compiles": ("traces", unroll, "compiled", compiled_anew),
    "any parameters run": ("params", unroll, "check_params", lambda *arguments: None),
}


@pytest.mark.parametrize("name", BROKEN_ENGINES)
def test_a_broken_engine_is_told_its_law(name, monkeypatch):
    law, *target, fault = BROKEN_ENGINES[name]
    monkeypatch.setattr(*target, fault)
    with pytest.raises(LawBroken, match=f"law broken: {law}"):
        check_cell(leaky())


def test_a_broken_evaluator_is_named():
    def without_reset(cell, params, carry, steps):
        return jr.sequential()(cell, params, carry, steps._replace(reset=None))

    with pytest.raises(LawBroken, match=r"law broken: evaluators.*evaluators\[1\]"):
        check_cell(leaky(), evaluators=(jr.sequential(scan_unroll=2), without_reset))


def test_the_message_says_where():
    with pytest.raises(LawBroken) as broken:
        check_layer(scanned(ignoring_mask))
    assert "carry of row '.......'" in str(broken.value)
    assert "difference" in str(broken.value)


def test_missing_keys_are_refused_by_noise_that_asks_for_them():
    cell = jr.zoneout(jr.elman(2), 0.2)
    with pytest.raises(ValueError, match="zoneout draws noise"):
        cell.prepare(cell.init(jax.random.key(0), 3), MissingKey("step"), jnp.ones((2, 3)), None)


def test_wrong_arguments_raise():
    with pytest.raises(TypeError, match="cell must be a Cell"):
        check_cell(scanned(sound))
    with pytest.raises(TypeError, match="layer must be a Layer"):
        check_layer(leaky())
    with pytest.raises(ValueError, match="make_xs must be given"):
        check_cell(leaky(num_feature_axes={"a": 1, "b": 0}))
