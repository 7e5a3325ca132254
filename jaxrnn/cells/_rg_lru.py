"""The real-gated linear recurrent unit of Griffin."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import open_uniform
from jaxrnn.cells._linear import LinearCarry, linear_cell, relative_expm1, widened
from jaxrnn.cells._products import by_block
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Affine, Cell


class RGLRUParams(NamedTuple):
    """Parameters, with the gates in the order r, i; K = D / num_blocks.

    `eigenvalue_logit [D]` with a = σ(eigenvalue_logit), `gate_kernel [num_blocks, K, 2*K]`,
    `gate_bias [2*D]`.
    """

    eigenvalue_logit: Any
    gate_kernel: Any
    gate_bias: Any
    roles = {"eigenvalue_logit": "ssm", "gate_kernel": "input", "gate_bias": "input"}


class RGLRUCarry(NamedTuple):
    """`h [..., D]`, and `started` bool `[...]`, whether the sequence has had a step."""

    h: Any
    started: Any


class RGLRUStep(NamedTuple):
    """The parts of a step, `[..., D]` each: aₜ, √(1 - aₜ²) and i ⊙ x."""

    decay: Any
    scale: Any
    gated: Any


def gates(params: RGLRUParams, x: Any, c: float) -> RGLRUStep:
    """The parts of a step, with a scale whose derivative is finite where the gate r is closed."""
    checks.width(x, params.eigenvalue_logit)
    logits = by_block(x, params.gate_kernel)
    r, i = (
        logit.reshape(x.shape) + bias
        for logit, bias in zip(
            jnp.split(logits, 2, axis=-1), jnp.split(params.gate_bias, 2), strict=True
        )
    )
    rate = c * jax.nn.softplus(-params.eigenvalue_logit)
    log_decay = -rate * jax.nn.sigmoid(r)
    # Written as √(-expm1(2 log a)), the scale has an infinite slope at a = 1, which times the zero
    # slope of a closed gate is NaN. It equals √(2 rate r) √(expm1(2 log a) / (2 log a)), where
    # √r = exp(log σ / 2) is smooth. The rate is kept from underflowing to 0, where the slope of its
    # root times that of the softplus would be ∞ · 0.
    rate = jnp.maximum(rate, jnp.finfo(rate.dtype).tiny)
    root = jnp.sqrt(2 * rate) * jnp.exp(0.5 * jax.nn.log_sigmoid(r))
    scale = root * jnp.sqrt(relative_expm1(2 * log_decay))
    return RGLRUStep(jnp.exp(log_decay), scale, jax.nn.sigmoid(i) * x)


@model_factory
def rg_lru(
    num_blocks: int = 1,
    *,
    c: float = 8.0,
    normalized_start: bool = True,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The RG-LRU: a linear recurrence for every input feature, with gates on its input and decay.

        r, i = σ(xₜ W_r + b_r), σ(xₜ Wᵢ + bᵢ),   W block-diagonal
        log aₜ = c r log σ(eigenvalue_logit)
        hₜ = aₜ ⊙ hₜ₋₁ + √(1 - aₜ²) ⊙ (i ⊙ xₜ),  yₜ = hₜ

    De et al. 2024, "Griffin" (arXiv:2402.19427). σ(eigenvalue_logit)ᶜ starts uniform in
    (0.9, 0.999), as the paper says; its code draws σ(eigenvalue_logit) itself from a ring, so its
    memory starts up to c times shorter. Where the gate r closes, 1 - a² vanishes and its root has
    an infinite slope, which the paper's code clips; the root is computed here without one.

    That code also adds the first input of a sequence without the factor √(1 - a²), which is not in
    the paper's equations. `normalized_start=False` does the same. Whether a step is the first is
    then part of the carry, and the step is no longer affine in the carry (a ⊙ h + b cannot express
    that the carry decides how the input enters), so parallel evaluators raise for this cell. In
    `griffin_block` the convolution before the recurrence tells which steps are the first ones, so
    there they do evaluate it.

    Args:
        num_blocks: number of blocks of W_r and of Wᵢ, a divisor of D; 1 is the full matrix.
        c: exponent of the decay when the gate r is open.
        normalized_start: whether √(1 - a²) also scales the first input.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., D]`, carry `LinearCarry(h [..., D])`, or
        `RGLRUCarry(h, started)` without a normalized start.

    Raises:
        TypeError: `num_blocks` is not an int, or `normalized_start` is not a bool.
        ValueError: `num_blocks` is below 1, `c` is not above 0, or (in `init`) `num_blocks` does
            not divide D.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.rg_lru(num_blocks=2)
        >>> params = cell.init(jax.random.key(0), 4)
        >>> params.gate_kernel.shape
        (2, 2, 4)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 4))).outputs.shape
        (2, 5, 4)
    """
    checks.positive(num_blocks, "num_blocks")
    checks.boolean(normalized_start, "normalized_start")
    if not c > 0:
        raise ValueError(f"c must be above 0, got {c}.")

    def init(key, num_inputs):
        if num_inputs % num_blocks:
            raise ValueError(f"num_blocks must divide D = {num_inputs}, got {num_blocks}.")
        key_decay, key_gates = jax.random.split(key)
        decays = 0.9 + (0.999 - 0.9) * open_uniform(key_decay, (num_inputs,), param_dtype)
        width = num_inputs // num_blocks
        blocks = [
            initializers.input_kernel(block_key, width, 2 * width, param_dtype)
            for block_key in jax.random.split(key_gates, num_blocks)
        ]
        return RGLRUParams(
            eigenvalue_logit=_logit_of_log(jnp.log(decays) / c).astype(param_dtype),
            gate_kernel=jnp.stack(blocks),
            gate_bias=jnp.zeros(2 * num_inputs, param_dtype),
        )

    def project(params, x):
        step = gates(params, x, c)
        return step.decay, step.scale * step.gated

    cell = linear_cell(
        init,
        project,
        lambda params: params.eigenvalue_logit.shape,
        lambda num_inputs: num_inputs,
    )
    return cell if normalized_start else _with_full_start(cell, c)


def _with_full_start(cell: Cell, c: float) -> Cell:
    """The cell in which the first input of a sequence is not scaled."""

    def initial_carry(params, batch_shape=()):
        h = cell.initial_carry(params, batch_shape).h
        return RGLRUCarry(h, jnp.zeros(batch_shape, bool))

    def advance(params, carry, z):
        del params
        scale = jnp.where(carry.started[..., None], z.scale, 1)
        return RGLRUCarry(z.decay * carry.h + scale * z.gated, jnp.ones_like(carry.started))

    return cell._replace(
        initial_carry=initial_carry,
        project=lambda params, x: gates(widened(params), x, c),
        advance=advance,
    )


class FirstOrNot(NamedTuple):
    """Inputs `x [..., D]`, and bool `[...]`, whether each is the first of its sequence."""

    x: Any
    is_first: Any


def told_first_steps(cell: Cell, c: float) -> Cell:
    """The linear cell whose inputs say where a sequence begins; that input is not scaled."""

    def project(params, inputs):
        step = gates(widened(params), inputs.x, c)
        scale = jnp.where(inputs.is_first[..., None], 1, step.scale)
        return Affine(LinearCarry(step.decay), LinearCarry(scale * step.gated))

    return cell._replace(project=project, num_feature_axes=FirstOrNot(1, 0))


def _logit_of_log(log_p):
    return log_p - jnp.log(-jnp.expm1(log_p))
