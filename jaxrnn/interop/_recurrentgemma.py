"""RecurrentGemma and other Griffin language models in."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import RGLRUParams
from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._language_models import (
    check_claims,
    check_known,
    flat_arrays,
    soft_cap,
    stack_of,
)
from jaxrnn.layers import (
    GatedMLPParams,
    RMSNormParams,
    TiedEmbedParams,
    gated_mlp,
    lift,
    residual,
    rms_norm,
    serial,
    tied_embed,
)
from jaxrnn.mixers import (
    CausalConvParams,
    GriffinBlockParams,
    SelfAttentionParams,
    griffin_block,
    self_attention,
)
from jaxrnn.types import Layer, Params

# The names that transformers has for those of the package.
OF_TRANSFORMERS = {
    "embedder.input_embedding": "model.embed_tokens.weight",
    "final_norm.scale": "model.final_norm.weight",
    "blocks.": "model.layers.",
    "temporal_pre_norm.scale": "temporal_pre_norm.weight",
    "channel_pre_norm.scale": "channel_pre_norm.weight",
    "recurrent_block.": "temporal_block.",
    "attention_block.": "temporal_block.",
    "rg_lru.a_param": "rg_lru.recurrent_param",
    "rg_lru.a_gate.w": "rg_lru.recurrent_gate_weight",
    "rg_lru.a_gate.b": "rg_lru.recurrent_gate_bias",
    "rg_lru.input_gate.w": "rg_lru.input_gate_weight",
    "rg_lru.input_gate.b": "rg_lru.input_gate_bias",
    "proj_q": "q_proj",
    "proj_k": "k_proj",
    "proj_v": "v_proj",
    "proj_final": "o_proj",
    "ffw_down": "down_proj",
}
SHOWN = set(
    "block_types conv1d_width head_dim hidden_size intermediate_size lru_width mlp_expanded_width "
    "num_hidden_layers num_key_value_heads vocab_size width".split()
)
READ = set(
    "attention_window_size embeddings_scale_by_sqrt_dim logits_soft_cap num_attention_heads "
    "num_heads rms_norm_eps rope_parameters rope_theta".split()
)
FIXED = {
    "attention_bias": (False, None),
    "hidden_activation": ("gelu_pytorch_tanh",),
    "model_type": ("recurrent_gemma",),
    "partial_rotary_factor": (0.5,),
    "tie_word_embeddings": (True,),
}
IGNORED = set(
    "architectures attention_dropout bos_token_id dtype eos_token_id final_w_init_variance_scale "
    "initializer_range pad_token_id scan_type torch_dtype transformers_version use_cache "
    "w_init_variance_scale _name_or_path _block_types".split()
)


class Source(NamedTuple):
    """The arrays, and which names and layouts they have."""

    arrays: Arrays
    of_transformers: bool
    of_torch: bool

    def name(self, name: str) -> str:
        """The name in the source of an array that has this name in the package's flax module."""
        if self.of_transformers:
            for old, new in OF_TRANSFORMERS.items():
                name = name.replace(old, new)
        return name

    def take(self, name: str, *shape: int | None) -> np.ndarray:
        """The array of this name."""
        return self.arrays.take(self.name(name), *shape)

    def kernel(self, name: str, num_inputs: int | None, num_outputs: int | None) -> np.ndarray:
        """The kernel `[num_inputs, num_outputs]` of a dense layer."""
        if self.of_torch:
            return self.take(f"{name}.weight", num_outputs, num_inputs).T
        return self.take(f"{name}.kernel", num_inputs, num_outputs)


class Shared(NamedTuple):
    """The options of all blocks, and the width of the model."""

    width: int
    epsilon: float
    num_heads: int | None
    window: int | None
    rotary_base: float


def from_recurrentgemma(
    arrays: Mapping[str, Any], config: Mapping[str, Any], *, prefix: str = ""
) -> Imported:
    """Reads the arrays of a RecurrentGemma, or of another Griffin language model.

        jr.unroll(*from_recurrentgemma(arrays, config)[:2], tokens).outputs = logits

    The names are those of `RecurrentGemmaForCausalLM` of `transformers` or of `Griffin` of
    `recurrentgemma`, in its flax form (nested or joined with dots) or its torch form. The model is

        serial(tied_embed(D, lift(√D x), block, …, rms_norm(scale_offset=1.0), use_bias=False),
               lift(soft_cap))
        block = serial(residual(serial(rms_norm(scale_offset=1.0), mixer)),
                       residual(serial(rms_norm(scale_offset=1.0), gated_mlp(M, use_bias=True))))

    where mixer is `griffin_block` or `self_attention`, and blocks that come again in the same order
    are a `repeat`. What the shapes show is read from them and compared with the config.

    Both sources round √D to bfloat16, and so does this. They differ in the window of the attention:
    with `attention_window_size` w a step of `transformers` reads w steps, itself included, and one
    of `recurrentgemma` reads w + 1.

    Args:
        arrays: names to arrays or tensors.
        config: the options: the `config.json`, or `GriffinConfig(...)._asdict()`. The soft cap, and
            for attention the number of heads and the window, must be there, because the arrays do
            not show them.
        prefix: what the names begin with, such as "params." in a checkpoint.

    Returns:
        `Imported(model, params)`.

    Raises:
        TypeError: `arrays` or `config` is not a mapping.
        ValueError: An array is missing, left over or of another shape; an option is missing, is
            unknown, has no counterpart here (a complex RG-LRU, a readout of its own) or is not
            what the shapes show.

    Example:
        >>> import jaxrnn as jr
        >>> jr.interop.from_recurrentgemma({}, {"logits_soft_cap": 30.0})
        Traceback (most recent call last):
            ...
        ValueError: the checkpoint has no array 'embedder.input_embedding'; its arrays are: none
    """
    check_known(config, SHOWN | READ | IGNORED, FIXED)
    taken = flat_arrays(arrays, prefix)
    of_transformers = OF_TRANSFORMERS["embedder.input_embedding"] in taken
    of_torch = of_transformers or "blocks.0.mlp_block.ffw_down.weight" in taken
    source = Source(taken, of_transformers, of_torch)
    table = source.take("embedder.input_embedding", None, None)
    shared = _shared_options(config, table.shape[1], of_transformers)
    blocks, kinds = [], []
    while not blocks or source.name(f"blocks.{len(blocks)}.temporal_pre_norm.scale") in taken:
        model, params, kind, found = _read_block(source, f"blocks.{len(blocks)}.", shared)
        check_claims(config, found)
        blocks.append((model, params))
        kinds.append(kind)
    _check_whole(config, table, kinds)
    _check_readout(taken, table)
    norm = RMSNormParams(source.take("final_norm.scale", shared.width))
    taken.finish()
    layers, params = stack_of(blocks)
    if config.get("embeddings_scale_by_sqrt_dim", True):
        factor = float(jnp.asarray(shared.width**0.5, jnp.bfloat16))
        layers, params = [lift(partial(jnp.multiply, factor)), *layers], [(), *params]
    layers = *layers, rms_norm(shared.epsilon, scale_offset=1.0)
    model = tied_embed(shared.width, *layers, use_bias=False)
    params = TiedEmbedParams(table, (*params, norm))
    if not config["logits_soft_cap"]:
        return Imported(model, params)
    cap = partial(soft_cap, cap=float(config["logits_soft_cap"]))
    return Imported(serial(model, lift(cap)), (params, ()))


def _shared_options(config: Mapping[str, Any], width: int, of_transformers: bool) -> Shared:
    if "logits_soft_cap" not in config:
        raise ValueError("config must have the key 'logits_soft_cap', 0.0 for no cap.")
    rope = config.get("rope_parameters") or {}
    check_known(rope, {"rope_theta"}, {"rope_type": ("default",), "partial_rotary_factor": (0.5,)})
    window = config.get("attention_window_size")
    return Shared(
        width=width,
        epsilon=float(config.get("rms_norm_eps", 1e-6)),
        num_heads=config.get("num_attention_heads", config.get("num_heads")),
        window=window if window is None or of_transformers else window + 1,
        rotary_base=float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
    )


def _check_whole(config: Mapping[str, Any], table: np.ndarray, kinds: list[str]) -> None:
    num_tokens, width = table.shape
    found = {"vocab_size": num_tokens, "hidden_size": width, "width": width}
    check_claims(config, found | {"num_hidden_layers": len(kinds)})
    claim = config.get("block_types")
    if claim is None:
        return
    # An enum in the package; transformers writes the kinds of one round.
    claim = [getattr(kind, "name", kind).lower() for kind in claim]
    if "num_hidden_layers" in config:
        claim = (claim * len(kinds))[: len(kinds)]
    if claim != kinds:
        raise ValueError(f"config says 'block_types' is {claim}, but by the arrays it is {kinds}.")


def _check_readout(arrays: Arrays, table: np.ndarray) -> None:
    if "lm_head.weight" in arrays and not np.array_equal(
        arrays.take("lm_head.weight", *table.shape), table
    ):
        raise ValueError("'lm_head.weight' must be the table of the tokens, got another array.")


def _read_block(
    source: Source, prefix: str, shared: Shared
) -> tuple[Layer, Params, str, dict[str, Any]]:
    """The block, its parameters, the kind of its mixer, and what the arrays show."""

    def norm(name):
        return RMSNormParams(source.take(f"{prefix}{name}.scale", shared.width))

    scales = norm("temporal_pre_norm"), norm("channel_pre_norm")
    is_recurrent = source.name(f"{prefix}recurrent_block.rg_lru.a_param") in source.arrays
    kind = "recurrent" if is_recurrent else "attention"
    read = _read_recurrent if is_recurrent else _read_attention
    mixer, mixer_params, found = read(source, f"{prefix}{kind}_block.", shared)
    mlp, mlp_params = _read_mlp(source, f"{prefix}mlp_block.", shared.width)
    num_units = len(mlp_params.gate_bias)
    found |= {"mlp_expanded_width": num_units, "intermediate_size": 2 * num_units}
    layer_norm = rms_norm(shared.epsilon, scale_offset=1.0)
    model = serial(residual(serial(layer_norm, mixer)), residual(serial(layer_norm, mlp)))
    return model, ((scales[0], mixer_params), (scales[1], mlp_params)), kind, found


def _read_recurrent(
    source: Source, prefix: str, shared: Shared
) -> tuple[Layer, GriffinBlockParams, dict[str, Any]]:
    def take(name, *shape):
        return source.take(prefix + name, *shape)

    width = shared.width
    u_bias = take("linear_x.bias", None)
    num_units = len(u_bias)
    kernels = [source.kernel(f"{prefix}linear_{part}", width, num_units) for part in "xy"]
    if source.of_transformers:
        conv_kernel = take("conv_1d.weight", num_units, 1, None)[:, 0].T
        conv_bias = take("conv_1d.bias", num_units)
    else:
        conv_kernel, conv_bias = take("conv_1d.w", None, num_units), take("conv_1d.b", num_units)
    gates = [(take(f"rg_lru.{gate}_gate.w", None, None, None), gate) for gate in ("a", "input")]
    num_blocks, block_width, _ = gates[0][0].shape
    biases = [take(f"rg_lru.{gate}_gate.b", num_blocks, block_width).ravel() for _, gate in gates]
    params = GriffinBlockParams(
        kernel=np.concatenate(kernels, axis=1),
        bias=np.concatenate([u_bias, take("linear_y.bias", num_units)]),
        conv=CausalConvParams(conv_kernel, conv_bias),
        lru=RGLRUParams(
            eigenvalue_logit=-take("rg_lru.a_param", num_units),
            gate_kernel=np.concatenate([kernel for kernel, _ in gates], axis=2),
            gate_bias=np.concatenate(biases),
        ),
        output_kernel=source.kernel(f"{prefix}linear_out", num_units, width),
        output_bias=take("linear_out.bias", width),
    )
    if any(kernel.shape != (num_blocks, block_width, block_width) for kernel, _ in gates) or (
        num_blocks * block_width != num_units
    ):
        raise ValueError(
            f"the gates of {prefix}rg_lru must have shapes [heads, K, K] with heads K = "
            f"{num_units}, got {[kernel.shape for kernel, _ in gates]}."
        )
    if shared.num_heads is not None and shared.num_heads != num_blocks:
        raise ValueError(
            f"config says there are {shared.num_heads} heads, but by the gates of {prefix}rg_lru "
            f"there are {num_blocks}."
        )
    conv_width = len(conv_kernel)
    model = griffin_block(num_units, num_blocks, conv_width=conv_width, normalized_start=False)
    return model, params, {"lru_width": num_units, "conv1d_width": conv_width}


def _read_attention(
    source: Source, prefix: str, shared: Shared
) -> tuple[Layer, SelfAttentionParams, dict[str, Any]]:
    if shared.num_heads is None or shared.window is None:
        raise ValueError(
            "config must have the number of heads ('num_attention_heads', or 'num_heads' of the "
            f"package) and 'attention_window_size' for {prefix}, whose arrays do not show them."
        )
    width, num_heads = shared.width, shared.num_heads
    head_width, rest = divmod(width, num_heads)
    if rest or head_width % 4:
        raise ValueError(
            f"the heads of {prefix} must have a width that is a multiple of 4, because a half of "
            f"their features rotates in pairs, got the width {width} for {num_heads} heads."
        )
    q = source.kernel(f"{prefix}proj_q", width, width)
    k = source.kernel(f"{prefix}proj_k", width, None)
    num_kv_heads, rest = divmod(k.shape[1], head_width)
    if rest or not num_kv_heads or num_heads % num_kv_heads:
        raise ValueError(
            f"{prefix}proj_k must have {num_heads} heads of width {head_width} or a divisor of "
            f"that number, got the width {k.shape[1]}."
        )
    v = source.kernel(f"{prefix}proj_v", width, k.shape[1])
    rotary_width = head_width // 2
    # Features i and i + rotary_width / 2 rotate there, 2i and 2i + 1 here.
    order = np.arange(head_width)
    order[:rotary_width] = order[:rotary_width].reshape(2, -1).T.ravel()
    q, k = (part.reshape(width, -1, head_width)[..., order].reshape(width, -1) for part in (q, k))
    params = SelfAttentionParams(
        kernel=np.concatenate([q, k, v], axis=1),
        output_kernel=source.kernel(f"{prefix}proj_final", width, width),
        output_bias=source.take(f"{prefix}proj_final.bias", width),
    )
    model = self_attention(
        num_heads,
        window=shared.window,
        num_kv_heads=num_kv_heads,
        rotary_base=shared.rotary_base,
        rotary_width=rotary_width,
        use_output_bias=True,
    )
    return model, params, {"num_key_value_heads": num_kv_heads, "head_dim": head_width}


def _read_mlp(source: Source, prefix: str, width: int) -> tuple[Layer, GatedMLPParams]:
    if source.of_transformers:
        biases = [source.take(f"{prefix}{part}_proj.bias", None) for part in ("gate", "up")]
        kernels = [
            source.kernel(f"{prefix}{part}_proj", width, len(bias))
            for part, bias in zip(("gate", "up"), biases, strict=True)
        ]
    else:
        kernels = source.take(f"{prefix}ffw_up.w", 2, width, None)
        biases = source.take(f"{prefix}ffw_up.b", 2, 1, 1, kernels.shape[2])[:, 0, 0]
    num_units = len(biases[0])
    params = GatedMLPParams(
        kernels[0],
        kernels[1],
        source.kernel(f"{prefix}ffw_down", num_units, width),
        biases[0],
        biases[1],
        source.take(f"{prefix}ffw_down.bias", width),
    )
    return gated_mlp(num_units, use_bias=True), params
