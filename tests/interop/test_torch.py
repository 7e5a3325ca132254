"""Weights of torch in and out: values, gradients, states, round trips and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrnn as jr
from jaxrnn.interop import carry_from_torch, carry_to_torch, from_torch, to_torch

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


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(sorted(KINDS)),
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
    model, params, carry = from_torch([stack, nn.GRU(3, 4)])
    assert carry is None
    inner = jr.serial(jr.dense(3), jr.lift(jax.nn.relu))
    assert repr(model).startswith("serial(serial(dense(3), lift(relu), serial(dropout(0.1), lift(")
    assert jr.unroll(model, params, jnp.ones((B, T, D))).outputs.shape == (B, T, 4)
    assert from_torch(to_torch(inner, params[0][:2])).model == inner


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
WRONG = {
    "no module": (lambda: from_torch(jr.gru(2)), TypeError, "source must be a module of torch"),
    "no model": (lambda: from_torch(DICT), TypeError, "model must be the cell or layer"),
    "two models": (lambda: from_torch(nn.GRU(1, 1), GRU), TypeError, "model must be None"),
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
    "meta": (lambda: from_torch(nn.GRU(1, 1, device="meta")), ValueError, "tensor with values"),
    "parametrised": (
        lambda: from_torch(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))),
        ValueError,
        "remove the parametrisation",
    ),
    "state": (
        lambda: carry_from_torch(jr.bidirectional(GRU), torch.ones(1, 2, 2)),
        ValueError,
        "state must have 2 layers and directions",
    ),
    "state of an lstm": (
        lambda: carry_from_torch(jr.lstm(2), torch.ones(1, 2, 2)),
        ValueError,
        "state must have the parts of lstm",
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
    "variational": (jr.serial(jr.gru(2), jr.dropout(0.1, True), jr.gru(2)), "variational=True"),
    "dropout": (jr.dropout(0.1, variational=True), "no module for dropout"),
    "function": (jr.lift(jnp.cos), "no module for the function"),
    "layer": (jr.causal_conv(2), "no module for causal_conv"),
    "replaced": (jr.gru(2)._replace(num_outputs=len), "made by a factory"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_torch_has_not_is_named(name):
    model, message = UNWRITABLE[name]
    params = model.init(jax.random.key(0), D)
    with pytest.raises(ValueError, match=message):
        to_torch(model, params)
