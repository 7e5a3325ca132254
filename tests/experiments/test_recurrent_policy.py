"""Recurrent PPO: tasks against trajectories by hand, and updates that see what rollouts saw."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.frame import cli
from experiments.recurrent_policy import ppo, task
from experiments.recurrent_policy.config import Config
from experiments.recurrent_policy.measure import make_setting
from experiments.recurrent_policy.model import MEMORIES

BURN_IN = 5
CONFIG = Config(num_units=8, num_environments=16, shortest_window=17)
BURNT_IN = dataclasses.replace(CONFIG, burn_in=BURN_IN)


def played(environment, actions, start=None):
    """`(observations, rewards, done)` of a list of actions, from a state or from a reset."""
    state, observation = environment.reset(jax.random.key(0)) if start is None else (start, None)
    seen = [] if start is not None else [observation]
    rewards, ends = [], []
    step = jax.jit(environment.step)
    for number, action in enumerate(actions):
        state, observation, reward, done = step(state, action, jax.random.key(number))
        seen.append(observation), rewards.append(float(reward)), ends.append(bool(done))
    return np.array(seen), np.array(rewards), ends


def test_the_t_maze_shows_its_cue_once_and_pays_at_the_junction():
    corridor, junction = [0, 0, 1, 0], [0, 0, 0, 1]
    moves = [task.FORWARD, task.BACK, task.FORWARD, task.UP, task.FORWARD, task.UP]
    start = task.Maze(jnp.int32(task.UP), jnp.int32(0), jnp.int32(0))
    seen, rewards, done = played(task.t_maze(2), [task.FORWARD, task.FORWARD, task.UP], start)
    np.testing.assert_array_equal(seen[:2], [corridor, junction])
    np.testing.assert_array_equal(rewards, [0, 0, 1])
    assert done == [False, False, True]
    assert seen[2].tolist() in ([1, 0, 0, 0], [0, 1, 0, 0])  # the cue of the next episode

    start = start._replace(goal=jnp.int32(task.DOWN))
    seen, rewards, done = played(task.t_maze(4), moves, start)
    np.testing.assert_array_equal(seen[:5], 5 * [corridor])
    np.testing.assert_array_equal(rewards, [0, -1 / 4, 0, -1 / 4, 0, -1 / 4])
    assert done == [*5 * [False], True]  # after six steps, as long as an episode may last

    _, rewards, done = played(task.t_maze(2), [task.FORWARD, task.FORWARD, task.UP], start)
    np.testing.assert_array_equal(rewards, [0, 0, 0])
    assert done[-1]


def test_repeat_first_pays_for_the_suit_of_the_first_card():
    environment = task.repeat_first()
    first = int(np.argmax(environment.reset(jax.random.key(0))[1]))
    actions = [first] * 50 + [(first + 1) % 4] * 2 + [first]
    seen, rewards, done = played(environment, actions)
    np.testing.assert_allclose(52 * rewards[:52], [1] * 50 + [-1] * 2, rtol=1e-6)
    assert done == [*51 * [False], True, False]
    np.testing.assert_array_equal(seen[:, 4], [1, *51 * [0], 1, 0])
    assert environment.chance == pytest.approx((1 - 51 / 2) / 52)


def test_the_cart_pole_moves_by_the_equations_of_gym():
    x, v, angle, w = start = np.array([0.1, -0.2, 0.05, 0.3])
    observations = []
    for force in (10.0, -10.0):
        push = (force + 0.05 * w**2 * np.sin(angle)) / 1.1
        turn = 9.8 * np.sin(angle) - np.cos(angle) * push
        turn /= 0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        move = push - 0.05 * turn * np.cos(angle) / 1.1
        x, v, angle, w = x + 0.02 * v, v + 0.02 * move, angle + 0.02 * w, w + 0.02 * turn
        observations.append([x / 2.4, angle / np.radians(12)])
    cart = task.CartPole(*map(jnp.float32, start), jnp.int32(198))
    seen, rewards, done = played(task.cart_pole(), [1, 0], cart)
    np.testing.assert_allclose(seen[0], observations[0], rtol=1e-5)
    np.testing.assert_allclose(rewards, 1 / 200)
    assert done == [False, True]  # after 200 steps, and a new episode begins
    assert (abs(seen[1]) <= [0.05 / 2.4, 0.05 / np.radians(12)]).all()
    assert played(task.cart_pole(), [1], cart._replace(position=jnp.float32(2.41)))[2] == [True]


@pytest.mark.parametrize("model", list(MEMORIES))
def test_an_update_sees_what_the_rollout_saw(model, monkeypatch):
    """Bit for bit where the evaluator takes the rollout's steps, to rounding where it does not.

    The start carries are those of a second window, in which rows begin inside an episode and at the
    start of one. An associative scan adds the same numbers in another order.
    """
    setting = make_setting(CONFIG, task.t_maze(3), model)
    associative = functools.partial(jr.unroll, evaluator=jr.associative())

    @jax.jit
    def run(key):
        training = ppo.initial_training(setting, key)
        states = training.agents.states._replace(time=jnp.arange(16) % 4)
        staggered = training.agents._replace(states=states)
        first, second = jax.random.split(training.key)
        agents, _ = ppo.rollout(setting, training.params, staggered, first)
        _, window = ppo.rollout(setting, training.params, agents, second)
        whole = ppo.recomputed(setting, training.params, window)
        burnt_in = setting._replace(config=BURNT_IN)
        late = ppo.recomputed(burnt_in, training.params, window)
        if model in ("min_gru", "lru"):
            with monkeypatch.context() as patch:
                patch.setattr(ppo.jr, "unroll", associative)
                parallel = ppo.recomputed(setting, training.params, window)
        else:
            parallel = whole
        return window, whole, late, parallel

    window, (log_probs, values), late, parallel = run(jax.random.key(1))
    assert 0 < window.last_done.sum() < 16 and window.done.any(axis=1).all()
    np.testing.assert_array_equal(ppo.chosen(log_probs, window.actions), window.log_probs)
    np.testing.assert_array_equal(values, window.values)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(late[0], log_probs[:, BURN_IN:])
    np.testing.assert_array_equal(late[1], values[:, BURN_IN:])
    for expected, found in zip((log_probs, values), parallel, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_advantages_and_gradients_stop_where_they_should():
    """Advantages at the end of an episode, gradients at the end of the burn-in."""
    setting = make_setting(BURNT_IN, task.t_maze(3), "stateless")
    setting = setting._replace(network=_running_sum())
    rng = np.random.default_rng(0)
    rows, steps = 2, 8
    values, rewards = rng.normal(size=(2, rows, steps)).astype(np.float32)
    done = rng.random((rows, steps)) < 0.3
    xs = rng.normal(size=(rows, steps, 1)).astype(np.float32)
    flags = np.zeros(rows, bool)
    window = ppo.Window(xs, None, None, values, rewards, done, None, np.ones((rows, 1)), flags)
    agents = ppo.Agents(None, np.full((rows, 1), 0.5), np.ones((rows, 1)), flags, None)
    expected, later = np.zeros((rows, steps + 1)), np.append(values, np.full((rows, 1), 1.5), 1)
    for t in reversed(range(steps)):
        goes_on = 0.99 * (1 - done[:, t])
        error = rewards[:, t] + goes_on * later[:, t + 1] - values[:, t]
        expected[:, t] = error + 0.95 * goes_on * expected[:, t + 1]
    found = ppo.advantages_of(setting, (), agents, window)
    np.testing.assert_allclose(found, expected[:, :-1], rtol=1e-4, atol=1e-5)

    def total(xs):
        whole = window._replace(observations=xs, done=np.zeros((rows, steps), bool))
        return ppo.recomputed(setting, (), whole)[1].sum()

    value, gradient = jax.value_and_grad(total)(xs)
    sums = 1 + np.cumsum(xs[..., 0], axis=1)
    np.testing.assert_allclose(value, sums[:, BURN_IN:].sum(), rtol=1e-5)
    np.testing.assert_array_equal(gradient[0, :, 0], [0, 0, 0, 0, 0, 3, 2, 1])


def test_the_loss_is_that_of_ppo():
    """Ratios on both sides of what is clipped, with advantages of either sign."""
    config = dataclasses.replace(CONFIG, burn_in=1, entropy_weight=0.1)
    setting = make_setting(config, task.t_maze(3), "stateless")._replace(network=_as_they_come())
    rng = np.random.default_rng(0)
    log_probs = np.log(rng.dirichlet(np.ones(3), (4, 6)))
    values, old_values, advantages = rng.normal(size=(3, 4, 6))
    actions, ratio = rng.integers(0, 3, (4, 6)), rng.uniform(0.5, 1.5, (4, 6))
    took = np.take_along_axis(log_probs, actions[..., None], -1)[..., 0]
    xs, flags = np.concatenate([log_probs, values[..., None]], -1), np.zeros((4, 6), bool)
    old, carry = took - np.log(ratio), np.zeros((4, 1))
    window = ppo.Window(xs, actions, old, old_values, None, flags, None, carry, flags[:, 0])
    ratio, error = ratio[:, 1:], (values - old_values - advantages)[:, 1:]
    normal = (advantages[:, 1:] - advantages[:, 1:].mean()) / advantages[:, 1:].std()
    gains = np.minimum(ratio * normal, np.clip(ratio, 0.8, 1.2) * normal)
    entropy = -(np.exp(log_probs) * log_probs)[:, 1:].sum(-1)
    expected = (-gains + error**2 / 4 - 0.1 * entropy).mean()
    window = jax.tree.map(jnp.asarray, window)
    found, metrics = ppo.loss(setting, (), window, jnp.float32(advantages))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["difference"], np.abs(np.log(ratio)).max(), rtol=1e-4)


def _as_they_come():
    """Outputs that are the observations."""
    return jr.simple_cell(
        lambda key, n: (), lambda params, carry, z: carry, 1, emit=lambda params, carry, x: x
    )


def _running_sum():
    """A value that adds up the observations."""
    return jr.simple_cell(lambda key, n: (), lambda params, carry, z: carry + z, 1)


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path, rows):
    options = "--models gru --lengths 3 --seeds 1 --updates 10 --num-units 4"
    options += " --num-environments 4 --shortest-window 8 --num-passes 1 --burn-in 2"
    folder = tmp_path / "run"
    assert cli.main(["recurrent_policy", "--quick", *options.split(), "--out", str(folder)]) == 0
    names = {path.name for path in folder.iterdir()}
    assert {"returns.png", "learning.png", "results.csv", "verdicts.json"} <= names
    assert [row["task"] for row in rows(folder / "results.csv")] == ["T-maze 3"]
    assert len(rows(folder / "metrics.csv")) == 10
    verdicts = json.loads((folder / "verdicts.json").read_text())
    words = [verdict["word"] for verdict in verdicts]
    assert words[:2] == ["pass", "pass"] and words[-2:] == ["not run", "not run"]


def test_wrong_options_are_one_line_and_leave_no_file(refused):
    wrong = refused("recurrent_policy", ["--num-minibatches", "3"])
    assert "--num-minibatches must be a divisor of 32, got 3" in wrong
    assert "--burn-in must be below" in refused("recurrent_policy", ["--burn-in", "64"])
