"""Truncated backpropagation over streams of text, and trained parameters in a run folder."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import jaxrnn as jr
from experiments.characters.config import Config
from experiments.characters.model import BITS, Sized, Stream, stream_of
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.errors import ExperimentError
from experiments.frame.fitting import Fitted, Fitter

PARAMS, TEXT = "params.npz", "text.json"


def train(
    config: Config,
    model: Sized,
    mode: str,
    texts: Iterable[str],
    checkpoints: Checkpoints,
    advance: Advance,
) -> Fitted:
    """All epochs, from the same parameters and with the same text in each mode; losses in bits."""
    texts = [text[: max(2, int(config.training_share * len(text)))] for text in texts]

    def batches(epoch):
        return training_chunks(config, mode, texts, epoch)

    fitter = make_fitter(config, model, config.epochs * len(batches(0).xs))
    params, name = model.init(config.seed), f"{model.mixer} {mode}"
    return fitter.fit(name, params, batches, config.epochs, checkpoints, every=2, advance=advance)


def training_chunks(config: Config, mode: str, texts: Sequence[str], epoch: int) -> Stream:
    """One pass over all texts in an order of its own: streams of one length, so one shape.

    What is left after the last whole chunk of the streams is not read in this pass.
    """
    order = np.random.default_rng((config.seed, epoch)).permutation(len(texts))
    whole = stream_of([texts[int(index)] for index in order])
    num_chunks = len(whole.xs) // (config.batch_size * config.chunk)
    shape = config.batch_size, num_chunks, config.chunk
    chunks = Stream(*(leaf[: np.prod(shape)].reshape(shape).swapaxes(0, 1) for leaf in whole))
    chunks.reset[..., 0] |= mode == "reset"
    return chunks


@functools.cache
def make_fitter(config: Config, model: Sized, num_updates: int) -> Fitter:
    """What trains a model in any mode; compiled once."""
    layer, peak = model.layer(), config.learning_rate

    def loss_fn(params, carry, chunk, key):
        """Bits per character of a chunk, from the carry before it."""
        rollout = jr.unroll(layer, params, chunk.xs, carry=carry, reset=chunk.reset, key=key)
        losses = BITS * jr.cross_entropy(rollout.outputs, chunk.ys)
        return jr.mean_over_steps(losses), (rollout.carry, {})

    def make_epoch(loss_fn, optimizer):
        tbptt_step = jr.make_tbptt_step(loss_fn, optimizer)

        def update(state_and_carry, chunk):
            state, carry, metrics = tbptt_step(*state_and_carry, chunk)
            return (state, carry), metrics

        def epoch(state, chunks):
            carry = layer.initial_carry(state.params, (config.batch_size,))
            (state, _), metrics = jax.lax.scan(update, (state, carry), chunks)
            return state, metrics

        return epoch

    warmup, total = max(1, num_updates // 20), max(2, num_updates)
    rate = optax.warmup_cosine_decay_schedule(0.1 * peak, peak, warmup, total, 0.01 * peak)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(rate, weight_decay=config.weight_decay),
    )
    return Fitter(loss_fn, optimizer, make_epoch=make_epoch)


def files_of(params: Mapping[tuple[str, str], Any], digest: str) -> dict[str, Any]:
    """Parameters by mixer and mode as files, and of which text they are."""
    arrays = {
        f"{mixer} {mode}/{index}": leaf
        for (mixer, mode), tree in params.items()
        for index, leaf in enumerate(jax.tree.leaves(tree))
    }
    return {PARAMS: arrays, TEXT: {"digest": digest}}


def saved_config(folder: Path) -> Config:
    """The options of a finished run; an ExperimentError if it is not one of this experiment."""
    try:
        run = json.loads((folder / "config.json").read_text())
        name, options = run["experiment"], dict(run["options"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"--characters: {folder} is no run: {error}") from error
    if name != "characters":
        raise ExperimentError(f"--characters: {folder} is a run of {name}")
    options |= {name: tuple(options[name]) for name in ("models", "modes")}
    return Config(**{**options, "out": None, "resume": None})


def load(folder: Path, mode: str, model: Sized, digest: str) -> Any:
    """The parameters of a model that a run trained in one mode, on the text of this Python."""
    mixer = model.mixer
    like, structure = jax.tree.flatten(jax.eval_shape(lambda: model.init(0)))
    try:
        found = json.loads((folder / TEXT).read_text())["digest"]
        with np.load(folder / PARAMS) as arrays:
            leaves = [arrays[f"{mixer} {mode}/{index}"] for index in range(len(like))]
    except (OSError, ValueError, KeyError) as error:
        raise ExperimentError(f"--characters: {folder} has no trained {mixer}: {error}") from error
    if found != digest:
        raise ExperimentError(
            f"--characters: {folder} is of another text, {found}, than this Python's, {digest}"
        )
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in like]:
        raise ExperimentError(f"--characters: {folder} has a {mixer} of another size")
    return jax.tree.unflatten(structure, leaves)
