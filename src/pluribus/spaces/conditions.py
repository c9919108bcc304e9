"""Conditions on their way: the tree of a filter as our own versioned list of lists, never as the text of its author.

A tree is decoded where it is used. Bytes that are not a tree of this version are refused: no text from outside becomes
code (``filters/predicate.py`` writes the function, from names that are made there).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ..core.errors import BadFilter, MalformedFrame
from ..filters import parse
from ..filters.predicate import Predicate, compile_predicate
from ..filters.tree import (
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
    walk,
)

VERSION = 1
COMPILED_MAX = 4_096
"""Conditions whose functions are remembered."""
DEPTH_MAX = 100

_KINDS = (Kind.BOOLEAN, Kind.NUMBER, Kind.TEXT, Kind.ANY)
_NODES: tuple[type[Any], ...] = (Constant, Field, Arithmetic, Call, Compare, In, Like, IsNull, IsTruth, And, Or, Not)
_NUMBERS = {node: number for number, node in enumerate(_NODES)}


def condition_of(where: str) -> bytes:
    """Encode the condition in a text; empty for no text. ``BadFilter`` says where the text is wrong."""
    if not where:
        return b""
    found = parse(where)
    if found.needs_now:
        raise BadFilter.at(where, where.upper().find("NOW") + 1, "a template cannot ask for the time", "use a lease")
    return packed(found.tree)


def packed(tree: Node) -> bytes:
    return msgspec.msgpack.encode((VERSION, _listed(tree)))


def _listed(value: Any) -> Any:
    number = _NUMBERS.get(type(value))
    if number is not None:
        return [number, *(_listed(getattr(value, name)) for name in value.__struct_fields__)]
    if isinstance(value, Kind):
        return _KINDS.index(value)
    return [-1, *map(_listed, value)] if isinstance(value, tuple) else value


def tree_of(condition: bytes) -> Node:
    """Decode a condition; ``MalformedFrame`` if it is none."""
    try:
        version, listed = msgspec.msgpack.decode(condition)
        if version != VERSION:
            raise MalformedFrame(f"a condition of version {version}: install the same release everywhere")
        tree = _unlisted(listed, 0)
    except (msgspec.MsgspecError, TypeError, ValueError, IndexError, KeyError) as error:
        raise MalformedFrame(f"a condition that is none: {error}") from None
    if type(tree) not in _NUMBERS:
        raise MalformedFrame("a condition that is none")
    return tree  # type: ignore[no-any-return]


def _unlisted(listed: Any, depth: int) -> Any:
    if not isinstance(listed, list):
        return listed
    if depth > DEPTH_MAX:
        raise ValueError("too deep")
    number, *parts = listed
    made = [_unlisted(part, depth + 1) for part in parts]
    if number == -1:
        return tuple(made)
    node = _NODES[number]
    if node in (Constant, Field):
        made[1] = _KINDS[made[1]]
    return node(*made)


@lru_cache(maxsize=COMPILED_MAX)
def predicate_of(condition: bytes) -> Predicate:
    """A function of the fields by name. ``MalformedFrame`` for a condition that is none."""
    try:
        return compile_predicate(tree_of(condition))
    except MalformedFrame:
        raise
    except Exception as error:  # noqa: BLE001 - a tree that no parser made
        raise MalformedFrame(f"a condition that cannot be used: {error}") from None


class Range(msgspec.Struct, frozen=True):
    """The values that a condition allows for one field: numbers or texts between two ends. None: that end is open."""

    name: str
    text: bool
    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False

    def holds(self, value: Any) -> bool:
        return self.from_low(value) and self.to_high(value)

    def from_low(self, value: Any) -> bool:
        return self.low is None or (value > self.low if self.low_open else value >= self.low)

    def to_high(self, value: Any) -> bool:
        return self.high is None or (value < self.high if self.high_open else value <= self.high)


@lru_cache(maxsize=COMPILED_MAX)
def range_of(condition: bytes) -> Range | None:
    """The range of the first field that the condition bounds; an index finds the tuples in it."""
    tree = tree_of(condition)
    found: Range | None = None
    for term in tree.terms if isinstance(tree, And) else (tree,):
        compared = _compared(term)
        if compared is None:
            continue
        name, operator, constant = compared
        text = isinstance(constant, str)
        if found is None:
            found = Range(name, text)
        if found.name != name or found.text != text:
            continue
        if operator in (">", ">=", "=") and (found.low is None or constant >= found.low):
            found = msgspec.structs.replace(found, low=constant, low_open=operator == ">")
        if operator in ("<", "<=", "=") and (found.high is None or constant <= found.high):
            found = msgspec.structs.replace(found, high=constant, high_open=operator == "<")
    return found


def _compared(term: Node) -> tuple[str, str, Any] | None:
    if not isinstance(term, Compare) or term.operator == "<>":
        return None
    left, right, operator = term.left, term.right, term.operator
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRRORED[operator]
    if not isinstance(left, Field) or not isinstance(right, Constant) or len(left.path) != 1 or left.via:
        return None
    return None if isinstance(right.value, bool) else (left.path[0], operator, right.value)


def fields_in(condition: bytes) -> set[str]:
    """The names that a condition reads."""
    return {node.path[0] for node in walk(tree_of(condition)) if isinstance(node, Field)}
