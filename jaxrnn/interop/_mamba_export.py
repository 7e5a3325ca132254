"""Mamba and Mamba-2: the arrays of a block or of a language model out."""

import jax
import numpy as np

from jaxrnn.engine.parameters import check_params
from jaxrnn.interop._models import made_by
from jaxrnn.layers import TiedEmbedParams
from jaxrnn.mixers import Mamba2Params, MambaParams
from jaxrnn.types import Model, Params

MIXERS = ("mamba", "mamba2")
LANGUAGE_MODELS = (
    "tied_embed(D, repeat(residual(serial(rms_norm(), mixer)), n), rms_norm(), use_bias=False) or "
    "serial(embed(D), repeat(…), rms_norm(), dense(V, use_bias=False))"
)


def to_mamba(model: Model, params: Params) -> dict[str, np.ndarray]:
    """Writes a Mamba or a Mamba-2 as the arrays that `mamba_ssm` has.

        block.load_state_dict({k: torch.tensor(v) for k, v in to_mamba(model, params).items()})

    Args:
        model: `mamba` or `mamba2`, or a language model of the form that `from_mamba` returns.
        params: its parameters.

    Returns:
        The arrays by their names. The options that arrays do not show are those of the model; a
        tied readout comes twice, as in a `state_dict`.

    Raises:
        TypeError: The parameters are of another model.
        ValueError: The model is none of these, or has an option without a counterpart:
            `discretization="zoh"` or a `step_rescale`; or the parameters have another shape.

    Example:
        >>> import jax, jaxrnn as jr
        >>> layer = jr.mamba(state_size=8)
        >>> arrays = jr.interop.to_mamba(layer, layer.init(jax.random.key(0), 6))
        >>> arrays["in_proj.weight"].shape, arrays["A_log"].shape
        ((24, 6), (12, 8))
    """
    is_mixer = made_by(model).factory in MIXERS
    mixer = model if is_mixer else mixer_in(model)
    options = made_by(mixer).options
    if options.get("discretization", "euler") != "euler" or options["step_rescale"] != 1:
        raise ValueError(
            "model must have discretization='euler' and step_rescale=1.0, which Mamba has, got "
            f"{model}."
        )
    # The first array of a mixer is its kernel [D, ...], that of a language model its table [V, D].
    first = next(iter(jax.tree.leaves(params)), ())
    check_params(model, params, next(iter(np.shape(first)), None))
    params = jax.tree.map(np.asarray, params)
    return _of_mixer(params) if is_mixer else _of_language_model(params)


def _of_language_model(params: Params) -> dict[str, np.ndarray]:
    if isinstance(params, TiedEmbedParams):
        table, (blocks, last), _ = params
        readout = table
    else:
        (table,), blocks, last, (kernel, _) = params
        readout = kernel.T
    scales, mixers = blocks
    arrays = {"backbone.embedding.weight": table}
    for index, scale in enumerate(scales.scale):
        prefix = f"backbone.layers.{index}."
        own = _of_mixer(jax.tree.map(lambda leaf, i=index: leaf[i], mixers))
        arrays[f"{prefix}norm.weight"] = scale
        arrays |= {f"{prefix}mixer.{name}": array for name, array in own.items()}
    return arrays | {"backbone.norm_f.weight": last.scale, "lm_head.weight": readout}


def mixer_in(model: Model) -> Model:
    """The mixer of a language model, all of whose other options are checked."""
    layers = _layers(model, ("tied_embed", "serial"))
    if layers and made_by(model).factory == "serial":
        first, *layers, last = layers
        _check(model, made_by(first).factory == "embed")
        readout = made_by(last)
        _check(model, readout.factory == "dense" and readout.options["activation"] is None)
        _check(model, not readout.options["use_bias"])
    else:
        _check(model, not made_by(model).options.get("use_bias"))
    _check(model, len(layers) == 2)
    (block,) = _layers(layers[0], ("repeat",)) or [None]
    (inner,) = _layers(block, ("residual",)) or [None]
    parts = _layers(inner, ("serial",))
    _check(model, len(parts) == 2)
    norms = made_by(parts[0]), made_by(layers[1])
    _check(model, all(norm.factory == "rms_norm" for norm in norms) and norms[0] == norms[1])
    _check(model, norms[0].options["scale_offset"] == 0)
    _check(model, made_by(parts[1]).factory in MIXERS)
    return parts[1]


def _layers(model: Model | None, factories: tuple[str, ...]) -> list[Model]:
    """What a model made by one of these factories is made of; nothing for others."""
    if model is None or made_by(model).factory not in factories:
        return []
    options = made_by(model).options
    return list(options.get("layers", [options.get("layer")]))


def _check(model: Model, fits: bool) -> None:
    if not fits:
        raise ValueError(f"model must be mamba(), mamba2(), {LANGUAGE_MODELS}, got {model}.")


def _of_mixer(params: MambaParams | Mamba2Params) -> dict[str, np.ndarray]:
    conv, ssm = params.conv, params.ssm
    arrays = {
        "in_proj.weight": params.kernel.T,
        "in_proj.bias": params.bias,
        "conv1d.weight": conv.kernel.T[:, None],
        "conv1d.bias": conv.bias,
        "A_log": ssm.a_log,
        "D": ssm.skip,
        "out_proj.weight": params.output_kernel.T,
        "out_proj.bias": params.output_bias,
    }
    if isinstance(params, MambaParams):
        arrays |= {
            "x_proj.weight": ssm.kernel.T,
            "dt_proj.weight": ssm.dt_kernel.T,
            "dt_proj.bias": ssm.dt_bias,
        }
    else:
        arrays |= {"dt_bias": ssm.dt_bias, "norm.weight": params.norm_scale}
    return {name: array for name, array in arrays.items() if array is not None}
