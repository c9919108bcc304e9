"""The rest of a filter when some fields are known, for example for a topic whose events all have the same region.

The result is true for an event *that has these values* exactly if the whole filter is. Conditions on known fields alone
are decided; in others, known fields become constants. A known field that is null, or of another kind, makes a
comparison unknown, hence not true. Conditions that can be true of null (IS NULL of an expression, IS TRUE) stay as they
are when not all of their fields are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .events import boolean, number, read_path, text
from .normal import fold, negations_inward
from .predicate import Now, compile_predicate
from .tree import (
    FALSE,
    TRUE,
    And,
    Call,
    Compare,
    Constant,
    Field,
    IsNull,
    IsTruth,
    Kind,
    Node,
    Not,
    Or,
    Parameter,
    Value,
    children,
    replace_leaves,
    walk,
)


def partial(tree: Node, known: Mapping[str, Any], now: Now | None = None) -> Node:
    """``known`` is by the first name of a field's path; a name that maps to ``None`` is known to be null."""

    def left(node: Node) -> Node:
        if isinstance(node, And | Or):
            return type(node)(tuple(map(left, node.terms)))
        fields = [part for part in walk(node) if isinstance(part, Field)]
        given = [field for field in fields if field.path[0] in known]
        timeless = now is not None or not any(isinstance(part, Call) and part.name == "NOW" for part in walk(node))
        if len(given) == len(fields) and timeless:
            return TRUE if compile_predicate(node, now=now)(known) else FALSE
        if not given or not _is_strict(node):
            return node
        constants = {field: _constant(field, known) for field in given}
        if None in constants.values():
            # Infinity is a number, and no constant says it.
            unsaid = any(math.isinf(number(read_path(known, field.path))) for field in given)
            return node if unsaid else FALSE
        return _filled(node, {field: made for field, made in constants.items() if made is not None})

    return fold(left(fold(negations_inward(tree))))


def _is_strict(node: Node) -> bool:
    """True if a null anywhere in it makes it unknown."""
    inner = node.term if isinstance(node, Not) else node
    if isinstance(inner, IsNull | IsTruth):
        return False
    return all(isinstance(part, Value) for child in children(inner) for part in walk(child))


def _filled(node: Node, constants: dict[Field, Constant]) -> Node:
    kinds = {made.kind for field, made in constants.items() if field.kind is Kind.ANY}
    if Kind.BOOLEAN in kinds and isinstance(node, Compare) and node.operator not in ("=", "<>"):
        return FALSE  # true and false have no order

    def replaced(leaf: Constant | Parameter | Field) -> Node:
        if not isinstance(leaf, Field):
            return leaf
        if leaf in constants:
            return constants[leaf]
        # The other field was of any kind: now it must be of the kind that the known one has.
        return Field(leaf.path, next(iter(kinds)), leaf.via) if kinds and leaf.kind is Kind.ANY else leaf

    return replace_leaves(node, replaced)


def _constant(field: Field, known: Mapping[str, Any]) -> Constant | None:
    value = read_path(known, field.path)
    if field.kind in (Kind.NUMBER, Kind.ANY):
        amount = number(value)
        if math.isfinite(amount):
            return Constant(int(amount) if amount == int(amount) else amount, Kind.NUMBER)
    if field.kind in (Kind.TEXT, Kind.ANY) and (words := text(value)) is not None:
        return Constant(words, Kind.TEXT)
    if field.kind in (Kind.BOOLEAN, Kind.ANY) and (truth := boolean(value)) is not None:
        return Constant(truth, Kind.BOOLEAN)
    return None
