"""Trains all seeds of both orders of one model side by side."""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.digits.config import Config
from experiments.digits.model import Sized, last_logits
from experiments.digits.task import NUM_TRAINING, NUM_VALIDATION, ORDERS, Task
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter

SCORED_TOGETHER = NUM_VALIDATION
EVERY = 10  # epochs from one checkpoint to the next


class Trained(NamedTuple):
    """One model after training. Trainings are orders times seeds, all seeds of one order first."""

    sized: Sized  # the model
    fitted: Fitted  # of all trainings; `validation` is a score of every epoch
    predicted: np.ndarray  # [trainings, test digits], after the last epoch
    update: Callable[[], Any]  # one update of all; owns its state, gives something to wait for
    updates_a_call: int  # how many updates `update` makes
    temporary_bytes: int  # temporary memory of it, as XLA plans it
    compile_seconds: float  # seconds to trace and compile the updates

    def of_order(self, order: str) -> slice:
        num_seeds = len(self.fitted.failed) // len(ORDERS)
        first = ORDERS.index(order) * num_seeds
        return slice(first, first + num_seeds)

    def accuracy(self, task: Task) -> np.ndarray:
        """Share of the test digits classified correctly, for the seeds that did not fail."""
        trainings = self.of_order(task.order)
        right = self.predicted[trainings] == task.labels[task.split.test]
        return right.mean(axis=-1)[~self.fitted.failed[trainings]]


def train(
    config: Config, sized: Sized, tasks: Sequence[Task], checkpoints: Checkpoints, advance: Advance
) -> Trained:
    """Trains on the training digits, and reads the test digits once, after the last epoch."""
    logits, predict = last_logits(sized.model), make_predict(sized)
    validation = tasks[0].labels[tasks[0].split.validation]

    def loss_fn(params, batch, key):
        del key
        xs, labels = batch
        return jr.mean_over_steps(jr.cross_entropy(logits(params, xs), labels)), {}

    def score(params):
        predicted = predictions(predict, params, tasks, "validation")
        return {"validation": (predicted == validation).mean(axis=-1)}

    def batches(epoch):
        return minibatches(config, tasks, epoch)

    fitter = Fitter(loss_fn, make_optimizer(config), score)
    seeds = np.tile(config.all_seeds, len(tasks))
    params = jax.vmap(lambda seed: sized.model.init(jax.random.key(seed), 1))(seeds)
    start = time.perf_counter()
    lowered = fitter.run_epoch_of_seeds.lower(fitter.initial_states(params), batches(0))
    compiled: Any = lowered.compile()
    compile_seconds = time.perf_counter() - start
    fitted = fitter.fit_seeds(
        sized.name, params, batches, config.epochs, checkpoints, every=EVERY, advance=advance
    )
    return Trained(
        sized,
        fitted,
        predictions(predict, fitted.params, tasks, "test"),
        _timed_update(fitter, fitted.params, batches(0)),
        NUM_TRAINING // config.batch_size,
        compiled.memory_analysis().temp_size_in_bytes,
        compile_seconds,
    )


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW after a clip of the global norm; slower and without decay for eigenvalues and steps."""
    updates = NUM_TRAINING // config.batch_size
    total = updates * config.epochs

    def adamw(rate, decay):
        peak = rate * config.learning_rate
        schedule = optax.warmup_cosine_decay_schedule(0.0, peak, min(updates, total - 1), total)
        return optax.adamw(schedule, weight_decay=decay)

    others = adamw(1.0, config.weight_decay)
    transforms: dict[Hashable, optax.GradientTransformation] = {
        **dict.fromkeys(("recurrent", "input", "readout"), others),
        "ssm": adamw(config.ssm_rate, 0.0),
    }
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.multi_transform(transforms, jr.parameter_labels),
    )


def minibatches(config: Config, tasks: Sequence[Task], epoch: int) -> tuple[Any, Any]:
    """Pixels `[trainings, updates, B, 64, 1]` and labels, the same digits in both orders."""
    training = tasks[0].split.training
    orders = [
        np.random.default_rng((config.first_seed + seed, epoch)).permutation(training)
        for seed in range(config.seeds)
    ]
    members = np.stack(orders).reshape(config.seeds, -1, config.batch_size)
    xs = np.concatenate([task.xs[members] for task in tasks])
    labels = np.concatenate([task.labels[members] for task in tasks])
    return jnp.asarray(xs), jnp.asarray(labels)


def make_predict(sized: Sized) -> Callable[[Any, Any], Any]:
    """`(params, xs) -> labels [trainings, B]`, compiled for one B."""
    logits = jax.vmap(last_logits(sized.model))
    return jax.jit(lambda params, xs: logits(params, xs).argmax(axis=-1))


def predictions(
    predict: Callable[[Any, Any], Any], params: Any, tasks: Sequence[Task], part: str
) -> np.ndarray:
    """Labels `[trainings, N]` of a part of the split, read `SCORED_TOGETHER` at a time."""
    members = getattr(tasks[0].split, part)
    num_seeds = len(jax.tree.leaves(params)[0]) // len(tasks)
    num_blocks = -(-len(members) // SCORED_TOGETHER)
    padded = np.resize(members, num_blocks * SCORED_TOGETHER)
    blocks = []
    for block in np.split(padded, num_blocks):
        xs = np.repeat(np.stack([task.xs[block] for task in tasks]), num_seeds, axis=0)
        blocks.append(np.asarray(predict(params, xs)))
    return np.concatenate(blocks, axis=1)[:, : len(members)]


def _timed_update(fitter, params, batches):
    states = fitter.initial_states(params)

    def update():
        nonlocal states
        states, metrics = fitter.run_epoch_of_seeds(states, batches)
        return metrics

    return update
