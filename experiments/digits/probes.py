"""What a model costs and how far it hears, beside its accuracy."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

import jaxrnn as jr
from experiments.digits.config import LONGEST_CONTEXT, Config
from experiments.digits.model import (
    REPRESENTATIVES,
    Sized,
    in_parallel,
    last_logits,
    make_mixer,
    make_model,
)
from experiments.digits.task import NUM_PIXELS, Task
from experiments.digits.train import Trained
from experiments.frame.timing import interleaved_seconds

FREE = {
    *("reshape", "transpose", "squeeze", "expand_dims", "slice", "broadcast_in_dim", "pad"),
    *("copy", "convert_element_type", "concatenate", "rev", "iota", "stop_gradient", "gather"),
    *("dynamic_slice", "dynamic_update_slice", "split", "select_n", "platform_index"),
}
CHOOSING = {"platform_index", "clamp", "convert_element_type"}


def sequential_depth(function: Callable[..., Any], *args: Any, shallow: bool = False) -> int:
    """How many operations follow each other at least, if everything else runs side by side.

    A product of matrices, a sum, or a function of all elements counts one; moving numbers counts
    nothing. A loop counts its length times what a turn adds to what it hands on, and its longest
    turn once more. It is a property of the program, not of the machine that runs it.

    Args:
        function: What is traced.
        args: Its arguments, arrays or `jax.ShapeDtypeStruct`.
        shallow: Of forms for several platforms the shallowest counts instead of the deepest.

    Raises:
        ValueError: There is a loop without a fixed number of turns.
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    return max(_depths(jaxpr, [0] * len(jaxpr.invars), shallow), default=0)


def _depths(jaxpr: Any, inputs: list[int], shallow: bool) -> list[int]:
    """The depth of every result, given those of the arguments."""
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    of_platform = set()

    def depth(atom):
        return 0 if isinstance(atom, core.Literal) else known.get(atom, 0)

    for equation in jaxpr.eqns:
        named = equation.primitive.name
        if named == "platform_index" or not of_platform.isdisjoint(_variables(equation)):
            of_platform.update(equation.outvars if named in CHOOSING else ())
        chooses = named == "cond" and equation.invars[0] in of_platform
        pick = min if shallow and chooses else max
        results = _of_equation(equation, [depth(atom) for atom in equation.invars], shallow, pick)
        known.update(zip(equation.outvars, results, strict=True))
    return [depth(atom) for atom in jaxpr.outvars]


def _of_equation(equation: Any, inputs: list[int], shallow: bool, pick: Any) -> list[int]:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return _of_scan(params, inputs, shallow)
    if name == "while":
        raise ValueError("a loop without a fixed number of turns has no depth")
    if name == "cond":
        branches = [_depths(each.jaxpr, inputs[1:], shallow) for each in params["branches"]]
        return pick(branches, key=max)
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), 0)
    if inner:
        return _depths(getattr(inner, "jaxpr", inner), inputs, shallow)
    deepest = max(inputs, default=0) + (name not in FREE)
    return [deepest] * len(equation.outvars)


def _of_scan(params: Any, inputs: list[int], shallow: bool) -> list[int]:
    """The chain through the carry grows by the same in every turn, from the second turn on."""
    body, length = params["jaxpr"].jaxpr, params["length"]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    carries = slice(num_consts, num_consts + num_carry)
    turns = min(length, 2 + num_carry)
    before = inputs
    for _ in range(turns):
        results = _depths(body, before, shallow)
        grown = [max(a, b) for a, b in zip(results[:num_carry], before[carries], strict=True)]
        step = max((a - b for a, b in zip(grown, before[carries], strict=True)), default=0)
        before = [*inputs[:num_consts], *grown, *inputs[carries.stop :]]
        last = results
    return [depth + (length - turns) * step for depth in last]


def _variables(equation: Any) -> set[Any]:
    return {atom for atom in equation.invars if not isinstance(atom, core.Literal)}


PROBED = 16
CONTEXTS = (NUM_PIXELS, 1024, LONGEST_CONTEXT)
DEPTHS = (NUM_PIXELS, 1024)
CLOCK = time.process_time  # what else runs on the machine does not count
EMPTY = "a call that does nothing"


class Reach(NamedTuple):
    """How strongly the last output hears each pixel, `[orders, 64]`, the mean of some digits."""

    name: str
    sensitivity: np.ndarray

    def early(self) -> np.ndarray:
        """The first quarter of the steps relative to the last quarter, `[orders]`."""
        quarter = self.sensitivity.shape[1] // 4
        first, last = self.sensitivity[:, :quarter], self.sensitivity[:, -quarter:]
        return first.mean(axis=1) / last.mean(axis=1)


class Counted(NamedTuple):
    """What shapes alone tell of a model."""

    name: str  # of the model
    depth: Mapping[int, int]  # steps to the sequential depth of a forward pass, as it runs here
    parallel_depth: Mapping[int, int]  # the same with parallel scans where there are any
    carry_bytes: Mapping[int, int]  # context to the bytes of the carry of a stream that may use it
    multiply_adds: Mapping[int, float]  # steps to those of a forward pass, a step


class Times(NamedTuple):
    """Processor seconds `[rounds]`, interleaved, of an update of all trainings and of one token."""

    update: Mapping[str, np.ndarray]
    token: Mapping[str, np.ndarray]


class Growth(NamedTuple):
    """The gradient of one mixer over sequences of several lengths."""

    width: int  # features of all mixers
    seconds: Mapping[str, Mapping[int, np.ndarray]]  # name to length to processor seconds [rounds]
    temporary_bytes: Mapping[str, Mapping[int, int]]  # name to length to what XLA plans


def count(sized: Sized, num_blocks: int) -> Counted:
    """Traces the model; nothing runs. The window of attention grows with the context."""

    def shapes(steps, make=make_model):
        model = make(sized.name, sized.width, num_blocks, steps)
        params = jax.eval_shape(lambda key: model.init(key, 1), jax.random.key(0))
        return model, params, jax.ShapeDtypeStruct((1, steps, 1), jnp.float32)

    def depth(steps, make):
        model, params, xs = shapes(steps, make)
        shallow = make is in_parallel
        return sequential_depth(last_logits(model), params, xs, shallow=shallow)

    def carry_bytes(steps):
        model, params, _ = shapes(steps)
        carry = jax.eval_shape(lambda params: model.initial_carry(params), params)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))

    def multiply_adds(steps):
        return jr.count_cost(*shapes(steps)).multiply_adds / steps

    return Counted(
        sized.name,
        {steps: depth(steps, make_model) for steps in DEPTHS},
        {steps: depth(steps, in_parallel) for steps in DEPTHS},
        {steps: carry_bytes(steps) for steps in CONTEXTS},
        {steps: multiply_adds(steps) for steps in DEPTHS},
    )


def reach(trained: Trained, tasks: Sequence[Task]) -> Reach:
    """The first seed of every order that did not fail, on the first test digits."""
    firsts = []
    for task in tasks:
        trainings = trained.of_order(task.order)
        good = np.flatnonzero(~trained.fitted.failed[trainings])
        firsts.append(trainings.start + (good[0] if len(good) else 0))
    params = jax.tree.map(lambda leaf: leaf[np.array(firsts)], trained.fitted.params)
    xs = np.stack([task.xs[task.split.test[:PROBED]] for task in tasks])
    model = trained.sized.model

    @jax.jit
    @jax.vmap
    def sensitivity(params, xs):
        return jr.last_output_sensitivity(model, params, xs).mean(axis=0)

    return Reach(trained.sized.name, np.asarray(sensitivity(params, xs)))


def time_models(
    config: Config, trainings: Sequence[Trained], tasks: Sequence[Task], advance: Callable[[], Any]
) -> Times:
    """Updates of all models in turns, and the pixels of one digit, a call each, in turns."""
    updates = interleaved_seconds(
        {one.sized.name: one.update for one in trainings}, config.rounds, advance, CLOCK
    )
    numbers = {one.sized.name: one.updates_a_call for one in trainings}
    pixels = tasks[0].xs[tasks[0].split.test[0]]
    readers = {one.sized.name: _reader(one, pixels) for one in trainings}
    readers[EMPTY] = _through(jax.jit(lambda carry, x: (carry, x)), 0.0, pixels)
    tokens = interleaved_seconds(readers, config.rounds, advance, CLOCK)
    return Times(
        {name: seconds / numbers[name] for name, seconds in updates.items()},
        {name: seconds / len(pixels) for name, seconds in tokens.items()},
    )


def _reader(trained, pixels):
    """Hands one pixel after the other to a model that has learned, and waits for every answer."""
    model = trained.sized.model
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trained.fitted.params)
    step = jax.jit(lambda carry, x: jr.step(model, params, carry, x))
    return _through(step, model.initial_carry(params), pixels)


def _through(step, start, pixels):
    def read():
        carry, ys = start, []
        for x in pixels:
            carry, y = step(carry, x)
            ys.append(np.asarray(y))
        return ys

    return read


def grow(config: Config, width: int, advance: Callable[[], Any]) -> Growth:
    """One mixer of each family, of one width, batch 1: the gradient at every length."""
    names = [name for name in REPRESENTATIVES.values() if name in config.models]
    ready = {}
    for name in names:
        for length in config.lengths:
            ready[name, length] = _gradient(name, width, length)
            advance()
    calls = {f"{name} {length}": call for (name, length), (call, _) in ready.items()}
    seconds = interleaved_seconds(calls, config.rounds, clock=CLOCK)
    return Growth(
        width,
        {n: {length: seconds[f"{n} {length}"] for length in config.lengths} for n in names},
        {n: {length: ready[n, length][1] for length in config.lengths} for n in names},
    )


def _gradient(name, width, length):
    mixer = make_mixer(name, width, length)
    params = mixer.init(jax.random.key(0), width)
    xs = jax.random.normal(jax.random.key(1), (1, length, width))

    def loss(params):
        return (jr.unroll(mixer, params, xs).outputs ** 2).mean()

    compiled: Any = jax.jit(jax.grad(loss)).lower(params).compile()
    return lambda: compiled(params), compiled.memory_analysis().temp_size_in_bytes


def growth_work(config: Config) -> int:
    named = [name for name in REPRESENTATIVES.values() if name in config.models]
    return len(named) * len(config.lengths)
