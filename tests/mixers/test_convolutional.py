import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine.evaluators.convolution import Response, convolve
from jaxrnn.engine.masking import select
from jaxrnn.testing import _rows as rows
from jaxrnn.testing import check_layer

D = 3
CELLS = {
    "complex states": lambda dtype=jnp.float64: jr.s4d(8, "lin", param_dtype=dtype),
    "real states": lambda dtype=jnp.float64: jr.s4d(4, "real", param_dtype=dtype),
    "bilinear": lambda dtype=jnp.float64: jr.s4d(
        8, "legs", discretization="bilinear", param_dtype=dtype
    ),
}
every_cell = pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)


def assert_close(got, want, rtol=1e-10):
    def leaf_close(got, want):
        np.testing.assert_allclose(got, want, rtol=0, atol=rtol * np.abs(want).max(initial=1e-3))

    jax.tree.map(leaf_close, got, want)


def random_carry(cell, params, batch_shape=()):
    rng = np.random.default_rng(3)

    def draw(leaf):
        real, imag = rng.standard_normal((2, *leaf.shape))
        return jnp.asarray(real + 1j * imag if jnp.iscomplexobj(leaf) else real)

    return jax.tree.map(draw, cell.initial_carry(params, batch_shape))


def halving():
    """hₜ = hₜ₋₁ / 2 + xₜ in one state for each feature, y = h + 3 x."""

    def project(params, x):
        return jr.Affine(jnp.full((x.shape[-1], 1), 0.5), x[..., None])

    return jr.simple_cell(
        init=lambda key, num_inputs: {"width": jnp.zeros(num_inputs)},
        advance=lambda params, carry, z: z.a * carry + z.b,
        num_outputs=1,
        initial_carry=lambda params, batch_shape=(): jnp.zeros(
            (*batch_shape, params["width"].size, 1)
        ),
        project=project,
        emit=lambda params, carry, x: carry[..., 0] + 3 * x,
    )


def test_worked_numbers():
    layer = jr.recurrent(halving(), jr.convolution())
    params = layer.init(jax.random.key(0), 1)
    rollout = jr.unroll(layer, params, jnp.array([[1.0], [2.0], [0.0]]))
    np.testing.assert_allclose(rollout.outputs[:, 0], [4.0, 8.5, 1.25], rtol=1e-5)
    np.testing.assert_allclose(rollout.carry, [[1.25]], rtol=1e-6)


def test_the_kernel_by_its_definition(x64):
    cell = jr.s4d(8, "lin", param_dtype=jnp.float64)
    layer = jr.recurrent(cell, jr.convolution())
    params = layer.init(jax.random.key(0), D)
    xs = np.random.default_rng(0).standard_normal((13, D))
    eigenvalues = -np.exp(params.decay_log) + 1j * params.eigenvalue_imag
    step = np.exp(params.step_log)[:, None]
    gain = (np.exp(step * eigenvalues) - 1) / eigenvalues
    read = params.output_kernel_real + 1j * params.output_kernel_imag
    outputs = params.skip * xs
    for t in range(13):
        for s in range(t + 1):
            kernel = 2 * (read * gain * np.exp((t - s) * step * eigenvalues)).sum(1).real
            outputs = outputs.at[t].add(kernel * xs[s])
    assert_close(jr.unroll(layer, params, xs).outputs, outputs)


@every_cell
@pytest.mark.parametrize("num_steps", [2, 3, 11, 16])
def test_it_is_the_recurrence(x64, make, num_steps):
    cell = make()
    layer = jr.recurrent(cell, jr.convolution())
    params = layer.init(jax.random.key(0), D)
    carry = random_carry(cell, params, (2,))
    xs = np.random.default_rng(num_steps).standard_normal((2, num_steps, D))
    got = jr.unroll(layer, params, xs, carry=carry)
    want = jr.unroll(cell, params, xs, carry=carry, evaluator=jr.sequential())
    assert got.info == jr.convolution()
    assert_close(got[:2], want[:2])


@every_cell
def test_masks_carries_and_gradients(x64, make):
    cell = make()
    layer = jr.recurrent(cell, jr.convolution())
    params = layer.init(jax.random.key(0), D)
    num_steps = 11
    mask = np.random.default_rng(1).random((5, num_steps)) < 0.5
    mask[0], mask[1] = True, False
    mask[2] = np.arange(num_steps) < 6
    mask[3] = np.arange(num_steps) >= 6
    xs = np.random.default_rng(2).standard_normal((5, num_steps, D))
    xs[~mask] = np.nan
    carry = random_carry(cell, params, (5,))

    def compiled(record):
        def loss(params, xs, carry):
            rollout = jr.unroll(record, params, xs, carry=carry, mask=mask)
            h = rollout.carry.h
            value = jnp.sum(jnp.sin(rollout.outputs)) + jnp.sum(jnp.sin(h.real) + h.imag**2)
            return value, rollout[:2]

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))

    got = compiled(layer)(params, xs, carry)
    assert_close(got, compiled(cell)(params, xs, carry))
    np.testing.assert_array_equal(got[1][0].h[1], carry.h[1])


def test_resets_and_single_steps_are_run_step_by_step(x64):
    layer = jr.recurrent(jr.s4d(8, param_dtype=jnp.float64), jr.convolution())
    params = layer.init(jax.random.key(0), D)
    xs = np.random.default_rng(2).standard_normal((6, D))
    reset = np.array([0, 0, 0, 1, 0, 0], bool)
    packed = jr.unroll(layer, params, xs, reset=reset)
    assert packed.info == jr.sequential()
    parts = [jr.unroll(layer, params, part) for part in (xs[:3], xs[3:])]
    assert_close(packed.outputs, np.concatenate([part.outputs for part in parts]))
    assert_close(packed.carry, parts[1].carry)
    carry, outputs = layer.initial_carry(params), []
    for x in xs[:3]:
        carry, y = jr.step(layer, params, carry, x)
        outputs.append(y)
    assert_close((carry, np.stack(outputs)), (parts[0].carry, parts[0].outputs))
    none = jr.unroll(layer, params, xs[:0], carry=carry)
    np.testing.assert_array_equal(none.carry.h, carry.h)


def sequence_by_sequence(layer, most=3):
    """The layer that never sees a reset: each sequence of a row is run with the others masked."""

    def unroll(params, carry, steps, key):
        xs, mask, reset = steps
        if reset is None:
            return layer.unroll(params, carry, steps, key)
        sequence = jnp.cumsum(reset, axis=0)
        fresh = layer.initial_carry(params, reset.shape[1:])

        def run(number):
            own = sequence == number
            own = own if mask is None else own & mask
            start = jax.tree.map(lambda *pair: jnp.where(number == 0, *pair), carry, fresh)
            return own, layer.unroll(params, start, jr.Steps(xs, own), key)

        own, rollouts = jax.vmap(run)(jnp.arange(most))
        last = jax.nn.one_hot(sequence[-1], most, axis=0, dtype=bool)

        def chosen(flags, tree):
            zeros = jax.tree.map(jnp.zeros_like, tree)
            return jax.tree.map(lambda leaf: leaf.sum(0), select(flags, tree, zeros))

        outputs = chosen(own, rollouts.outputs)
        return rollouts._replace(carry=chosen(last, rollouts.carry), outputs=outputs)

    return layer._replace(unroll=unroll)


def test_laws():
    check_layer(jr.recurrent(jr.s4d(4), jr.convolution()))


def test_laws_of_the_convolution_itself(monkeypatch):
    # A transform rounds: later inputs move earlier outputs in their last digit, which the law that
    # an output does not see later inputs takes for sight. Tests of kernels and of NaN replace it.
    check_rows_apart = rows.check_rows_apart
    monkeypatch.setattr(rows, "check_rows_apart", lambda *args: check_rows_apart(*args[:-1], False))
    cell = jr.learned_initial_carry(jr.s4d(4, "real"))
    check_layer(sequence_by_sequence(jr.recurrent(cell, jr.convolution())))


def test_the_end_does_not_come_round_to_the_start():
    # A kernel that delays by 3 of 4 steps: a transform of 4 steps would turn the rest round.
    kernel = jnp.zeros((4, 1)).at[3].set(1.0)
    no_skip = jnp.zeros(1)
    nothing = Response(kernel, no_skip, lambda h: jnp.zeros((4, 1)), lambda h, xs, counts: h)
    _, outputs = convolve(nothing, None, jnp.array([[5.0], [6.0], [7.0], [8.0]]), None)
    np.testing.assert_allclose(outputs[:, 0], [0, 0, 0, 5], atol=1e-6)


def test_nan_reaches_no_earlier_step_and_no_other_row(x64):
    layer = jr.recurrent(jr.s4d(8, param_dtype=jnp.float64), jr.convolution())
    params = layer.init(jax.random.key(0), D)
    xs = np.random.default_rng(2).standard_normal((2, 8, D))
    clean = jr.unroll(layer, params, xs)
    xs[0, 5] = np.nan
    dirty = jr.unroll(layer, params, xs)
    assert_close(dirty.outputs[0, :5], clean.outputs[0, :5], 1e-14)
    np.testing.assert_array_equal(dirty.outputs[1], clean.outputs[1])
    assert np.isnan(dirty.outputs[0, 5:]).all() and np.isnan(dirty.carry.h[0]).all()


def test_bfloat16_inputs():
    layer = jr.recurrent(CELLS["complex states"](jnp.float32), jr.convolution())
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (2, 64, D), jnp.bfloat16)
    rollout = jr.unroll(layer, params, xs)
    assert rollout.outputs.dtype == jnp.bfloat16 and rollout.carry.h.dtype == jnp.complex64
    by_step = jr.unroll(layer, params, xs, reset=jnp.zeros((2, 64), bool))
    outputs = (leaf.outputs.astype(jnp.float32) for leaf in (rollout, by_step))
    np.testing.assert_allclose(*outputs, rtol=1e-2, atol=2e-2)
    assert_close(rollout.carry, by_step.carry, 1e-4)


def test_other_cells_raise():
    with pytest.raises(TypeError, match="cell must be a Cell"):
        jr.recurrent(jr.dense(2), jr.convolution())
    with pytest.raises(TypeError, match=r"project returns Affine\(a, b\)"):
        jr.recurrent(jr.elman(2), jr.convolution())
    with pytest.raises(TypeError, match="not draw noise"):
        jr.recurrent(jr.zoneout(jr.s4d(4), 0.1), jr.convolution())
    with pytest.raises(TypeError, match=r"one array \[\.\.\., D, N\]"):
        jr.recurrent(jr.lru(2, 2), jr.convolution())
    mixing = halving()._replace(emit=lambda params, carry, x: carry.sum((-1, -2)) + 3 * x)
    with pytest.raises(ValueError, match="mixes"):
        jr.recurrent(mixing, jr.convolution())
    biased = halving()._replace(emit=lambda params, carry, x: carry[..., 0] + 1)
    with pytest.raises(ValueError, match="linear in x"):
        jr.recurrent(biased, jr.convolution())
    gated = halving()._replace(
        project=lambda params, x: jr.Affine(jax.nn.sigmoid(x)[..., None], x[..., None])
    )
    with pytest.raises(ValueError, match="change with x"):
        jr.recurrent(gated, jr.convolution())


def test_it_can_be_made_while_tracing():
    @jax.jit
    def run(xs):
        layer = jr.recurrent(jr.s4d(4), jr.convolution())
        return jr.unroll(layer, layer.init(jax.random.key(0), D), xs).outputs

    assert run(jnp.ones((5, D))).shape == (5, D)


def test_what_initial_values_hide_is_refused():
    """A gate that starts at 0 and a mixing matrix that starts as the identity."""

    def gated(params, x):
        rate = jax.nn.sigmoid(params["gate"] * x)[..., None] * jnp.ones(2)
        return jr.Affine(rate, x[..., None] * jnp.ones(2))

    def mixed(params, x):
        x = x @ params["matrix"]
        return jr.Affine(jnp.full((*x.shape, 2), 0.5), x[..., None] * jnp.ones(2))

    def cell(init, project):
        return jr.simple_cell(
            init,
            lambda params, carry, z: z.a * carry + z.b,
            num_outputs=2,
            initial_carry=lambda params, batch_shape=(): jnp.zeros((*batch_shape, 2, 2)),
            project=project,
            emit=lambda params, carry, x: carry.sum(-1),
        )

    for init, project, message in (
        (lambda key, n: {"gate": jnp.zeros(n)}, gated, "same coefficients at all steps"),
        (lambda key, n: {"matrix": jnp.eye(n)}, mixed, "keep features apart"),
    ):
        with pytest.raises(ValueError, match=message):
            jr.recurrent(cell(init, project), jr.convolution())
