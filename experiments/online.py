"""Learning from a stream as it goes by: gradients without a past beside truncated ones."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from matplotlib.figure import Figure

import jaxrnn as jr
from experiments.data.temperatures import load_temperatures
from experiments.frame.figures import PALETTE, labels_once, line_styles, new_figure
from experiments.frame.options import Count, Options, Positive, RisingCounts, among
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.timing import temporary_bytes
from experiments.frame.verdicts import Expectation
from jaxrnn.types import Model

CLAIM = (
    "A gradient that goes forwards with the stream learns delays that truncated backpropagation "
    "through time cannot see, in memory that does not grow with the stream."
)
BATCH_SIZE, WINDOW = 4, 4
MODELS: dict[str, Model] = {
    "LRU": jr.serial(jr.lru(16, 32, r_min=0.8, r_max=0.99), jr.dense(1)),
    "GRU": jr.serial(jr.gru(16), jr.dense(1)),
    "two LRUs": jr.serial(*2 * [jr.lru(8, 8, r_min=0.5, r_max=0.99)], jr.dense(1)),
}
METHODS = {
    "LRU": ("exact",),
    "GRU": ("exact", "snap1", "RFLO"),
    "two LRUs": ("exact", "layerwise"),
}
DAY = 24
MEMORY = Expectation("memory", "the same temporary memory at all lengths, within 1 KiB")
DELAYS = Expectation(
    "delays", "squared error below 0.5 at every delay with the exact gradient of the LRU"
)
TRUNCATED = Expectation(
    "truncation",
    f"at every delay TBPTT with windows of {WINDOW} is worse than exact, for each model",
)
STREAM = Expectation(
    "stream", f"the exact LRU is better than TBPTT with windows of {WINDOW} on temperatures"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Three models learn from streams, with gradients from traces and from truncated windows.

    Every learner sees each step once and updates after every window with the mean gradient of its
    steps, by Adam. The carry goes on from window to window, and so do the traces; a truncated
    gradient ends at the start of its window. Errors are those before the update. One stream is
    random signs, to be said again after a delay. The other is the temperature of two cities, hour
    by hour, of which the next change is to be said.
    """

    QUICK = {
        "models": ("LRU",),
        "delays": (5,),
        "num_steps": 1024,
        "lengths": (1000, 10000),
        "num_hours": 512,
    }

    models: Annotated[tuple[str, ...], among(MODELS)] = tuple(MODELS)
    """The models."""
    delays: RisingCounts = (5, 16)
    """Steps between a sign and its repetition."""
    num_steps: Count = 32768
    """Steps of the stream of signs."""
    lengths: RisingCounts = (1000, 10000, 100000, 1000000, 10000000)
    """Steps for which the memory is planned."""
    num_hours: Count = 8736
    """Hours of the stream of temperatures."""
    learning_rate: Positive = 1e-2
    """The learning rate of Adam."""


class Learner(NamedTuple):
    """How a model learns from a stream."""

    model: str  # a name of `MODELS`
    method: str  # of `online_gradient`, or "RFLO" or "TBPTT"
    window: int  # steps between two updates

    @property
    def name(self) -> str:
        return f"{self.method} {self.window}" if self.method == "TBPTT" else self.method


class Learnt(NamedTuple):
    """A learner on one stream."""

    model: str
    learner: str
    stream: str  # "temperatures", or the delay of the signs
    errors: np.ndarray  # squared errors before the update, in 16 parts of the stream
    kibibytes: float  # what a window needs: state, traces and temporary memory

    @property
    def error(self) -> float:
        """That of the last quarter of the stream."""
        return float(self.errors[-4:].mean())


class Planned(NamedTuple):
    """The memory of the gradient of a stream."""

    num_steps: int
    gradient: str  # "online" or "backpropagation"
    kibibytes: float


class Results(NamedTuple):
    """What has been measured so far."""

    learnt: Sequence[Learnt] = ()
    planned: Sequence[Planned] = ()


def _learners(config) -> list[Learner]:
    return [
        Learner(model, method, WINDOW * (1 + 3 * is_long))
        for model in config.models
        for method in (*METHODS[model], "TBPTT")
        for is_long in ((False, True) if method == "TBPTT" else (False,))
    ]


def measure(config: Config) -> Iterator[Results]:
    streams = {f"delay {delay}": _signs(config, delay) for delay in config.delays}
    streams["temperatures"] = _temperature_changes(config)
    results = Results()
    learners = _learners(config)
    with progress_bar(len(streams) * len(learners) + 1) as bar:
        for (stream, pairs), learner in itertools.product(streams.items(), learners):
            bar.stage(f"{stream}: {learner.model}, {learner.name}")
            one = _learnt(config, learner, stream, *pairs)
            results = results._replace(learnt=(*results.learnt, one))
            bar.advance()
            bar.finish_stage(f"{stream}: {learner.model}, {learner.name}: {one.error:.3f}")
            yield results
        bar.stage("memory")
        yield results._replace(planned=list(_planned(config)))
        bar.advance()


def _signs(config, delay):
    """Random signs `[T, 4, 1]`, and what they were `delay` steps before."""
    shape = (config.num_steps, BATCH_SIZE, 1)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], shape).astype(np.float32)
    return signs, np.concatenate([np.zeros_like(signs[:delay]), signs])[: config.num_steps]


def _temperature_changes(config):
    """Changes from hour to hour `[T, 2, 1]` and the next ones, in units of the first week."""
    changes = np.diff(load_temperatures()[: config.num_hours + 2], axis=0)[..., None]
    changes = (changes / changes[: 7 * DAY].std()).astype(np.float32)
    return changes[:-1], changes[1:]


def _learnt(config, learner, stream, xs, targets):
    num_windows = len(xs) // learner.window
    windows = [
        array[: num_windows * learner.window].reshape(num_windows, learner.window, *array.shape[1:])
        for array in (xs, targets)
    ]
    start, update = _learning(config, learner, xs[0])
    learn = jax.jit(lambda start, windows: lax.scan(update, start, windows))
    compiled = learn.lower(start, windows).compile()
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
    _, errors = compiled(start, windows)
    parts = [part.mean() for part in np.array_split(np.asarray(errors), min(16, num_windows))]
    kibibytes = (held + temporary_bytes(compiled)) / 1024
    return Learnt(learner.model, learner.name, stream, np.array(parts), kibibytes)


def _learning(config, learner, x):
    """What goes from window to window, and the update on one."""
    model, method = MODELS[learner.model], learner.method
    if method == "RFLO":
        model, method = jr.serial(jr.detached_recurrence(jr.gru(16)), jr.dense(1)), "exact"
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.learning_rate))
    params = model.init(jax.random.key(0), 1)
    carry = model.initial_carry(params, x.shape[:-1])
    if method == "TBPTT":
        gradient, traces = functools.partial(_truncated_gradient, model), ()
    else:
        online = jr.online_gradient(model, method)
        gradient, traces = functools.partial(_traced_gradient, online), online.init(params, x)

    def update(state, window):
        params, opt_state, *past = state
        gradients, error, past = gradient(params, *past, *window)
        gradients = jax.tree.map(lambda leaf: leaf / learner.window, gradients)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, *past), error

    return (params, optimizer.init(params), traces, carry), update


def _traced_gradient(online, params, traces, carry, xs, targets):
    def advance(state, pair):
        traces, carry, gradients = state
        x, target = pair
        step = online.step(params, traces, carry, x, lambda y: ((y - target) ** 2).mean())
        gradients = jax.tree.map(jnp.add, gradients, step.gradients)
        return (step.traces, step.carry, gradients), step.loss

    start = traces, carry, jax.tree.map(jnp.zeros_like, params)
    (*past, gradients), errors = lax.scan(advance, start, (xs, targets))
    return gradients, errors.mean(), past


def _truncated_gradient(model, params, traces, carry, xs, targets):
    def total(params):
        run = jr.unroll(model, params, xs, carry=carry, time_major=True)
        errors = ((run.outputs - targets) ** 2).mean((1, 2))
        return errors.sum(), (run.carry, errors.mean())

    gradients, (carry, error) = jax.grad(total, has_aux=True)(params)
    return gradients, error, (traces, carry)


def _planned(config):
    """Temporary memory of the gradient over a whole stream, which is an argument."""
    model = MODELS["LRU"]
    params = model.init(jax.random.key(0), 1)
    carry = model.initial_carry(params, (BATCH_SIZE,))
    online = jr.online_gradient(model)
    traces = online.init(params, jnp.zeros((BATCH_SIZE, 1)))
    gradients = {
        "online": lambda params, *pair: _traced_gradient(online, params, traces, carry, *pair)[0],
        "backpropagation": lambda params, *pair: _truncated_gradient(
            model, params, (), carry, *pair
        )[0],
    }
    for name, num_steps in itertools.product(gradients, config.lengths):
        stream = jax.ShapeDtypeStruct((num_steps, BATCH_SIZE, 1), jnp.float32)
        compiled = jax.jit(gradients[name]).lower(params, stream, stream).compile()
        yield Planned(num_steps, name, temporary_bytes(compiled) / 1024)


def report(config: Config, results: Results) -> Report:
    captions = {
        "online": "Squared errors of the last quarter of each stream; 1 is that of saying 0.",
        "online_memory": "Temporary memory of the gradient of a stream against its length.",
    }
    pictures = [Picture("online", _error_figure(results.learnt), captions["online"])]
    if results.planned:
        figure = _memory_figure(results.planned)
        pictures.append(Picture("online_memory", figure, captions["online_memory"]))
    return Report(
        CLAIM,
        verdicts=_judged(results),
        pictures=pictures,
        tables=[
            table for table in (_error_table(config, results), _memory_table(results)) if table.rows
        ],
        files={
            "learnt.csv": [one._asdict() | {"errors": one.error} for one in results.learnt],
            "planned.csv": [one._asdict() for one in results.planned],
        },
    )


def _judged(results: Results) -> list[Any]:
    exact = [one for one in results.learnt if one.learner == "exact"]
    delays = [one for one in exact if one.model == "LRU" and one.stream != "temperatures"]
    repeated = [one for one in exact if one.stream != "temperatures"]
    stream = [one for one in exact if one.model == "LRU" and one.stream == "temperatures"]
    by_key = {(one.model, one.stream, one.learner): one.error for one in results.learnt}

    def below(chosen):
        worst = max(one.error for one in chosen)
        return f"at most {worst:.3f}", worst < 0.5

    def against_short(chosen):
        short = [by_key.get((one.model, one.stream, f"TBPTT {WINDOW}"), np.nan) for one in chosen]
        pairs = list(zip(chosen, short, strict=True))
        shown = ", ".join(f"{one.error:.3f} to {other:.3f}" for one, other in pairs)
        return shown, all(one.error < other for one, other in pairs)

    def flat(planned):
        sizes = [one.kibibytes for one in planned if one.gradient == "online"]
        return f"{min(sizes):.1f} to {max(sizes):.1f} KiB", max(sizes) - min(sizes) <= 1

    return [
        MEMORY.judge(flat, results.planned),
        DELAYS.judge(below, delays),
        TRUNCATED.judge(against_short, repeated),
        STREAM.judge(against_short, stream),
    ]


def _error_table(config: Config, results: Results) -> Table:
    streams = list(dict.fromkeys(one.stream for one in results.learnt))
    rows = []
    for learner in _learners(config):
        own = {
            one.stream: one for one in results.learnt if one[:2] == (learner.model, learner.name)
        }
        errors = [f"{own[stream].error:.3f}" if stream in own else "-" for stream in streams]
        memory = f"{own[streams[0]].kibibytes:.0f}" if streams[0] in own else "-"
        rows.append((learner.model, learner.name, *errors, memory))
    return Table("Squared errors", ("model", "gradient", *streams, "KiB"), rows, num_names=2)


def _memory_table(results: Results) -> Table:
    by_length = itertools.groupby(sorted(results.planned), key=lambda one: one.num_steps)
    rows = [
        (f"{num_steps:,}", *(f"{one.kibibytes:,.1f}" for one in reversed(list(group))))
        for num_steps, group in by_length
    ]
    return Table("Temporary memory, KiB", ("steps", "online", "backpropagation"), rows, num_names=0)


def _error_figure(learnt: Sequence[Learnt]) -> Figure:
    """A row for each stream and a column for each model."""
    streams = list(dict.fromkeys(one.stream for one in learnt))
    models = list(dict.fromkeys(one.model for one in learnt))
    styles = line_styles(dict.fromkeys(one.learner for one in learnt))
    canvas = new_figure(1.5 + 2.5 * len(models), 0.6 + 2.2 * len(streams))
    grid = canvas.subplots(len(streams), len(models), squeeze=False, sharex=True, sharey="row")
    for one in learnt:
        axes = grid[streams.index(one.stream)][models.index(one.model)]
        parts = (np.arange(len(one.errors)) + 0.5) / len(one.errors)
        axes.semilogy(parts, one.errors, label=one.learner, **styles[one.learner])
        axes.set_title(f"{one.model}, {one.stream}")
    for axes in grid[-1]:
        axes.set_xlabel("part of the stream")
    for axes in grid[:, 0]:
        axes.set_ylabel("squared error")
    canvas.legend(*labels_once(canvas.axes), loc="outside lower center", ncols=6, fontsize=8)
    return canvas


def _memory_figure(planned: Sequence[Planned]) -> Figure:
    canvas = new_figure(6.0, 3.6)
    axes = canvas.subplots()
    for name, color, marker in zip(("online", "backpropagation"), PALETTE, "os", strict=False):
        chosen = [one for one in planned if one.gradient == name]
        sizes = [one.kibibytes / 1024 for one in chosen]
        axes.loglog(
            [one.num_steps for one in chosen], sizes, color=color, marker=marker, label=name
        )
    axes.set(xlabel="steps T", ylabel="temporary memory (MiB)", title="Gradient of an LRU, batch 4")
    axes.legend()
    return canvas
