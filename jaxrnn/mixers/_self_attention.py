"""Causal self-attention in a sliding window."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine
from jaxrnn.engine import checks, precision
from jaxrnn.engine.masking import select
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.factories import model_factory
from jaxrnn.mixers._window import empty_window, through_window
from jaxrnn.types import Layer, Rollout


class SelfAttentionParams(NamedTuple):
    """`kernel [D, H + 2*num_kv_heads*K]` (blocks q, k, v) and `output_kernel [H, D]`.

    H = num_heads * K; `output_bias [D]` or None.
    """

    kernel: Any
    output_kernel: Any
    output_bias: Any = None
    roles = {"kernel": "input", "output_kernel": "readout", "output_bias": "readout"}


class KeyValue(NamedTuple):
    """Key and value of a step, `k` and `v` `[..., num_kv_heads, K]`, before rotation."""

    k: Any
    v: Any


class Rotary(NamedTuple):
    """The base of the angles, and how many features of a head rotate."""

    base: float
    width: int


@model_factory
def self_attention(
    num_heads: int,
    *,
    window: int,
    head_width: int | None = None,
    num_kv_heads: int | None = None,
    rotary_base: float = 10000.0,
    rotary_width: int | None = None,
    use_output_bias: bool = False,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Multi-head attention to the last `window` real steps, with rotary positions.

        q, k, v = x W per head
        sₜⱼ = (R(t) qₜ)ᵀ R(j) kⱼ / √K,   j of the sequence of t, t - window < j ≤ t
        yₜ = concat_heads(Σⱼ softmaxⱼ(sₜⱼ) vⱼ) W_output

    Vaswani et al. 2017 (arXiv:1706.03762) in a window, and Su et al. 2021, "RoFormer"
    (arXiv:2104.09864): R(t) rotates the features 2i and 2i+1 by the angle t rotary_base^(-2i/K).
    With fewer heads of k and v than of q (Shazeer 2019, arXiv:1911.02150), neighbouring heads of q
    share one. Only t - j enters s, so t may count real steps from any point. Here it counts within
    a block and stays below 2 window, so float32 angles are as exact late in a stream as at its
    start. Padding has no position.

    The window is the same in training and streaming; a `window` of at least T is full attention.
    Steps are read in blocks that attend to themselves and the block before, so time and memory are
    O(T · window).

    Args:
        num_heads: number of heads.
        window: number of real steps that a step reads, itself included.
        head_width: K, even; None is D / num_heads.
        num_kv_heads: number of heads of k and v, a divisor of num_heads; None is num_heads.
        rotary_base: base of the rotary angles, above 0; a larger one rotates more slowly.
        rotary_width: number of features of a head that rotate, its first ones, even and at most K;
            in the angles it takes the place of K. None is K.
        use_output_bias: whether W_output has a bias, which starts at zero.
        param_dtype: dtype of the parameters. Everything runs in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, carry `Window(KeyValue(k, v), count)` with the k and v of
        `window - 1` steps, `[..., window-1, num_kv_heads, K]`.

    Raises:
        TypeError: A size is not an int, or `use_output_bias` is not a bool.
        ValueError: A size is below 1, `num_kv_heads` does not divide `num_heads`, `head_width` or
            `rotary_width` is odd, or (in `init`) num_heads does not divide D into even widths or
            `rotary_width` is above K.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.self_attention(num_heads=2, window=16)
        >>> params = layer.init(jax.random.key(0), 8)
        >>> rollout = jr.unroll(layer, params, jnp.ones((3, 100, 8)))
        >>> rollout.outputs.shape, rollout.carry.steps.k.shape
        ((3, 100, 8), (3, 15, 2, 4))
    """
    checks.positive(num_heads, "num_heads")
    checks.positive(window, "window")
    if head_width is not None:
        _even(checks.positive(head_width, "head_width"), "head_width")
    if rotary_width is not None:
        _even(checks.positive(rotary_width, "rotary_width"), "rotary_width")
    num_pairs = num_heads if num_kv_heads is None else checks.positive(num_kv_heads, "num_kv_heads")
    if num_heads % num_pairs:
        raise ValueError(f"num_kv_heads must divide num_heads = {num_heads}, got {num_kv_heads}.")
    checks.boolean(use_output_bias, "use_output_bias")
    if not rotary_base > 0:
        raise ValueError(f"rotary_base must be above 0, got {rotary_base}.")

    def init(key, num_inputs):
        width = _head_width(num_inputs, num_heads) if head_width is None else head_width
        if rotary_width is not None and rotary_width > width:
            raise ValueError(f"rotary_width must be at most K = {width}, got {rotary_width}.")
        num_units = num_heads * width
        num_projected = num_units + 2 * num_pairs * width
        key_input, key_output = jax.random.split(key)
        return SelfAttentionParams(
            initializers.input_kernel(key_input, num_inputs, num_projected, param_dtype),
            initializers.input_kernel(key_output, num_units, num_inputs, param_dtype),
            jnp.zeros(num_inputs, param_dtype) if use_output_bias else None,
        )

    def initial_carry(params, batch_shape=()):
        shape = (num_pairs, params.output_kernel.shape[0] // num_heads)
        step = jax.ShapeDtypeStruct(shape, precision.compute_dtype(params))
        return empty_window(KeyValue(step, step), window - 1, batch_shape)

    def unroll(params, carry, steps, key):
        del key
        xs = steps.xs
        checks.width(xs, params.kernel)
        z = in_compute_dtype(params, xs) @ params.kernel
        num_units = params.output_kernel.shape[0]
        width = num_units // num_heads
        ends = num_units, num_units + num_pairs * width
        q, k, v = (
            part.reshape(*xs.shape[:-1], heads, width)
            for heads, part in zip(
                (num_heads, num_pairs, num_pairs), jnp.split(z, ends, axis=-1), strict=True
            )
        )
        rotary = Rotary(rotary_base, width if rotary_width is None else rotary_width)

        def read(window, sequence, q):
            return _attend(q, window, sequence, rotary)

        carry, ys = through_window(read, carry, steps._replace(xs=KeyValue(k, v)), current=q)
        ys = ys.reshape(*xs.shape[:-1], num_units)
        return Rollout(carry, affine(ys, params.output_kernel, params.output_bias))

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)


def _head_width(num_inputs: int, num_heads: int) -> int:
    if num_inputs % num_heads:
        raise ValueError(
            f"num_heads must divide the width of x when head_width is None, "
            f"got {num_heads} for {num_inputs}."
        )
    return _even(num_inputs // num_heads, "head_width")


def _even(width: int, name: str) -> int:
    if width % 2:
        raise ValueError(f"{name} must be even, as features rotate in pairs, got {width}.")
    return width


def _attend(q: Any, steps: KeyValue, sequence: Any, rotary: Rotary) -> Any:
    """Attention for all queries `[T, *batch, num_heads, K]`, block by block.

    A block has at most as many steps as the carry, W = window - 1, and reads itself and the W steps
    before it: the work is O(T · W), and no `[T, T]` scores are made.
    """
    num_steps = q.shape[0]
    num_carried = sequence.shape[0] - num_steps
    # A row that is shorter than the window needs no more than itself, where its length is known.
    is_known = not checks.is_symbolic(num_steps)
    size = max(1, min(num_steps, num_carried) if is_known else num_carried)
    num_blocks = max(-(-num_steps // size), 1)
    padding = num_blocks * size - num_steps

    def context(leaf, fill=0):
        return _context(_padded(leaf, padding, fill), num_blocks, size)

    q = _padded(q, padding, 0).reshape(num_blocks, size, *q.shape[1:])
    keys = KeyValue(context(steps.k), context(steps.v))
    ys = _attend_in_blocks(q, keys, context(sequence, -1), rotary)
    return ys.reshape(num_blocks * size, *ys.shape[2:])[:num_steps]


def _padded(leaf: Any, padding: int, fill: int) -> Any:
    rows = jnp.full((padding, *leaf.shape[1:]), fill, leaf.dtype)
    return jnp.concatenate([leaf, rows])


def _context(leaf: Any, num_blocks: int, size: int) -> Any:
    """What each block reads: the W steps before it and its own, `[num_blocks, W + size, ...]`."""
    num_carried = leaf.shape[0] - num_blocks * size
    if num_blocks == 1:
        return leaf[None]
    # Step t of the leaf is W steps before query t, so cutting it without an offset gives each
    # block the steps before it. For W = 0 a block of one step reads only itself.
    before, block = (
        part.reshape(num_blocks, size, *leaf.shape[1:])
        for part in (leaf[: num_blocks * size], leaf[num_carried:])
    )
    return jnp.concatenate([before[:, :num_carried], block], axis=1)


def _attend_in_blocks(q: Any, steps: KeyValue, sequence: Any, rotary: Rotary) -> Any:
    """Queries `[n, S, *batch, num_heads, K]` of n blocks; steps and sequence `[n, W + S, ...]`."""
    size, width = q.shape[1], q.shape[-1]
    positions = jnp.arange(sequence.shape[1])
    allowed = _allowed(sequence, size)
    # A weight of 0 does not stop NaN: 0 · NaN is NaN, here and in the derivative. So numbers that
    # are not finite are replaced, and NaN is put back below in the outputs that may read them.
    bad = ~(jnp.isfinite(steps.k) & jnp.isfinite(steps.v)).all(-1)
    bad_query = ~jnp.isfinite(q).all(-1)
    q, k, v = (jnp.where(jnp.isfinite(leaf), leaf, 0) for leaf in (q, *steps))

    q, k = _rotate(q, positions[-size:], rotary), _rotate(k, positions, rotary)
    num_sharing = q.shape[-2] // k.shape[-2]
    if num_sharing > 1:
        k, v = (jnp.repeat(leaf, num_sharing, axis=-2) for leaf in (k, v))
        bad = jnp.repeat(bad, num_sharing, axis=-1)
    scores = jnp.einsum("nq...hd,nk...hd->n...hqk", q, k)
    weights = jax.nn.softmax(jnp.where(allowed, scores * width**-0.5, -jnp.inf))
    ys = jnp.einsum("n...hqk,nk...hd->nq...hd", jnp.where(allowed, weights, 0), v)

    reads_bad = (allowed & jnp.moveaxis(bad, 1, -1)[..., None, :]).any(-1)
    is_bad = jnp.moveaxis(reads_bad, -1, 1) | bad_query
    return select(is_bad, jnp.full_like(ys, jnp.nan), ys)


def _allowed(sequence: Any, size: int) -> Any:
    """Whether a query may read a step, `[n, *batch, 1, S, W + S]`.

    A query may always read its own step, padding included, so no softmax is over nothing.
    """
    sequence = jnp.moveaxis(sequence, 1, -1)[..., None, :]
    positions = jnp.arange(sequence.shape[-1])
    age = positions[-size:, None] - positions
    same = jnp.swapaxes(sequence[..., -size:], -1, -2) == sequence
    return (same & (age >= 0) & (age <= len(positions) - size))[..., None, :, :]


def _rotate(leaf: Any, positions: Any, rotary: Rotary) -> Any:
    """R(position) applied to each step of `[n, steps, *batch, num_heads, K]`."""
    if rotary.width < leaf.shape[-1]:
        rotated = _rotate(leaf[..., : rotary.width], positions, rotary)
        return jnp.concatenate([rotated, leaf[..., rotary.width :]], axis=-1)
    rates = rotary.base ** (-jnp.arange(0, leaf.shape[-1], 2) / leaf.shape[-1])
    angles = (positions[:, None] * rates).astype(leaf.dtype)
    angles = angles.reshape(len(positions), *[1] * (leaf.ndim - 3), -1)
    even, odd = leaf[..., ::2], leaf[..., 1::2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(leaf.shape)
