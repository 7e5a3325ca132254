"""Memory tasks as pure functions: a T-maze, repeat-first, and a cart-pole without velocities.

In all of them the best return is 1 or just below, and an episode that has ended is followed by a
new one at once: `step` then returns the state and the observation of the new episode.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr

NUM_SUITS = 4
DECK = 52
# Barto, Sutton and Anderson 1983, with the numbers of Gym's CartPole.
GRAVITY, CART_MASS, POLE_MASS, HALF_POLE, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FARTHEST, STEEPEST = 2.4, 12 * jnp.pi / 180
BALANCED_STEPS = 200
FORWARD, BACK, UP, DOWN = range(4)


class Environment(NamedTuple):
    """A task for one agent; vmapped over keys, states and actions it is one for many."""

    name: str
    reset: Callable[[Any], tuple[Any, Any]]  # `key -> (state, observation [O])`
    # `(state, action, key) -> (state, observation, reward, done)`, reset by itself after the end
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    num_features: int  # O
    num_actions: int
    longest: int  # steps of the longest episode
    # the mean return of the best policy that sees the present observation alone, where it is known
    chance: float | None = None
    length: int | None = None  # of the corridor


def reset_after_the_end(reset: Callable[..., Any], advance: Callable[..., Any]) -> Any:
    """`step` from `advance(state, action, key) -> (state, observation, reward, done)`."""

    def step(state, action, key):
        advance_key, reset_key = jax.random.split(key)
        state, observation, reward, done = advance(state, action, advance_key)
        now = jr.select_carry(done, reset(reset_key), (state, observation))
        return *now, reward, done

    return step


class Maze(NamedTuple):
    goal: Any  # `UP` or `DOWN`
    place: Any  # 0 at the start, N at the junction
    time: Any  # steps made


def t_maze(length: int) -> Environment:
    """A corridor of `length` steps to a junction, where the cue seen at the start says which way.

    Bakker 2001, "Reinforcement learning with long short-term memory". Actions are forward, back, up
    and down. Observations are one-hot: up or down (the cue, at the first step alone), corridor,
    junction. Going the right way at the junction gives 1 and the wrong way 0; both end the episode.
    Every other step that does not lead forward costs 1 / length, as standing still costs 0.1 in the
    paper, and after one and a half times `length` steps the episode ends.
    """
    longest = 3 * length // 2

    def observe(maze):
        at_junction = jnp.where(maze.place == length, 3, 2)
        return jax.nn.one_hot(jnp.where(maze.time == 0, maze.goal - UP, at_junction), 4)

    def reset(key):
        maze = Maze(jax.random.randint(key, (), UP, DOWN + 1), jnp.int32(0), jnp.int32(0))
        return maze, observe(maze)

    def advance(maze, action, key):
        del key
        turned = (maze.place == length) & (action >= UP)
        moved = jnp.where(action == FORWARD, 1, jnp.where(action == BACK, -1, 0))
        place = jnp.clip(maze.place + moved, 0, length)
        reward = jnp.where(place > maze.place, 0.0, -1 / length)
        reward = jnp.where(turned, (action == maze.goal).astype(jnp.float32), reward)
        maze = Maze(maze.goal, place, maze.time + 1)
        return maze, observe(maze), reward, turned | (maze.time == longest)

    step = reset_after_the_end(reset, advance)
    return Environment(f"T-maze {length}", reset, step, 4, 4, longest, 0.5, length)


class Cards(NamedTuple):
    first: Any  # the suit to name
    time: Any  # cards seen


def repeat_first() -> Environment:
    """The suit of the first of 52 cards is to be named after each of them.

    Morad et al. 2023, "POPGym" (arXiv:2303.01859), with suits that are drawn independently. The
    observation is the suit of the newest card and whether it is the first, one-hot; each right
    answer gives 1 / 52, each wrong one takes that away.
    """

    def observe(suit, is_first):
        return jnp.append(jax.nn.one_hot(suit, NUM_SUITS), is_first)

    def reset(key):
        suit = jax.random.randint(key, (), 0, NUM_SUITS)
        return Cards(suit, jnp.int32(1)), observe(suit, 1.0)

    def advance(cards, action, key):
        reward = jnp.where(action == cards.first, 1 / DECK, -1 / DECK)
        suit = jax.random.randint(key, (), 0, NUM_SUITS)
        return Cards(cards.first, cards.time + 1), observe(suit, 0.0), reward, cards.time == DECK

    # The first answer is right, and each of the others in one of four cases.
    chance = (1 - (DECK - 1) * (1 - 2 / NUM_SUITS)) / DECK
    step = reset_after_the_end(reset, advance)
    return Environment("repeat-first", reset, step, NUM_SUITS + 1, NUM_SUITS, DECK, chance)


class CartPole(NamedTuple):
    position: Any
    velocity: Any
    angle: Any  # of the pole, from upright
    angular_velocity: Any
    time: Any


def cart_pole() -> Environment:
    """A pole on a cart is to be balanced for 200 steps, by pushing left or right.

    Barto, Sutton and Anderson 1983, as in Gym; like POPGym's position-only form the observation is
    the position and the angle, in units of their limits, without velocities. Each step gives
    1 / 200.
    """

    def observe(cart):
        return jnp.stack([cart.position / FARTHEST, cart.angle / STEEPEST])

    def reset(key):
        start = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        cart = CartPole(*start, time=jnp.int32(0))
        return cart, observe(cart)

    def advance(cart, action, key):
        del key
        position, velocity, angle, angular_velocity, time = cart
        force = jnp.where(action == 1, FORCE, -FORCE)
        mass, pole = CART_MASS + POLE_MASS, POLE_MASS * HALF_POLE
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + pole * angular_velocity**2 * sine) / mass
        inertia = HALF_POLE * (4 / 3 - POLE_MASS * cosine**2 / mass)
        angular_acceleration = (GRAVITY * sine - cosine * push) / inertia
        acceleration = push - pole * angular_acceleration * cosine / mass
        cart = CartPole(
            position + SECONDS * velocity,
            velocity + SECONDS * acceleration,
            angle + SECONDS * angular_velocity,
            angular_velocity + SECONDS * angular_acceleration,
            time + 1,
        )
        fell = (jnp.abs(cart.position) > FARTHEST) | (jnp.abs(cart.angle) > STEEPEST)
        reward = jnp.float32(1 / BALANCED_STEPS)
        return cart, observe(cart), reward, fell | (cart.time == BALANCED_STEPS)

    step = reset_after_the_end(reset, advance)
    return Environment("cart-pole", reset, step, 2, 2, BALANCED_STEPS)


TASKS: Mapping[str, Callable[[Sequence[int]], list[Environment]]] = {
    "t_maze": lambda lengths: [t_maze(length) for length in lengths],
    "repeat_first": lambda lengths: [repeat_first()],
    "cart_pole": lambda lengths: [cart_pole()],
}
