"""Trains one model at a time, an epoch a call, and keeps checkpoints while it does."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import jaxrnn as jr
from experiments.checkpoints import Checkpoints
from experiments.matched import count_params
from jaxrnn.training import LossFn, TBPTTLossFn


class Fitted(NamedTuple):
    """A model after training.

    Attributes:
        params: After the last epoch.
        history: Name to numbers with a leading axis of epochs: those of the updates `[E, U]`, and
            those of `score`.
        num_params: How many numbers `params` holds.
        failed: A number of the history, or a parameter, is not finite.
        seconds: Wall time of what was run now, compilation included; not what a checkpoint brought.
    """

    params: Any
    history: dict[str, np.ndarray]
    num_params: int
    failed: bool
    seconds: float


def failed_rows(*trees: Any) -> np.ndarray:
    """bool `[S]`: a number in row s of some leaf `[S, ...]` is not finite."""
    leaves = jax.tree.leaves(trees)
    finite = [np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]
    return ~np.all(finite, axis=0)


class Fitter:
    """Trains any number of parameters with one loss and one optimizer; compiled once.

    Args:
        loss_fn: As `make_epoch` takes it.
        optimizer: Any optax transformation.
        score: `params -> metrics`, run after every epoch, under other names than those of the
            updates. It is not compiled here.
        make_epoch: From the loss and the optimizer to `(state, batches, key) -> (state, metrics)`;
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
        self.run_epoch = jax.jit(make_epoch(loss_fn, optimizer), donate_argnums=0)

    def fit(
        self,
        training: str,
        params: Any,
        batches: Callable[[int], Any],
        num_epochs: int,
        checkpoints: Checkpoints,
        *,
        key: jax.Array | None = None,
        every: int = 5,
        epoch_done: Callable[[int], Any] = lambda epochs: None,
    ) -> Fitted:
        """Trains `params`.

        Args:
            training: Its name, one of its own within the run.
            params: Where it starts.
            batches: From the number of an epoch to its minibatches, a tree with a leading axis of
                updates; the same number gives the same minibatches.
            num_epochs: How many.
            checkpoints: Those of the run.
            key: Of the noise in the model, if there is any.
            every: Epochs from one checkpoint to the next.
            epoch_done: Is told of so many more epochs.
        """
        start = time.perf_counter()

        def one_epoch(state, epoch):
            epoch_key = None if key is None else jax.random.fold_in(key, epoch)
            state, metrics = self.run_epoch(state, batches(epoch), epoch_key)
            return state, metrics | dict(self.score(state.params))

        # A copy, because the epochs are given the memory of the state to write in.
        state = jr.TrainState.create(jax.tree.map(jax.numpy.array, params), self.optimizer)
        state, history = checkpoints.run(
            training, state, num_epochs, one_epoch, every=every, epoch_done=epoch_done
        )
        leaves = [*history.values(), *map(np.asarray, jax.tree.leaves(state.params))]
        return Fitted(
            jax.device_get(state.params),
            history,
            count_params(state.params),
            not all(np.isfinite(leaf).all() for leaf in leaves),
            time.perf_counter() - start,
        )
