"""The stacks of mLSTM and sLSTM blocks of the xLSTM paper in."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import SLSTMParams
from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._language_models import check_claims, check_known, stack_of
from jaxrnn.layers import (
    DenseParams,
    EmbedParams,
    GatedMLPParams,
    LayerNormParams,
    TiedEmbedParams,
    dense,
    embed,
    gated_mlp,
    layer_norm,
    residual,
    serial,
    tied_embed,
)
from jaxrnn.mixers import (
    CausalConvParams,
    MLSTMBlockParams,
    MLSTMMemoryParams,
    SLSTMBlockParams,
    mlstm_block,
    slstm_block,
)
from jaxrnn.types import Layer, Params

# What the function of a network does not depend on, and what its arrays show.
KNOWN = {
    "": "_block_map add_post_blocks_norm add_embedding_dropout bias context_length embedding_dim "
    "mlstm_block num_blocks slstm_at slstm_block tie_weights vocab_size weight_decay_on_embedding",
    "mlstm_block": "_block_idx _num_blocks mlstm",
    "mlstm_block.mlstm": "_inner_embedding_dim _num_blocks _proj_up_dim bias context_length "
    "conv1d_kernel_size embedding_dim num_heads proj_factor qkv_proj_blocksize "
    "round_proj_up_dim_up round_proj_up_to_multiple_of",
    "slstm_block": "_block_idx _num_blocks feedforward slstm",
    "slstm_block.slstm": "_block_idx _num_blocks backend batch_size bias_init conv1d_kernel_size "
    "dtype dtype_a dtype_b dtype_g dtype_r dtype_s dtype_w embedding_dim "
    "enable_automatic_mixed_precision hidden_size input_shape internal_input_shape num_heads "
    "output_shape recurrent_weight_init",
    "slstm_block.feedforward": "_num_blocks _proj_up_dim act_fn bias embedding_dim proj_factor "
    "round_proj_up_dim_up round_proj_up_to_multiple_of",
}
NO_DROPOUT = {"dropout": (0.0,)}
FIXED = {
    "": NO_DROPOUT,
    "mlstm_block": {},
    "mlstm_block.mlstm": NO_DROPOUT,
    "slstm_block": {},
    "slstm_block.slstm": NO_DROPOUT
    | {
        "constants": ({},),
        "forward_clipval": (None,),
        "function": ("slstm",),
        "gradient_recurrent_clipval": (None,),
        "gradient_recurrent_cut": (False,),
        "group_norm_weight": (True,),
        "initial_val": (0.0,),
        "num_gates": (4,),
        "num_states": (4,),
    },
    "slstm_block.feedforward": NO_DROPOUT | {"ff_type": ("ffn_gated",)},
}


def squared_relu(x: Any) -> Any:
    """max(x, 0)²."""
    return jnp.square(jax.nn.relu(x))


ACTIVATIONS = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
    "relu^2": squared_relu,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "swish": jax.nn.silu,
}
MODEL = "xlstm_block_stack."


def has_blocks(source: Arrays) -> bool:
    """Whether these are the arrays of an `xLSTMLMModel` or an `xLSTMBlockStack`."""
    return any(f"{stem}blocks.0.xlstm_norm.weight" in source for stem in (MODEL, ""))


def read_blocks(source: Arrays, config: Mapping[str, Any]) -> Imported:
    """The language model, or the stack alone, of these arrays and `dataclasses.asdict(config)`."""
    parts = _checked_parts(config)
    has_table = "token_embedding.weight" in source
    stem = MODEL if has_table else ""
    blocks = []
    while f"{stem}blocks.{len(blocks)}.xlstm_norm.weight" in source:
        blocks.append(_read_block(source, f"{stem}blocks.{len(blocks)}.", parts))
    layers, params = stack_of(blocks)
    has_norm = f"{stem}post_blocks_norm.weight" in source
    if has_norm:
        layers = [*layers, layer_norm()]
        params = [*params, _read_norm(source, f"{stem}post_blocks_norm.weight", None)]
    check_claims(config, {"num_blocks": len(blocks), "add_post_blocks_norm": has_norm})
    if not has_table:
        source.finish()
        return Imported(serial(*layers), tuple(params))
    table = source.take("token_embedding.weight", None, None)
    check_claims(config, dict(zip(("vocab_size", "embedding_dim"), table.shape, strict=True)))
    readout = source.take("lm_head.weight", *table.shape)
    source.finish()
    if config.get("tie_weights"):
        if not np.array_equal(readout, table):
            raise ValueError("config says the readout is the table, but 'lm_head.weight' is not.")
        model = tied_embed(table.shape[1], *layers, use_bias=False)
        return Imported(model, TiedEmbedParams(table, tuple(params)))
    model = serial(embed(table.shape[1]), *layers, dense(len(table), use_bias=False))
    return Imported(model, (EmbedParams(table), *params, DenseParams(readout.T)))


def _checked_parts(config: Any) -> dict[str, Mapping[str, Any]]:
    """The options of each part of a config, which are all known."""
    check_known(config, KNOWN[""].split(), FIXED[""])
    parts = {"": config}
    for name in list(KNOWN)[1:]:
        outer, _, key = name.rpartition(".")
        part = parts[outer].get(key)
        parts[name] = {} if part is None else part
        check_known(parts[name], KNOWN[name].split(), FIXED[name])
    return parts


def _read_block(
    source: Arrays, prefix: str, parts: dict[str, Mapping[str, Any]]
) -> tuple[Layer, Params]:
    norm = _read_norm(source, f"{prefix}xlstm_norm.weight", None)
    width = len(norm.scale)
    if f"{prefix}xlstm.proj_up.weight" in source:
        mixer, params = _read_mlstm(source, f"{prefix}xlstm.", width, parts["mlstm_block.mlstm"])
    else:
        mixer, params = _read_slstm(source, f"{prefix}xlstm.", width, parts["slstm_block.slstm"])
    first = residual(serial(layer_norm(), mixer)), (norm, params)
    if f"{prefix}ffn_norm.weight" not in source:
        return first
    norm = _read_norm(source, f"{prefix}ffn_norm.weight", width)
    mlp, params = _read_mlp(source, f"{prefix}ffn.", width, parts["slstm_block.feedforward"])
    return serial(first[0], residual(serial(layer_norm(), mlp))), (first[1], (norm, params))


def _read_norm(source: Arrays, name: str, width: int | None) -> LayerNormParams:
    scale = _read_scale(source, name, width)
    return LayerNormParams(scale, np.zeros_like(scale))


def _read_scale(source: Arrays, name: str, width: int | None) -> np.ndarray:
    weight = source.take(name, width)
    return weight + np.ones((), weight.dtype)


def _read_mlstm(
    source: Arrays, prefix: str, width: int, config: Mapping[str, Any]
) -> tuple[Layer, MLSTMBlockParams]:
    def take(name, *shape):
        return source.take(f"{prefix}{name}", *shape)

    kernel = take("proj_up.weight", None, width).T
    num_units = kernel.shape[1] // 2
    q = take("q_proj.weight", None, None, None)
    num_blocks, block_width, _ = q.shape
    if num_units * 2 != kernel.shape[1] or q.shape[1:] != (num_units / num_blocks,) * 2:
        raise ValueError(
            f"the arrays of {prefix} do not fit each other: 'proj_up.weight' has "
            f"{kernel.shape[1]} rows, and 'q_proj.weight' the shape {list(q.shape)}."
        )
    k, v = (take(f"{name}_proj.weight", *q.shape) for name in "kv")
    conv = _read_conv(source, f"{prefix}conv1d.conv.", num_units)
    cell = "mlstm_cell."
    gates = [take(f"{cell}{name}gate.weight", None, 3 * num_units) for name in "if"]
    num_heads = len(gates[0])
    biases = [take(f"{cell}{name}gate.bias", num_heads) for name in "if"]
    scale = _read_scale(source, f"{prefix}{cell}outnorm.weight", num_units)
    use_bias = f"{prefix}proj_up.bias" in source
    params = MLSTMBlockParams(
        kernel=kernel,
        conv=conv,
        qkv_kernel=np.stack([q, k, v]).swapaxes(-1, -2),
        memory=MLSTMMemoryParams(np.concatenate(gates).T, np.concatenate(biases), scale),
        skip=take("learnable_skip", num_units),
        output_kernel=take("proj_down.weight", width, num_units).T,
    )
    if use_bias:
        qkv_bias = [take(f"{name}_proj.bias", num_units) for name in "qkv"]
        params = params._replace(
            bias=take("proj_up.bias", 2 * num_units),
            qkv_bias=np.concatenate(qkv_bias),
            output_bias=take("proj_down.bias", width),
        )
    conv_width = len(conv.kernel)
    found = {"num_heads": num_heads, "qkv_proj_blocksize": block_width, "bias": use_bias}
    check_claims(config, found | {"conv1d_kernel_size": conv_width})
    layer = mlstm_block(
        num_units,
        num_heads,
        block_width=block_width,
        conv_width=conv_width,
        use_bias=use_bias,
        denominator_epsilon=1e-6,
    )
    return layer, params


def _read_slstm(
    source: Arrays, prefix: str, width: int, config: Mapping[str, Any]
) -> tuple[Layer, SLSTMBlockParams]:
    # The layer calls `fgate` what its cell reads as the input gate, and the other way round.
    gates = [
        source.take(f"{prefix}{name}gate.weight", None, None, None) for name in ("f", "i", "z", "o")
    ]
    num_heads = len(gates[0])
    if any(gate.shape != (num_heads, *[width / num_heads] * 2) for gate in gates):
        raise ValueError(
            f"the gates of {prefix} must have the shape [num_heads, {width} / num_heads, "
            f"{width} / num_heads], got {[list(gate.shape) for gate in gates]}."
        )
    conv = _read_conv(source, f"{prefix}conv1d.conv.", width)
    recurrent_kernel = source.take(f"{prefix}slstm_cell._recurrent_kernel_", num_heads, None, None)
    bias = source.take(f"{prefix}slstm_cell._bias_", 4 * width)
    num_rows = recurrent_kernel.shape[1]
    backend = "cuda" if num_rows * num_heads == width else "vanilla"
    # The backends keep different layouts, of which one is that of this library.
    if backend == "cuda":
        bias = bias.reshape(num_heads, 4, -1).swapaxes(0, 1).reshape(-1)
    else:
        recurrent_kernel = recurrent_kernel.swapaxes(1, 2)
    head_width = width // num_heads
    if recurrent_kernel.shape[1:] != (head_width, 4 * head_width):
        raise ValueError(
            f"'{prefix}slstm_cell._recurrent_kernel_' must have heads of the shape "
            f"{[head_width, 4 * head_width]} (cuda) or {[4 * head_width, head_width]} (vanilla)."
        )
    params = SLSTMBlockParams(
        conv,
        SLSTMParams(np.stack(gates).swapaxes(-1, -2), recurrent_kernel, bias),
        _read_scale(source, f"{prefix}group_norm.weight", width),
    )
    conv_width = len(conv.kernel)
    found = {"num_heads": num_heads, "conv1d_kernel_size": conv_width, "backend": backend}
    check_claims(config, found)
    return slstm_block(width, num_heads, conv_width=conv_width), params


def _read_conv(source: Arrays, prefix: str, num_inputs: int) -> CausalConvParams:
    kernel = source.take(f"{prefix}weight", num_inputs, 1, None)[:, 0].T
    return CausalConvParams(kernel, source.take(f"{prefix}bias", num_inputs))


def _read_mlp(
    source: Arrays, prefix: str, width: int, config: Mapping[str, Any]
) -> tuple[Layer, GatedMLPParams]:
    activation = config.get("act_fn", "gelu")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"config has 'act_fn': {activation!r}, which has no counterpart here; it must be one "
            f"of {', '.join(ACTIVATIONS)}."
        )
    output = source.take(f"{prefix}proj_down.weight", width, None).T
    num_units = len(output)
    gate, value = np.split(source.take(f"{prefix}proj_up.weight", 2 * num_units, width), 2)
    params = GatedMLPParams(gate.T, value.T, output)
    use_bias = f"{prefix}proj_up.bias" in source
    if use_bias:
        biases = np.split(source.take(f"{prefix}proj_up.bias", 2 * num_units), 2)
        params = params._replace(
            gate_bias=biases[0],
            value_bias=biases[1],
            output_bias=source.take(f"{prefix}proj_down.bias", width),
        )
    check_claims(config, {"bias": use_bias})
    return gated_mlp(num_units, ACTIVATIONS[activation], use_bias=use_bias), params
