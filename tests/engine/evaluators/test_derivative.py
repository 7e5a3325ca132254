"""The derivative rule of cells with a split against plain autodiff, which is the oracle."""

import functools
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from support.compiler import temporary_bytes

import jaxrnn as jr
from jaxrnn.engine.evaluators.sequential import blocks

T, D, H = 6, 2, 3
AUTODIFF = jr.sequential(derivative="autodiff")

# Padding behind, in front, between, everywhere and nowhere.
MASK = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1], [0] * 6, [1] * 6]) > 0
RESET = np.array([[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]])
RESET = np.concatenate([RESET, np.zeros((1, 6))]) > 0
FLAGS = {"mask": MASK, "reset": RESET}


def tokens():
    """x is an int; the rows of `kernel` are its vectors."""
    elman = jr.elman(H)
    return elman._replace(project=lambda params, x: params.kernel[x], num_feature_axes=0)


CELLS = {
    "elman of ints": tokens,
    "lstm": lambda: jr.lstm(H),
    "lstm peephole": lambda: jr.lstm(H, peephole=True),
    "lstm coupled": lambda: jr.lstm(H, coupled=True),
    "lstm of all": lambda: jr.lstm(H, coupled=True, layer_norm=True, peephole=True),
    "gru": lambda: jr.gru(H),
    "gru before": lambda: jr.gru(H, reset_after=False),
    "mgu": lambda: jr.mgu(H),
    "slstm": lambda: jr.slstm(H),
    "wrapped lstm": lambda: jr.learned_initial_carry(
        jr.zoneout(jr.recurrent_dropout(jr.lstm(H, peephole=True), 0.3), 0.2)
    ),
}


@pytest.fixture
def two_steps_a_block(monkeypatch):
    """Three blocks for T = 6."""
    monkeypatch.setattr(blocks, "_NUM_ROWS", 2 * len(MASK))


def arguments(cell):
    """Params without zeros, a carry that no initial one is, and inputs, in float64."""
    generator = np.random.default_rng(0)

    def draw(leaf):
        return 0.5 * generator.standard_normal(leaf.shape)

    params = jax.tree.map(draw, cell.init(jax.random.key(0), D))
    carry = jax.tree.map(draw, cell.initial_carry(params, MASK.shape[:1]))
    ints = cell.num_feature_axes == 0
    xs = (
        generator.integers(0, D, MASK.shape)
        if ints
        else generator.standard_normal((*MASK.shape, D))
    )
    return params, carry, xs


def value_and_gradient(cell, evaluator, **options):
    """Outputs, the last carry, and the gradients of params, carry and xs."""

    def loss(params, carry, xs):
        rollout = jr.unroll(cell, params, xs, carry=carry, evaluator=evaluator, **options)
        of_carry = sum(jnp.sum(leaf**3) for leaf in jax.tree.leaves(rollout.carry))
        return jnp.sin(rollout.outputs).sum() + of_carry, rollout[:2]

    gradient = jax.value_and_grad(loss, (0, 1, 2), has_aux=True, allow_int=True)
    return jax.jit(gradient)(*arguments(cell))


def assert_same(got, want, rtol=1e-12):
    for (path, leaf), wanted in zip(
        jax.tree_util.tree_flatten_with_path(got)[0], jax.tree.leaves(want), strict=True
    ):
        if leaf.dtype != jax.dtypes.float0:
            scale = np.abs(wanted).max(initial=0.0)
            name = jax.tree_util.keystr(path)
            np.testing.assert_allclose(leaf, wanted, rtol, rtol * scale, err_msg=name)


@pytest.mark.parametrize("name", CELLS)
def test_equals_autodiff(name, x64, two_steps_a_block):
    cell = CELLS[name]()
    options = FLAGS | {"key": None if cell.prepare is None else jax.random.key(1)}
    want = value_and_gradient(cell, AUTODIFF, **options)
    assert_same(value_and_gradient(cell, jr.sequential(), **options), want)


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_with_a_split_has_the_rule(name, x64):
    cell = CELLS[name]()
    params, _, xs = arguments(cell)
    program = str(jax.make_jaxpr(lambda params: jr.unroll(cell, params, xs)[:2])(params))
    assert "custom_jvp_call" in program


@functools.cache
def lstm_gradient(evaluator, flags=(), reverse=False):
    options = {name: FLAGS[name] for name in flags}
    cell = jr.learned_initial_carry(jr.lstm(H, param_dtype=jnp.float64))
    return value_and_gradient(cell, evaluator, reverse=reverse, **options)


@pytest.mark.parametrize("flags", [(), ("mask",), ("reset",)], ids=str)
def test_equals_autodiff_without_some_flags(flags, x64):
    assert_same(lstm_gradient(jr.sequential(), flags), lstm_gradient(AUTODIFF, flags))


@pytest.mark.parametrize(
    ("num_steps", "num_rows", "size"),
    [(6, 2, 2), (7, 3, 3), (7, 5, 7), (8, 3, 2), (0, 5, 1), (5, 1, 1)],
)
def test_blocks_of_any_size_are_one_scan(num_steps, num_rows, size, monkeypatch):
    monkeypatch.setattr(blocks, "_NUM_ROWS", 10 * num_rows)
    assert blocks.block_size(num_steps, (2, 5)) == size

    def through(total, block):
        start, steps = block
        sums = total + jnp.cumsum(steps)
        return sums[-1], (sums, jnp.full(steps.shape, start))

    steps, starts = jnp.arange(1.0, num_steps + 1), jnp.arange(num_steps // size + 1)
    total, (sums, numbers) = blocks.scan_blocks(through, 0.0, steps, starts, size)
    np.testing.assert_array_equal(sums, np.cumsum(steps))
    np.testing.assert_array_equal(numbers, np.arange(num_steps) // size)
    assert total == num_steps * (num_steps + 1) / 2


@pytest.mark.parametrize(
    "evaluator",
    [
        jr.sequential(checkpoint=4),
        jr.sequential(scan_unroll=4),
    ],
    ids=["two levels", "unrolled"],
)
def test_equals_autodiff_inside_other_evaluators(evaluator, x64):
    want = lstm_gradient(AUTODIFF, ("mask", "reset"), reverse=True)
    assert_same(lstm_gradient(evaluator, ("mask", "reset"), reverse=True), want)


def summed(cell, evaluator, **options):
    """`(params, xs) -> loss`, of the outputs."""

    def loss(params, xs):
        rollout = jr.unroll(cell, params, xs, evaluator=evaluator, **options)
        return jnp.sin(rollout.outputs).sum()

    return loss


def test_second_derivatives(x64, two_steps_a_block):
    """Reverse over reverse and forward over reverse, along one direction."""
    cell = CELLS["gru"]()
    params, _, xs = arguments(cell)
    direction = jax.tree.map(jnp.cos, params)

    def products(evaluator):
        gradient = jax.grad(summed(cell, evaluator, **FLAGS))

        def slope(params):
            parts = jax.tree.map(jnp.vdot, gradient(params, xs), direction)
            return sum(jax.tree.leaves(parts))

        forward = jax.jvp(lambda params: gradient(params, xs), (params,), (direction,))[1]
        return jax.grad(slope)(params), forward

    got, want = (jax.jit(products, static_argnums=0)(e) for e in (jr.sequential(), AUTODIFF))
    assert_same(got, want, rtol=1e-11)
    assert_same(got[0], got[1], rtol=1e-11)


@pytest.mark.parametrize("name", ["elman of ints", "wrapped lstm"])
def test_forward_mode(name, x64, two_steps_a_block):
    """Along a direction of all arguments, and, linearised and mapped, of the carry alone."""
    cell = CELLS[name]()
    key = None if cell.prepare is None else jax.random.key(1)

    @functools.partial(jax.jit, static_argnums=0)
    def pushed(evaluator, params, carry, xs):
        def run(params, carry, scale):
            moved = xs if jnp.issubdtype(xs.dtype, jnp.integer) else xs * scale
            options = FLAGS | {"carry": carry, "key": key, "evaluator": evaluator}
            return jr.unroll(cell, params, moved, **options)[:2]

        primals = params, carry, 1.0
        directions = jax.tree.map(jnp.cos, primals)
        _, linear = jax.linearize(lambda carry: run(params, carry, 1.0), carry)
        two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf**2]), directions[1])
        return jax.jvp(run, primals, directions), jax.vmap(linear)(two)

    got, want = (pushed(evaluator, *arguments(cell)) for evaluator in (jr.sequential(), AUTODIFF))
    assert_same(got, want)


def test_a_cell_without_split_gets_autodiff(x64):
    split = jr.elman(H).advance
    cell = jr.elman(H)._replace(advance=lambda params, carry, z: split(params, carry, z))
    params, _, xs = arguments(cell)
    loss = functools.partial(summed(cell, jr.sequential()), params)
    forward = jax.jit(lambda xs: jax.jvp(loss, (xs,), (jnp.ones_like(xs),))[1])(xs)
    assert np.isfinite(forward)


def test_a_cell_that_contains_a_custom_vjp_gets_autodiff(x64):
    """Such a function has no tangents, so its cell has reverse mode alone, which must be right."""

    @jax.custom_vjp
    def activation(u):
        return jnp.tanh(u)

    activation.defvjp(
        lambda u: (jnp.tanh(u), u), lambda u, cotangent: (cotangent / jnp.cosh(u) ** 2,)
    )
    cell, plain = jr.elman(H, lambda u: jax.jit(activation)(u)), jr.elman(H)
    got = value_and_gradient(cell, jr.sequential(), **FLAGS)
    assert_same(got, value_and_gradient(plain, AUTODIFF, **FLAGS))


def test_symbolic_shapes_export_their_gradient():
    cell = jr.elman(H)
    params = cell.init(jax.random.key(0), D)
    shape = jax.export.symbolic_shape(f"b, t, {D}")
    gradient = jax.jit(jax.grad(summed(cell, jr.sequential())))
    exported = jax.export.export(gradient)(params, jax.ShapeDtypeStruct(shape, jnp.float32))
    xs = jnp.ones((3, 5, D))
    assert_same(exported.call(params, xs), gradient(params, xs), rtol=1e-5)


def test_nan_in_padding_and_before_a_reset_reaches_no_other_cotangent(x64):
    cell = CELLS["gru"]()
    params, _, xs = arguments(cell)
    gradient = jax.jit(jax.grad(summed(cell, jr.sequential(), **FLAGS), (0, 1)))
    clean, clean_xs = gradient(params, xs)
    padded = np.where(MASK[..., None], xs, np.nan)
    assert_same(gradient(params, padded), (clean, clean_xs), rtol=0)
    real = xs.copy()
    real[0, 0] = np.nan
    dirty = np.array(gradient(params, real)[1])
    assert np.isnan(dirty[0, :2]).any()
    dirty[0, :2] = clean_xs[0, :2]
    assert_same(dirty, clean_xs, rtol=0)


def test_vmap_over_params_and_rows(x64):
    cell = CELLS["lstm"]()
    params, _, xs = arguments(cell)
    many = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), params)

    def mapped(evaluator):
        gradient = jax.grad(summed(cell, evaluator), (0, 1))
        return jax.jit(jax.vmap(gradient))(many, xs[:2])

    assert_same(mapped(jr.sequential()), mapped(AUTODIFF))


def test_devices_share_the_params_of_a_sharded_batch(x64):
    cell = jr.learned_initial_carry(jr.mgu(H))
    params, _, xs = arguments(cell)
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = PartitionSpec("batch")

    def loss(params, xs, mask, reset):
        rollout = jr.unroll(cell, params, xs, mask=mask, reset=reset)
        return jax.lax.psum(jnp.sin(rollout.outputs).sum(), "batch")

    sharded = jax.shard_map(
        loss, mesh=mesh, in_specs=(PartitionSpec(), rows, rows, rows), out_specs=PartitionSpec()
    )
    got = jax.jit(jax.grad(sharded, (0, 1)))(params, xs, MASK, RESET)
    want = jax.jit(jax.grad(summed(cell, AUTODIFF, **FLAGS), (0, 1)))(params, xs)
    assert_same(got, want)


def test_carries_are_stored_once():
    """In arrays like h of all steps: h, c, four gates, the outputs' cotangent; and one block."""
    cell = jr.lstm(32)
    params = cell.init(jax.random.key(0), D)
    xs = jax.ShapeDtypeStruct((1024, 16, D), jnp.float32)
    gradient = jax.grad(summed(cell, jr.sequential(), time_major=True))
    assert temporary_bytes(gradient, params, xs) < 7.6 * 4 * 1024 * 16 * 32


def test_half_precision_sums_weight_gradients_in_float32():
    """256 equal steps: a sum in bfloat16 stops growing at 256 times its smallest bit."""
    cell = jr.elman(1, lambda u: u, param_dtype=jnp.bfloat16)
    params = jr.cells.ElmanParams(
        *(jnp.zeros(shape, jnp.bfloat16) for shape in ((1, 1), (1, 1), (1,)))
    )
    xs = jnp.ones((1000, 1), jnp.bfloat16)
    gradient = jax.grad(lambda params: jr.unroll(cell, params, xs).outputs.sum())(params)
    assert {leaf.dtype for leaf in gradient} == {jnp.dtype(jnp.bfloat16)}
    np.testing.assert_allclose(float(gradient.kernel[0, 0]), 1000, rtol=2**-8)


def innermost_scans(jaxpr):
    for equation in jaxpr.eqns:
        body = equation.params["jaxpr"].jaxpr if equation.primitive.name == "scan" else None
        if body is not None and not any(innermost_scans(body)):
            yield body
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from innermost_scans(inner)


@pytest.mark.parametrize("name", ["lstm", "gru", "mgu"])
def test_no_step_makes_a_matrix_of_the_size_of_the_weights(name, x64):
    cell = CELLS[name]()
    params, _, xs = arguments(cell)
    sizes = {leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim == 2}

    def made(evaluator):
        program = jax.make_jaxpr(jax.grad(summed(cell, evaluator, **FLAGS)))(params, xs)
        sums = {"add_any", "dot_general"}
        return {
            equation.outvars[0].aval.shape
            for body in innermost_scans(program.jaxpr)
            for equation in body.eqns
            if equation.primitive.name in sums
        } & sizes

    assert made(AUTODIFF) == sizes
    assert not made(jr.sequential())


def test_a_cell_that_closes_over_what_is_differentiated_gets_autodiff(x64):
    xs = np.ones((2, 2))

    def last(slope):
        cell = jr.elman(1, lambda u: slope * u)
        params = jr.cells.ElmanParams(jnp.ones((2, 1)), jnp.full((1, 1), 0.5), jnp.zeros(1))
        return jr.unroll(cell, params, xs).outputs[-1, 0]

    # h₁ = 2s, h₂ = s (2 + s).
    np.testing.assert_allclose(jax.grad(last)(3.0), 2 + 2 * 3.0, rtol=1e-12)


def test_an_advance_that_was_replaced_alone_holds(x64):
    def clipped(params, carry, z):
        return jax.tree.map(
            lambda leaf: jnp.clip(leaf, -0.05, 0.05), cell.advance(params, carry, z)
        )

    cell = jr.gru(H, param_dtype=jnp.float64)
    wrapped = cell._replace(advance=clipped)
    got = value_and_gradient(wrapped, jr.sequential(), **FLAGS)
    assert_same(got, value_and_gradient(wrapped, AUTODIFF, **FLAGS))
    assert abs(got[0][1][1]).max() == 0.05


def test_a_wrong_derivative_raises():
    options: dict[str, Any] = {"derivative": "jvp"}
    with pytest.raises(ValueError, match="derivative must be one of .*'autodiff'.*got 'jvp'"):
        jr.sequential(**options)
