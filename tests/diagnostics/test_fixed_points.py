import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(0)
PAIR = jr.elman(2)
X = jnp.zeros(1)
GRID = jnp.stack(jnp.meshgrid(*2 * [jnp.linspace(-1, 1, 7)]), axis=-1)


def pair(kernel, bias=(0.0, 0.0)):
    return jr.cells.ElmanParams(jnp.zeros((1, 2)), jnp.array(kernel, float), jnp.array(bias))


def points_of_pair(params, **options):
    carries = jr.cells.ElmanCarry(GRID.astype(params.bias.dtype))
    return jr.fixed_points(PAIR, params, X, carries, noise=0.05, key=KEY, **options)


def solution(weight):
    """The h above 0 with h = tanh(weight h)."""
    h = 1.0
    for _ in range(1000):
        h = np.tanh(weight * h)
    return h


def found_near(points, expected):
    distances = np.linalg.norm(np.asarray(points.carry.h) - expected, axis=-1)
    assert distances.min() < 1e-6
    return int(distances.argmin())


def assert_rests(model, params, x, points):
    """One step moves no point, and its Jacobian is that of a step."""
    xs = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(points.speed), *leaf.shape)), x)
    after, _ = jr.step(model, params, points.carry, xs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), after, points.carry)
    jacobians = jr.carry_jacobians(model, params, xs[:, None], carry=points.carry)
    np.testing.assert_allclose(points.jacobian, jacobians[:, 0], atol=1e-12)


def test_two_bistable_units_have_nine_points(x64):
    points = points_of_pair(pair([[2, 0], [0, 1.5]]))
    first, second = solution(2), solution(1.5)
    assert len(points.speed) == 9 and points.is_fixed.all() and points.num_dropped == 0
    assert points.num_merged.sum() == 49
    for a in (-first, 0, first):
        for b in (-second, 0, second):
            found = found_near(points, [a, b])
            slopes = sorted([2 * (1 - a**2), 1.5 * (1 - b**2)], reverse=True)
            np.testing.assert_allclose(points.eigenvalues[found], slopes, atol=1e-5)
            assert points.num_unstable[found] == (a == 0) + (b == 0)
            assert points.is_stable[found] == (a != 0 and b != 0)
            np.testing.assert_allclose(points.time_constants[found], -1 / np.log(slopes), rtol=1e-3)
    stable = points.only(points.is_stable)
    assert stable.carry.h.shape == (4, 2) and stable.num_dropped == 0


def test_coupled_units_have_symmetric_points(x64):
    points = points_of_pair(pair([[1.2, 0.8], [0.8, 1.2]]))
    together = solution(2)
    assert len(points.speed) == 3
    assert points.is_stable[found_near(points, [together, together])]
    assert points.is_stable[found_near(points, [-together, -together])]
    assert not points.is_stable[found_near(points, [0, 0])]


def test_a_slow_point_is_not_a_fixed_one_and_does_not_become_one(x64):
    """Just after its stable point has met its saddle, the first unit crawls through the gap."""
    met = np.sqrt(0.5)
    bias = np.arctanh(met) - 2 * met - 1e-3
    points = points_of_pair(pair([[2, 0], [0, 0.5]], (bias, 0)))
    slow = points.only(~points.is_fixed)
    assert len(points.speed) == 2 and points.num_dropped == 0
    np.testing.assert_allclose(slow.carry.h, [[met, 0]], atol=1e-3)
    np.testing.assert_allclose(slow.speed, 5e-4, rtol=0.01)
    assert points.speed[0] < 1e-9
    # Wider apart, what is left of the two is too fast to be called slow.
    points = points_of_pair(pair([[2, 0], [0, 0.5]], (bias - 0.1, 0)))
    assert len(points.speed) == 1 and points.num_dropped > 0


def test_a_line_attractor_keeps_points_along_it(x64):
    cell = jr.simple_cell(lambda key, num_inputs: jnp.ones(()), held_first, 2)
    points = jr.fixed_points(cell, jnp.ones(()), X, GRID.astype(float))
    np.testing.assert_allclose(np.sort(points.carry[:, 0]), np.linspace(-1, 1, 7), atol=1e-6)
    np.testing.assert_allclose(points.carry[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(points.eigenvalues, 7 * [[1, 0.5]])


def held_first(params, carry, z):
    del z
    return params * carry * jnp.array([1.0, 0.5])


def test_a_linear_cell_with_a_complex_carry_has_one_point(x64):
    cell = jr.lru(2, 3)
    params = jax.tree.map(lambda leaf: leaf.astype(float), cell.init(KEY, 2))
    x = jnp.array([0.5, -1.0])
    carries = jr.carries(cell, params, jax.random.normal(KEY, (7, 2)))
    points = jr.fixed_points(cell, params, x, carries)
    assert len(points.speed) == 1 and points.is_stable.all()
    assert points.jacobian.shape == (1, 6, 6) and points.num_merged.tolist() == [7]
    assert_rests(cell, params, x, points)


def test_an_lstm_in_a_stack(x64):
    model = jr.serial(jr.lstm(3), jr.dense(2))
    params = jax.tree.map(lambda leaf: 2 * leaf.astype(float), model.init(KEY, 2))
    carries = jr.carries(model, params, jax.random.normal(KEY, (4, 5, 2)))
    points = jr.fixed_points(model, params, jnp.zeros(2), carries, tolerance=1e-8)
    assert points.is_fixed.any() and points.jacobian.shape[1:] == (6, 6)
    assert_rests(model, params, jnp.zeros(2), points.only(points.is_fixed))


def test_errors(x64):
    params, key = pair([[2, 0], [0, 1]]), KEY
    carries = jr.cells.ElmanCarry(jnp.ones((4, 2)))

    def found(model=PAIR, params=params, x=X, carries=carries, **options):
        return jr.fixed_points(model, params, x, carries, **options)

    for error, message, arguments in (
        (ValueError, "slow_tolerance must be at least tolerance", {"tolerance": 0.1}),
        (ValueError, "merge_distance must be finite and not below 0", {"merge_distance": -1.0}),
        (ValueError, "learning_rate must be above 0", {"learning_rate": 0}),
        (ValueError, "num_steps must be at least 1", {"num_steps": 0}),
        (ValueError, "key must be given with noise", {"noise": 0.1}),
        (ValueError, "key must be given with noise", {"key": key}),
        (ValueError, "x must be one input without leading axes", {"x": jnp.zeros((4, 1))}),
        (ValueError, "params", {"x": jnp.zeros(3)}),
        (TypeError, "carries must have the structure", {"carries": jnp.ones((4, 2))}),
        (ValueError, "carries.h must have the shape", {"carries": carries._replace(h=jnp.ones(3))}),
        (ValueError, "at least one carry", {"carries": carries._replace(h=jnp.ones((0, 2)))}),
        (TypeError, "model must be a Cell or a Layer", {"model": None}),
    ):
        with pytest.raises(error, match=message):
            found(**arguments)
    with pytest.raises(TypeError, match="must not be traced"):
        jax.jit(lambda x: found(x=x).speed)(X)
    zeros = jr.cells.ElmanCarry(jnp.zeros((49, 2)))
    for bad in (zeros, zeros._replace(h=zeros.h.at[0].set(jnp.nan))):
        with pytest.raises(ValueError, match="carries must be finite and not all zero"):
            found(carries=bad, noise=0.05, key=KEY)
    counter = jr.self_attention(1, window=2)
    of_counter = counter.init(key, 2)
    with pytest.raises(TypeError, match="carry of floating arrays only"):
        found(counter, of_counter, jnp.zeros(2), counter.initial_carry(of_counter, (3,)))
    both = jr.bidirectional(jr.gru(2))
    with pytest.raises(ValueError, match="causal"):
        found(both, both.init(key, 1), carries=both.initial_carry(both.init(key, 1), (3,)))
    dense = jr.dense(2)
    with pytest.raises(TypeError, match="floating or complex"):
        found(dense, dense.init(key, 1), carries=())
