"""The models experiment: its checks can fail, and its page names everything public."""

import inspect
import pathlib

import jax
import jax.numpy as jnp
import pytest

import jaxrnn as jr
from experiments.frame import cli
from experiments.frame.models import MODELS, Sizes
from experiments.models import COMPOSED, accepted_evaluators, multiply_adds, support

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/experiments/models.md"


def public_factories():
    functions = {name: value for name, value in vars(jr).items() if inspect.isfunction(value)}
    records = (jr.Cell, jr.Layer)
    return {n for n, f in functions.items() if inspect.signature(f).return_annotation in records}


def test_the_catalogue_names_every_public_cell_and_layer():
    assert public_factories() - {*MODELS, *COMPOSED} == set()


def test_the_committed_table_names_every_public_cell_and_layer():
    sections = DOCUMENT.read_text().split("\n## ")[1:]
    names = [
        {line.split("|")[1].strip() for line in s.splitlines() if "|" in line} for s in sections
    ]
    cost, depth, supported, composed = (n - {"model", "name", "---"} for n in names)
    assert cost == depth == supported == set(MODELS)
    assert public_factories() - (cost | composed) == set()


@pytest.mark.parametrize("name", MODELS)
def test_formulas_can_be_computed(name):
    assert multiply_adds(MODELS[name].multiply_adds, Sizes.of(64, 16)) > 0


def test_an_lstm_by_hand():
    assert multiply_adds(MODELS["lstm"].multiply_adds, Sizes(D=3, H=5, N=1, G=1, K=1, W=1)) == 4 * (
        15 + 25
    )


def test_a_layer_that_forgets_masks_and_resets_is_found_out():
    def careless(params, carry, steps, key):
        return jr.Rollout(carry + steps.xs.sum(0), carry + steps.xs.cumsum(0))

    layer = jr.Layer(
        init=lambda key, num_inputs: jnp.zeros(num_inputs),
        initial_carry=lambda params, batch_shape=(): jnp.zeros((*batch_shape, *params.shape)),
        unroll=careless,
        num_outputs=lambda num_inputs: num_inputs,
    )
    assert support(layer) == (True, False, False, True)
    forgetful = layer._replace(
        unroll=lambda params, carry, steps, key: jr.Rollout(
            carry, steps.xs + jnp.arange(len(steps.xs))[:, None]
        )
    )
    assert support(forgetful) == (False, False, False, False)


def test_a_nonlinear_cell_refuses_the_associative_evaluator():
    cell = jr.elman(2)
    params = cell.init(jax.random.key(0), 8)
    assert accepted_evaluators(cell, params, 8) == ("sequential", "chunked", "newton")


def test_a_small_run_writes_everything(tmp_path, rows):
    options = ["--models", "ema", "--width", "8", "--num-steps", "4"]
    assert cli.main(["models", "--quick", *options, "--out", str(tmp_path / "run")]) == 0
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["config.json", "images", "metrics.csv", "report.html", "summary.md"]
    [row] = rows(tmp_path / "run/metrics.csv")
    assert (row["num_params"], row["carry_numbers"], row["carry_bytes"]) == ("8", "8", "32")
    assert row["evaluators"] == "sequential chunked associative newton"
    assert (row["mask"], row["reset"], row["reverse"], row["step"]) == ("True",) * 4
    introduction = DOCUMENT.read_text().partition("![")[0]
    assert (tmp_path / "run/summary.md").read_text().startswith(f"{introduction}![Carry and")
