"""The benchmark: its subjects do the same work, and a small run writes everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.benchmark import linear, measure, sequences, subjects, work
from experiments.benchmark.config import GRIDS
from experiments.benchmark.measure import Measured
from experiments.benchmark.report import geometric_mean, targets
from experiments.frame import cli
from jaxrnn.interop._keras_export import weights_of

SHAPE = work.Shape(batch=3, steps=5, features=4, units=6)


def ours(name, params):
    """Outputs `[T, B, H]` with the parameters, from the library."""
    cell = subjects.CELLS[name](SHAPE.units)
    return jr.unroll(cell, params, work.inputs(SHAPE), time_major=True).outputs


def assert_close(got, expected):
    got, expected = jax.tree.leaves(got), jax.tree.leaves(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


def random_params(name):
    cell = subjects.CELLS[name](SHAPE.units)
    leaves, tree = jax.tree.flatten(cell.init(jax.random.key(0), SHAPE.features))
    keys = jax.random.split(jax.random.key(2), len(leaves))
    return tree.unflatten(
        jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)
    )


def plain(name, params):
    theirs = {"w": params.kernel, "u": params.recurrent_kernel, "b": params.bias}
    return theirs | ({"c": params.recurrent_bias} if name == "gru" else {})


def nnx(name, params):
    from flax import nnx

    module = jr.interop.to_nnx(subjects.CELLS[name](SHAPE.units), params)
    return nnx.split(module, nnx.Param, ...)[1]


def equinox(name, params):
    import equinox

    cell = jr.interop.to_equinox(subjects.CELLS[name](SHAPE.units), params)
    return equinox.filter(cell, equinox.is_array)


def linen(name, params):
    return jr.interop.to_flax(subjects.CELLS[name](SHAPE.units), params).variables


def haiku(name, params):
    return jr.interop.to_haiku(subjects.CELLS[name](SHAPE.units), params, name)


THEIRS = {
    subjects.flax_linen: linen,
    subjects.flax_nnx: nnx,
    subjects.haiku_core: haiku,
    subjects.equinox_cell: equinox,
    subjects.keras_layer: lambda name, p: weights_of(p),
    subjects.plain_scan: plain,
}


@pytest.mark.parametrize("peer", THEIRS, ids=lambda peer: peer.__name__)
def test_an_lstm_of_every_package_is_the_same_function(peer):
    package = peer.__name__.partition("_")[0]
    if peer is not subjects.plain_scan and not subjects.installed(package):
        pytest.skip(f"{package} is not installed")
    params = random_params("lstm")
    model = peer("lstm", SHAPE)
    theirs = THEIRS[peer]("lstm", params)
    assert jax.tree.map(jnp.shape, theirs) == jax.tree.map(jnp.shape, model.params)
    outputs = jax.jit(model.forward)(theirs, work.inputs(SHAPE, model.time_major))
    outputs = outputs if model.time_major else jnp.swapaxes(outputs, 0, 1)
    np.testing.assert_allclose(outputs, ours("lstm", params), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", subjects.MODELS)
def test_the_plain_scan_of_every_model_is_the_same_function(name):
    params = random_params(name)
    outputs = subjects.plain_scan(name, SHAPE).forward(plain(name, params), work.inputs(SHAPE))
    np.testing.assert_allclose(outputs, ours(name, params), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "elman relu"])
def test_torch_has_the_same_function(name):
    torch = pytest.importorskip("torch", reason="needs torch")
    layer = subjects.torch_module(name, SHAPE)
    with torch.no_grad():
        outputs = layer(torch.tensor(np.asarray(work.inputs(SHAPE))))[0].numpy()
    model, params, _ = jr.interop.from_torch(layer)
    assert model == subjects.CELLS[name](SHAPE.units)
    np.testing.assert_allclose(outputs, ours(name, params), rtol=1e-5, atol=1e-6)


def test_a_training_step_lowers_the_mean_square_of_the_outputs():
    model = subjects.ours("elman", SHAPE)
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
    params = sequences.stacked(5).init(jax.random.key(0), 3)
    makers = [sequences.streamed, sequences.streamed_by_hand]
    makers += [sequences.streamed_by_torch] if subjects.installed("torch") else []
    xs = jnp.asarray(tokens)
    whole = jr.unroll(sequences.stacked(5), params, jnp.concatenate([xs, xs]), time_major=True)
    for make in makers:
        subject = make(params, tokens, 5)
        outputs = np.concatenate([subject.call()[1], subject.call()[1]])
        np.testing.assert_allclose(outputs, whole.outputs, rtol=1e-5, atol=1e-6)


def test_every_layout_of_the_lengths_has_the_same_loss_and_gradient():
    layouts = sequences.layouts(sequences.drawn(3), batch_size=3)
    totals = [sequences.gradient_of(batches, 3).call() for batches in layouts.values()]
    for total in totals[1:]:
        assert_close(total, totals[0])


def test_lengths_have_the_median_and_the_percentile_that_are_asked():
    drawn = [len(sequence) for sequence in sequences.drawn(20_000)]
    assert np.median(drawn) == pytest.approx(40, rel=0.03)
    assert np.quantile(drawn, 0.99) == pytest.approx(400, rel=0.05)


def test_an_epoch_in_one_call_is_a_call_a_step():
    both = sequences.prepared_epochs(3, SHAPE).values()
    one, other = (subject.call()[1]["loss"] for subject in both)
    assert one.shape == (3,)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_ratio_is_the_median_over_rounds_and_the_mean_is_geometric():
    run = {"a": np.array([1.0, 2.0, 30.0]), "b": np.array([2.0, 2.0, 10.0])}
    assert Measured("training", "lstm", "1, 1, 1, 1", 1, run, {}, {}).ratio("a", "b") == 1
    assert geometric_mean([1, 4]) == 2


def test_targets_compare_with_the_fastest_of_each_size():
    names = ("jaxrnn", "haiku", "keras", subjects.PRODUCTS, "torch")
    results = [
        Measured(
            "training",
            "lstm",
            case,
            1,
            {name: np.array([seconds]) for name, seconds in zip(names, times, strict=True)},
            dict.fromkeys(names, 1.0),
            dict.fromkeys(names, 1.0),
        )
        for case, times in {"1, 1, 1, 4": (1, 2, 9, 1, 4), "1, 1, 1, 256": (4, 9, 8, 1, 2)}.items()
    ]
    reached = {row[1]: row[3] for row in targets(results).rows}
    assert reached["the fastest JAX peer of each size"] == "0.50, worst 0.50"
    assert reached["torch"] == "0.71, worst 2.00"
    assert reached[f"{subjects.PRODUCTS}, H ≥ 256"] == "4.00, worst 4.00"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`(name, *options) -> folder` of a run that ends well, with layers of one size."""
    monkeypatch.setitem(GRIDS, "quick", (SHAPE,))

    def run(name, *options):
        options = ["--quick", "--models", "elman", *options, "--out", str(tmp_path / name)]
        assert cli.main(["benchmark", *map(str, options)]) == 0
        return tmp_path / name

    return run


def test_a_missing_package_is_left_out_with_a_line(run, rows, capsys, monkeypatch):
    chosen = {name: subjects.SUBJECTS[name] for name in ("jaxrnn", "plain scan", subjects.PRODUCTS)}
    missing = {"haiku": subjects.Package("no_package", subjects.MODELS, None)}
    monkeypatch.setattr(subjects, "SUBJECTS", chosen | missing)
    monkeypatch.setitem(measure.NEEDED, "training", {"haiku": "no_package"})
    folder = run("run", "--only", "training")
    err = capsys.readouterr().err
    assert "haiku is not installed and left out: pip install '.[benchmark]'" in err
    assert sorted(path.name for path in folder.iterdir()) == [
        "benchmark_training.png",
        "config.json",
        "report.html",
        "rounds.csv",
        "summary.md",
    ]
    saved = rows(folder / "rounds.csv")
    assert {row["subject"] for row in saved} == set(chosen)
    assert len(saved) == 3 * 3 and all(float(row["seconds"]) > 0 for row in saved)
    summary = (folder / "summary.md").read_text()
    assert "| 3, 5, 4, 6 |" in summary
    assert (run("merged", "--merge", folder) / "summary.md").read_text() == summary


def test_a_folder_without_a_run_cannot_be_merged(refused):
    assert "--merge cannot read nothing/rounds.csv" in refused("benchmark", ["--merge", "nothing"])


OTHER_CHECKOUT = """
import collections
import jax.numpy as jnp

Old = collections.namedtuple("Old", "outputs")
Net = collections.namedtuple("Net", "init apply")

def elman(num_units):
    init = lambda key, num_inputs: jnp.full((num_inputs, num_units), {scale})
    return Net(init, lambda params, xs: xs @ params)

lstm = gru = elman

def unroll(net, params, xs, time_major):
    return Old(net.apply(params, xs))
"""


@pytest.fixture
def checkout(tmp_path):
    """`text -> folder` of a package jaxrnn that is no more than that."""

    def make(text):
        package = tmp_path / "checkout/jaxrnn"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        return package.parent

    return make


def test_another_checkout_runs_beside_this_one(run, rows, checkout):
    folder = checkout(OTHER_CHECKOUT.format(scale=0.1))
    folder = run("run", "--only", "baseline", "--baseline", folder)
    saved = rows(folder / "rounds.csv")
    groups = ("training", "compiling training", "forward", "compiling forward")
    assert {(row["group"], row["subject"]) for row in saved} == {
        (group, name) for group in groups for name in ("jaxrnn", "baseline")
    }
    assert len(saved) == 4 * 2 * 3 and all(float(row["seconds"]) > 0 for row in saved)
    summary = (folder / "summary.md").read_text()
    assert "| baseline, training | baseline | 1.03 |" in summary
    assert "| baseline, compiling training | baseline | 1.03 |" in summary


def test_a_checkout_that_cannot_be_measured_is_one_line(checkout, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--quick", "--only", "baseline", "--baseline", str(checkout("raise OSError('old')"))]
    assert cli.main(["benchmark", *options]) == 2
    assert "checkout cannot be measured: OSError: old" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--only"], "--only must be among forward training"),
        (["--models", "lstm", "lstm"], "--models must be among lstm gru"),
        (["--seconds", "nan"], "--seconds must be finite"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--only", "baseline"], "--baseline must be a folder with the package jaxrnn, got None"),
        (["--baseline", "nothing"], "--baseline must be a folder with the package jaxrnn"),
    ],
)
def test_wrong_options_are_named(options, expected, refused):
    assert expected in refused("benchmark", options)
