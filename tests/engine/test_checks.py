"""Static checks: what they take, and that their errors name the argument."""

import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr
from jaxrnn.engine import checks, precision


def test_compute_dtype_is_at_least_float32():
    assert precision.compute_dtype(()) == jnp.float32
    assert (
        precision.compute_dtype({"a": jnp.ones(1, jnp.float16), "b": jnp.ones(1, int)})
        == jnp.float32
    )
    assert precision.compute_dtype(jnp.ones(1, jnp.complex64)) == jnp.float32


def test_compute_dtype_is_real_for_complex_params(x64):
    params = {"a": jnp.ones(1, jnp.float32), "b": jnp.ones(1, jnp.complex128)}
    assert precision.compute_dtype(params) == jnp.float64


def test_positive():
    assert checks.positive(3, "size") == 3
    for value, error in ((0, ValueError), (1.0, TypeError), (True, TypeError), ("3", TypeError)):
        with pytest.raises(error, match=f"size must be .*got {value!r}"):
            checks.positive(value, "size")


def test_fraction():
    assert checks.fraction(0, "rate") == 0.0 and checks.fraction(0.5, "rate") == 0.5
    for value, error in (
        (1.0, ValueError),
        (-0.1, ValueError),
        (True, TypeError),
        ("0", TypeError),
    ):
        with pytest.raises(error, match=f"rate must .*got {value!r}"):
            checks.fraction(value, "rate")


def test_nan_is_no_fraction():
    with pytest.raises(ValueError, match="rate must lie in"):
        checks.fraction(float("nan"), "rate")


def test_not_negative():
    assert checks.not_negative(0, "tol") == 0.0 and checks.not_negative(0.5, "tol") == 0.5
    for value, error in ((-0.1, ValueError), (float("inf"), ValueError), (True, TypeError)):
        with pytest.raises(error, match=f"tol must .*got {value!r}"):
            checks.not_negative(value, "tol")


@pytest.mark.parametrize("value", [jr.sequential, jr.newton, "auto", None, len])
def test_what_is_no_evaluator(value):
    checks.evaluator(jr.sequential(), "inner")
    with pytest.raises(TypeError, match=r"inner must be an Evaluator, \(cell, params, carry.*got"):
        checks.evaluator(value, "inner")


def test_spread():
    tree = {"a": (1, 2), "b": 3}
    assert checks.spread({"a": 0, "b": 1}, tree, "rates", "the carry") == {"a": (0, 0), "b": 1}
    with pytest.raises(TypeError, match="rates must be one value or fit the carry, .*got"):
        checks.spread({"a": 0}, tree, "rates", "the carry")


CARRY = jr.cells.LSTMCarry(jnp.zeros((2, 3)), jnp.zeros((2, 3)))


def test_same_tree_takes_the_same_and_shapes_of_it():
    checks.same_tree(CARRY, CARRY, "carry")
    checks.same_tree(CARRY, jax.eval_shape(lambda: CARRY), "carry")


WRONG_TREES = {
    "a tuple": (tuple(CARRY), TypeError, "carry must have the structure .*LSTMCarry.*got"),
    "a shape": (
        CARRY._replace(c=jnp.zeros(3)),
        ValueError,
        r"carry\.c must .*\(2, 3\), got \(3,\)",
    ),
    "a dtype": (CARRY._replace(h=jnp.zeros((2, 3), int)), TypeError, r"carry\.h must .*got int32"),
    "a weak zero": (CARRY._replace(h=0.0), ValueError, r"carry\.h must have the shape"),
}


@pytest.mark.parametrize("name", WRONG_TREES)
def test_same_tree_names_the_leaf(name):
    came, error, message = WRONG_TREES[name]
    with pytest.raises(error, match=message):
        checks.same_tree(came, CARRY, "carry")


def test_leading_shape_of_one_array_and_of_a_tree():
    assert checks.leading_shape(jnp.zeros((2, 5, 3)), 1) == (2, 5)
    assert checks.leading_shape(jnp.zeros((2, 5)), 0) == (2, 5)
    xs = {"picture": jnp.zeros((5, 4, 4)), "action": jnp.zeros(5, int), "pair": (jnp.zeros(5),) * 2}
    assert checks.leading_shape(xs, {"picture": 2, "action": 0, "pair": 0}) == (5,)


WRONG_INPUTS = {
    "no time": (jnp.zeros(3), 1, r"xs must have a time axis and 1 feature axes, .*\(3,\)"),
    "no array": ((), 1, "xs must have at least one array"),
    "leaves that disagree": (
        {"a": jnp.zeros((4, 3)), "b": jnp.zeros((5, 3))},
        1,
        r"xs\['b'\] must start with the axes \(4,\)",
    ),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_leading_shape_names_the_leaf(name):
    xs, axes, message = WRONG_INPUTS[name]
    with pytest.raises(ValueError, match=message):
        checks.leading_shape(xs, axes)


def test_feature_axes_must_be_a_tree_like_x():
    with pytest.raises(TypeError):
        checks.leading_shape({"a": jnp.zeros((4, 3))}, {"b": 1})
