"""The config of a Mamba: what its arrays do not show, and claims about what they do."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrnn.engine import checks
from jaxrnn.interop._language_models import check_claims, check_known
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
# What configs call the two.
KINDS = {
    "mamba": {"layer": "Mamba1", "model_type": "mamba"},
    "mamba2": {"layer": "Mamba2", "model_type": "mamba2"},
}
KNOWN = {*OPTIONS, *SHOWN, *IGNORED, *KINDS["mamba"], "ssm_cfg"}


class Config(NamedTuple):
    """What a config says.

    Attributes:
        num_groups: groups of heads that share B and C.
        norm_before_gate: whether the norm of a Mamba-2 comes before its gate.
        dt_limit: bounds of Δ.
        epsilon: ε of the norms between the layers.
        mixer_epsilon: ε of the norm in a Mamba-2.
        claims: the options that the arrays show too, by their keys.
    """

    num_groups: int
    norm_before_gate: bool
    dt_limit: tuple[float, float]
    epsilon: float
    mixer_epsilon: float
    claims: dict[str, Any]

    def claimed(self, word: str) -> Any:
        """What the config says about it, or None if it says nothing."""
        return next((claim for key, claim in self.claims.items() if SHOWN[key] == word), None)

    def check(self, found: Mapping[str, Any]) -> None:
        """Raises a ValueError where the arrays show something else, by our words for it."""
        check_claims(
            self.claims, {key: found[word] for key, word in SHOWN.items() if word in found}
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
    given = _flat({} if config is None else config)
    check_claims(given, KINDS[kind])
    # A rank may be "auto".
    claims = {key: value for key, value in given.items() if key in SHOWN and value != "auto"}
    if kind == "mamba":
        _check_mamba(given)
    else:
        _check_mamba2(given)
        # transformers writes a rank that nothing of a Mamba-2 has.
        claims.pop("time_step_rank", None)
    options = {word: given[key] for key, word in OPTIONS.items() if key in given}
    _check_options(options)
    lower, upper = options.get("dt_limit", (0.0, math.inf))
    epsilon = float(options.get("epsilon", 1e-5))
    return Config(
        num_groups=options.get("num_groups", 1),
        norm_before_gate=options.get("norm_before_gate", False),
        dt_limit=(_number(lower), _number(upper)),
        epsilon=epsilon,
        # Only transformers has one ε for all norms.
        mixer_epsilon=epsilon if "layer_norm_epsilon" in given else 1e-5,
        claims=claims,
    )


def _flat(config: Any) -> dict[str, Any]:
    """The options with those of the mixer among them, where `mamba_ssm` has them apart."""
    check_known(config, KNOWN, FIXED)
    inner = config.get("ssm_cfg") or {}
    if not isinstance(inner, Mapping):
        raise TypeError(f"'ssm_cfg' of config must be a mapping, got {type(inner).__name__}.")
    check_known(inner, KNOWN, FIXED)
    said = {}
    for key, value in (*config.items(), *inner.items()):
        word = OPTIONS.get(key, SHOWN.get(key))
        other, known = said.setdefault(word, (key, value))
        if word is not None and known != value:
            raise ValueError(
                f"config says {other!r} is {known!r} and {key!r} is {value!r}, which mean the same."
            )
    return {**config, **inner}


def _check_mamba(config: Mapping[str, Any]) -> None:
    for key in config:
        if OPTIONS.get(key, SHOWN.get(key)) in OF_MAMBA2:
            raise ValueError(f"config has {key!r}, but by its arrays this is a Mamba, not Mamba-2.")


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


def _check_mamba2(config: Mapping[str, Any]) -> None:
    """Raises where a config of transformers does not say what its Mamba-2 computes."""
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
