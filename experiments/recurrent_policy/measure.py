"""Compares updates with rollouts, and trains every model on every task, all seeds side by side."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, adam
from experiments.frame.progress import progress_bar
from experiments.recurrent_policy import ppo
from experiments.recurrent_policy.config import UPDATES_PER_EPOCH, Config
from experiments.recurrent_policy.model import LABELS, MEMORIES, policy
from experiments.recurrent_policy.task import TASKS, Environment

SOLVED = 0.9  # the mean return from which a task counts as solved
EPOCHS_PER_CHECKPOINT = 5
# Compilation takes longer than learning. Without these passes it takes a third of the time, and
# learning a fifth more.
QUICKLY = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


class Trained(NamedTuple):
    """A model after its trainings on a task."""

    model: str
    environment: Environment
    fitted: Fitted  # the numbers of an update are the metrics of `ppo.update`
    steps_of_update: int  # of all environments of one seed
    steps_per_second: float  # of all seeds, learning included; NaN if checkpoints brought them all

    @property
    def score(self) -> np.ndarray:
        """The mean return over the last updates, NaN where the training failed, `[S]`."""
        means = self.fitted.history["return"][:, -1].mean(axis=-1)
        return np.where(self.fitted.failed, np.nan, means)

    @property
    def solved(self) -> np.ndarray:
        """bool `[S]`; False where the training failed."""
        return self.score >= SOLVED


class Results(NamedTuple):
    """What was measured so far."""

    # model to the differences `[S, B, T]` between the rollout and `ppo.recomputed`
    differences: Mapping[str, np.ndarray] = {}
    trained: Sequence[Trained] = ()


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    environments = environments_of(config)
    work = sum(window_of(config, environment) for environment in environments)
    with progress_bar(work * len(config.models) * config.updates // UPDATES_PER_EPOCH) as bar:
        bar.stage("rollouts unrolled again")
        differences = {name: compare(config, environments[0], name) for name in config.models}
        yield (results := Results(differences))
        for environment in environments:
            for model in config.models:
                name = f"{environment.name}, {LABELS[model]}"
                bar.stage(name)
                trained = train(config, environment, model, checkpoints, bar.advance)
                scores = " ".join(f"{score:.2f}" for score in trained.score)
                bar.finish_stage(f"{name}: return {scores}")
                yield (results := results._replace(trained=(*results.trained, trained)))


def environments_of(config: Config) -> list[Environment]:
    return [one for task in config.tasks for one in TASKS[task](config.lengths)]


def window_of(config: Config, environment: Environment) -> int:
    """As long as every episode, so that some end in each window and each window has a return."""
    return max(config.shortest_window, environment.longest)


def make_setting(config: Config, environment: Environment, model: str) -> ppo.Setting:
    memory = MEMORIES[model](config.num_units, environment.longest)
    network = policy(memory, config.num_units, environment.num_actions)
    optimizer = adam(config, config.updates * config.num_passes * config.num_minibatches)
    return ppo.Setting(environment, network, optimizer, window_of(config, environment), config)


def initial_trainings(config: Config, setting: ppo.Setting) -> ppo.Training:
    """Those of all seeds, `[S, ...]`."""
    make = jax.vmap(lambda seed: ppo.initial_training(setting, jax.random.key(seed)))
    return jax.jit(make, compiler_options=QUICKLY)(jnp.array(config.all_seeds))


def compare(config: Config, environment: Environment, model: str) -> np.ndarray:
    """The second window before any update, unrolled from its start carries: |Δ log π| + |Δ v|."""
    setting = make_setting(config, environment, model)

    def differences(training):
        def next_window(agents, key):
            return ppo.rollout(setting, training.params, agents, key)

        keys = jax.random.split(training.key)
        _, windows = lax.scan(next_window, training.agents, keys)
        window = jax.tree.map(lambda leaf: leaf[1], windows)
        log_probs, values = ppo.recomputed(setting, training.params, window)
        actions, expected, expected_values = (
            leaf[:, config.burn_in :] for leaf in (window.actions, window.log_probs, window.values)
        )
        log_probs = ppo.chosen(log_probs, actions)
        return jnp.abs(log_probs - expected) + jnp.abs(values - expected_values)

    run = jax.jit(jax.vmap(differences), compiler_options=QUICKLY)
    return np.asarray(run(initial_trainings(config, setting)))


def train(
    config: Config,
    environment: Environment,
    model: str,
    checkpoints: Checkpoints,
    advance: Advance,
) -> Trained:
    """All seeds of a training, an epoch a call of one compiled program."""
    start, seconds = time.perf_counter(), []
    setting = make_setting(config, environment, model)
    training = initial_trainings(config, setting)
    all_seeds = jax.vmap(lambda one: ppo.train(setting, one, UPDATES_PER_EPOCH))
    run_epoch = jax.jit(all_seeds, donate_argnums=0).lower(training).compile(QUICKLY)

    def one_epoch(training, epoch):
        del epoch
        before = time.perf_counter()
        training, metrics = jax.block_until_ready(run_epoch(training))
        seconds.append(time.perf_counter() - before)
        return training, metrics

    training, history = checkpoints.run(
        f"{environment.name} {model}",
        training,
        config.updates // UPDATES_PER_EPOCH,
        one_epoch,
        every=EPOCHS_PER_CHECKPOINT,
        advance=lambda epochs: advance(epochs * setting.window),
    )
    history = {name: np.moveaxis(values, 1, 0) for name, values in history.items()}
    fitted = Fitted.of(jax.device_get(training.params), history, time.perf_counter() - start)
    steps = setting.window * config.num_environments
    learnt = config.seeds * UPDATES_PER_EPOCH * steps
    speed = learnt / float(np.median(seconds)) if seconds else np.nan
    return Trained(model, environment, fitted, steps, speed)
