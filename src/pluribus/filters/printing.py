"""A tree as SQL text: the result of ``str(filter)``, which is also sent. Parsing it gives the same tree."""

from __future__ import annotations

import re

from .tree import (
    And,
    Arithmetic,
    Call,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Like,
    Node,
    Not,
    Or,
    Parameter,
)

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = (
    *("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "UNKNOWN", "LIKE", "ESCAPE", "BETWEEN"),
    *("INTERVAL", "TIMESTAMP", "DATE", "CURRENT_TIMESTAMP"),
)
"""A field of such a name is written in double quotes."""

# How tightly a construct binds; what binds less stands in parentheses.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _ATOM = range(7)


def to_text(node: Node) -> str:
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    match node:
        case Or(terms):
            return " OR ".join(_inside(term, _OR + 1) for term in terms), _OR
        case And(terms):
            return " AND ".join(_inside(term, _AND + 1) for term in terms), _AND
        case Not(term):
            return _negation(term), _NOT
        case Compare(operator, left, right):
            return f"{_inside(left, _SUM)} {operator} {_inside(right, _SUM)}", _COMPARISON
        case In() | Like() | IsNull() | IsTruth():
            return _tested(node, ""), _COMPARISON
        case Arithmetic(operator, left, right):
            level = _SUM if operator in "+-" else _PRODUCT
            return f"{_inside(left, level)} {operator} {_inside(right, level + 1)}", level
        case Call(name, arguments):
            return f"{name}({', '.join(map(to_text, arguments))})", _ATOM
        case Field(path, _, via):
            return _navigated(".".join(map(_name, path)) or "*", list(via)), _ATOM
        case Parameter(name):
            return f":{name}", _ATOM
        case Constant():
            return _constant(node), _ATOM


def _inside(node: Node, level: int) -> str:
    text, binds = _text(node)
    return text if binds >= level else f"({text})"


def _negation(term: Node) -> str:
    return _tested(term, "NOT ") if isinstance(term, In | Like | IsNull | IsTruth) else f"NOT {_inside(term, _ATOM)}"


def _tested(node: In | Like | IsNull | IsTruth, negation: str) -> str:
    operand = _inside(node.operand, _SUM)
    match node:
        case In(_, values):
            return f"{operand} {negation}IN ({', '.join(map(to_text, values))})"
        case Like(_, pattern, escape):
            ending = f" ESCAPE {_quoted(escape)}" if escape else ""
            return f"{operand} {negation}LIKE {to_text(pattern)}{ending}"
        case IsNull():
            return f"{operand} IS {negation}NULL"
        case IsTruth(_, value):
            return f"{operand} IS {negation}{'TRUE' if value else 'FALSE'}"


def _navigated(text: str, via: list[tuple[str, int]]) -> str:
    for name, number in reversed(via):
        text = f"{name}({'' if text == '*' else text}{f', {number}' if number else ''})"
    return text


def _name(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) and name.upper() not in RESERVED else f'"{name}"'


def _constant(constant: Constant) -> str:
    value = constant.value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _quoted(value)
    return repr(value if -(2**63) <= value < 2**63 else float(value))


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
