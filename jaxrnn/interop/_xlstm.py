"""xLSTM in: language models of the form of xLSTM 7B, and those of the paper's blocks."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._language_models import (
    check_claims,
    check_known,
    flat_arrays,
    soft_cap,
    stack_of,
)
from jaxrnn.interop._xlstm_blocks import has_blocks, read_blocks
from jaxrnn.layers import (
    DenseParams,
    EmbedParams,
    GatedMLPParams,
    RMSNormParams,
    dense,
    embed,
    gated_mlp,
    lift,
    residual,
    rms_norm,
    serial,
)
from jaxrnn.mixers import MLSTMParams, mlstm
from jaxrnn.types import Layer, Params

KNOWN = set(
    "architectures autocast_kernel_dtype bos_token_id chunk_size chunkwise_kernel dtype "
    "embedding_dim eos_token_id eps ffn_proj_factor ffn_round_up_to_multiple_of "
    "force_bos_token_insert gate_soft_cap hidden_size inference_state_dtype "
    "max_inference_chunksize mode norm_eps norm_reduction_force_float32 num_blocks num_heads "
    "num_hidden_layers output_logit_soft_cap pad_token_id qk_dim_factor return_last_states "
    "sequence_kernel step_kernel torch_dtype transformers_version use_cache v_dim_factor "
    "vocab_size weight_mode _name_or_path".split()
)
FIXED = {
    "add_out_norm": (True,),
    "model_type": ("xlstm",),
    "tie_word_embeddings": (False,),
    "use_bias": (False,),
}
TABLES = "backbone.embeddings.weight", "embedding.weight"


class Options(NamedTuple):
    """What the arrays do not show."""

    epsilon: float
    denominator_epsilon: float
    gate_soft_cap: float


def from_xlstm(
    arrays: Mapping[str, Any], config: Mapping[str, Any], *, prefix: str = ""
) -> Imported:
    """Reads the arrays of an xLSTM: a language model, or a stack of the paper's blocks.

        jr.unroll(*from_xlstm(model.state_dict(), config)[:2], tokens).outputs = logits

    Arrays of `xLSTMLMModel` of `xlstm` become

        serial(embed(D), block, …, layer_norm(), dense(V, use_bias=False))
        block = residual(serial(layer_norm(), mlstm_block(...)))
             or serial(residual(serial(layer_norm(), slstm_block(...))),
                       residual(serial(layer_norm(), gated_mlp(M))))

    or `tied_embed` with `tie_weights`; those of `xLSTMBlockStack` become what is between table and
    readout. Arrays of `xLSTMForCausalLM` of `transformers` and of `xLSTMLarge` of `xlstm`, which
    have the form of xLSTM 7B, become

        serial(embed(D), repeat(serial(block), n), rms_norm(), dense(V, use_bias=False),
               lift(soft_cap))
        block = serial(residual(serial(rms_norm(), mlstm(...), dense(D, use_bias=False))),
                       residual(serial(rms_norm(), gated_mlp(M, silu))))

    with an `mlstm` that has a `value_width`, a `gate_soft_cap`, a norm and an ε in its denominator.
    Its biases of k, v, q and o, which the source does not have, are zero. What the shapes show is
    read from them and compared with the config.

    Args:
        arrays: a `state_dict`, or what a safetensors file holds: names to tensors or arrays.
        config: the options: the `config.json`, or `dataclasses.asdict` of the package's config; {}
            has the defaults, with which xLSTM 7B was published.
        prefix: what the names begin with.

    Returns:
        `Imported(model, params)`.

    Raises:
        TypeError: `arrays` or `config` is not a mapping.
        ValueError: An array is missing, left over or of another shape; an option is unknown, has
            no counterpart here (dropout; biases and a tied readout in the form of xLSTM 7B) or is
            not what the shapes show.

    Example:
        >>> import jaxrnn as jr
        >>> jr.interop.from_xlstm({}, {"rope": True})
        Traceback (most recent call last):
            ...
        ValueError: config has the unknown key 'rope'; leave it out if ...
    """
    source = flat_arrays(arrays, prefix)
    if has_blocks(source):
        return read_blocks(source, config)
    check_known(config, KNOWN, FIXED)
    table = source.take(TABLES[TABLES[1] in source], None, None)
    num_tokens, width = table.shape
    options = Options(
        epsilon=float(config.get("norm_eps", 1e-6)),
        denominator_epsilon=float(config.get("eps", 1e-6)),
        gate_soft_cap=float(config.get("gate_soft_cap", 15.0)),
    )
    blocks = []
    while not blocks or f"backbone.blocks.{len(blocks)}.norm_mlstm.weight" in source:
        blocks.append(_read_block(source, f"backbone.blocks.{len(blocks)}.", width, options))
    _check_shapes(config, blocks, num_tokens, width)
    layers, params = stack_of(blocks)
    norm = RMSNormParams(source.take("backbone.out_norm.weight", width))
    readout = DenseParams(source.take("lm_head.weight", num_tokens, width).T)
    source.finish()
    cap = partial(soft_cap, cap=float(config.get("output_logit_soft_cap", 30.0)))
    last = rms_norm(options.epsilon), dense(num_tokens, use_bias=False), lift(cap)
    return Imported(
        serial(embed(width), *layers, *last), (EmbedParams(table), *params, norm, readout, ())
    )


def _check_shapes(
    config: Mapping[str, Any], blocks: list[tuple[Layer, Params]], num_tokens: int, width: int
) -> None:
    found = {
        "vocab_size": num_tokens,
        "hidden_size": width,
        "embedding_dim": width,
        "num_blocks": len(blocks),
        "num_hidden_layers": len(blocks),
    }
    for _, params in blocks:
        check_claims(config, found | {"num_heads": params[0][1].gate_bias.size // 2})


def _read_block(source: Arrays, prefix: str, width: int, options: Options) -> tuple[Layer, Params]:
    def norm(name):
        return RMSNormParams(source.take(f"{prefix}{name}.weight", width))

    scales = norm("norm_mlstm"), norm("norm_ffn")
    mixer, mixer_params, output = _read_mlstm(source, f"{prefix}mlstm_layer.", width, options)
    mlp = _read_mlp(source, f"{prefix}ffn.", width)
    before = rms_norm(options.epsilon)
    model = serial(
        residual(serial(before, mixer, dense(width, use_bias=False))),
        residual(serial(before, gated_mlp(len(mlp.output_kernel), jax.nn.silu))),
    )
    return model, ((scales[0], mixer_params, output), (scales[1], mlp))


def _read_mlstm(
    source: Arrays, prefix: str, width: int, options: Options
) -> tuple[Layer, MLSTMParams, DenseParams]:
    def take(name, *shape):
        return source.take(f"{prefix}{name}", *shape)

    output = take("out_proj.weight", width, None).T
    num_values = len(output)
    if f"{prefix}qkv_opreact.weight" in source:
        fused = take("qkv_opreact.weight", None, width)
        num_keys = (len(fused) - 2 * num_values) // 2
        ends = num_keys, 2 * num_keys, 2 * num_keys + num_values
        q, k, v, o = np.split(fused, ends)
        gates, biases = take("ifgate_preact.weight", None, width), take("ifgate_preact.bias", None)
    else:
        q = take("q.weight", None, width)
        k = take("k.weight", len(q), width)
        v, o = (take(f"{name}.weight", num_values, width) for name in ("v", "ogate_preact"))
        names = "igate_preact", "fgate_preact"
        gates = np.concatenate([take(f"{name}.weight", None, width) for name in names])
        biases = np.concatenate([take(f"{name}.bias", None) for name in names])
    num_heads = len(biases) // 2
    if (
        len(biases) != len(gates)
        or not num_heads
        or any(rows % num_heads or not rows for rows in (len(q), num_values))
        or len(o) != num_values
    ):
        raise ValueError(
            f"the arrays of {prefix} do not fit each other: its gates have {len(gates)} rows and "
            f"{len(biases)} biases, q {len(q)} rows and o {len(o)}, and v has {num_values}."
        )
    zeros = np.zeros(len(k) + num_values, k.dtype)
    params = MLSTMParams(
        write_kernel=np.concatenate([k, v]).T,
        write_bias=zeros,
        read_kernel=np.concatenate([q, o]).T,
        read_bias=zeros.copy(),
        gate_kernel=gates.T,
        gate_bias=biases,
        norm_scale=take("multihead_norm.weight", num_values),
    )
    model = mlstm(
        num_heads,
        len(q) // num_heads,
        value_width=num_values // num_heads,
        gate_soft_cap=options.gate_soft_cap,
        norm_epsilon=options.epsilon,
        denominator_epsilon=options.denominator_epsilon,
    )
    return model, params, DenseParams(output)


def _read_mlp(source: Arrays, prefix: str, width: int) -> GatedMLPParams:
    output = source.take(f"{prefix}proj_down.weight", width, None).T
    if f"{prefix}proj_up_gate_z.weight" in source:
        fused = source.take(f"{prefix}proj_up_gate_z.weight", 2 * len(output), width)
        gate, value = np.split(fused, 2)
    else:
        gate, value = (
            source.take(f"{prefix}{name}.weight", len(output), width)
            for name in ("proj_up_gate", "proj_up")
        )
    return GatedMLPParams(gate.T, value.T, output)
