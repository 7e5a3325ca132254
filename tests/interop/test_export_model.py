"""Programs that another process runs, which has never heard of jaxrnn."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop import export_model, save_params
from jaxrnn.interop._names import by_name

pytest.importorskip("flatbuffers", reason="needs flatbuffers")
pytest.importorskip("safetensors", reason="needs safetensors")

D, B, T = 3, 2, 5
READER = """
import pathlib, sys
import jax.export, numpy as np
from safetensors.numpy import load_file

class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("jaxrnn"), name

sys.meta_path.insert(0, Refuse())
folder = pathlib.Path(sys.argv[1])
params, data = load_file(folder / "params"), np.load(folder / "data.npz")
read = lambda name: jax.export.deserialize((folder / name).read_bytes())
start, unroll, step = read("start"), read("unroll"), read("step")
xs, mask, reset = data["xs"], data["mask"], data["reset"]
carry = start.call(params, np.ones(len(xs), bool))
carry, first, _ = unroll.call(params, carry, xs[:, :2], mask[:, :2], reset[:, :2])
outputs = [*np.moveaxis(first, 1, 0)]
for t in range(2, xs.shape[1]):
    carry, y = step.call(params, carry, xs[:, t], mask[:, t], reset[:, t])
    outputs.append(y)
np.savez(folder / "outputs.npz", outputs=np.stack(outputs, 1), **carry)
assert not [name for name in sys.modules if name.startswith("jaxrnn")]
"""


def test_a_process_without_jaxrnn_gets_the_same_numbers(tmp_path):
    """Stateful layers of all kinds, an int in the carry, and a start that is learned."""
    model = jr.serial(
        jr.learned_initial_carry(jr.gru(4)), jr.causal_conv(2), jr.mamba(2), jr.dense(2)
    )
    params = model.init(jax.random.key(0), D)
    save_params(tmp_path / "params", params)
    programs = export_model(model, params, jnp.zeros(D))
    for name, program in programs._asdict().items():
        (tmp_path / name).write_bytes(program)
    xs = np.random.default_rng(0).standard_normal((B, T, D)).astype(np.float32)
    mask = np.array([[1, 1, 1, 0, 1], [1, 0, 1, 1, 1]], bool)
    reset = np.zeros((B, T), bool)
    reset[0, 3] = True
    np.savez(tmp_path / "data.npz", xs=xs, mask=mask, reset=reset)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], check=True, cwd=tmp_path, env=environment
    )
    got = dict(np.load(tmp_path / "outputs.npz"))
    want = jr.unroll(model, params, xs, mask=mask, reset=reset)
    np.testing.assert_allclose(got.pop("outputs"), want.outputs, rtol=1e-5, atol=1e-6)
    assert {name.split(".")[0] for name in got} == {"0", "1", "2"}
    wanted = by_name(want.carry)
    assert got.keys() == wanted.keys()
    for name, leaf in got.items():
        np.testing.assert_allclose(leaf, wanted[name], rtol=1e-5, atol=1e-6)


def test_tokens_a_fixed_length_and_models_without_a_step():
    model = jr.serial(jr.embed(3), jr.bidirectional(jr.gru(2)), jr.subsample(2))
    params = model.init(jax.random.key(0), 7)
    programs = export_model(model, params, jnp.int32(0), num_steps=4, platforms=("cpu",))
    assert programs.step is None
    exported = jax.export.deserialize(programs.unroll)
    assert exported.platforms == ("cpu",)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
    tokens, reset = np.array([[1, 2, 3, 0], [4, 0, 0, 0]], np.int32), np.zeros((2, 4), bool)
    start = jax.export.deserialize(programs.start).call(by_name(params), np.ones(2, bool))
    carry, outputs, after = exported.call(by_name(params), start, tokens, mask, reset)
    want = jr.unroll(model, params, tokens, mask=mask, reset=reset)
    np.testing.assert_allclose(outputs, want.outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after, want.flags.mask)
    assert carry.keys() == start.keys() == {"1.forward.h", "1.backward.h"}


def test_what_cannot_be_compiled_is_named():
    model = jr.recurrent(jr.gru(2), jr.newton())
    params = model.init(jax.random.key(0), D)
    with pytest.raises(ValueError, match="newton.* the symbol t.*use .*sequential"):
        export_model(model, params, jnp.zeros(D))
    with pytest.raises(ValueError, match="kernel must have the shape"):
        export_model(jr.gru(2), jr.gru(3).init(jax.random.key(0), D), jnp.zeros(D))
    gru, params = jr.gru(2), jr.gru(2).init(jax.random.key(0), D)
    with pytest.raises(TypeError, match="model must be"):
        export_model(3, params, jnp.zeros(D))
    with pytest.raises(ValueError, match=r"with 1 axes, got the shape \(5, 3\)"):
        export_model(gru, params, jnp.zeros((5, D)))
    with pytest.raises(ValueError, match="platforms must be among cpu, cuda, tpu, rocm"):
        export_model(gru, params, jnp.zeros(D), platforms=("gpu",))
    with pytest.raises(ValueError, match="num_steps"):
        export_model(jr.gru(2), params, jnp.zeros(D), num_steps=0)
