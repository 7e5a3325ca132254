import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr

VOCABULARY = 7
WRITER = jr.serial(
    jr.embed(4, param_dtype=jnp.float64),
    jr.lstm(5, param_dtype=jnp.float64),
    jr.dense(VOCABULARY, param_dtype=jnp.float64),
)
FORECASTER = jr.serial(jr.gru(4, param_dtype=jnp.float64), jr.dense(2, param_dtype=jnp.float64))


@pytest.fixture
def writer(x64):
    """Tokens to logits, with logits far enough apart to be no ties, in float64."""
    params = WRITER.init(jax.random.key(0), VOCABULARY)
    return WRITER, jax.tree.map(lambda leaf: 2 * leaf, params)


@pytest.fixture
def forecaster(x64):
    """Two numbers to two numbers, in float64."""
    return FORECASTER, FORECASTER.init(jax.random.key(1), 2)
