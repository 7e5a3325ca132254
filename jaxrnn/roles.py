"""The role of each parameter, as its model declares it, and gradient norms by role.

A class of parameters declares the roles of its fields in an attribute `roles`. For parameters that
have no such class, the model declares them in its field of that name. Both are tree prefixes of the
parameters: one word for everything below, or an entry for each child, by its name.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

ROLES = ("input", "recurrent", "ssm", "readout", "statistics")


def parameter_labels(params: Any, model: Any = None) -> Any:
    """Labels each parameter with its role, in the form that `optax.multi_transform` takes.

    * `"input"`: reads x (kernels, embedding tables, and their biases).
    * `"recurrent"`: multiplies the carry, or is a learned initial carry.
    * `"ssm"`: is an eigenvalue, a rate or a step size of a linear recurrence, which should have no
      weight decay and a smaller learning rate.
    * `"readout"`: computes outputs (output kernels, skips, norms, dense layers).
    * `"statistics"`: is no weight, but a running mean or variance (`batch_norm`), which no
      optimiser may change.
    * `"unlabelled"`: has no declared role.

    A class of parameters declares the roles of its fields,

        class ElmanParams(NamedTuple):
            kernel: Any
            recurrent_kernel: Any
            bias: Any
            roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}

    or one word for all of them. A field that holds the parameters of another model needs no entry,
    because their own class declares their roles. For parameters without such a class the model
    declares the roles: see `simple_cell`.

    Args:
        params: the parameters of a model, or any tree of such parameters.
        model: the model whose parameters these are. Its declaration takes precedence over those of
            the classes. For `optax.multi_transform` bind it with
            `functools.partial(parameter_labels, model=model)`.

    Returns:
        A tree like `params` of strings.

    Raises:
        TypeError: A declared role is not a string, a tree of roles is deeper than the parameters,
            or `model` is not a record with roles.
        ValueError: A declared role is not one of these words, or is declared for a parameter that
            does not exist.

    Example:
        >>> import optax, jaxrnn as jr
        >>> params = jr.elman(4).init(jax.random.key(0), 3)
        >>> parameter_labels(params)
        ElmanParams(kernel='input', recurrent_kernel='recurrent', bias='input')

        State-space parameters get their own learning rate and no weight decay. The gradient here is
        zero, so only weight decay changes a parameter:

        >>> params = jr.mamba(4).init(jax.random.key(0), 2)
        >>> others = optax.adamw(1e-2, weight_decay=0.1)
        >>> optimizer = optax.multi_transform(
        ...     {"ssm": optax.adam(1e-3), "input": others, "readout": others}, parameter_labels
        ... )
        >>> gradients = jax.tree.map(jnp.zeros_like, params)
        >>> state = jax.jit(optimizer.init)(params)
        >>> updates, state = jax.jit(optimizer.update)(gradients, state, params)
        >>> bool(updates.ssm.a_log.any()), bool(updates.kernel.any())
        (False, True)
    """
    if model is not None and not hasattr(model, "roles"):
        raise TypeError(f"model must be a Cell or a Layer, got {type(model).__name__}.")
    roles = None if model is None else model.roles
    check_roles(roles, "model.roles")
    return _labels(params, roles, "model.roles")


class GradientNorms(NamedTuple):
    """Norms of a gradient: `total`, and its parts `recurrent` (with `"ssm"`), `input`, `readout`.

    A part is None when no parameter has its label.
    """

    total: Any
    recurrent: Any
    input: Any
    readout: Any


def gradient_norms(gradients: Any, model: Any = None) -> GradientNorms:
    """The norms of a gradient by the roles of the parameters, such as recurrent and input.

        ‖g‖ = √Σ |gᵢ|² over the parameters with one of the `parameter_labels`

    A recurrent norm that is orders of magnitude smaller than the input norm shows that long paths
    through time contribute nothing, which no clipping restores.

    Args:
        gradients: a tree like the parameters, real or complex.
        model: the model whose parameters these are, as in `parameter_labels`.

    Returns:
        `GradientNorms`, computed in at least float32. A part is None when no parameter has its
        label; unlabelled parameters count only in `total`.

    Raises:
        TypeError: As in `parameter_labels`.
        ValueError: As in `parameter_labels`.

    Example:
        >>> import jaxrnn as jr
        >>> kernel, recurrent_kernel = jnp.full((1, 4), 2.0), jnp.full((4, 4), 0.75)
        >>> gradients = jr.cells.ElmanParams(kernel, recurrent_kernel, bias=jnp.zeros(4))
        >>> norms = gradient_norms(gradients)
        >>> float(norms.total), float(norms.recurrent), float(norms.input), norms.readout
        (5.0, 3.0, 4.0, None)
    """
    labels = jax.tree.leaves(parameter_labels(gradients, model))
    # The square of a float16 number above 256 overflows.
    leaves = [
        jnp.asarray(leaf, jnp.promote_types(jnp.result_type(leaf), jnp.float32))
        for leaf in jax.tree.leaves(gradients)
    ]

    def norm_of(*roles):
        chosen = [leaf for leaf, label in zip(leaves, labels, strict=True) if label in roles]
        return jnp.asarray(optax.tree.norm(chosen)) if chosen else None

    return GradientNorms(
        total=jnp.asarray(optax.tree.norm(leaves)),
        recurrent=norm_of("recurrent", "ssm"),
        input=norm_of("input"),
        readout=norm_of("readout"),
    )


def check_roles(roles: Any, name: str = "roles") -> None:
    """Raises unless `roles` is None, a role, or a tree of roles."""
    for role in jax.tree.leaves(roles):
        if not isinstance(role, str):
            raise TypeError(f"{name} must be a role or a tree of roles, got {role!r}.")
        if role not in ROLES:
            raise ValueError(f"{name} must be one of {ROLES} or a tree of them, got {role!r}.")


def _labels(params: Any, roles: Any, name: str) -> Any:
    """The labels of a tree: by the roles given for it, and where those are None by its classes.

    Args:
        params: the tree.
        roles: a tree prefix of it with roles.
        name: what an error calls `roles`.
    """
    if isinstance(roles, str):
        return jax.tree.map(lambda leaf: roles, params)
    if jax.tree_util.all_leaves([params]):
        if roles is not None:
            raise TypeError(f"{name} must be one role for one array, got {roles!r}.")
        return "unlabelled"
    # One level at a time, because the class is known at the node and not at its leaves.
    children = _children(params)
    by_class, class_name = _declared(type(params), children)
    given, declared = _of_each(roles, children, name), _of_each(by_class, children, class_name)

    def labels_of(child):
        if given.get(child) is not None:
            return _labels(children[child], given[child], f"{name}.{child}")
        return _labels(children[child], declared.get(child), f"{class_name}.{child}")

    root = jax.tree.structure(params, is_leaf=lambda node: node is not params)
    return root.unflatten(map(labels_of, children))


def _children(tree: Any) -> dict[str, Any]:
    """The children of the root of a tree, by name or number."""
    paths = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    return {jax.tree_util.keystr(path, simple=True): child for path, child in paths}


def _declared(record: type, fields: Any) -> tuple[Any, str]:
    """The roles that a class declares, and their name in errors."""
    name = f"{record.__name__}.roles"
    # A field that is named `roles` is a parameter, not a declaration.
    roles = None if "roles" in fields else getattr(record, "roles", None)
    check_roles(roles, name)
    return roles, name


def _of_each(roles: Any, children: Any, name: str) -> dict[str, Any]:
    """The roles of the children of a node, by their names."""
    if isinstance(roles, str):
        return dict.fromkeys(children, roles)
    entries = _children(roles)
    unknown = sorted(entries.keys() - children.keys())
    if unknown:
        raise ValueError(f"{name} must name parameters among {[*children]}, got {unknown}.")
    return entries
