"""Models as modules of flax: trained beside plain ones, inside the transformations of flax."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr

linen = pytest.importorskip("flax.linen", reason="needs flax")
nnx = pytest.importorskip("flax.nnx", reason="needs flax")
serialization = pytest.importorskip("flax.serialization", reason="needs flax")

B, T, D, C = 3, 5, 2, 2
MODEL = jr.serial(jr.bidirectional(jr.lstm(3)), jr.learned_initial_carry(jr.gru(3)))
NOISY = jr.serial(jr.dropout(0.5), jr.gru(3))
XS = np.random.default_rng(0).standard_normal((B, T, D)).astype(np.float32)
MASK = np.arange(T) < np.array([[5], [2], [4]])
OPTIMIZER = optax.adam(1e-2)


def loss_of(outputs):
    return jr.mean_over_steps(jr.squared_error(outputs, jnp.ones_like(outputs), MASK), MASK)


def trained_plain(params, kernel, num_updates=4):
    """The network that both frameworks build, without any: a recurrence and a matrix."""

    @jax.jit
    def update(both, state):
        def loss(both):
            return loss_of(jr.unroll(MODEL, both[0], XS, mask=MASK).outputs @ both[1])

        updates, state = OPTIMIZER.update(jax.grad(loss)(both), state)
        return optax.apply_updates(both, updates), state

    both = params, kernel
    state = OPTIMIZER.init(both)
    for _ in range(num_updates):
        both, state = update(both, state)
    return both


def assert_close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.rnn = jr.interop.nnx.RNN(MODEL, D, rngs=rngs)
        self.head = nnx.Linear(3, C, use_bias=False, rngs=rngs)

    def __call__(self, xs):
        return self.head(self.rnn(xs, mask=MASK))


def test_training_in_nnx():
    net = Net(nnx.Rngs(0))
    start = net.rnn.arrays(), net.head.kernel[...]
    optimizer = nnx.Optimizer(net, OPTIMIZER, wrt=nnx.Param)

    @nnx.jit
    def update(net, optimizer):
        optimizer.update(net, nnx.grad(lambda net: loss_of(net(XS)))(net))

    for _ in range(4):
        update(net, optimizer)
    assert_close((net.rnn.arrays(), net.head.kernel[...]), trained_plain(*start))
    # Saved and loaded by the state of the module, whose leaves have the names of ours.
    graph, state = nnx.split(net)
    names = [".".join(map(str, path)) for path, _ in nnx.to_flat_state(state)]
    assert "rnn.params.0.forward.recurrent_kernel" in names
    again = nnx.merge(graph, jax.tree.map(jnp.array, state))
    np.testing.assert_array_equal(again(XS), net(XS))


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, xs):
        outputs = jr.interop.linen.RNN(MODEL)(xs, mask=MASK)
        return linen.Dense(C, use_bias=False)(outputs)


def test_parameters_go_through_checkpoints_of_orbax(tmp_path):
    checkpoint = pytest.importorskip("orbax.checkpoint", reason="needs orbax")
    net, other = Net(nnx.Rngs(0)), Net(nnx.Rngs(1))
    module = jr.interop.linen.RNN(MODEL)
    variables = module.init(jax.random.key(0), XS)
    written = {"nnx": nnx.to_pure_dict(nnx.state(net, nnx.Param)), "linen": variables}
    with checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "net", written)
    with checkpoint.StandardCheckpointer() as checkpointer:
        read = checkpointer.restore(tmp_path / "net", written)
    state = nnx.state(other, nnx.Param)
    nnx.replace_by_pure_dict(state, read["nnx"])
    nnx.update(other, state)
    np.testing.assert_array_equal(other(XS), net(XS))
    np.testing.assert_array_equal(module.apply(read["linen"], XS), module.apply(variables, XS))


def test_training_in_linen():
    net = LinenNet()
    variables = net.init(jax.random.key(0), XS)
    start = variables["params"]["RNN_0"]["rnn"], variables["params"]["Dense_0"]["kernel"]
    want = trained_plain(*start)
    state = OPTIMIZER.init(variables)

    @jax.jit
    def update(variables, state):
        gradients = jax.grad(lambda variables: loss_of(net.apply(variables, XS)))(variables)
        updates, state = OPTIMIZER.update(gradients, state)
        return optax.apply_updates(variables, updates), state

    for _ in range(4):
        variables, state = update(variables, state)
    params = variables["params"]
    assert_close((params["RNN_0"]["rnn"], params["Dense_0"]["kernel"]), want)
    written = serialization.to_bytes(variables)
    again = serialization.from_bytes(jax.tree.map(jnp.zeros_like, variables), written)
    assert_close(again, variables)


def test_carries_steps_and_resets():
    model = jr.serial(jr.gru(3), jr.causal_conv(2))
    reset = np.zeros((B, T), bool)
    reset[:, 3] = True
    module = jr.interop.nnx.RNN(model, D, rngs=nnx.Rngs(1))
    rnn = jr.interop.linen.RNN(model)
    variables = rnn.init(jax.random.key(1), XS)
    for params, unroll, step, start in (
        (module.arrays(), module.unroll, module.step, module.initial_carry),
        (
            variables["params"]["rnn"],
            lambda xs, **options: rnn.apply(variables, xs, **options, method="unroll"),
            lambda *args, **options: rnn.apply(variables, *args, **options, method="step"),
            lambda shape: rnn.apply(variables, shape, method="initial_carry"),
        ),
    ):
        first = unroll(XS[:, :2], mask=MASK[:, :2])
        rest = unroll(XS[:, 2:], carry=first.carry, mask=MASK[:, 2:], reset=reset[:, 2:])
        want = jr.unroll(model, params, XS, mask=MASK, reset=reset)
        assert_close(rest.carry, want.carry)
        assert_close(jnp.concatenate([first.outputs, rest.outputs], 1), want.outputs)
        _, y = step(start((B,)), XS[:, 0], mask=MASK[:, 0])
        assert_close(y, want.outputs[:, 0])
        assert_close(start((B,)), model.initial_carry(params, (B,)))


def quiet_module():
    return jr.interop.nnx.RNN(jr.gru(3), D, rngs=nnx.Rngs(0))


def test_noise_comes_from_the_keys_of_the_framework():
    rngs = nnx.Rngs(0, dropout=1)
    rnn = jr.interop.nnx.RNN(NOISY, D, rngs=rngs)
    assert rnn.rngs is not rngs.dropout  # no other module draws from it
    first, second = rnn(XS), rnn(XS)
    assert (first != second).any()
    rnn.eval()
    np.testing.assert_array_equal(rnn(XS), jr.unroll(NOISY, rnn.arrays(), XS).outputs)
    assert not nnx.view(rnn, deterministic=False).deterministic and rnn.deterministic
    rnn.train()
    assert (rnn(XS) != rnn(XS, deterministic=True)).any()
    assert (rnn(XS, rngs=nnx.Rngs(5)) == rnn(XS, rngs=nnx.Rngs(5))).all()
    again = copy.deepcopy(rnn)
    assert again.model == NOISY and (again(XS) == rnn(XS)).all()  # the next key of both
    assert nnx.vmap(lambda rnn, xs: rnn(xs), in_axes=(None, 0))(quiet_module(), XS).shape[0] == B
    assert jr.interop.nnx.RNN(MODEL, D, rngs=nnx.Rngs(0)).rngs is None

    module = jr.interop.linen.RNN(NOISY)
    variables = module.init(jax.random.key(0), XS)
    noisy = [module.apply(variables, XS, rngs={"dropout": jax.random.key(seed)}) for seed in (0, 1)]
    assert (noisy[0] != noisy[1]).any()
    quiet = module.apply(variables, XS, deterministic=True)
    np.testing.assert_array_equal(quiet, jr.unroll(NOISY, variables["params"]["rnn"], XS).outputs)
    with pytest.raises(ValueError, match='pass rngs={"dropout": key} to apply'):
        module.apply(variables, XS)


def test_inside_the_loops_of_the_framework():
    """A stack of layers as `nnx.scan` and `nn.scan` make it, and an ensemble by `nnx.vmap`."""

    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=0, out_axes=0)
    def many(rngs):
        return jr.interop.nnx.RNN(jr.gru(D), D, rngs=rngs)

    layers = many(nnx.Rngs(0))

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def forward(xs, layer):
        return layer(xs)

    want = XS
    for index in range(3):
        params = jax.tree.map(lambda leaf, index=index: leaf[index], layers.arrays())
        want = jr.unroll(jr.gru(D), params, want).outputs
    np.testing.assert_allclose(forward(XS, layers), want, atol=1e-6)

    class Block(linen.Module):
        @linen.compact
        def __call__(self, xs, _):
            return jr.interop.linen.RNN(jr.gru(D))(xs), None

    stack = linen.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)()
    variables = stack.init(jax.random.key(0), XS, None)
    want = XS
    for index in range(3):
        leaf = variables["params"]["RNN_0"]["rnn"]
        params = jax.tree.map(lambda leaf, index=index: leaf[index], leaf)
        want = jr.unroll(jr.gru(D), params, want).outputs
    np.testing.assert_allclose(stack.apply(variables, XS, None)[0], want, atol=1e-6)


def test_tokens_and_what_is_asked_for():
    model = jr.serial(jr.embed(2), jr.gru(2))
    tokens = np.array([[1, 2, 3]])
    assert jr.interop.nnx.RNN(model, 7, rngs=nnx.Rngs(0))(tokens).shape == (1, 3, 2)
    module = jr.interop.linen.RNN(model, num_inputs=7)
    assert module.init_with_output(jax.random.key(0), tokens)[0].shape == (1, 3, 2)
    with pytest.raises(ValueError, match="num_inputs must be given .* as for tokens"):
        jr.interop.linen.RNN(model).init(jax.random.key(0), tokens)
    with pytest.raises(TypeError, match="model must be"):
        jr.interop.linen.RNN(3)
    with pytest.raises(TypeError, match="model must be"):
        jr.interop.nnx.RNN(3, D, rngs=nnx.Rngs(0))
    with pytest.raises(AttributeError, match="no attribute 'torch'"):
        jr.interop.torch  # noqa: B018
