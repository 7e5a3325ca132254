import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, P, T, B = 3, 5, 2, 7, 2

VARIANTS = [
    dict(zip(("peephole", "projection", "coupled", "layer_norm"), values, strict=True))
    for values in itertools.product((False, True), (None, P), (False, True), (False, True))
]


def name_of(options):
    return "+".join(name for name, value in options.items() if value) or "plain"


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def normalized(v):
    return (v - v.mean()) / np.sqrt(v.var() + 1e-5)


STANDARD = sigmoid, np.tanh, np.tanh


def loop(
    params, xs, h, c, peephole=False, projection=None, coupled=False, layer_norm=False,
    functions=STANDARD,
):  # fmt: skip
    """One row, gate after gate, from the equations."""
    of_gates, of_input, of_cell = functions
    gates = "fgo" if coupled else "ifgo"
    eyes = "fo" if coupled else "ifo"

    def block(array, name, names=gates):
        return np.split(np.asarray(array), len(names), axis=-1)[names.index(name)]

    def sees(name, cell):
        return block(params.peephole, name, eyes) * cell if peephole else 0

    hs = []
    for x in np.asarray(xs):
        from_x, from_h = x @ params.kernel, h @ params.recurrent_kernel
        if layer_norm:
            from_x = normalized(from_x) * params.norm.input_scale
            from_h = normalized(from_h) * params.norm.recurrent_scale
        u = {
            name: block(from_x, name) + block(from_h, name) + block(params.bias, name)
            for name in gates
        }
        f = of_gates(u["f"] + sees("f", c))
        i = 1 - f if coupled else of_gates(u["i"] + sees("i", c))
        c = f * c + i * of_input(u["g"])
        o = of_gates(u["o"] + sees("o", c))
        seen = c
        if layer_norm:
            seen = normalized(c) * params.norm.cell_scale + params.norm.cell_offset
        h = o * of_cell(seen)
        if projection:
            h = h @ params.projection_kernel
        hs.append(h)
    return np.stack(hs), h, c


def moved(params, seed=7):
    """Every parameter away from its start, so that zeros and ones take part."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return tree.unflatten(
        leaf + 0.3 * jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    )


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_every_variant_against_the_loop(x64, options):
    cell = jr.lstm(H, **options, param_dtype=jnp.float64)
    params = moved(cell.init(jax.random.key(0), D))
    keys = jax.random.split(jax.random.key(1), 3)
    width = options["projection"] or H
    xs = jax.random.normal(keys[0], (B, T, D), jnp.float64)
    carry = jr.cells.LSTMCarry(
        h=0.5 * jax.random.normal(keys[1], (B, width), jnp.float64),
        c=jax.random.normal(keys[2], (B, H), jnp.float64),
    )
    rollout = jr.unroll(cell, params, xs, carry=carry)
    for row in range(B):
        hs, h, c = loop(params, xs[row], carry.h[row], carry.c[row], **options)
        np.testing.assert_allclose(rollout.outputs[row], hs, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(rollout.carry.h[row], h, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(rollout.carry.c[row], c, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("options", [VARIANTS[0], VARIANTS[-1]], ids=name_of)
def test_other_activations_and_a_bound(x64, options):
    functions = {"activation": jnp.sin, "gate_activation": jr.cells.hard_sigmoid}
    cell = jr.lstm(H, output_activation=jnp.arctan, clip=0.4, param_dtype=jnp.float64,
                   **functions, **options)  # fmt: skip
    params = moved(cell.init(jax.random.key(0), D))
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    h, c = np.zeros(P if options["projection"] else H), np.zeros(H)
    in_numpy = (
        lambda u: np.clip(0.2 * np.clip(u, -0.4, 0.4) + 0.5, 0, 1),
        lambda u: np.sin(np.clip(u, -0.4, 0.4)),
        np.arctan,
    )
    hs, *last = loop(params, xs, h, c, functions=in_numpy, **options)
    rollout = jr.unroll(cell, params, xs)
    np.testing.assert_allclose(rollout.outputs, hs, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.c, last[1], rtol=1e-10)


def test_the_cell_takes_the_activation_of_its_input_where_no_other_is_given():
    same = [
        jr.lstm(H, activation=jnp.sin, **given) for given in ({}, {"output_activation": jnp.sin})
    ]
    params = same[0].init(jax.random.key(0), D)
    ys, again = (jr.unroll(cell, params, jnp.ones((T, D))).outputs for cell in same)
    np.testing.assert_array_equal(ys, again)


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_parameter_counts(options):
    params = jr.lstm(H, **options).init(jax.random.key(0), D)
    gates, width = 3 if options["coupled"] else 4, options["projection"] or H
    count = gates * (D * H + width * H + H)
    count += (gates - 1) * H if options["peephole"] else 0
    count += H * width if options["projection"] else 0
    count += 2 * gates * H + 2 * H if options["layer_norm"] else 0
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


def test_one_unit_with_open_and_closed_gates():
    # i and o open, g = ±1: with f open c counts 1, 2, 1; with f closed it is the last g.
    xs = jnp.array([[50.0], [50.0], [-50.0]])
    kernel = jnp.array([[0.0, 0.0, 1.0, 0.0]])
    for f, cells in ((50.0, [1.0, 2.0, 1.0]), (-50.0, [1.0, 1.0, -1.0])):
        params = jr.cells.LSTMParams(kernel, jnp.zeros((1, 4)), jnp.array([50.0, f, 0.0, 50.0]))
        rollout = jr.carries(jr.lstm(1), params, xs)
        np.testing.assert_allclose(rollout.c[:, 0], cells, rtol=1e-6)
        np.testing.assert_allclose(rollout.h[:, 0], np.tanh(cells), rtol=1e-6)


def test_peepholes_start_as_the_plain_cell_and_norms_at_one():
    plain, peephole, norm = (
        jr.lstm(H, **options).init(jax.random.key(0), D)
        for options in ({}, {"peephole": True}, {"layer_norm": True})
    )
    assert not peephole.peephole.any()
    jax.tree.map(np.testing.assert_array_equal, plain, peephole._replace(peephole=None))
    for scale in (norm.norm.input_scale, norm.norm.recurrent_scale, norm.norm.cell_scale):
        assert (scale == 1).all()
    assert not norm.norm.cell_offset.any()


@pytest.mark.parametrize(("forget_bias", "value"), [(None, 1), (0.0, 0), (-2.5, -2.5), (3, 3)])
@pytest.mark.parametrize("coupled", [False, True])
def test_forget_bias(forget_bias, value, coupled):
    """jax#21749, pytorch#20102: no way to start with a forget bias of 1."""
    cell = jr.lstm(H, coupled=coupled, forget_bias=forget_bias)
    bias = cell.init(jax.random.key(0), D).bias.reshape(-1, H)
    zeros = np.zeros(H)
    want = [np.full(H, value), zeros, zeros]
    np.testing.assert_array_equal(bias, want if coupled else [zeros, *want])


@pytest.mark.parametrize("coupled", [False, True])
def test_chrono_biases(coupled):
    num_units, longest = 2000, 51
    cell = jr.lstm(num_units, coupled=coupled, chrono=longest)
    # The input width does not matter, and a recurrent kernel of this size would.
    bias = jax.jit(lambda key: cell.init(key, 1).bias)(jax.random.key(0)).reshape(-1, num_units)
    *input_gate, f, g, o = bias
    assert (f >= 0).all() and (f <= np.log(longest - 1)).all()
    assert f.max() > np.log(48) and f.min() < np.log(2)
    assert not g.any() and not o.any()
    assert len(input_gate) == (0 if coupled else 1)
    for i in input_gate:
        np.testing.assert_array_equal(i, -f)


def test_a_norm_takes_no_notice_of_the_scale_of_what_it_reads(x64):
    # Ba et al.: LN(a x W) = LN(x W); only the smallness of a variance beside 1e-5 shows.
    cell = jr.lstm(H, layer_norm=True, param_dtype=jnp.float64)
    params = moved(cell.init(jax.random.key(0), D))
    xs = 100 * jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    small, large = (jr.unroll(cell, params, scale * xs).outputs for scale in (1.0, 10.0))
    np.testing.assert_allclose(small, large, rtol=1e-6)
