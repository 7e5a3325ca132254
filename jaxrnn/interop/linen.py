"""Models as modules of flax linen."""

from dataclasses import dataclass
from typing import Any

from flax import linen

from jaxrnn.engine.arguments import check_model
from jaxrnn.engine.keys import MissingKey
from jaxrnn.engine.unroll import step, unroll
from jaxrnn.types import Carry, Key, Model, Params, Rollout


@dataclass(frozen=True)
class _Kept:
    """A model whole: linen copies tuples in the fields of a module, and a copy is another model."""

    model: Model

    def __repr__(self) -> str:
        return repr(self.model)


class RNN(linen.Module):
    """A model as a module of linen, whose variable "rnn" is the tree of its parameters.

        rnn.apply(variables, xs) = jr.unroll(model, params, xs).outputs

    The keys of dropout, zoneout and the like are those of `rngs={"dropout": key}`. `unroll`, `step`
    and `initial_carry` are methods: `rnn.apply(variables, carry, x, method="step")`.

    Attributes:
        model: cell or layer.
        num_inputs: width of the inputs; None is that of the last axis of xs. For tokens it is the
            size of the vocabulary, and must be given, as for trees.
        deterministic: whether noise is off. Where it is on, a model that draws noise raises if
            there is no `rngs={"dropout": key}`; `init` draws none.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> rnn = jr.interop.linen.RNN(jr.lstm(8))
        >>> variables = rnn.init(jax.random.key(0), jnp.ones((2, 5, 3)))
        >>> rnn.apply(variables, jnp.ones((2, 5, 3))).shape
        (2, 5, 8)
        >>> rnn.apply(variables, jnp.ones((2, 5, 3)), method="unroll").carry.h.shape
        (2, 8)
    """

    model: Any
    num_inputs: int | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Keeps the model as it is.

        Raises:
            TypeError: `model` is neither a Cell nor a Layer.
        """
        if not isinstance(self.model, _Kept):
            check_model(self.model)
            object.__setattr__(self, "model", _Kept(self.model))
        super().__post_init__()

    def __call__(self, xs: Any, **options: Any) -> Any:
        """The outputs of `unroll`, which takes the same options: what `Sequential` passes on."""
        return self.unroll(xs, **options).outputs

    def unroll(self, xs: Any, *, deterministic: bool | None = None, **options: Any) -> Rollout:
        """`jr.unroll` with the parameters of this module.

        Args:
            xs: inputs `[..., T, D]`.
            deterministic: whether noise is off; None is the field of that name.
            options: the other options of `jr.unroll`, `mask=`, `carry=` and so on.

        Returns:
            The rollout: carry, outputs, info and flags.
        """
        key = self._key(deterministic)
        return unroll(self.model.model, self._params(xs), xs, key=key, **options)

    def step(
        self, carry: Carry, x: Any, *, deterministic: bool | None = None, **options: Any
    ) -> tuple[Carry, Any]:
        """`jr.step` with the parameters of this module: `(carry, y)`; options as in `unroll`."""
        key = self._key(deterministic)
        return step(self.model.model, self._params(x), carry, x, key=key, **options)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        """The carry that a sequence starts from, learned if the model learns it."""
        return self.model.model.initial_carry(self._params(None), batch_shape)

    @linen.compact
    def _params(self, xs: Any) -> Params:
        if self.has_variable("params", "rnn"):
            return self.get_variable("params", "rnn")
        return self.param("rnn", self.model.model.init, self._width(xs))

    def _width(self, xs: Any) -> int:
        if self.num_inputs is not None:
            return self.num_inputs
        axes = self.model.model.num_feature_axes
        if not isinstance(axes, int) or axes < 1 or not hasattr(xs, "shape"):
            raise ValueError(
                "num_inputs must be given where the inputs do not show it, as for tokens: "
                f"RNN({self.model.model}, num_inputs=...)"
            )
        return xs.shape[-1]

    def _key(self, deterministic: bool | None) -> Key:
        off = self.deterministic if deterministic is None else deterministic
        if off or self.is_initializing():
            return None
        if self.has_rng("dropout"):
            return self.make_rng("dropout")
        advice = 'pass rngs={"dropout": key} to apply, or deterministic=True.'
        return MissingKey("interop.linen.RNN", advice)
