"""Labels of characters against a plain reading of tokens, the cuts, and the split by file."""

import io
import keyword
import tokenize

import numpy as np
import pytest

from experiments.frame.errors import ExperimentError
from experiments.tagging import task
from experiments.tagging.measure import confusion_counts, f1_scores, most_frequent
from experiments.tagging.task import CLASSES, NO_TOKEN, UNKNOWN, label_text, load_sources

TEXT = '''# a note
def f(a, *b):
    """Two
    lines."""
    return [0x1F,
            a]  # é

x = "q" if f(1) else 'r'
'''


def slow_labels(text):
    """Token by token, line by line, without any of the module's tables."""
    lines = text.split("\n")
    marks = [[" "] * (len(line) + 1) for line in lines]
    for row in marks:
        row[-1] = "newline"
    for row, line in zip(marks, lines, strict=True):
        for column in range(len(line)):
            row[column] = "indentation" if not line[: column + 1].strip() else "space"
    kinds = {tokenize.NUMBER: "number", tokenize.STRING: "string", tokenize.OP: "operator"}
    kinds |= {tokenize.COMMENT: "comment"}
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = kinds.get(one.type)
        if one.type == tokenize.NAME:
            kind = "keyword" if keyword.iskeyword(one.string) else "name"
        if kind is None:
            continue
        (row, column), end = one.start, one.end
        while (row, column) < end:
            marks[row - 1][column] = kind
            column += 1
            if column == len(marks[row - 1]):
                row, column = row + 1, 0
    return [mark for row in marks for mark in row][:-1]


def test_labels_are_those_of_the_tokens():
    found = label_text("text", TEXT)
    assert [CLASSES[label] for label in found.labels] == slow_labels(TEXT)
    at = TEXT.index("return")
    assert found.position[at : at + 7].tolist() == [*range(6), NO_TOKEN]
    assert found.length[at : at + 7].tolist() == [6] * 6 + [NO_TOKEN]
    assert found.characters[TEXT.index("é")] == UNKNOWN
    assert (found.characters == UNKNOWN).sum() == 1


def test_a_real_file_is_labelled_like_the_slow_way():
    (found,) = load_sources(["textwrap"])
    text = "".join((*task.CHARACTERS, "?")[index] for index in found.characters)
    assert [CLASSES[label] for label in found.labels] == slow_labels(text)


def test_a_formatted_string_is_one_string():
    text = 'x = f"{a + 1} {b!r}"\n'
    found = label_text("text", text)
    assert set(found.labels[4:-1]) == {task.STRING}
    assert found.position[4:-1].tolist() == list(range(len(text) - 5))


def test_cuts_stand_outside_strings_and_brackets():
    twice = "a\n\n\nb\n"
    assert list(task.pieces(label_text("text", twice), 1000)) == [(0, 4), (4, 6)]
    found = label_text("text", TEXT)
    pieces = [TEXT[first:last] for first, last in task.pieces(found, 1000)]
    assert "".join(pieces) == TEXT
    assert [piece.split("\n")[0] for piece in pieces] == ["# a note", "x = \"q\" if f(1) else 'r'"]
    short = [TEXT[first:last] for first, last in task.pieces(found, 45)]
    assert "".join(short) == TEXT
    assert short[0] == "# a note\ndef f(a, *b):\n"  # and not into the string that begins there
    assert short[1].startswith('    """Two\n    lines."""\n') and max(map(len, short)) <= 45


def test_what_is_longer_than_a_row_is_counted_and_left_out():
    found = label_text("text", TEXT)
    corpus = task.make_corpus([found], 35)
    assert corpus.dropped > 0
    assert corpus.num_characters + corpus.dropped == len(TEXT)
    assert corpus.lengths.max() <= 35


@pytest.fixture(scope="module")
def quick_task():
    return task.make_task(True, 256)


def test_no_file_is_in_two_parts(quick_task):
    for parts in ((task.TRAINING, task.VALIDATION, task.TEST), task_names(quick_task)):
        together = [name for part in parts for name in part]
        assert len(together) == len(set(together))


def task_names(parts):
    return [[one.name for one in part.sources] for part in parts]


def test_every_paragraph_comes_once_an_epoch(quick_task):
    paragraphs = quick_task.training.paragraphs
    batches = list(task.minibatches(paragraphs, 8, 256, np.random.default_rng(0)))
    assert sorted(id(one) for batch in batches for one in batch) == sorted(map(id, paragraphs))
    rows = [task.packed_rows(batch, 8, 256).mask.any(axis=1).sum() for batch in batches]
    assert max(rows) <= 8 and np.median(rows) == 8


def test_packed_and_padded_rows_hold_the_same(quick_task):
    some = quick_task.training.paragraphs[:20]
    packed, (padded,) = task.packed_rows(some, 16, 256), task.padded_rows(some, 24, 256)
    assert packed.mask.shape == (16, 256) and padded.mask.shape == (24, 256)
    assert packed.reset.sum() == 20 and not padded.reset.any()
    pairs = [
        sorted(
            zip(rows.characters[rows.mask].tolist(), rows.labels[rows.mask].tolist(), strict=True)
        )
        for rows in (packed, padded)
    ]
    assert pairs[0] == pairs[1] and len(pairs[0]) == sum(len(one.labels) for one in some)


def test_baselines_count():
    def paragraph(text):
        found = label_text("text", text)
        return task.Paragraph(
            *(getattr(found, n) for n in task.Paragraph._fields[:4]), found.labels
        )

    seen, asked = [paragraph("if a:\n  ab = 1\n")] * 2, [paragraph("a = if_\n")]
    assert {CLASSES[label] for label in most_frequent(seen, asked, 0)} == {"name"}
    told = [CLASSES[label] for label in most_frequent(seen, asked, 1)]
    assert told[0] == "name" and told[2] == "operator" and told[4:6] == ["keyword"] * 2
    assert told[6] == CLASSES[most_frequent(seen, asked, 0)[0]]  # "_" was never seen
    deeper = [CLASSES[label] for label in most_frequent(seen, asked, 3)]
    assert deeper[1] == "space" and len(deeper) == 8


def test_scores_against_counting_by_hand():
    labels, told = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    counts = confusion_counts(labels, told)
    assert counts[:3, :3].tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 1]] and counts.sum() == 6
    scores = f1_scores(labels, told)
    np.testing.assert_allclose(scores[:3], [4 / 5, 1 / 2, 2 / 3])
    assert np.isnan(scores[3:]).all()


def test_a_missing_or_broken_file_is_an_error(tmp_path):
    with pytest.raises(ExperimentError, match="nothing.py is missing"):
        load_sources(["nothing"], tmp_path)
    (tmp_path / "broken.py").write_text('x = (1\ny = """\n')
    with pytest.raises(ExperimentError, match="broken is no Python"):
        load_sources(["broken"], tmp_path)
