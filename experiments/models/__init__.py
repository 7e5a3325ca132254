"""One table of all models: what they carry, store, compute and accept."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.patches import Patch

import jaxrnn as jr
from experiments.frame.figures import PALETTE, figure
from experiments.frame.legacy import Page, Picture
from experiments.frame.models import EVEN, KINDS, LAYER, MODELS, CatalogueOptions, Model, Sizes
from experiments.frame.options import Count, multiple_of
from experiments.frame.progress import progress_bar
from experiments.frame.run_folder import environment
from experiments.frame.tables import Table, markdown, show
from experiments.models.support import Support, accepted_evaluators, support

MIB = 2**20
INTRODUCTION = """# All models side by side

Written by `python -m experiments models` (5 minutes; `--quick`: three models) as its `summary.md`.

D is the number of input features, H the number of units, N the state size of a linear model (of the
whole cell in `lru` and `s5`, of each feature or head elsewhere), G the number of heads or blocks, K
the width of a head, W the window of `self_attention` and the width of `causal_conv`.

* **carry**: size of the state carried between chunks, per sequence, in real numbers (a complex
  number counts twice).
* **training MiB**: XLA's plan for the temporary memory of the gradient of the mean square of the
  outputs, with the default evaluator. `sequential(checkpoint="sqrt")` and `chunked` store less.
* **multiply-adds of a step**, streaming: matrix products and products with the state, as a formula,
  as a number, and next to it half of the operations that XLA counts in the compiled step. That
  count includes all pointwise work: `s4d` and `s4` recompute their coefficients on every call (once
  for a whole sequence), and attention re-applies rotary embeddings to the keys in its window.

Every model takes a mask of any pattern, resets, both directions and a carry. The third table comes
from running each: NaN at masked steps inside a sequence against the real steps alone, one row with
two sequences against each alone, both of these read from the end, and a loop of `step` against
`unroll`. The contract tests check all of it to more digits, with gradients.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CatalogueOptions):
    """Carry, training memory, multiply-adds, depth, and what each model was seen to support.

    Training memory is what XLA plans for temporaries of the gradient of the mean square of the
    outputs, with the default evaluator. The multiply-adds of a formula stand beside half of the
    floating-point operations that XLA counts in one compiled step.
    """

    QUICK = {"models": ("gru", "min_gru", "self_attention"), "num_steps": 128}

    width: Annotated[int, multiple_of(8)] = 64
    """Input features and units."""
    state_size: Annotated[int, EVEN] = 16
    """State size of the linear models."""
    num_steps: Count = 1024
    """Steps of the gradient."""
    batch_size: Count = 4
    """Sequences of the gradient."""


OF_ITS_PARTS = "that of what it holds"
NONE = "none"
COMPOSED = {
    "dense": NONE,
    "embed": NONE,
    "gated_mlp": NONE,
    "layer_norm": NONE,
    "dropout": NONE,
    "cross_attention": "the source: S (M + A) numbers and S flags",
    "attention_cell": "that of the cell, and the source: S (M + A) numbers and S flags",
    "recurrent": "that of the cell",
    "simple_cell": "H numbers, or what it is given",
    "learned_initial_carry": "that of the cell",
    "zoneout": "that of the cell",
    "recurrent_dropout": "that of the cell",
    "serial": OF_ITS_PARTS,
    "residual": OF_ITS_PARTS,
    "block": OF_ITS_PARTS,
    "classifier": OF_ITS_PARTS,
    "language_model": OF_ITS_PARTS,
    "bidirectional": "those of both directions; it sees the future and cannot stream",
}


class Described(NamedTuple):
    """What was computed of one model.

    Attributes:
        model: Its name.
        num_params: Parameters.
        carry_numbers: Real numbers in the carry of one row; a complex one is two.
        carry_bytes: Their bytes.
        training_mib: XLA's temporaries of the gradient.
        multiply_adds: Of a step and row, by the formula.
        compiled_multiply_adds: Half of the operations that XLA counts.
        evaluators: Names of those that the cell accepts; none for a layer.
        support: What masks, resets and directions did.
    """

    model: str
    num_params: int
    carry_numbers: int
    carry_bytes: int
    training_mib: float
    multiply_adds: float
    compiled_multiply_adds: float
    evaluators: tuple[str, ...]
    support: Support


def measure(config: Config) -> Iterator[Described]:
    """Describes one model after the other."""
    with progress_bar(len(config.models)) as bar:
        for name in config.models:
            bar.stage(name)
            described = _describe(config, name)
            bar.advance()
            bar.finish_stage(f"{name}: {described.training_mib:.1f} MiB")
            yield described


def _describe(config, name):
    entry, sizes = MODELS[name], Sizes.of(config.width, config.state_size)
    model = entry.make(sizes)
    params = model.init(jax.random.key(0), config.width)
    carry = jax.tree.leaves(jax.eval_shape(model.initial_carry, params))
    return Described(
        name,
        sum(leaf.size for leaf in jax.tree.leaves(params)),
        sum(leaf.size * (2 if leaf.dtype.kind == "c" else 1) for leaf in carry),
        sum(leaf.size * leaf.dtype.itemsize for leaf in carry),
        _training_mib(config, model, params),
        multiply_adds(entry, sizes),
        _compiled_multiply_adds(config, model, params),
        () if entry.kind == LAYER else accepted_evaluators(model, params, config.width),
        support(entry.make(Sizes.of(8, 4))),
    )


def multiply_adds(entry: Model, sizes: Sizes) -> float:
    """The formula with its letters as numbers."""
    return eval(entry.multiply_adds, {"__builtins__": {}, "ceil": math.ceil}, sizes._asdict())


def _training_mib(config, model, params):
    shape = (config.batch_size, config.num_steps, config.width)
    xs = jax.ShapeDtypeStruct(shape, jnp.float32)

    def loss(params, xs):
        return (jr.unroll(model, params, xs).outputs ** 2).mean()

    analysis = jax.jit(jax.grad(loss)).lower(params, xs).compile().memory_analysis()
    return math.nan if analysis is None else analysis.temp_size_in_bytes / MIB


def _compiled_multiply_adds(config, model, params):
    x = jax.ShapeDtypeStruct((config.width,), jnp.float32)
    carry = jax.eval_shape(model.initial_carry, params)
    step = jax.jit(lambda params, carry, x: jr.step(model, params, carry, x))
    cost = step.lower(params, carry, x).compile().cost_analysis()
    return math.nan if cost is None else cost["flops"] / 2


def report(config: Config, results: list[Described], folder) -> Page:
    """Writes the tables and the figure, and shows the tables."""
    tables = [_cost_table(config, results), _depth_table(results), _support_table(results)]
    for table in tables:
        show(table)
    folder.write_csv("metrics.csv", [_row(result) for result in results])
    picture = "![Carry and training memory of every model](images/models.png)\n"
    sections = [INTRODUCTION, picture, *map(markdown, [*tables, _composed_table()])]
    folder.write_text("summary.md", "\n".join([*sections, _machine()]))
    folder.path("images").mkdir()
    _plot(config, results, folder.path("images/models.png"))
    claim = "Every model takes masks, resets, both directions and a carry; what it costs differs."
    caption = "What a row carries from chunk to chunk, and what a gradient stores."
    refused = [r.model for r in results if not all(r.support)]
    return Page(
        "models",
        claim,
        [*tables, _composed_table()],
        [Picture("images/models.png", caption)],
        [f"{len(results) - len(refused)} of {len(results)} models support all that was run."],
        [f"{name} does not support all of it." for name in refused],
    )


def _machine():
    where = environment()
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    return f"{where['cpu_cores']} {where['backend']} cores, Python {where['python']}, {versions}.\n"


def _row(result):
    row = result._asdict() | result.support._asdict()
    del row["support"]
    return row | {"evaluators": " ".join(result.evaluators)}


def _cost_table(config, results):
    rows = [
        (
            result.model,
            f"{result.num_params:,}",
            f"{result.carry_numbers:,}",
            f"{result.carry_bytes / 1024:.2f}",
            f"{result.training_mib:.1f}",
            _in_symbols(MODELS[result.model].multiply_adds),
            f"{result.multiply_adds:,.0f}",
            f"{result.compiled_multiply_adds:,.0f}",
        )
        for result in results
    ]
    columns = ("model", "parameters", "carry", "carry KiB", "training MiB")
    columns += ("multiply-adds of a step", "=", "compiled")
    sizes = Sizes.of(config.width, config.state_size)._asdict()
    letters = ", ".join(f"{letter} = {number}" for letter, number in sizes.items())
    training = f"training with {config.batch_size} x {config.num_steps:,} steps"
    return Table(f"Size and cost at {letters}; {training}", columns, rows)


def _in_symbols(formula):
    return formula.replace("**2", "²").replace("*", " ")


def _depth_table(results):
    depths = {"sequential": "T", "chunked": "T", "associative": "2 log2 T"}
    depths["newton"] = "2 log2 T an iteration"
    rows = []
    for result in results:
        forms = [depths[name] if name in result.evaluators else "" for name in depths]
        rows.append((result.model, *forms, MODELS[result.model].depth))
    title = "Sequential depth over T steps, by evaluator or by a layer's own forms"
    return Table(title, ("model", *depths, "own"), rows, num_names=6)


def _support_table(results):
    rows = [
        (result.model, *("yes" if seen else "no" for seen in result.support)) for result in results
    ]
    columns = ("model", "padding anywhere", "resets", "both directions", "step = unroll")
    title = "Masks, resets and directions, each run and compared"
    return Table(title, columns, rows, num_names=5)


def _composed_table():
    rows = list(COMPOSED.items())
    return Table(
        "Layers without a memory of their own, and what holds other models",
        ("name", "carry"),
        rows,
        2,
    )


def _plot(config, results, path):
    with figure(path, 6.5, 1.2 + 0.2 * len(results)) as canvas:
        axes = canvas.subplots(1, 2, sharey=True)
        places = np.arange(len(results))
        colors = [PALETTE[KINDS.index(MODELS[result.model].kind)] for result in results]
        values = (
            [result.carry_numbers for result in results],
            [result.training_mib for result in results],
        )
        for axis, numbers in zip(axes, values, strict=True):
            axis.barh(places, numbers, color=colors)
            axis.margins(y=0.02)
            axis.grid(axis="y", visible=False)
        axes[0].set_yticks(places, [result.model for result in results])
        axes[0].invert_yaxis()
        axes[0].set_xscale("log")
        axes[0].set_xlim(left=1)
        axes[0].set_title("carry of one row")
        axes[0].set_xlabel("numbers")
        axes[1].set_title(f"gradient, {config.batch_size} x {config.num_steps:,} steps")
        axes[1].set_xlabel("temporary memory (MiB)")
        patches = [
            Patch(color=color, label=kind) for kind, color in zip(KINDS, PALETTE, strict=False)
        ]
        canvas.legend(handles=patches, loc="outside lower center", ncols=len(KINDS))
