import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

V, N, STOP = 4, 3, 3
EVERY = np.array(list(itertools.product(range(V), repeat=N)))
WRITER = jr.serial(
    jr.embed(3, param_dtype=jnp.float64),
    jr.lstm(3, param_dtype=jnp.float64),
    jr.dense(V, param_dtype=jnp.float64),
)
STARTS = np.array([3, 0])


@pytest.fixture
def small(x64):
    """A writer with a vocabulary of 4 whose logits are far apart."""
    params = WRITER.init(jax.random.key(4), V)
    return WRITER, jax.tree.map(lambda leaf: 3 * leaf, params)


def log_probabilities(layer, params, start):
    """Log-probabilities `[V^N, N]` of the tokens of every sequence."""
    read = np.concatenate([np.full((len(EVERY), 1), start), EVERY[:, :-1]], axis=1)
    logits = np.asarray(jr.unroll(layer, params, read).outputs)
    logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.take_along_axis(logits, EVERY[..., None], -1)[..., 0]


def all_sequences(steps, stops):
    """Sequence -> log-probability, each cut after its first stop token."""
    found = {}
    for tokens, own in zip(EVERY.tolist(), steps, strict=True):
        end = next((i + 1 for i, token in enumerate(tokens) if token in stops), N)
        found[tuple(tokens[:end])] = own[:end].sum()
    return found


def score(log_probability, length, alpha):
    return log_probability / ((5 + length) / 6) ** alpha


def ranked(found, alpha):
    scored = [(score(logp, len(tokens), alpha), tokens) for tokens, logp in found.items()]
    return sorted(scored, reverse=True)


def searched(steps, stops, alpha, num_beams):
    """The rule in plain Python: keep the best extensions, put aside those that have stopped."""
    logp = {}
    for tokens, own in zip(EVERY.tolist(), steps, strict=True):
        for end in range(1, N + 1):
            logp[tuple(tokens[:end])] = own[:end].sum()
    beams, complete = [()], []
    for _ in range(N):
        longer = [(*beam, token) for beam in beams for token in range(V)]
        kept = sorted(longer, key=lambda tokens: -logp[tokens])[:num_beams]
        complete += [tokens for tokens in kept if tokens[-1] in stops]
        beams = [tokens for tokens in kept if tokens[-1] not in stops]
    return ranked({tokens: logp[tokens] for tokens in complete + beams}, alpha)[:num_beams]


def assert_found(found, row, want, stops):
    lengths = [len(tokens) for _, tokens in want]
    count = len(want)
    np.testing.assert_allclose(found.scores[row, :count], [value for value, _ in want], rtol=1e-9)
    np.testing.assert_array_equal(found.lengths[row, :count], lengths)
    for n, (_, tokens) in enumerate(want):
        padded = [*tokens, *[-5] * (N - len(tokens))]
        np.testing.assert_array_equal(found.tokens[row, n], padded)
        assert found.stopped[row, n] == (tokens[-1] in stops)
    assert (found.scores[row, count:] == -np.inf).all()
    assert (found.lengths[row, count:] == 0).all()
    assert (found.tokens[row, count:] == -5).all() and not found.stopped[row, count:].any()


@pytest.mark.parametrize("num_beams", [V**N, 3])
def test_it_finds_what_a_search_in_plain_python_finds(small, num_beams):
    layer, params = small
    steps = [log_probabilities(layer, params, start) for start in STARTS]
    options = {"beams": num_beams, "max_steps": N, "pad": -5}
    for stops in ((1, 2), (9, 9)):
        for alpha in (0.0, 0.7, 3.0):
            found = jr.beam_search(
                layer, params, None, STARTS, stop_token=stops, length_penalty=alpha, **options
            )
            for row, own in enumerate(steps):
                if num_beams == V**N:
                    want = ranked(all_sequences(own, stops), alpha)
                    assert want == searched(own, stops, alpha, num_beams)
                else:
                    want = searched(own, stops, alpha, num_beams)
                assert_found(found, row, want, stops)


def test_one_beam_is_greedy_and_n_best_the_first(small):
    layer, params = small
    starts = np.arange(4).reshape(2, 2)
    greedy = jr.generate(layer, params, starts[..., None], 6, stop_token=STOP)
    assert greedy.stopped.any() and not greedy.stopped.all()
    for alpha in (0.0, 2.0):
        one = jr.beam_search(
            layer, params, None, starts, beams=1, max_steps=6, stop_token=STOP, length_penalty=alpha
        )
        np.testing.assert_array_equal(one.tokens[..., 0, :], greedy.tokens)
        np.testing.assert_array_equal(one.lengths[..., 0], greedy.mask.sum(-1))
        np.testing.assert_array_equal(one.stopped[..., 0], greedy.stopped)
    whole, two = (
        jr.beam_search(layer, params, None, 3, beams=3, max_steps=4, stop_token=1, n_best=n)
        for n in (None, 2)
    )
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:2], b), whole, two)


def test_it_goes_on_from_a_carry_and_scores_have_gradients(small):
    layer, params = small
    prompt = jnp.array([2, 1, 3])
    carry = jr.unroll(layer, params, prompt[:-1]).carry

    def best(params):
        found = jr.beam_search(
            layer, params, carry, prompt[-1], beams=4, max_steps=N, stop_token=None
        )
        return found.scores[0], found.tokens[0]

    def forced(params, tokens):
        read = jnp.append(prompt[-1:], tokens[:-1])
        logits = jr.unroll(layer, params, read, carry=carry).outputs
        return -jr.cross_entropy(logits, tokens).sum()

    (value, tokens), gradient = jax.value_and_grad(best, has_aux=True)(params)
    want, want_gradient = jax.value_and_grad(forced)(params, tokens)
    np.testing.assert_allclose(value, want, rtol=1e-9)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12),
        gradient,
        want_gradient,
    )


def chain(transitions):
    """A cell that looks up its logits in a table: no memory."""

    def advance(params, carry, z):
        return z

    return jr.simple_cell(
        lambda key, n: jnp.asarray(transitions, jnp.float32),
        advance,
        len(transitions),
        project=lambda params, x: params[x],
        num_feature_axes=0,
    )


def search(table, start, **options):
    cell = chain(table)
    params = cell.init(jax.random.key(0), 1)
    return jr.beam_search(cell, params, None, start, **{"max_steps": 2, "beams": 4} | options)


def test_ties_forbidden_tokens_dead_ends_and_nan():
    inf = np.inf
    # From 0 to 1 or 2 alike; from 1 only to 0; 2 leads nowhere; 3 gives NaN.
    table = [[-inf, 0, 0, -inf], [0, -inf, -inf, -inf], [-inf] * 4, [np.nan, 0, 0, 0]]
    starts = jnp.array([0, 1, 2, 3])
    found = search(table, starts, stop_token=2, beams=2)
    np.testing.assert_allclose(found.scores[0], [np.log(0.5)] * 2)
    np.testing.assert_array_equal(found.tokens[0], [[2, 0], [1, 0]])
    np.testing.assert_array_equal(found.stopped[0], [True, False])
    # The other rows: one way only at first, none at all, and NaN that stays in its row.
    np.testing.assert_allclose(found.scores[1:], [[np.log(0.5)] * 2, [-inf] * 2, [np.nan] * 2])
    np.testing.assert_array_equal(found.tokens[1:, 0], [[0, 2], [0, 0], [-1, -1]])
    assert found.scores.dtype == jnp.float32


def test_no_rows_have_no_hypotheses(small):
    found = jr.beam_search(*small, None, STARTS[:0], beams=2, max_steps=2, stop_token=STOP)
    assert found.tokens.shape == (0, 2, 2) and found.scores.shape == (0, 2)


def test_gradients_pass_by_dead_ends():
    # After token 0 everything is forbidden, and there are fewer sequences than beams.
    table = jnp.zeros((3, 3)).at[0].set(-jnp.inf)

    def best(params, alpha):
        options = {"beams": 9, "max_steps": 2, "stop_token": 2, "length_penalty": alpha}
        return jr.beam_search(jr.embed(3), params, None, jnp.array(1), **options).scores[0]

    gradient, of_alpha = jax.grad(best, (0, 1))(jr.layers.EmbedParams(table), 0.5)
    want = np.array([[0, 0, 0], [-1 / 3, -1 / 3, 2 / 3], [0, 0, 0]])
    np.testing.assert_allclose(gradient.table, want, rtol=1e-6)
    assert of_alpha == 0  # One token has no penalty.


def test_a_logit_of_inf_forces_its_token():
    params = jr.layers.EmbedParams(jnp.array([[0.0, jnp.inf, 2.0], [1.0, 0.0, 0.0], [jnp.nan] * 3]))

    def search(params):
        options = {"beams": 2, "max_steps": 2, "stop_token": None}
        return jr.beam_search(jr.embed(3), params, None, jnp.array([0, 2]), **options)

    found = search(params)
    np.testing.assert_array_equal(found.tokens[:, 0], [[1, 0], [-1, -1]])
    logp = jax.nn.log_softmax(jnp.array([1.0, 0, 0]))
    np.testing.assert_allclose(found.scores, [logp[:2], [np.nan] * 2], rtol=1e-6)
    gradient = jax.grad(lambda params: search(params).scores[0, 0])(params).table
    np.testing.assert_allclose(gradient[:2], [[0] * 3, [1, 0, 0] - np.exp(logp)], atol=1e-6)


def test_errors_name_the_argument(small):
    layer, params = small
    cases = [
        ({"beams": 0}, ValueError, "^beams must be at least 1"),
        ({"max_steps": 1.5}, TypeError, "^max_steps must be an int"),
        ({"n_best": 3}, ValueError, "^n_best must be at most beams, 2, got 3"),
        ({"length_penalty": -1.0}, ValueError, "^length_penalty must be a number of at least 0"),
        ({"length_penalty": np.ones(2)}, ValueError, "^length_penalty must be one number"),
        ({"start": 0.5}, TypeError, "^start must be signed ints"),
        ({"stop_token": 0.5}, TypeError, "^stop_token must be integer tokens"),
        ({"pad": 0.5}, TypeError, "^pad must be integer tokens"),
        ({"carry": ()}, TypeError, "^carry must have the structure"),
        ({"model": jr.gru(2)}, ValueError, "^model must read tokens"),
        ({"model": jr.bidirectional(jr.gru(2))}, ValueError, "^model must be causal"),
    ]
    for changed, error, message in cases:
        arguments = {
            "model": layer, "params": params, "carry": None, "start": STARTS, "beams": 2,
            "max_steps": 2, "stop_token": 1,
        }  # fmt: skip
        with pytest.raises(error, match=message):
            jr.beam_search(**arguments | changed)
