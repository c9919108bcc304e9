"""The same filter in another form: constants computed, negations at the leaves, a sum of products.

Three-valued logic keeps the laws that are used here: double negation, De Morgan, distribution. NOT of a comparison is
the opposite comparison, since both are unknown for the same events. It does not keep ``a OR NOT a``, and nothing
here relies on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from . import numbers
from .like import matcher, pieces_of
from .numbers import FUNCTIONS
from .tree import (
    FALSE,
    OPPOSITE,
    TRUE,
    And,
    Arithmetic,
    Call,
    Compare,
    Constant,
    In,
    IsNull,
    IsTruth,
    Kind,
    Like,
    Node,
    Not,
    Or,
)

_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": numbers.divide,
}

_EXACT = 2**53
"""Below, only one whole number becomes the same double."""


def fold(node: Node) -> Node:
    """Compute what is constant, flatten AND and OR, drop what cannot matter."""
    match node:
        case And(terms) | Or(terms):
            return _connected(type(node), map(fold, terms))
        case Not(term):
            return _negated(fold(term))
        case Compare(operator, left, right):
            return _compared(Compare(operator, fold(left), fold(right)))
        case Arithmetic() | Call():
            return _computed(node)
        case In(operand, values):
            operand = _as_value(operand)
            if isinstance(operand, Constant) and all(isinstance(value, Constant) for value in values):
                return TRUE if operand in values else FALSE
            return In(operand, tuple(dict.fromkeys(values)))
        case Like(operand, pattern, escape):
            operand = _as_value(operand)
            if isinstance(operand, Constant) and isinstance(pattern, Constant):
                return TRUE if matcher(pieces_of(str(pattern.value), escape))(str(operand.value)) else FALSE
            return Like(operand, pattern, escape)
        case IsNull(operand):
            folded = fold(operand)
            return FALSE if isinstance(folded, Constant) else IsNull(folded)
        case IsTruth(operand, value):
            folded = fold(operand)
            if isinstance(folded, Constant):
                return TRUE if folded.value is value else FALSE
            return IsTruth(folded, value)
    return node


def _as_value(node: Any) -> Any:
    return fold(node)


def _connected(kind: type[And] | type[Or], terms: Iterable[Node]) -> Node:
    decided, neutral = (FALSE, TRUE) if kind is And else (TRUE, FALSE)
    flat: dict[Node, None] = {}
    for term in terms:
        for inner in term.terms if isinstance(term, kind) else (term,):
            if inner == decided:
                return decided
            if inner != neutral:
                flat[inner] = None
    if len(flat) < 2:
        return next(iter(flat), neutral)
    return kind(tuple(flat))


def _negated(term: Node) -> Node:
    match term:
        case Constant(value):
            return FALSE if value else TRUE
        case Not(inner):
            return inner
    return Not(term)


def _compared(node: Compare) -> Node:
    left, right = node.left, node.right
    if isinstance(left, Constant) and isinstance(right, Constant):
        return TRUE if _HOLDS[node.operator](left.value, right.value) else FALSE
    for one, other in ((left, right), (right, left)):
        if isinstance(other, Constant) and other.kind is Kind.BOOLEAN:
            return one if (other == TRUE) is (node.operator == "=") else _negated(one)
    return node


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _computed(node: Arithmetic | Call) -> Node:
    if isinstance(node, Arithmetic):
        sides = [_as_value(node.left), _as_value(node.right)]
        if all(isinstance(side, Constant) for side in sides):
            left, right = (numbers.operand(side.value) for side in sides)
            return _constant(_COMPUTE[node.operator](left, right)) or Arithmetic(node.operator, *sides)
        return Arithmetic(node.operator, *sides)
    arguments = [_as_value(argument) for argument in node.arguments]
    if arguments and all(isinstance(argument, Constant) for argument in arguments):
        values = [argument.value for argument in arguments]
        return _constant(call(node.name, values)) or Call(node.name, tuple(arguments))
    return Call(node.name, tuple(arguments))


def call(name: str, values: list[Any]) -> Any:
    """A function of the language on constants."""
    taken: list[Any] = [
        numbers.operand(value) if kind is Kind.NUMBER else value
        for value, kind in zip(values, FUNCTIONS[name].arguments, strict=True)
    ]
    match name:
        case "ABS":
            return abs(taken[0])
        case "FLOOR":
            return numbers.floor(taken[0])
        case "LENGTH":
            return numbers.length(taken[0])
        case "LOWER":
            return numbers.lower(taken[0])
        case "UPPER":
            return numbers.upper(taken[0])
        case "DISTANCE":
            return numbers.distance(*taken)
    return numbers.calendar(name, taken[0])


def _constant(value: Any) -> Constant | None:
    """``None`` where a constant would have another meaning than the result: numbers that rule 1 does not allow as
    operands, but allows as results; and numbers that are compared exactly as constants, but as doubles as results."""
    if isinstance(value, str):
        return Constant(value, Kind.TEXT)
    if value and not numbers.OPERAND_MIN <= abs(value) < _EXACT:
        return None
    return Constant(int(value) if value == int(value) else value, Kind.NUMBER)


def negations_inward(node: Node, negate: bool = False) -> Node:
    """The same filter with every NOT directly before a condition that has no opposite of its own."""
    match node:
        case And(terms) | Or(terms):
            kind = And if isinstance(node, And) is not negate else Or
            return kind(tuple(negations_inward(term, negate) for term in terms))
        case Not(term):
            return negations_inward(term, not negate)
        case Compare(operator, left, right) if negate:
            return Compare(OPPOSITE[operator], left, right)
        case Constant() if negate:
            return _negated(node)
    return Not(node) if negate else node


def alternatives(node: Node, limit: int) -> list[tuple[Node, ...]] | None:
    """The filter as conjunctions of which one must hold; ``None`` if they would be more than ``limit``."""

    def expand(part: Node) -> list[tuple[Node, ...]] | None:
        match part:
            case Or(terms):
                branches = [expand(term) for term in terms]
                if any(branch is None for branch in branches):
                    return None
                union = [conjunction for branch in branches for conjunction in branch or ()]
                return union if len(union) <= limit else None
            case And(terms):
                made: list[tuple[Node, ...]] = [()]
                for term in terms:
                    branch = expand(term)
                    if branch is None or len(made) * len(branch) > limit:
                        return None
                    made = [(*one, *other) for one, other in product(made, branch)]
                return made
        if part == FALSE:
            return []
        return [()] if part == TRUE else [(part,)]

    return expand(fold(negations_inward(node)))
