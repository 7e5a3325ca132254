import jax
import pytest
from support import peer_parameters
from support.peer_case import (
    LENGTHS,
    RIGHT,
    B,
    D,
    H,
    P,
    T,
    assert_close,
    evaluate,
    inputs,
    normal,
    ours,
    weights,
)

import jaxrnn as jr

torch = pytest.importorskip("torch", reason="needs torch")

# torch's module and its options, the cell and its kind in the peer_parameters.
KINDS = {
    "tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}, lambda: jr.elman(H), "rnn"),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}, lambda: jr.elman(H, jax.nn.relu), "rnn"),
    "lstm": (torch.nn.LSTM, {}, lambda: jr.lstm(H), "lstm"),
    "lstm projection": (
        torch.nn.LSTM,
        {"proj_size": P},
        lambda: jr.lstm(H, projection=P),
        "lstm",
    ),
    "gru": (torch.nn.GRU, {}, lambda: jr.gru(H), "gru"),
}
each_kind = pytest.mark.parametrize("name", KINDS)


def make(name, **more):
    factory, options, cell, kind = KINDS[name]
    torch.manual_seed(0)
    module = factory(D, H, batch_first=True, **options, **more).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, dtype=torch.float64))
    return module, cell(), kind


def read(parameter):
    return parameter.detach().numpy()


def read_gradient(parameter):
    return parameter.grad.numpy()


def params_of(module, kind, suffix="l0"):
    return peer_parameters.from_torch(kind, peer_parameters.torch_arrays(module, suffix, read))


def starts(cell, params, num_layers=1):
    """Initial carries as numpy, `[layers, B, ...]` each."""
    carry = jax.eval_shape(lambda: cell.initial_carry(params, (B,)))
    return [
        0.5 * normal(20 + index, num_layers, *leaf.shape)
        for index, leaf in enumerate(jax.tree.leaves(carry))
    ]


def run_torch(module, xs, starts, mask):
    """Outputs, last carries and the gradients of xs and the first carries, all as numpy."""
    xs = torch.tensor(xs, requires_grad=True)
    starts = [torch.tensor(start, requires_grad=True) for start in starts]
    hx = (starts[0] if len(starts) == 1 else tuple(starts)) if starts else None
    if mask is None:
        outputs, last = module(xs, hx)
    else:
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            xs, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
        )
        outputs, last = module(packed, hx)
        outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(
            outputs, batch_first=True, total_length=T
        )
    last = list(last) if isinstance(last, tuple) else [last]
    return xs, starts, outputs, last


def backward(leaves):
    """The gradients of the weighted sum that `case.weighted` is."""
    pairs = zip(weights([leaf.detach().numpy() for leaf in leaves]), leaves, strict=True)
    sum((torch.tensor(weight) * leaf).sum() for weight, leaf in pairs).backward()


@pytest.mark.parametrize("mask", [None, RIGHT], ids=["full", "packed"])
@each_kind
def test_outputs_carry_and_every_gradient(x64, name, mask):
    module, cell, kind = make(name)
    params = params_of(module, kind)
    first = starts(cell, params)
    xs, torch_first, outputs, last = run_torch(module, inputs(), first, mask)
    backward([outputs, *(leaf[0] for leaf in last)])

    carry = jax.tree.unflatten(
        jax.tree.structure(cell.initial_carry(params)), [leaf[0] for leaf in first]
    )
    rolled, gradients = evaluate(ours(cell, mask), params, inputs(), carry)
    assert_close(rolled, [read(outputs), *(read(leaf[0]) for leaf in last)])
    want = peer_parameters.torch_arrays(module, "l0", read_gradient)
    got = peer_parameters.torch_gradients(kind, gradients[0])
    assert got.keys() == want.keys()
    for weight in want:
        assert_close(got[weight], want[weight])
    assert_close(gradients[1], read_gradient(xs))
    assert_close(gradients[2], [read_gradient(leaf)[0] for leaf in torch_first])


@each_kind
def test_read_backwards(x64, name):
    # The second direction of a torch module by itself, with a carry of its own.
    module, cell, kind = make(name, bidirectional=True)
    params = params_of(module, kind, "l0_reverse")
    first = starts(cell, params, num_layers=2)
    xs, torch_first, outputs, last = run_torch(module, inputs(), first, RIGHT)
    outputs = outputs[..., cell.num_outputs(D) :]
    backward([outputs, *(leaf[1] for leaf in last)])

    carry = jax.tree.unflatten(
        jax.tree.structure(cell.initial_carry(params)), [leaf[1] for leaf in first]
    )
    run = ours(cell, RIGHT, reverse=True)
    rolled, gradients = evaluate(run, params, inputs(), carry)
    assert_close(rolled, [read(outputs), *(read(leaf[1]) for leaf in last)])
    want = peer_parameters.torch_arrays(module, "l0_reverse", read_gradient)
    for weight, got in peer_parameters.torch_gradients(kind, gradients[0]).items():
        assert_close(got, want[weight])
    assert_close(gradients[1], read_gradient(xs))
    assert_close(gradients[2], [read_gradient(leaf)[1] for leaf in torch_first])


@pytest.mark.parametrize("name", ["relu", "lstm projection", "gru"])
def test_two_bidirectional_layers(x64, name):
    module, cell, kind = make(name, bidirectional=True, num_layers=2)
    names = [("l0", "l0_reverse"), ("l1", "l1_reverse")]
    params = tuple(
        jr.layers.Directions(*(params_of(module, kind, suffix) for suffix in layer))
        for layer in names
    )
    xs, _, outputs, last = run_torch(module, inputs(), [], RIGHT)
    layer = jr.serial(jr.bidirectional(cell), jr.bidirectional(cell))
    backward([outputs])

    def run(params, xs, carry):
        return jr.unroll(layer, params, xs, mask=RIGHT).outputs

    rolled, gradients = evaluate(run, params, inputs(), ())
    assert_close(rolled, read(outputs))
    # torch lists layer after layer, forwards then backwards.
    carries = jr.unroll(layer, params, inputs(), mask=RIGHT).carry
    carries = jax.tree.leaves(carries, is_leaf=lambda node: hasattr(node, "h"))
    for index, carry in enumerate(carries):
        assert_close(carry, [read(leaf)[index] for leaf in last])
    assert len(carries) == last[0].shape[0]
    for both, suffixes in zip(gradients[0], names, strict=True):
        for own, suffix in zip(both, suffixes, strict=True):
            want = peer_parameters.torch_arrays(module, suffix, read_gradient)
            for weight, got in peer_parameters.torch_gradients(kind, own).items():
                assert_close(got, want[weight])
    assert_close(gradients[1], read_gradient(xs))


@pytest.mark.parametrize(
    ("name", "excess"),
    # One bias of each gate more; in a GRU the second bias of n is a parameter of ours too.
    [("tanh", H), ("relu", H), ("lstm", 4 * H), ("lstm projection", 4 * H), ("gru", 2 * H)],
)
def test_torch_keeps_a_second_bias(name, excess):
    module, cell, _ = make(name)
    count = sum(leaf.size for leaf in jax.tree.leaves(cell.init(jax.random.key(0), D)))
    assert sum(parameter.numel() for parameter in module.parameters()) == count + excess


def test_only_the_sum_of_the_two_biases_matters(x64):
    module, cell, kind = make("lstm")
    params = params_of(module, kind)
    with torch.no_grad():
        module.bias_ih_l0 += 5
        module.bias_hh_l0 -= 5
    assert_close(params_of(module, kind), params)
    outputs = jr.unroll(cell, params, inputs()).outputs
    assert_close(outputs, read(module(torch.tensor(inputs()))[0]))
