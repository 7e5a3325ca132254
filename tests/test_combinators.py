import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine import precision


def init(key, num_inputs):
    return {"rate": jnp.full(num_inputs, 0.5)}


def advance(params, carry, z):
    return params["rate"] * carry + (1 - params["rate"]) * z


def test_simple_cell_fills_in_the_obvious():
    cell = jr.simple_cell(init, advance, num_outputs=1)
    params = cell.init(jax.random.key(0), 1)
    assert cell.initial_carry(params, (2,)).tolist() == [[0.0], [0.0]]
    assert cell.project(params, jnp.ones(1)).tolist() == [1.0]
    assert cell.emit(params, jnp.ones(1), None).tolist() == [1.0]
    assert cell.num_outputs(7) == 1
    assert (
        not isinstance(cell.advance, jr.Split)
        and cell.prepare is None
        and cell.num_feature_axes == 1
    )


def test_simple_cell_starts_in_the_dtype_of_the_recurrence():
    cell = jr.simple_cell(init, advance, num_outputs=1)
    params = {"rate": jnp.ones(1, jnp.bfloat16)}
    assert cell.initial_carry(params).dtype == jnp.float32


def test_simple_cell_takes_what_it_is_given():
    cell = jr.simple_cell(
        init,
        lambda params, carry, z: (carry[0] + z, carry[1] + 1),
        num_outputs=1,
        initial_carry=lambda params, batch_shape=(): (
            jnp.full((*batch_shape, 1), 5.0),
            jnp.zeros(batch_shape),
        ),
        project=lambda params, x: 10 * x["value"],
        emit=lambda params, carry, x: carry[0] * x["gain"],
        num_feature_axes={"value": 1, "gain": 1},
    )
    xs = {"value": jnp.ones((2, 1)), "gain": jnp.array([[1.0], [2.0]])}
    rollout = jr.unroll(cell, cell.init(None, 1), xs)
    assert rollout.outputs[:, 0].tolist() == [15.0, 50.0]
    assert float(rollout.carry[1]) == 2


def test_simple_cell_asks_for_an_emit_when_the_carry_is_no_array():
    cell = jr.simple_cell(
        init,
        lambda params, carry, z: carry,
        num_outputs=1,
        initial_carry=lambda params, batch_shape=(): (jnp.zeros((*batch_shape, 1)),),
    )
    with pytest.raises(TypeError, match="emit must be given"):
        jr.unroll(cell, init(jax.random.key(0), 1), jnp.ones((2, 1)))


@pytest.mark.parametrize(("width", "error"), [(0, ValueError), (2.0, TypeError), (True, TypeError)])
def test_simple_cell_checks_its_width(width, error):
    with pytest.raises(error, match="num_outputs must be"):
        jr.simple_cell(init, advance, width)


def test_a_learned_carry_starts_every_sequence_and_learns_from_each():
    """h = (h + x) / 2 from s: after one step s / 2, so each of two sequences adds 1/2."""
    cell = jr.learned_initial_carry(jr.simple_cell(init, advance, num_outputs=1))
    params = cell.init(jax.random.key(0), 1)._replace(initial_carry=jnp.array([3.0]))
    reset = jnp.array([False, True])

    def total(params):
        rollout = jr.unroll(cell, params, jnp.array([[1.0], [5.0]]), reset=reset)
        return rollout.outputs.sum(), rollout.outputs[:, 0]

    gradient, outputs = jax.grad(total, has_aux=True)(params)
    assert outputs.tolist() == [2.0, 4.0]
    assert gradient.initial_carry.tolist() == [1.0]


def test_a_learned_complex_carry_goes_downhill():
    cell = jr.learned_initial_carry(jr.lru(2, 3))
    params = cell.init(jax.random.key(0), 2)

    def loss(params):
        return (jnp.abs(cell.initial_carry(params).h - (1 + 1j)) ** 2).sum()

    assert all(jnp.isrealobj(leaf) for leaf in jax.tree.leaves(params))
    for _ in range(30):
        params = jax.tree.map(
            lambda leaf, slope: leaf - 0.1 * slope, params, jax.grad(loss)(params)
        )
    assert loss(params) < 1e-4


def test_a_learned_carry_starts_as_the_cells_own():
    inner = jr.lstm(3)
    cell = jr.learned_initial_carry(inner)
    params = cell.init(jax.random.key(0), 2)
    xs = jax.random.normal(jax.random.key(1), (2, 4, 2))
    want = jr.unroll(inner, params.cell, xs).outputs
    np.testing.assert_array_equal(jr.unroll(cell, params, xs).outputs, want)


def test_a_learned_carry_has_no_batch_axes_but_starts_all_rows():
    cell = jr.learned_initial_carry(jr.elman(3))
    params = cell.init(jax.random.key(0), 2)._replace(
        initial_carry=jr.cells.ElmanCarry(jnp.arange(3.0))
    )
    assert cell.initial_carry(params, (2, 4)).h.shape == (2, 4, 3)
    assert cell.initial_carry(params, (2, 4)).h[1, 2].tolist() == [0, 1, 2]


def test_a_learned_carry_runs_in_the_dtype_of_all_parameters(x64):
    """A cell without parameters of its own has only the learned carry to take its dtype from."""
    smoother = jr.simple_cell(lambda key, num_inputs: (), lambda _, carry, z: (carry + z) / 2, 1)
    cell = jr.learned_initial_carry(smoother)
    params = cell.init(jax.random.key(0), 1)._replace(initial_carry=jnp.ones(1, jnp.float64))
    assert cell.initial_carry(params).dtype == precision.compute_dtype(params) == jnp.float64
    assert jr.unroll(cell, params, jnp.ones((3, 1))).outputs.tolist() == [[1.0]] * 3


def test_a_low_precision_learned_carry_is_carried_in_float32():
    cell = jr.learned_initial_carry(jr.elman(3))
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), cell.init(jax.random.key(0), 2))
    assert cell.initial_carry(params).h.dtype == jnp.float32


def test_learned_carries_keep_ints_as_they_are():
    counter = jr.simple_cell(
        lambda key, num_inputs: {"bias": jnp.ones(1)},
        lambda params, carry, z: carry + 1,
        num_outputs=1,
        initial_carry=lambda params, batch_shape=(): jnp.zeros((*batch_shape, 1), jnp.int32),
        emit=lambda params, carry, x: carry * params["bias"],
    )
    cell = jr.learned_initial_carry(counter)
    params = cell.init(jax.random.key(0), 1)
    assert cell.initial_carry(params).dtype == jnp.int32
    assert jr.unroll(cell, params, jnp.ones((3, 1))).carry.tolist() == [3]
