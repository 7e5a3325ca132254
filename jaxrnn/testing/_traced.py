"""The laws that can be checked by tracing alone: types and purity."""

import re

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks, precision
from jaxrnn.engine.precision import cast
from jaxrnn.engine.unroll import unroll
from jaxrnn.testing._cases import Subject
from jaxrnn.testing._compare import assert_finite, assert_same, checks_law, require

TYPES = "types: the carry keeps its structure, shapes and dtypes; outputs have the dtype of xs"
PURE = "pure: tracing twice gives the same program"

BATCH_SHAPE = (2, 3)
NUM_STEPS = 4


@checks_law(TYPES)
def check_types(subject: Subject, num_inputs: int) -> None:
    """Structures, shapes and dtypes, for four pairs of dtypes; the initial carry is finite."""
    assert_finite(TYPES, "initial_carry", subject.record.initial_carry(subject.params))
    xs = subject.xs(*BATCH_SHAPE, NUM_STEPS)
    for params_dtype, xs_dtype in (
        (jnp.float32, jnp.float32),
        (jnp.bfloat16, jnp.bfloat16),
        (jnp.float32, jnp.bfloat16),
        (jnp.float64, jnp.float64),
    ):
        where = f"for {jnp.dtype(params_dtype)} params and {jnp.dtype(xs_dtype)} xs"
        typed = (cast(subject.params, params_dtype), cast(xs, xs_dtype))
        _check_one_precision(subject.record, *typed, num_inputs, where)


@checks_law(PURE)
def check_pure(subject: Subject) -> None:
    """The program does not depend on when it is traced: no global state, clock or numpy noise."""
    xs = subject.xs(*BATCH_SHAPE, NUM_STEPS)

    def program():
        # A new function, so that no earlier trace is reused.
        record = subject.record._replace(
            initial_carry=lambda *args: subject.record.initial_carry(*args)
        )
        traced = jax.make_jaxpr(lambda params, xs: unroll(record, params, xs)[:2])
        closed = traced(subject.params, xs)
        return re.sub(r"0x[0-9a-f]+", "", str(closed)), closed.consts

    (first, constants), (second, other_constants) = program(), program()
    changed = [line for line in second.splitlines() if line not in first.splitlines()]
    require(first == second, PURE, f"the second trace differs: {' '.join(changed).strip()!r}")
    assert_same(PURE, "the constants of the second trace", other_constants, constants)


def _check_one_precision(record, params, xs, num_inputs, where):
    one = jax.eval_shape(record.initial_carry, params)
    carry = jax.eval_shape(lambda params: record.initial_carry(params, BATCH_SHAPE), params)
    batched = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*BATCH_SHAPE, *leaf.shape), leaf.dtype), one
    )
    checks.same_tree(carry, batched, f"initial_carry(params, batch_shape) {where}")
    real = precision.compute_dtype(params)
    for path, leaf in jax.tree_util.tree_flatten_with_path(carry)[0]:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            is_complex = jnp.issubdtype(leaf.dtype, jnp.complexfloating)
            wanted = jnp.promote_types(real, jnp.complex64) if is_complex else real
            name = f"initial_carry{jax.tree_util.keystr(path)}"
            require(leaf.dtype == wanted, TYPES, f"{name} is {leaf.dtype}, not {wanted}, {where}")
    rollout = jax.eval_shape(lambda params, xs: unroll(record, params, xs), params, xs)
    if getattr(record, "causal", True):
        checks.same_tree(rollout.carry, carry, f"the last carry {where}")
    _check_outputs(rollout, record.num_outputs(num_inputs), xs, where)


def _check_outputs(rollout, width, xs, where):
    outputs = rollout.outputs
    dtypes = {
        leaf.dtype for leaf in jax.tree.leaves(xs) if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    for path, leaf in jax.tree_util.tree_flatten_with_path(outputs)[0]:
        name = f"outputs{jax.tree_util.keystr(path)}"
        leading = leaf.shape[: len(BATCH_SHAPE) + 1]
        wanted = (*BATCH_SHAPE, NUM_STEPS if rollout.flags is None else leading[-1])
        require(leading == wanted, TYPES, f"{name} starts with the axes {leading}, not {wanted}")
        if dtypes and jnp.issubdtype(leaf.dtype, jnp.floating):
            require(leaf.dtype in dtypes, TYPES, f"{name} is {leaf.dtype} {where}")
    if jax.tree_util.all_leaves([outputs]):
        found = outputs.shape[-1]
        require(found == width, TYPES, f"outputs have width {found}, num_outputs says {width}")
