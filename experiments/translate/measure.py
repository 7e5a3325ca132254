"""Trains every model, and asks it for the digits of the held-out numbers."""

import bisect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.data.spelled import NUM_SOURCES, NUM_TARGETS, PAD, START, STOP, Pairs
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter, adam
from experiments.frame.models import count_params
from experiments.frame.progress import progress_bar
from experiments.translate.config import ADDITIVE, DOT, FIXED, REVERSED, UPDATES_PER_EPOCH, Config
from experiments.translate.task import Task, make_task, minibatches

FIXEDS, WITH_ATTENTION = (FIXED, REVERSED), (DOT, ADDITIVE)
LABELS: Mapping[str, str] = {
    FIXED: "fixed",
    REVERSED: "fixed, reversed",
    DOT: "dot attention",
    ADDITIVE: "additive attention",
}
_SOURCE_FEATURES, _TARGET_FEATURES = 32, 16
ROWS = 256


class Setting(NamedTuple):
    """What is trained: a kind of model, and of the `width` units of its GRUs those that pass."""

    kind: str
    width: int
    kept: int

    @property
    def is_probe(self) -> bool:
        """Whether not all units of the encoder's last carry reach the decoder."""
        return self.kept < self.width

    @property
    def label(self) -> str:
        units = f", {self.kept} of {self.width} units" if self.is_probe else ""
        return LABELS[self.kind] + units

    @property
    def flags(self) -> np.ndarray:
        return (np.arange(self.width) < self.kept).astype(np.float32)


class Answers(NamedTuple):
    """Of S seeds to N pairs, with targets of T tokens after the start."""

    forced: np.ndarray  # tokens [S, N, T], each the likeliest after the true prefix
    written: np.ndarray  # tokens [S, N, T], the likeliest after those before; then `PAD`
    weights: Any  # [S, N, T, L] where it looked after the true prefix; None without attention


class Measured(NamedTuple):
    """One setting, trained from all seeds, and its answers to the held-out `pairs`."""

    setting: Setting
    fitted: Fitted
    pairs: Pairs
    answers: Answers

    @property
    def exact(self) -> np.ndarray:
        """Pairs whose every token was written right, bool `[S, N]`."""
        return (self.answers.written == self._truth).all(axis=-1)

    @property
    def all_forced(self) -> np.ndarray:
        """Pairs whose every token is right after the true prefix, bool `[S, N]`."""
        return (self._right(self.answers.forced) | (self._truth == PAD)).all(axis=-1)

    @property
    def forced_share(self) -> np.ndarray:
        """The share of tokens that are right after the true prefix, `[S, N]`."""
        return self._share(self.answers.forced)

    @property
    def written_share(self) -> np.ndarray:
        """The share of tokens that are right in what the model wrote by itself, `[S, N]`."""
        return self._share(self.answers.written)

    @property
    def mean_exact(self) -> np.ndarray:
        """How many of the seeds that did not fail wrote each pair right, a share `[N]`."""
        return self.fitted.of_good_seeds(self.exact).mean(axis=0)

    @property
    def _truth(self):
        return self.pairs.targets[:, 1:]

    def _right(self, tokens):
        return (tokens == self._truth) & (self._truth != PAD)

    def _share(self, tokens):
        return self._right(tokens).sum(axis=-1) / (self._truth != PAD).sum(axis=-1)


class Results(NamedTuple):
    task: Task
    measured: tuple[Measured, ...] = ()

    @property
    def usable(self) -> list[Measured]:
        return [one for one in self.measured if not one.fitted.failed.all()]

    @property
    def whole(self) -> dict[str, Measured]:
        """By kind what hands on all its units."""
        return {one.setting.kind: one for one in self.usable if not one.setting.is_probe}

    @property
    def by_units(self) -> dict[int, Measured]:
        """The fixed vector by the units that pass, the fewest first."""
        fixed = [one for one in self.usable if one.setting.kind == FIXED]
        return {one.setting.kept: one for one in sorted(fixed, key=lambda one: one.setting.kept)}


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    results, widths = Results(make_task(config)), matched_widths(config)
    compiled = {kind: (make_fitter(config, kind), make_answerer(kind)) for kind in config.models}
    settings = settings_of(config, widths)
    with progress_bar(len(settings) * (config.updates // UPDATES_PER_EPOCH + 1)) as bar:
        for setting in settings:
            bar.stage(setting.label)
            fitter, answer = compiled[setting.kind]
            fitted = train(config, fitter, setting, results.task, checkpoints, bar.advance)
            pairs = results.task.held_out
            one = Measured(setting, fitted, pairs, answer(fitted.params, setting.flags, pairs))
            bar.advance()
            bar.finish_stage(f"{setting.label}: {100 * one.exact.mean():.0f} % written right")
            yield (results := results._replace(measured=(*results.measured, one)))


def settings_of(config: Config, widths: dict[str, int]) -> list[Setting]:
    whole = [Setting(kind, widths[kind], widths[kind]) for kind in config.models]
    narrowed = [Setting(FIXED, config.width, kept) for kept in config.kept if FIXED in widths]
    return whole + narrowed


def make_model(kind: str, kept: Any) -> jr.seq2seq.EncoderDecoder:
    """A GRU that reads letters and a GRU that writes digits.

    Args:
        kind: One of `config.KINDS`.
        kept: Flags `[width]` for as many units of each GRU, and of the keys of a dot product; twice
            those of additive keys. The flagged units of the encoder's last carry reach the
            decoder's first; being data, the width of the bottleneck compiles nothing again.
    """
    width = len(kept)
    score = {DOT: jr.dot_score(width), ADDITIVE: jr.additive_score(width // 2)}.get(kind)
    return jr.encoder_decoder(
        encoder=jr.serial(jr.embed(_SOURCE_FEATURES), jr.gru(width)),
        decoder=jr.serial(jr.embed(_TARGET_FEATURES), jr.gru(width)),
        readout=jr.dense(NUM_TARGETS),
        attention=score,
        reverse_source=kind == REVERSED,
        bridge=lambda carry: jax.tree.map(lambda units: kept * units, carry),
    )


def initial_params(kind: str, width: int, seed: Any) -> Any:
    model = make_model(kind, np.ones(width))
    return model.init(jax.random.key(seed), NUM_SOURCES, NUM_TARGETS)


def matched_widths(config: Config) -> dict[str, int]:
    """The width of each kind at which it has about as many parameters as the fixed vector."""

    def num_params(kind, width):
        return count_params(jax.eval_shape(lambda: initial_params(kind, width, 0)))

    wanted = num_params(FIXED, config.width)
    widths = range(config.width // 2, config.width + 1)

    def nearest(kind):
        above = bisect.bisect_left(widths, wanted, key=lambda width: num_params(kind, width))
        around = widths[max(above - 1, 0) : above + 1]
        return min(around, key=lambda width: abs(num_params(kind, width) - wanted))

    return {kind: nearest(kind) for kind in config.models}


def make_fitter(config: Config, kind: str) -> Fitter:
    """What trains every setting of a kind, on the next token after the true prefix."""

    def loss_fn(params, batch, key):
        del key
        following = batch["targets"][:, 1:]
        mask = following != PAD
        logits = _forced(kind, params, batch["kept"], batch["sources"], batch["targets"]).outputs
        right = logits.argmax(-1) == following
        losses = jr.cross_entropy(logits, following, mask)
        return jr.mean_over_steps(losses, mask), {"right": jr.mean_over_steps(right, mask)}

    return Fitter(loss_fn, adam(config, config.updates))


def _forced(kind, params, kept, sources, targets):
    return make_model(kind, kept).teacher_forced(
        params, sources, targets[:, :-1], source_mask=sources != PAD, mask=targets[:, 1:] != PAD
    )


def train(
    config: Config,
    fitter: Fitter,
    setting: Setting,
    task: Task,
    checkpoints: Checkpoints,
    advance: Advance,
) -> Fitted:
    kept = np.broadcast_to(setting.flags, (config.seeds, UPDATES_PER_EPOCH, setting.width))

    def batches(epoch):
        each = [minibatches(config, task.training, seed, epoch) for seed in config.all_seeds]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each) | {"kept": kept}

    seeds = np.array(config.all_seeds)
    params = jax.vmap(lambda seed: initial_params(setting.kind, setting.width, seed))(seeds)
    epochs = config.updates // UPDATES_PER_EPOCH
    return fitter.fit_seeds(setting.label, params, batches, epochs, checkpoints, advance=advance)


def make_answerer(kind: str) -> Callable[[Any, np.ndarray, Pairs], Answers]:
    """`(params [S], kept [width], pairs) -> Answers`; compiled once for one size of source."""

    def one_seed(params, kept, sources, targets):
        forced = _forced(kind, params, kept, sources, targets)
        weights = jr.attention_weights(forced) if kind in WITH_ATTENTION else None
        written = make_model(kind, kept).generate(
            params,
            sources,
            jnp.full((len(sources), 1), START, jnp.int32),
            targets.shape[1] - 1,
            source_mask=sources != PAD,
            stop_token=STOP,
            pad=PAD,
        )
        return Answers(forced.outputs.argmax(-1), written.tokens, weights)

    run = jax.jit(jax.vmap(one_seed, in_axes=(0, None, None, None)))

    def answer(params, kept, pairs):
        num_rows, parts = len(pairs.numbers), []
        for first in range(0, num_rows, ROWS):
            at = np.minimum(np.arange(first, first + ROWS), num_rows - 1)
            parts.append(jax.device_get(run(params, kept, pairs.sources[at], pairs.targets[at])))
        return jax.tree.map(lambda *each: np.concatenate(each, axis=1)[:, :num_rows], *parts)

    return answer
