"""Linear recurrences: the bare one, the linear recurrent unit and a Mamba layer."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments import linear_scan
from experiments.benchmark.subjects import installed
from experiments.benchmark.work import OURS, Case, Model, Shape, Work, prepare_model, prepared
from experiments.linear_scan import associative_scan, plain_scan

STATE_SIZE = 16
# In full, and for `--quick`: T and width; then shapes.
BARE = ((16384, 64), (2048, 512), (512, 4096)), ((64, 8),)
LRU = (
    (Shape(8, 1024, 128, 128), Shape(1, 16384, 128, 128), Shape(32, 256, 256, 256)),
    (Shape(2, 32, 4, 4),),
)
MAMBA = (Shape(4, 512, 64, 64), Shape(1, 4096, 64, 64)), (Shape(2, 32, 4, 4),)
SCANS = {"plain scan": plain_scan, "associative_scan": associative_scan}


def cases(config: Any) -> Iterator[Case]:
    """Forward and gradient of the bare recurrence, training steps of the two layers."""
    for size in BARE[config.quick]:
        for quantity in linear_scan.QUANTITIES:
            prepare = functools.partial(_bare, quantity, *size)
            yield Case(f"linear_scan {quantity}", ", ".join(map(str, size)), prepare)
    for group, models, shapes in (
        ("LRU training", lru_models, LRU),
        ("Mamba training", mamba_models, MAMBA),
    ):
        for shape in shapes[config.quick]:
            yield Case(group, str(shape), functools.partial(_training, models, shape))


def _bare(quantity, num_steps, width):
    args = linear_scan.arrays(num_steps, width)
    functions = {name: linear_scan.function_of(quantity, name) for name in linear_scan.SUBJECTS}
    return {name: prepared(function, *args) for name, function in functions.items()}


def _training(models, shape):
    work = Work("", shape, "training")
    return {name: prepare_model(model, work) for name, model in models(shape).items()}


def lru_models(shape: Shape) -> dict[str, Model]:
    """Linear recurrent units; plain forms take our params, memax a diagonal for our skip matrix."""
    cell = jr.lru(shape.units, shape.units)
    params = cell.init(jax.random.key(0), shape.features)
    forms = {
        OURS: _ours(cell),
        "jaxrnn associative": _ours(cell, evaluator=jr.associative("associative")),
        "jaxrnn one linear_scan": _ours(cell, evaluator=jr.associative("sequential")),
        **{name: functools.partial(_plain_lru, scan) for name, scan in SCANS.items()},
    }
    models = {name: Model(params, forward) for name, forward in forms.items()}
    return models | ({"memax": _memax_lru(shape)} if installed("memax") else {})


def _ours(model, **options) -> Callable[[Any, Any], Any]:
    def forward(params, xs):
        return jr.unroll(model, params, xs, time_major=True, **options).outputs

    return forward


def _plain_lru(scan, params, xs):
    decay = jnp.exp(-jnp.exp(params.nu_log) + 1j * jnp.exp(params.theta_log))
    kernel = params.kernel_real + 1j * params.kernel_imag
    b = jnp.exp(params.gamma_log) * (xs @ kernel)
    h = scan(jnp.broadcast_to(decay, b.shape), b)
    read = params.output_kernel_real + 1j * params.output_kernel_imag
    return (h @ read).real + xs @ params.skip_kernel


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
    evaluators = {
        "jaxrnn sequential": jr.sequential(),
        "jaxrnn associative": jr.associative("associative"),
    }
    layers = {OURS: jr.mamba(STATE_SIZE)} | {
        name: jr.mamba(STATE_SIZE, evaluator=evaluator) for name, evaluator in evaluators.items()
    }
    forms = {name: _ours(layer) for name, layer in layers.items()}
    forms |= {name: functools.partial(_plain_mamba, scan) for name, scan in SCANS.items()}
    params = layers[OURS].init(jax.random.key(0), shape.features)
    return {name: Model(params, forward) for name, forward in forms.items()}


def _plain_mamba(scan, params, xs):
    """Gu and Dao's layer as their reference code has it, all states at once."""
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
