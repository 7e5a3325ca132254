"""One token at a time through two layers: the time from a token to its output."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.subjects.plain_scan import lstm as lstm_step
from experiments.benchmark.work import Subject, compiled

PART = "streaming"
OURS = "jaxrnn"
SIZES, QUICK_SIZES = ((256, 256), (64, 128)), ((8, 8),)
TOKENS, QUICK_TOKENS = 100, 5
NUM_LAYERS = 2


def measure(quick: bool, timing: Timing, bar: Any) -> Iterator[Measured]:
    """Every subject reads a block of tokens in each round; the carry stays where it is made."""
    num_tokens = QUICK_TOKENS if quick else TOKENS
    for features, units in QUICK_SIZES if quick else SIZES:
        case = f"{features} to LSTM-{units}, {NUM_LAYERS} layers"
        bar.stage(case)
        tokens = np.random.default_rng(0).standard_normal((num_tokens, 1, features), np.float32)
        params = layer_of(units).init(jax.random.key(0), features)
        subjects = {
            OURS: ours(params, tokens, units),
            "hand-written step": by_hand(params, tokens, units),
        }
        if importlib.util.find_spec("torch") is not None:
            subjects["torch"] = by_torch(params, tokens, units)
        amounts = dict.fromkeys(subjects, num_tokens)
        yield from measured(subjects, timing, PART, "step", case, amounts)
        bar.advance()
        bar.finish_stage(case)


def num_cases(quick: bool) -> int:
    """How often `measure` advances the bar."""
    return len(QUICK_SIZES if quick else SIZES)


def layer_of(units: int) -> jr.Layer:
    """The layers one after the other."""
    return jr.serial(*(jr.recurrent(jr.lstm(units)) for _ in range(NUM_LAYERS)))


def reader(
    step: Callable[..., Any], params: Any, carry: Any, tokens: np.ndarray, compilation: tuple
) -> Subject:
    """A subject that hands the carry from token to token and waits for every output."""
    carry = jax.tree.map(jnp.array, carry)
    _, seconds, temporary = compilation

    def call():
        nonlocal carry
        outputs = []
        for token in tokens:
            carry, y = step(params, carry, token)
            outputs.append(np.asarray(y))
        return np.stack(outputs)

    return Subject(call, seconds, temporary)


def _jitted(step, params, carry, tokens):
    """A jitted step, called as a person calls it, and what its compilation took."""
    jitted = jax.jit(step, donate_argnums=1)
    compilation = compiled(step, params, carry, tokens[0], donate=(1,))
    return reader(jitted, params, carry, tokens, compilation)


def ours(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """`jr.step` under `jit` with donated carry."""
    layer = layer_of(units)

    def step(params, carry, x):
        return jr.step(layer, params, carry, x)

    return _jitted(step, params, layer.initial_carry(params, (1,)), tokens)


def by_hand(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """The equations written out, under `jit` with donated carry."""
    zeros = jnp.zeros((1, units))

    def step(params, carry, x):
        carries = []
        for layer, carry_of_layer in zip(params, carry, strict=True):
            named = {"w": layer.kernel, "u": layer.recurrent_kernel, "b": layer.bias}
            carry_of_layer, x = lstm_step(named, carry_of_layer, x)
            carries.append(carry_of_layer)
        return carries, x

    return _jitted(step, params, [(zeros, zeros)] * NUM_LAYERS, tokens)


def by_torch(params: Any, tokens: np.ndarray, units: int) -> Subject:
    """torch's module of all layers, one step a call, with our parameters."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    module = torch.nn.LSTM(tokens.shape[-1], units, NUM_LAYERS)
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
    inputs, carry = [torch.tensor(token[None]) for token in tokens], None

    def call():
        nonlocal carry
        outputs = []
        with torch.inference_mode():
            for token in inputs:
                y, carry = module(token, carry)
                outputs.append(y[0].numpy())
        return np.stack(outputs)

    return Subject(call)
