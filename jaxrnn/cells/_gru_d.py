"""GRU-D: a gated recurrent unit for values that are missing, at any times."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _gru as gru
from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class Observations(NamedTuple):
    """Values of which some are missing.

    Attributes:
        x: `[..., D]`; what stands where a value is missing, NaN for example, reaches nothing.
        observed: flags `[..., D]`, bool, or ints 0 and 1; True = x was observed.
        dt: `[...]`, at least 0: the time since the step before, in any unit.
    """

    x: Any
    observed: Any
    dt: Any


class GRUDParams(NamedTuple):
    """Parameters, with the gates in the order r, z, n.

    `kernel [D, 3*H]`, `observed_kernel [D, 3*H]`, `recurrent_kernel [H, 3*H]`, `bias [3*H]`; the
    decay of the state `decay_kernel [D, H]` and `decay_bias [H]`; that of the inputs
    `input_decay_scale [D]` and `input_decay_bias [D]`, towards `mean [D]`.
    """

    kernel: Any
    observed_kernel: Any
    recurrent_kernel: Any
    bias: Any
    decay_kernel: Any
    decay_bias: Any
    input_decay_scale: Any
    input_decay_bias: Any
    mean: Any
    roles = {
        "kernel": "input",
        "observed_kernel": "input",
        "recurrent_kernel": "recurrent",
        "bias": "input",
        "decay_kernel": "recurrent",
        "decay_bias": "recurrent",
        "input_decay_scale": "input",
        "input_decay_bias": "input",
        "mean": "input",
    }


class GRUDCarry(NamedTuple):
    """`h [..., H]`, `last [..., D]`, the last value observed, and `elapsed [..., D]` since then."""

    h: Any
    last: Any
    elapsed: Any


def project(params: GRUDParams, x: Observations) -> Any:
    """The observations with 0 for missing values, and what the flags add to the gates."""
    checks.width(x.x, params.kernel)
    if x.observed.shape != x.x.shape:
        raise ValueError(
            f"xs.observed must have the shape of xs.x, {x.x.shape}, got {x.observed.shape}."
        )
    if jnp.issubdtype(x.observed.dtype, jnp.inexact):
        raise TypeError(f"xs.observed must be bool or int, 0 or 1, got {x.observed.dtype}.")
    observed = x.observed != 0
    flags = observed.astype(precision.compute_dtype(params))
    gates = flags @ params.observed_kernel + params.bias
    return Observations(jnp.where(observed, x.x, 0), observed, x.dt), gates


# Not a Split: `recurrent_dropout` drops what `mix` reads of the carry, and it must not drop times.
def advance(params: GRUDParams, carry: GRUDCarry, z: Any) -> GRUDCarry:
    """One step of the GRU from the decayed state, with guesses in place of missing values."""
    (x, observed, dt), of_flags = z
    interval = carry.elapsed + dt[..., None]
    fade = _decay(params.input_decay_scale * interval + params.input_decay_bias)
    guess = fade * carry.last + (1 - fade) * params.mean
    decay = _decay(interval @ params.decay_kernel + params.decay_bias)
    state = gru.GRUCarry(decay * carry.h)
    kernels = gru.GRUParams(params.kernel, params.recurrent_kernel, params.bias)
    u = gru.mix(kernels, state, jnp.where(observed, x, guess) @ params.kernel + of_flags)
    return GRUDCarry(
        gru.update(state, u).h,
        last=jnp.where(observed, x, carry.last),
        elapsed=jnp.where(observed, 0, interval),
    )


def _decay(rate):
    # At the start all rates are 0. `maximum` has half its derivative there and `relu` none, with
    # which they would stay there.
    return jnp.exp(-jnp.maximum(rate, 0))


def initial_carry(params: GRUDParams, batch_shape: tuple[int, ...] = ()) -> GRUDCarry:
    """h = 0, and the mean as if it had just been observed."""
    dtype = precision.compute_dtype(params)
    num_inputs, num_units = params.decay_kernel.shape
    last = jnp.broadcast_to(jnp.array(params.mean, dtype), (*batch_shape, num_inputs))
    return GRUDCarry(
        jnp.zeros((*batch_shape, num_units), dtype), last, jnp.zeros(last.shape, dtype)
    )


@model_factory
def gru_d(num_units: int, *, param_dtype: Any = jnp.float32) -> Cell:
    """GRU-D: missing values fade from the last one observed to the mean, and the state fades too.

        δₜ = dtₜ + (mₜ₋₁ ? 0 : δₜ₋₁)                       time since the last value, per feature
        γₓ = exp(-max(0, w ⊙ δₜ + b)),  γ_h = exp(-max(0, δₜ W_γ + b_γ))
        x̂ₜ = mₜ ? xₜ : γₓ ⊙ x_last + (1 - γₓ) ⊙ mean,    ĥ = γ_h ⊙ hₜ₋₁
        r, z = σ(x̂ₜ W + ĥ U + mₜ V + b),  n = tanh(x̂ₜ W_n + (r ⊙ ĥ) U_n + mₜ V_n + b_n)
        hₜ = (1 - z) ⊙ n + z ⊙ ĥ,  yₜ = hₜ

    Che et al. 2018, "Recurrent neural networks for multivariate time series with missing values"
    (arXiv:1606.01865). m are the flags `observed`. In the paper z admits the new value, which is
    the same cell with the parameters of z negated, as in `gru`. All decays start at 1, which fills
    in the last value.

    `mean` is a parameter that starts at 0, for standardised inputs; elsewhere put the mean of the
    training data there. The paper does not train it. Before anything has been observed x̂ is the
    mean. dt of the first step of a sequence is 0 in the paper. A masked step is none: its dt does
    not count. A step at which all values are missing has `observed` False instead.

    Args:
        num_units: H.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `Observations(x [..., D], observed [..., D], dt [...]) -> [..., H]`, carry
        `GRUDCarry(h [..., H], last [..., D], elapsed [..., D])`.

    Raises:
        TypeError: `num_units` is not an int, or (while tracing) x is not `Observations`.
        ValueError: `num_units` is below 1, or (while tracing) shapes disagree.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru_d(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> x = jnp.ones((2, 5, 3)).at[:, 1:3].set(jnp.nan)
        >>> xs = jr.Observations(x, ~jnp.isnan(x), dt=jnp.full((2, 5), 0.5))
        >>> outputs = jr.unroll(cell, params, xs).outputs
        >>> outputs.shape, bool(jnp.isnan(outputs).any())
        ((2, 5, 4), False)
    """
    checks.positive(num_units, "num_units")

    def init(key, num_inputs):
        keys = jax.random.split(key, 3)
        of_values, of_flags = (
            initializers.input_kernel(one, num_inputs, 3 * num_units, param_dtype)
            for one in keys[:2]
        )
        recurrent_kernel = initializers.orthogonal_per_gate(
            keys[2], num_units, num_units, 3, param_dtype
        )

        def zeros(*shape):
            return jnp.zeros(shape, param_dtype)

        return GRUDParams(
            of_values,
            of_flags,
            recurrent_kernel,
            bias=zeros(3 * num_units),
            decay_kernel=zeros(num_inputs, num_units),
            decay_bias=zeros(num_units),
            input_decay_scale=zeros(num_inputs),
            input_decay_bias=zeros(num_inputs),
            mean=zeros(num_inputs),
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=advance,
        emit=gru.emit,
        num_outputs=lambda num_inputs: num_units,
        num_feature_axes=Observations(x=1, observed=1, dt=0),
    )
