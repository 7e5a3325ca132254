"""What a person does with sequences: streams, packs and pads them, trains epochs, stores less.

Sizes are given twice: in full, and for `--quick`.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.benchmark.subjects import installed, lstm_step, torch_module
from experiments.benchmark.work import (
    LEARNING_RATE,
    OURS,
    Case,
    Shape,
    Subject,
    compiled,
    handing_on,
    prepared,
    prepared_in_place,
)

# Streaming: one token at a time through two layers, the time from a token to its output.

STREAMS = ((256, 256), (64, 128)), ((8, 8),)
TOKENS = 100, 5
NUM_LAYERS = 2


def streaming(config: Any) -> Iterator[Case]:
    """Every subject reads a block of tokens in each round; the carry stays where it is made."""
    num_tokens = TOKENS[config.quick]
    for features, units in STREAMS[config.quick]:

        def prepare(features=features, units=units):
            tokens = np.random.default_rng(0).standard_normal((num_tokens, 1, features), np.float32)
            params = stacked(units).init(jax.random.key(0), features)
            readers = {OURS: streamed, "hand-written step": streamed_by_hand}
            readers |= {"torch": streamed_by_torch} if installed("torch") else {}
            return {name: reader(params, tokens, units) for name, reader in readers.items()}

        case = f"{features} to LSTM-{units}, {NUM_LAYERS} layers"
        yield Case("step", case, prepare, amount=num_tokens)


def stacked(units: int) -> jr.Layer:
    return jr.serial(*(jr.recurrent(jr.lstm(units)) for _ in range(NUM_LAYERS)))


def streamed(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """`jr.step` under `jit` with donated carry."""
    layer = stacked(units)

    def step(params, carry, x):
        return jr.step(layer, params, carry, x)

    return _reader(step, params, layer.initial_carry(params, (1,)), tokens)


def streamed_by_hand(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """The equations written out, under `jit` with donated carry."""

    def step(params, carry, x):
        carries = []
        for layer, carry_of_layer in zip(params, carry, strict=True):
            named = {"w": layer.kernel, "u": layer.recurrent_kernel, "b": layer.bias}
            carry_of_layer, x = lstm_step(named, carry_of_layer, x)
            carries.append(carry_of_layer)
        return carries, x

    zeros = jnp.zeros((1, units))
    return _reader(step, params, [(zeros, zeros)] * NUM_LAYERS, tokens)


def _reader(step, params, carry, tokens):
    _, *costs = compiled(step, params, carry, tokens[0], donate=(1,))
    jitted = jax.jit(step, donate_argnums=1)  # called as a person calls it
    carry = jax.tree.map(jnp.array, carry)
    return _waiting(lambda carry, token: jitted(params, carry, token), carry, tokens, costs)


def _waiting(step, carry, tokens, costs=()):
    """A subject that hands the carry from token to token and waits for every output."""

    def read(carry):
        outputs = []
        for token in tokens:
            carry, y = step(carry, token)
            outputs.append(np.asarray(y))
        return carry, np.stack(outputs)

    return handing_on(read, carry, *costs)


def streamed_by_torch(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """torch's module of all layers, one step a call, with our parameters."""
    import torch

    module = torch_module("lstm", Shape(1, 1, tokens.shape[-1], units), NUM_LAYERS)
    with torch.no_grad():
        for index, layer in enumerate(params):
            arrays = {
                "weight_ih": layer.kernel.T,
                "weight_hh": layer.recurrent_kernel.T,
                "bias_ih": layer.bias,
                "bias_hh": jnp.zeros_like(layer.bias),
            }
            for name, array in arrays.items():
                getattr(module, f"{name}_l{index}").copy_(torch.tensor(np.asarray(array)))

    @torch.inference_mode()
    def step(carry, token):
        y, carry = module(token, carry)
        return carry, y[0].numpy()

    return _waiting(step, None, [torch.tensor(token[None]) for token in tokens])


# Lengths: sequences of skewed lengths, padded, in buckets or packed; the same loss and gradient.

PACKED = "packed"
MEDIAN, HIGH = 40, 400
STANDARD_NORMAL_AT_99_PERCENT = 2.326
FEATURES = 64
UNITS = (64, 256), (8,)
NUM_SEQUENCES, BATCH_SIZE = (256, 12), (32, 4)
NUM_BUCKETS = 8  # as many as there are batches, so that none has rows that only fill it

# Rows `[B, T, ...]` of inputs, mask and reset; reset is None where a row is one sequence.
Batch = tuple[Any, Any, Any]


def lengths(config: Any) -> Iterator[Case]:
    """Loss and gradient over all sequences, batch after batch, in every layout."""
    sequences = drawn(NUM_SEQUENCES[config.quick])
    num_tokens, longest = sum(map(len, sequences)), max(map(len, sequences))
    group = f"{len(sequences)} sequences, {num_tokens} steps, longest {longest}"
    for units in UNITS[config.quick]:

        def prepare(units=units):
            batches = layouts(sequences, BATCH_SIZE[config.quick])
            return {name: gradient_of(one, units) for name, one in batches.items()}

        yield Case(group, f"LSTM-{units}", prepare, amount=num_tokens)


def drawn(num_sequences: int) -> list[np.ndarray]:
    """Sequences of log-normal length, of which the median and the 99th percentile are given."""
    generator = np.random.default_rng(0)
    deviation = np.log(HIGH / MEDIAN) / STANDARD_NORMAL_AT_99_PERCENT
    lengths = np.exp(np.log(MEDIAN) + deviation * generator.standard_normal(num_sequences))
    lengths = np.maximum(lengths.round().astype(int), 1)
    return [generator.standard_normal((length, FEATURES), np.float32) for length in lengths]


def layouts(sequences: list[np.ndarray], batch_size: int) -> dict[str, list[Batch]]:
    """Batches that hold every sequence once: packed, in buckets, or padded."""
    firsts = range(0, len(sequences), batch_size)
    parts = [sequences[first : first + batch_size] for first in firsts]
    buckets = jr.bucket_batches(sequences, batch_size, num_buckets=NUM_BUCKETS)
    return {
        PACKED: _packed(sequences, batch_size),
        f"{NUM_BUCKETS} buckets": [(batch.xs, batch.mask, None) for batch in buckets],
        "padded in the batch": [_padded(part, max(map(len, part))) for part in parts],
        "padded to the longest": [_padded(part, max(map(len, sequences))) for part in parts],
    }


def _packed(sequences, batch_size):
    """Packed rows in batches of one size, about `batch_size`; the last may have empty rows."""
    rows = jr.pack(sequences)
    num_batches = max(1, round(len(rows.mask) / batch_size))
    size = -(-len(rows.mask) // num_batches)
    fill = num_batches * size - len(rows.mask)

    def batched(leaf):
        filled = np.pad(leaf, [(0, fill)] + [(0, 0)] * (leaf.ndim - 1))
        return filled.reshape(num_batches, size, *leaf.shape[1:])

    return list(zip(*map(batched, (rows.xs, rows.mask, rows.reset)), strict=True))


def _padded(sequences, num_steps):
    (batch,) = jr.bucket_batches(sequences, len(sequences), boundaries=(num_steps,))
    return batch.xs, batch.mask, None


def gradient_of(batches: list[Batch], units: int) -> Subject:
    """The sum of squares of all outputs, and its gradient, over all batches."""
    cell = jr.lstm(units)
    params = cell.init(jax.random.key(0), FEATURES)

    def loss_fn(params, xs, mask, reset):
        return (jr.unroll(cell, params, xs, mask=mask, reset=reset).outputs ** 2).sum()

    def add(total, params, batch):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, *batch))

    jitted = jax.jit(add, donate_argnums=0)
    batches = [jax.tree.map(jnp.asarray, batch) for batch in batches]

    def call():
        total = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        for batch in batches:
            total = jitted(total, params, batch)
        return total

    return Subject(call)


# Epochs: one call for an epoch beside a call for every minibatch.

A_CALL_A_STEP = "a call a step"
# Minibatches of an epoch, and their shape.
EPOCHS = (
    (
        (64, Shape(32, 25, 8, 32)),
        (64, Shape(1, 256, 32, 64)),
        (16, Shape(32, 100, 64, 128)),
        (4, Shape(32, 128, 128, 256)),
    ),
    ((4, Shape(2, 8, 4, 8)),),
)


def epochs(config: Any) -> Iterator[Case]:
    """The same minibatches both ways, on the device before the clock starts."""
    for num_batches, shape in EPOCHS[config.quick]:
        prepare = functools.partial(prepared_epochs, num_batches, shape)
        yield Case("LSTM", f"{num_batches} of {shape}", prepare)


def prepared_epochs(num_batches: int, shape: Shape) -> dict[str, Subject]:
    """`make_epoch_step`, and `make_train_step` called in a loop."""
    cell, optimizer = jr.lstm(shape.units), optax.adam(LEARNING_RATE)

    def loss_fn(params, batch, key):
        outputs = jr.unroll(cell, params, batch, time_major=True, key=key).outputs
        return (outputs**2).mean(), {}

    def start():
        params = cell.init(jax.random.key(0), shape.features)
        return jr.TrainState.create(params, optimizer)

    size = num_batches, shape.steps, shape.batch, shape.features
    batches = jax.random.normal(jax.random.key(1), size)
    epoch = prepared_in_place(jr.make_epoch_step(loss_fn, optimizer), start(), batches)
    step = jr.make_train_step(loss_fn, optimizer)
    return {OURS: epoch, A_CALL_A_STEP: _loop(step, start(), list(batches))}


def _loop(step, state, batches):
    ready, *costs = compiled(step, state, batches[0], donate=(0,))

    def epoch(state):
        losses = []
        for batch in batches:
            state, metrics = ready(state, batch)
            losses.append(metrics["loss"])
        return state, {"loss": jnp.stack(losses)}

    return handing_on(epoch, state, *costs)


# Checkpoints: one gradient through long sequences, by what the evaluator stores.

LENGTHS = (1_000, 10_000, 100_000, 1_000_000), (64, 256)
CHECKPOINT_UNITS = 64, 8
POLICIES: dict = {"everything": None, "every 16th": 16, "every 128th": 128, "sqrt": "sqrt"}
LONG = 300_000  # of sequences that take so long, one round tells enough


def checkpoints(config: Any) -> Iterator[Case]:
    """The carries of every K-th step are stored and the steps between made twice."""
    units = CHECKPOINT_UNITS[config.quick]
    for steps in LENGTHS[config.quick]:
        prepare = functools.partial(prepared_gradients, steps, units)
        yield Case(f"LSTM-{units}", f"{steps:,}", prepare, rounds=1 if steps >= LONG else None)


def prepared_gradients(steps: int, units: int) -> dict[str, Subject]:
    """The gradient of the mean of all squared outputs, one subject a policy."""
    cell = jr.lstm(units)
    params = cell.init(jax.random.key(0), units)
    xs = jax.random.normal(jax.random.key(1), (steps, 1, units))

    def loss(params, xs, policy):
        evaluator = jr.sequential(checkpoint=policy)
        rollout = jr.unroll(cell, params, xs, time_major=True, evaluator=evaluator)
        return (rollout.outputs**2).mean()

    return {
        name: prepared(functools.partial(jax.grad(loss), policy=policy), params, xs)
        for name, policy in POLICIES.items()
    }
