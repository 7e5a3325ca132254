"""The benchmark: its subjects do the same work, and a small run writes everything."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import peer_parameters

import jaxrnn as jr
from experiments.benchmark import epochs, layers, lengths, linear, streaming, subjects, work
from experiments.benchmark.measured import Measured
from experiments.benchmark.ratios import geometric_mean, ratio
from experiments.benchmark.subjects import ours as our_layers
from experiments.benchmark.subjects import plain_scan
from experiments.benchmark.targets import targets
from experiments.frame import cli

SHAPE = work.Shape(batch=3, steps=5, features=4, units=6)


def ours(name, params):
    """Outputs `[T, B, H]` with the parameters, from the library."""
    cell = our_layers.MODELS[name](SHAPE.units)
    return jr.unroll(cell, params, work.inputs(SHAPE), time_major=True).outputs


def assert_close(got, expected):
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


def random_params(name):
    cell = our_layers.MODELS[name](SHAPE.units)
    leaves, tree = jax.tree.flatten(cell.init(jax.random.key(0), SHAPE.features))
    keys = jax.random.split(jax.random.key(2), len(leaves))
    return tree.unflatten(
        jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)
    )


def plain(name, params):
    theirs = {"w": params.kernel, "u": params.recurrent_kernel, "b": params.bias}
    return theirs | ({"c": params.recurrent_bias} if name == "gru" else {})


def nnx(name, params):
    theirs = subjects.load("flax nnx").model(name, SHAPE).params
    theirs["cell"]["dense_i"]["kernel"].set_value(params.kernel)
    theirs["cell"]["dense_h"]["kernel"].set_value(params.recurrent_kernel)
    theirs["cell"]["dense_h"]["bias"].set_value(params.bias)
    return theirs


def equinox(name, params):
    import equinox

    theirs = subjects.load("equinox").model(name, SHAPE).params
    leaves = (params.kernel.T, params.recurrent_kernel.T, params.bias)
    return equinox.tree_at(lambda cell: (cell.weight_ih, cell.weight_hh, cell.bias), theirs, leaves)


THEIRS = {
    "flax linen": lambda name, p: {"params": {"cell": peer_parameters.flax_variables(p)}},
    "flax nnx": nnx,
    "haiku": lambda name, p: {"lstm/linear": peer_parameters.haiku_lstm(p)},
    "equinox": equinox,
    "keras": lambda name, p: peer_parameters.keras_weights(p),
    "plain scan": plain,
}


@pytest.mark.parametrize("peer", THEIRS)
def test_an_lstm_of_every_package_is_the_same_function(peer):
    module = subjects.load(peer)
    if module is None:
        pytest.skip(f"{peer} is not installed")
    params = random_params("lstm")
    model = module.model("lstm", SHAPE)
    theirs = THEIRS[peer]("lstm", params)
    assert jax.tree.map(jnp.shape, theirs) == jax.tree.map(jnp.shape, model.params)
    outputs = jax.jit(model.forward)(theirs, work.inputs(SHAPE, model.time_major))
    outputs = outputs if model.time_major else jnp.swapaxes(outputs, 0, 1)
    np.testing.assert_allclose(outputs, ours("lstm", params), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", plain_scan.MODELS)
def test_the_plain_scan_of_every_model_is_the_same_function(name):
    params = random_params(name)
    outputs = plain_scan.model(name, SHAPE).forward(plain(name, params), work.inputs(SHAPE))
    np.testing.assert_allclose(outputs, ours(name, params), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "elman relu"])
def test_torch_has_the_same_function(name):
    torch = pytest.importorskip("torch", reason="needs torch")
    layer = subjects.load("torch").module(name, SHAPE)
    with torch.no_grad():
        outputs = layer(torch.tensor(np.asarray(work.inputs(SHAPE))))[0].numpy()
    kind = "rnn" if name.startswith("elman") else name
    arrays = peer_parameters.torch_arrays(layer, "l0", lambda array: array.detach().numpy())
    params = peer_parameters.from_torch(kind, arrays)
    np.testing.assert_allclose(outputs, ours(name, params), rtol=1e-5, atol=1e-6)


def test_a_training_step_lowers_the_mean_square_of_the_outputs():
    model = our_layers.model("elman", SHAPE)
    subject = work.prepare_model(model, work.Work("elman", SHAPE, "training"))
    losses = [float(subject.call()[1]) for _ in range(3)]
    outputs = model.forward(model.params, work.inputs(SHAPE))
    assert losses[0] == pytest.approx(float((outputs**2).mean()), rel=1e-5)
    assert losses[0] > losses[1] > losses[2]


def test_plain_linear_layers_are_the_same_functions():
    shape = SHAPE._replace(features=SHAPE.units)
    xs = work.inputs(shape)
    for models in (linear.lru_models(shape), linear.mamba_models(shape)):
        params = models["jaxrnn"].params
        expected = jax.jit(models["jaxrnn"].forward)(params, xs)
        outputs = jax.jit(models["plain scan"].forward)(params, xs)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_streams_of_all_subjects_are_the_same():
    tokens = np.random.default_rng(0).standard_normal((4, 1, 3), np.float32)
    params = streaming.layer_of(5).init(jax.random.key(0), 3)
    makers = {"ours": streaming.ours, "by hand": streaming.by_hand}
    if subjects.load("torch") is not None:
        makers["torch"] = streaming.by_torch
    xs = jnp.asarray(tokens)
    whole = jr.unroll(streaming.layer_of(5), params, jnp.concatenate([xs, xs]), time_major=True)
    for make in makers.values():
        subject = make(params, tokens, 5)
        outputs = np.concatenate([subject.call(), subject.call()])
        np.testing.assert_allclose(outputs, whole.outputs, rtol=1e-5, atol=1e-6)


def test_every_layout_of_the_lengths_has_the_same_loss_and_gradient():
    sequences = lengths.drawn(3)
    totals = [
        lengths.gradient_of(batches, 3).call()
        for batches in lengths.layouts(sequences, batch_size=3).values()
    ]
    for total in totals[1:]:
        assert_close(total, totals[0])


def test_lengths_have_the_median_and_the_percentile_that_are_asked():
    drawn = [len(sequence) for sequence in lengths.drawn(20_000)]
    assert np.median(drawn) == pytest.approx(40, rel=0.03)
    assert np.quantile(drawn, 0.99) == pytest.approx(400, rel=0.05)


def test_an_epoch_in_one_call_is_a_call_a_step():
    both = epochs.prepared_epochs(3, SHAPE).values()
    one, other = (subject.call()[1]["loss"] for subject in both)
    assert one.shape == (3,)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_ratio_is_the_median_over_rounds_and_the_mean_is_geometric():
    row = {
        name: Measured("training", "lstm", "1, 1, 1, 1", name, np.array(seconds))
        for name, seconds in {"a": [1.0, 2.0, 30.0], "b": [2.0, 2.0, 10.0]}.items()
    }
    assert ratio(row, "a", "b") == 1
    assert geometric_mean([1, 4]) == 2


def test_targets_compare_with_the_fastest_of_each_size():
    results = [
        Measured("training", "lstm", case, name, np.array([seconds]), 1.0, 1.0)
        for case, times in {"1, 1, 1, 4": (1, 2, 9, 1, 4), "1, 1, 1, 256": (4, 9, 8, 1, 2)}.items()
        for name, seconds in zip(
            ("jaxrnn", "haiku", "keras", subjects.PRODUCTS, "torch"), times, strict=True
        )
    ]
    reached = {row[1]: row[3] for row in targets(results).rows}
    assert reached["the fastest JAX peer of each size"] == "0.50, worst 0.50"
    assert reached["torch"] == "0.71, worst 2.00"
    assert reached[f"{subjects.PRODUCTS}, H ≥ 256"] == "4.00, worst 4.00"


def test_a_missing_package_is_left_out_with_a_line(tmp_path, capsys, monkeypatch):
    there = subjects.load
    monkeypatch.setattr(layers, "load", lambda name: None if name == "haiku" else there(name))
    monkeypatch.setattr(layers, "MODULES", ("jaxrnn", "haiku", "plain scan", subjects.PRODUCTS))
    monkeypatch.setitem(layers.GRIDS, "quick", (SHAPE,))
    options = ["--only", "training", "--models", "elman", "--out", str(tmp_path / "run")]
    assert cli.main(["benchmark", "--quick", *options]) == 0
    err = capsys.readouterr().err
    assert "haiku is not installed and left out: pip install '.[benchmark]'" in err
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == [
        "benchmark_training.png",
        "config.json",
        "report.html",
        "rounds.csv",
        "summary.md",
    ]
    rows = list(csv.DictReader((tmp_path / "run/rounds.csv").read_text().splitlines()))
    assert {row["subject"] for row in rows} == {"jaxrnn", "plain scan", subjects.PRODUCTS}
    assert len(rows) == 3 * 3 and all(float(row["ms"]) > 0 for row in rows)
    summary = (tmp_path / "run/summary.md").read_text()
    assert "| 3, 5, 4, 6 |" in summary
    options = ["--merge", str(tmp_path / "run"), "--out", str(tmp_path / "merged")]
    assert cli.main(["benchmark", *options]) == 0
    assert (tmp_path / "merged/summary.md").read_text() == summary


def test_a_folder_without_a_run_cannot_be_merged(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["benchmark", "--merge", "nothing"]) == 2
    assert "--merge cannot read nothing/rounds.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--only"], "--only must name at least one"),
        (["--models", "lstm", "lstm"], "--models must name at least one, each once"),
        (["--seconds", "nan"], "--seconds must be finite"),
        (["--rounds", "0"], "--rounds must be at least 1"),
    ],
)
def test_wrong_options_are_named(options, expected, capsys):
    assert cli.main(["benchmark", *options]) == 2
    assert expected in capsys.readouterr().err
