"""Runs every model in float32 and in float64, and on inputs that saturate everything."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.models import MODELS, Sizes
from experiments.frame.progress import progress_bar
from experiments.rounding.config import Config

EXTREME = 1e4


class Rounded(NamedTuple):
    """The errors of one model."""

    model: str  # its name
    times: np.ndarray  # t, powers of two and the end
    errors: np.ndarray  # the error at each t
    not_finite: int  # outputs of the long run in float32 that are NaN or infinite
    extreme: int  # outputs and gradients of the bfloat16 run that are


def measure(config: Config) -> Iterator[list[Rounded]]:
    """Runs one model after the other."""
    results = []
    with progress_bar(len(config.models)) as bar:
        for name in config.models:
            bar.stage(name)
            results = [*results, _rounded(config, name)]
            bar.advance()
            bar.finish_stage(f"{name}: {results[-1].errors[-1]:.1e} at the end")
            yield results


def _rounded(config, name):
    model = MODELS[name].make(Sizes.of(config.width, config.state_size))
    params = model.init(jax.random.key(0), config.width)
    xs = np.asarray(jax.random.normal(jax.random.key(1), (config.num_steps, config.width)))
    rounded = np.asarray(jr.unroll(model, params, xs).outputs)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (params, xs))
        exact = np.asarray(jr.unroll(model, *wide).outputs)
    times, errors = errors_along(rounded, exact)
    not_finite = int(np.sum(~np.isfinite(rounded)))
    return Rounded(name, times, errors, not_finite, _extreme(model, params, config.width))


def errors_along(rounded: np.ndarray, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest difference in (t/2, t] relative to the largest value there, for some t."""
    num_steps = len(exact)
    times = sorted({2**power for power in range(num_steps.bit_length())} | {num_steps})
    windows = [slice(time // 2, time) for time in times]
    errors = [
        np.max(np.abs(rounded[window] - exact[window])) / np.max(np.abs(exact[window]))
        for window in windows
    ]
    return np.array(times), np.array(errors)


def _extreme(model: Any, params: Any, width: int) -> int:
    """How many numbers are not finite after inputs that saturate everything."""
    signs = jax.random.rademacher(jax.random.key(2), (128, width), jnp.bfloat16)

    def mean(params):
        outputs = jr.unroll(model, params, EXTREME * signs).outputs
        return outputs.astype(jnp.float32).mean(), outputs

    leaves = jax.tree.leaves(jax.jit(jax.grad(mean, has_aux=True))(params))
    return int(sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in leaves))
