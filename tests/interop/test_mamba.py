"""Arrays of Mamba and Mamba-2 in and out: the equations of their code, round trips and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.pages import DOCS, run

import jaxrnn as jr
from jaxrnn.interop import from_mamba, to_mamba

D, H, N, W, T, HEADS, V = 3, 12, 2, 3, 7, 4, 11
MAMBA = {
    "in_proj.weight": (2 * H, D),
    "conv1d.weight": (H, 1, W),
    "conv1d.bias": (H,),
    "x_proj.weight": (2 + 2 * N, H),
    "dt_proj.weight": (H, 2),
    "dt_proj.bias": (H,),
    "A_log": (H, N),
    "D": (H,),
    "out_proj.weight": (D, H),
}


def mamba2_shapes(groups=1):
    mixed = H + 2 * groups * N
    return {
        "in_proj.weight": (H + mixed + HEADS, D),
        "conv1d.weight": (mixed, 1, W),
        "conv1d.bias": (mixed,),
        "dt_bias": (HEADS,),
        "A_log": (HEADS,),
        "D": (HEADS,),
        "norm.weight": (H,),
        "out_proj.weight": (D, H),
    }


def draw(shapes, dtype=np.float32):
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def language_model(shapes, *, table="backbone.embedding.weight", tied=True):
    layers = {f"backbone.layers.{i}.norm.weight": (D,) for i in range(2)}
    layers |= {
        f"backbone.layers.{i}.mixer.{name}": shape
        for i in range(2)
        for name, shape in shapes.items()
    }
    arrays = draw({table: (V, D)} | layers | {"backbone.norm_f.weight": (D,)})
    readout = arrays[table] if tied else arrays[table] + 1
    return arrays | {"lm_head.weight": readout}


def same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def silu(u):
    return u / (1 + np.exp(-u))


def mamba2_of_its_names(arrays, xs, groups, before_gate, limit):
    """The forward pass of `Mamba2` of mamba_ssm, step by step, on one row."""
    conv, width = arrays["conv1d.weight"][:, 0], H // HEADS
    past, states, ys = np.zeros((len(conv), W)), np.zeros((HEADS, width, N)), []
    skip = np.broadcast_to(arrays["D"].reshape(HEADS, -1), (HEADS, width))
    for x in xs:
        z, mixed, dt = np.split(
            arrays["in_proj.weight"] @ x + arrays.get("in_proj.bias", 0), [H, H + len(conv)]
        )
        past = np.concatenate([past[:, 1:], mixed[:, None]], axis=1)
        mixed = silu((past * conv).sum(1) + arrays.get("conv1d.bias", 0))
        u, b, c = np.split(mixed, [H, H + groups * N])
        u = u.reshape(HEADS, width)
        b, c = (np.repeat(part.reshape(groups, N), HEADS // groups, axis=0) for part in (b, c))
        dt = np.clip(np.log1p(np.exp(dt + arrays["dt_bias"])), *limit)
        decay = np.exp(-dt * np.exp(arrays["A_log"]))
        states = decay[:, None, None] * states + np.einsum("h,hp,hn->hpn", dt, u, b)
        y = (np.einsum("hpn,hn->hp", states, c) + skip * u).ravel()
        y = y if before_gate else y * silu(z)
        if "norm.weight" in arrays:
            grouped = y.reshape(groups, -1)
            grouped = grouped / np.sqrt((grouped**2).mean(1, keepdims=True) + 1e-5)
            y = grouped.ravel() * arrays["norm.weight"]
        y = y * silu(z) if before_gate else y
        ys.append(arrays["out_proj.weight"] @ y + arrays.get("out_proj.bias", 0))
    return np.array(ys)


@pytest.mark.parametrize("before_gate", [False, True])
def test_mamba2_is_the_equations_of_its_code(x64, before_gate):
    groups, limit = 2, [0.5, 1.5]
    shapes = mamba2_shapes(groups) | {"in_proj.bias": (2 * H + 2 * groups * N + HEADS,)}
    shapes |= {"out_proj.bias": (D,), "D": (H,)}
    if not before_gate:
        del shapes["norm.weight"], shapes["conv1d.bias"]
    arrays = draw(shapes, np.float64)
    config = {"ngroups": groups, "norm_before_gate": before_gate, "dt_limit": limit}
    model, params, carry = from_mamba(arrays, config | {"rmsnorm": before_gate, "d_state": N})
    assert carry is None
    xs = np.random.default_rng(1).normal(size=(2, T, D))
    got = jr.unroll(model, params, xs).outputs
    want = [mamba2_of_its_names(arrays, row, groups, before_gate, limit) for row in xs]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    same(to_mamba(model, params), arrays)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_blocks_come_back_bit_for_bit(dtype):
    arrays = draw(MAMBA, dtype)
    model, params, _ = from_mamba(arrays)
    assert model == jr.mamba(N, expansion=4, conv_width=W, dt_rank=2)
    same(to_mamba(model, params), arrays)
    # One block of a file, by its prefix.
    whole = {f"layers.1.mixer.{name}": array for name, array in arrays.items()} | {"other": 0}
    same(to_mamba(*from_mamba(whole, prefix="layers.1.mixer.")[:2]), arrays)
    arrays = draw(mamba2_shapes(), dtype)
    model, params, _ = from_mamba(arrays, {})
    assert model == jr.mamba2(N, head_width=3, expansion=4, conv_width=W)
    same(to_mamba(model, params), arrays)


@pytest.mark.parametrize("tied", [True, False])
def test_language_models_come_back_and_go_on_from_their_cache(tied):
    arrays = language_model(MAMBA, tied=tied)
    config = {"d_model": D, "n_layer": 2, "vocab_size": V - 1, "ssm_cfg": {"d_state": N}}
    config |= {"rms_norm": True, "tie_embeddings": tied, "pad_vocab_size_multiple": V}
    model, params, _ = from_mamba(arrays, config)
    mixer = jr.mamba(N, expansion=4, conv_width=W, dt_rank=2)
    norm = jr.rms_norm(1e-5)
    layers = jr.repeat(jr.residual(jr.serial(norm, mixer)), 2), norm
    readout = jr.dense(V, use_bias=False)
    alone = jr.serial(jr.embed(D), *layers, readout)
    assert model == (jr.tied_embed(D, *layers, use_bias=False) if tied else alone)
    same(to_mamba(model, params), arrays)
    tokens = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    before = jr.unroll(model, params, tokens[:, :3])
    states = (before.carry[0] if tied else before.carry[1])[1]
    # What a cache of the package holds: W steps, the oldest of which nobody needs any more.
    steps = jnp.swapaxes(states.conv.steps, -1, -2)
    steps = jnp.concatenate([jnp.full_like(steps[..., :1], 9.0), steps], axis=-1)
    cache = {i: (steps[:, i], states.ssm.h[:, i]) for i in range(2)}
    carry = from_mamba(arrays, config, cache=cache).carry
    jax.tree.map(np.testing.assert_array_equal, carry, before.carry)


def test_files_without_the_readout_are_tied():
    arrays = language_model(mamba2_shapes(), table="backbone.embeddings.weight")
    config = {"model_type": "mamba2", "hidden_size": D, "n_groups": 1, "num_heads": HEADS}
    config |= {"head_dim": 3, "layer_norm_epsilon": 0.1, "time_step_rank": 1, "chunk_size": 4}
    config |= {"time_step_limit": [0.0, {"__float__": "Infinity"}], "hidden_act": "silu"}
    want = from_mamba(arrays, config)
    apart = from_mamba(arrays, config | {"tie_word_embeddings": False})
    assert repr(apart.model).startswith("serial(embed(")
    del arrays["lm_head.weight"]
    model, params, _ = from_mamba(arrays, config)
    assert model == want.model and isinstance(params, jr.layers.TiedEmbedParams)
    assert "rms_norm(0.1)" in repr(model) and "norm_epsilon=0.1" in repr(model)
    with pytest.raises(ValueError, match="has no array 'lm_head.weight'"):
        from_mamba(arrays, config | {"tie_word_embeddings": False})


WRONG_CONFIGS = {
    "d_state": ({"d_state": 5}, "config says 'd_state' is 5, but by the arrays it is 2"),
    "two names": ({"state_size": 5, "d_state": 2}, "config says 'state_size' is 5"),
    "bias": ({"ssm_cfg": {"bias": True}}, "'bias' is True, but by the arrays it is False"),
    "another kind": ({"ssm_cfg": {"layer": "Mamba1"}}, "'layer' is 'Mamba1', .* it is 'Mamba2'"),
    "attention": ({"attn_layer_idx": [1]}, r"'attn_layer_idx': \[1\], which has no counterpart"),
    "perceptrons": ({"d_intermediate": 8}, "'d_intermediate': 8, .* must be 0"),
    "layer norm": ({"rms_norm": False}, "'rms_norm': False"),
    "part of the width": ({"d_ssm": 6}, "'d_ssm': 6"),
    "activation": ({"hidden_act": "gelu"}, "'hidden_act': 'gelu', .* must be 'silu'"),
    "mup": ({"mup": True}, "'mup': True"),
    "unknown": ({"use_gate": True}, "the unknown key 'use_gate'"),
    "groups": ({"ngroups": 3}, "do not fit 3 groups"),
    "ignored": (
        {"hidden_size": D, "n_groups": 1, "norm_before_gate": True},
        "transformers ignores",
    ),
    "missing": ({"hidden_size": D}, "must have the key 'n_groups'"),
    "none": (None, "config must be given for a Mamba-2"),
}


@pytest.mark.parametrize("name", WRONG_CONFIGS)
def test_configs_that_do_not_fit_name_the_key(name):
    config, message = WRONG_CONFIGS[name]
    with pytest.raises(ValueError, match=message):
        from_mamba(draw(mamba2_shapes()), config)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"ngroups": 1, "n_groups": 2}, ValueError, "'ngroups' is 1 and 'n_groups' is 2"),
        ({"ngroups": 1, "ssm_cfg": {"ngroups": 2}}, ValueError, "which mean the same"),
        ({"d_model": 99, "hidden_size": D, "n_groups": 1}, ValueError, "'d_model' is 99 and"),
        ({"ngroups": 0}, ValueError, "groups in config must be at least 1, got 0"),
        ({"ngroups": "2"}, TypeError, "groups in config must be an int, got '2'"),
        ({"norm_before_gate": "false"}, TypeError, "'norm_before_gate' of config must be True or"),
        ({"dt_limit": 0.1}, ValueError, "must be two numbers, got 0.1"),
        ({"norm_epsilon": None}, TypeError, "ε of config must be a number, got None"),
        ({"ssm_cfg": [1]}, TypeError, "'ssm_cfg' of config must be a mapping, got list"),
    ],
)
def test_configs_that_contradict_themselves(config, error, message):
    with pytest.raises(error, match=message):
        from_mamba(draw(mamba2_shapes()), config)


def test_a_state_of_too_many_steps_is_not_cut():
    states = np.ones((2, H, W + 1), np.float32), np.ones((2, H, N), np.float32)
    with pytest.raises(ValueError, match="a conv_state .* or one more"):
        from_mamba(draw(MAMBA), cache=states)


def test_arrays_that_do_not_fit_name_the_key():
    arrays = draw(MAMBA)
    with pytest.raises(ValueError, match="no place for: dt_layernorm.weight"):
        from_mamba(arrays | {"dt_layernorm.weight": np.ones(2, np.float32)})
    with pytest.raises(ValueError, match="has no array 'A_log'"):
        from_mamba({name: array for name, array in arrays.items() if name != "A_log"})
    with pytest.raises(ValueError, match=r"'D' .* must have the shape \[12\], got \[5\]"):
        from_mamba(arrays | {"D": np.ones(5, np.float32)})
    with pytest.raises(ValueError, match="has no array 'out_proj.bias'"):
        from_mamba(arrays | {"in_proj.bias": np.ones(2 * H, np.float32)})
    with pytest.raises(ValueError, match="'headdim', but by its arrays this is a Mamba"):
        from_mamba(arrays, {"headdim": 3})
    with pytest.raises(ValueError, match="12 of the state space must be a multiple of the width 5"):
        from_mamba(draw(MAMBA | {"in_proj.weight": (2 * H, 5), "out_proj.weight": (5, H)}))
    with pytest.raises(TypeError, match="arrays must be a mapping"):
        from_mamba([1])
    with pytest.raises(TypeError, match="config must be a mapping"):
        from_mamba(draw(MAMBA), "config.json")
    whole = language_model(MAMBA, tied=False)
    with pytest.raises(ValueError, match="'lm_head.weight' is another array"):
        from_mamba(whole, {"tie_embeddings": True})
    with pytest.raises(ValueError, match="'vocab_size' is 50, but by the arrays it is 11"):
        from_mamba(whole, {"vocab_size": 50})
    with pytest.raises(ValueError, match="cache must have a pair for each of the 2 layers, got 1"):
        from_mamba(whole, cache=[(arrays["A_log"], arrays["A_log"])])


def test_caches_that_do_not_fit_say_so():
    states = np.ones((1, H, W), np.float32), np.ones((1, H, N), np.float32)
    with pytest.raises(ValueError, match=r"cache must hold a conv_state \[B, 12, 2 or one more\]"):
        from_mamba(draw(MAMBA), cache=states[::-1])
    with pytest.raises(ValueError, match=r"cache must be a pair \(conv_state, ssm_state\)"):
        from_mamba(draw(MAMBA), cache=(None, states[0]))


def test_models_without_a_counterpart_say_so():
    held = jr.mamba(N, discretization="zoh")
    faster = jr.mamba2(N, head_width=3, step_rescale=2.0)
    for model in (held, faster):
        with pytest.raises(
            ValueError, match="must have discretization='euler' and step_rescale=1.0"
        ):
            to_mamba(model, None)
    norm, mixer = jr.rms_norm(), jr.mamba(N)
    block = jr.repeat(jr.residual(jr.serial(norm, mixer)), 2)
    readout = jr.dense(V, use_bias=False)
    for model in (
        jr.gru(3),
        jr.tied_embed(D, block, norm),
        jr.tied_embed(D, block, jr.rms_norm(0.1), use_bias=False),
        jr.tied_embed(D, jr.repeat(jr.residual(mixer), 2), norm, use_bias=False),
        jr.serial(jr.embed(D), block, norm, jr.dense(V)),
        jr.serial(jr.dense(D), block, norm, readout),
        jr.serial(jr.embed(D), jr.residual(mixer), norm, readout),
    ):
        with pytest.raises(ValueError, match=r"model must be mamba\(\), mamba2\(\), tied_embed"):
            to_mamba(model, None)


def test_parameters_of_another_model_say_so():
    arrays = draw(MAMBA)
    model, params, _ = from_mamba(arrays, {"dt_rank": "auto"})
    with pytest.raises(TypeError, match="params"):
        to_mamba(jr.mamba2(N, head_width=3), params)
    with pytest.raises(ValueError, match="params.ssm.skip"):
        to_mamba(model, params._replace(ssm=params.ssm._replace(skip=np.ones(5, np.float32))))


def test_the_page():
    run(DOCS / "interop.md", "python mamba")
