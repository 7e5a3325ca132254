"""Mamba against mambapy: blocks, language models, their caches and what they generate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop import from_mamba, to_mamba

torch = pytest.importorskip("torch", reason="needs torch")
mambapy = pytest.importorskip("mambapy.mamba", reason="needs mambapy")
B, T, D, V = 2, 6, 5, 13


class LanguageModel(torch.nn.Module):
    """`mambapy.lm.LM`, whose file cannot be imported where there is no triton."""

    def __init__(self, config):
        super().__init__()
        self.embedding = torch.nn.Embedding(V, D)
        self.mamba = mambapy.Mamba(config)
        self.norm_f = mambapy.RMSNorm(D, config.rms_norm_eps)
        self.lm_head = torch.nn.Linear(D, V, bias=False)

    def forward(self, tokens):
        return self.lm_head(self.norm_f(self.mamba(self.embedding(tokens))))

    def step(self, tokens, caches):
        ys, caches = self.mamba.step(self.embedding(tokens), caches)
        return self.lm_head(self.norm_f(ys)), caches


@pytest.fixture(autouse=True)
def in_float64(x64, monkeypatch):
    """mambapy rounds A and D of every module to float32, which is all that would differ."""
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)


def random_module(module):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return module.double().eval()


@pytest.mark.parametrize("options", [{}, {"bias": True, "conv_bias": False, "dt_rank": 2}], ids=str)
def test_blocks_and_their_gradients(options):
    config = mambapy.MambaConfig(D, 1, d_state=3, d_conv=3, pscan=False, **options)
    module = random_module(mambapy.MambaBlock(config))
    names = {"d_model": D, "d_state": 3, "expand_factor": 2, "pscan": False}
    model, params, _ = from_mamba(module.state_dict(), names | options)
    xs = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)

    def loss(params, xs):
        ys = jr.unroll(model, params, xs).outputs
        return jnp.sin(ys).sum(), ys

    gradients, ys = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, xs.detach().numpy())
    want = module(xs)
    want.sin().sum().backward()
    np.testing.assert_allclose(ys, want.detach(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradients[1], xs.grad, rtol=1e-9, atol=1e-12)
    got = to_mamba(model, gradients[0])
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(got[name], parameter.grad, rtol=1e-9, atol=1e-11, err_msg=name)
    values = to_mamba(model, params)
    for name, parameter in module.state_dict().items():
        np.testing.assert_array_equal(values[name], parameter, err_msg=name)


def test_a_language_model_its_cache_and_what_it_generates():
    config = mambapy.MambaConfig(D, 2, d_state=3, d_conv=3, rms_norm_eps=0.01, pscan=False)
    module = random_module(LanguageModel(config))
    tokens = torch.randint(0, V, (B, T))
    with torch.no_grad():
        want = module(tokens).numpy()
        caches = [(None, torch.zeros(B, 2 * D, 2, dtype=torch.float64)) for _ in range(2)]
        for t in range(4):
            _, caches = module.step(tokens[:, t], caches)
        greedy = tokens
        for _ in range(5):
            greedy = torch.cat([greedy, module(greedy)[:, -1:].argmax(-1)], dim=1)
    options = {"n_layers": 2, "d_model": D, "rms_norm_eps": 0.01}
    pairs = [(inputs, h) for h, inputs in caches]
    model, params, carry = from_mamba(module.state_dict(), options, cache=pairs)
    read = tokens.numpy()
    rollout = jr.unroll(model, params, read)
    np.testing.assert_allclose(rollout.outputs, want, rtol=1e-10, atol=1e-12)
    rest = jr.unroll(model, params, read[:, 4:], carry=carry)
    np.testing.assert_allclose(rest.outputs, want[:, 4:], rtol=1e-10, atol=1e-12)
    carry, ys = jr.step(model, params, carry, read[:, 4])[:2]
    np.testing.assert_allclose(ys, want[:, 4], rtol=1e-10, atol=1e-12)
    got = jr.generate(model, params, read, 5).tokens
    np.testing.assert_array_equal(got, greedy[:, T:])
    # A padded row says nothing about the others.
    mask = np.array([[True] * T, [True] * 4 + [False] * 2])
    padded = jr.unroll(model, params, read, mask=mask).outputs
    np.testing.assert_allclose(padded[:, :4], want[:, :4], rtol=1e-10, atol=1e-12)
