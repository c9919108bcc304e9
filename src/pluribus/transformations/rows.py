"""CSV (RFC 4180): rows of texts. With a header each row is read as a dictionary, without one as a list."""

from __future__ import annotations

import csv
import io
from typing import Any

from ..core.errors import BadInput, NotTransformed
from .steps import Format, Plain, checked_encoding, checked_size, encoded_text, scalar_text, text_of

FIELD_CHARS_MAX = csv.field_size_limit()


class CsvRows(Format, frozen=True, kw_only=True):
    """``header=false``: the first row is an ordinary one. Then ``columns`` names the columns; with a header, it is the
    order in which they are written."""

    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: str = '"'
    encoding: str = ""

    def __post_init__(self) -> None:
        if self.encoding:
            checked_encoding(self.encoding)
        for what, character in (("delimiter", self.delimiter), ("quote", self.quote)):
            if len(character) != 1 or character in "\r\n\0 " or (not character.isprintable() and character != "\t"):
                raise BadInput(f"{what}={character!r}: give one character, such as ';' or tab")
        if self.delimiter == self.quote:
            raise BadInput(f"{self.delimiter!r} is both the delimiter and the quote: choose two")
        if len(set(self.columns)) < len(self.columns):
            raise BadInput("a column is named twice: name each once")

    def read(self, body: Any) -> Plain:
        text = text_of(body, self.encoding, "CSV")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, quotechar=self.quote, strict=True)
        rows: list[list[str]] = []
        lines: list[int] = []
        try:
            for row in reader:
                if row:  # a blank line is no row
                    rows.append(row)
                    lines.append(reader.line_num)
        except csv.Error as error:
            raise NotTransformed(f"no CSV, line {reader.line_num}: {error}") from None
        names = self.columns
        if self.header:
            if not rows:
                raise NotTransformed("no CSV with a header: it is empty")
            names = self._named(rows.pop(0))
            del lines[0]
        width = len(names) or (len(rows[0]) if rows else 0)
        for row, line in zip(rows, lines, strict=True):
            if len(row) != width:
                raise NotTransformed(f"line {line} has {len(row)} fields, and not {width}")
        if not names:
            return rows
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _named(self, header: list[str]) -> tuple[str, ...]:
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise NotTransformed(f"the header names {twice!r} twice")
        missing = [name for name in self.columns if name not in header]
        if missing or (self.columns and len(header) != len(self.columns)):
            raise NotTransformed(f"the header is {header}, and not {list(self.columns)}")
        return tuple(header)

    def write(self, value: Plain) -> Any:
        rows = [value] if isinstance(value, dict) else value
        if not isinstance(rows, list | tuple):
            raise NotTransformed(
                f"a {type(value).__name__} has no rows: CSV is written of a list of dictionaries, or of lists"
            )
        columns = self.columns or (tuple(rows[0]) if rows and isinstance(rows[0], dict) else ())
        if self.header and not columns:
            raise NotTransformed("without dictionaries there are no names for the header: say columns= or header=false")
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=self.delimiter, quotechar=self.quote, lineterminator="\r\n")
        if self.header:
            writer.writerow([scalar_text(name, "the name of a column") for name in columns])
        for number, row in enumerate(rows, 1):
            writer.writerow(_fields(row, columns, number))
        written = checked_size(out.getvalue(), "CSV")
        return encoded_text(written, self.encoding) if self.encoding else written


def _fields(row: Any, columns: tuple[str, ...], number: int) -> list[str]:
    if isinstance(row, dict):
        if not columns or row.keys() != set(columns):
            raise NotTransformed(f"row {number} has the names {list(row)}, and not {list(columns)}")
        row = [row[name] for name in columns]
    elif not isinstance(row, list | tuple):
        raise NotTransformed(f"row {number} is a {type(row).__name__}, and no dictionary or list")
    if not row or (columns and len(row) != len(columns)):
        raise NotTransformed(f"row {number} has {len(row)} fields, and not {len(columns) or 'at least 1'}")
    return ["" if one is None else scalar_text(one, "a field of CSV") for one in row]
