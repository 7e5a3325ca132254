"""A model or a feed that is made anew at every call compiles at every call, and says so once."""

import functools
import warnings

import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr

XS = jnp.ones((3, 2))


def no_params(key, num_inputs):
    return ()


def cell_with(advance):
    return jr.simple_cell(no_params, advance, 2)


def warned(call, times=4):
    """The messages of several calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            call()
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def test_a_model_with_a_lambda_warns_once():
    def call():
        jr.unroll(cell_with(lambda params, carry, z: carry + z), (), XS)

    (message,) = warned(call)
    assert message.startswith("model compiles again at every call, because test_a_model_with_a_")
    assert "<lambda>" in message and "before the loop" in message and __name__ in message
    assert warned(call) == []


def test_every_way_to_run_a_model_warns():
    # One line each, because a line is named once.
    def negative():
        return cell_with(lambda params, carry, z: carry - z)

    def product():
        return cell_with(lambda params, carry, z: carry * z)

    def merged():
        return jr.bidirectional(jr.elman(1), merge=lambda one, two: one + 2 * two)

    params = merged().init(jax.random.key(0), 2)
    for run in (
        lambda: jr.step(negative(), (), None, XS[0]),
        lambda: jr.carries(cell_with(add)._replace(num_outputs=lambda num_inputs: 2), (), XS),
        lambda: jr.diagnostics.carry_norms(jr.zoneout(product(), 0.1), (), XS),
        lambda: jr.unroll(merged(), params, XS),
    ):
        assert len(warned(run)) == 1


def test_a_feed_warns_once():
    def call():
        jr.free_run(
            jr.ema(0.5), jr.ema(0.5).init(jax.random.key(0), 2), XS, 2, feed=lambda y, *_: y
        )

    (message,) = warned(call)
    assert message.startswith("feed compiles again") and "Partial" in message


def feed(y, x, key):
    return y


def add(params, carry, z):
    return carry + z


def add_scaled(scale, params, carry, z):
    return carry + scale * z


def test_what_is_made_once_or_equal_does_not_warn():
    def scaled(scale):
        return cell_with(lambda params, carry, z: carry + scale * z)

    def loop():
        for scale in (1.0, 2.0):  # Two cells with the same code.
            jr.unroll(scaled(scale), (), XS)
        for array in (jnp.ones(2), jnp.zeros(2)):
            jr.unroll(scaled(array), (), XS)

    kept, kept_feed = scaled(3.0), lambda y, x, key: y
    params = jr.ema(0.5).init(jax.random.key(0), 2)

    def calls():
        jr.unroll(kept, (), XS)
        jr.carries(kept, (), XS)
        jr.unroll(cell_with(functools.partial(add_scaled, 2.0)), (), XS[:1])
        jr.free_run(jr.ema(0.5), params, XS, 2, feed=feed)
        jr.free_run(jr.ema(0.5), params, XS, 2, feed=kept_feed)

    def train_and_evaluate():
        model = scaled(4.0)
        for _ in range(2):
            jr.unroll(model, (), XS)

    assert warned(loop, times=1) == []
    assert warned(calls) == []
    assert warned(train_and_evaluate) == []


def test_an_array_that_changes_warns():
    numbers = iter(range(9))

    def call():
        shift = jnp.full(2, next(numbers))
        jr.unroll(cell_with(lambda params, carry, z: carry + shift), (), XS)

    assert len(warned(call)) == 1


@pytest.mark.parametrize("number", range(3))
def test_what_other_tests_made_is_forgotten(number):
    """By a fixture; with the models of all three there would be a warning."""

    def call():
        jr.unroll(cell_with(lambda params, carry, z: carry / 2 + z), (), XS)

    assert warned(call, times=1) == []


def test_under_jit_nothing_is_said():
    def call():
        run = jax.jit(
            lambda xs: jr.unroll(cell_with(lambda params, carry, z: carry * z), (), xs).outputs
        )
        run(XS)

    assert warned(call) == []


def test_options_without_a_hash_are_named():
    class Unhashable:
        __hash__ = None  # type: ignore

        def __call__(self, *arguments):
            raise AssertionError("must not run")

    with pytest.raises(TypeError, match="^evaluator must be hashable, .*got <"):
        jr.unroll(jr.ema(0.5), jnp.ones(2), XS, evaluator=EvaluatorOfAList([1.0]))
    with pytest.raises(TypeError, match="^feed must be hashable, .*got <"):
        jr.free_run(jr.ema(0.5), jr.ema(0.5).init(jax.random.key(0), 2), XS, 2, feed=Unhashable())


class EvaluatorOfAList:
    """An evaluator that is compared by a list, and so has no hash."""

    def __init__(self, options):
        self.options = options

    def __eq__(self, other):
        return isinstance(other, EvaluatorOfAList) and self.options == other.options

    def __call__(self, cell, params, carry, steps):
        return jr.sequential()(cell, params, carry, steps)


def test_a_function_that_closes_over_a_traced_array_does_not_warn():
    def unrolled(rate, kept):
        models = [
            cell_with(lambda params, carry, z: rate["r"] * carry + z + len(kept)) for _ in "1234"
        ]
        return [jr.unroll(model, (), XS).outputs for model in models]

    # A dict whose keys have no order is no tree of arrays.
    assert warned(lambda: jax.jit(lambda rate: unrolled({"r": rate}, {1: 1, "a": 2}))(0.5), 1) == []
