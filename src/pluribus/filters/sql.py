"""A filter as a WHERE clause: the SQL text is our own, and everything that a user wrote is a parameter.

Both databases keep three-valued logic as filters do, so AND, OR and NOT are theirs. What differs is reading a field by
its kind, comparing numbers exactly, LIKE, and functions: those are in ``sqlite.py`` and ``postgres.py``, each a dialect
of the writer here.

The ``Layout`` says where a field is read from: a column with a JSON document, as ``events.document`` makes it, and
plain columns for the fields that have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.errors import BadInput
from . import numbers
from .numbers import computes, kind_of
from .tree import (
    MIRRORED,
    And,
    Arithmetic,
    Call,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Kind,
    Like,
    Node,
    Not,
    Or,
    Parameter,
)


class Clause(NamedTuple):
    """``cursor.execute(f"SELECT … WHERE {clause.text}", clause.parameters)``."""

    text: str
    parameters: tuple[Any, ...]


class Column(NamedTuple):
    """A field that has a column of its own. ``exact`` numbers are whole: INTEGER or BIGINT, not REAL."""

    name: str
    kind: Kind
    exact: bool = False


class Layout(NamedTuple):
    """``document`` is the column with the JSON; ``columns`` are by the field's name, with dots."""

    document: str | None = None
    columns: Mapping[str, Column] = {}


def where(
    tree: Node,
    dialect: str,
    *,
    document: str | None = None,
    columns: Mapping[str, Column] = {},
    now: float | None = None,
) -> Clause:
    """The clause that is true for exactly the rows whose event matches.

    ``dialect`` is ``sqlite`` (run ``sqlite.add_functions(connection)`` once on each connection) or ``postgres``. A
    filter with ``NOW()`` needs ``now``, in seconds since 1970.
    """
    layout = Layout(document, columns)
    writer: Writer
    if dialect == "sqlite":
        from .sqlite import SqliteWriter

        writer = SqliteWriter(layout, now)
    elif dialect == "postgres":
        from .postgres import PostgresWriter

        writer = PostgresWriter(layout, now)
    else:
        raise BadInput(f"there is no dialect {dialect!r}: use sqlite or postgres")
    return Clause(writer.condition(tree), tuple(writer.parameters))


class Writer(ABC):
    """Writes from left to right, since parameters are numbered in that order."""

    placeholder: str

    def __init__(self, layout: Layout, now: float | None) -> None:
        self.layout = layout
        self.now = now
        self.parameters: list[Any] = []

    def bind(self, value: Any) -> str:
        self.parameters.append(value)
        return self.placeholder

    # --- conditions -------------------------------------------------------------------------------------------------

    def condition(self, node: Node) -> str:
        match node:
            case And(terms):
                return "(" + " AND ".join([self.condition(term) for term in terms]) + ")"
            case Or(terms):
                return "(" + " OR ".join([self.condition(term) for term in terms]) + ")"
            case Not(term):
                return f"(NOT {self.condition(term)})"
            case Constant(value):
                return "(1 = 1)" if value else "(1 = 0)"
            case Field():
                return self.read(node, Kind.BOOLEAN)
            case Compare(operator, left, right):
                return self.compare(operator, left, right)
            case In(operand, values):
                return self.belongs(operand, [constant_of(value) for value in values])
            case Like():
                return self.like(node)
            case IsNull(Field() as field):
                return self.absent(field)
            case IsNull(operand):
                return f"({self.any_value(operand)} IS NULL)"
            case IsTruth(operand, value):
                return f"({self.condition(operand)} IS {'TRUE' if value else 'FALSE'})"
        raise AssertionError(f"{node} is no condition")

    def any_value(self, node: Node) -> str:
        match kind_of(node):
            case Kind.NUMBER:
                return self.double(node)
            case Kind.TEXT:
                return self.text(node)
        return self.condition(node)

    def compare(self, operator: str, left: Node, right: Node) -> str:
        kind = kind_of(left) if kind_of(left) is not Kind.ANY else kind_of(right)
        if kind is Kind.NUMBER:
            if computes(left) and computes(right):
                return f"({self.double(left)} {operator} {self.double(right)})"
            if computes(left):
                assert isinstance(right, Field | Constant)
                return self.compare_computed(operator, left, right)
            if computes(right):
                assert isinstance(left, Field | Constant)
                return self.compare_computed(MIRRORED[operator], right, left)
            if isinstance(left, Constant) and isinstance(right, Field):
                return self.compare_constant(MIRRORED[operator], right, left)
            if isinstance(left, Field) and isinstance(right, Constant):
                return self.compare_constant(operator, left, right)
            assert isinstance(left, Field) and isinstance(right, Field)
            return self.compare_fields(operator, left, right)
        if kind is Kind.TEXT:
            return f"({self.ordered_text(left)} {operator} {self.text(right)})"
        if kind is Kind.BOOLEAN:
            return f"({self.condition(left)} {operator} {self.condition(right)})"
        assert isinstance(left, Field) and isinstance(right, Field)
        # Each is unknown unless both fields are of that kind, so at most one of them is known.
        answers = [self.compare_fields(operator, left, right)]
        answers.append(f"({self.ordered_text(left, Kind.TEXT)} {operator} {self.read(right, Kind.TEXT)})")
        if operator in ("=", "<>"):
            answers.append(f"({self.read(left, Kind.BOOLEAN)} {operator} {self.read(right, Kind.BOOLEAN)})")
        return f"COALESCE({', '.join(answers)})"

    # --- values -----------------------------------------------------------------------------------------------------

    def double(self, node: Node, operand: bool = False) -> str:
        """A number as a double; as a term of arithmetic, by the rules of ``numbers.py``."""
        match node:
            case Field():
                return self.operand(node) if operand else self.field_as_double(node)
            case Constant(value):
                assert not isinstance(value, str)
                return self.bind_double(numbers.operand(value) if operand else float(value))
            case Arithmetic("/", left, right):
                return f"({self.double(left, operand=True)} / NULLIF({self.double(right, operand=True)}, {self.zero}))"
            case Arithmetic(operator, left, right):
                return f"({self.double(left, operand=True)} {operator} {self.double(right, operand=True)})"
            case Call("NOW"):
                if self.now is None:
                    raise BadInput("the filter asks for NOW(), and nobody tells the time: give now=")
                return self.bind_double(self.now)
            case Call():
                return self.call(node)
        raise AssertionError(f"{node} is no number")

    def text(self, node: Node) -> str:
        match node:
            case Constant(value):
                return self.bind_text(str(value))
            case Field():
                return self.read(node, Kind.TEXT)
            case Call():
                return self.call(node)
        raise AssertionError(f"{node} is no text")

    def ordered_text(self, node: Node, kind: Kind | None = None) -> str:
        return self.text(node) if kind is None else self.read(_field(node), kind)

    # --- what each database does in its own way ---------------------------------------------------------------------

    zero: str

    @abstractmethod
    def read(self, field: Field, kind: Kind) -> str:
        """The field's value if it is of this kind, else null; numbers as they are."""

    @abstractmethod
    def absent(self, field: Field) -> str: ...

    @abstractmethod
    def field_as_double(self, field: Field) -> str: ...

    @abstractmethod
    def operand(self, field: Field) -> str: ...

    @abstractmethod
    def compare_constant(self, operator: str, field: Field, constant: Constant) -> str: ...

    @abstractmethod
    def compare_computed(self, operator: str, computed: Node, other: Field | Constant) -> str:
        """Compare a double with a number that may be whole, and is not rounded."""

    @abstractmethod
    def compare_fields(self, operator: str, left: Field, right: Field) -> str:
        """Two fields as numbers."""

    @abstractmethod
    def belongs(self, operand: Node, values: list[Constant]) -> str: ...

    @abstractmethod
    def like(self, node: Like) -> str: ...

    @abstractmethod
    def call(self, node: Call) -> str: ...

    @abstractmethod
    def bind_double(self, value: float) -> str: ...

    @abstractmethod
    def bind_text(self, value: str) -> str: ...

    def column(self, field: Field) -> Column | None:
        column = self.layout.columns.get(".".join(field.path))
        if column is None and self.layout.document is None:
            known = ", ".join(self.layout.columns) or "none"
            raise BadInput(f"there is no column for the field {'.'.join(field.path)}: there are {known}")
        return column


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def constant_of(node: Constant | Parameter) -> Constant:
    assert isinstance(node, Constant), f"{node} is not bound"
    return node


def _field(node: Node) -> Field:
    assert isinstance(node, Field)
    return node
