"""jax2onnx reads the library's functions: ONNX models with a dynamic batch and length.

It runs in an environment of its own, because the pins of jax2onnx exclude versions that the
experiments need: `pip install jax2onnx onnxruntime optax`, then `python .ci/traced_to_onnx.py`.
"""

import logging
import sys
import warnings

import jax
import numpy as np
import onnxruntime
from jax2onnx import to_onnx

import jaxrnn as jr

B, T, D = 2, 5, 3
MODELS = {
    "elman": jr.elman(4),
    "lstm": jr.lstm(4),
    "gru": jr.gru(4),
    "min_gru": jr.min_gru(4),
    "slstm": jr.slstm(4),
    "bidirectional": jr.bidirectional(jr.lstm(4)),
    "stack": jr.serial(jr.gru(4), jr.layer_norm(), jr.dense(2, jax.nn.relu)),
}


def difference(name, function, shapes, arrays):
    """The largest difference between onnxruntime and the function itself."""
    # It patches functions of jax while it traces, and what was compiled then keeps them.
    jax.clear_caches()
    model = to_onnx(function, shapes, model_name=name)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [one.name for one in session.get_inputs()]
    got = session.run(None, dict(zip(names, arrays, strict=True)))
    jax.clear_caches()
    want = jax.tree.leaves(function(*arrays))
    return max(float(np.abs(one - other).max()) for one, other in zip(got, want, strict=True))


def cases():
    """Name, function, shapes and arrays of each program."""
    xs = np.random.default_rng(0).standard_normal((B, T, D)).astype(np.float32)
    for name, model in MODELS.items():
        params = model.init(jax.random.key(0), D)

        def outputs(xs, model=model, params=params):
            return jr.unroll(model, params, xs).outputs

        yield name, outputs, [("B", "T", D)], [xs]

    lstm = MODELS["lstm"]
    params = lstm.init(jax.random.key(0), D)
    state = np.ones((B, 4), np.float32)

    def step(h, c, x):
        return jax.tree.leaves(jr.step(lstm, params, jr.cells.LSTMCarry(h, c), x))

    yield "step", step, [("B", 4), ("B", 4), ("B", D)], [state, 2 * state, xs[:, 0]]

    def masked(xs, mask):
        return jr.unroll(lstm, params, xs, mask=mask).outputs

    mask = np.arange(T) < np.array([[3], [5]])
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (xs, mask)]
    yield "mask", masked, shapes, [xs, mask]


def main():
    """Prints a line for each program; a difference above 1e-5 is a failure."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    failed = 0
    for name, function, shapes, arrays in cases():
        worst = difference(name, function, shapes, arrays)
        failed += not worst <= 1e-5
        print(f"jax2onnx {name}: {worst:.1e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
