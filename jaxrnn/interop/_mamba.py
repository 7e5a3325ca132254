"""Mamba and Mamba-2: the arrays of a block or of a language model in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrnn.cells import LinearCarry, S6Params
from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._language_models import flat_arrays
from jaxrnn.interop._mamba_config import Config, make_mixer, read_config
from jaxrnn.interop._mamba_export import mixer_in
from jaxrnn.interop._torch_arrays import as_numpy
from jaxrnn.layers import (
    DenseParams,
    EmbedParams,
    RMSNormParams,
    TiedEmbedParams,
    dense,
    embed,
    repeat,
    residual,
    rms_norm,
    serial,
    tied_embed,
)
from jaxrnn.mixers import (
    CausalConvParams,
    Mamba2Carry,
    Mamba2Params,
    MambaCarry,
    MambaParams,
    SSDParams,
    Window,
)
from jaxrnn.types import Layer, Model, Params


class Names(NamedTuple):
    """The names of the arrays of a language model; layer 0 begins with `layers` and "0."."""

    table: str
    layers: str
    norm: str
    readout: str


NAMES = (
    # mamba_ssm, transformers and mambapy.
    Names(
        "backbone.embedding.weight", "backbone.layers.", "backbone.norm_f.weight", "lm_head.weight"
    ),
    Names(
        "backbone.embeddings.weight", "backbone.layers.", "backbone.norm_f.weight", "lm_head.weight"
    ),
    Names("embedding.weight", "mamba.layers.", "norm_f.weight", "lm_head.weight"),
)


def from_mamba(
    arrays: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    *,
    prefix: str = "",
    cache: Any = None,
) -> Imported:
    """Reads the arrays of a Mamba or a Mamba-2: one block, or a whole language model.

        jr.unroll(*from_mamba(block.state_dict(), config)[:2], xs).outputs = block(xs)

    The names are those of `mamba_ssm`, of `transformers` and of `mambapy`. A block becomes `mamba`
    or `mamba2`; a language model becomes

        tied_embed(D, repeat(residual(serial(rms_norm(), mixer)), n), rms_norm(), use_bias=False)

    or, if its readout has an array of its own, `serial(embed(D), …, dense(V, use_bias=False))`.
    What the shapes show is read from them and compared with the config.

    Args:
        arrays: a `state_dict`, or what a safetensors file holds: names to tensors or arrays.
        config: the options: those of a `config.json`, with `ssm_cfg` as `mamba_ssm` writes it, or
            the arguments of the block. A Mamba-2 needs it, because its arrays do not show
            `ngroups`, `norm_before_gate` and `dt_limit`; {} is `Mamba2` of `mamba_ssm` with its
            defaults.
        prefix: what the names begin with, such as "backbone.layers.3.mixer." for one block of a
            model; other arrays are left aside.
        cache: the state to go on from: a pair `(conv_state [B, C, W or W-1], ssm_state)` for a
            block, one pair for each layer for a language model. `inference_params` of `mamba_ssm`
            holds such pairs in its `key_value_memory_dict`; those of `mambapy` are the other way
            round.

    Returns:
        `Imported(model, params, carry)`; the carry is None without a cache.

    Raises:
        TypeError: `arrays` or `config` is not a mapping.
        ValueError: An array is missing, left over or of another shape; an option has no counterpart
            here, is unknown, or is not what the shapes show; a Mamba-2 comes without a config; the
            cache has another shape.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.mamba2(state_size=8, head_width=3, num_groups=2)
        >>> arrays = jr.interop.to_mamba(layer, layer.init(jax.random.key(0), 6))
        >>> arrays["conv1d.weight"].shape
        (44, 1, 4)
        >>> model, params, _ = jr.interop.from_mamba(arrays, {"ngroups": 2})
        >>> jr.unroll(model, params, jnp.ones((2, 5, 6))).outputs.shape
        (2, 5, 6)
    """
    source = flat_arrays(arrays, prefix)
    names = next((names for names in NAMES if names.table in source), None)
    first = "" if names is None else f"{names.layers}0.mixer."
    kind = "mamba" if f"{first}x_proj.weight" in source else "mamba2"
    options = read_config(config, kind)
    if names is None:
        model, params = _read_mixer(source, "", kind, options)
    else:
        model, params = _read_language_model(source, names, kind, options)
    source.finish()
    return Imported(model, params, None if cache is None else _read_cache(model, params, cache))


def _read_language_model(
    arrays: Arrays, names: Names, kind: str, config: Config
) -> tuple[Layer, Params]:
    table = arrays.take(names.table, None, None)
    num_tokens, width = table.shape
    blocks = []
    while not blocks or f"{names.layers}{len(blocks)}.norm.weight" in arrays:
        prefix = f"{names.layers}{len(blocks)}."
        scale = RMSNormParams(arrays.take(f"{prefix}norm.weight", width))
        blocks.append((scale, *_read_mixer(arrays, f"{prefix}mixer.", kind, config)))
    # Tables are padded to a multiple of some number of rows.
    num_claimed = min(num_tokens, config.claimed("num_tokens") or num_tokens)
    config.check({"num_layers": len(blocks), "width": width, "num_tokens": num_claimed})
    scales, mixers, params = zip(*blocks, strict=True)
    if len(set(mixers)) > 1:
        raise ValueError(
            f"all layers must be equal, got {mixers[0]} and {set(mixers) - {mixers[0]}}"
        )
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(scales, params, strict=True))
    norm = rms_norm(config.epsilon)
    layers = repeat(residual(serial(norm, mixers[0])), len(mixers)), norm
    params = stacked, RMSNormParams(arrays.take(names.norm, width))
    readout = _read_readout(arrays, names.readout, table, config)
    if readout is None:
        return tied_embed(width, *layers, use_bias=False), TiedEmbedParams(table, params)
    model = serial(embed(width), *layers, dense(len(readout), use_bias=False))
    return model, (EmbedParams(table), *params, DenseParams(readout.T))


def _read_readout(arrays: Arrays, name: str, table: np.ndarray, config: Config) -> Any:
    """The readout `[V, D]`, or None if it is the table."""
    tied = config.claimed("tied")
    # Files leave out an array that is another one.
    if name not in arrays and tied in (None, True):
        return None
    readout = arrays.take(name, *table.shape)
    is_table = np.array_equal(readout, table)
    if tied and not is_table:
        raise ValueError(f"config says the readout is the table, but {name!r} is another array.")
    return None if is_table and tied is not False else readout


def _read_mixer(
    arrays: Arrays, prefix: str, kind: str, config: Config
) -> tuple[Layer, MambaParams | Mamba2Params]:
    read = {"mamba": _read_mamba, "mamba2": _read_mamba2}[kind]
    shapes, params = read(arrays, prefix, config)
    config.check(shapes)
    return make_mixer(kind, shapes, config), params


def _read_mamba(arrays: Arrays, prefix: str, config: Config) -> tuple[dict[str, Any], MambaParams]:
    del config

    def take(name, *shape):
        return arrays.take(prefix + name, *shape)

    output_kernel = take("out_proj.weight", None, None).T
    num_units, width = output_kernel.shape
    a_log = take("A_log", num_units, None)
    state_size = a_log.shape[1]
    dt_kernel = take("dt_proj.weight", num_units, None).T
    rank = len(dt_kernel)
    ssm = S6Params(
        kernel=take("x_proj.weight", rank + 2 * state_size, num_units).T,
        dt_kernel=dt_kernel,
        dt_bias=take("dt_proj.bias", num_units),
        a_log=a_log,
        skip=take("D", num_units),
    )
    conv = _read_conv(arrays, prefix, num_units)
    params = MambaParams(
        kernel=take("in_proj.weight", 2 * num_units, width).T,
        conv=conv,
        ssm=ssm,
        output_kernel=output_kernel,
        **_read_biases(arrays, prefix, 2 * num_units, width),
    )
    return _shapes(params, state_size) | {"dt_rank": rank}, params


def _read_mamba2(
    arrays: Arrays, prefix: str, config: Config
) -> tuple[dict[str, Any], Mamba2Params]:
    def take(name, *shape):
        return arrays.take(prefix + name, *shape)

    output_kernel = take("out_proj.weight", None, None).T
    num_units, width = output_kernel.shape
    a_log = take("A_log", None)
    num_heads = len(a_log)
    skip = take("D", None)
    conv = _read_conv(arrays, prefix, None)
    num_mixed = conv.kernel.shape[1]
    state_size, rest = divmod(num_mixed - num_units, 2 * config.num_groups)
    if state_size < 1 or rest or num_units % num_heads or len(skip) not in (num_heads, num_units):
        raise ValueError(
            f"the arrays of {prefix or 'the block'!r} do not fit {config.num_groups} groups: "
            f"'out_proj.weight' has {num_units} columns, 'conv1d.weight' {num_mixed} rows, 'A_log' "
            f"{num_heads} and 'D' {len(skip)} entries. There is no counterpart of 'd_ssm'."
        )
    num_projected = num_units + num_mixed + num_heads
    has_norm = prefix + "norm.weight" in arrays
    params = Mamba2Params(
        kernel=take("in_proj.weight", num_projected, width).T,
        conv=conv,
        ssm=SSDParams(a_log, take("dt_bias", num_heads), skip),
        norm_scale=take("norm.weight", num_units) if has_norm else None,
        output_kernel=output_kernel,
        **_read_biases(arrays, prefix, num_projected, width),
    )
    shapes = _shapes(params, state_size) | {
        "head_width": num_units // num_heads,
        "num_heads": num_heads,
        # With heads of width 1 both are the same.
        "skip_per_feature": len(skip) != num_heads,
        "use_norm": has_norm,
    }
    return shapes, params


def _read_conv(arrays: Arrays, prefix: str, num_inputs: int | None) -> CausalConvParams:
    kernel = arrays.take(f"{prefix}conv1d.weight", num_inputs, 1, None)[:, 0].T
    name = f"{prefix}conv1d.bias"
    return CausalConvParams(kernel, arrays.take(name, kernel.shape[1]) if name in arrays else None)


def _read_biases(arrays: Arrays, prefix: str, num_projected: int, width: int) -> dict[str, Any]:
    """Both biases, or none of them."""
    names = {"bias": f"{prefix}in_proj.bias", "output_bias": f"{prefix}out_proj.bias"}
    if not any(name in arrays for name in names.values()):
        return {}
    sizes = num_projected, width
    return {
        field: arrays.take(name, size)
        for (field, name), size in zip(names.items(), sizes, strict=True)
    }


def _shapes(params: MambaParams | Mamba2Params, state_size: int) -> dict[str, Any]:
    """What the arrays of both kinds show, by the words of the factories."""
    num_units, width = params.output_kernel.shape
    expansion, rest = divmod(num_units, width)
    if rest:
        raise ValueError(
            f"the width {num_units} of the state space must be a multiple of the width {width}: "
            "there is no counterpart of an 'expand' that is not an int."
        )
    return {
        "width": width,
        "inner width": num_units,
        "expansion": expansion,
        "state_size": state_size,
        "conv_width": len(params.conv.kernel),
        "use_bias": params.bias is not None,
        "use_conv_bias": params.conv.bias is not None,
    }


# The cache


def _read_cache(model: Model, params: Params, cache: Any) -> Any:
    """The carry of a block from a pair of states, or of a language model from a pair a layer."""
    if isinstance(params, MambaParams | Mamba2Params):
        return _read_states(model, params, cache, "cache")
    pairs = [cache[key] for key in sorted(cache)] if isinstance(cache, Mapping) else list(cache)
    tied = isinstance(params, TiedEmbedParams)
    scales, mixers = (params.layers if tied else params[1:])[0]
    if len(pairs) != len(scales.scale):
        raise ValueError(
            f"cache must have a pair for each of the {len(scales.scale)} layers, got {len(pairs)}."
        )
    mixer, carries = mixer_in(model), []
    for index, pair in enumerate(pairs):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], mixers)
        carries.append(_read_states(mixer, own, pair, f"cache[{index}]"))
    # The axis of the layers comes after those of the batch, of which the cache has one.
    stacked = (), jax.tree.map(lambda *leaves: np.stack(leaves, 1), *carries)
    return (stacked, ()) if tied else ((), stacked, (), ())


def _read_states(mixer: Model, params: Params, pair: Sequence[Any], name: str) -> Any:
    if len(pair) != 2 or any(state is None for state in pair):
        raise ValueError(f"{name} must be a pair (conv_state, ssm_state), got {pair!r}.")
    conv, ssm = (as_numpy(state, name) for state in pair)
    batch_shape = conv.shape[:1]
    want = jax.eval_shape(lambda: mixer.initial_carry(params, batch_shape))
    steps = want.conv.steps
    # Packages keep the newest W or W - 1 steps, last in the last axis.
    kept = np.swapaxes(conv, -1, -2)[..., max(conv.shape[-1] - steps.shape[-2], 0) :, :]
    # A cut of a longer state would be the steps of another convolution.
    is_long = conv.shape[-1] > steps.shape[-2] + 1
    if is_long or kept.shape != steps.shape or ssm.shape != want.ssm.h.shape:
        raise ValueError(
            f"{name} must hold a conv_state [B, {steps.shape[-1]}, {steps.shape[-2]} or one more] "
            f"and an ssm_state {['B', *want.ssm.h.shape[1:]]}, got {conv.shape} and {ssm.shape}."
        )
    # Where fewer steps were read the others are zero, which is what a step before the first is.
    count = np.full(batch_shape, steps.shape[-2], np.int32)
    kind = MambaCarry if isinstance(params, MambaParams) else Mamba2Carry
    return kind(Window(kept.astype(steps.dtype), count), LinearCarry(ssm.astype(want.ssm.h.dtype)))
