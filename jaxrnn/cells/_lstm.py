"""The long short-term memory and its common variants."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._activations import clipped
from jaxrnn.cells._norms import standardized
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split

_NORM_EPSILON = 1e-5


class LSTMNorm(NamedTuple):
    """`input_scale [G*H]`, `recurrent_scale [G*H]`, `cell_scale [H]`, `cell_offset [H]`."""

    input_scale: Any
    recurrent_scale: Any
    cell_scale: Any
    cell_offset: Any
    roles = {
        "input_scale": "input",
        "recurrent_scale": "recurrent",
        "cell_scale": "input",
        "cell_offset": "input",
    }


class LSTMParams(NamedTuple):
    """Parameters, with the G gates in the order i, f, g, o (f, g, o when coupled).

    `kernel [D, G*H]`, `recurrent_kernel [H, G*H]` (`[P, G*H]` with a projection), `bias [G*H]`,
    and where the variant has them `peephole [(G-1)*H]` (order i, f, o), `projection_kernel [H, P]`
    and `norm`.
    """

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    peephole: Any = None
    projection_kernel: Any = None
    norm: LSTMNorm | None = None
    roles = {
        "kernel": "input",
        "recurrent_kernel": "recurrent",
        "bias": "input",
        "peephole": "recurrent",
        "projection_kernel": "recurrent",
    }


class LSTMCarry(NamedTuple):
    """`h [..., H]` (`[..., P]` with a projection) and `c [..., H]`."""

    h: Any
    c: Any


class LSTMActivations(NamedTuple):
    """The functions of the gates, of their input g, and of the cell where h is made of it."""

    gate: Callable[[Any], Any] = jax.nn.sigmoid
    input: Callable[[Any], Any] = jnp.tanh
    output: Callable[[Any], Any] = jnp.tanh


STANDARD = LSTMActivations()


class LSTMMix(NamedTuple):
    """The pre-activations `gates [..., G*H]`, and the parameters that the pointwise part needs."""

    gates: Any
    peephole: Any = None
    cell_scale: Any = None
    cell_offset: Any = None


def project(params: LSTMParams, x: Any) -> Any:
    """z = x W + b, or LN(x W) + b, `[..., D] -> [..., G*H]`."""
    checks.width(x, params.kernel)
    z = x @ params.kernel
    if params.norm is not None:
        z = standardized(z, _NORM_EPSILON) * params.norm.input_scale
    return z + params.bias


def mix(params: LSTMParams, carry: LSTMCarry, z: Any) -> LSTMMix:
    """gates = z + h U, or z + LN(h U), `[..., G*H]`."""
    u = carry.h @ params.recurrent_kernel
    if params.norm is None:
        return LSTMMix(z + u, params.peephole)
    norm = params.norm
    gates = z + standardized(u, _NORM_EPSILON) * norm.recurrent_scale
    return LSTMMix(gates, params.peephole, norm.cell_scale, norm.cell_offset)


def update(carry: LSTMCarry, u: LSTMMix, activations: LSTMActivations = STANDARD) -> LSTMCarry:
    """c = f ⊙ c + i ⊙ g and h = o ⊙ ψ(c), `[..., H]` each."""
    c = carry.c
    num_gates = u.gates.shape[-1] // c.shape[-1]
    *_, g, late_o = jnp.split(u.gates, num_gates, axis=-1)
    # All gates at once, although the result for g is not used: XLA's CPU backend does not vectorise
    # a loop that takes several slices of one array through `exp`, which is ten times slower.
    gates = u.gates if u.peephole is None else u.gates + _early_peepholes(u, c)
    gates = activations.gate(gates)
    *input_gate, f, _, o = jnp.split(gates, num_gates, axis=-1)
    c = f * c + (input_gate[0] if input_gate else 1 - f) * activations.input(g)
    if u.peephole is not None:
        o = activations.gate(late_o + u.peephole[-c.shape[-1] :] * c)
    visible = c
    if u.cell_scale is not None:
        visible = standardized(c, _NORM_EPSILON) * u.cell_scale + u.cell_offset
    return LSTMCarry(h=o * activations.output(visible), c=c)


def _early_peepholes(u, c):
    """What the peepholes add to the gates before the cell changes: zero for g and o."""
    early = u.peephole[: -c.shape[-1]] * jnp.tile(c, u.peephole.size // c.shape[-1] - 1)
    return jnp.pad(early, [(0, 0)] * (c.ndim - 1) + [(0, 2 * c.shape[-1])])


def advance_projected(
    params: LSTMParams,
    carry: LSTMCarry,
    z: Any,
    activations: LSTMActivations = STANDARD,
) -> LSTMCarry:
    """One step with a projection, h = (o ⊙ ψ(c)) R."""
    carry = update(carry, mix(params, carry, z), activations)
    return carry._replace(h=carry.h @ params.projection_kernel)


def emit(params: LSTMParams, carry: LSTMCarry, x: Any) -> Any:
    """y = h, `[..., H]`."""
    del params, x
    return carry.h


def initial_carry(params: LSTMParams, batch_shape: tuple[int, ...] = ()) -> LSTMCarry:
    """h = 0 and c = 0, `[*batch, H]`."""
    dtype = precision.compute_dtype(params)
    width = params.recurrent_kernel.shape[0]
    num_units = width if params.projection_kernel is None else params.projection_kernel.shape[0]
    return LSTMCarry(
        h=jnp.zeros((*batch_shape, width), dtype), c=jnp.zeros((*batch_shape, num_units), dtype)
    )


@model_factory
def lstm(
    num_units: int,
    *,
    activation: Callable[[Any], Any] = jnp.tanh,
    gate_activation: Callable[[Any], Any] = jax.nn.sigmoid,
    output_activation: Callable[[Any], Any] | None = None,
    clip: float | None = None,
    peephole: bool = False,
    projection: int | None = None,
    coupled: bool = False,
    layer_norm: bool = False,
    forget_bias: float | None = None,
    chrono: int | None = None,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The long short-term memory.

        i, f, o = σ(xₜ Wᵢ + hₜ₋₁ Uᵢ + bᵢ), …    g = φ(xₜ W_g + hₜ₋₁ U_g + b_g)
        cₜ = f ⊙ cₜ₋₁ + i ⊙ g,   hₜ = o ⊙ ψ(cₜ),   yₜ = hₜ

    φ and ψ are tanh and σ is the sigmoid, unless the options give other functions.

    Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000. There is one bias per
    gate, so G(DH + H² + H) parameters for G gates; torch keeps two biases, of which only the sum
    matters. The forget bias is a value of the parameter, and nothing is added in the step.
    Variants:

    * `peephole` (Gers and Schmidhuber 2000): pᵢ ⊙ cₜ₋₁ and p_f ⊙ cₜ₋₁ are added to the gates i and
      f, and p_o ⊙ cₜ to o; these weights start at zero.
    * `projection` P (LSTMP, Sak et al. 2014, arXiv:1402.1128): hₜ = (o ⊙ ψ(cₜ)) R, width P.
    * `coupled` (CIFG, Greff et al. 2015, arXiv:1503.04069): i = 1 - f, three gates.
    * `layer_norm` (Ba et al. 2016, arXiv:1607.06450): LN(x W) + LN(hₜ₋₁ U) + b in the gates and
      hₜ = o ⊙ ψ(LN(cₜ)). Each LN runs over its whole last axis, with b as the offset of the
      gates.

    Args:
        num_units: H.
        activation: φ, elementwise, of g; also ψ where `output_activation` is None.
        gate_activation: σ, elementwise, of the gates; `jr.cells.hard_sigmoid` is that of old keras
            models.
        output_activation: ψ, elementwise, of the cell; None is `activation`.
        clip: bound of the inputs of σ and φ, which become min(max(u, -clip), clip); cₜ is not
            bounded, as in onnxruntime. None is no bound.
        peephole: whether the gates read the cell.
        projection: P, the width of h, or None for no projection.
        coupled: whether the input gate is 1 - f.
        layer_norm: whether both products and the cell are normalised.
        forget_bias: initial bias of the forget gate; None is 1 (Jozefowicz et al. 2015), or the
            draw of `chrono`.
        chrono: longest dependency in steps, at least 3, for the initialisation of Tallec and
            Ollivier 2018 (arXiv:1804.11188): b_f = log U(1, chrono - 1), bᵢ = -b_f.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]` (`[..., P]`), carry `LSTMCarry(h, c)`.

    Raises:
        TypeError: A size or `chrono` is not an int, an activation is not a function, `clip` or
            `forget_bias` is not a number, or a flag is not a bool.
        ValueError: A size is below 1, `chrono` below 3, `clip` is not above 0, `forget_bias` is not
            finite, or both `forget_bias` and `chrono` are given.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params)) == 4 * (3 * 4 + 4 * 4 + 4)
        True
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    checks.positive(num_units, "num_units")
    width = num_units if projection is None else checks.positive(projection, "projection")
    for name, flag in {"peephole": peephole, "coupled": coupled, "layer_norm": layer_norm}.items():
        checks.boolean(flag, name)
    _check_bias(forget_bias, chrono)
    activations = _activations(activation, gate_activation, output_activation, clip)
    num_gates = 3 if coupled else 4

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        params = LSTMParams(
            kernel=initializers.input_kernel(
                keys[0], num_inputs, num_gates * num_units, param_dtype
            ),
            recurrent_kernel=initializers.orthogonal_per_gate(
                keys[1], width, num_units, num_gates, param_dtype
            ),
            bias=_initial_bias(keys[2], num_units, coupled, forget_bias, chrono, param_dtype),
        )
        if peephole:
            params = params._replace(peephole=jnp.zeros((num_gates - 1) * num_units, param_dtype))
        if projection is not None:
            kernel = initializers.input_kernel(keys[3], num_units, width, param_dtype)
            params = params._replace(projection_kernel=kernel)
        if layer_norm:
            params = params._replace(norm=_initial_norm(num_gates, num_units, param_dtype))
        return params

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, partial(update, activations=activations))
        if projection is None
        else partial(advance_projected, activations=activations),
        emit=emit,
        num_outputs=lambda num_inputs: width,
    )


def _activations(activation, gate_activation, output_activation, clip):
    checks.function(activation, "activation")
    checks.function(gate_activation, "gate_activation")
    if output_activation is not None:
        checks.function(output_activation, "output_activation")
    bound = None if clip is None else checks.above_zero(clip, "clip")
    return LSTMActivations(
        gate=clipped(gate_activation, bound),
        input=clipped(activation, bound),
        output=output_activation or activation,
    )


def _check_bias(forget_bias, chrono):
    if chrono is not None and checks.positive(chrono, "chrono") < 3:
        raise ValueError(f"chrono must be at least 3 steps, got {chrono}.")
    if forget_bias is None:
        return
    if chrono is not None:
        raise ValueError(f"forget_bias must be left out when chrono is given, got {forget_bias}.")
    if isinstance(forget_bias, bool) or not isinstance(forget_bias, int | float):
        raise TypeError(f"forget_bias must be a float, got {forget_bias!r}.")
    if not math.isfinite(forget_bias):
        raise ValueError(f"forget_bias must be finite, got {forget_bias}.")


def _initial_bias(key, num_units, coupled, forget_bias, chrono, dtype):
    zeros = jnp.zeros(num_units, dtype)
    if chrono is None:
        i, f = zeros, jnp.full(num_units, 1.0 if forget_bias is None else forget_bias, dtype)
    else:
        f = initializers.chrono_bias(key, num_units, chrono, dtype)
        i = -f
    return jnp.concatenate([f, zeros, zeros] if coupled else [i, f, zeros, zeros])


def _initial_norm(num_gates, num_units, dtype):
    return LSTMNorm(
        jnp.ones(num_gates * num_units, dtype),
        jnp.ones(num_gates * num_units, dtype),
        jnp.ones(num_units, dtype),
        jnp.zeros(num_units, dtype),
    )
