"""The config of a Mamba: what its arrays do not show, and claims about what they do."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrnn.engine import checks
from jaxrnn.mixers import mamba, mamba2
from jaxrnn.types import Layer

# The keys of mamba_ssm, transformers and mambapy, by the word that they are called here.
OPTIONS = {
    "ngroups": "num_groups",
    "n_groups": "num_groups",
    "norm_before_gate": "norm_before_gate",
    "dt_limit": "dt_limit",
    "time_step_limit": "dt_limit",
    "norm_epsilon": "epsilon",
    "rms_norm_eps": "epsilon",
    "layer_norm_epsilon": "epsilon",
}
SHOWN = {
    "layer": "kind",
    "model_type": "kind",
    "d_model": "width",
    "hidden_size": "width",
    "intermediate_size": "inner width",
    "expand": "expansion",
    "expand_factor": "expansion",
    "d_state": "state_size",
    "state_size": "state_size",
    "d_conv": "conv_width",
    "conv_kernel": "conv_width",
    "dt_rank": "dt_rank",
    "time_step_rank": "dt_rank",
    "headdim": "head_width",
    "head_dim": "head_width",
    "d_head": "head_width",
    "num_heads": "num_heads",
    "bias": "use_bias",
    "use_bias": "use_bias",
    "conv_bias": "use_conv_bias",
    "use_conv_bias": "use_conv_bias",
    "D_has_hdim": "skip_per_feature",
    "rmsnorm": "use_norm",
    "n_layer": "num_layers",
    "n_layers": "num_layers",
    "num_hidden_layers": "num_layers",
    "vocab_size": "num_tokens",
    "tie_embeddings": "tied",
    "tie_word_embeddings": "tied",
}
# What has to have one of these values, because there is no counterpart of the others.
FIXED = {
    "activation": ("silu", "swish"),
    "attn_layer_idx": ([], ()),
    "d_intermediate": (0,),
    "d_ssm": (None,),
    "hidden_act": ("silu", "swish"),
    "inner_layernorms": (False,),
    "learnable_init_states": (False,),
    "mup": (False,),
    "process_group": (None,),
    "rms_norm": (True,),
}
# Initial values, kernels, dtypes and the bookkeeping of packages.
IGNORED = set(
    "A_init_range architectures attn_cfg base_std bos_token_id chunk_size conv_init device dtype "
    "dt_init dt_init_floor dt_max dt_min dt_scale eos_token_id fused_add_norm initializer_range "
    "layer_idx mup_base_width pad_token_id pad_vocab_size_multiple pscan rescale_prenorm_residual "
    "residual_in_fp32 sequence_parallel time_step_floor time_step_init_scheme time_step_max "
    "time_step_min time_step_scale torch_dtype transformers_version use_associative_scan use_cache "
    "use_cuda use_fast_path use_mambapy use_mem_eff_path _name_or_path".split()
)
OF_MAMBA2 = {"num_groups", "norm_before_gate", "dt_limit", "head_width", "num_heads", "use_norm"}
KINDS = {"Mamba1": "mamba", "Mamba2": "mamba2"}


class Config(NamedTuple):
    """What a config says.

    Attributes:
        num_groups: groups of heads that share B and C.
        norm_before_gate: whether the norm of a Mamba-2 comes before its gate.
        dt_limit: bounds of Δ.
        epsilon: ε of the norms between the layers.
        mixer_epsilon: ε of the norm in a Mamba-2.
        claims: key and value of each option that the arrays show too, by our word for it.
    """

    num_groups: int
    norm_before_gate: bool
    dt_limit: tuple[float, float]
    epsilon: float
    mixer_epsilon: float
    claims: dict[str, tuple[str, Any]]

    def claimed(self, word: str) -> Any:
        """What the config says about it, or None if it says nothing."""
        return self.claims.get(word, (None, None))[1]

    def check(self, found: Mapping[str, Any]) -> None:
        """Raises a ValueError where the arrays show something else."""
        for word, value in found.items():
            key, claim = self.claims.get(word, (None, None))
            if claim in (None, "auto"):
                continue
            # Tables of tokens are padded to a multiple of some number of rows.
            agrees = claim <= value if word == "num_tokens" else claim == value
            if not agrees:
                raise ValueError(
                    f"config says {key!r} is {claim!r}, but by the arrays it is {value!r}."
                )


def read_config(config: Mapping[str, Any] | None, kind: str) -> Config:
    """Reads the config of a "mamba" or a "mamba2".

    Raises:
        TypeError: The config is not a mapping.
        ValueError: A key is unknown or has a value that has no counterpart, or there is no config
            for a Mamba-2.
    """
    if config is None and kind == "mamba2":
        raise ValueError(
            "config must be given for a Mamba-2, whose arrays do not show its groups, where its "
            "norm is and how Δ is limited: the config.json of the checkpoint, or the arguments of "
            "Mamba2 of mamba_ssm; {} is Mamba2 with its defaults."
        )
    if not isinstance(config, Mapping | None):
        raise TypeError(f"config must be a mapping of options, got {type(config).__name__}.")
    flat = dict(config or {})
    inner = flat.pop("ssm_cfg", None) or {}
    if not isinstance(inner, Mapping):
        raise TypeError(f"'ssm_cfg' of config must be a mapping, got {type(inner).__name__}.")
    claims, options, said = {}, {}, {}
    for key, value in (*flat.items(), *inner.items()):
        word = OPTIONS.get(key) or SHOWN.get(key)
        if word is not None and word != "kind":
            other, known = said.setdefault(word, (key, value))
            if known != value:
                raise ValueError(
                    f"config says {other!r} is {known!r} and {key!r} is {value!r}, which mean the "
                    "same."
                )
        if kind == "mamba" and word in OF_MAMBA2:
            raise ValueError(f"config has {key!r}, but by its arrays this is a Mamba, not Mamba-2.")
        if key in OPTIONS:
            options[word] = value
        elif key in SHOWN:
            claims[word] = key, KINDS.get(value, value) if word == "kind" else value
        elif key in FIXED:
            _check_fixed(key, value)
        elif key not in IGNORED:
            raise ValueError(
                f"config has the key {key!r}, which from_mamba does not know; leave it out if the "
                "function of the network does not depend on it."
            )
    if kind == "mamba2":
        # transformers writes a rank that nothing of a Mamba-2 has.
        claims.pop("dt_rank", None)
        _check_transformers(flat)
    _check_options(options)
    lower, upper = options.get("dt_limit", (0.0, math.inf))
    epsilon = float(options.get("epsilon", 1e-5))
    return Config(
        num_groups=options.get("num_groups", 1),
        norm_before_gate=options.get("norm_before_gate", False),
        dt_limit=(_number(lower), _number(upper)),
        epsilon=epsilon,
        # Only transformers has one ε for all norms.
        mixer_epsilon=epsilon if "layer_norm_epsilon" in {*flat, *inner} else 1e-5,
        claims=claims,
    )


def _check_fixed(key: str, value: Any) -> None:
    if value not in FIXED[key]:
        raise ValueError(
            f"config has {key!r}: {value!r}, which has no counterpart here; it must be "
            f"{FIXED[key][0]!r}."
        )


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises unless the values are of the kind that they must be."""
    checks.positive(options.get("num_groups", 1), "the number of groups in config")
    if not isinstance(options.get("norm_before_gate", False), bool):
        raise TypeError(
            "'norm_before_gate' of config must be True or False, got "
            f"{options['norm_before_gate']!r}."
        )
    limits = options.get("dt_limit", (0.0, math.inf))
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        raise ValueError(f"the limits of Δ in config must be two numbers, got {limits!r}.")
    if not isinstance(options.get("epsilon", 1e-5), int | float):
        raise TypeError(f"the ε of config must be a number, got {options['epsilon']!r}.")


def _check_transformers(config: Mapping[str, Any]) -> None:
    if "hidden_size" not in config:
        return
    if "n_groups" not in config:
        raise ValueError("config of transformers must have the key 'n_groups' for a Mamba-2.")
    if config.get("norm_before_gate"):
        raise ValueError(
            "config has 'norm_before_gate': True, which transformers ignores and mamba_ssm obeys; "
            "leave it out for the function of transformers, or give the config of mamba_ssm."
        )


def _number(bound: Any) -> float:
    """A bound, which transformers writes as a mapping where JSON has no word for it."""
    return float(bound["__float__"] if isinstance(bound, Mapping) else bound)


def make_mixer(kind: str, shapes: Mapping[str, Any], config: Config) -> Layer:
    """The mixer with these facts of its arrays and this config."""
    shared = ("state_size", "expansion", "conv_width", "use_bias", "use_conv_bias")
    options = {word: shapes[word] for word in shared}
    if kind == "mamba":
        return mamba(dt_rank=shapes["dt_rank"], **options)
    norm = "before_gate" if config.norm_before_gate else "after_gate"
    return mamba2(
        head_width=shapes["head_width"],
        num_groups=config.num_groups,
        norm=norm if shapes["use_norm"] else None,
        norm_epsilon=config.mixer_epsilon,
        skip_per_feature=shapes["skip_per_feature"],
        dt_limit=config.dt_limit,
        **options,
    )
