"""Models as programs that run without jaxrnn, and without the Python code of a model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import check_model
from jaxrnn.engine.unroll import step, unroll
from jaxrnn.interop._names import by_name, from_names
from jaxrnn.types import Cell, Model, Params

PLATFORMS = ("cpu", "cuda", "tpu")


class Programs(NamedTuple):
    """The programs of a model, each as the bytes that `jax.export.deserialize` reads.

    Parameters and carries are dicts from names such as `0.forward.h` to arrays, for which a process
    needs nothing of jaxrnn. The batch size B may be another in every call.

    Attributes:
        start: `(params, present) -> carry`, the carry `[B, ...]` that a sequence starts with;
            `present`, bools `[B]`, says what B is and nothing else.
        unroll: `(params, carry, xs, mask, reset) -> (carry, ys, mask)` for xs `[B, T, ...]` and
            bools `[B, T]`; the mask that it returns is that of the outputs.
        step: `(params, carry, x, mask, reset) -> (carry, y)` for x `[B, ...]` and bools `[B]`; None
            for a model that cannot run step by step.
    """

    start: bytes
    unroll: bytes
    step: bytes | None


def export_model(
    model: Model,
    params: Params,
    x: Any,
    *,
    num_steps: int | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> Programs:
    """Compiles a model to programs for other processes and machines.

    The parameters are an argument of the programs, with the names that `save_params` gives them, so
    the file of parameters and the bytes of the programs are all that a server needs:

        program = jax.export.deserialize(pathlib.Path("net.step").read_bytes())
        params = safetensors.numpy.load_file("net.safetensors")
        carry, y = jax.jit(program.call)(params, carry, x, mask, reset)

    jax reads programs that are up to six months old, and those of up to three weeks ahead.

    Args:
        model: cell or layer to compile, without noise.
        params: its parameters.
        x: input of one step of one sequence, a tree of arrays `[D]`, or an int `[]` for tokens;
            only its shapes and dtypes matter.
        num_steps: T of `unroll`; None for any T.
        platforms: what to compile for.

    Returns:
        `Programs(start, unroll, step)`.

    Raises:
        TypeError: `model` is neither a Cell nor a Layer.
        ValueError: The parameters are not those of the model; `x` is not one step; a platform is
            not known; or the model needs to know T, as `newton` and `associative` do.
        ImportError: flatbuffers is not installed; `pip install '.[files]'` in a checkout
            installs it.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.gru(4), jr.dense(2))
        >>> params = model.init(jax.random.key(0), 3)
        >>> programs = jr.interop.export_model(model, params, jnp.zeros(3))
        >>> program = jax.export.deserialize(programs.start)
        >>> named = {"0.kernel": params[0].kernel, "0.recurrent_kernel": params[0].recurrent_kernel}
        >>> named |= {"0.bias": params[0].bias, "0.recurrent_bias": params[0].recurrent_bias}
        >>> named |= {"1.kernel": params[1].kernel, "1.bias": params[1].bias}
        >>> {name: h.shape for name, h in program.call(named, jnp.ones(5, bool)).items()}
        {'0.h': (5, 4)}
    """
    check_model(model)
    _check_step(model, x)
    unknown = sorted(set(platforms) - {*PLATFORMS, "rocm"})
    if unknown or not platforms:
        raise ValueError(f"platforms must be among {', '.join(PLATFORMS)}, rocm, got {platforms!r}")
    batch, time = export.symbolic_shape("b, t")
    leading = (batch, time if num_steps is None else checks.positive(num_steps, "num_steps"))
    carry = jax.eval_shape(lambda params: model.initial_carry(params, (batch,)), params)

    def run_start(named, present):
        return by_name(model.initial_carry(from_names(named, params), present.shape))

    def run_unroll(named, named_carry, xs, mask, reset):
        flags = {"mask": mask, "reset": reset}
        start = from_names(named_carry, carry)
        rollout = unroll(model, from_names(named, params), xs, carry=start, **flags)
        mask = mask if rollout.flags is None else rollout.flags.mask
        return by_name(rollout.carry), rollout.outputs, mask

    def run_step(named, named_carry, x, mask, reset):
        flags = {"mask": mask, "reset": reset}
        start = from_names(named_carry, carry)
        after, y = step(model, from_names(named, params), start, x, **flags)
        return by_name(after), y

    def compiled(run, *args):
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
        return bytes(export.export(jax.jit(run), platforms=platforms)(*abstract).serialize())

    def inputs(*leading):
        flag = jax.ShapeDtypeStruct(leading, jnp.bool_)
        one = jax.tree.map(jnp.asarray, x)
        return (
            jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct((*leading, *leaf.shape), leaf.dtype), one
            ),
            flag,
            flag,
        )

    named = by_name(params), by_name(carry)
    is_causal = isinstance(model, Cell) or model.causal
    return Programs(
        start=compiled(run_start, named[0], jax.ShapeDtypeStruct((batch,), jnp.bool_)),
        unroll=compiled(run_unroll, *named, *inputs(*leading)),
        step=compiled(run_step, *named, *inputs(batch)) if is_causal else None,
    )


def _check_step(model: Model, x: Any) -> None:
    """Raises unless x has the axes of one step of one sequence."""
    axes = model.num_feature_axes
    if isinstance(axes, int):
        axes = jax.tree.map(lambda leaf: axes, x)
    for leaf, wanted in zip(jax.tree.leaves(x), jax.tree.leaves(axes), strict=False):
        if np.ndim(leaf) != wanted:
            raise ValueError(
                f"x must be one step of one sequence, with {wanted} axes, got the shape "
                f"{np.shape(leaf)}"
            )
