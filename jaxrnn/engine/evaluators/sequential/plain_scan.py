"""The plain evaluation of a cell: one `lax.scan` over the guarded step."""

from typing import Any

from jax import lax

from jaxrnn.engine.masking import guarded
from jaxrnn.engine.precision import project
from jaxrnn.types import Carry, Cell, Params, Reset, Steps


def plain_scan(
    cell: Cell, scan_unroll: int, params: Params, initial: Carry, carry: Carry, steps: Steps
) -> tuple[Carry, Any]:
    """Scans the guarded step, with projection and readout inside the loop.

    Args:
        cell: the cell.
        scan_unroll: number of steps that `lax.scan` unrolls.
        params: its parameters.
        initial: the carry that a reset returns to; None where there is no reset.
        carry: the carry before the first step.
        steps: the inputs and their flags, time first.

    Returns:
        `(carry, outputs)`.
    """

    def step(carry, one):
        x, mask, reset = one
        # In the loop, although it needs no carry: computing z for all steps first pays for wide
        # inputs and costs for narrow ones on CPU, where fresh pages of a large array take time.
        z = project(cell, params, x)
        carry = guarded(cell, params, initial, carry, z, mask, reset)
        return carry, cell.emit(params, carry, x)

    return lax.scan(step, carry, steps, unroll=scan_unroll)


def initial_where_reset(cell: Cell, params: Params, reset: Reset) -> Carry:
    """The carry that a reset returns to, leaves `[*batch, ...]`, or None without resets."""
    # Made once, outside of the loop: it does not depend on the step.
    return None if reset is None else cell.initial_carry(params, reset.shape[1:])
