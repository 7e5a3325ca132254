"""Weights of torch in and out: values, gradients, states, round trips and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import jaxrnn as jr
from jaxrnn.interop import carry_from_torch, carry_to_torch, from_torch, to_torch
from jaxrnn.interop._torch_functions import FUNCTIONS

torch = pytest.importorskip("torch", reason="needs torch")
nn = torch.nn
B, T, D = 3, 6, 2
KINDS = {
    "tanh": lambda *sizes, **options: nn.RNN(*sizes, **options),
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "lstm": lambda *sizes, **options: nn.LSTM(*sizes, **options),
    "projection": lambda *sizes, **options: nn.LSTM(*sizes, proj_size=1, **options),
    "gru": lambda *sizes, **options: nn.GRU(*sizes, **options),
}


def random_module(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, dtype=torch.float64))
    return module.double().eval()


def arrays_of(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def run_torch(module, xs, start, lengths):
    """Outputs and last state; rows end after their length."""
    if lengths is None:
        return module(xs, start)
    packed = nn.utils.rnn.pack_padded_sequence(
        xs, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    outputs, state = module(packed, start)
    return nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=T)[0], state


def close(got, want):
    np.testing.assert_allclose(got, want.detach(), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=2, deadline=None, derandomize=True)
@example(num_units=3, num_layers=2, bidirectional=True, bias=True, lengths=[4, T, 2], seed=0)
@given(
    num_units=st.integers(2, 4),
    num_layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    bias=st.booleans(),
    lengths=st.none() | st.permutations([T, 2, 4]),
    seed=st.integers(0, 99),
)
def test_outputs_states_gradients_and_the_way_back(
    kind, num_units, num_layers, bidirectional, bias, lengths, seed
):
    torch.manual_seed(seed)
    options = {"num_layers": num_layers, "bidirectional": bidirectional, "bias": bias}
    module = random_module(KINDS[kind](D, num_units, batch_first=True, **options))
    xs = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    _, start = module(xs)
    start = jax.tree.map(lambda leaf: torch.randn_like(leaf).requires_grad_(), start)
    outputs, state = run_torch(module, xs, start, lengths)
    sum((leaf**2).sum() for leaf in jax.tree.leaves((outputs, state))).backward()

    with jax.enable_x64(True):
        model, params, _ = from_torch(module)
        carry = carry_from_torch(model, start)
        mask = None if lengths is None else jr.mask_from_lengths(jnp.array(lengths), T)

        def loss(params, xs, carry):
            rollout = jr.unroll(model, params, xs, carry=carry, mask=mask)
            leaves = jax.tree.leaves((rollout.outputs, rollout.carry))
            return sum((leaf**2).sum() for leaf in leaves), rollout

        gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
        gradients, rollout = gradient(params, xs.detach().numpy(), carry)
        close(rollout.outputs, outputs)
        jax.tree.map(close, carry_to_torch(model, rollout.carry), state)
        close(gradients[1], xs.grad)
        starts = jax.tree.map(lambda leaf: leaf.grad, start)
        jax.tree.map(close, carry_to_torch(model, gradients[2]), starts)
        # Both biases of torch have the gradient of their sum, which is that of ours.
        ours = arrays_of(to_torch(model, gradients[0]))
        for name, parameter in module.named_parameters():
            if "bias_hh" not in name:
                close(ours[name], parameter.grad)
            elif kind == "gru":
                close(ours[name][2 * num_units :], parameter.grad[2 * num_units :])
        # Back: what torch has in one part keeps its bits; what it has in two is their sum.
        back = to_torch(model, params)
        again = from_torch(back)
    assert type(back) is type(module) and back.num_layers == num_layers
    assert again.model == model
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    for name, array in arrays_of(module).items():
        if "weight" in name:
            np.testing.assert_array_equal(arrays_of(back)[name], array)


@pytest.mark.parametrize(("kind", "excess"), [("tanh", 3), ("relu", 3), ("lstm", 12), ("gru", 6)])
def test_torch_keeps_a_second_bias(kind, excess):
    # One of each gate more; in a GRU the second bias of n is a parameter of ours too.
    module = KINDS[kind](D, 3)
    count = sum(leaf.size for leaf in jax.tree.leaves(from_torch(module).params))
    assert sum(parameter.numel() for parameter in module.parameters()) == count + excess


def test_only_the_sum_of_the_two_biases_matters():
    module = random_module(nn.LSTM(D, 3, batch_first=True))
    with jax.enable_x64(True):
        params = from_torch(module).params
        with torch.no_grad():
            module.bias_ih_l0 += 5
            module.bias_hh_l0 -= 5
        again = from_torch(module).params
        jax.tree.map(lambda *both: np.testing.assert_allclose(*both, atol=1e-12), again, params)
        xs = torch.randn(B, T, D, dtype=torch.float64)
        close(jr.unroll(jr.lstm(3), params, xs.numpy()).outputs, module(xs)[0])


def test_a_network_by_its_state_dict():
    """What people have: a module of their own, with names of their own."""
    torch.manual_seed(0)
    net = nn.ModuleDict(
        {
            "embedding": nn.Embedding(7, D),
            "rnn": nn.LSTM(D, 3, num_layers=2, bidirectional=True, batch_first=True),
            "norm": nn.LayerNorm(6, eps=1e-3),
            "fc": nn.Linear(6, 4),
        }
    )
    net = random_module(net)
    layer = jr.bidirectional(jr.lstm(3))
    norm = jr.layer_norm(1e-3)
    model = jr.serial(jr.embed(D), layer, jr.dropout(0.1), layer, norm, jr.dense(4, jnp.tanh))
    prefix = ("embedding.", "rnn.", None, "rnn.", "norm.", "fc.")
    tokens = np.array([[1, 2, 3], [4, 5, 6]])
    with torch.no_grad():
        want = net["fc"](net["norm"](net["rnn"](net["embedding"](torch.tensor(tokens)))[0])).tanh()
    with jax.enable_x64(True):
        params = from_torch(net.state_dict(), model, prefix=prefix).params
        got = jr.unroll(model, params, tokens).outputs
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
        # As arrays of numpy it is the same, and so is the network that goes back to torch.
        same = from_torch(arrays_of(net), model, prefix=prefix).params
        jax.tree.map(np.testing.assert_array_equal, same, params)
        back = to_torch(model, params)
        with torch.no_grad():
            np.testing.assert_allclose(back(torch.tensor(tokens)), want, rtol=1e-10, atol=1e-12)
        assert [type(part).__name__ for part in back] == [
            *("Embedding", "LSTM", "LayerNorm", "Linear", "Tanh"),
        ]
        assert from_torch(back).model == jr.serial(
            *(jr.embed(D), jr.serial(layer, jr.dropout(0.1), layer), norm),
            *(jr.dense(4), jr.lift(jnp.tanh)),
        )


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_a_cell_is_one_step(cell):
    torch.manual_seed(0)
    cell = random_module(cell(D, 3))
    x = torch.randn(B, D, dtype=torch.float64)
    state = cell(x)
    h = cell(x, state)
    h = h[0] if isinstance(h, tuple) else h
    with jax.enable_x64(True):
        model, params, _ = from_torch(cell)
        carry, _ = jr.step(model, params, None, x.numpy())
        _, y = jr.step(model, params, carry, x.numpy())
    np.testing.assert_allclose(y, h.detach(), rtol=1e-10, atol=1e-12)


def test_stacks_lists_and_functions():
    stack = nn.Sequential(nn.Linear(D, 3), nn.ReLU(), nn.Sequential(nn.Dropout(0.1), nn.Identity()))
    named = from_torch({"rnn": nn.GRU(D, 3), "fc": nn.Linear(3, 2)})
    assert named.model == jr.serial(jr.gru(3), jr.dense(2))
    model, params, carry = from_torch([stack, nn.GRU(3, 4)])
    assert carry is None
    inner = jr.serial(jr.dense(3), jr.lift(jax.nn.relu))
    assert repr(model).startswith("serial(serial(dense(3), lift(relu), serial(dropout(0.1), lift(")
    assert jr.unroll(model, params, jnp.ones((B, T, D))).outputs.shape == (B, T, 4)
    assert from_torch(to_torch(inner, params[0][:2])).model == inner


def test_every_function_there_and_back():
    xs = 3 * torch.randn(B, T, D, dtype=torch.float64)
    modules = [getattr(nn, name)(**options) for name, _, options in FUNCTIONS]
    with jax.enable_x64(True):
        for module, known in zip(modules, FUNCTIONS, strict=True):
            model, params, _ = from_torch(module)
            assert model == jr.lift(known.function)
            close(known.function(xs.numpy()), module(xs))
            assert repr(to_torch(model, params)) == repr(module)


def test_a_module_twice_in_a_stack():
    torch.manual_seed(0)
    linear, relu = nn.Linear(D, D), nn.ReLU()
    stack = nn.Sequential(linear, relu, linear, relu)
    model, params, _ = from_torch(stack)
    assert model == jr.serial(*[jr.dense(D), jr.lift(jax.nn.relu)] * 2)
    xs = torch.randn(B, T, D)
    got = jr.unroll(model, params, xs.numpy()).outputs
    np.testing.assert_allclose(got, stack(xs).detach(), rtol=1e-5, atol=1e-6)


def test_parameters_are_copies():
    linear = nn.Linear(D, 3)
    state = torch.ones(1, B, 3)
    params, carry = from_torch(linear).params, carry_from_torch(jr.gru(3), state)
    before = np.array(params.kernel)
    with torch.no_grad():
        linear.weight.zero_()
        state.zero_()
    np.testing.assert_array_equal(params.kernel, before)
    assert (carry.h == 1).all()


def test_wrappers_have_the_parameters_of_what_they_wrap():
    gru = nn.GRU(2, 2)
    arrays = {f"rnn.{name}": tensor for name, tensor in gru.state_dict().items()}
    params = from_torch(gru).params
    evaluated = jr.recurrent(GRU, jr.sequential(checkpoint="sqrt"))
    for model in (evaluated, jr.residual(evaluated), jr.recurrent_dropout(GRU, 0.1)):
        read = from_torch(arrays, model, prefix="rnn.").params
        jax.tree.map(np.testing.assert_array_equal, read, params)
        assert type(carry_from_torch(model, torch.ones(1, B, 2))) is jr.cells.GRUCarry
    assert type(to_torch(evaluated, params)) is nn.GRU
    model = jr.bidirectional(evaluated)
    assert to_torch(model, jr.layers.Directions(params, params)).bidirectional


@pytest.mark.parametrize("epsilon", [1e-3, None])
def test_rms_norm(epsilon):
    module = random_module(nn.RMSNorm(D, eps=epsilon))
    xs = 1e-6 * torch.randn(B, T, D, dtype=torch.float64)
    with jax.enable_x64(True):
        model, params, _ = from_torch(module)
        close(jr.unroll(model, params, xs.numpy()).outputs, module(xs))
        close(to_torch(model, params)(xs).numpy(force=True), module(xs))


def test_the_sign_of_a_zero_comes_back():
    params = jr.gru(2).init(jax.random.key(0), D)._replace(bias=jnp.full(6, -0.0))
    assert jnp.signbit(from_torch(to_torch(jr.gru(2), params)).params.bias).all()


def test_dtypes_are_kept():
    half = nn.GRU(D, 3).bfloat16()
    params = from_torch(half).params
    assert params.kernel.dtype == jnp.bfloat16
    assert to_torch(jr.gru(3), params).weight_hh_l0.dtype == torch.bfloat16
    assert from_torch(nn.GRU(D, 3)).params.kernel.dtype == np.float32
    with pytest.raises(
        ValueError, match="'weight_ih_l0' is float64, which JAX would cut to float32"
    ):
        from_torch(nn.GRU(D, 3).double())


DICT = {"weight_ih_l0": np.ones((6, D), np.float32), "weight_hh_l0": np.ones((6, 2), np.float32)}
GRU = jr.gru(2)
TOO_WIDE = jr.serial(GRU, jr.dense(4, use_bias=False))


def with_hook(module):
    module.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return module


def with_own_forward(module):
    module.forward = nn.functional.relu6
    return module


WRONG = {
    "no module": (lambda: from_torch(jr.gru(2)), TypeError, "source must be a module of torch"),
    "no model": (lambda: from_torch(DICT), TypeError, "model must be the cell or layer"),
    "two models": (
        lambda: from_torch(nn.GRU(1, 1), GRU),
        TypeError,
        "model and prefix must be left",
    ),
    "prefix of a module": (
        lambda: from_torch(nn.GRU(1, 1), prefix="rnn."),
        TypeError,
        "prefix must be left out for a module",
    ),
    "checkpoint": (
        lambda: from_torch({"state_dict": DICT, "epoch": 3}, GRU),
        TypeError,
        "'state_dict' must be a tensor or an array, got dict",
    ),
    "ints": (
        lambda: from_torch({"weight_ih_l0": np.ones((6, D), int)}, GRU),
        ValueError,
        "'weight_ih_l0' must be of bfloat16.*, got int64",
    ),
    "layers that do not fit": (
        lambda: from_torch(
            {**DICT, "fc.weight": np.ones((4, 3), np.float32)}, TOO_WIDE, prefix=("", "fc.")
        ),
        ValueError,
        r"params\[1\].kernel must have the shape \(2, 4\)",
    ),
    "mixed dict": (
        lambda: from_torch({"rnn": nn.GRU(1, 1), "scale": 2.0}),
        TypeError,
        "source must be a module of torch, a list or dict of modules",
    ),
    "hook": (lambda: from_torch([with_hook(nn.ReLU())]), ValueError, "0 has hooks or a forward"),
    "own forward": (
        lambda: from_torch(with_own_forward(nn.ReLU())),
        ValueError,
        "a forward of its",
    ),
    "old weight norm": (
        lambda: from_torch(nn.utils.spectral_norm(nn.Linear(2, 3))),
        ValueError,
        "Linear has hooks .*, with remove_weight_norm or prune.remove",
    ),
    "sparse": (
        lambda: from_torch({"weight_ih_l0": torch.ones(6, D).to_sparse()}, GRU),
        ValueError,
        "'weight_ih_l0' must be a dense tensor",
    ),
    "missing": (lambda: from_torch(DICT, jr.lstm(2), prefix="rnn."), ValueError, "'rnn.weight_ih"),
    "shape": (lambda: from_torch(DICT, jr.lstm(2)), ValueError, r"shape \[8, any\], got \[6, 2\]"),
    "left over": (
        lambda: from_torch({**DICT, "weight_ih_l1": np.ones(3, np.float32)}, GRU),
        ValueError,
        "no place for: weight_ih_l1",
    ),
    "half a bias": (
        lambda: from_torch({**DICT, "bias_ih_l0": np.ones(6, np.float32)}, GRU),
        ValueError,
        "no array 'bias_hh_l0'",
    ),
    "prefixes": (
        lambda: from_torch(DICT, jr.serial(GRU, GRU), prefix=("a.",)),
        ValueError,
        "prefix must have one entry for each of the 2 layers",
    ),
    "no prefix": (
        lambda: from_torch(DICT, jr.serial(GRU), prefix=(None,)),
        ValueError,
        "prefix of gru.* must be a string",
    ),
    "peephole": (lambda: from_torch(DICT, jr.lstm(2, peephole=True)), ValueError, "peephole=True"),
    "other cell": (
        lambda: from_torch(DICT, jr.bidirectional(jr.mgu(2))),
        ValueError,
        "elman, lstm",
    ),
    "other layer": (
        lambda: from_torch(DICT, jr.causal_conv(2)),
        ValueError,
        "layers that torch has",
    ),
    "max_norm": (
        lambda: from_torch(nn.Embedding(3, 2, max_norm=1.0)),
        ValueError,
        "Embedding without max_norm",
    ),
    "convolution": (
        lambda: from_torch([nn.Conv1d(2, 2, 3)]),
        ValueError,
        "0 cannot be read: Conv1d",
    ),
    "softplus": (lambda: from_torch(nn.Softplus(beta=2)), ValueError, "cannot be read: Softplus"),
    "norm of two axes": (lambda: from_torch(nn.LayerNorm((2, 3))), ValueError, "over one axis"),
    "norm without an offset": (
        lambda: from_torch(nn.LayerNorm(3, bias=False)),
        ValueError,
        "over one axis with weight and bias",
    ),
    "meta": (lambda: from_torch(nn.GRU(1, 1, device="meta")), ValueError, "tensor with values"),
    "parametrised": (
        lambda: from_torch(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))),
        ValueError,
        "remove the parametrisation",
    ),
    "state": (
        lambda: carry_from_torch(jr.bidirectional(GRU), torch.ones(1, 2, 2)),
        ValueError,
        r"state must have the shape \[2, \*batch, 2\], .*, got \[1, 2, 2\]",
    ),
    "state of an lstm": (
        lambda: carry_from_torch(jr.lstm(2), torch.ones(1, 2, 2)),
        ValueError,
        "state must have 2 parts for lstm",
    ),
    "state of another width": (
        lambda: carry_from_torch(jr.lstm(3, projection=2), [torch.ones(1, 2, 3)] * 2),
        ValueError,
        r"\[1, \*batch, 2\], \[1, \*batch, 3\], .*, got \[1, 2, 3\], \[1, 2, 3\]",
    ),
    "state of two batches": (
        lambda: carry_from_torch(jr.lstm(2), [torch.ones(1, 2, 2), torch.ones(1, 3, 2)]),
        ValueError,
        r"got \[1, 2, 2\], \[1, 3, 2\]",
    ),
    "state of two widths": (
        lambda: carry_from_torch(jr.serial(GRU, jr.gru(3)), torch.ones(2, 2, 2)),
        ValueError,
        "one kind and size of cell",
    ),
    "state of text": (lambda: carry_from_torch(GRU, "h"), TypeError, "'state' must be a tensor"),
    "carry of another model": (
        lambda: carry_to_torch(GRU, jr.cells.LSTMCarry(np.ones(2), np.ones(2))),
        TypeError,
        r"carry must be that of gru\(2\)",
    ),
    "parameters of another model": (
        lambda: to_torch(GRU, jr.lstm(2).init(jax.random.key(0), D)),
        TypeError,
        "params must have the structure .*GRUParams",
    ),
    "parameters of another size": (
        lambda: to_torch(GRU, jr.gru(3).init(jax.random.key(0), D)),
        ValueError,
        r"params.kernel must have the shape \(\*, 6\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_named(name):
    read, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        read()


UNWRITABLE = {
    "reset before": (jr.gru(2, reset_after=False), "reset_after=False"),
    "peephole": (jr.lstm(2, peephole=True), "peephole=True"),
    "hard gates": (jr.lstm(2, gate_activation=jr.cells.hard_sigmoid), "gate_activation="),
    "sigmoid": (jr.elman(2, jax.nn.sigmoid), "activation="),
    "sum": (jr.bidirectional(jr.gru(2), merge="sum"), "merge='sum'"),
    "two cells": (jr.bidirectional(jr.gru(2), jr.lstm(2)), "with equal elman, lstm or gru"),
    "variational": (
        jr.serial(jr.gru(2), jr.dropout(0.1, True), jr.gru(2)),
        "no module for dropout",
    ),
    "dropout": (jr.dropout(0.1, variational=True), "no module for dropout"),
    "function": (jr.lift(jnp.cos), "no module for the function"),
    "layer": (jr.causal_conv(2), "no module for causal_conv"),
    "scale offset": (jr.rms_norm(scale_offset=1.0), "no module for rms_norm"),
    "residual": (jr.residual(jr.gru(D)), "no module for residual"),
    "backwards": (jr.recurrent(jr.gru(2), reverse=True), "no module for recurrent"),
    "replaced": (jr.gru(2)._replace(num_outputs=len), "made by a factory"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_torch_has_not_is_named(name):
    model, message = UNWRITABLE[name]
    params = model.init(jax.random.key(0), D)
    with pytest.raises(ValueError, match=message):
        to_torch(model, params)
