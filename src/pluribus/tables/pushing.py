"""Conditions of a SELECT that the owner of a table can apply before anything is copied.

The statement runs in SQLite on what was copied, with all of its conditions. So what is applied before needs not be the
condition: it must be true wherever the condition is. That is why every comparison is pushed down as *not false in the
filter language*: the two languages agree on values of one kind, and where kinds differ (a text and a number have an
order in SQLite, and none here) the filter is unknown, and SQLite decides.

Pushed down are comparisons of a column with a constant, IN, BETWEEN and IS [NOT] NULL, with AND and OR between them, of
the WHERE of the very SELECT that names the table. A table that is named several times is copied for all of them.
Everything else is not understood here, and costs only what is copied in vain.

*Outer joins.* A condition of WHERE that is not true of nulls rejects rows that were filled up with nulls, so it may be
applied before the join. IS NULL is true of them: it is pushed down only where there is no join.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from ..filters.tree import (
    MIRRORED,
    And,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Kind,
    Node,
    Not,
    Or,
    storable,
)

TERMS_MAX = 64
"""Conditions of one table that are pushed down; further ones are not."""
VALUES_MAX = 1_024
DEPTH_MAX = 12
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_COMPARISONS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}

Resolve = Callable[[exp.Column], str | None]
"""The name of the table's column that is meant; None if it is another table's, or not known."""


def pushed(select: exp.Select, resolve: Resolve) -> Node | None:
    """What is true of every row of the table that the SELECT can use; None if nothing is known."""
    where = select.args.get("where")
    if where is None:
        return None
    alone = not select.args.get("joins")
    terms = [_condition(one, resolve, alone, 0) for one in _conjuncts(where.this)]
    found = [one for one in terms if one is not None][:TERMS_MAX]
    return And(tuple(found)) if len(found) > 1 else found[0] if found else None


def _conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    waiting, found = [condition], []
    while waiting:
        one = waiting.pop()
        if isinstance(one, exp.Paren):
            waiting.append(one.this)
        elif isinstance(one, exp.And):
            waiting += [one.expression, one.this]
        else:
            found.append(one)
    return found


def _condition(syntax: exp.Expression, resolve: Resolve, alone: bool, depth: int) -> Node | None:
    if depth > DEPTH_MAX:
        return None
    match syntax:
        case exp.Paren():
            return _condition(syntax.this, resolve, alone, depth)
        case exp.And():
            sides = [_condition(one, resolve, alone, depth + 1) for one in (syntax.this, syntax.expression)]
            known = [one for one in sides if one is not None]
            return And(tuple(known)) if len(known) > 1 else known[0] if known else None
        case exp.Or():
            left = _condition(syntax.this, resolve, alone, depth + 1)
            right = _condition(syntax.expression, resolve, alone, depth + 1)
            return None if left is None or right is None else Or((left, right))
        case exp.Between():
            if syntax.args.get("symmetric"):
                return None
            low = _compare(">=", syntax.this, syntax.args["low"], resolve)
            high = _compare("<=", syntax.this, syntax.args["high"], resolve)
            return None if low is None or high is None else And((low, high))
        case exp.In():
            return _belongs(syntax, resolve)
        case exp.Is():
            field = _field(syntax.this, resolve)
            fine = alone and field is not None and type(syntax.expression) is exp.Null
            return IsNull(field) if fine and field is not None else None
        case exp.Not():
            inner = syntax.this
            if isinstance(inner, exp.Is) and type(inner.expression) is exp.Null:
                field = _field(inner.this, resolve)
                return None if field is None else Not(IsNull(field))
            return None
    operator = _COMPARISONS.get(type(syntax))
    return None if operator is None else _compare(operator, syntax.this, syntax.expression, resolve)


def _compare(operator: str, left: exp.Expression, right: exp.Expression, resolve: Resolve) -> Node | None:
    if _constant(left) is not None:
        operator, left, right = MIRRORED[operator], right, left
    field, constant = _field(left, resolve), _constant(right)
    if field is None or constant is None:
        return None
    return _not_false(field, Compare(operator, Field(field.path, constant.kind), constant))


def _belongs(syntax: exp.In, resolve: Resolve) -> Node | None:
    field = _field(syntax.this, resolve)
    constants = [_constant(one) for one in syntax.expressions]
    values = [one for one in constants if one is not None]
    if field is None or not values or len(values) < len(constants) or len(values) > VALUES_MAX:
        return None
    if set(syntax.args) - {"this", "expressions"} and any(
        syntax.args.get(name) for name in set(syntax.args) - {"this", "expressions"}
    ):
        return None  # a subquery, for instance
    kinds = {one.kind for one in values}
    if len(kinds) > 1:
        return None
    return _not_false(field, In(Field(field.path, values[0].kind), tuple(values)))


def _not_false(field: Field, condition: Node) -> Node:
    return And((Not(IsNull(field)), Not(IsTruth(condition, False))))


def _field(syntax: exp.Expression, resolve: Resolve) -> Field | None:
    while isinstance(syntax, exp.Paren):
        syntax = syntax.this
    if type(syntax) is not exp.Column:
        return None
    name = resolve(syntax)
    return None if name is None else Field((name,))


def _constant(syntax: exp.Expression) -> Constant | None:
    while isinstance(syntax, exp.Paren):
        syntax = syntax.this
    negative = type(syntax) is exp.Neg
    literal = syntax.this if negative else syntax
    if type(literal) is not exp.Literal:
        return None
    words = str(literal.this)
    if literal.is_string:
        return None if negative or not storable(words) else Constant(words, Kind.TEXT)
    if not _NUMBER.fullmatch(words):
        return None
    number = int(words) if words.isdigit() and int(words) < 2**63 else float(words)
    if number in (float("inf"), 2**63):
        return None
    return Constant(-number if negative else number, Kind.NUMBER)
