"""All of a new model in one file: its parameters with their roles, its step and its factory."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr


class ToyParams(NamedTuple):
    """`kernel [D, H]`, `recurrent_kernel [H, H]`, `rate_logit [H]`."""

    kernel: Any
    recurrent_kernel: Any
    rate_logit: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "rate_logit": "ssm"}


@jr.model_factory
def toy(num_units, *, param_dtype=jnp.float32):
    """A leaky integrator: hₜ = α ⊙ hₜ₋₁ + (1 - α) ⊙ tanh(xₜ W + hₜ₋₁ U), α = σ(rate_logit)."""

    def init(key, num_inputs):
        input_key, recurrent_key = jax.random.split(key)
        return ToyParams(
            kernel=jax.random.normal(input_key, (num_inputs, num_units), param_dtype) / 2,
            recurrent_kernel=jax.random.orthogonal(recurrent_key, num_units, (), param_dtype),
            rate_logit=jnp.zeros(num_units, param_dtype),
        )

    def project(params, x):
        return x @ params.kernel

    def advance(params, carry, z):
        rate = jax.nn.sigmoid(params.rate_logit)
        return rate * carry + (1 - rate) * jnp.tanh(z + carry @ params.recurrent_kernel)

    return jr.simple_cell(init, advance, num_units, project=project)
