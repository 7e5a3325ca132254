"""One table of all models: what they carry, store, compute and accept."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import jaxrnn as jr
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.models import (
    EVEN,
    KINDS,
    LAYER,
    MODELS,
    CatalogueOptions,
    Sizes,
    count_params,
)
from experiments.frame.options import Count, multiple_of
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.run_folder import environment
from experiments.frame.tables import Table, markdown
from experiments.frame.timing import temporary_mib

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


OF_THE_CELL, OF_ITS_PARTS = "that of the cell", "that of what it holds"
COMPOSED = {
    **dict.fromkeys(("dense", "embed", "gated_mlp", "layer_norm", "rms_norm"), "none"),
    **dict.fromkeys(("dropout", "lift"), "none"),
    "cross_attention": "the source: S (M + A) numbers and S flags",
    "attention_cell": "that of the cell, and the source: S (M + A) numbers and S flags",
    "input_feeding": "that of the cell, H numbers of h̃, and the source: S (M + A) numbers, S flags",
    "conv_lstm": "h and c: 2 H numbers for every place",
    "conv_gru": "H numbers for every place",
    "gru_d": "H numbers, and the last value and its age for every input feature: 2 D",
    "recurrent": OF_THE_CELL,
    "simple_cell": "H numbers, or what it is given",
    **dict.fromkeys(("learned_initial_carry", "zoneout", "recurrent_dropout"), OF_THE_CELL),
    "detached_recurrence": OF_THE_CELL,
    **dict.fromkeys(("serial", "residual", "block", "classifier", "language_model"), OF_ITS_PARTS),
    **dict.fromkeys(("concatenate", "tied_embed"), OF_ITS_PARTS),
    "repeat": "that of the layer, n times",
    "batch_norm": "none; in training it sees all steps and cannot stream",
    "subsample": "none; it sees where a sequence ends and cannot stream",
    "bidirectional": "those of both directions; it sees the future and cannot stream",
}


EVALUATORS = {
    "sequential": (jr.sequential(), "T"),
    "chunked": (jr.chunked(4), "T"),
    "associative": (jr.associative(), "2 log2 T"),
    "newton": (jr.newton(), "2 log2 T an iteration"),
}
"""The evaluators of cells, and their sequential depth."""

NUM_STEPS, BOUNDARY, NUM_FEATURES = 8, 5, 8
MASKED = (1, 4)
TOLERANCE = 1e-4


class Support(NamedTuple):
    """Whether both sides of a law came out the same."""

    mask: bool  # NaN at masked steps inside a sequence, and the real steps alone
    reset: bool  # one row with two sequences, and each sequence alone
    reverse: bool  # both of these with the sequence read from its end
    step: bool  # a loop of steps, and the whole sequence


class Described(NamedTuple):
    """What was computed of one model; the carry and multiply-adds are those of one row."""

    model: str
    num_params: int
    carry_numbers: int  # real ones; a complex number is two
    carry_bytes: int
    training_mib: float  # XLA's temporaries of the gradient
    multiply_adds: float  # of a step, by the formula
    compiled_multiply_adds: float  # half of the operations that XLA counts
    evaluators: tuple[str, ...]  # those that the cell accepts; none for a layer
    support: Support


def measure(config: Config) -> Iterator[list[Described]]:
    results: list[Described] = []
    with progress_bar(len(config.models)) as bar:
        for name in config.models:
            bar.stage(name)
            results = [*results, _describe(config, name)]
            bar.advance()
            bar.finish_stage(f"{name}: {results[-1].training_mib:.1f} MiB")
            yield results


def _describe(config, name):
    entry, sizes = MODELS[name], Sizes.of(config.width, config.state_size)
    model = entry.make(sizes)
    params = model.init(jax.random.key(0), config.width)
    carry = jax.eval_shape(model.initial_carry, params)
    return Described(
        name,
        sum(leaf.size for leaf in jax.tree.leaves(params)),
        count_params(carry),
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry)),
        _training_mib(config, model, params),
        multiply_adds(entry.multiply_adds, sizes),
        _compiled_multiply_adds(config, model, params, carry),
        () if entry.kind == LAYER else accepted_evaluators(model, params, config.width),
        support(entry.make(Sizes.of(NUM_FEATURES, 4))),
    )


def multiply_adds(formula: str, sizes: Sizes) -> float:
    return eval(formula, {"__builtins__": {}, "ceil": math.ceil}, sizes._asdict())


def _training_mib(config, model, params):
    def loss(params, xs):
        return (jr.unroll(model, params, xs).outputs ** 2).mean()

    shape = config.batch_size, config.num_steps, config.width
    xs = jax.ShapeDtypeStruct(shape, jnp.float32)
    return temporary_mib(jax.jit(jax.grad(loss)).lower(params, xs).compile())


def _compiled_multiply_adds(config, model, params, carry):
    x = jax.ShapeDtypeStruct((config.width,), jnp.float32)
    step = jax.jit(functools.partial(jr.step, model))
    cost = step.lower(params, carry, x).compile().cost_analysis()
    return math.nan if cost is None else cost["flops"] / 2


def accepted_evaluators(cell: Any, params: Any, num_features: int) -> tuple[str, ...]:
    xs = jax.ShapeDtypeStruct((NUM_STEPS, num_features), jnp.float32)
    accepted = []
    for name, (evaluator, _) in EVALUATORS.items():
        try:
            jax.eval_shape(functools.partial(jr.unroll, cell, evaluator=evaluator), params, xs)
        except TypeError:
            continue
        accepted.append(name)
    return tuple(accepted)


def support(model: Any) -> Support:
    params = model.init(jax.random.key(0), NUM_FEATURES)
    xs = jax.random.normal(jax.random.key(1), (NUM_STEPS, NUM_FEATURES))
    steps = jnp.arange(NUM_STEPS)
    all_real, no_reset, reset = steps >= 0, steps < 0, steps == BOUNDARY
    mask = ~jnp.isin(steps, jnp.array(MASKED))
    padded = jnp.where(mask[:, None], xs, jnp.nan)

    @functools.partial(jax.jit, static_argnames="reverse")
    def run(xs, mask, reset, reverse=False):
        return jr.unroll(model, params, xs, mask=mask, reset=reset, reverse=reverse).outputs

    def alone(xs):
        """The outputs of a shorter sequence, which are those of its steps in a longer one."""
        longer = jnp.pad(xs, [(0, NUM_STEPS - len(xs)), (0, 0)])
        return run(longer, all_real, no_reset)[: len(xs)]

    def turned(xs):
        return alone(xs[::-1])[::-1]

    def two(part):
        return jnp.concatenate([part(xs[:BOUNDARY]), part(xs[BOUNDARY:])])

    carry, outputs = model.initial_carry(params), []
    for x in xs:
        carry, y = jr.step(model, params, carry, x)
        outputs.append(y)
    return Support(
        mask=_same(run(padded, mask, no_reset)[mask], alone(xs[mask])),
        reset=_same(run(xs, all_real, reset), two(alone)),
        reverse=_same(run(padded, mask, no_reset, reverse=True)[mask], turned(xs[mask]))
        and _same(run(xs, all_real, reset, reverse=True), two(turned)),
        step=_same(jnp.stack(outputs), run(xs, all_real, no_reset)),
    )


def _same(a, b):
    scale = jnp.maximum(1, jnp.abs(b).max())
    return bool(jnp.all(jnp.abs(a - b) <= TOLERANCE * scale))


def report(config: Config, results: Sequence[Described]) -> Report:
    """Which models support everything; summary.md is the page of the documentation."""
    picture = Picture(
        "images/models",
        _figure(config, results),
        "What a row carries from chunk to chunk, and what a gradient stores.",
    )
    tables = [_costs(config, results), _depths(results), _supported(results), _composed()]
    run = environment()
    shown = f"![Carry and training memory of every model]({picture.file})\n"
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    machine = f"{run['cpu_cores']} {run['backend']} cores, Python {run['python']}, {versions}.\n"
    refused = [one.model for one in results if not all(one.support)]
    return Report(
        "Every model takes masks, resets, both directions and a carry; what it costs differs.",
        pictures=[picture],
        tables=tables,
        found=[f"{len(results) - len(refused)} of {len(results)} models support all that was run."],
        failed=[f"{name} does not support all of it." for name in refused],
        files={
            "metrics.csv": [_row(one) for one in results],
            "summary.md": "\n".join([INTRODUCTION, shown, *map(markdown, tables), machine]),
        },
    )


def _row(one):
    row = one._asdict() | one.support._asdict() | {"evaluators": " ".join(one.evaluators)}
    return {name: value for name, value in row.items() if name != "support"}


def _costs(config, results):
    sizes = Sizes.of(config.width, config.state_size)._asdict()
    letters = ", ".join(f"{letter} = {number}" for letter, number in sizes.items())
    training = f"training with {config.batch_size} x {config.num_steps:,} steps"
    columns = {
        "model": lambda one: one.model,
        "parameters": lambda one: f"{one.num_params:,}",
        "carry": lambda one: f"{one.carry_numbers:,}",
        "carry KiB": lambda one: f"{one.carry_bytes / 1024:.2f}",
        "training MiB": lambda one: f"{one.training_mib:.1f}",
        "multiply-adds of a step": lambda one: (
            MODELS[one.model].multiply_adds.replace("**2", "²").replace("*", " ")
        ),
        "=": lambda one: f"{one.multiply_adds:,.0f}",
        "compiled": lambda one: f"{one.compiled_multiply_adds:,.0f}",
    }
    return Table.by_columns(f"Size and cost at {letters}; {training}", results, columns)


def _depths(results):
    def depth(name):
        return lambda one: EVALUATORS[name][1] if name in one.evaluators else ""

    columns = {"model": lambda one: one.model} | {name: depth(name) for name in EVALUATORS}
    columns["own"] = lambda one: MODELS[one.model].depth
    title = "Sequential depth over T steps, by evaluator or by a layer's own forms"
    return Table.by_columns(title, results, columns, num_names=6)


def _supported(results):
    laws = ("padding anywhere", "resets", "both directions", "step = unroll")
    rows = [(one.model, *("yes" if held else "no" for held in one.support)) for one in results]
    title = "Masks, resets and directions, each run and compared"
    return Table(title, ("model", *laws), rows, num_names=5)


def _composed():
    title = "Layers without a memory, models of other inputs, and what holds other models"
    return Table(title, ("name", "carry"), list(COMPOSED.items()), num_names=2)


def _figure(config: Config, results: Sequence[Described]) -> Figure:
    canvas = new_figure(6.5, 1.2 + 0.2 * len(results))
    axes = canvas.subplots(1, 2, sharey=True)
    places = np.arange(len(results))
    colors: dict[str, str] = dict(zip(KINDS, PALETTE, strict=False))
    for axis, quantity in zip(axes, ("carry_numbers", "training_mib"), strict=True):
        numbers = [getattr(one, quantity) for one in results]
        axis.barh(places, numbers, color=[colors[MODELS[one.model].kind] for one in results])
        axis.margins(y=0.02)
        axis.grid(axis="y", visible=False)
    axes[0].set_yticks(places, [one.model for one in results])
    axes[0].invert_yaxis()
    axes[0].set(xscale="log", title="carry of one row", xlabel="numbers")
    axes[0].set_xlim(left=1)
    title = f"gradient, {config.batch_size} x {config.num_steps:,} steps"
    axes[1].set(title=title, xlabel="temporary memory (MiB)")
    patches = [Patch(color=color, label=kind) for kind, color in colors.items()]
    canvas.legend(handles=patches, loc="outside lower center", ncols=len(KINDS))
    return canvas
