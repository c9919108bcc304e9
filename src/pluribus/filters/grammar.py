"""From SQL text to a tree: sqlglot parses the text; this module takes the constructs of the language and refuses the
rest.

sqlglot reads far more SQL than a filter has, of all dialects. So every construct that is not named here is refused,
with its position. The length and the nesting are checked before anything recursive runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from sqlglot import ErrorLevel, Parser, Tokenizer, exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ..core.errors import BadFilter
from ..core.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_IN_MAX, FILTER_STEPS_MAX
from .kinds import Kinds
from .like import pieces_of
from .numbers import FACTORS_MAX, FUNCTIONS, factors
from .printing import RESERVED, to_text
from .schema import Schema
from .tree import (
    FALSE,
    TRUE,
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
    Value,
    storable,
)

SEE = "docs/filters.md lists what there is"
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_ONE, _TWO_SIDES = frozenset({"this"}), frozenset({"this", "expression"})
_PARTS: dict[type[exp.Expr], frozenset[str] | set[str]] = {
    **dict.fromkeys((*COMPARISONS, *ARITHMETIC, exp.And, exp.Or, exp.Is, exp.Escape, exp.Dot), _TWO_SIDES),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren, exp.Boolean, exp.Placeholder, exp.Var, exp.DataType), _ONE),
    exp.Like: {*_TWO_SIDES, "negate"},
    exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions"},
    exp.Anonymous: {"this", "expressions"},
    exp.Column: {"this", "table", "db", "catalog"},
    exp.Identifier: {"this", "quoted"},
    exp.Literal: {"this", "is_string"},
    exp.Cast: {"this", "to"},
    exp.Interval: {"this", "unit"},
    exp.Null: set(),
    exp.Star: set(),
    exp.CurrentTimestamp: set(),
}
"""The constructs of the language, each with the parts that are understood: a further part may change the meaning (NOT
in NOT LIKE did)."""
UNITS_S = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}

Navigation = Mapping[str, Kind | None]


_UNKNOWN = "unknown"
_SIGNS = ("<=", ">=", "<>", "!=", "==", "--", "/*")


class _Tokenizer(Tokenizer):
    """Few words are reserved, so that few names of fields need quotes."""

    KEYWORDS = {word: kind for word, kind in Tokenizer.KEYWORDS.items() if word in (*RESERVED, *_SIGNS)}  # noqa: RUF012


class _Parser(Parser):
    """All functions alike, and no word but CURRENT_TIMESTAMP is one without its parentheses."""

    FUNCTIONS = {}  # noqa: RUF012 - as in sqlglot
    FUNCTION_PARSERS = {}  # noqa: RUF012
    NO_PAREN_FUNCTION_PARSERS = {}  # noqa: RUF012
    NO_PAREN_FUNCTIONS = {TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp}  # noqa: RUF012
    # sqlglot takes UNKNOWN for NULL, and forgets which it was.
    PRIMARY_PARSERS = {**Parser.PRIMARY_PARSERS, TokenType.NULL: lambda self, token: _null(token)}  # noqa: RUF012


def _null(token: Token) -> exp.Null:
    made = exp.Null()
    made.meta[_UNKNOWN] = token.token_type is TokenType.UNKNOWN
    return made


def parse_tree(text: str, *, schema: Schema | None = None, navigation: Navigation | None = None) -> tuple[Node, Kinds]:
    """The tree of a text, with the kinds of its fields and parameters. Raises ``BadFilter``."""
    if len(text) > FILTER_CHARS_MAX:
        reason = f"the filter has {len(text):,} characters, more than {FILTER_CHARS_MAX:,}"
        raise BadFilter.at(text, FILTER_CHARS_MAX + 1, reason, "use IN for long lists, or several subscriptions")
    tree, kinds, nesting = _taken(text, schema, navigation or {})
    if nesting > FILTER_DEPTH_MAX // 3:
        # What it prints must parse again, and may be deeper: NOT BETWEEN prints as NOT (… AND …).
        _taken(to_text(tree), schema, navigation or {})
    return tree, kinds


def parse_value(text: str, *, schema: Schema | None = None, navigation: Navigation | None = None) -> Node:
    """The tree of a text that need not be a condition, for measures of row patterns. Raises ``BadFilter``."""
    tokens = read_tokens(text)
    _nesting(text, tokens)
    syntax = _syntax(text, tokens)
    taking = _Taking(text, schema, navigation or {})
    taking.refuse_the_unknown(syntax)
    return taking.kinds.settle(taking.node(syntax, 0))


def _taken(text: str, schema: Schema | None, navigation: Navigation) -> tuple[Node, Kinds, int]:
    tokens = read_tokens(text)
    nesting = _nesting(text, tokens)
    syntax = _syntax(text, tokens)
    taking = _Taking(text, schema, navigation)
    taking.refuse_the_unknown(syntax)
    tree = taking.condition(syntax, 0)
    return taking.kinds.settle(tree), taking.kinds, nesting


def read_tokens(text: str) -> list[Token]:
    try:
        tokens = _Tokenizer().tokenize(text)
    except TokenError:
        at = _open_quote(text)
        raise BadFilter.at(
            text, at + 1, "a quote is never closed", "close it; a quote inside a text is doubled"
        ) from None
    if not tokens:
        raise BadFilter.at(text, 1, "the filter is empty", "write a condition, or TRUE for every event")
    return tokens


def _syntax(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        (syntax,) = _Parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise BadFilter.at(text, *_complaint(text, error)) from None
    if not isinstance(syntax, exp.Expr):
        raise BadFilter.at(text, 1, "there is no condition", "write one, or TRUE for every event")
    return syntax


def _open_quote(text: str) -> int:
    at = 0
    while at < len(text):
        if text[at] in "'\"":
            closing = text.find(text[at], at + 1)
            if closing < 0:
                return at
            at = closing
        at += 1
    return len(text) - 1


def _nesting(text: str, tokens: list[Token]) -> int:
    """How deep parentheses, signs and NOTs are nested; bounds the recursion of all that follows."""
    depth = signs = deepest = 0
    for token in tokens:
        signs = signs + 1 if token.token_type in (TokenType.NOT, TokenType.DASH, TokenType.PLUS) else 0
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        deepest = max(deepest, depth + signs)
        if deepest > FILTER_DEPTH_MAX:
            raise too_deep(text, token.start)
        if token.token_type is TokenType.SEMICOLON:
            raise BadFilter.at(text, token.start + 1, "a filter is one condition", "leave out the semicolon")
    return deepest


def too_deep(text: str, start: int) -> BadFilter:
    reason = f"conditions are nested more than {FILTER_DEPTH_MAX} deep"
    return BadFilter.at(text, start + 1, reason, "use IN, or several subscriptions")


def _complaint(text: str, error: ParseError) -> tuple[int, str, str]:
    what = error.errors[0] if error.errors else {}
    lines = text.splitlines(keepends=True)[: max(0, (what.get("line") or 1) - 1)]
    word = what.get("highlight") or ""
    start = sum(map(len, lines)) + max(0, (what.get("col") or 1) - len(word))
    description = what.get("description") or ""
    if description.startswith("Expecting"):
        return start + 1, f"{description.removeprefix('Expecting').strip()} is missing near {word!r}", "add it"
    if "missing for" in description:
        return start + 1, f"something is missing after {word!r}", "write both sides of it"
    return start + 1, f"{word!r} does not belong here", f"{SEE}; a field of that name is written in double quotes"


class _Taking:
    """Takes one text: the tree from sqlglot's, and the kinds that it implies."""

    def __init__(self, text: str, schema: Schema | None, navigation: Navigation) -> None:
        self.text = text
        self.schema = schema
        self.navigation = navigation
        self.kinds = Kinds(text, lambda syntax: _start(syntax) + 1)

    def refuse(self, at: exp.Expr, reason: str, remedy: str = SEE) -> NoReturn:
        raise BadFilter.at(self.text, _start(at) + 1, reason, remedy)

    def refuse_the_unknown(self, syntax: exp.Expr) -> None:
        for part in syntax.walk():
            known = _PARTS.get(type(part))
            if known is None:
                self.refuse(part, f"{type(part).__name__.upper()} is not part of the filter language")
            for name, value in part.args.items():
                if value and name not in known:
                    self.refuse(part, f"{type(part).__name__.upper()} with {name} is not part of the filter language")

    # --- conditions -------------------------------------------------------------------------------------------------

    def condition(self, syntax: exp.Expr, depth: int) -> Node:
        node = self.node(syntax, depth)
        self.kinds.expect(node, Kind.BOOLEAN, syntax, "as a condition")
        return node

    def node(self, syntax: exp.Expr, depth: int) -> Node:
        if depth > FILTER_DEPTH_MAX:
            raise too_deep(self.text, _start(syntax))
        kind = type(syntax)
        if kind in COMPARISONS:
            return self.compare(COMPARISONS[kind], syntax.this, syntax.expression, depth)
        match syntax:
            case exp.Paren():
                return self.node(syntax.this, depth)
            case exp.And() | exp.Or():
                terms = tuple(self.condition(term, depth + 1) for term in syntax.flatten())
                return And(terms) if kind is exp.And else Or(terms)
            case exp.Not():
                return Not(self.condition(syntax.this, depth + 1))
            case exp.Between():
                bounds = ((">=", syntax.args["low"]), ("<=", syntax.args["high"]))
                return And(tuple(self.compare(operator, syntax.this, bound, depth) for operator, bound in bounds))
            case exp.In():
                return self.belongs(syntax, depth)
            case exp.Like() | exp.Escape():
                return self.like(syntax, depth)
            case exp.Is():
                return self.is_something(syntax, depth)
            case exp.Boolean():
                return TRUE if syntax.this else FALSE
            case exp.Anonymous() if str(syntax.this).upper() == "WITHIN":
                return self.within(syntax, depth)
        return self.value(syntax, depth)

    def compare(self, operator: str, left: exp.Expr, right: exp.Expr, depth: int) -> Node:
        for side in (left, right):
            if isinstance(side.unnest(), exp.Null):
                self.refuse(side, "nothing is equal to NULL, nor is it different", "write IS NULL or IS NOT NULL")
        one, other = self.node(left, depth + 1), self.node(right, depth + 1)
        kind = self.kinds.alike(one, other, left)
        if kind is Kind.BOOLEAN and operator not in ("=", "<>"):
            self.refuse(left, f"true and false have no order, so {operator} says nothing", "use = or <>")
        return Compare(operator, one, other)

    def belongs(self, syntax: exp.In, depth: int) -> Node:
        items = syntax.expressions
        if not items or len(items) > FILTER_IN_MAX:
            reason = f"IN has {len(items):,} values" if items else "IN has no values"
            self.refuse(syntax, reason, f"give it 1 to {FILTER_IN_MAX:,} constants")
        operand = self.value(syntax.this, depth + 1)
        values = []
        for item in items:
            value = self.node(item, depth + 1)
            if not isinstance(value, Constant | Parameter):
                self.refuse(item, "a value of IN is no constant", "write constants, or conditions with OR")
            if self.kinds.alike(operand, value, item) is Kind.BOOLEAN:
                self.refuse(item, "IN is for numbers and texts", "write = TRUE or = FALSE")
            values.append(value)
        return In(operand, tuple(values))

    def like(self, syntax: exp.Expr, depth: int) -> Node:
        escape = ""
        if isinstance(syntax, exp.Escape):
            escape = self.text_of(syntax.expression)
            if len(escape) != 1:
                self.refuse(syntax.expression, f"ESCAPE {escape!r} is not one character", "write one, such as '!'")
            syntax = syntax.this
        if not isinstance(syntax, exp.Like):
            self.refuse(syntax, "ESCAPE belongs to LIKE")
        operand = self.value(syntax.this, depth + 1)
        self.kinds.expect(operand, Kind.TEXT, syntax.this, "with LIKE")
        pattern = self.node(syntax.expression, depth + 1)
        if not isinstance(pattern, Constant | Parameter):
            self.refuse(syntax.expression, "the pattern of LIKE is no constant", "write a text in single quotes")
        self.kinds.expect(pattern, Kind.TEXT, syntax.expression, "as a pattern")
        if isinstance(pattern, Constant):
            try:
                pieces_of(str(pattern.value), escape)
            except ValueError as error:
                self.refuse(syntax.expression, str(error), "escape %, _ or the escape character")
        made = Like(operand, pattern, escape)
        return Not(made) if syntax.args.get("negate") else made

    def text_of(self, syntax: exp.Expr) -> str:
        if not (isinstance(syntax, exp.Literal) and syntax.is_string):
            self.refuse(syntax, "this is no text", "write a text in single quotes")
        return str(syntax.this)

    def is_something(self, syntax: exp.Is, depth: int) -> Node:
        operand = self.node(syntax.this, depth + 1)
        match syntax.expression:
            case exp.Null() as null if null.meta[_UNKNOWN]:
                self.kinds.expect(operand, Kind.BOOLEAN, syntax.this, "with IS UNKNOWN")
                if isinstance(operand, Field):  # unknown also if it is there and of another kind; IS NULL is not so
                    return And((Not(IsTruth(operand, True)), Not(IsTruth(operand, False))))
                return IsNull(operand)
            case exp.Null():
                return IsNull(operand)
            case exp.Boolean() as truth:
                self.kinds.expect(operand, Kind.BOOLEAN, syntax.this, "with IS TRUE or IS FALSE")
                return IsTruth(operand, bool(truth.this))
        self.refuse(syntax, "IS is followed by something else than [NOT] NULL, TRUE, FALSE or UNKNOWN")

    def within(self, syntax: exp.Anonymous, depth: int) -> Node:
        form = "write WITHIN(position, latitude, longitude, metres); position has the fields lat and lon"
        if len(syntax.expressions) != 4:
            self.refuse(syntax, f"WITHIN has {len(syntax.expressions)} arguments", form)
        place = self.value(syntax.expressions[0], depth + 1)
        if not isinstance(place, Field):
            self.refuse(syntax.expressions[0], "WITHIN's first argument is no field", form)
        corners: list[Value] = [self.field((*place.path, name), syntax, place.via) for name in ("lat", "lon")]
        arguments = [*corners, *(self.value(argument, depth + 1) for argument in syntax.expressions[1:])]
        for argument in arguments:
            self.kinds.expect(argument, Kind.NUMBER, syntax, "in WITHIN")
        *places, metres = arguments
        return Compare("<=", Call("DISTANCE", tuple(places)), metres)

    # --- values -----------------------------------------------------------------------------------------------------

    def value(self, syntax: exp.Expr, depth: int) -> Value:
        if depth > FILTER_DEPTH_MAX:
            raise too_deep(self.text, _start(syntax))
        kind = type(syntax)
        if kind in ARITHMETIC:
            return self.arithmetic(ARITHMETIC[kind], syntax.this, syntax.expression, depth)
        match syntax:
            case exp.Paren():
                return self.value(syntax.this, depth)
            case exp.Literal():
                return self.literal(syntax)
            case exp.Boolean():
                return TRUE if syntax.this else FALSE
            case exp.Neg():
                return self.negative(syntax, depth)
            case exp.Column() | exp.Dot():
                return self.field(self.path(syntax), syntax)
            case exp.Placeholder() if syntax.this:
                return Parameter(str(syntax.this))
            case exp.Cast() if isinstance(syntax.this, exp.Literal):
                return self.moment(syntax)
            case exp.Interval():
                return self.interval(syntax)
            case exp.CurrentTimestamp():
                return Call("NOW", ())
            case exp.Anonymous():
                return self.call(syntax, depth)
            case exp.Null():
                self.refuse(syntax, "NULL stands where a value is needed", "write IS NULL or IS NOT NULL")
            case exp.Placeholder():
                self.refuse(syntax, "a parameter has no name", "write :name")
            case exp.Star():
                self.refuse(syntax, "this names no field", "write a name, or names with dots between them")
        self.refuse(syntax, "a condition stands where a value is needed", "compare values only")

    def literal(self, syntax: exp.Literal) -> Constant:
        words = str(syntax.this)
        if syntax.is_string:
            if not storable(words):
                self.refuse(syntax, "the text holds a character that no database takes", "leave out NUL and surrogates")
            return Constant(words, Kind.TEXT)
        try:
            amount = int(words) if words.isdigit() and len(words) < 310 else float(words)
        except ValueError:
            self.refuse(syntax, f"{words!r} is no number", "write it like 12, 1.5 or 2e9")
        return self.number(amount, syntax)

    def number(self, number: float, syntax: exp.Expr) -> Constant:
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            number = float(number) if abs(number) < 10**308 else math.inf
        if not math.isfinite(number):
            self.refuse(syntax, "the number is too large", "use one below 1e308")
        return Constant(int(number) if number == int(number) else number, Kind.NUMBER)

    def negative(self, syntax: exp.Neg, depth: int) -> Value:
        inner = syntax.this.unnest()
        if isinstance(inner, exp.Literal) and not inner.is_string:
            value = self.literal(inner).value
            assert not isinstance(value, str)
            return Constant(-value, Kind.NUMBER)
        operand = self.value(syntax.this, depth + 1)
        self.kinds.expect(operand, Kind.NUMBER, syntax.this, "after a minus")
        return Arithmetic("-", Constant(0, Kind.NUMBER), operand)

    def arithmetic(self, operator: str, left: exp.Expr, right: exp.Expr, depth: int) -> Value:
        sides = []
        for side in (left, right):
            operand = self.value(side, depth + 1)
            self.kinds.expect(operand, Kind.NUMBER, side, f"with {operator}")
            sides.append(operand)
        made = Arithmetic(operator, sides[0], sides[1])
        if factors(made) > FACTORS_MAX:
            self.refuse(left, f"more than {FACTORS_MAX} factors are multiplied", "compute less")
        return made

    def path(self, syntax: exp.Expr) -> tuple[str, ...]:
        names = [str(part.this) for part in syntax.parts] if isinstance(syntax, exp.Column | exp.Dot) else []
        if not names or any(type(part) not in _NAMING for part in syntax.walk()):
            self.refuse(syntax, "this names no field", "write a name, or names with dots between them")
        if len(names) > FILTER_STEPS_MAX:
            self.refuse(syntax, f"the path has {len(names)} names", f"use {FILTER_STEPS_MAX} or fewer")
        for name in names:
            if not name or not name.isprintable() or '"' in name or "\\" in name:
                self.refuse(syntax, f"{name!r} is no name of a field", 'use what is printable and no " or \\')
        return tuple(names)

    def field(self, path: tuple[str, ...], at: exp.Expr, via: tuple[tuple[str, int], ...] = ()) -> Field:
        field = Field(path, via=via)
        if self.schema is not None:
            kind = self.schema.kind(path)
            if kind is None:
                known = ", ".join(self.schema.beside(path)) or "none"
                self.refuse(at, f"{self.schema.name} has no field {'.'.join(path)}", f"its fields are {known}")
            if kind is not Kind.ANY:
                self.kinds.expect(field, kind, at, f"in {self.schema.name}")
        return field

    def moment(self, syntax: exp.Cast) -> Constant:
        if str(syntax.to.this.value) not in ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "DATETIME"):
            self.refuse(syntax, "a value is not made another's kind", "compare it with a constant of its own kind")
        words = self.text_of(syntax.this)
        try:
            moment = datetime.fromisoformat(words)
        except ValueError:
            self.refuse(syntax, f"{words!r} is no time", "write it like TIMESTAMP '2026-01-31T12:00:00Z'")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return self.number(moment.timestamp(), syntax)

    def interval(self, syntax: exp.Interval) -> Constant:
        unit = str(syntax.args.get("unit") or "").upper().removesuffix("S")
        try:
            amount = float(str(syntax.this.this))
        except (AttributeError, ValueError):
            amount = math.nan
        if unit not in UNITS_S or not math.isfinite(amount):
            self.refuse(
                syntax, "this is no interval", f"write it like INTERVAL '5' MINUTE; units: {', '.join(UNITS_S)}"
            )
        return self.number(amount * UNITS_S[unit], syntax)

    def call(self, syntax: exp.Anonymous, depth: int) -> Value:
        name = str(syntax.this).upper()
        if name in self.navigation:
            return self.navigate(name, syntax, depth)
        if name not in FUNCTIONS:
            known = ", ".join(sorted({*FUNCTIONS, "WITHIN", *self.navigation}))
            self.refuse(syntax, f"there is no function {name}", f"there are {known}")
        function = FUNCTIONS[name]
        if len(syntax.expressions) != len(function.arguments):
            self.refuse(syntax, f"{name} has {len(syntax.expressions)} arguments", f"write {function.form}")
        arguments = []
        for argument, kind in zip(syntax.expressions, function.arguments, strict=True):
            value = self.value(argument, depth + 1)
            self.kinds.expect(value, kind, argument, f"in {name}")
            arguments.append(value)
        return Call(name, tuple(arguments))

    def navigate(self, name: str, syntax: exp.Anonymous, depth: int) -> Value:
        """``PREV(x, n)`` of an expression is the expression of the fields' PREV: put the function on each field."""
        form = f"write {name}(field) or {name}(field, whole number)"
        subject, *numbers = syntax.expressions or [None]
        if len(numbers) > 1 or not all(isinstance(number, exp.Literal) and number.is_int for number in numbers):
            self.refuse(syntax, f"{name} has other arguments", form)
        step = (name, int(str(numbers[0].this)) if numbers else 0)
        kind = self.navigation[name]
        if subject is None or (isinstance(subject, exp.Star)):
            return Field((), kind or Kind.ANY, via=(step,))
        if kind is not None:
            if isinstance(subject, exp.Column) and isinstance(subject.this, exp.Star):
                return Field(tuple(str(part.this) for part in subject.parts[:-1]), kind, via=(step,))
            inside = self.value(subject, depth + 1)
            if not isinstance(inside, Field):
                self.refuse(syntax, f"{name} is of no field", form)
            return Field(inside.path, kind, via=(step, *inside.via))
        return _put_on_fields(self.value(subject, depth + 1), step)


_NAMING = (exp.Column, exp.Dot, exp.Identifier)


def _put_on_fields(node: Value, step: tuple[str, int]) -> Value:
    match node:
        case Field(path, kind, via):
            return Field(path, kind, (step, *via))
        case Arithmetic(operator, left, right):
            return Arithmetic(operator, _put_on_fields(left, step), _put_on_fields(right, step))
        case Call(name, arguments):
            return Call(name, tuple(_put_on_fields(argument, step) for argument in arguments))
    return node


def _start(syntax: Any) -> int:
    """The place where a construct begins. sqlglot knows the places of names and constants only, so this is that of the
    first of them."""
    starts = [part.meta["start"] for part in syntax.walk() if "start" in part.meta]
    return min(starts, default=0)
