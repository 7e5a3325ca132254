"""Modules of flax, linen and nnx, read and written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.pages import DOCS, run
from support.peer_case import assert_close, evaluate, random_like

import jaxrnn as jr

nn = pytest.importorskip("flax.linen", reason="needs flax")
nnx = pytest.importorskip("flax.nnx", reason="needs flax")

FLOAT64 = {"param_dtype": jnp.float64}


class Linen:
    """A linen module as a function of its variables, which are drawn."""

    def __init__(self, module, xs, seed=0):
        self.module = module
        variables = jax.eval_shape(lambda: module.init(jax.random.key(0), xs))
        self.leaves = jax.tree.map(lambda leaf: 0.5 * leaf, random_like(variables, seed))

    def apply(self, leaves, *args, **options):
        return self.module.apply(leaves, *args, **options)

    def read(self, leaves, **options):
        return jr.interop.from_flax(self.module, leaves, **options)


class NNX:
    """An nnx module as a function of its parameters, which are drawn."""

    def __init__(self, module, xs=None, seed=0):
        self.graph, leaves, self.rest = nnx.split(module, nnx.Param, ...)
        self.leaves = jax.tree.map(lambda leaf: 0.5 * leaf, random_like(leaves, seed))

    def merged(self, leaves):
        return nnx.merge(self.graph, leaves, self.rest, copy=True)

    def apply(self, leaves, *args, **options):
        return self.merged(leaves)(*args, **options)

    def read(self, leaves, **options):
        return jr.interop.from_flax(self.merged(leaves), **options)


def make_cell(package, name, num_inputs, num_units, **options):
    sizes = (num_units,) if package is nn else (num_inputs, num_units)
    rngs = {} if package is nn else {"rngs": nnx.Rngs(0)}
    return getattr(package, name)(*sizes, **FLOAT64, **rngs, dtype=None, **options)


def make_module(package, names, direction, num_inputs, num_units, options):
    cells = [make_cell(package, name, num_inputs, num_units, **options) for name in names]
    if direction == "both":
        return package.Bidirectional(*map(package.RNN, cells))
    return package.RNN(cells[0], reverse=direction == "backward", keep_order=True)


def as_flax(carry):
    if isinstance(carry, jr.layers.Directions):
        return tuple(map(as_flax, carry))
    return (carry.c, carry.h) if isinstance(carry, jr.cells.LSTMCarry) else carry.h


def as_ours(carry, like):
    if isinstance(like, jr.layers.Directions):
        return jr.layers.Directions(*map(as_ours, carry, like))
    leaves = carry[::-1] if isinstance(like, jr.cells.LSTMCarry) else (carry,)
    return type(like)(*leaves)


def assert_same(got, want):
    """Equal models and the same bits, in trees of both."""

    def is_model(node):
        return isinstance(node, jr.Cell | jr.Layer)

    pairs = [jax.tree.flatten(tree, is_leaf=is_model) for tree in (got, want)]
    assert pairs[0][1] == pairs[1][1]
    for left, right in zip(pairs[0][0], pairs[1][0], strict=True):
        assert left == right if is_model(right) else np.array_equal(left, right)


def options_of(name, activation):
    if name == "SimpleCell":
        return {"activation_fn": activation, "residual": activation is jnp.sin}
    gate = jax.nn.sigmoid if activation is jnp.tanh else jax.nn.hard_sigmoid
    return {"activation_fn": activation, "gate_fn": gate}


@pytest.mark.parametrize(
    ("package", "name", "direction", "activation", "lengths"),
    [
        (Linen, "SimpleCell", "both", jnp.sin, None),
        (NNX, "SimpleCell", "backward", jnp.tanh, [4, 1, 3]),
        (Linen, "LSTMCell", "backward", jnp.tanh, [2, 4, 3]),
        (NNX, "LSTMCell", "forward", jnp.sin, None),
        (Linen, "OptimizedLSTMCell", "forward", jnp.sin, [4, 2, 1]),
        (NNX, "OptimizedLSTMCell", "both", jnp.tanh, [3, 4, 2]),
        (Linen, "GRUCell", "both", jnp.sin, [1, 3, 4]),
        (NNX, "GRUCell", "backward", jnp.tanh, None),
    ],
)
def test_recurrent_modules(package, name, direction, activation, lengths):
    """Outputs, carries and all gradients, from a given carry; and back, bit for bit."""
    num_steps, num_inputs, num_units = 4, 3, 2
    with jax.enable_x64(True):
        xs = random_like(jnp.zeros((3, num_steps, num_inputs)), 50)
        options = options_of(name, activation)
        flax_package = nn if package is Linen else nnx
        module = make_module(flax_package, [name, name], direction, num_inputs, num_units, options)
        theirs = package(module, xs)
        model, params, none = theirs.read(theirs.leaves)
        assert none is None
        mask = None if lengths is None else jr.mask_from_lengths(jnp.array(lengths), num_steps)
        real = jnp.ones((3, num_steps), bool) if mask is None else mask
        carry = random_like(model.initial_carry(params, (3,)), 60)

        def flax_run(leaves, xs, carry):
            lengths_or_none = None if lengths is None else jnp.array(lengths)
            last, ys = theirs.apply(
                leaves,
                xs,
                initial_carry=as_flax(carry),
                seq_lengths=lengths_or_none,
                return_carry=True,
            )
            return jnp.where(real[..., None], ys, 0), as_ours(last, carry)

        def our_run(params, xs, carry):
            rollout = jr.unroll(model, params, xs, carry=carry, mask=mask)
            return rollout.outputs, rollout.carry

        got, (params_slope, *slopes) = evaluate(our_run, params, xs, carry)
        want, (leaves_slope, *flax_slopes) = evaluate(flax_run, theirs.leaves, xs, carry)
        assert_close((got, slopes), (want, flax_slopes))
        if not options.get("residual"):
            flax_slope = theirs.read(leaves_slope).params
            if package is NNX and name == "GRUCell":  # its bias of the recurrent product is ours
                params_slope, flax_slope = map(without_recurrent_bias, (params_slope, flax_slope))
            assert_close(params_slope, flax_slope)

        written = jr.interop.to_flax(model, params)
        assert_same(jr.interop.from_flax(*written)[:2], (model, params))
        if package is NNX:
            nnx_module = jr.interop.to_nnx(model, params)
            assert_same(jr.interop.from_flax(nnx_module)[:2], (model, params))
        elif not options.get("residual"):
            assert_same(written.variables, theirs.leaves)


def without_recurrent_bias(params):
    if isinstance(params, jr.layers.Directions):
        return tuple(map(without_recurrent_bias, params))
    return params[:3]


def stack(package):
    """Tokens in, and every layer that is read."""
    if package is nn:
        return nn.Sequential(
            [
                nn.Embed(7, 3, **FLOAT64),
                nn.RNN(nn.OptimizedLSTMCell(4, **FLOAT64), reverse=True, keep_order=True),
                nn.tanh,
                nn.LayerNorm(epsilon=1e-3, **FLOAT64),
                nn.RMSNorm(**FLOAT64),
                nn.Sequential([nn.Dropout(0.1, deterministic=True), nn.Dense(3, **FLOAT64)]),
                nn.Bidirectional(
                    nn.RNN(nn.SimpleCell(2, **FLOAT64)),
                    nn.RNN(nn.OptimizedLSTMCell(2, **FLOAT64)),
                    merge_fn=jnp.add,
                ),
                nn.Dense(5, use_bias=False, **FLOAT64),
                nn.relu,
            ]
        )
    options = {**FLOAT64, "rngs": nnx.Rngs(0)}
    return nnx.Sequential(
        nnx.Embed(7, 3, **options),
        nnx.RNN(nnx.OptimizedLSTMCell(3, 4, **options), reverse=True, keep_order=True),
        nnx.tanh,
        nnx.LayerNorm(4, epsilon=1e-3, **options),
        nnx.RMSNorm(4, **options),
        nnx.Sequential(
            nnx.Dropout(0.1, deterministic=True, rngs=nnx.Rngs(0)), nnx.Linear(4, 3, **options)
        ),
        nnx.Bidirectional(
            nnx.RNN(nnx.SimpleCell(3, 2, dtype=None, **options)),
            nnx.RNN(nnx.OptimizedLSTMCell(3, 2, **options)),
            merge_fn=jnp.add,
        ),
        nnx.Linear(2, 5, use_bias=False, **options),
        nnx.relu,
    )


@pytest.mark.parametrize("package", [Linen, NNX])
def test_a_stack_of_every_layer(x64, package):
    tokens = jnp.array([[3, 1, 0, 6]])
    theirs = package(stack(nn if package is Linen else nnx), tokens)
    model, params, _ = theirs.read(theirs.leaves)
    float64 = "param_dtype=float64"
    assert repr(model) == (
        f"serial(embed(3, {float64}), recurrent(lstm(4, {float64}), reverse=True), lift(tanh), "
        f"layer_norm(0.001, {float64}), rms_norm({float64}), "
        f"serial(dropout(0.1), dense(3, {float64})), "
        f"bidirectional(elman(2, {float64}), lstm(2, {float64}), 'sum'), "
        f"dense(5, relu, use_bias=False, {float64}))"
    )
    want = theirs.apply(theirs.leaves, tokens)
    assert_close(jr.unroll(model, params, tokens).outputs, want)
    module, variables = jr.interop.to_flax(model, params)
    assert_close(module.apply(variables, tokens), want)
    assert_same(jr.interop.from_flax(module, variables)[:2], (model, params))
    nnx_module = jr.interop.to_nnx(model, params)
    assert_close(nnx_module(tokens), want)
    assert_same(jr.interop.from_flax(nnx_module)[:2], (model, params))
    if package is Linen:
        assert_same(variables, theirs.leaves)
    else:
        assert_same(nnx.to_pure_dict(nnx.state(nnx_module, nnx.Param)), as_dict(theirs.leaves))


def as_dict(state):
    return nnx.to_pure_dict(state)


@pytest.mark.parametrize("use_bias", [True, False])
def test_conv_lstm(x64, use_bias):
    xs = random_like(jnp.zeros((2, 3, 5, 4, 2)), 0)
    module = nn.RNN(nn.ConvLSTMCell(3, (3, 2), use_bias=use_bias, **FLOAT64))
    theirs = Linen(module, xs)
    model, params, _ = theirs.read(theirs.leaves, shape=(5, 4))
    assert_close(jr.unroll(model, params, xs).outputs, theirs.apply(theirs.leaves, xs))
    written = jr.interop.to_flax(model, params)
    assert_close(written.module.apply(written.variables, xs), theirs.apply(theirs.leaves, xs))
    assert_same(jr.interop.from_flax(*written, shape=(5, 4))[:2], (model, params))
    with pytest.raises(ValueError, match="shape must be given"):
        theirs.read(theirs.leaves)


def test_a_bare_cell_and_its_dtype():
    cell = nn.LSTMCell(2, param_dtype=jnp.bfloat16)
    abstract = jax.eval_shape(cell.init, jax.random.key(0), (jnp.ones(2), jnp.ones(2)), jnp.ones(3))
    variables = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.3, leaf.dtype), abstract)
    model, params, _ = jr.interop.from_flax(cell, variables)
    assert model == jr.lstm(2, param_dtype=jnp.bfloat16)
    assert params.kernel.dtype == jnp.bfloat16
    assert_same(jr.interop.to_flax(model, params).variables["params"]["cell"], variables["params"])


def test_a_norm_of_features_far_from_zero():
    layer, xs = jr.layer_norm(), random_like(jnp.zeros((2, 3, 4)), 0).astype(jnp.float32) + 1e4
    params = layer.init(jax.random.key(0), 4)
    module, variables = jr.interop.to_flax(layer, params)
    for outputs in (module.apply(variables, xs), jr.interop.to_nnx(layer, params)(xs)):
        np.testing.assert_allclose(outputs, jr.unroll(layer, params, xs).outputs, atol=1e-4)


def test_norms_without_a_scale_or_an_offset():
    xs = random_like(jnp.zeros((2, 3)), 0)
    for options in ({"use_scale": False}, {"use_bias": False}):
        module = nn.LayerNorm(**options)
        variables = module.init(jax.random.key(0), xs)
        model, params, _ = jr.interop.from_flax(module, variables)
        ys = jr.unroll(model, params, xs).outputs
        np.testing.assert_allclose(ys, module.apply(variables, xs), atol=1e-6)


def linen_rnn(cell=None, **options):
    return nn.RNN(nn.GRUCell(2) if cell is None else cell, **options)


def own_module():
    class Tagger(nn.Module):
        pass

    return Tagger()


def with_statistics():
    return nnx.Sequential(nnx.BatchNorm(3, rngs=nnx.Rngs(0)))


def gru_variables(change=lambda params: None):
    params = linen_rnn().init(jax.random.key(0), jnp.ones((1, 1, 3)))["params"]
    change(params["cell"])
    return {"params": params}


REFUSED = {
    "backwards in the order of reading": (
        lambda: linen_rnn(reverse=True),
        "keep_order of module, RNN, must be True, got False: unroll returns",
    ),
    "time first": (lambda: linen_rnn(time_major=True), "time_major of module, RNN, must be False"),
    "axes of variables": (lambda: linen_rnn(variable_axes={"params": 0}), "variable_axes of"),
    "another cell": (lambda: linen_rnn(nn.MGUCell(2)), "'cell' must be one of .* got MGUCell"),
    "half the precision": (
        lambda: linen_rnn(nn.GRUCell(2, dtype=jnp.bfloat16)),
        "dtype of the part at 'cell', GRUCell, must be dtype.'float32'., got bfloat16",
    ),
    "a start of its own": (
        lambda: linen_rnn(nn.GRUCell(2, carry_init=nn.initializers.ones)),
        "carry_init of the part at 'cell'.*pass the carry to unroll",
    ),
    "a layer in the place of a cell": (
        lambda: linen_rnn(nn.Dropout(0.5)),
        "the part at 'cell' must be a cell, got Dropout",
    ),
    "strides": (lambda: nn.ConvLSTMCell(2, (3,), strides=(2,)), "strides of module"),
    "both directions of both": (
        lambda: nn.Bidirectional(nn.Bidirectional(linen_rnn(), linen_rnn()), linen_rnn()),
        "forward_rnn of module must be an RNN",
    ),
    "a carry in a stack": (
        lambda: nn.Sequential([linen_rnn(return_carry=True)]),
        "return_carry of the part at 'layers_0'",
    ),
    "a cell in a stack": (lambda: nn.Sequential([nn.GRUCell(2)]), "'layers_0' must be an RNN"),
    "a module of one's own": (own_module, "module must be one of .* got Tagger; read the parts"),
    "axes of a norm": (lambda: nn.LayerNorm(reduction_axes=0), "reduction_axes of module"),
    "a norm with nothing": (
        lambda: nn.LayerNorm(use_scale=False, use_bias=False),
        "use_scale of module",
    ),
    "precision": (lambda: nn.Dense(2, precision="highest"), "precision of module, Dense"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        jr.interop.from_flax(make(), {"params": {}})


def test_arrays_that_do_not_fit():
    def refused(error, message, *args, **options):
        with pytest.raises(error, match=message):
            jr.interop.from_flax(*args, **options)

    missing = gru_variables(lambda cell: cell["hn"].pop("bias"))
    refused(ValueError, "linen module has no array 'cell/hn/bias'", linen_rnn(), missing)
    more = gru_variables(lambda cell: cell["hn"].update(scale=jnp.ones(2)))
    refused(ValueError, "no place for: cell/hn/scale", linen_rnn(), more)
    wide = gru_variables(lambda cell: cell["ir"].update(kernel=jnp.ones((4, 2))))
    refused(ValueError, r"'cell/iz/kernel' .* \[4, 2\], got \[3, 2\]", linen_rnn(), wide)
    statistics = {**gru_variables(), "batch_stats": {"mean": jnp.ones(2)}}
    refused(ValueError, "got batch_stats, params", linen_rnn(), statistics)
    refused(ValueError, "shape must be None", linen_rnn(), gru_variables(), shape=(3,))
    refused(TypeError, "variables must be those of the linen module", linen_rnn())
    rnn = nnx.RNN(nnx.GRUCell(3, 2, rngs=nnx.Rngs(0)))
    refused(ValueError, "no array 'forward_rnn/cell/", nnx.Bidirectional(rnn, rnn))
    refused(TypeError, "variables must be None", nnx.Linear(2, 3, rngs=nnx.Rngs(0)), {})
    refused(TypeError, "module must be a module of flax", jr.gru(2))
    refused(ValueError, "not nnx.Param: layers/0/mean, layers/0/var", with_statistics())


@pytest.mark.parametrize(
    "model, message",
    [
        (jr.lstm(2, peephole=True), "flax has no lstm with peephole=True"),
        (jr.gru(2, reset_after=False), "flax has no gru with reset_after=False"),
        (jr.elman(2, clip=1.0), "flax has no elman with clip=1.0"),
        (jr.mgu(2), "model must be made by elman, .* got mgu"),
        (jr.serial(jr.dropout(0.5, variational=True)), "flax has no dropout with variational=True"),
        (jr.bidirectional(jr.serial(jr.gru(2))), "a direction must be a cell"),
        (jr.gru(2)._replace(num_outputs=len), "model must be made by a factory"),
        (jr.recurrent(jr.zoneout(jr.gru(2), 0.1)), "model must be made by .* got zoneout"),
    ],
    ids=repr,
)
def test_what_is_not_written(model, message):
    params = model.init(jax.random.key(0), 3)
    for write in (jr.interop.to_flax, jr.interop.to_nnx):
        with pytest.raises(ValueError, match=message):
            write(model, params)


def test_nnx_has_no_bias_in_the_recurrent_product_of_a_gru_and_no_convolutions():
    model = jr.bidirectional(jr.gru(2))
    params = model.init(jax.random.key(0), 3)
    jr.interop.to_nnx(model, params)
    forward = params.forward._replace(recurrent_bias=jnp.array([0.0, 0.5]))
    with pytest.raises(ValueError, match="recurrent_bias must be zero .* up to 0.5"):
        jr.interop.to_nnx(model, params._replace(forward=forward))
    conv = jr.conv_lstm(2, 4)
    with pytest.raises(ValueError, match="model must be made by .* got conv_lstm"):
        jr.interop.to_nnx(conv, conv.init(jax.random.key(0), 1))


def test_a_mean_of_directions_and_a_function_alone_come_back():
    for model in (jr.bidirectional(jr.gru(2), merge="mean"), jr.serial(jr.lift(jnp.tanh))):
        params = model.init(jax.random.key(0), 3)
        for written in (jr.interop.to_flax(model, params), (jr.interop.to_nnx(model, params),)):
            assert_same(jr.interop.from_flax(*written)[:2], (model, params))
    module, variables = jr.interop.to_flax(jr.lift(jnp.tanh), ())
    assert module.apply(variables, jnp.zeros(3)).shape == (3,)


def test_the_page():
    run(DOCS / "interop.md", "python flax")


def test_fields_name_the_arrays_and_not_the_names_of_parts():
    cell = nn.LSTMCell(4, name="cell of its own")
    net = nn.Sequential([nn.RNN(cell, name="rnn"), nn.Dense(2, name="head")])
    xs = jnp.ones((2, 3, 5))
    variables = net.init(jax.random.key(0), xs)
    model, params, _ = jr.interop.from_flax(net, variables)
    ys = jr.unroll(model, params, xs).outputs
    np.testing.assert_allclose(ys, net.apply(variables, xs), atol=1e-6)
