"""The plain evaluation of a cell: one `lax.scan` over the guarded step."""

from typing import Any

from jax import lax

from jaxrnn.engine.masking import guarded
from jaxrnn.engine.precision import project
from jaxrnn.engine.starts import Started, first_carry, numbered
from jaxrnn.types import Carry, Cell, Params, Steps


def plain_scan(
    cell: Cell, scan_unroll: int, params: Params, initial: Carry, carry: Carry, steps: Steps
) -> tuple[Carry, Any]:
    """Scans the guarded step, with projection and readout inside the loop.

    Args:
        cell: the cell.
        scan_unroll: number of steps that `lax.scan` unrolls.
        params: its parameters.
        initial: what a reset returns to, as in `entered`.
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


def entered(cell: Cell, params: Params, carry: Carry, steps: Steps) -> tuple[Carry, Carry, Steps]:
    """What a scan over the steps begins with: `(initial, carry, steps)`.

    `initial` is what a reset returns to: leaves `[*batch, ...]`, None without resets, or all starts
    `[N, *batch, ...]`, of which the resets of the steps then know the number.
    """
    if isinstance(carry, Started):
        return carry.starts, first_carry(carry), numbered(carry, steps)
    # Made once, outside of the loop: it does not depend on the step.
    reset = steps.reset
    initial = None if reset is None else cell.initial_carry(params, reset.shape[1:])
    return initial, carry, steps
