"""Parameters are compared with what `init` makes, before anything runs."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.models import CLASSICAL, MODELS, NUM_INPUTS

import jaxrnn as jr

KEY = jax.random.key(0)
XS = jax.ShapeDtypeStruct((2, 5, NUM_INPUTS), jnp.float32)


def test_reset_after_parameters_do_not_run_in_the_other_gru():
    params = jr.cells.GRUParams(
        jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[0.0, 0.0, 2.0]]), jnp.zeros(3), jnp.ones(1)
    )
    xs = jnp.ones((2, 1))
    after = jr.unroll(jr.gru(1), params, xs).outputs[:, 0]
    np.testing.assert_allclose(after, [0.4526, 0.7065], atol=1e-4)
    before = jr.gru(1, reset_after=False)
    with pytest.raises(
        TypeError, match=r"^params\.recurrent_bias must be None .*got an array \(1,"
    ):
        jr.unroll(before, params, xs)
    outputs = jr.unroll(before, params._replace(recurrent_bias=None), xs).outputs[:, 0]
    np.testing.assert_allclose(outputs, [0.3808, 0.6310], atol=1e-4)


def test_the_options_of_an_lstm_are_not_ignored():
    made = jr.lstm(4).init(KEY, 1)
    for cell, error, match in (
        (
            jr.lstm(7, coupled=True, peephole=True, projection=3),
            TypeError,
            r"params\.peephole must",
        ),
        (jr.lstm(7), ValueError, r"params\.kernel must have the shape \(1, 28\).*got \(1, 16\)"),
        (jr.lstm(4, coupled=True), ValueError, r"params\.kernel must have the shape \(1, 12\)"),
        (jr.gru(4), TypeError, "params must have the structure .*GRUParams.* got .*LSTMParams"),
    ):
        with pytest.raises(error, match=match):
            jr.unroll(cell, made, jnp.ones((2, 1)))


STACKS = {
    "bidirectional": lambda: jr.bidirectional(jr.gru(3)),
    "residual": lambda: jr.residual(jr.gru(NUM_INPUTS)),
    "serial": lambda: jr.serial(jr.lstm(3), jr.layer_norm(), jr.dense(2)),
    "block": lambda: jr.block(jr.gru(NUM_INPUTS), NUM_INPUTS),
    "learned": lambda: jr.learned_initial_carry(jr.zoneout(jr.lstm(3), 0.1)),
    "read backwards": lambda: jr.recurrent(jr.gru(3), reverse=True),
    "input feeding": lambda: jr.input_feeding(jr.gru(3), jr.additive_score(2), 5, 4),
}
EVERY = {name: functools.partial(make, jnp.float32) for name, make in (CLASSICAL | MODELS).items()}
EVERY |= STACKS


@pytest.mark.parametrize("name", EVERY)
def test_every_model_names_the_leaf(name):
    model = EVERY[name]()
    made = jax.eval_shape(lambda key: model.init(key, NUM_INPUTS), KEY)
    run = functools.partial(jax.eval_shape, functools.partial(jr.unroll, model))
    paths, tree = jax.tree_util.tree_flatten_with_path(made)
    for number, (path, leaf) in enumerate(paths):
        leaves = [leaf for _, leaf in paths]
        named = rf"^params{jax.tree_util.keystr(path)}".replace("[", r"\[").replace(".", r"\.")
        dtype = jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.integer) else jnp.int32
        for shape, other_dtype, error in (
            ((1, *leaf.shape), leaf.dtype, ValueError),
            (tuple(size + 1 for size in leaf.shape) or (1,), leaf.dtype, ValueError),
            (leaf.shape, dtype, TypeError),
        ):
            leaves[number] = jax.ShapeDtypeStruct(shape, other_dtype)
            with pytest.raises(error, match=rf"{named} must (be|have)"):
                run(tree.unflatten(leaves), XS)
    for wrong in (list(jax.tree.leaves(made)), {"params": made}, None):
        with pytest.raises(TypeError, match="^params must"):
            run(wrong, XS)
    with pytest.raises(TypeError, match="^xs must be one array, got {'x'"):
        run(made, {"x": XS})


def test_every_way_to_run_a_model_compares():
    cell, wrong = jr.gru(NUM_INPUTS), jr.gru(5).init(KEY, NUM_INPUTS)
    xs, match = jnp.ones((2, 3, NUM_INPUTS)), r"^params\.kernel must have the shape \(4, 12\)"

    def loss(params, batch, key):
        return jr.unroll(cell, params, batch, key=key).outputs.sum(), {}

    optimizer = optax.sgd(0.1)
    for run in (
        lambda: jax.jit(functools.partial(jr.unroll, cell))(wrong, xs),
        lambda: jr.unroll(cell, wrong, xs, evaluator=jr.newton()),
        lambda: jr.unroll(cell, wrong, xs, reverse=True, mask=np.ones((2, 3))),
        lambda: jr.step(cell, wrong, None, xs[:, 0]),
        lambda: jr.carries(cell, wrong, xs),
        lambda: jr.free_run(cell, wrong, xs, 2),
        lambda: jr.teacher_forced(cell, wrong, xs),
        lambda: jr.scheduled_sampling(cell, wrong, xs, 0.5, key=KEY),
        lambda: jr.impute(cell, wrong, xs, np.zeros((2, 3), bool)),
        lambda: jr.make_train_step(loss, optimizer)(jr.TrainState.create(wrong, optimizer), xs),
        lambda: jr.diagnostics.carry_norms(cell, wrong, xs),
        lambda: jr.diagnostics.carry_jacobians(cell, wrong, xs),
        lambda: jr.diagnostics.input_sensitivity(cell, wrong, xs),
        lambda: jr.diagnostics.saturation(cell, wrong, xs),
        lambda: jr.diagnostics.count_cost(cell, wrong, xs),
    ):
        with pytest.raises(ValueError, match=match):
            run()
    with pytest.raises(ValueError, match=r"^params\.kernel must have the shape \(\*, 12\)"):
        jr.diagnostics.state_capacity_bits(cell, wrong)


def test_tokens_and_trees_do_not_show_their_number():
    model = jr.serial(jr.embed(3), jr.gru(4), jr.dense(2))
    params, tokens = model.init(KEY, 9), jnp.zeros((2, 5), int)
    for run in (
        lambda params: jr.unroll(model, params, tokens),
        lambda params: jr.generate(model, params, tokens, 2),
        lambda params: jr.beam_search(
            model, params, None, tokens[:, 0], beams=2, max_steps=2, stop_token=None
        ),
    ):
        jax.eval_shape(run, model.init(KEY, 7))
        with pytest.raises(ValueError, match=r"^params\[1\]\.kernel must have the shape \(3, 12\)"):
            run((params[0], jr.gru(5).init(KEY, 3), params[2]))
        with pytest.raises(ValueError, match=r"^params\[0\]\.table must have the shape \(\*, 3\)"):
            run((jr.embed(4).init(KEY, 9), *params[1:]))
    timed = jr.s5(4, 4, timed=True)
    xs = jr.Timed(jnp.ones((5, 2)), jnp.ones(5))
    jax.eval_shape(lambda params: jr.unroll(timed, params, xs), timed.init(KEY, 2))
    with pytest.raises(ValueError, match=r"^params\.\w+ must have the shape"):
        jr.unroll(timed, jr.s5(4, 6, timed=True).init(KEY, 2), xs)


def test_both_parts_of_an_encoder_decoder_are_compared():
    def make(encoder=3, readout=6, **options):
        layers = jr.serial(jr.embed(2), jr.gru(encoder)), jr.serial(jr.embed(2), jr.gru(3))
        options = {"attention": jr.dot_score(2), "bridge": jr.dense_bridge()} | options
        return jr.encoder_decoder(*layers, jr.dense(readout), **options)

    model, source, xs = make(), jnp.zeros((1, 4), int), jnp.zeros((1, 3), int)
    assert model == make() != make(attention=jr.dot_score(3)) and hash(model) == hash(make())
    assert pickle.loads(pickle.dumps(model)) == model
    assert repr(make(bridge=None)).startswith("encoder_decoder(serial(embed(2), gru(3)), serial(")
    params = model.init(KEY, 8, 6)
    jax.eval_shape(lambda params: model.teacher_forced(params, source, xs), params)
    jax.eval_shape(lambda params: model.teacher_forced(params, source, xs), model.init(KEY, 9, 7))
    for wrong, error, match in (
        (make(encoder=4).init(KEY, 8, 6), ValueError, r"params\.encoder\[1\]\.kernel must"),
        (make(readout=5).init(KEY, 8, 6), ValueError, r"params\.decoder\[2\]\.kernel must"),
        (
            params._replace(decoder=params.decoder[:2]),
            TypeError,
            r"params\.decoder must have the st",
        ),
        (params._replace(bridge=None), TypeError, r"params\.bridge must have the structure"),
        (tuple(params), TypeError, "params must have the structure .*EncoderDecoderParams"),
    ):
        for run in (
            lambda wrong: model.encode(wrong, source),
            lambda wrong: model.teacher_forced(wrong, source, xs),
            lambda wrong: model.generate(wrong, source, xs, 2),
        ):
            with pytest.raises(error, match=match):
                run(wrong)


@jax.tree_util.register_pytree_node_class
class Activated:
    """Parameters whose class holds a function: two of them never have the same structure."""

    def __init__(self, rate, function):
        self.rate, self.function = rate, function

    def tree_flatten(self):
        return (self.rate,), self.function

    @classmethod
    def tree_unflatten(cls, function, children):
        return cls(*children, function)


def test_what_cannot_be_compared_runs():
    def advance(params, carry, z):
        return carry + z

    def read(params, carry, z):
        return carry + params.function(params.rate) * z

    drawn = jr.simple_cell(lambda key, n: np.float32(float(jax.random.uniform(key))), advance, 2)
    activated = jr.simple_cell(lambda key, n: Activated(jnp.ones(2), lambda u: 2 * u), read, 2)
    empty = jr.simple_cell(lambda key, n: (), advance, 2)
    of_even = jr.rg_lru(2)
    numbers = jr.simple_cell(lambda key, n: {"rate": 0.5}, advance, 2)
    for cell in (drawn, activated, empty, of_even, numbers):
        params = cell.init(KEY, 2)
        assert jr.unroll(cell, params, jnp.ones((3, 2))).outputs.shape == (3, 2)
    assert jr.unroll(numbers, {"rate": jnp.float32(2)}, jnp.ones((3, 2))).outputs.shape == (3, 2)


def test_members_of_an_ensemble_and_other_dtypes_run():
    cell, xs = jr.gru(3), jnp.ones((4, 2))
    ensemble = jax.vmap(lambda key: cell.init(key, 2))(jax.random.split(KEY, 5))
    outputs = jax.vmap(lambda params: jr.unroll(cell, params, xs).outputs)(ensemble)
    assert outputs.shape == (5, 4, 3)
    with pytest.raises(ValueError, match=r"params\.kernel must have .*got \(5, 2, 9\)"):
        jr.unroll(cell, ensemble, xs)
    params = cell.init(KEY, 2)
    for cast in (np.asarray, lambda leaf: leaf.astype(jnp.bfloat16), lambda leaf: np.float64(leaf)):
        assert jr.unroll(cell, jax.tree.map(cast, params), xs).outputs.shape == (4, 3)


def test_the_comparison_is_kept_for_equal_models():
    traces = []

    def init(key, num_inputs):
        traces.append(num_inputs)
        return jnp.ones(num_inputs)

    for _ in range(3):
        cell = jr.simple_cell(init, add, 2)
        jr.unroll(cell, jnp.ones(2), jnp.ones((3, 2)))
    assert traces == [2]


def add(params, carry, z):
    return carry + params * z


class Foreign:
    """An array of another library, which numpy and JAX would convert."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = np.asarray(array), array.shape, array.dtype

    def __array__(self, dtype=None, copy=None):
        return self.array


def calls(make):
    """Calls of public functions with one argument that `make` changed, by its name in the error."""
    cell = jr.gru(3)
    params, xs = cell.init(KEY, 2), np.ones((2, 4, 2), np.float32)
    carry, flags = cell.initial_carry(params, (2,)), np.ones((2, 4), bool)
    labels, logits = np.zeros((2, 4), int), np.ones((2, 4, 3), np.float32)
    lm = jr.serial(jr.embed(3), jr.dense(4))
    lm_params, tokens = lm.init(KEY, 4), np.zeros((2, 3), int)
    other = params._replace(bias=make(params.bias))
    yield "params.bias", lambda: jr.unroll(cell, other, xs)
    yield "xs", lambda: jr.unroll(cell, params, make(xs))
    yield "carry.h", lambda: jr.unroll(cell, params, xs, carry=carry._replace(h=make(carry.h)))
    yield "carry.h", lambda: jr.step(cell, params, carry._replace(h=make(carry.h)), xs[:, 0])
    yield "x", lambda: jr.step(cell, params, carry, make(xs[:, 0]))
    yield "carry.h", lambda: jr.carries(cell, params, xs, carry=jr.cells.GRUCarry(make(carry.h)))
    starts = jr.cells.GRUCarry(make(np.zeros((2, 1, 3), np.float32)))
    yield "starts.h", lambda: jr.unroll(cell, params, xs, starts=starts, reset=~flags)
    yield "prompt", lambda: jr.generate(lm, lm_params, make(tokens), 2)
    yield "prompt", lambda: jr.free_run(cell, params, make(xs), 2)
    yield "xs", lambda: jr.scheduled_sampling(cell, params, make(xs), 0.5, key=KEY)
    yield "xs", lambda: jr.diagnostics.carry_norms(cell, params, make(xs))
    yield "xs", lambda: jr.shift_targets(make(xs))
    yield "ys", lambda: jr.mean_valid(make(xs), flags)
    if make is Foreign:
        yield "mask", lambda: jr.unroll(cell, params, xs, mask=make(flags))
        yield "reset", lambda: jr.unroll(cell, params, xs, reset=make(flags))
        yield "mask", lambda: jr.mean_valid(xs, make(flags))
        yield "mask", lambda: jr.mean_over_steps(xs[..., 0], make(flags))
        yield "losses", lambda: jr.mean_over_steps(make(xs[..., 0]))
        yield "weights", lambda: jr.mean_over_steps(xs[..., 0], weights=make(xs[..., 0]))
        yield "logits", lambda: jr.cross_entropy(make(logits), labels)
        yield "labels", lambda: jr.cross_entropy(logits, make(labels))
        yield "logits", lambda: jr.next_token(make(logits))
        yield "seq_lengths", lambda: jr.mask_from_lengths(make(labels[:, 0]), 4)
        yield "b", lambda: jr.linear_scan(xs, make(xs))
        yield "matrix", lambda: jr.diagnostics.spectral_radius(make(np.eye(2)))
        yield r"sequences\[0\]", lambda: jr.pack([make(xs[0])])


@pytest.mark.parametrize("make", [Foreign, lambda array: np.asarray(array).tolist()])
def test_arrays_of_another_library_and_lists_of_numbers_are_named(make):
    for name, call in calls(make):
        with pytest.raises(TypeError, match=rf"^{name} must be an array"):
            call()


def test_parameters_show_a_width_that_the_inputs_do_not():
    """A size of 1 would be broadcast; where an init makes several sizes all must fit one width."""
    tied, observing = jr.tied_embed(2, jr.gru(2)), jr.gru_d(2)
    tokens, xs = jnp.ones(3, int), jr.Observations(jnp.ones((3, 2)), jnp.ones((3, 2)), jnp.ones(3))
    key = jax.random.key(0)
    one = jnp.ones(1)
    with pytest.raises(ValueError, match=r"params\.bias must have the shape \(5,\).*, got \(1,"):
        jr.unroll(tied, tied.init(key, 5)._replace(bias=one), tokens)
    with pytest.raises(ValueError, match=r"params\.mean must have the shape \(2,\).*, got \(1,"):
        jr.unroll(observing, observing.init(key, 2)._replace(mean=one), xs)

    # A size that stops at 3 is no width, whatever the parameters are made for.
    def low_rank(key, num_inputs):
        rank = min(num_inputs, 3)
        return {"a": jnp.ones((rank, 2)), "b": jnp.ones((num_inputs, rank))}

    def total(params, carry, z):
        return carry + z["x"] @ params["b"] @ params["a"]

    cell = jr.simple_cell(low_rank, total, 2)._replace(num_feature_axes={"x": 1})
    params, wide = cell.init(key, 8), {"x": jnp.ones((3, 8))}
    assert jr.unroll(cell, params, wide).outputs[0].tolist() == [24, 24]
    with pytest.raises(ValueError, match=r"params\['b'\] must have the shape \(8, 3\)"):
        jr.unroll(cell, params | {"b": jnp.ones((8, 2))}, wide)
