"""The WHERE clause for PostgreSQL 12 and later, for psycopg's placeholders.

A number in ``jsonb`` is a decimal of any length. Compared as a double it is what Python reads; compared as a decimal
it is exact. For constants below 2**53 both say the same, and doubles are quicker; from there on decimals are compared.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from .like import as_like, pieces_of
from .numbers import (
    EARTH_RADIUS_M,
    FUNCTIONS,
    LOWER_LETTERS,
    OPERAND_MAX,
    OPERAND_MIN,
    SECONDS_MAX,
    SECONDS_MIN,
    beside_double,
    computes,
    kind_of,
)
from .sql import Writer, constant_of, quoted
from .tree import Call, Constant, Field, Kind, Like, Node

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = {Kind.NUMBER: "number", Kind.TEXT: "string", Kind.BOOLEAN: "boolean"}
_CAPITALS = "".join(map(chr, LOWER_LETTERS))
_SMALL = _CAPITALS.lower()
_PARTS = {"WEEKDAY": "isodow"}
_BELOW_2_63 = 9_223_372_036_854_774_784
"""The largest double that is a bigint."""


class PostgresWriter(Writer):
    placeholder = "%s"
    zero = "0::float8"

    def read(self, field: Field, kind: Kind) -> str:
        return self._read(field, kind, {Kind.NUMBER: "::numeric", Kind.TEXT: "", Kind.BOOLEAN: "::boolean"}[kind])

    def _read(self, field: Field, kind: Kind, cast: str) -> str:
        column = self.column(field)
        if column is not None:
            if column.kind is not kind:
                return f"NULL{cast or '::text'}"
            name = quoted(column.name)
            if kind is not Kind.NUMBER or column.exact:
                return f"{name}{cast}"
            return f"NULLIF({name}, 'NaN'){'' if cast == '::float8' else cast}"
        document = quoted(self.layout.document or "")
        guard = f"jsonb_typeof({document} #> {self._path(field)}) = '{_TYPES[kind]}'"
        return f"(CASE WHEN {guard} THEN ({document} #>> {self._path(field)}){cast} END)"

    def _path(self, field: Field) -> str:
        if all(_SIMPLE.fullmatch(name) for name in field.path):
            return f"'{{{','.join(field.path)}}}'"
        return f"{self.bind(list(field.path))}::text[]"

    def absent(self, field: Field) -> str:
        column = self.column(field)
        if column is None:
            value = f"{quoted(self.layout.document or '')} #> {self._path(field)}"
            return f"(COALESCE(jsonb_typeof({value}), 'null') = 'null')"
        if column.kind is Kind.NUMBER and not column.exact:
            return f"(NULLIF({quoted(column.name)}, 'NaN') IS NULL)"
        return f"({quoted(column.name)} IS NULL)"

    def field_as_double(self, field: Field) -> str:
        return self._read(field, Kind.NUMBER, "::float8")

    def operand(self, field: Field) -> str:
        low, high = f"{OPERAND_MIN!r}::float8", f"{OPERAND_MAX!r}::float8"
        inside = f"WHEN abs({self.field_as_double(field)}) BETWEEN {low} AND {high} THEN {self.field_as_double(field)}"
        return f"(CASE {inside} WHEN abs({self.field_as_double(field)}) < {low} THEN 0::float8 END)"

    def compare_constant(self, operator: str, field: Field, constant: Constant) -> str:
        value: Any = constant.value
        column = self.column(field)
        if column is not None and column.kind is Kind.NUMBER:
            return self._compare_column(operator, field, value, column.exact)
        if abs(value) < 2**53:
            return f"({self.field_as_double(field)} {operator} {self.bind_double(value)})"
        return f"({self.read(field, Kind.NUMBER)} {operator} {self._bind_decimal(value)})"

    def _compare_column(self, operator: str, field: Field, value: Any, exact: bool) -> str:
        if not exact:
            operator, value = beside_double(operator, value)
            return f"({self.field_as_double(field)} {operator} {self.bind(value)}::float8)"
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return f"({self._read(field, Kind.NUMBER, '')} {operator} {self.bind(value)}::bigint)"
        return f"({self.read(field, Kind.NUMBER)} {operator} {self._bind_decimal(value)})"

    def compare_computed(self, operator: str, computed: Node, other: Field | Constant) -> str:
        if isinstance(other, Constant):
            operator, value = beside_double(operator, other.value)  # type: ignore[arg-type]
            return f"({self.double(computed)} {operator} {self.bind(value)}::float8)"
        column = self.column(other)
        if column is not None and not column.exact:
            return f"({self.double(computed)} {operator} {self.field_as_double(other)})"
        # Rounding keeps the order. Only if the rounded number is the double does what was rounded away decide; that is
        # an exact difference, because such a double is whole. It is kept in its domain, see below.
        whole = f"a.n = trunc(a.n) AND a.n BETWEEN {-(2**63)} AND {2**63 - 1} AND abs(a.n) > {2**53}"
        exact = f"least(greatest(a.r, {-(2**63)}::float8), {_BELOW_2_63:d}::float8)::bigint::numeric"
        beyond = f"CASE WHEN a.r <= {_BELOW_2_63:d}::float8 THEN {exact} {operator} a.n ELSE 1 {operator} 0 END"
        case = f"CASE WHEN a.r = a.d AND {whole} THEN {beyond} ELSE a.d {operator} a.r END"
        values = (
            f"{self.double(computed)} AS d, {self.read(other, Kind.NUMBER)} AS n, {self.field_as_double(other)} AS r"
        )
        return f"(SELECT {case} FROM (SELECT {values}) AS a)"  # noqa: S608 - text of ours only

    def compare_fields(self, operator: str, left: Field, right: Field) -> str:
        columns = [self.column(field) for field in (left, right)]
        if any(column is not None and not column.exact for column in columns):
            return f"({self.field_as_double(left)} {operator} {self.field_as_double(right)})"
        return f"({self.read(left, Kind.NUMBER)} {operator} {self.read(right, Kind.NUMBER)})"

    def ordered_text(self, node: Node, kind: Kind | None = None) -> str:
        return f'({super().ordered_text(node, kind)} COLLATE "C")'

    def belongs(self, operand: Node, values: list[Constant]) -> str:
        if kind_of(operand) is Kind.TEXT:
            text = self.text(operand)
            return f"({text} = ANY({self.bind([value.value for value in values])}::text[]))"
        if computes(operand):
            number = self.double(operand)
            doubles = [_double(value) for value in values if _double(value) == value.value]
            if not doubles:  # whole numbers that are no doubles: false, and unknown where the number is
                return f"({number} <> {self.double(operand)})"
            return f"({number} = ANY({self.bind(doubles)}::float8[]))"
        assert isinstance(operand, Field)
        column = self.column(operand)
        if column is None and all(abs(_double(value)) < 2**53 for value in values):
            number = self.field_as_double(operand)
            return f"({number} = ANY({self.bind([_double(value) for value in values])}::float8[]))"
        return "(" + " OR ".join([self.compare_constant("=", operand, value) for value in values]) + ")"

    def like(self, node: Like) -> str:
        text = self.text(node.operand)
        return f"({text} LIKE {self.bind(as_like(pieces_of(str(constant_of(node.pattern).value), node.escape)))})"

    def call(self, node: Call) -> str:
        kinds = FUNCTIONS[node.name].arguments
        arguments = [
            self.double(argument, operand=True) if kind is Kind.NUMBER else self.text(argument)
            for argument, kind in zip(node.arguments, kinds, strict=True)
        ]
        match node.name:
            case "ABS" | "FLOOR":
                return f"{node.name.lower()}({arguments[0]})"
            case "LENGTH":
                return f"char_length({arguments[0]})::float8"
            case "LOWER":
                return f"translate({arguments[0]}, '{_CAPITALS}', '{_SMALL}')"
            case "UPPER":
                return f"translate({arguments[0]}, '{_SMALL}', '{_CAPITALS}')"
            case "DISTANCE":
                return self._distance(arguments)
        return self._calendar(node.name, arguments[0])

    # Subqueries name what is used more than once. PostgreSQL may compute their answer before it looks at the condition,
    # if it knows the values when it plans; so what could fail is kept in its domain, and the condition is a CASE.

    def _distance(self, arguments: list[str]) -> str:
        north, east = (f"power(sin(radians(b.{axis} - a.{axis}) / 2), 2)" for axis in ("lat", "lon"))
        square = f"{north} + cos(radians(a.lat)) * cos(radians(b.lat)) * {east}"
        metres = f"2 * {EARTH_RADIUS_M!r}::float8 * asin(least(1, sqrt(greatest(0, {square}))))"
        places = ", ".join(
            f"(SELECT {lat} AS lat, {lon} AS lon) AS {name}"
            for name, lat, lon in (("a", *arguments[:2]), ("b", *arguments[2:]))
        )
        on_earth = " AND ".join(f"{name}.lat BETWEEN -90 AND 90 AND {name}.lon BETWEEN -180 AND 180" for name in "ab")
        return f"(SELECT CASE WHEN {on_earth} THEN {metres} END FROM {places})"  # noqa: S608 - text of ours only

    def _calendar(self, part: str, seconds: str) -> str:
        second = f"least(greatest(floor(a.t), {SECONDS_MIN}), {SECONDS_MAX})"
        moment = f"timestamp 'epoch' + {second} * interval '1 second'"
        found = f"extract({_PARTS.get(part, part.lower())} FROM {moment})::float8"
        known = f"a.t BETWEEN {SECONDS_MIN} AND {SECONDS_MAX}"
        return f"(SELECT CASE WHEN {known} THEN {found} END FROM (SELECT {seconds} AS t) AS a)"  # noqa: S608

    def bind_double(self, value: float) -> str:
        return f"{self.bind(None if value != value else float(value))}::float8"

    def bind_text(self, value: str) -> str:
        return f"{self.bind(value)}::text"

    def _bind_decimal(self, value: Any) -> str:
        """Doubles as they are written, like those of the documents; whole numbers exactly."""
        exact = isinstance(value, int) and -(2**63) <= value < 2**63
        return f"{self.bind(Decimal(value) if exact else Decimal(repr(float(value))))}::numeric"


def _double(constant: Constant) -> float:
    return float(constant.value)
