"""A filter as a tree: small, typed, immutable. All modules but the parser work on this tree alone.

A tree is made of *values* (``Constant``, ``Parameter``, ``Field``, ``Arithmetic``, ``Call``) and of *conditions*
(``Compare``, ``In``, ``Like``, ``IsNull``, ``IsTruth``, ``And``, ``Or``, ``Not``, and a value of kind ``BOOLEAN``).
Trees compare and hash by their contents, so equal conditions of many subscriptions can be kept once.

BETWEEN, NOT IN, WITHIN and the like are written with these; the parser does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import msgspec

Scalar = bool | int | float | str
Path = tuple[str, ...]


class Kind(Enum):
    """The kind of a value. ``ANY`` is a field whose kind the filter does not imply, as in ``a = b``."""

    BOOLEAN = "true or false"
    NUMBER = "a number"
    TEXT = "a text"
    ANY = "anything"

    __hash__ = object.__hash__  # that of Enum is Python code, and trees are hashed a lot

    def __repr__(self) -> str:
        return self.name


class Constant(msgspec.Struct, frozen=True, gc=False):
    """Whole numbers are ``int`` however they were written, so ``1e3`` and ``1000`` are one constant."""

    value: Scalar
    kind: Kind


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """A constant that is still to come: ``:name``. Only templates have them."""

    name: str
    kind: Kind = Kind.ANY


class Field(msgspec.Struct, frozen=True, gc=False):
    """A value of the event: ``a.b.c``.

    ``via`` are functions that choose *which* event's field is meant, the outermost first, each with its number:
    ``PREV(LAST(A.price), 2)`` is ``Field(("A", "price"), via=(("PREV", 2), ("LAST", 0)))``. Filters have none; they
    are there for row patterns, whose conditions are parsed with ``navigation=``.
    """

    path: Path
    kind: Kind = Kind.ANY
    via: tuple[tuple[str, int], ...] = ()


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    operator: str
    """One of ``+ - * /``."""
    left: Value
    right: Value


class Call(msgspec.Struct, frozen=True, gc=False):
    name: str
    arguments: tuple[Value, ...]


class Compare(msgspec.Struct, frozen=True, gc=False):
    operator: str
    """One of ``= <> < <= > >=``."""
    left: Node
    right: Node


class In(msgspec.Struct, frozen=True, gc=False):
    operand: Value
    values: tuple[Constant | Parameter, ...]


class Like(msgspec.Struct, frozen=True, gc=False):
    operand: Value
    pattern: Constant | Parameter
    escape: str = ""


class IsNull(msgspec.Struct, frozen=True, gc=False):
    """Of a field: true if it is missing or null, whatever its kind. Of any other value: true if it is unknown."""

    operand: Node


class IsTruth(msgspec.Struct, frozen=True, gc=False):
    operand: Node
    value: bool


class And(msgspec.Struct, frozen=True, gc=False):
    terms: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    terms: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True, gc=False):
    term: Node


Value = Constant | Parameter | Field | Arithmetic | Call
Condition = Compare | In | Like | IsNull | IsTruth | And | Or | Not
Node = Value | Condition

TRUE = Constant(True, Kind.BOOLEAN)
FALSE = Constant(False, Kind.BOOLEAN)

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The negation of each comparison; both are unknown for the same events."""
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The comparison with its sides exchanged."""


def storable(text: str) -> bool:
    """True if a text can be a constant: no database takes NUL, and none with UTF-8 takes surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Arithmetic(_, left, right) | Compare(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return arguments
        case In(operand, values):
            return (operand, *values)
        case Like(operand, pattern):
            return (operand, pattern)
        case IsNull(operand) | IsTruth(operand):
            return (operand,)
        case And(terms) | Or(terms):
            return terms
        case Not(term):
            return (term,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, parents first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def replace_leaves(node: Node, replace: Callable[[Constant | Parameter | Field], Node]) -> Node:
    """The same tree with every constant, parameter and field replaced. Trees are never deep, so this may recurse."""

    def again(child: Node) -> Node:
        return replace_leaves(child, replace)

    match node:
        case Constant() | Parameter() | Field():
            return replace(node)
        case Arithmetic(operator, left, right):
            return Arithmetic(operator, _value(again(left)), _value(again(right)))
        case Compare(operator, left, right):
            return Compare(operator, again(left), again(right))
        case Call(name, arguments):
            return Call(name, tuple(_value(again(argument)) for argument in arguments))
        case In(operand, values):
            return In(_value(again(operand)), tuple(_leaf(again(value)) for value in values))
        case Like(operand, pattern, escape):
            return Like(_value(again(operand)), _leaf(again(pattern)), escape)
        case IsNull(operand):
            return IsNull(again(operand))
        case IsTruth(operand, value):
            return IsTruth(again(operand), value)
        case And(terms):
            return And(tuple(map(again, terms)))
        case Or(terms):
            return Or(tuple(map(again, terms)))
        case Not(term):
            return Not(again(term))


def _value(node: Node) -> Value:
    assert isinstance(node, Value), f"{node} is no value"
    return node


def _leaf(node: Node) -> Constant | Parameter:
    assert isinstance(node, Constant | Parameter), f"{node} is no constant"
    return node
