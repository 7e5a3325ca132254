"""Trains every network on every task, and looks for the points at which it rests."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.dynamics.config import UPDATES_PER_EPOCH, Cell, Config
from experiments.dynamics.task import Task, tasks
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter, adam
from experiments.frame.progress import progress_bar
from jaxrnn.diagnostics import FixedPoints

CELLS = {"elman": jr.elman, "gru": jr.gru}
NUM_SHOWN = 24  # sequences whose trajectories are kept
NUM_FLOWING, FLOWING_STEPS = 200, 8  # starts that are left to themselves for the figure
MOST_SADDLES = 32  # that are left, so that one program serves all networks
SETTLING_STEPS = 500  # after which a network that left a saddle has come to rest
NUDGE = 0.02  # how far it is pushed off the saddle, in units of the root mean square of |h|


class Departures(NamedTuple):
    """What the network does when it is pushed off K saddles, to either side."""

    states: np.ndarray  # [K, 2, T, H]
    outputs: np.ndarray  # [K, 2, width], after the last step


class Analysed(NamedTuple):
    """One seed: where its network rests while the input is zero."""

    states: np.ndarray  # [B, T, H], on trajectories of the task
    flow: np.ndarray  # [F, T, H], from mixtures of states with the input at zero
    points: FixedPoints
    outputs: np.ndarray  # [P, width], of the network at the points
    departures: Departures  # from the saddles with one unstable direction

    @property
    def is_memory(self) -> np.ndarray:
        """bool `[P]`, the stable fixed points."""
        return np.asarray(self.points.is_fixed & self.points.is_stable)

    def time_constants(self, chosen: Any = slice(None)) -> np.ndarray:
        """Sizes of the time constants at chosen points, the longest first, `[P, H]`."""
        return -np.sort(-np.abs(np.asarray(self.points.time_constants)[chosen]), axis=-1)

    @property
    def index_sum(self) -> int:
        """The sum of the signs of det(I - J) over the fixed points.

        It is 1 when none is missed, because the map takes a ball into itself (Lefschetz).
        """
        jacobians = np.asarray(self.points.jacobian)[np.asarray(self.points.is_fixed)]
        return int(np.linalg.slogdet(np.eye(jacobians.shape[-1]) - jacobians).sign.sum())

    @property
    def joined(self) -> set[tuple[tuple[int, ...], ...]]:
        """Pairs of memories, each as the signs of its outputs, that a saddle lies between."""
        signs = np.sign(self.departures.outputs).astype(int)
        return {tuple(sorted(map(tuple, pair.tolist()))) for pair in signs}


class Trained(NamedTuple):
    """One network after its trainings on a task."""

    task: Task
    cell: Cell
    fitted: Fitted
    analysed: Sequence[Analysed]  # one for each seed that did not fail

    @property
    def error(self) -> np.ndarray:
        """Share of the variance of the targets that is left, `[S]`."""
        return self.fitted.last("unexplained")

    @property
    def name(self) -> str:
        return f"{self.task.name}, {self.cell}"


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[list[Trained]]:
    results: list[Trained] = []
    of_config = tasks(config.time_constants)
    epochs = config.updates // UPDATES_PER_EPOCH
    with progress_bar(epochs * len(of_config) * len(config.cells)) as bar:
        for task in of_config:
            for cell in config.cells:
                bar.stage(f"{task.name}, {cell}")
                trained = train(config, task, cell, checkpoints, bar.advance)
                bar.finish_stage(f"{trained.name}: {found_in(trained)}")
                yield (results := [*results, trained])


def found_in(trained: Trained) -> str:
    counts = [int(one.points.is_fixed.sum()) for one in trained.analysed]
    return f"{' '.join(map(str, counts))} fixed points, {trained.error.max():.1e} unexplained"


def make_network(task: Task, cell: Cell, num_units: int) -> jr.Layer:
    return jr.serial(CELLS[cell](num_units), jr.dense(task.width))


def train(
    config: Config, task: Task, cell: Cell, checkpoints: Checkpoints, advance: Advance
) -> Trained:
    """Trains all seeds by the squared error of every step, and analyses each."""
    network = make_network(task, cell, config.num_units)

    def loss_fn(params, batch, key):
        del key
        xs, targets = batch
        errors = jr.unroll(network, params, xs).outputs - targets
        return (errors**2).mean(), {"unexplained": (errors**2).mean() / (targets**2).mean()}

    seeds = np.array(config.all_seeds)
    keys = jax.vmap(jax.random.split, out_axes=1)(jax.vmap(jax.random.key)(seeds))
    batches = jax.jit(
        jax.vmap(
            lambda key, epoch: task.draw(
                jax.random.fold_in(key, epoch),
                (UPDATES_PER_EPOCH, config.batch_size, config.num_steps),
            ),
            in_axes=(0, None),
        )
    )
    optimizer = adam(config, config.updates, weight_decay=config.weight_decay)
    fitted = Fitter(loss_fn, optimizer).fit_seeds(
        f"{task.name} {cell}",
        jax.jit(jax.vmap(lambda key: network.init(key, task.width)))(keys[0]),
        lambda epoch: batches(keys[1], epoch),
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        advance=advance,
    )
    good = np.flatnonzero(~fitted.failed)
    analysed = [analyse(config, task, cell, fitted.params_of(index)) for index in good]
    return Trained(task, cell, fitted, analysed)


def analyse(config: Config, task: Task, cell: Cell, params: Any) -> Analysed:
    """Fixed and slow points from mixtures of states of fresh sequences, the input held at zero."""
    recurrence = CELLS[cell](config.num_units)
    carries, starts = sampled(config, task, cell, params[0])
    points = jr.fixed_points(
        recurrence,
        params[0],
        jnp.zeros(task.width),
        starts,
        noise=config.noise,
        key=jax.random.key(3),
    )
    _, outputs = jr.step(jr.dense(task.width), params[1], (), points.carry.h)
    flowing = starts._replace(h=starts.h[:NUM_FLOWING])
    return Analysed(
        states=np.asarray(carries.h),
        flow=left_alone(task, recurrence, params[0], flowing, FLOWING_STEPS),
        points=points,
        outputs=np.asarray(outputs),
        departures=depart(task, recurrence, params, points),
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def sampled(config: Config, task: Task, cell: Cell, params: Any) -> tuple[Any, Any]:
    """Carries of fresh sequences `[B, T, H]`, and points on lines between two of them `[S, H]`.

    Saddles are between the states that trajectories stay near.
    """
    draw_key, pair_key, weight_key = jax.random.split(jax.random.key(2), 3)
    num_sequences = max(NUM_SHOWN, -(-config.num_starts // config.num_steps))
    xs, _ = task.draw(draw_key, (num_sequences, config.num_steps))
    carries = jr.carries(CELLS[cell](config.num_units), params, xs)
    states = carries.h.reshape(-1, config.num_units)
    pairs = jax.random.randint(pair_key, (2, config.num_starts), 0, len(states))
    weights = jax.random.uniform(weight_key, (config.num_starts, 1))
    first, second = states[pairs]
    return carries, carries._replace(h=second + weights * (first - second))


def left_alone(task: Task, cell: jr.Cell, params: Any, carry: Any, num_steps: int) -> np.ndarray:
    """States of runs from a carry `[B, H]` with the input at zero, the carry first, `[B, T, H]`."""
    xs = jnp.zeros((len(carry.h), num_steps, task.width))
    after = jr.carries(cell, params, xs, carry=carry).h
    return np.concatenate([carry.h[:, None], after], axis=1)


def depart(task: Task, cell: jr.Cell, params: Any, points: FixedPoints) -> Departures:
    """Runs from both sides of the saddles that have one unstable direction, along it."""
    saddles = np.flatnonzero(np.asarray(points.is_fixed & (points.num_unstable == 1)))
    num_saddles = min(len(saddles), MOST_SADDLES)
    if num_saddles == 0:
        shape = (0, 2, SETTLING_STEPS + 1, points.carry.h.shape[-1])
        return Departures(np.zeros(shape), np.zeros((0, 2, task.width)))
    saddles = np.resize(saddles, MOST_SADDLES)
    values, vectors = np.linalg.eig(np.asarray(points.jacobian)[saddles])
    fastest = np.abs(values).argmax(axis=-1)
    # One unstable eigenvalue of a real matrix is real, and so is its eigenvector.
    unstable = np.real(np.take_along_axis(vectors, fastest[:, None, None], axis=-1))[..., 0]
    states = np.asarray(points.carry.h)
    push = NUDGE * np.sqrt((states**2).sum(axis=-1).mean()) * unstable
    sides = states[saddles, None] + np.stack([push, -push], axis=1)
    carry = points.carry._replace(h=jnp.asarray(sides.reshape(-1, sides.shape[-1])))
    runs = left_alone(task, cell, params[0], carry, SETTLING_STEPS)
    _, outputs = jr.step(jr.dense(task.width), params[1], (), runs[:, -1])
    runs, outputs = (
        np.asarray(array).reshape(MOST_SADDLES, 2, *array.shape[1:])[:num_saddles]
        for array in (runs, outputs)
    )
    return Departures(runs, outputs)
