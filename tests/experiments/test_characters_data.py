"""The reference texts: their alphabet, their families, the split, and streams of chunks."""

import itertools

import numpy as np
import pytest

from experiments.characters.config import Config
from experiments.characters.train import training_chunks
from experiments.characters.writing import NGram, compressed_bits
from experiments.data.topics import (
    ALPHABET,
    SHINGLE,
    decode,
    encode,
    in_alphabet,
    load_topics,
    make_corpus,
    shingles_of,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def words(seed, length):
    return "".join(np.random.default_rng(seed).choice(list(LETTERS), length))


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(load_topics(), 0.12, 0)


def test_every_text_is_in_the_alphabet_and_comes_back():
    assert in_alphabet("“a’b”\t–ß\n") == '"a\'b" -?\n'
    assert decode(encode(ALPHABET)) == ALPHABET and len(ALPHABET) == 96
    assert encode("\n ~").tolist() == [0, 1, 95] and encode("a").dtype == np.int32


def test_no_held_out_topic_is_learned_from(corpus):
    topics = load_topics()
    parts = set(corpus.training), set(corpus.held_out), set(corpus.left_out)
    assert set.union(*parts) == set(topics)
    assert sum(map(len, parts)) == len(topics)
    sizes = [sum(map(len, part.values())) for part in (corpus.training, corpus.held_out)]
    assert 0.09 <= sizes[1] / sum(sizes) <= 0.12
    assert corpus.num_characters == sum(map(len, topics.values()))
    known = set().union(*map(shingles_of, corpus.training.values()))
    own = set().union(*map(shingles_of, corpus.held_out.values()))
    assert corpus.seen == len(known & own) / len(own) < 0.01


def test_the_split_depends_on_the_names_and_the_seed_alone(corpus):
    again = make_corpus(load_topics(), 0.12, 0)
    assert list(again.held_out) == list(corpus.held_out) and again.digest == corpus.digest
    assert set(make_corpus(load_topics(), 0.12, 1).held_out) != set(corpus.held_out)


def test_what_is_in_a_longer_topic_is_left_out_and_relatives_stay_together():
    whole, shared = words(0, 1000), words(1, 4 * SHINGLE)
    topics = {"whole": whole, "part": whole[:300]}
    topics |= {"one": words(2, 200) + shared, "other": shared + words(3, 250)}
    topics |= {f"alone {i}": words(10 + i, 500) for i in range(8)}
    for seed in range(20):
        corpus = make_corpus(topics, 0.5, seed)
        assert dict(corpus.left_out) == {"part": "whole"}
        assert ("one" in corpus.training) == ("other" in corpus.training)
        assert corpus.seen == 0
        assert 0 < sum(map(len, corpus.held_out.values())) <= 0.5 * (6_000 - 300)


def test_a_split_by_topic_without_families_would_leak():
    """The check of the split can fail: the parts of longer topics are what it is for."""
    topics = {name: in_alphabet(text) for name, text in load_topics().items()}
    shingles = {name: shingles_of(text) for name, text in topics.items()}
    leaks = [
        len(shingles[name] & set().union(*(shingles[o] for o in topics if o != name)))
        / len(shingles[name])
        for name in ("for", "with", "try")
    ]
    assert min(leaks) > 0.5


def test_training_chunks_are_all_texts_in_some_order():
    texts = ["abcdefg\n", "0123456789", "xyz"]
    config = Config(batch_size=2, chunk=4)
    chunks = training_chunks(config, "carried", texts, epoch=3)
    assert chunks.xs.shape == (2, 2, 4)
    before, after, reset = (leaf.swapaxes(0, 1).reshape(2, -1) for leaf in chunks)
    orders = ["".join(order)[:16] for order in itertools.permutations(texts)]
    assert decode(after.ravel()) in orders
    for row in range(2):
        continued = ~reset[row][1:]
        assert (before[row][1:][continued] == after[row][:-1][continued]).all()
        assert (before[row][1:][~continued] == 0).all()
    assert reset[0, 0] and reset.sum() >= 2
    others = [training_chunks(config, "reset", texts, epoch) for epoch in range(8)]
    assert len({one.ys.tobytes() for one in others}) > 1
    assert all(one.reset[..., 0].all() for one in others) and not others[0].reset.all()


def brute_force(texts, order, history, character):
    """Witten-Bell from its definition, by scanning all texts for every history."""
    probability = 1 / len(ALPHABET)
    for length in range(min(order - 1, len(history)) + 1):
        end = history[len(history) - length :]
        following = [
            padded[i + length]
            for padded in ("\n" + text for text in texts)
            for i in range(len(padded) - length)
            if padded[i : i + length] == end and i + length >= 1
        ]
        if not following:
            break
        distinct = len(set(following))
        count = following.count(character)
        probability = (count + distinct * probability) / (len(following) + distinct)
    return probability


@pytest.mark.parametrize("order", [1, 2, 4])
def test_an_ngram_is_its_definition(order):
    texts, new = ["abracadabra, cadabra", "abc abc abd\n"], "abracab zx"
    bits = NGram(texts, order).bits(new)
    padded = "\n" + new
    slow = [
        -np.log2(brute_force(texts, order, padded[:end], padded[end]))
        for end in range(1, len(padded))
    ]
    np.testing.assert_allclose(bits, slow, rtol=1e-12)


def test_an_ngram_is_a_distribution():
    model = NGram(["abracadabra"], 3)
    for history in ("", "ab", "zz", "ra"):
        total = sum(2 ** -model.bits(history + character)[-1] for character in ALPHABET)
        assert total == pytest.approx(1)


@pytest.mark.parametrize("compressor", ["bz2", "lzma"])
def test_a_compressor_needs_less_for_what_it_knows(compressor):
    known, new = words(0, 4000), words(1, 2000)
    again, fresh = (compressed_bits([known], [text], compressor) for text in (known[:2000], new))
    assert again < 0.5 * fresh and 5 < fresh < 8
