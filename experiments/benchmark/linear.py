"""Linear recurrences: the bare one, the linear recurrent unit and a Mamba layer."""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments import linear_scan
from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.work import (
    Model,
    Shape,
    Work,
    prepare_model,
    prepared,
)
from experiments.linear_scan import associative_scan, plain_scan

PART = "linear"
OURS = "jaxrnn"
STATE_SIZE = 16

# T and width; then rows, T, features and units.
BARE = ((16384, 64), (2048, 512), (512, 4096))
LRU = (Shape(8, 1024, 128, 128), Shape(1, 16384, 128, 128), Shape(32, 256, 256, 256))
MAMBA = (Shape(4, 512, 64, 64), Shape(1, 4096, 64, 64))
QUICK_BARE, QUICK_LRU, QUICK_MAMBA = ((64, 8),), (Shape(2, 32, 4, 4),), (Shape(2, 32, 4, 4),)


def measure(quick: bool, timing: Timing, bar: Any) -> Iterator[Measured]:
    """Forward and gradient of the bare recurrence, training steps of the two layers."""
    if importlib.util.find_spec("memax") is None:
        bar.note("memax is not installed and left out: pip install '.[benchmark]'")
    for steps, width in QUICK_BARE if quick else BARE:
        for quantity in linear_scan.QUANTITIES:
            args = linear_scan.arrays(steps, width)
            makers = linear_scan.makers(quantity)
            subjects = {name: prepared(make(), *args) for name, make in makers.items()}
            case = f"{steps}, {width}"
            yield from _measured(subjects, timing, f"linear_scan {quantity}", case, bar)
    for group, models, shapes in (
        ("LRU training", lru_models, QUICK_LRU if quick else LRU),
        ("Mamba training", mamba_models, QUICK_MAMBA if quick else MAMBA),
    ):
        for shape in shapes:
            work = Work(group, shape, "training")
            subjects = {name: prepare_model(m, work) for name, m in models(shape).items()}
            yield from _measured(subjects, timing, group, ", ".join(map(str, shape)), bar)


def num_cases(quick: bool) -> int:
    """How often `measure` advances the bar."""
    grids = (QUICK_BARE, QUICK_LRU, QUICK_MAMBA) if quick else (BARE, LRU, MAMBA)
    return sum(map(len, grids)) + len(grids[0]) * (len(linear_scan.QUANTITIES) - 1)


def _measured(subjects, timing, group, case, bar):
    bar.stage(f"{group}, {case}")
    results = measured(subjects, timing, PART, group, case)
    bar.advance()
    bar.finish_stage(f"{group}, {case}")
    return results


def lru_models(shape: Shape) -> dict[str, Model]:
    """Linear recurrent units with as many inputs and states as units.

    The plain forms take our params. memax has a diagonal for our skip matrix.
    """
    cell = jr.lru(shape.units, shape.units)
    params = cell.init(jax.random.key(0), shape.features)
    models = {
        name: Model(params, forward)
        for name, forward in {
            OURS: _ours(cell, jr.auto()),
            "jaxrnn associative": _ours(cell, jr.associative("associative")),
            "jaxrnn one linear_scan": _ours(cell, jr.associative("sequential")),
            "plain scan": _plain_lru(plain_scan),
            "associative_scan": _plain_lru(associative_scan),
        }.items()
    }
    if importlib.util.find_spec("memax") is not None:
        models["memax"] = _memax_lru(shape)
    return models


def _ours(cell: Any, evaluator: Any) -> Callable[[Any, Any], Any]:
    def forward(params, xs):
        return jr.unroll(cell, params, xs, time_major=True, evaluator=evaluator).outputs

    return forward


def _plain_lru(scan):
    def forward(params, xs):
        decay = jnp.exp(-jnp.exp(params.nu_log) + 1j * jnp.exp(params.theta_log))
        kernel = params.kernel_real + 1j * params.kernel_imag
        b = jnp.exp(params.gamma_log) * (xs @ kernel)
        h = scan(jnp.broadcast_to(decay, b.shape), b)
        read = params.output_kernel_real + 1j * params.output_kernel_imag
        return (h @ read).real + xs @ params.skip_kernel

    return forward


def _memax_lru(shape):
    import equinox as eqx
    from memax.equinox.semigroups.lru import LRU as MemaxLRU  # pyright: ignore[reportMissingImports]

    module = MemaxLRU(shape.units, shape.features, jax.random.key(0))
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    start = jnp.zeros(shape.steps, bool)

    def forward(params, xs):
        module = eqx.combine(params, rest)
        carry = module.initialize_carry()
        return jax.vmap(lambda xs: module(carry, (xs, start))[1], in_axes=1, out_axes=1)(xs)

    return Model(params, forward)


def mamba_models(shape: Shape) -> dict[str, Model]:
    """Mamba layers of `shape.features` outputs; the plain forms take our params."""
    layers = {
        OURS: jr.mamba(STATE_SIZE),
        "jaxrnn sequential": jr.mamba(STATE_SIZE, evaluator=jr.sequential()),
        "jaxrnn associative": jr.mamba(STATE_SIZE, evaluator=jr.associative("associative")),
    }
    params = layers[OURS].init(jax.random.key(0), shape.features)
    models = {}
    for name, layer in layers.items():

        def forward(params, xs, layer=layer):
            return jr.unroll(layer, params, xs, time_major=True).outputs

        models[name] = Model(params, forward)
    for name, scan in {"plain scan": plain_scan, "associative_scan": associative_scan}.items():
        models[name] = Model(params, _plain_mamba(scan))
    return models


def _plain_mamba(scan):
    """Gu and Dao's layer as their reference code has it, all states at once."""

    def forward(params, xs):
        u, gate = jnp.split(xs @ params.kernel, 2, axis=-1)
        taps = params.conv.kernel
        padded = jnp.concatenate([jnp.zeros((len(taps) - 1, *u.shape[1:])), u])
        u = sum(tap * padded[k : k + len(u)] for k, tap in enumerate(taps)) + params.conv.bias
        u, ssm = jax.nn.silu(u), params.ssm
        rank, size = ssm.dt_kernel.shape[0], ssm.a_log.shape[1]
        delta, b, c = jnp.split(u @ ssm.kernel, [rank, rank + size], axis=-1)
        dt = jax.nn.softplus(delta @ ssm.dt_kernel + ssm.dt_bias)[..., None]
        h = scan(jnp.exp(dt * -jnp.exp(ssm.a_log)), dt * u[..., None] * b[..., None, :])
        y = jnp.einsum("...dn,...n->...d", h, c) + ssm.skip * u
        return y * jax.nn.silu(gate) @ params.output_kernel

    return forward
