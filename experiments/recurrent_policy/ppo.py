"""Proximal policy optimisation of a recurrent policy: rollout, advantages and updates, pure.

Schulman et al. 2017 (arXiv:1707.06347). A window is what all environments went through in T steps,
with the carries before its first step. The update unrolls the policy from those carries over whole
windows, so at unchanged parameters it sees what the rollout saw; a minibatch is a part of the
environments, never a part of the steps.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

import jaxrnn as jr
from experiments.recurrent_policy.config import Config
from experiments.recurrent_policy.task import Environment


class Setting(NamedTuple):
    """What does not change in a training."""

    environment: Environment
    network: jr.Cell  # from observations `[..., O]` to log-probabilities of actions and a value
    optimizer: optax.GradientTransformation
    window: int  # T
    config: Config


class Agents(NamedTuple):
    """Where the environments are, `[B]`, and what the policy remembers of them."""

    states: Any
    observations: Any  # [B, O]
    carry: Any  # before `observations` are read, and before the reset where an episode ended
    done: Any  # whether the last step ended an episode
    returns: Any  # of the episodes so far


class Window(NamedTuple):
    """T steps of all environments, `[B, T]`."""

    observations: Any  # [B, T, O]
    actions: Any
    log_probs: Any  # of the actions
    values: Any
    rewards: Any
    done: Any
    returns: Any  # of the episodes that end at a step, 0 at other steps
    carry: Any  # [B, ...], before the first step
    last_done: Any  # [B], whether an episode ended before the first step


class Training(NamedTuple):
    params: Any
    opt_state: Any
    agents: Agents
    key: Any


def initial_training(setting: Setting, key: Any) -> Training:
    params_key, reset_key, key = jax.random.split(key, 3)
    params = setting.network.init(params_key, setting.environment.num_features)
    rows = (setting.config.num_environments,)
    states, observations = jax.vmap(setting.environment.reset)(jax.random.split(reset_key, *rows))
    carry = setting.network.initial_carry(params, rows)
    agents = Agents(states, observations, carry, jnp.zeros(rows, bool), jnp.zeros(rows))
    return Training(params, setting.optimizer.init(params), agents, key)


def train(
    setting: Setting, training: Training, num_updates: int
) -> tuple[Training, dict[str, Any]]:
    """Several updates, and their metrics `[num_updates]`."""
    return lax.scan(lambda one, _: update(setting, one), training, length=num_updates)


def update(setting: Setting, training: Training) -> tuple[Training, dict[str, Any]]:
    """A window, then passes through it in minibatches of environments.

    Metrics are means over the minibatches, but for `return`, the mean over the episodes that end in
    the window, and `first_difference`, the largest difference between a log-probability of the
    rollout and that of the first minibatch, whose parameters are still the same.
    """
    rollout_key, order_key, key = jax.random.split(training.key, 3)
    agents, window = rollout(setting, training.params, training.agents, rollout_key)
    advantages = advantages_of(setting, training.params, agents, window)

    def one_pass(learner, key):
        order = jax.random.permutation(key, setting.config.num_environments)
        order = order.reshape(setting.config.num_minibatches, -1)
        return lax.scan(one_minibatch, learner, order)

    def one_minibatch(learner, rows):
        params, opt_state = learner
        batch = jax.tree.map(lambda leaf: leaf[rows], (window, advantages))
        gradient, metrics = jax.grad(loss, argnums=1, has_aux=True)(setting, params, *batch)
        metrics["gradient_norm"] = optax.tree.norm(gradient)
        step, opt_state = setting.optimizer.update(gradient, opt_state, params)
        return (optax.apply_updates(params, step), opt_state), metrics

    learner = training.params, training.opt_state
    pass_keys = jax.random.split(order_key, setting.config.num_passes)
    learner, metrics = lax.scan(one_pass, learner, pass_keys)
    first_difference = metrics.pop("difference")[0, 0]
    metrics = {name: values.mean() for name, values in metrics.items()}
    metrics["first_difference"] = first_difference
    metrics["return"] = window.returns.sum() / window.done.sum()
    return Training(*learner, agents=agents, key=key), metrics


def rollout(setting: Setting, params: Any, agents: Agents, key: Any) -> tuple[Agents, Window]:
    """T steps of the policy in all environments."""

    def one_step(agents, key):
        action_key, key = jax.random.split(key)
        carry, outputs = jr.step(
            setting.network, params, agents.carry, agents.observations, reset=agents.done
        )
        log_probs, value = log_probs_and_value(outputs)
        action = jax.random.categorical(action_key, log_probs)
        states, observations, reward, done = jax.vmap(setting.environment.step)(
            agents.states, action, jax.random.split(key, setting.config.num_environments)
        )
        returns = agents.returns + reward
        seen = agents.observations, action, chosen(log_probs, action), value, reward, done
        seen = *seen, jnp.where(done, returns, 0)
        return Agents(states, observations, carry, done, jnp.where(done, 0, returns)), seen

    after, seen = lax.scan(one_step, agents, jax.random.split(key, setting.window))
    seen = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), seen)
    return after, Window(*seen, carry=agents.carry, last_done=agents.done)


def log_probs_and_value(outputs: Any) -> tuple[Any, Any]:
    """Of the actions `[..., A]`, and of the state `[...]`; the network ends with the value."""
    return outputs[..., :-1], outputs[..., -1]


def chosen(log_probs: Any, actions: Any) -> Any:
    return jnp.take_along_axis(log_probs, actions[..., None], axis=-1)[..., 0]


def advantages_of(setting: Setting, params: Any, agents: Agents, window: Window) -> Any:
    """Generalised advantages `[B, T]`, a linear recurrence that runs from the end.

        δₜ = rₜ + γ (1 - doneₜ) vₜ₊₁ - vₜ,  Aₜ = δₜ + γ λ (1 - doneₜ) Aₜ₊₁

    Schulman et al. 2015 (arXiv:1506.02438). The value after the window is that of `agents`.
    """
    _, outputs = jr.step(
        setting.network, params, agents.carry, agents.observations, reset=agents.done
    )
    values = jnp.append(window.values, log_probs_and_value(outputs)[1][:, None], axis=1)
    goes_on = setting.config.discount * (1 - window.done)
    errors = window.rewards + goes_on * values[:, 1:] - values[:, :-1]
    return jr.linear_scan(setting.config.trace_decay * goes_on, errors, axis=-1, reverse=True)


def recomputed(setting: Setting, params: Any, window: Window) -> tuple[Any, Any]:
    """Log-probabilities `[B, T - burn_in, A]` and values of a window, from its start carries.

    The carry is that of older parameters; the burn-in refreshes it with `params`, without gradient.
    """
    start, carry = setting.config.burn_in, window.carry
    reset = jr.reset_from_done(window.done, window.last_done)
    if start:
        before = jr.unroll(
            setting.network,
            params,
            window.observations[:, :start],
            carry=carry,
            reset=reset[:, :start],
        )
        carry = jr.detach(before.carry)
    rest = window.observations[:, start:]
    rollout = jr.unroll(setting.network, params, rest, carry=carry, reset=reset[:, start:])
    return log_probs_and_value(rollout.outputs)


def loss(setting: Setting, params: Any, window: Window, advantages: Any) -> tuple[Any, Any]:
    """The loss of PPO, a mean over the steps after the burn-in; and metrics.

        -min(ρ A, clip(ρ, 1 - ε, 1 + ε) A) + (v - target)² / 4 - β entropy

    ρ is the ratio of new to old probabilities of the actions, A the advantages of the minibatch,
    normalised, and the target is the old value plus the advantage.
    """
    log_probs, values = recomputed(setting, params, window)
    actions, old_log_probs, targets, advantages = (
        leaf[:, setting.config.burn_in :]
        for leaf in (window.actions, window.log_probs, window.values + advantages, advantages)
    )
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_ratio = chosen(log_probs, actions) - old_log_probs
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - setting.config.clip, 1 + setting.config.clip)
    policy = -jnp.minimum(ratio * advantages, clipped * advantages).mean()
    value = 0.5 * jnp.square(values - targets).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1).mean()
    metrics = {
        "policy_loss": policy,
        "value_loss": value,
        "entropy": entropy,
        "divergence": (ratio - 1 - log_ratio).mean(),
        "difference": jnp.abs(log_ratio).max(),
    }
    return policy + 0.5 * value - setting.config.entropy_weight * entropy, metrics
