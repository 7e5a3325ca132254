"""Models as modules of flax nnx."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxrnn.engine.arguments import check_model
from jaxrnn.engine.keys import DrawsNoise, MissingKey
from jaxrnn.engine.unroll import step, unroll
from jaxrnn.types import Carry, Key, Model, Params, Rollout


class RNN(nnx.Module):
    """A model as a module of nnx: one `nnx.Param` for each array of its parameters.

        rnn(xs) = jr.unroll(model, params, xs).outputs

    It trains, is split, merged, scanned and saved like any module of nnx. `train()` and `eval()`
    switch the noise of dropout, zoneout and the like, whose keys come from the stream "dropout" of
    `rngs`; a model that draws no noise takes none.

    Attributes:
        model: cell or layer.
        params: its parameters, each array in an `nnx.Param`.
        deterministic: whether noise is off; False in a new module, as in `nnx.Dropout`.
        rngs: stream of keys, or None if the model draws no noise.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> from flax import nnx
        >>> rnn = jr.interop.nnx.RNN(jr.lstm(8), 3, rngs=nnx.Rngs(0))
        >>> rnn(jnp.ones((2, 5, 3))).shape
        (2, 5, 8)
        >>> rnn.unroll(jnp.ones((2, 5, 3)), mask=jnp.ones((2, 5), bool)).carry.h.shape
        (2, 8)
    """

    def __init__(self, model: Model, num_inputs: int, *, rngs: nnx.Rngs):
        """Initialises the parameters with a key of the stream "params".

        Args:
            model: cell or layer.
            num_inputs: width of the inputs; for tokens, the size of the vocabulary.
            rngs: streams of keys.

        Raises:
            TypeError: `model` is neither a Cell nor a Layer.
        """
        check_model(model)
        self.model = nnx.static(model)
        params = model.init(rngs.params(), num_inputs)
        self.params = nnx.data(jax.tree.map(nnx.Param, params))
        self.deterministic = False
        noisy = _draws_noise(model, params, num_inputs)
        self.rngs = nnx.data(rngs.dropout.fork() if noisy else None)

    def __call__(self, xs: Any, **options: Any) -> Any:
        """The outputs of `unroll`, which takes the same options: what `Sequential` passes on."""
        return self.unroll(xs, **options).outputs

    def unroll(
        self,
        xs: Any,
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        **options: Any,
    ) -> Rollout:
        """`jr.unroll` with the parameters of this module.

        Args:
            xs: inputs `[..., T, D]`.
            deterministic: whether noise is off; None is what `train()` or `eval()` said.
            rngs: streams or stream of keys to use instead of that of the module.
            options: the other options of `jr.unroll`, `mask=`, `carry=` and so on.

        Returns:
            The rollout: carry, outputs, info and flags.
        """
        key = self._key(deterministic, rngs)
        return unroll(self.model, self.arrays(), xs, key=key, **options)

    def step(
        self,
        carry: Carry,
        x: Any,
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        **options: Any,
    ) -> tuple[Carry, Any]:
        """`jr.step` with the parameters of this module: `(carry, y)`; options as in `unroll`."""
        key = self._key(deterministic, rngs)
        return step(self.model, self.arrays(), carry, x, key=key, **options)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        """The carry that a sequence starts from, learned if the model learns it."""
        return self.model.initial_carry(self.arrays(), batch_shape)

    def arrays(self) -> Params:
        """The parameters as `model` has them, for functions of jaxrnn."""
        return jax.tree.map(
            lambda param: param[...], self.params, is_leaf=lambda node: isinstance(node, nnx.Param)
        )

    def set_view(self, deterministic: bool | None = None, **others: Any) -> dict[str, Any]:
        """Lets `nnx.view` switch noise; returns what it did not use."""
        if deterministic is not None:
            self.deterministic = deterministic
        return others

    def _key(self, deterministic: bool | None, rngs: Any) -> Key:
        if self.deterministic if deterministic is None else deterministic:
            return None
        rngs = self.rngs if rngs is None else rngs
        if rngs is None:
            return MissingKey("interop.nnx.RNN")
        return rngs.dropout() if isinstance(rngs, nnx.Rngs) else rngs()


def _draws_noise(model: Model, params: Params, num_inputs: int) -> bool:
    """Whether a run of the model asks for a key, which tells whether the module needs a stream.

    Where inputs are trees or pictures their shapes are not known, and the answer is yes.
    """
    if model.num_feature_axes not in (0, 1):
        return True
    xs = jnp.zeros((1, num_inputs)) if model.num_feature_axes else jnp.zeros(1, jnp.int32)
    try:
        jax.eval_shape(lambda params: unroll(model, params, xs, key=MissingKey("RNN")), params)
    except DrawsNoise:
        return True
    return False
