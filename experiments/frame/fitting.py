"""Trains models, an epoch a call, and keeps checkpoints while it does."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.models import count_params
from experiments.frame.options import TrainingOptions
from experiments.frame.stats import share
from jaxrnn.training import LossFn, TBPTTLossFn


class Fitted(NamedTuple):
    """A model after training; the leading axis `[S]` is of seeds, one seed after `fit`."""

    params: Any  # parameters after the last epoch, [S]
    history: dict[str, np.ndarray]  # by name, of the updates [S, E, U], and of `score` [S, E]
    num_params: int  # how many numbers the parameters of one seed hold
    failed: np.ndarray  # bool [S], whether a number of the history, or a parameter, is not finite
    seconds: float  # wall time of what was run now, with compilation; not what a checkpoint brought

    @classmethod
    def of(cls, params: Any, history: dict[str, np.ndarray], seconds: float) -> "Fitted":
        """What follows from the parameters `[S, ...]` and the history, counted and checked."""
        num_params = count_params(jax.tree.map(lambda leaf: leaf[0], params))
        return cls(params, history, num_params, failed_rows(history, params), seconds)

    def of_updates(self) -> dict[str, np.ndarray]:
        """The numbers of the updates, one after the other, `[S, E U]`."""
        return {n: v.reshape(len(v), -1) for n, v in self.history.items() if v.ndim == 3}

    def of_epochs(self) -> dict[str, np.ndarray]:
        """A number an epoch, `[S, E]`: the means over the updates, and the scores."""
        return {n: v.mean(axis=-1) if v.ndim == 3 else v for n, v in self.history.items()}

    def params_of(self, index: int) -> Any:
        """The parameters of one seed, without the axis of seeds."""
        return jax.tree.map(lambda leaf: leaf[index], self.params)

    def only(self, seeds: Any) -> "Fitted":
        parts = self.params, self.history, self.failed
        params, history, failed = jax.tree.map(lambda leaf: leaf[seeds], parts)
        return self._replace(params=params, history=history, failed=failed)

    def last(self, name: str) -> np.ndarray:
        """A number of the last epoch, or of its last update, `[S]`."""
        return self.history[name].reshape(len(self.failed), -1)[:, -1]

    def of_good_seeds(self, values: Any) -> Any:
        """A tree of `[S, ...]` without the seeds that failed."""
        return jax.tree.map(lambda leaf: leaf[~self.failed], values)


def failed_rows(*trees: Any) -> np.ndarray:
    """bool `[S]`: a number in row s of some leaf `[S, ...]` is not finite."""
    leaves = jax.tree.leaves(trees)
    finite = [np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]
    return ~np.all(finite, axis=0)


def adam(
    config: TrainingOptions, num_updates: int, *, warmup: int = 0, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """AdamW after a clip of the global norm.

    Its rate rises to `config.learning_rate` over `warmup` updates, and falls to 0 along a cosine.
    """
    rate = optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, warmup, num_updates)
    if not warmup:
        rate = optax.cosine_decay_schedule(config.learning_rate, num_updates)
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(rate, weight_decay=weight_decay),
    )


class Fitter:
    """Trains parameters with one loss and one optimizer; compiled once.

    Args:
        loss_fn: As `make_epoch` takes it.
        optimizer: Any optax transformation.
        score: `params -> metrics`, run after every epoch, under other names than those of the
            updates. It is not compiled here, and sees all seeds of `fit_seeds` at once.
        make_epoch: From the loss and the optimizer to `(state, batches) -> (state, metrics)`;
            independent sequences when left out.
    """

    def __init__(
        self,
        loss_fn: LossFn | TBPTTLossFn,
        optimizer: optax.GradientTransformation,
        score: Callable[[Any], Mapping[str, Any]] = lambda params: {},
        make_epoch: Callable[..., Callable[..., Any]] = jr.make_epoch_step,
    ):
        self.optimizer, self.score = optimizer, score
        run_epoch = make_epoch(loss_fn, optimizer)
        self.run_epoch = jax.jit(run_epoch, donate_argnums=0)
        self.run_epoch_of_seeds = jax.jit(jax.vmap(run_epoch), donate_argnums=0)

    def initial_state(self, params: Any) -> jr.TrainState:
        # A copy, because the epochs are given the memory of the state to write in.
        return jr.TrainState.create(jax.tree.map(jnp.array, params), self.optimizer)

    def initial_states(self, params: Any) -> jr.TrainState:
        return jax.vmap(self.initial_state)(params)

    def fit_seeds(
        self,
        training: str,
        params: Any,
        batches: Callable[[int], Any],
        num_epochs: int,
        checkpoints: Checkpoints,
        *,
        every: int = 5,
        advance: Advance = lambda epochs: None,
    ) -> Fitted:
        """Trains the parameters of several seeds side by side, each as if alone.

        Args:
            training: A name of its own within the run.
            params: Where it starts, `[S, ...]`.
            batches: From the number of an epoch to its minibatches, a tree of `[S, updates, ...]`;
                the same number gives the same minibatches.
            num_epochs: How many epochs there are.
            checkpoints: The checkpoints of the run.
            every: Epochs from one checkpoint to the next.
            advance: Called with the number of epochs just finished.
        """
        state, options = self.initial_states(params), {"every": every, "advance": advance}
        params, history, seconds = self._run(
            self.run_epoch_of_seeds, state, training, batches, num_epochs, checkpoints, **options
        )
        history = {name: np.moveaxis(values, 1, 0) for name, values in history.items()}
        return Fitted.of(params, history, seconds)

    def fit(self, training: str, params: Any, *arguments: Any, **options: Any) -> Fitted:
        """The same for one seed, whose parameters and minibatches have no axis of seeds."""
        state = self.initial_state(params)
        params, history, seconds = self._run(self.run_epoch, state, training, *arguments, **options)
        params, history = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (params, history))
        return Fitted.of(params, history, seconds)

    def _run(self, run_epoch, state, training, batches, num_epochs, checkpoints, **options):
        """`(params, history, seconds)`; the history with a leading axis of epochs."""
        start = time.perf_counter()

        def one_epoch(state, epoch):
            state, metrics = run_epoch(state, batches(epoch))
            return state, metrics | dict(self.score(state.params))

        state, history = checkpoints.run(training, state, num_epochs, one_epoch, **options)
        return jax.device_get(state.params), history, time.perf_counter() - start


class Training(NamedTuple):
    """One setting, trained from one seed or several."""

    names: Mapping[str, Any]  # the columns that name it, in all files
    seeds: Sequence[int]  # the seeds, in the order of `fitted`
    fitted: Fitted
    results: Mapping[str, Any] = {}  # columns of results.csv: a value for all seeds, or [S]

    @property
    def label(self) -> str:
        return ", ".join(map(str, self.names.values()))

    def result_rows(self) -> Iterator[dict[str, Any]]:
        """A row a seed: whether it failed, and how it ended."""
        fitted = self.fitted
        for index, seed in enumerate(self.seeds):
            row = {**self.names, "seed": seed}
            row |= {"status": "failed" if fitted.failed[index] else "ok"}
            for name, value in {"num_params": fitted.num_params, **self.results}.items():
                row[name] = value[index].item() if isinstance(value, np.ndarray) else value
            yield row

    def update_rows(self) -> Iterator[dict[str, Any]]:
        """A row an update and seed, in which a score of the epoch comes again and again."""
        history = self.fitted.history
        lengths = [values.shape[2] for values in history.values() if values.ndim == 3]
        updates = max(lengths, default=1)
        for index, seed in enumerate(self.seeds):
            of_seed = {name: values[index] for name, values in history.items()}
            for epoch in range(len(next(iter(of_seed.values()), ()))):
                for update in range(updates):
                    row = {**self.names, "seed": seed, "epoch": epoch + 1}
                    row["update"] = epoch * updates + update + 1
                    for name, values in of_seed.items():
                        value = values[epoch]
                        row[name] = float(value[update] if value.ndim else value)
                    yield row

    def failed(self) -> Iterator[str]:
        failed = self.fitted.failed
        if failed.any():
            had = f"{share(failed)} seeds had a number that is not finite, and are in no mean."
            yield f"{self.label}: {had}"
