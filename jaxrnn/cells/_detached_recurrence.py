"""A cell whose gradient stays in each unit: the products with the carry pass none back in time."""

from jaxrnn.engine import checks
from jaxrnn.engine.carry import detach
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


@model_factory
def detached_recurrence(cell: Cell) -> Cell:
    """Cuts the gradient through what the recurrent kernels read, and leaves all values as they are.

        hₜ = update(hₜ₋₁, mix(params, detach(hₜ₋₁), zₜ))

    What is left of ∂hₜ / ∂hₜ₋₁ is elementwise: the forget gate of an LSTM, the update gate of a
    GRU, the leak of a leaky unit, and nothing for an Elman network. The recurrent kernels still
    have a gradient of their own. With `online_gradient`, whose traces are then of the size of the
    parameters, this is RFLO (Murray 2019, eLife 8:e43299) and e-prop (Bellec et al. 2020, Nature
    Communications 11:3625), with the true derivative of the loss in place of a random feedback. The
    gradient is biased: how one unit acts on a later loss through another is lost. So it is not that
    of finite differences, the one law of `jaxrnn.testing.check_cell` that this cell breaks.

    Args:
        cell: a cell whose `advance` is a `Split`.

    Returns:
        The cell with the same params, carry and outputs.

    Raises:
        TypeError: `cell` is not a Cell with a `Split`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.detached_recurrence(jr.lstm(8)), jr.dense(1))
        >>> params = model.init(jax.random.key(0), 3)
        >>> traces = jr.online_gradient(model).init(params, jnp.zeros(3))
        >>> params[0].kernel.shape, traces[0][0].kernel.shape
        ((3, 32), (2, 1, 3, 32))
    """
    inner = checks.split_of(cell)

    def mix(params, carry, z):
        return inner.mix(params, detach(carry), z)

    return cell._replace(advance=Split(mix, inner.update))
