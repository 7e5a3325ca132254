"""`auto`: the evaluator that is used when none is given."""

from jaxrnn.engine.evaluators.sequential.sequential import Sequential, sequential


def auto() -> Sequential:
    """The evaluator that is used when none is given: `sequential()`, for every cell.

    Linear cells are no exception, because on CPU neither way is faster for every cell. The other
    way is `associative("sequential")`, one `linear_scan` over the steps, which stores the states
    of all steps even where no gradient is taken. The time of `sequential()` divided by the time of
    that one, at width 128, for 8 rows of 1,024 steps and for one row of 16,384 (ranges of the
    medians of interleaved rounds, in two runs on two busy CPU cores):

        gradient: rg_lru 3.2 to 5.4, min_gru 1.1 to 1.6, diagonal_rnn 1.1 to 2.1, lru 0.9 to 1.5,
                  s5 0.7 to 2.0, s4d with 16 states 0.8 to 1.2, ema 0.2 to 1.0
        forward:  0.4 to 2.4, and s4d with 16 states 0.2 to 0.3

    For s4d it takes twice the memory for the gradient and 30 times for the outputs. Choose it for
    a cell that computes much before the recurrence, as rg_lru does. No accelerator was measured;
    `associative()`, of depth O(log T), is meant for those.

    Returns:
        The evaluator.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.elman(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), evaluator=jr.auto()).info == jr.sequential()
        True
    """
    return sequential()
