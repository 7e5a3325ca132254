import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

PROBABILITIES = np.array([0.1, 0.35, 0.05, 0.3, 0.2])
LOGITS = np.log(PROBABILITIES)
NUM_DRAWS = 20000


def assert_shares(tokens, probabilities):
    shares = np.bincount(tokens, minlength=5) / NUM_DRAWS
    deviations = np.sqrt(probabilities * (1 - probabilities) / NUM_DRAWS)
    assert (np.abs(shares - probabilities) <= 4.5 * deviations).all(), shares


def sample(**choice):
    logits = jnp.broadcast_to(jnp.asarray(LOGITS, jnp.float32), (NUM_DRAWS, 5))
    return np.asarray(jr.next_token(logits, jax.random.key(0), **choice))


@pytest.mark.parametrize("temperature", [0.3, 1, 2.5])
def test_temperature_by_counts(temperature):
    wanted = PROBABILITIES ** (1 / temperature)
    assert_shares(sample(temperature=temperature), wanted / wanted.sum())


def kept(tokens):
    wanted = np.where(np.isin(np.arange(5), tokens), PROBABILITIES, 0)
    return wanted / wanted.sum()


@pytest.mark.parametrize(
    ("choice", "tokens"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 4}, [0, 1, 3, 4]),
        ({"top_p": 0.34}, [1]),
        ({"top_p": 0.36}, [1, 3]),
        ({"top_p": 0.86}, [0, 1, 3, 4]),
        ({"top_p": 1e-6}, [1]),
        # Of the two that top_k leaves, token 1 alone holds 0.35 / 0.65 = 0.538.
        ({"top_k": 2, "top_p": 0.53}, [1]),
        ({"top_k": 2, "top_p": 0.55}, [1, 3]),
    ],
)
def test_cuts_by_counts(choice, tokens):
    assert_shares(sample(temperature=1.0, **choice), kept(tokens))


def test_cuts_come_after_the_temperature():
    # At temperature 1/2 the probabilities are 0.038, 0.467, 0.01, 0.343, 0.152.
    assert set(sample(temperature=0.5, top_p=0.8)) == {1, 3}
    assert set(sample(temperature=1.0, top_p=0.8)) == {1, 3, 4}


def test_cuts_that_cut_nothing_are_the_plain_draw():
    plain = sample(temperature=1.0)
    for choice in ({"top_p": 1}, {"top_k": 5}, {"top_k": 5, "top_p": 1.0}):
        np.testing.assert_array_equal(sample(temperature=1.0, **choice), plain)


def test_nucleus_1_keeps_what_float32_adds_up_to_1_without():
    logits = jnp.array([0.0, -20.0, -25.0])
    keep = jax.vmap(lambda key: jr.next_token(logits, key, temperature=100.0, top_p=1.0))
    assert set(np.asarray(keep(jax.random.split(jax.random.key(0), 100)))) == {0, 1, 2}


def test_the_ways_to_be_greedy():
    logits = jax.random.normal(jax.random.key(1), (6, 5))
    greedy = jr.next_token(logits)
    np.testing.assert_array_equal(greedy, logits.argmax(-1))
    key = jax.random.key(2)
    for choice in ({"top_k": 1, "temperature": 9.0}, {"temperature": 0}):
        np.testing.assert_array_equal(jr.next_token(logits, key, **choice), greedy)
    traced = jax.jit(lambda t: jr.next_token(logits, key, temperature=t))
    np.testing.assert_array_equal(traced(0.0), greedy)
    np.testing.assert_array_equal(traced(1e-6), greedy)


def test_ties():
    logits = jnp.array([0.0, 2.0, 2.0, 2.0])
    assert jr.next_token(logits) == 1
    keys = jax.random.split(jax.random.key(0), 100)

    def drawn(**choice):
        draw = jax.vmap(lambda key: jr.next_token(logits, key, temperature=1.0, **choice))
        return set(np.asarray(draw(keys)))

    assert drawn(top_k=1) == {1}
    assert drawn(top_k=2) == {1, 2}
    cold = jax.vmap(lambda key: jr.next_token(logits, key, temperature=0.0))
    assert set(np.asarray(cold(keys))) == {1, 2, 3}


def test_forbidden_tokens_are_not_drawn():
    logits = jnp.array([1.0, -jnp.inf, 0.0])
    for choice in ({}, {"top_k": 3}, {"top_p": 0.999}, {"top_k": 2}):
        draw = jax.vmap(
            lambda key, choice=choice: jr.next_token(logits, key, temperature=5.0, **choice)
        )
        assert set(np.asarray(draw(jax.random.split(jax.random.key(0), 99)))) == {0, 2}
    assert jr.next_token(logits) == 0


@pytest.mark.parametrize("choice", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2}])
def test_nan_shows(choice):
    logits = jnp.array([[0.0, jnp.nan, 5.0], [0.0, 1.0, 90.0]])
    np.testing.assert_array_equal(jr.next_token(logits, jax.random.key(0), **choice), [-1, 2])


def test_half_precision_is_drawn_in_float32():
    half = jnp.zeros((2000, 3), jnp.bfloat16)
    tokens = jr.next_token(half, jax.random.key(0), temperature=1.0)
    want = jr.next_token(half.astype(jnp.float32), jax.random.key(0), temperature=1.0)
    np.testing.assert_array_equal(tokens, want)


@pytest.mark.parametrize("choice", [{}, {"top_p": 0.5}, {"top_k": 2}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_infinite_logit_is_the_only_one_drawn(choice, temperature):
    logits = jnp.array([[0.0, jnp.inf, 5.0]] * 20)
    tokens = jr.next_token(logits, jax.random.key(0), temperature=temperature, **choice)
    np.testing.assert_array_equal(tokens, 1)


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ({"temperature": -1.0}, ValueError, "^temperature must be a number of at least 0, got -1"),
        ({"temperature": np.nan}, ValueError, "^temperature must be a number of at least 0"),
        ({"temperature": "warm"}, TypeError, "^temperature must be a number of at least 0"),
        ({"temperature": np.ones(2)}, ValueError, "^temperature must be one number"),
        ({"temperature": 1.0, "top_k": 0}, ValueError, "^top_k must be at least 1, got 0"),
        ({"temperature": 1.0, "top_k": 2.0}, TypeError, "^top_k must be an int"),
        ({"temperature": 1.0, "top_k": 6}, ValueError, "^top_k must be at most 5"),
        ({"temperature": 1.0, "top_p": 0}, ValueError, r"^top_p must be a number in \(0, 1\]"),
        ({"temperature": 1.0, "top_p": 1.1}, ValueError, "^top_p must be a number"),
        ({"top_k": 3}, ValueError, "^temperature must be given to sample with top_k"),
        ({"top_p": 0.5}, ValueError, "^temperature must be given to sample with top_p"),
        ({"temperature": 1.0, "key": None}, ValueError, "^key must be a PRNG key to sample"),
        ({"logits": np.arange(5)}, TypeError, "^logits must be floating"),
        ({"logits": np.float32(1)}, ValueError, r"^logits must be \[..., V\]"),
    ],
)
def test_errors_name_the_argument(choice, error, message):
    arguments = {"logits": LOGITS, "key": jax.random.key(0)} | choice
    with pytest.raises(error, match=message):
        jr.next_token(**arguments)
