"""A table as data: shown in a terminal, or written as Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable


class Table(NamedTuple):
    """Rows of text; the first `num_names` columns name the row, the others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_names: int = 1


def show(table: Table, console: Console | None = None) -> None:
    """Prints the table."""
    shown = RichTable(title=table.title, title_justify="left")
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index < table.num_names else "right")
    for row in table.rows:
        shown.add_row(*row)
    (console or Console(highlight=False)).print(shown)


def markdown(table: Table) -> str:
    """The table as a Markdown section."""
    rules = ["---" if index < table.num_names else "--:" for index in range(len(table.columns))]
    lines = ["| " + " | ".join(row) + " |" for row in (table.columns, rules, *table.rows)]
    return "\n".join([f"## {table.title}", "", *lines, ""])


def mean_and_spread(values: np.ndarray, digits: int = 1) -> str:
    """Mean ± standard deviation of the sample, as far as there are values for them."""
    if len(values) == 0:
        return "-"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"
