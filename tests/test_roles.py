from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from support.models import CLASSICAL, MODELS, NUM_INPUTS, make

import jaxrnn as jr

ROLES = {
    "elman": {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    "lstm": {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    "gru": {"input": "kernel bias", "recurrent": "recurrent_kernel recurrent_bias"},
    "mgu": {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    "para_gru": {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    "para_lstm": {"input": "kernel bias", "recurrent": "recurrent_kernel peephole"},
    "ema": {"ssm": "decay_logit"},
    "diagonal_rnn": {"input": "kernel bias eigenvalue_kernel", "ssm": "eigenvalue_logit"},
    "lru": {
        "input": "kernel_real kernel_imag",
        "ssm": "nu_log theta_log gamma_log",
        "readout": "output_kernel_real output_kernel_imag skip_kernel",
    },
    "s4d": {
        "ssm": "decay_log eigenvalue_imag step_log",
        "readout": "output_kernel_real output_kernel_imag skip",
    },
    "s5": {
        "input": "kernel_real kernel_imag",
        "ssm": "decay_log eigenvalue_imag step_log",
        "readout": "output_kernel_real output_kernel_imag skip_kernel",
    },
    "rg_lru": {"input": "gate_kernel gate_bias", "ssm": "eigenvalue_logit"},
    "min_gru": {"input": "kernel bias"},
    "min_lstm": {"input": "kernel bias"},
    "s6": {"input": "kernel dt_kernel", "ssm": "dt_bias a_log", "readout": "skip"},
    "slstm": {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    "convolutional": {
        "ssm": "decay_log eigenvalue_imag step_log",
        "readout": "output_kernel_real output_kernel_imag skip",
    },
    "s4": {
        "input": "input_kernel_real input_kernel_imag",
        "ssm": "decay_log eigenvalue_imag low_rank_real low_rank_imag step_log",
        "readout": "output_kernel_real output_kernel_imag skip",
    },
    "causal_conv": {"input": "kernel bias"},
    "griffin_block": {
        "input": "kernel bias conv.kernel conv.bias lru.gate_kernel lru.gate_bias",
        "ssm": "lru.eigenvalue_logit",
        "readout": "output_kernel output_bias",
    },
    "mamba": {
        "input": "kernel conv.kernel conv.bias ssm.kernel ssm.dt_kernel",
        "ssm": "ssm.dt_bias ssm.a_log",
        "readout": "ssm.skip output_kernel",
    },
    "mamba2": {
        "input": "kernel conv.kernel conv.bias",
        "ssm": "ssm.a_log ssm.dt_bias",
        "readout": "ssm.skip norm_scale output_kernel",
    },
    "mlstm": {"input": "write_kernel write_bias read_kernel read_bias gate_kernel gate_bias"},
    "mlstm_block": {
        "input": "kernel conv.kernel conv.bias qkv_kernel memory.gate_kernel memory.gate_bias",
        "readout": "memory.norm_scale skip output_kernel",
    },
    "slstm_block": {
        "input": "conv.kernel conv.bias slstm.kernel slstm.bias",
        "recurrent": "slstm.recurrent_kernel",
        "readout": "norm_scale",
    },
    "gated_delta_net": {
        "input": "key_kernel query_kernel value_kernel gate_kernel",
        "ssm": "log_rate step_bias",
    },
    "self_attention": {"input": "kernel", "readout": "output_kernel"},
}

RECURRENT_CELL = {"input": "kernel bias", "recurrent": "recurrent_kernel recurrent_bias"}
# While roles were guessed from names, all of a score was "readout": nothing in it had a known name.
ADDITIVE_SCORE = {"input": "query_kernel key_kernel bias", "readout": "score_kernel"}
OTHERS = {
    "every variant of the LSTM": (
        jr.lstm(4, peephole=True, projection=2, layer_norm=True),
        {
            "input": "kernel bias norm.input_scale norm.cell_scale norm.cell_offset",
            "recurrent": "recurrent_kernel peephole projection_kernel norm.recurrent_scale",
        },
    ),
    "a GRU that resets before": (
        jr.gru(4, reset_after=False),
        {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    ),
    "a convolutional LSTM": (
        jr.conv_lstm(2, (3,)),
        {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    ),
    "a convolutional GRU": (
        jr.conv_gru(2, (3, 3)),
        {"input": "kernel bias", "recurrent": "recurrent_kernel"},
    ),
    "GRU-D": (
        jr.gru_d(2),
        {
            "input": "kernel observed_kernel bias input_decay_scale input_decay_bias mean",
            "recurrent": "recurrent_kernel decay_kernel decay_bias",
        },
    ),
    "a learned carry of complex parts": (
        jr.learned_initial_carry(jr.lru(3, 3)),
        {
            "input": "cell.kernel_real cell.kernel_imag",
            "recurrent": "initial_carry.h.real initial_carry.h.imag",
            "ssm": "cell.nu_log cell.theta_log cell.gamma_log",
            "readout": "cell.output_kernel_real cell.output_kernel_imag cell.skip_kernel",
        },
    ),
    "zoneout": (jr.zoneout(jr.gru(4), 0.1), RECURRENT_CELL),
    "recurrent dropout": (jr.recurrent_dropout(jr.gru(4), 0.1), RECURRENT_CELL),
    "a layer of a cell": (jr.recurrent(jr.gru(4)), RECURRENT_CELL),
    "a skip": (jr.residual(jr.gru(NUM_INPUTS)), RECURRENT_CELL),
    "a stack": (
        jr.serial(jr.embed(3), jr.dropout(0.1), jr.elman(4), jr.layer_norm(), jr.dense(2)),
        {
            "input": "0.table 2.kernel 2.bias",
            "recurrent": "2.recurrent_kernel",
            "readout": "3.scale 3.offset 4.kernel 4.bias",
        },
    ),
    "both directions": (
        jr.bidirectional(jr.elman(3), jr.ema()),
        {
            "input": "forward.kernel forward.bias",
            "recurrent": "forward.recurrent_kernel",
            "ssm": "backward.decay_logit",
        },
    ),
    "a block": (
        jr.block(jr.min_gru(3), NUM_INPUTS),
        {
            "input": "0.1.kernel 0.1.bias",
            "readout": "0.0.scale 0.0.offset 0.2.kernel 1.0.scale 1.0.offset "
            "1.1.gate_kernel 1.1.value_kernel 1.1.output_kernel",
        },
    ),
    "attention to a source": (jr.cross_attention(jr.additive_score(3), 4, 5), ADDITIVE_SCORE),
    "a cell that attends": (
        jr.attention_cell(jr.elman(3), jr.dot_score(3), 4, 5),
        {
            "input": "cell.kernel cell.bias score.query_kernel score.key_kernel",
            "recurrent": "cell.recurrent_kernel",
        },
    ),
}


def params_of(record):
    return jax.eval_shape(lambda: record.init(jax.random.key(0), NUM_INPUTS))


def names_by_label(labels):
    named = {}
    for path, label in jax.tree_util.tree_flatten_with_path(labels)[0]:
        named.setdefault(label, set()).add(jax.tree_util.keystr(path, simple=True, separator="."))
    return named


def assert_roles(params, wanted, model=None):
    found = names_by_label(jr.parameter_labels(params, model))
    assert found == {label: set(names.split()) for label, names in wanted.items()}


@pytest.mark.parametrize("name", CLASSICAL | MODELS)
def test_roles_of_every_model(name):
    assert_roles(params_of(make(name)), ROLES[name])
    assert_roles(params_of(make(name)), ROLES[name], make(name))


@pytest.mark.parametrize("name", OTHERS)
def test_roles_of_what_is_made_of_models(name):
    model, wanted = OTHERS[name]
    assert_roles(params_of(model), wanted)
    assert_roles(params_of(model), wanted, model)


def test_roles_of_an_encoder_and_a_decoder():
    half = jr.serial(jr.embed(3), jr.elman(4))
    model = jr.encoder_decoder(half, half, jr.dense(5), attention=jr.dot_score(3))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), 5, 5))
    cells = ("encoder.1", "decoder.0.1")
    wanted = {
        "input": [f"{cell}.{name}" for cell in cells for name in ("kernel", "bias")]
        + ["encoder.0.table", "decoder.0.0.table"]
        + ["decoder.1.query_kernel", "decoder.1.key_kernel"],
        "recurrent": [f"{cell}.recurrent_kernel" for cell in cells],
        "readout": ["decoder.2.kernel", "decoder.2.bias"],
    }
    wanted = {label: " ".join(names) for label, names in wanted.items()}
    assert_roles(params, wanted)
    assert_roles(params, wanted, model)


def test_what_maps_each_step_by_itself_is_readout_beside_any_mixer():
    (norm, mixer, dense), (_, perceptron) = params_of(jr.block(jr.min_gru(3), NUM_INPUTS))
    stack = {"mixer": [mixer], "others": (norm, dense, perceptron)}
    labels = jr.parameter_labels(stack)
    assert labels["mixer"] == [jr.cells.MinGRUParams("input", "input")]
    assert set(jax.tree.leaves(labels["others"])) == {"readout"}


def leaky(roles=None, width=NUM_INPUTS):
    """A cell whose parameters have no class of their own."""

    def init(key, num_inputs):
        return {"kernel": jnp.ones((num_inputs, width)), "rate": jnp.full(width, 0.5)}

    def advance(params, carry, z):
        return params["rate"] * carry + z @ params["kernel"]

    return jr.simple_cell(init, advance, width, roles=roles)


LEAKY = {"kernel": "input", "rate": "ssm"}
EMBEDDED = {
    "a layer": (jr.recurrent, LEAKY),
    "a learned carry": (
        jr.learned_initial_carry,
        jr.cells.LearnedInitialCarryParams(LEAKY, "recurrent"),
    ),
    "zoneout": (lambda cell: jr.zoneout(cell, 0.1), LEAKY),
    "a skip": (jr.residual, LEAKY),
    "a stack": (
        lambda cell: jr.serial(jr.dropout(0.1), cell, jr.dense(2)),
        ((), LEAKY, jr.layers.DenseParams("readout", "readout")),
    ),
    "both directions": (
        lambda cell: jr.bidirectional(cell, jr.ema()),
        jr.layers.Directions(LEAKY, jr.cells.EMAParams("ssm")),
    ),
    "a cell that attends": (
        lambda cell: jr.attention_cell(cell, jr.dot_score(3), 4, 5),
        jr.seq2seq.AttentionCellParams(LEAKY, jr.seq2seq.DotScoreParams("input", "input")),
    ),
}


@pytest.mark.parametrize("name", EMBEDDED)
def test_what_embeds_a_cell_passes_its_roles_on(name):
    embed, wanted = EMBEDDED[name]
    model = embed(leaky(LEAKY))
    assert jr.parameter_labels(params_of(model), model) == wanted


def test_all_of_a_stack_of_stacks_and_blocks():
    model = jr.serial(jr.block(leaky(LEAKY), NUM_INPUTS), leaky("recurrent"), leaky())
    (mixed, _), known, unknown = jr.parameter_labels(params_of(model), model)
    assert mixed[1] == LEAKY
    assert known == {"kernel": "recurrent", "rate": "recurrent"}
    assert unknown == {"kernel": "unlabelled", "rate": "unlabelled"}


def test_an_encoder_and_a_decoder_pass_roles_on():
    cell = jr.serial(jr.embed(NUM_INPUTS), leaky(LEAKY))
    score = jr.dot_score(3)._replace(roles="readout")
    options = {"attention": score, "attention_cell": leaky({"rate": "ssm"})}
    model = jr.encoder_decoder(
        cell, jr.embed(2), jr.dense(5), bridge=lambda carry: carry[-1], **options
    )
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), 5, 5))
    labels = jr.parameter_labels(params, model)
    assert labels.encoder[1] == LEAKY
    assert labels.decoder[1].cell == {"kernel": "unlabelled", "rate": "ssm"}
    assert labels.decoder[1].score == jr.seq2seq.DotScoreParams("readout", "readout")


def test_roles_are_compared_by_value():
    def cell(roles):
        return jr.simple_cell(len, max, 1, roles=roles)

    assert cell({"rate": "ssm"}) == cell({"rate": "ssm"}) != cell({"rate": "input"})
    assert hash(cell({"rate": "ssm"})) == hash(cell({"rate": "ssm"}))


def test_what_nobody_declares_is_unlabelled():
    params = params_of(leaky())
    assert set(jr.parameter_labels(params).values()) == {"unlabelled"}
    assert jr.parameter_labels(params, leaky({"rate": "ssm"}))["kernel"] == "unlabelled"
    assert jr.parameter_labels(params, leaky(LEAKY)) == LEAKY


def test_a_model_counts_before_the_classes_of_its_parameters():
    cell = jr.gru(3)._replace(roles={"recurrent_bias": "input"})
    labels = jr.parameter_labels(params_of(cell), cell)
    assert labels == jr.cells.GRUParams("input", "recurrent", "input", "input")
    cell = jr.lstm(3, layer_norm=True)._replace(roles={"norm": "readout"})
    labels = jr.parameter_labels(params_of(cell), cell)
    assert set(labels.norm) == {"readout"} and labels.recurrent_kernel == "recurrent"


@pytest.mark.parametrize(
    ("roles", "error", "message"),
    [
        ("recurent", ValueError, "roles must be one of .*, got 'recurent'"),
        ({"kernel": "input", "rate": "unlabelled"}, ValueError, "roles must be .*'unlabelled'"),
        ({"kernel": 3}, TypeError, "roles must be a role or a tree of roles, got 3"),
    ],
)
def test_words_are_checked_where_they_are_given(roles, error, message):
    with pytest.raises(error, match=message):
        leaky(roles)


@pytest.mark.parametrize(
    ("roles", "error", "message"),
    [
        ({"weight": "input"}, ValueError, r"model.roles must name .*'rate'\], got \['weight'\]"),
        (("input", "ssm"), ValueError, r"model.roles must name parameters .* got \['0', '1'\]"),
        ({"rate": {"h": "ssm"}}, TypeError, r"model.roles.rate must be one role for one array"),
    ],
)
def test_roles_must_fit_the_parameters(roles, error, message):
    cell = leaky(roles)
    with pytest.raises(error, match=message):
        jr.parameter_labels(params_of(cell), cell)
    with pytest.raises(error, match=message):
        jr.gradient_norms(cell.init(jax.random.key(0), NUM_INPUTS), cell)


def test_mistakes_of_a_class_name_the_class():
    class Misspelt(NamedTuple):
        kernel: Any
        roles = {"kernal": "input"}

    class Unknown(NamedTuple):
        kernel: Any
        roles = "weights"

    with pytest.raises(ValueError, match=r"Misspelt.roles must name .* got \['kernal'\]"):
        jr.parameter_labels({"cell": Misspelt(jnp.ones(2))})
    with pytest.raises(ValueError, match="Unknown.roles must be one of .* got 'weights'"):
        jr.parameter_labels([Unknown(jnp.ones(2))])
    with pytest.raises(TypeError, match="model must be a Cell or a Layer, got function"):
        jr.parameter_labels({}, leaky)


def test_a_field_named_roles_is_a_parameter():
    class Cast(NamedTuple):
        roles: Any
        kernel: Any = None

    assert jr.parameter_labels(Cast(jnp.ones(2))).roles == "unlabelled"


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

    params = Box(jr.cells.EMAParams(0.0), {"kernel": 0.0, "rates": [0.0, 0.0]})
    unlabelled = {"kernel": "unlabelled", "rates": ["unlabelled"] * 2}
    assert jr.parameter_labels(params).children == (jr.cells.EMAParams("ssm"), unlabelled)
    roles = Box(None, {"kernel": "input", "rates": "ssm"})
    labels = jr.parameter_labels(params, leaky(roles))
    expected = {"kernel": "input", "rates": ["ssm", "ssm"]}
    assert labels.children == (jr.cells.EMAParams("ssm"), expected)
    assert jr.parameter_labels(jnp.zeros(3)) == "unlabelled"
    assert jr.parameter_labels(()) == () and jr.parameter_labels(None) is None


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
