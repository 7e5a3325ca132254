"""The evaluator that is used when none is named."""

from jaxrnn.evaluators.one_object import one_object
from jaxrnn.evaluators.sequential import sequential
from jaxrnn.types import Evaluator


@one_object
def auto() -> Evaluator:
    """The evaluator that is used when none is named: `sequential()`, for every cell.

    Linear cells too, because none of the two ways to run them on CPU is the better one for all.
    `associative("sequential")` solves one `linear_scan` over the steps, which is the faster
    gradient where a carry is about as large as an output, and stores the states of all steps even
    where no gradient is taken. Time of `sequential()` over its time, medians of interleaved rounds
    on two CPU cores at width 128, for 8 rows of 1,024 steps and for one row of 16,384:

        gradient: rg_lru 5.4 and 3.2, lru 1.5 and 1.4, s5 1.2 and 2.0, min_gru 1.1 and 1.4,
                  diagonal_rnn 1.1 and 1.6, ema 1.0 and 0.3, s4d of 16 states 1.0 and 1.2
        forward:  rg_lru 1.6 and 0.6, lru 1.1 and 1.1, s5 1.6 and 2.4, min_gru 0.9 and 0.8,
                  diagonal_rnn 1.0 and 2.2, ema 1.0 and 1.1, s4d of 16 states 0.3 and 0.2

    and s4d takes twice the memory for the gradient, 30 times for the outputs. No accelerator was
    measured; name `associative()` there.

    Cells with a `split` get the reverse rule of `sequential`, which forward mode (`jax.jvp`,
    `jax.jacfwd`) cannot pass: name `sequential(derivative="autodiff")` for it.

    Returns:
        The evaluator.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.elman(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), evaluator=jr.auto()).info.evaluator
        'sequential'
    """
    return sequential()
