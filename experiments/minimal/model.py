"""Exponential smoothing, and a GRU for what it leaves."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr

NUM_FEATURES = 2  # a series, and the mean of the series that are trained on


class Setting(NamedTuple):
    """What is trained."""

    width: int  # units of the GRU
    truncation: int  # steps a gradient goes back through
    decay: float  # of the smoothing, which is not trained
    ahead: int = 1  # how many of the following months every output is trained to forecast
    share: float = 1.0  # of the trained correction that is kept
    stateless: bool = False  # whether the carry is reset before every step

    @property
    def name(self) -> str:
        return f"{'stateless' if self.stateless else 'hybrid'}, {self.sizes}"

    @property
    def sizes(self) -> str:
        return f"{self.width} units, truncation {self.truncation}, ahead {self.ahead}"

    @property
    def chosen(self) -> str:
        return f"{self.sizes}, share {self.share:g}"


def make_model(setting: Setting) -> jr.Layer:
    return smoothing_with_correction(setting.width, setting.decay)


@jr.model_factory
def smoothing_with_correction(width: int, decay: float) -> jr.Layer:
    """Forecasts the next step of a series and of the mean, `[..., 2] -> [..., 2]`.

    The forecast is the exponentially smoothed input plus a correction. The GRU that makes the
    correction reads what the smoothing left of the input, and the gap from the level of the series
    to that of the mean. Where the readout is 0, this is exponential smoothing. After Smyl 2020
    (https://doi.org/10.1016/j.ijforecast.2019.03.017).
    """
    smoothing = jr.recurrent(jr.ema(decay))
    correction = jr.serial(jr.gru(width), jr.dense(NUM_FEATURES, use_bias=False))

    def init(key, num_inputs):
        return smoothing.init(key, num_inputs), correction.init(key, num_inputs + 1)

    def initial_carry(params, batch_shape=()):
        smoothing_params, correction_params = params
        return (
            smoothing.initial_carry(smoothing_params, batch_shape),
            correction.initial_carry(correction_params, batch_shape),
        )

    def unroll(params, carry, steps, key):
        smoothed = smoothing.unroll(params[0], carry[0], steps, key)
        level = smoothed.outputs
        gap = level[..., 1:] - level[..., :1]
        left = steps._replace(xs=jnp.concatenate([steps.xs - level, gap], axis=-1))
        corrected = correction.unroll(params[1], carry[1], left, key)
        return jr.Rollout(
            (smoothed.carry, corrected.carry),
            level + corrected.outputs,
            (smoothed.info, corrected.info),
        )

    return jr.Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs,
    )


def with_share(params: Any, share: float) -> Any:
    """Parameters whose correction is `share` times what it was."""
    smoothing, (gru, readout) = params
    return smoothing, (gru, jax.tree.map(lambda leaf: share * leaf, readout))
