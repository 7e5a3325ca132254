"""Traces: the derivative of a carry by the parameters, and how a step moves it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine.precision import cast
from jaxrnn.online._structure import Owners, Recurrence
from jaxrnn.types import Array

Traces = list[Any]
"""For each leaf of the parameters `[k, m, *leaf.shape]`, or None: k coordinates of m groups."""

Pull = Callable[[Array], tuple[list[Array], Any]]
"""From a cotangent of the carry to those of the parameters' leaves and of the carry before."""


def immediate_traces(recurrence: Recurrence, pull: Pull, vector: Array) -> Traces:
    """M, the derivative of a carry by the parameters with the carry before it held still.

    Args:
        recurrence: which coordinates are traced.
        pull: the derivative of what made the carry.
        vector: the carry `[n]`.

    Returns:
        Its traces.
    """
    blocks = {owners.block for owners in recurrence.owners if owners is not None}
    pulled = {block: _pulled(recurrence, block, pull, vector) for block in blocks}
    return _from_parameters(recurrence, pulled, vector)


def moved_traces(recurrence: Recurrence, traces: Traces, pull: Pull, vector: Array) -> Traces:
    """The traces after a step, J P + M, without what the groups do to each other.

    Args:
        recurrence: which coordinates are traced.
        traces: P, those before the step.
        pull: the derivative of the step.
        vector: the carry `[n]`.

    Returns:
        Traces like P.
    """
    num_groups = recurrence.members.shape[1]
    block = 1 if recurrence.apart else num_groups
    blocks = {block, *(owners.block for owners in recurrence.owners if owners is not None)}
    pulled = {block: _pulled(recurrence, block, pull, vector) for block in blocks}
    jacobian = _within_groups(recurrence, pulled[block][1])
    added = _from_parameters(recurrence, pulled, vector)
    return [
        None if owners is None else through(jacobian, trace, owners) + new
        for owners, trace, new in zip(recurrence.owners, traces, added, strict=True)
    ]


def past_gradient(
    recurrences: tuple[Recurrence, ...], traces: list[Traces], cotangent: Array
) -> list[Array]:
    """What the traces add to the gradient of each leaf of the parameters, for one row.

    Args:
        recurrences: which coordinates are traced.
        traces: those of each recurrence.
        cotangent: that of the carry `[n]`.

    Returns:
        For each leaf an array of its shape, or 0 if it has no trace.
    """
    sums = []
    for number in range(len(recurrences[0].owners)):
        added = jnp.zeros((), cotangent.dtype)
        for recurrence, of_recurrence in zip(recurrences, traces, strict=True):
            owners = recurrence.owners[number]
            if owners is not None:
                rows = cotangent[recurrence.members]
                added += through(rows, of_recurrence[number], owners).sum(0)
        sums.append(added)
    return sums


def through(rows: Array, trace: Any, owners: Owners) -> Array:
    """Rows `[..., k, G]` times a trace `[k, m, *shape]`, summed over k: `[..., m, *shape]`."""
    if owners.groups.size == 1:
        # One product of matrices, which for one group of many coordinates is most of the work.
        return jnp.tensordot(rows[..., owners.groups.item()], trace, 1)
    return (rows[..., owners.groups] * trace).sum(rows.ndim - 2)


def _pulled(recurrence, block, pull, vector):
    """What pulls back each coordinate of the r-th group of all blocks of m at once, `[k, m, ...]`.

    One pull-back serves many groups, because no two of them reach the same number.
    """
    members = recurrence.members
    num_coordinates, num_groups = members.shape
    rows = np.zeros((num_coordinates, block, vector.size))
    rows[np.arange(num_coordinates)[:, None], np.arange(num_groups) % block, members] = 1
    return jax.vmap(jax.vmap(pull))(jnp.asarray(rows, vector.dtype))


def _from_parameters(recurrence, pulled, vector) -> Traces:
    return [
        None if owners is None else cast(pulled[owners.block][0][number], vector.dtype)
        for number, owners in enumerate(recurrence.owners)
    ]


def _within_groups(recurrence, before):
    """J of each group by itself `[k, k, G]`, of cotangents of the carry before a step."""
    members = recurrence.members
    if recurrence.apart:
        return before[:, 0, members]
    of_itself = before[:, np.arange(members.shape[1])[:, None], members.T]
    return jnp.swapaxes(of_itself, 1, 2)
