import jax
import jax.numpy as jnp
import optax
import pytest
from models import CLASSICAL, MODELS, NUM_INPUTS, make

import jaxrnn as jr

EXPECTED = {
    "min_gru": {"input": "kernel bias"},
    "min_lstm": {"input": "kernel bias"},
    "causal_conv": {"input": "kernel bias"},
    "self_attention": {"input": "kernel", "readout": "output_kernel"},
    "mlstm": {
        "input": "write_kernel write_bias read_kernel read_bias gate_kernel gate_bias",
    },
    "gated_delta_net": {
        "input": "key_kernel query_kernel value_kernel gate_kernel",
        "ssm": "log_rate step_bias",
    },
    "mamba": {
        "input": "kernel conv.kernel conv.bias ssm.kernel ssm.dt_kernel",
        "ssm": "ssm.a_log ssm.dt_bias",
        "readout": "ssm.skip output_kernel",
    },
    "mamba2": {
        "input": "kernel conv.kernel conv.bias",
        "ssm": "ssm.a_log ssm.dt_bias",
        "readout": "ssm.skip norm_scale output_kernel",
    },
    "s4": {
        "input": "input_kernel_real input_kernel_imag",
        "ssm": "decay_log eigenvalue_imag low_rank_real low_rank_imag step_log",
        "readout": "output_kernel_real output_kernel_imag skip",
    },
}


def params_of(record):
    return jax.eval_shape(lambda: record.init(jax.random.key(0), NUM_INPUTS))


def names_by_label(params):
    named = {}
    for path, label in jax.tree_util.tree_flatten_with_path(jr.parameter_labels(params))[0]:
        named.setdefault(label, set()).add(jax.tree_util.keystr(path, simple=True, separator="."))
    return named


@pytest.mark.parametrize("name", EXPECTED)
def test_layers_over_time(name):
    wanted = {label: set(names.split()) for label, names in EXPECTED[name].items()}
    assert names_by_label(params_of(make(name))) == wanted


@pytest.mark.parametrize("name", CLASSICAL | MODELS)
def test_no_model_is_all_readout(name):
    assert set(names_by_label(params_of(make(name)))) & {"input", "recurrent", "ssm"}


def test_what_maps_each_step_by_itself_is_readout_beside_any_mixer():
    (norm, mixer, dense), (_, perceptron) = params_of(jr.block(jr.min_gru(3), NUM_INPUTS))
    stack = {"mixer": [mixer], "others": (norm, dense, perceptron)}
    labels = jr.parameter_labels(stack)
    assert labels["mixer"] == [jr.cells.MinGRUParams("input", "input")]
    assert set(jax.tree.leaves(labels["others"])) == {"readout"}


def test_trees_of_other_kinds():
    @jax.tree_util.register_pytree_node_class
    class Box:
        def __init__(self, *children):
            self.children = children

        def tree_flatten(self):
            return self.children, None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    boxed = jr.parameter_labels(Box({"recurrent": 0.0, "kernel": 0.0}, {"kernel": 0.0}))
    assert boxed.children == ({"recurrent": "recurrent", "kernel": "input"}, {"kernel": "readout"})
    assert jr.parameter_labels(jnp.zeros(3)) == "readout"


def test_optax_gives_every_part_its_own_rule():
    layer = jr.block(jr.mamba(3), NUM_INPUTS)
    params = layer.init(jax.random.key(0), NUM_INPUTS)
    optimizer = optax.multi_transform(
        {"ssm": optax.sgd(1.0), "input": optax.sgd(2.0), "readout": optax.sgd(3.0)},
        jr.parameter_labels,
    )
    ones = jax.tree.map(jnp.ones_like, params)
    updates, _ = optimizer.update(ones, optimizer.init(params), params)
    (_, mamba, dense), _ = updates
    for leaf, rate in ((mamba.ssm.a_log, 1), (mamba.kernel, 2), (dense.kernel, 3)):
        assert (leaf == -rate).all()
