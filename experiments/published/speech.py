"""silero-vad: whether somebody speaks, frame by frame, by convolutions and an LSTM."""

import wave
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.errors import ExperimentError
from experiments.published.packages import Absent, folder

RATE, FRAME, CONTEXT = 16_000, 512, 64
RECORDINGS = Path("/usr/share/sounds/alsa")  # Debian's alsa-utils
CELL = jr.lstm(128)


class Speech(NamedTuple):
    """How a recording is heard."""

    source: str
    wave: np.ndarray  # [N]
    probabilities: np.ndarray  # of speech in each frame, by `unroll`, [T]
    difference: float  # from those of the package
    step_difference: float  # between `step` and `unroll`


def speech(audio: Path | None) -> Speech:
    """The network here, streamed and at once, and the one of the package.

    Raises:
        Absent: A package is not installed, or there is no recording.
    """
    path = folder("silero_vad", "silero-vad") / "data" / "silero_vad.jit"
    folder("torch", "torch")
    import torch

    source, samples = recording(audio)
    # The file of safetensors in the same package holds other weights.
    original = torch.jit.load(path, map_location="cpu")
    state = {
        name.removeprefix("_model."): tensor.numpy()
        for name, tensor in original.state_dict().items()
        if name.startswith("_model.")
    }
    prefix = "decoder.rnn."
    lstm = {name: array for name, array in state.items() if name.startswith(prefix)}
    params = jr.interop.from_torch(lstm, CELL, prefix=prefix).params
    frames = samples.reshape(-1, FRAME)
    heard = jax.jit(jax.vmap(lambda window: _hear(state, window)))(_windows(frames))
    hidden = jr.unroll(CELL, params, heard).outputs
    probabilities = np.asarray(_say(state, hidden))
    step = jax.jit(lambda carry, x: jr.step(CELL, params, carry, x))
    carry, streamed = CELL.initial_carry(params), []
    for x in heard:
        carry, h = step(carry, x)
        streamed.append(h)
    stepped = np.asarray(_say(state, jnp.stack(streamed)))
    with torch.no_grad():
        theirs = np.array([original(torch.tensor(frame), RATE).item() for frame in frames])
    return Speech(
        source,
        samples,
        probabilities,
        float(np.abs(probabilities - theirs).max()),
        float(np.abs(probabilities - stepped).max()),
    )


def _windows(frames: np.ndarray) -> np.ndarray:
    """Each frame after the end of the one before."""
    before = np.concatenate([np.zeros((1, CONTEXT), frames.dtype), frames[:-1, -CONTEXT:]])
    return np.concatenate([before, frames], axis=1)


def _convolve(x: Any, kernel: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Any:
    """A convolution of torch, `[C, N]` with `[O, C, W]`."""
    y = jax.lax.conv_general_dilated(x[None], kernel, (stride,), [(padding, padding)])[0]
    return y if bias is None else y + bias[:, None]


def _hear(state: dict[str, Any], window: Any) -> Any:
    """The features of a window, `[576] -> [128]`: a spectrum, and four convolutions."""
    x = jnp.pad(window, (0, CONTEXT), "reflect")[None]
    real, imaginary = jnp.split(_convolve(x, state["stft.forward_basis_buffer"], stride=128), 2)
    x = jnp.sqrt(real**2 + imaginary**2)
    for layer, stride in enumerate((1, 2, 2, 1)):
        name = f"encoder.{layer}.reparam_conv"
        x = _convolve(x, state[f"{name}.weight"], state[f"{name}.bias"], stride, padding=1)
        x = jax.nn.relu(x)
    return x[:, 0]


def _say(state: dict[str, Any], hidden: Any) -> Any:
    kernel, bias = state["decoder.decoder.2.weight"], state["decoder.decoder.2.bias"]
    return jax.nn.sigmoid(jax.nn.relu(hidden) @ kernel[0, :, 0] + bias[0])


def recording(audio: Path | None) -> tuple[str, np.ndarray]:
    """Samples of 16 kHz in whole frames, of the file or of all that Debian has.

    Raises:
        Absent: No file is given, and Debian's are not there.
        ExperimentError: A file is no wav of 16 or 48 kHz.
    """
    paths = [audio] if audio else sorted(RECORDINGS.glob("*_*.wav"))
    if not paths:
        raise Absent("there is no recording: give one with --audio, or install alsa-utils")
    samples = np.concatenate([_read(path) for path in paths])
    name = str(audio.name) if audio else f"{len(paths)} recordings of alsa-utils"
    return name, np.pad(samples, (0, -len(samples) % FRAME))


def _read(path: Path) -> np.ndarray:
    try:
        with wave.open(str(path)) as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError, OSError) as error:
        raise ExperimentError(f"{path} is not a wav file: {error}") from error
    if rate not in (RATE, 3 * RATE) or width != 2:
        raise ExperimentError(
            f"{path} must be a wav of 16 bits and 16 or 48 kHz, got {8 * width} bits and {rate} Hz"
        )
    samples = np.frombuffer(data, np.int16).reshape(-1, channels).mean(axis=1) / 2**15
    if rate == 3 * RATE:
        # A mean of three samples before every third is kept, against aliasing.
        samples = samples[: len(samples) // 3 * 3].reshape(-1, 3).mean(axis=1)
    return samples.astype(np.float32)
