"""Three-valued logic as the books tell it, node by node, with ``None`` for unknown. Slow, plain, and independent."""

import fnmatch
import re
from datetime import UTC, datetime, timedelta

from pluribus.filters import numbers
from pluribus.filters.tree import (
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
    Not,
    Or,
)

HUGE = 10**30
NOW = 1_750_000_000.5


def evaluate(node, event):
    match node:
        case Constant(value):
            return value
        case Field(path, kind):
            return of_kind(read(event, path), kind)
        case Arithmetic() | Call():
            return compute(node, event)
        case Compare(operator, left, right):
            return compare(operator, left, right, event)
        case In(operand, values):
            answers = [compare("=", operand, value, event) for value in values]
            return True if True in answers else None if None in answers else False
        case Like(operand, pattern, escape):
            text = evaluate(operand, event)
            return None if text is None else like(text, pattern.value, escape)
        case IsNull(Field(path)):
            return read(event, path) is None
        case IsNull(operand):
            return evaluate(operand, event) is None
        case IsTruth(operand, value):
            return evaluate(operand, event) is value
        case And(terms):
            answers = [evaluate(term, event) for term in terms]
            return False if False in answers else None if None in answers else True
        case Or(terms):
            answers = [evaluate(term, event) for term in terms]
            return True if True in answers else None if None in answers else False
        case Not(term):
            answer = evaluate(term, event)
            return None if answer is None else not answer
    raise AssertionError(node)


def read(event, path):
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def kind_of_value(value):
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int | float):
        return Kind.NUMBER
    return Kind.TEXT if isinstance(value, str) else None


def of_kind(value, kind):
    if kind is Kind.ANY:
        return value if kind_of_value(value) else None
    return value if kind_of_value(value) is kind else None


def compare(operator, left, right, event):
    one, other = evaluate(left, event), evaluate(right, event)
    if one is None or other is None or kind_of_value(one) is not kind_of_value(other):
        return None
    if isinstance(one, bool) and operator not in ("=", "<>"):
        return None
    order = (one > other) - (one < other)
    return order in {"=": [0], "<>": [-1, 1], "<": [-1], "<=": [-1, 0], ">": [1], ">=": [0, 1]}[operator]


def compute(node, event):
    if isinstance(node, Call) and node.name in ("LOWER", "UPPER", "LENGTH"):
        text = evaluate(node.arguments[0], event)
        if text is None:
            return None
        swap = str.lower if node.name == "LOWER" else str.upper
        return len(text) if node.name == "LENGTH" else re.sub("[A-Za-z]", lambda found: swap(found[0]), text)
    operands = [
        operand(child, event) for child in (node.arguments if isinstance(node, Call) else (node.left, node.right))
    ]
    if None in operands:
        return None
    if isinstance(node, Arithmetic):
        one, other = operands
        if node.operator == "/":
            return one / other if other else None
        return {"+": one + other, "-": one - other, "*": one * other}[node.operator]
    match node.name:
        case "NOW":
            return NOW
        case "ABS":
            return abs(operands[0])
        case "FLOOR":
            return operands[0] // 1
        case "DISTANCE":
            metres = numbers.distance(*operands)
            return None if metres != metres else metres
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=operands[0] // 1)
    except OverflowError:
        return None
    return moment.weekday() + 1 if node.name == "WEEKDAY" else getattr(moment, node.name.lower())


def operand(child, event):
    value = evaluate(child, event)
    if value is None or not isinstance(child, Field | Constant):
        return value
    if abs(value) > HUGE:
        return None
    return float(value) if abs(value) * HUGE >= 1 else 0.0


def like(text, pattern, escape):
    glob, at = "", 0
    while at < len(pattern):
        if escape and pattern[at] == escape:
            at += 1
            glob += f"[{pattern[at]}]" if pattern[at] in "*?[" else pattern[at]
        else:
            glob += {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}.get(pattern[at], pattern[at])
        at += 1
    return fnmatch.fnmatchcase(text, glob)
