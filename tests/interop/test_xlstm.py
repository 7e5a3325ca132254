import numpy as np
import pytest
from support.pages import DOCS, run

import jaxrnn as jr
from jaxrnn.interop import from_xlstm

# Widths of the model and the perceptron; heads, widths of their keys and values; tokens; layers.
D, M, HEADS, K, V_WIDTH, VOCABULARY, LAYERS, T = 4, 5, 2, 1, 3, 7, 3, 6
KEYS, VALUES = HEADS * K, HEADS * V_WIDTH
BLOCK = {
    "norm_mlstm.weight": (D,),
    "mlstm_layer.q.weight": (KEYS, D),
    "mlstm_layer.k.weight": (KEYS, D),
    "mlstm_layer.v.weight": (VALUES, D),
    "mlstm_layer.ogate_preact.weight": (VALUES, D),
    "mlstm_layer.igate_preact.weight": (HEADS, D),
    "mlstm_layer.igate_preact.bias": (HEADS,),
    "mlstm_layer.fgate_preact.weight": (HEADS, D),
    "mlstm_layer.fgate_preact.bias": (HEADS,),
    "mlstm_layer.multihead_norm.weight": (VALUES,),
    "mlstm_layer.out_proj.weight": (D, VALUES),
    "norm_ffn.weight": (D,),
    "ffn.proj_up_gate.weight": (M, D),
    "ffn.proj_up.weight": (M, D),
    "ffn.proj_down.weight": (D, M),
}
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_heads": HEADS,
    "gate_soft_cap": 2.0,
    "output_logit_soft_cap": 3.0,
    "norm_eps": 1e-3,
    "eps": 1e-2,
    "use_bias": False,
    "weight_mode": "single",
}


def draw(dtype=np.float64):
    generator = np.random.default_rng(0)
    shapes = {"backbone.embeddings.weight": (VOCABULARY, D), "lm_head.weight": (VOCABULARY, D)}
    shapes |= {"backbone.out_norm.weight": (D,)}
    for index in range(LAYERS):
        shapes |= {f"backbone.blocks.{index}.{name}": shape for name, shape in BLOCK.items()}
    return {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def fused(arrays):
    """The same as the package has it: its name of the table, and `weight_mode="fused"`."""
    arrays = dict(arrays)
    arrays["embedding.weight"] = arrays.pop("backbone.embeddings.weight")
    for index in range(LAYERS):
        prefix = f"backbone.blocks.{index}."
        for whole, parts in {
            "mlstm_layer.qkv_opreact.weight": ("q", "k", "v", "ogate_preact"),
            "mlstm_layer.ifgate_preact.weight": ("igate_preact", "fgate_preact"),
            "mlstm_layer.ifgate_preact.bias": ("igate_preact", "fgate_preact"),
            "ffn.proj_up_gate_z.weight": ("proj_up_gate", "proj_up"),
        }.items():
            layer, _, end = whole.split(".")
            rows = [arrays.pop(f"{prefix}{layer}.{part}.{end}") for part in parts]
            arrays[prefix + whole] = np.concatenate(rows)
    return arrays


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def rms(x, weight):
    return x / np.sqrt((x**2).mean() + 1e-3) * weight


def mlstm_layer(own, memories, x):
    """A step of the layer: the recurrence of the native step kernel, with its m."""
    i, f = (
        2.0 * np.tanh((own[f"{gate}gate_preact.weight"] @ x + own[f"{gate}gate_preact.bias"]) / 2.0)
        for gate in "if"
    )
    q, k, v = (own[f"{part}.weight"] @ x for part in "qkv")
    q, k, v = (part.reshape(HEADS, -1) for part in (q, k, v))
    heads = []
    for head, (c, n, m) in enumerate(memories):
        log_f = np.log(sigmoid(f[head]))
        new_m = max(log_f + m, i[head])
        old, new = np.exp(log_f + m - new_m), np.exp(i[head] - new_m)
        c, n = old * c + new * np.outer(k[head], v[head]), old * n + new * k[head]
        memories[head] = c, n, new_m
        scaled = q[head] / np.sqrt(K)
        # The package adds ε on the scale of its m, and this library on that of max(m, 0).
        epsilon = 1e-2 * np.exp(max(new_m, 0) - new_m)
        h = scaled @ c / (max(abs(scaled @ n), np.exp(-new_m)) + epsilon)
        heads.append((h - h.mean()) / np.sqrt(h.var() + 1e-3))
    h = np.concatenate(heads) * own["multihead_norm.weight"]
    return own["out_proj.weight"] @ (sigmoid(own["ogate_preact.weight"] @ x) * h)


def language_model(arrays, tokens):
    states = [
        [(np.zeros((K, V_WIDTH)), np.zeros(K), 0.0) for _ in range(HEADS)] for _ in range(LAYERS)
    ]
    logits = []
    for token in tokens:
        x = arrays["backbone.embeddings.weight"][token]
        for index in range(LAYERS):
            prefix = f"backbone.blocks.{index}."
            own = {name: arrays[prefix + name] for name in BLOCK}
            layer = {name.removeprefix("mlstm_layer."): array for name, array in own.items()}
            x = x + mlstm_layer(layer, states[index], rms(x, own["norm_mlstm.weight"]))
            up = rms(x, own["norm_ffn.weight"])
            gate = own["ffn.proj_up_gate.weight"] @ up
            value = gate * sigmoid(gate) * (own["ffn.proj_up.weight"] @ up)
            x = x + own["ffn.proj_down.weight"] @ value
        last = arrays["lm_head.weight"] @ rms(x, arrays["backbone.out_norm.weight"])
        logits.append(3.0 * np.tanh(last / 3.0))
    return np.array(logits)


def test_it_is_the_equations_of_its_code_by_all_names(x64):
    arrays = draw()
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (2, T))
    model, params, carry = from_xlstm(arrays, CONFIG)
    assert carry is None
    want = [language_model(arrays, row) for row in tokens]
    np.testing.assert_allclose(jr.unroll(model, params, tokens).outputs, want, atol=1e-10)
    whole = {f"model.{name}": array for name, array in fused(arrays).items()}
    again = from_xlstm(whole | {"other": 0}, CONFIG | {"weight_mode": "fused"}, prefix="model.")
    assert again.model == model
    np.testing.assert_equal(again.params, params)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"use_bias": True}, "'use_bias': True, which has no counterpart"),
        ({"tie_word_embeddings": True}, "'tie_word_embeddings': True, which has no counterpart"),
        ({"add_out_norm": False}, "'add_out_norm': False"),
        ({"slstm_at": [1]}, "unknown key 'slstm_at'"),
        ({"num_heads": 1}, "'num_heads' is 1, but by the arrays it is 2"),
        ({"num_blocks": 4}, "'num_blocks' is 4, but by the arrays it is 3"),
    ],
)
def test_a_config_that_does_not_fit_says_so(changed, message):
    with pytest.raises(ValueError, match=message):
        from_xlstm(draw(np.float32), CONFIG | changed)


def test_arrays_that_do_not_fit_say_so():
    arrays = draw(np.float32)
    layer = "backbone.blocks.1.mlstm_layer."
    without = {name: array for name, array in arrays.items() if name != f"{layer}k.weight"}
    ones = np.ones((3, D), np.float32)
    older = {"blocks.0.mlstm_layer.q.weight": ones}
    for changed, message in (
        (without, "has no array 'backbone.blocks.1.mlstm_layer.k.weight'"),
        (arrays | {f"{layer}q.bias": ones}, "no place for: .*mlstm_layer.q.bias"),
        (arrays | {f"{layer}k.weight": ones}, r"must have the shape \[2, 4\], got \[3, 4\]"),
        (arrays | {f"{layer}igate_preact.weight": ones}, "do not fit each other: its gates have 5"),
        (older, "has no array 'backbone.embeddings.weight'"),
    ):
        with pytest.raises(ValueError, match=message):
            from_xlstm(changed, CONFIG)
    for wrong in ((None, CONFIG), (arrays, None)):
        with pytest.raises(TypeError, match="must be a mapping"):
            from_xlstm(*wrong)


def test_the_page():
    run(DOCS / "interop.md", "python xlstm")
