"""US employment: the facts of the data, and that a damaged file is named."""

import shutil
import socket

import numpy as np
import pytest

from experiments.data.vega import folder_in_vega_datasets
from experiments.frame.errors import ExperimentError
from experiments.minimal import task as employment


@pytest.fixture(scope="module")
def loaded():
    return employment.load_employment()


def test_the_table_is_the_one_of_the_bureau(loaded):
    assert loaded.thousands.shape == (15, 120)
    assert (str(loaded.months[0]), str(loaded.months[-1])) == ("2006-01", "2015-12")
    row = dict(zip(employment.INDUSTRIES, loaded.thousands, strict=True))
    assert (row["mining_and_logging"][0], row["mining_and_logging"][-1]) == (656, 745)
    assert row["wholesale_trade"][0] == 5840.4
    # 135,450 thousand people worked outside of farms in January 2006.
    assert round(loaded.thousands[:, 0].sum()) == 135450


def test_no_industry_contains_another(loaded):
    assert len(set(employment.INDUSTRIES)) == 15
    assert not {"nonfarm", "private", "manufacturing"} & set(employment.INDUSTRIES)


def test_changes_add_up_to_the_growth(loaded):
    changes = employment.monthly_changes(loaded)
    assert changes.shape == (15, 119)
    np.testing.assert_allclose(changes[0, 0], 100 * np.log(662 / 656))
    growth = np.exp(changes.sum(axis=1) / 100)
    np.testing.assert_allclose(growth, loaded.thousands[:, -1] / loaded.thousands[:, 0])


def test_loading_needs_no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("it reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    employment.load_employment()


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ExperimentError, match="us-employment.csv is missing"):
        employment.load_employment(tmp_path)


def a_month_less(text):
    lines = text.splitlines(keepends=True)
    return "".join(lines[:50] + lines[51:])


def a_month_twice(text):
    return text.replace("2006-03-01", "2006-02-01")


def another_number(text):
    return text.replace(",656,", ",756,", 1)


def not_a_number(text):
    return text.replace(",656,", ",many,", 1)


def not_finite(text):
    return text.replace(",656,", ",nan,", 1)


def a_column_less(text):
    return text.replace("construction", "building", 1)


def cut(text):
    return text[: len(text) // 2]


def empty(text):
    return ""


DAMAGES = [a_month_less, a_month_twice, another_number, not_a_number, not_finite, a_column_less]


@pytest.mark.parametrize("damage", [*DAMAGES, cut, empty])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "us-employment.csv"
    shutil.copy(folder_in_vega_datasets() / path.name, path)
    text = path.read_text()
    path.write_text(damage(text))
    assert path.read_text() != text
    with pytest.raises(ExperimentError, match="us-employment.csv is damaged"):
        employment.load_employment(tmp_path)
