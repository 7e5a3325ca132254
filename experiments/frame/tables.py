"""A table as data: shown in a terminal, or written as Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table as RichTable

Record = TypeVar("Record")


class Table(NamedTuple):
    """Rows of text; the first `num_names` columns name the row, the others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_names: int = 1

    @classmethod
    def of(cls, title: str, rows: Iterable[Mapping[str, str]], num_names: int = 1) -> "Table":
        """A table of one or more rows from column to cell, which have the same columns."""
        rows = list(rows)
        return cls(title, tuple(rows[0]), [tuple(row.values()) for row in rows], num_names)

    @classmethod
    def by_columns(
        cls,
        title: str,
        records: Iterable[Record],
        columns: Mapping[str, Callable[[Record], str]],
        num_names: int = 1,
    ) -> "Table":
        """A table with a row for each record; a column says what its cell is."""
        rows = [tuple(cell(record) for cell in columns.values()) for record in records]
        return cls(title, tuple(columns), rows, num_names)


def show(table: Table, console: Console | None = None) -> None:
    shown = RichTable(title=table.title, title_justify="left")
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index < table.num_names else "right")
    for row in table.rows:
        shown.add_row(*row)
    (console or Console(highlight=False)).print(shown)


def markdown(table: Table) -> str:
    rules = ["---" if index < table.num_names else "--:" for index in range(len(table.columns))]
    lines = ["| " + " | ".join(row) + " |" for row in (table.columns, rules, *table.rows)]
    return "\n".join([f"## {table.title}", "", *lines, ""])
