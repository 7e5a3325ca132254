"""One `lax.scan` over the steps."""

from typing import Any

from jax import lax

from jaxrnn.engine.masking import guarded
from jaxrnn.engine.precision import project
from jaxrnn.types import Cell, Steps


def plain_scan(
    cell: Cell, scan_unroll: int, params: Any, initial: Any, carry: Any, steps: Steps
) -> tuple[Any, Any]:
    """Scans the guarded step, with projection and readout inside, where they are used.

    Args:
        cell: the cell.
        scan_unroll: number of steps that `lax.scan` unrolls.
        params: its parameters.
        initial: what a reset returns to; None where there is no reset.
        carry: the carry before the first step.
        steps: what is read, time first.

    Returns:
        `(carry, outputs)`.
    """

    def step(carry, one):
        x, mask, reset = one
        z = project(cell, params, x)
        carry = guarded(cell, params, initial, carry, z, mask, reset)
        return carry, cell.emit(params, carry, x)

    return lax.scan(step, carry, steps, unroll=scan_unroll)


def initial_where_reset(cell: Cell, params: Any, reset: Any) -> Any:
    """What a reset returns to, leaves `[*batch, ...]`, or None without resets."""
    return None if reset is None else cell.initial_carry(params, reset.shape[1:])
