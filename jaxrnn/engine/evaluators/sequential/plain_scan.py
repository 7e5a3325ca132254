"""One `lax.scan` over the steps."""

from jax import lax

from jaxrnn.engine.masking import guarded
from jaxrnn.engine.precision import project
from jaxrnn.types import Evaluator, Path, Rollout


def scan(scan_unroll: int) -> Evaluator:
    """The plain scan, with projection and readout inside: what needs no carry is made when used."""

    def evaluate(cell, params, carry, xs, mask, reset):
        advance = guarded(cell, params)

        def step(carry, inputs):
            x, mask, reset = inputs
            carry = advance(carry, project(cell, params, x), mask, reset)
            return carry, cell.emit(params, carry, x)

        carry, outputs = lax.scan(step, carry, (xs, mask, reset), unroll=scan_unroll)
        return Rollout(carry, outputs, Path("sequential"))

    return evaluate
