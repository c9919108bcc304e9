"""The answer to a query, and how it is written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec

CELL_CHARS_MAX = 60
"""Of a cell in a text."""


class SqlTable(msgspec.Struct, frozen=True):
    """Rows of a query. Iterating gives rows, each a tuple."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    copied: int = 0
    """Messages and events that were copied to answer it."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """Each row as a dictionary; of columns of one name the last."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def csv(self) -> str:
        """With a line of names first. Bytes are written in hexadecimal."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_hex(value) for value in row] for row in self.rows)
        return out.getvalue()

    def json(self) -> str:
        """A list of objects. Bytes are written in hexadecimal."""
        rows = [{name: _hex(value) for name, value in row.items()} for row in self.dicts()]
        return json.dumps(rows, ensure_ascii=False)

    def text(self) -> str:
        """Lines for people, in columns; long values are cut."""
        cells = [[_cell(value) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        numeric = [all(isinstance(row[at], int | float) for row in self.rows) for at in range(len(widths))]

        def line(row: list[str]) -> str:
            padded = [
                one.rjust(width) if right else one.ljust(width)
                for one, width, right in zip(row, widths, numeric, strict=True)
            ]
            return "  ".join(padded).rstrip()

        return "\n".join([line(self.columns), "  ".join("-" * width for width in widths), *map(line, cells)])


def _hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    told = "".join(one if one.isprintable() else " " for one in str(_hex(value)))
    return told if len(told) <= CELL_CHARS_MAX else told[: CELL_CHARS_MAX - 1] + "…"
