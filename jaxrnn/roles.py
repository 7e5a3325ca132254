"""What each parameter is for, told by its name."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

_RECURRENT = ("peephole", "projection_kernel")
# Eigenvalues and steps of linear recurrences, by what is learned of them.
_SSM = (
    *("decay_logit", "decay_log", "eigenvalue_logit", "eigenvalue_imag", "step_log"),
    *("nu_log", "theta_log", "gamma_log", "low_rank_real", "low_rank_imag"),
    *("a_log", "dt_bias", "log_rate", "step_bias"),
)
_READOUT = ("output_", "skip", "norm_")
# Records over time in which nothing of the above has a name.
_OVER_TIME = (
    *("MinGRUParams", "MinLSTMParams", "MLSTMParams", "MambaParams", "Mamba2Params"),
    *("CausalConvParams", "SelfAttentionParams"),
)


def parameter_labels(params: Any) -> Any:
    """Names what each parameter is for, as `optax.multi_transform` wants it.

    * `"recurrent"`: what multiplies the carry: `recurrent_...`, `peephole`, `projection_kernel`,
      and a learned `initial_carry`.
    * `"ssm"`: eigenvalues, rates and steps of linear recurrences, `decay_log`, `step_log` and their
      like, which want no weight decay and a smaller learning rate.
    * `"input"`: what reads x: the other parameters of a record that has one of those, or is that of
      a layer over time (minGRU, minLSTM, mLSTM, Mamba, convolution, attention), biases among them,
      and embedding tables.
    * `"readout"`: everything else: `output_...`, `skip...` and `norm_...` of such a record, dense
      layers, gated perceptrons and norms wherever they stand.

    Args:
        params: The parameters of a cell, of a layer, or any tree of those.

    Returns:
        A tree like `params` of strings.

    Example:
        >>> import optax, jaxrnn as jr
        >>> params = jr.elman(4).init(jax.random.key(0), 3)
        >>> parameter_labels(params)
        ElmanParams(kernel='input', recurrent_kernel='recurrent', bias='input')

        State spaces with a learning rate of their own and no weight decay; here the gradient is
        zero, so that decay alone moves what it moves:

        >>> params = jr.mamba(4).init(jax.random.key(0), 2)
        >>> others = optax.adamw(1e-2, weight_decay=0.1)
        >>> optimizer = optax.multi_transform(
        ...     {"ssm": optax.adam(1e-3), "input": others, "readout": others}, parameter_labels
        ... )
        >>> gradients = jax.tree.map(jnp.zeros_like, params)
        >>> state = jax.jit(optimizer.init)(params)
        >>> updates, state = jax.jit(optimizer.update)(gradients, state, params)
        >>> bool(updates.ssm.a_log.any()), bool(updates.kernel.any())
        (False, True)
    """
    flat, tree = jax.tree_util.tree_flatten_with_path(params)
    paths = [[_name(entry) for entry in path] for path, _ in flat]
    over_time = {
        tuple(path[:-1])
        for path, (entries, _) in zip(paths, flat, strict=True)
        if path and (_is_recurrent(path[-1]) or path[-1] in _SSM or _is_over_time(params, entries))
    }

    def label(path):
        name = path[-1] if path else ""
        if "initial_carry" in path or _is_recurrent(name):
            return "recurrent"
        if name in _SSM:
            return "ssm"
        if name == "table" or (tuple(path[:-1]) in over_time and not name.startswith(_READOUT)):
            return "input"
        return "readout"

    return tree.unflatten([label(path) for path in paths])


class GradientNorms(NamedTuple):
    """Global norms: `total`, and those of its parts `recurrent` (ssm too), `input`, `readout`."""

    total: Any
    recurrent: Any
    input: Any
    readout: Any


def gradient_norms(gradients: Any) -> GradientNorms:
    """The norm of a gradient by what its parameters are for: recurrent against input.

        ‖g‖ = √Σ |gᵢ|² over the parameters of one of the `parameter_labels`

    Recurrent norms orders of magnitude below those of the input say that long paths through time
    contribute nothing; no clipping restores them.

    Args:
        gradients: A tree like the parameters, real or complex.

    Returns:
        `GradientNorms`, computed in at least float32; a part without parameters is 0.

    Example:
        >>> import jaxrnn as jr
        >>> kernel, recurrent_kernel = jnp.full((1, 4), 2.0), jnp.full((4, 4), 0.75)
        >>> gradients = jr.cells.ElmanParams(kernel, recurrent_kernel, bias=jnp.zeros(4))
        >>> norms = gradient_norms(gradients)
        >>> float(norms.total), float(norms.recurrent), float(norms.input)
        (5.0, 3.0, 4.0)
    """
    labels = jax.tree.leaves(parameter_labels(gradients))
    # A square of float16 overflows beyond 256.
    leaves = [
        jnp.asarray(leaf, jnp.promote_types(jnp.result_type(leaf), jnp.float32))
        for leaf in jax.tree.leaves(gradients)
    ]

    def norm(wanted):
        chosen = [leaf for leaf, label in zip(leaves, labels, strict=True) if label in wanted]
        return jnp.asarray(optax.tree.norm(chosen))

    parts = {"recurrent", "ssm"}, {"input"}, {"readout"}
    return GradientNorms(norm(set(labels)), *map(norm, parts))


def _is_recurrent(name: str) -> bool:
    return name.startswith("recurrent") or name in _RECURRENT


def _is_over_time(params: Any, entries: tuple[Any, ...]) -> bool:
    """Whether the record that holds a leaf is one of those that its class tells."""
    record = params
    for entry in entries[:-1]:
        match entry:
            case jax.tree_util.GetAttrKey(name):
                record = getattr(record, name)
            case jax.tree_util.DictKey(key) | jax.tree_util.SequenceKey(key):
                record = record[key]
            case _:
                return False
    return type(record).__name__ in _OVER_TIME


def _name(entry: Any) -> str:
    """The name or number of one step of a tree path."""
    return jax.tree_util.keystr((entry,), simple=True)
