"""A filter as a Python function.

The function is written for the filter: one comparison in the filter is one in the function, fields are read when the
first condition needs them, and the first condition that does not hold ends it. No text of the filter becomes code: the
source has only names that are made here, and what the user wrote (constants, names of fields) comes in as default
arguments. Filters of the same shape share the code.

Three-valued logic needs no third value. For each condition there are two expressions, one that is true when the
condition is true, one that is true when it is false; where it is unknown, neither is. NOT exchanges them.

``resolve`` says where a field's value comes from: a function of whatever the predicate is called with, or the number of
its place in it. Row patterns use it to read columns of matched rows; without it, the predicate is called with an event,
as ``events.py`` describes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from ..core.errors import BadInput
from . import events, numbers
from .like import matcher, pieces_of
from .normal import fold, negations_inward
from .numbers import kind_of
from .tree import (
    OPPOSITE,
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

CODES_REMEMBERED_MAX = 4_096

Predicate = Callable[[Any], bool]
Resolve = Callable[[Field], Callable[[Any], Any] | int]
Now = Callable[[], float]

_GLOBALS: dict[str, Any] = {
    "__builtins__": {},
    **{function.__name__: function for function in (type, abs)},
    "float_type": float,
    "int_type": int,
    "str_type": str,
    "dict_type": dict,
    **{
        name: getattr(events, name)
        for name in ("reader", "inner", "number", "text", "boolean", "absent", "compare_any", "same", "connected")
    },
    **{
        name: getattr(numbers, name)
        for name in ("operand", "divide", "floor", "distance", "calendar", "lower", "upper", "length")
    },
}


def compile_predicate(tree: Node, *, resolve: Resolve | None = None, now: Now | None = None) -> Predicate:
    """A function that is true exactly for the events for which the filter is true; false and unknown are both false."""
    return _Writing(resolve, now).function(fold(negations_inward(tree)))


def compile_value(tree: Node, *, resolve: Resolve | None = None, now: Now | None = None) -> Callable[[Any], Any]:
    """A function that gives the value of an expression: a field as it is in the event, ``None`` where it is unknown."""
    return _Writing(resolve, now).value_function(tree)


@lru_cache(CODES_REMEMBERED_MAX)
def _code(source: str) -> CodeType:
    module = compile(source, "<filter>", "exec", dont_inherit=True)
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


class _Writing:
    """One function being written."""

    def __init__(self, resolve: Resolve | None, now: Now | None) -> None:
        self._resolve = resolve
        self._now = now
        self._bound: list[Any] = []
        """Default arguments ``c0``, ``c1``, …"""
        self._lines: list[str] = []
        self._fields: dict[tuple[Field, str], str] = {}
        self._temporaries = 0

    def function(self, tree: Node) -> Predicate:
        conditions = [
            (self.true(term), self._take_lines()) for term in (tree.terms if isinstance(tree, And) else (tree,))
        ]
        body = [] if self._resolve else ["read = event.get if type(event) is dict_type else reader(event)"]
        for expression, loads in conditions[:-1]:
            body += [*loads, f"if not ({expression}): return False"]
        expression, loads = conditions[-1]
        made: Predicate = self._made([*body, *loads, f"return not not ({expression})"])
        return made

    def value_function(self, tree: Node) -> Callable[[Any], Any]:
        body = [] if self._resolve else ["read = event.get if type(event) is dict_type else reader(event)"]
        if isinstance(tree, Field):
            value = self.field(tree, "raw")
            answer = [f"return None if absent({value}) else {value}"]
        elif isinstance(tree, Constant):
            answer = [f"return {self._bind(tree.value)}"]
        elif kind_of(tree) is Kind.BOOLEAN:
            true, false = (self.true(fold(negations_inward(side))) for side in (tree, Not(tree)))
            answer = [f"return True if {true} else False if {false} else None"]
        else:
            answer = [f"value = {self.plain(tree)}", "return value if value == value else None"]
        made: Callable[[Any], Any] = self._made([*body, *self._take_lines(), *answer])
        return made

    def _made(self, body: list[str]) -> Any:
        names = ", ".join(["event", *(f"c{number}" for number in range(len(self._bound)))])
        source = f"def predicate({names}):\n" + "".join(f"    {line}\n" for line in body)
        return FunctionType(_code(source), _GLOBALS, "predicate", tuple(self._bound))

    def _take_lines(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def _bind(self, value: Any) -> str:
        self._bound.append(value)
        return f"c{len(self._bound) - 1}"

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"x{self._temporaries}"

    # --- conditions: true(node) and false(node) are both false where the node is unknown ------------------------------

    def true(self, node: Node) -> str:
        match node:
            case And(terms):
                return "(" + " and ".join(map(self.true, terms)) + ")"
            case Or(terms):
                return "(" + " or ".join(map(self.true, terms)) + ")"
            case Not(term):
                return self.false(term)
            case Constant(value):
                return "True" if value is True else "False"
            case Field():
                return f"{self.field(node, 'boolean')} is True"
            case Compare(operator, left, right):
                return self.compare(operator, left, right)
            case In(operand, values):
                chosen = self.constants(values)
                return f"({self.plain(operand)} in {chosen})"
            case Like(operand):
                name, there = self.text(operand)
                return f"({there}{self.like(node)}({name}))"
            case IsNull(operand):
                return self.null(operand)
            case IsTruth(operand, value):
                return self.true(operand) if value else self.false(operand)
        raise AssertionError(f"{node} is no condition")

    def false(self, node: Node) -> str:
        match node:
            case And(terms):
                return "(" + " or ".join(map(self.false, terms)) + ")"
            case Or(terms):
                return "(" + " and ".join(map(self.false, terms)) + ")"
            case Not(term):
                return self.true(term)
            case Constant(value):
                return "True" if value is False else "False"
            case Field():
                return f"{self.field(node, 'boolean')} is False"
            case Compare(operator, left, right):
                return self.compare(OPPOSITE[operator], left, right)
            case In(operand, values):
                chosen = self.constants(values)
                if kind_of(operand) is Kind.TEXT:
                    name, there = self.text(operand)
                    return f"({there}{name} not in {chosen})"
                name = self._temporary()
                return f"(({name} := {self.plain(operand)}) == {name} and {name} not in {chosen})"
            case Like(operand):
                name, there = self.text(operand)
                return f"({there}not {self.like(node)}({name}))"
            case IsNull(operand):
                return f"not {self.null(operand)}"
            case IsTruth(operand, value):
                return f"not ({self.true(operand) if value else self.false(operand)})"
        raise AssertionError(f"{node} is no condition")

    def compare(self, operator: str, left: Node, right: Node) -> str:
        kind = kind_of(left) if kind_of(left) is not Kind.ANY else kind_of(right)
        if kind is Kind.NUMBER:
            return self.compare_numbers(operator, left, right)
        if kind is Kind.TEXT:
            (one, one_there), (other, other_there) = self.text(left), self.text(right)
            return f"({one_there}{other_there}{one} {_PYTHON[operator]} {other})"
        if kind is Kind.BOOLEAN:
            return f"(same({self.truth(left)}, {self.truth(right)}) is {operator == '='})"
        assert isinstance(left, Field) and isinstance(right, Field)
        one, other = self.field(left, "raw"), self.field(right, "raw")
        slow = f"compare_any({self._bind(operator)}, {one}, {other}) is True"
        if operator == "<>":
            return f"({slow})"
        # Most often both are doubles, and then Python compares as we do, NaN included.
        doubles = f"type({one}) is float_type and type({other}) is float_type"
        return f"(({one} {_PYTHON[operator]} {other}) if {doubles} else {slow})"

    def compare_numbers(self, operator: str, left: Node, right: Node) -> str:
        one, other = self.number(left), self.number(right)  # Python compares whole numbers with doubles exactly
        if operator != "<>":
            return f"({one} {_PYTHON[operator]} {other})"
        # NaN is unequal to everything in Python, and unknown here.
        first, second = self._temporary(), self._temporary()
        return f"(({first} := {one}) < ({second} := {other}) or {first} > {second})"

    def null(self, operand: Node) -> str:
        if isinstance(operand, Field):
            return f"absent({self.field(operand, 'raw')})"
        match kind_of(operand):
            case Kind.NUMBER:
                name = self._temporary()
                return f"(({name} := {self.number(operand)}) != {name})"
            case Kind.TEXT:
                return f"({self.plain(operand)} is None)"
        return f"({self.truth(operand)} is None)"

    def truth(self, node: Node) -> str:
        """An expression for True, False or None. The inner condition is written once: if it were written for true and
        for false, as elsewhere, a filter would double with every comparison of conditions inside another."""
        match node:
            case And(terms) | Or(terms):
                decided = isinstance(node, Or)
                return f"connected({decided}, ({', '.join(map(self.truth, terms))},))"
            case Not(term):
                return f"same(False, {self.truth(term)})"
            case Field():
                return self.field(node, "boolean")
            case Compare(operator, left, right) if Kind.BOOLEAN in (kind_of(left), kind_of(right)):
                return f"same({operator == '='}, same({self.truth(left)}, {self.truth(right)}))"
            case IsTruth(operand, value):
                return f"({self.truth(operand)} is {value})"
            case Constant() | IsNull():
                return self.true(node)
        return f"(True if {self.true(node)} else False if {self.false(node)} else None)"

    def like(self, node: Like) -> str:
        assert isinstance(node.pattern, Constant), f"{node.pattern} is not bound"
        return self._bind(matcher(pieces_of(str(node.pattern.value), node.escape)))

    def constants(self, values: tuple[Constant | Parameter, ...]) -> str:
        return self._bind(frozenset(map(_value, values)))

    # --- values -----------------------------------------------------------------------------------------------------

    def plain(self, node: Node) -> str:
        return self.number(node) if kind_of(node) is Kind.NUMBER else self.words(node)

    def number(self, node: Node, *, operand: bool = False) -> str:
        """An expression for a number; NaN where it is unknown."""
        match node:
            case Field():
                return self.field(node, "operand" if operand else "number")
            case Constant() | Parameter():
                value = _value(node)
                return self._bind(numbers.operand(value) if operand else value)
            case Arithmetic("/", left, right):
                return f"divide({self.number(left, operand=True)}, {self.number(right, operand=True)})"
            case Arithmetic(operator, left, right):
                return f"({self.number(left, operand=True)} {operator} {self.number(right, operand=True)})"
            case Call("NOW"):
                return f"{self._bind(self._clock())}()"
            case Call("LENGTH", (argument,)):
                return f"length({self.words(argument)})"
            case Call("ABS" | "FLOOR" | "DISTANCE" as name, arguments):
                return f"{name.lower()}({', '.join(self.number(each, operand=True) for each in arguments)})"
            case Call(name, (argument,)):
                return f"calendar({self._bind(name)}, {self.number(argument, operand=True)})"
        raise AssertionError(f"{node} is no number")

    def text(self, node: Node) -> tuple[str, str]:
        """A name for a text, and the condition ``… and`` under which the text is known."""
        if isinstance(node, Constant):
            return self._bind(node.value), ""
        if isinstance(node, Field):
            name = self.field(node, "text")
            return name, f"{name} is not None and "
        name = self._temporary()
        return name, f"({name} := {self.words(node)}) is not None and "

    def words(self, node: Node) -> str:
        """An expression for a text; None where it is unknown."""
        match node:
            case Constant(value):
                return self._bind(value)
            case Field():
                return self.field(node, "text")
            case Call(name, (argument,)):
                return f"{name.lower()}({self.words(argument)})"
        raise AssertionError(f"{node} is no text")

    def _clock(self) -> Now:
        if self._now is None:
            raise BadInput("the filter asks for NOW(), and nobody tells the time: give now=, a function")
        return self._now

    def field(self, field: Field, form: str) -> str:
        """The name of a field's value in one of its forms; the code that reads it goes before the present condition."""
        known = self._fields.get((field, form))
        if known is not None:
            return known
        name = f"{form[0]}{len(self._fields)}"
        if form == "raw":
            self._lines.append(f"{name} = {self._read(field)}")
        elif form == "operand":
            self._lines.append(f"{name} = operand({self.field(field, 'number')})")
        else:
            raw = self.field(field, "raw")
            if form == "number":
                whole = f"type({raw}) is int_type and {events.INT_MIN} <= {raw} <= {events.INT_MAX}"
                self._lines.append(f"{name} = {raw} if type({raw}) is float_type or {whole} else number({raw})")
            elif form == "text":
                self._lines.append(f"{name} = {raw} if type({raw}) is str_type else text({raw})")
            else:
                self._lines.append(f"{name} = boolean({raw})")
        self._fields[field, form] = name
        return name

    def _read(self, field: Field) -> str:
        if self._resolve is not None:
            source = self._resolve(field)
            return f"event[{source:d}]" if isinstance(source, int) else f"{self._bind(source)}(event)"
        assert not field.via, f"{field} needs a resolver"
        first, *rest = field.path
        expression = f"read({self._bind(first)})"
        for name in rest:
            expression = f"inner({expression}, {self._bind(name)})"
        return expression


_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _value(node: Constant | Parameter) -> Any:
    assert isinstance(node, Constant), f"{node} is not bound"
    return node.value
