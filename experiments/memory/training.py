"""Trains a model on all tasks and seeds side by side, and asks it on longer rows."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitter, failed_rows
from experiments.frame.models import count_params
from experiments.memory.config import UPDATES_PER_CALL, Config
from experiments.memory.networks import loss_and_right, make_network
from experiments.memory.tasks import TASKS, Examples, make_examples
from jaxrnn.diagnostics import state_capacity_bits

FIRST_STEPS = 8
_TRAINING, _TEST = 0, 1


class Trained(NamedTuple):
    """A model after its trainings, in the order of `Config.replicas`.

    Attributes:
        model: Its name.
        width: Features of its blocks.
        num_params: Parameters of one training.
        state_bits: Bits of its carry in float32.
        losses: `[replicas, updates]`.
        training_scores: The same shape, of the rows of the update.
        scores: `[replicas, lengths]`, on rows that were not learnt from.
        failed: bool `[replicas]`, a loss or a parameter was not finite.
        seconds: Wall time, compilation included; not what a checkpoint brought.
    """

    model: str
    width: int
    num_params: int
    state_bits: int
    losses: np.ndarray
    training_scores: np.ndarray
    scores: np.ndarray
    failed: np.ndarray
    seconds: float

    def chosen(self, config: Config, task: str) -> np.ndarray:
        """The scores `[lengths]` of one seed of a task.

        It is the best on the rows before the longest, and of equals that with the least loss at
        the end of training: the longest rows, on which it is judged, have no say.
        """
        places = config.places(task)
        scores = np.nan_to_num(self.scores[places])
        late = np.nan_to_num(self.losses[places, -UPDATES_PER_CALL:].mean(axis=1), nan=np.inf)
        before_longest = scores[:, max(0, len(config.longer) - 2)]
        return self.scores[places[np.lexsort((late, -before_longest))[0]]]


class Rows:
    """The rows that every model learns from and is asked on: the same for all."""

    def __init__(self, config: Config):
        self.config = config
        self.num_epochs = config.updates // UPDATES_PER_CALL
        self._batches: dict[int, Examples] = {}

    def batches(self, epoch: int) -> Examples:
        """Those of an epoch, `[updates, replicas, batch, T]`; longer ones as training goes on."""
        if epoch not in self._batches:
            self._batches[epoch] = self._make(epoch)
        return self._batches[epoch]

    def longest(self, epoch: int) -> int:
        """From `FIRST_STEPS` on, up to all steps in the middle of the training."""
        steps, progress = self.config.train_steps, 2 * epoch / self.num_epochs
        return min(steps, FIRST_STEPS + round(progress * (steps - FIRST_STEPS)))

    def _make(self, epoch):
        config = self.config
        shape = (UPDATES_PER_CALL, config.batch_size)
        replicas = []
        for task, seed in config.replicas:
            rng = _generator(task, seed, _TRAINING, epoch)
            lengths = rng.integers(1, self.longest(epoch) + 1, np.prod(shape))
            rows = make_examples(TASKS[task], rng, lengths, config.train_steps)
            replicas.append(jax.tree.map(lambda leaf: leaf.reshape(*shape, -1), rows))
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *replicas)

    def test(self) -> Examples:
        """As many of each length, the same for all seeds: `[tasks, lengths * rows, T]`."""
        config = self.config
        lengths = np.repeat(config.test_lengths, config.test_rows)
        tasks = [
            make_examples(
                TASKS[task], _generator(task, config.first_seed, _TEST, 0), lengths, lengths.max()
            )
            for task in config.tasks
        ]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *tasks)


def _generator(task, seed, purpose, epoch):
    return np.random.default_rng([seed, list(TASKS).index(task), purpose, epoch])


def train(
    config: Config,
    model: str,
    rows: Rows,
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Trained:
    """Trains all tasks and seeds in one program, as independent of each other as if alone."""
    start = time.perf_counter()
    network = make_network(model, config.num_params, config.num_blocks)
    is_number = np.array([TASKS[task].is_number for task, _ in config.replicas])

    def one(params, examples, is_number):
        loss, right = loss_and_right(network.outputs(params, examples), examples, is_number)
        return loss, right.sum() / examples.due.sum()

    def loss_fn(params, batch, key):
        del key
        losses, scores = jax.vmap(one)(params, batch, is_number)
        return losses.sum(), {"losses": losses, "scores": scores}

    keys = jax.vmap(jax.random.key)(np.array([seed for _, seed in config.replicas]))
    params = jax.jit(jax.vmap(network.init))(keys)
    fitter = Fitter(loss_fn, make_optimizer(config))
    fitted = fitter.fit(
        model, params, rows.batches, rows.num_epochs, checkpoints, every=10, epoch_done=epoch_done
    )
    losses = np.concatenate(fitted.history["losses"]).T
    alone = jax.tree.map(lambda leaf: leaf[0], fitted.params)
    return Trained(
        model=model,
        width=network.width,
        num_params=count_params(alone),
        state_bits=state_capacity_bits(network.layer, alone),
        losses=losses,
        training_scores=np.concatenate(fitted.history["scores"]).T,
        scores=ask(config, network, fitted.params, rows.test()),
        failed=failed_rows(losses, fitted.params),
        seconds=time.perf_counter() - start,
    )


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """Adam behind a clip of the norm, for each of the trainings by itself."""
    rate = optax.cosine_decay_schedule(config.learning_rate, config.updates)
    alone = optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate))
    return optax.GradientTransformation(jax.vmap(alone.init), jax.vmap(alone.update))


def ask(config: Config, network: Any, params: Any, rows: Examples) -> np.ndarray:
    """The share of right answers on rows of each length, `[replicas, lengths]`."""

    @jax.jit
    def right(params, examples, is_number):
        return loss_and_right(network.outputs(params, examples), examples, is_number)[1]

    scores = []
    for index, (task, _) in enumerate(config.replicas):
        place = config.tasks.index(task)
        one = jax.tree.map(lambda leaf: leaf[index], params)  # noqa: B023
        examples = jax.tree.map(lambda leaf: leaf[place], rows)  # noqa: B023
        flags = right(one, examples, TASKS[task].is_number)
        scores.append(shares(config, flags, examples))
    return np.stack(scores)


def shares(config: Config, right: Any, examples: Examples) -> np.ndarray:
    """Right answers over answers due in the later half of the rows, for each length."""
    late = np.arange(right.shape[-1]) >= examples.mask.sum(axis=-1, keepdims=True) // 2
    counts = [
        (flags & late).reshape(len(config.longer), -1).sum(axis=-1)
        for flags in (np.asarray(right), examples.due)
    ]
    return counts[0] / counts[1]
