"""Every diagnostic on its axes: what is drawn is what was measured, and axes say their units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402

from experiments.frame import plots  # noqa: E402

KEY = jax.random.key(0)
CELL = jr.elman(3)
PARAMS = CELL.init(KEY, 2)
XS = 2 * jax.random.normal(KEY, (12, 2))
RESET = jnp.arange(12) == 8


@pytest.fixture
def axes():
    canvas = Figure(figsize=(4, 3), layout="constrained")
    axes = canvas.subplots()
    yield axes
    canvas.draw_without_rendering()
    assert axes.get_xlabel() and (axes.get_ylabel() or len(axes.get_yticklabels()) > 1)


def drawn(axes, number=0):
    return np.asarray(axes.get_lines()[number].get_ydata(), float)


def test_norms(axes):
    norms = jr.carry_norms(CELL, PARAMS, XS).h.at[3].set(0)
    plots.draw_carry_norms(axes, {"elman": norms})
    np.testing.assert_allclose(drawn(axes), norms.at[3].set(jnp.nan))
    assert axes.get_yscale() == "log"


def test_gradient_norms(axes):
    plots.draw_gradient_norms(axes, {"elman": [1e-6, 1e-7]}, {"elman": [1.0, 2.0]})
    np.testing.assert_allclose(drawn(axes, 1), [1.0, 2.0])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["elman, recurrent", "elman, input"]


def test_sensitivities(axes):
    whole = jr.input_sensitivity(CELL, PARAMS, XS, reset=RESET)
    plots.draw_input_sensitivity(axes, whole, decades=3)
    shown = axes.get_images()[0].get_array()
    top = np.ceil(np.log10(whole.max()))
    expected = np.maximum(np.log10(np.where(whole > 0, whole, np.nan)), top - 3)
    np.testing.assert_allclose(np.ma.filled(shown, np.nan), expected, atol=1e-6)
    assert np.ma.getmaskarray(shown)[11, 7] and not np.ma.getmaskarray(shown)[11, 8]


def test_the_last_row_by_age(axes):
    row = jr.last_output_sensitivity(CELL, PARAMS, XS)
    plots.draw_last_output_sensitivity(axes, {"elman": row})
    line = axes.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(12)[::-1])
    np.testing.assert_allclose(line.get_ydata(), row)


def test_horizons(axes):
    plots.draw_memory_horizon(axes, {"elman": [3.0, np.nan, 5.0], "lstm": 9.0})
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), [3, 5])
    np.testing.assert_array_equal(axes.get_lines()[1].get_xdata(), [4])


def test_spectra_end_at_a_reset(axes):
    logs = jr.jacobian_spectrum(CELL, PARAMS, XS, reset=RESET)
    plots.draw_jacobian_spectrum(axes, logs, "elman")
    np.testing.assert_allclose(drawn(axes), logs[:8, 0] / np.log(10), rtol=1e-6)


def test_exponents(axes):
    plots.draw_lyapunov_exponents(axes, {"elman": [0.5, -1.0, -np.inf]})
    np.testing.assert_array_equal(drawn(axes), [0.5, -1.0, np.nan])


def test_saturation(axes):
    plots.draw_saturation(axes, {"elman": [0.0, 0.25]})
    np.testing.assert_array_equal(drawn(axes), [0.0, 25.0])


def test_spectral_radius(axes):
    plots.draw_spectral_radius(axes, np.array([[0.0, -2.0], [2.0, 0.0]]))
    assert sorted(patch.radius for patch in axes.patches) == pytest.approx([1.0, 2.0])


def test_costs(axes):
    costs = [
        jr.count_cost(CELL, PARAMS, jax.ShapeDtypeStruct((T, 2), jnp.float32)) for T in (8, 16)
    ]
    plots.draw_cost(axes, (8, 16), {"elman": costs})
    np.testing.assert_allclose(drawn(axes), [each.training_memory / 1024 for each in costs])
    np.testing.assert_allclose(drawn(axes, 1), 3 * 4 / 1024)


def test_capacities(axes):
    plots.draw_state_capacity(axes, {"elman": jr.state_capacity_bits(CELL, PARAMS)}, 1000)
    assert set(drawn(axes, 1)) == {96}
