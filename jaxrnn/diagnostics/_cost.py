"""What a model costs, from shapes alone."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from jaxrnn.diagnostics._operations import multiply_adds
from jaxrnn.engine import checks
from jaxrnn.engine.parameters import check_params
from jaxrnn.engine.unroll import unroll
from jaxrnn.types import Evaluator, Model, Params

_VIEWS = {"reshape", "transpose", "squeeze", "expand_dims", "slice"}


class Cost(NamedTuple):
    """Counts for a whole batch, as ints.

    Attributes:
        parameters: number of parameters; a complex one counts as two.
        multiply_adds: multiplications, each with its addition, of one forward pass.
        training_memory: bytes that a forward pass keeps for the backward pass, without params and
            xs.
        streaming_memory: bytes of the carry; None for a layer that cannot stream.
    """

    parameters: int
    multiply_adds: int
    training_memory: int
    streaming_memory: int | None


def count_cost(
    model: Model,
    params: Params,
    xs: Any,
    *,
    time_major: bool = False,
    evaluator: Evaluator | None = None,
) -> Cost:
    """Parameters, arithmetic and memory of a model on sequences of a given shape.

    For a simple recurrent cell with a readout, T steps and a batch of one:

        parameters        HD + H² + H + CH + C
        multiply_adds     T (HD + H² + CH)
        training_memory   ∝ T H
        streaming_memory  H

    Nothing is computed: the forward pass is traced, and its matrix and elementwise products are
    counted, those in a loop once for each iteration. Additions alone, comparisons and elementary
    functions are not counted; a product of complex numbers counts as four, an FFT of n as
    2 n log₂ n, and a branch as its most expensive side. Training memory is what automatic
    differentiation keeps before a compiler rearranges it; only `checkpoint` recomputes anything.
    Streaming keeps the carry and nothing else, whatever T is; training does not.

    Args:
        model: the cell or layer to count.
        params: its parameters, arrays or `jax.ShapeDtypeStruct`.
        xs: inputs, a tree `[..., T, D]` of arrays or `jax.ShapeDtypeStruct`.
        time_major: whether xs are `[T, ..., D]`.
        evaluator: how a cell is evaluated; None is `auto()`.

    Returns:
        `Cost`.

    Raises:
        ValueError: A loop has no fixed number of steps (as with `newton()`), a layer is given an
            evaluator, or shapes disagree.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> model = jr.serial(jr.elman(16), jr.dense(5))
        >>> params = jax.eval_shape(lambda key: model.init(key, 3), jax.random.key(0))
        >>> counted = count_cost(model, params, jax.ShapeDtypeStruct((100, 3), jnp.float32))
        >>> counted.parameters == 16 * 3 + 16**2 + 16 + 5 * 16 + 5
        True
        >>> counted.multiply_adds == 100 * (16 * 3 + 16**2 + 5 * 16)
        True
        >>> counted.streaming_memory == 16 * 4
        True
    """

    def forward(params, xs):
        rollout = unroll(model, params, xs, time_major=time_major, evaluator=evaluator)
        return rollout.carry, rollout.outputs

    def backward(params, xs):
        return jax.vjp(lambda params: forward(params, xs), params)[1]

    params, xs = _shapes(params), _shapes(xs)
    return Cost(
        parameters=sum(map(_num_numbers, jax.tree.leaves(params))),
        multiply_adds=multiply_adds(jax.make_jaxpr(forward)(params, xs).jaxpr),
        training_memory=_result_bytes(jax.make_jaxpr(backward)(params, xs).jaxpr),
        streaming_memory=_carry_bytes(model, params, xs, time_major),
    )


def state_capacity_bits(model: Model, params: Any, *, bits_per_number: int | None = None) -> int:
    """How many bits the carry of one sequence can hold: p H.

        at most 2^(pH) states of H numbers with p bits each

    More than p H binary inputs have more histories than there are states, so two of them end in
    the same state, and no later output can distinguish them. This is only an upper bound: how much
    of it a model uses depends on training, and an output that depends on less (parity needs one
    bit) needs less.

    Args:
        model: a cell or a layer.
        params: its parameters, arrays or `jax.ShapeDtypeStruct`.
        bits_per_number: p; None is the width of each number's dtype (a bool is one bit, a complex
            number is two numbers).

    Returns:
        The number of bits.

    Raises:
        TypeError: `bits_per_number` is not an int.
        ValueError: `bits_per_number` is below 1.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.elman(128)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> state_capacity_bits(cell, params), state_capacity_bits(cell, params, bits_per_number=1)
        (4096, 128)
    """
    if bits_per_number is not None:
        checks.positive(bits_per_number, "bits_per_number")

    def initial_carry(params):
        check_params(model, params, None)
        return model.initial_carry(params)

    carry = jax.eval_shape(initial_carry, _shapes(params))

    def bits(leaf):
        if bits_per_number is not None:
            return bits_per_number * _num_numbers(leaf)
        return leaf.size * (1 if leaf.dtype == bool else 8 * leaf.dtype.itemsize)

    return sum(map(bits, jax.tree.leaves(carry)))


def _shapes(tree):
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree
    )


def _num_numbers(leaf):
    return leaf.size * (2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1)


def _carry_bytes(model, params, xs, time_major):
    if not getattr(model, "causal", True):
        return None
    leading = checks.leading_shape(xs, model.num_feature_axes)
    batch_shape = leading[1:] if time_major else leading[:-1]
    carry = jax.eval_shape(lambda params: model.initial_carry(params, batch_shape), params)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))


def _result_bytes(jaxpr):
    """The bytes of the results that are neither arguments nor views of them, each array once."""
    arguments = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if equation.primitive.name in _VIEWS and arguments.issuperset(_variables(equation.invars)):
            arguments.update(equation.outvars)
    results = set(_variables(jaxpr.outvars)) - arguments
    return sum(result.aval.size * result.aval.dtype.itemsize for result in results)


def _variables(atoms):
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]
