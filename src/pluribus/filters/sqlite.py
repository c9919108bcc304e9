"""The WHERE clause for SQLite.

SQLite compares whole numbers and doubles exactly, so numbers need no care. Its LIKE ignores case: GLOB stands for it.
Its functions depend on how it was built: ours are added to the connection, the very ones that predicates call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .like import as_glob, pieces_of
from .numbers import FUNCTIONS, OPERAND_MAX, OPERAND_MIN, computes, kind_of
from .sql import Writer, constant_of, quoted
from .tree import Call, Constant, Field, Kind, Like, Node

if TYPE_CHECKING:
    import sqlite3

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = {
    Kind.NUMBER: ("integer", "real"),
    Kind.TEXT: ("text",),
}


class SqliteWriter(Writer):
    placeholder = "?"
    zero = "0.0"

    def read(self, field: Field, kind: Kind) -> str:
        column = self.column(field)
        if column is not None:
            return quoted(column.name) if column.kind is kind else "NULL"
        type_of = f"json_type({self._place(field)})"
        if kind is Kind.BOOLEAN:
            return f"(CASE {type_of} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)"
        types = ", ".join(f"'{name}'" for name in _TYPES[kind])
        return f"(CASE WHEN {type_of} IN ({types}) THEN json_extract({self._place(field)}) END)"

    def _place(self, field: Field) -> str:
        document = quoted(self.layout.document or "")
        path = "$" + "".join(f'."{name}"' for name in field.path)
        simple = all(_SIMPLE.fullmatch(name) for name in field.path)
        return f"{document}, {repr(path) if simple else self.bind(path)}"

    def absent(self, field: Field) -> str:
        column = self.column(field)
        if column is not None:
            return f"({quoted(column.name)} IS NULL)"
        return f"(COALESCE(json_type({self._place(field)}), 'null') = 'null')"

    def field_as_double(self, field: Field) -> str:
        return f"CAST({self.read(field, Kind.NUMBER)} AS REAL)"

    def operand(self, field: Field) -> str:
        size = f"abs({self.field_as_double(field)})"
        inside = f"WHEN {size} BETWEEN {OPERAND_MIN!r} AND {OPERAND_MAX!r} THEN {self.field_as_double(field)}"
        size = f"abs({self.field_as_double(field)})"
        return f"(CASE {inside} WHEN {size} < {OPERAND_MIN!r} THEN 0.0 END)"

    def compare_constant(self, operator: str, field: Field, constant: Constant) -> str:
        return f"({self.read(field, Kind.NUMBER)} {operator} {self._bind_number(constant.value)})"

    def compare_computed(self, operator: str, computed: Node, other: Field | Constant) -> str:
        left = self.double(computed)
        right = self._bind_number(other.value) if isinstance(other, Constant) else self.read(other, Kind.NUMBER)
        return f"({left} {operator} {right})"

    def compare_fields(self, operator: str, left: Field, right: Field) -> str:
        return f"({self.read(left, Kind.NUMBER)} {operator} {self.read(right, Kind.NUMBER)})"

    def belongs(self, operand: Node, values: list[Constant]) -> str:
        if kind_of(operand) is Kind.TEXT:
            chosen = self.text(operand)
        elif computes(operand):
            chosen = self.double(operand)
        else:
            assert isinstance(operand, Field)
            chosen = self.read(operand, Kind.NUMBER)
        listed = ", ".join([self._bind_number(each.value) for each in values])
        return f"({chosen} IN ({listed}))"

    def like(self, node: Like) -> str:
        text = self.text(node.operand)
        return f"({text} GLOB {self.bind(as_glob(pieces_of(str(constant_of(node.pattern).value), node.escape)))})"

    def call(self, node: Call) -> str:
        kinds = FUNCTIONS[node.name].arguments
        arguments = [
            self.double(argument, operand=True) if kind is Kind.NUMBER else self.text(argument)
            for argument, kind in zip(node.arguments, kinds, strict=True)
        ]
        return f"pluribus_{node.name.lower()}({', '.join(arguments)})"

    def bind_double(self, value: float) -> str:
        # SQLite binds NaN as null, which it is.
        return f"CAST({self.bind(value)} AS REAL)"

    def bind_text(self, value: str) -> str:
        return self.bind(value)

    def _bind_number(self, value: Any) -> str:
        too_large = isinstance(value, int) and not -(2**63) <= value < 2**63
        return self.bind(float(value) if too_large else value)


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that clauses call; once for each connection."""
    from .normal import call

    for name, function in FUNCTIONS.items():
        if name == "NOW":
            continue

        def run(*values: Any, name: str = name) -> Any:
            if None in values:
                return None
            answer = call(name, list(values))
            return None if answer != answer else answer

        connection.create_function(f"pluribus_{name.lower()}", len(function.arguments), run, deterministic=True)
