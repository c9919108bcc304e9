"""A filter as a Spark column.

Spark's columns have types, so a field's kind is known before the query runs: a text where the filter means a number is
null throughout, as is a column that does not exist. Spark keeps three-valued logic; three things differ. NaN is a
number there, greater than all others; here it is null. Whole numbers beside doubles are rounded; here constants are
chosen so that it does not matter, and what a column's rounding took away is looked at. Dividing by zero raises (ANSI
mode, the default of Spark 4); here it is unknown.

Everything is done with functions of ``pyspark.sql.functions``, so it works through Spark Connect too, and Spark's
optimiser sees all of it. PySpark is imported when the first column is made.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from ..core.errors import MissingExtra
from . import numbers
from .like import as_like, pieces_of
from .normal import fold, negations_inward
from .numbers import (
    EARTH_RADIUS_M,
    LOWER_LETTERS,
    OPERAND_MAX,
    OPERAND_MIN,
    SECONDS_MAX,
    SECONDS_MIN,
    beside_double,
    kind_of,
)
from .sql import constant_of
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
    Path,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Expression = Any
"""A Spark column; PySpark's functions are not typed closely enough to say so."""

_CAPITALS = "".join(map(chr, LOWER_LETTERS))
_SMALL = _CAPITALS.lower()
_BELOW_2_63 = 9_223_372_036_854_774_784.0
"""The largest double that is a whole number of 64 bits."""
_WHOLE = ("byte", "short", "integer", "long")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def column(tree: Node, schema: StructType, *, now: float | None = None, three_valued: bool = False) -> Column:
    """``df.where(column(filter.tree, df.schema))`` keeps the rows that match. Runs in the driver; starts no job.

    Unknown may come out as false, which is the same to ``where`` and lets Spark push comparisons down into files;
    with ``three_valued`` it is null. ``NOW()`` is ``now``, else the time at which the query starts.
    """
    try:
        import pyspark.sql.functions as functions
    except ImportError:
        raise MissingExtra("Spark columns need PySpark, which is not here: install pluribus[spark]") from None
    writer = _Writer(functions, schema, now)
    made: Column = writer.condition(tree) if three_valued else writer.wanted(fold(negations_inward(tree)))
    return made


class _Writer:
    def __init__(self, functions: Any, schema: StructType, now: float | None) -> None:
        self.functions = functions
        self.schema = schema
        self.now = now
        self.unknown = functions.lit(None).cast("boolean")

    # --- conditions -------------------------------------------------------------------------------------------------

    def wanted(self, node: Node) -> Expression:
        """A condition of which only the truth matters: comparisons are left bare, so that Spark can skip files by
        them."""
        match node:
            case And(terms):
                return reduce(and_, map(self.wanted, terms))
            case Or(terms):
                return reduce(or_, map(self.wanted, terms))
            case Compare(operator, Field() as field, Constant() as constant) | Compare(
                operator, Constant() as constant, Field() as field
            ) if constant.kind is Kind.NUMBER and self._is_double(field.path):
                operator = operator if node.left is field else MIRRORED[operator]
                operator, value = beside_double(operator, constant.value)  # type: ignore[arg-type]
                bare = self._raw(field.path)
                compared = _COMPARE[operator](bare, self.functions.lit(value))
                return compared if operator in ("=", "<", "<=") else compared & ~self.functions.isnan(bare)
        return self.condition(node)

    def condition(self, node: Node) -> Expression:
        match node:
            case And(terms):
                return reduce(and_, map(self.condition, terms))
            case Or(terms):
                return reduce(or_, map(self.condition, terms))
            case Not(term):
                return ~self.condition(term)
            case Constant(value):
                return self._lit(value)
            case Field():
                return self.truth(node)
            case Compare(operator, left, right):
                return self.compare(operator, left, right)
            case In(operand, values):
                return self.belongs(operand, [constant_of(value) for value in values])
            case Like(operand, pattern, escape):
                return self.text(operand).like(as_like(pieces_of(str(constant_of(pattern).value), escape)))
            case IsNull(Field() as field):
                return self.absent(field)
            case IsNull(operand):
                return self.any_value(operand).isNull()
            case IsTruth(operand, value):
                return self.condition(operand).eqNullSafe(self._lit(value))
        raise AssertionError(f"{node} is no condition")

    def any_value(self, node: Node) -> Expression:
        match kind_of(node):
            case Kind.NUMBER:
                return self.double(node)
            case Kind.TEXT:
                return self.text(node)
        return self.condition(node)

    def compare(self, operator: str, left: Node, right: Node) -> Expression:
        kind = kind_of(left) if kind_of(left) is not Kind.ANY else kind_of(right)
        if kind is Kind.ANY:
            assert isinstance(left, Field) and isinstance(right, Field)
            kind, other = self._kind(left.path), self._kind(right.path)
            if kind is not other or kind is Kind.ANY or (kind is Kind.BOOLEAN and operator not in ("=", "<>")):
                return self.unknown
        if kind is Kind.NUMBER:
            return self.compare_numbers(operator, left, right)
        if kind is Kind.TEXT:
            return _COMPARE[operator](self.text(left), self.text(right))
        return _COMPARE[operator](self.condition(left), self.condition(right))

    def compare_numbers(self, operator: str, left: Node, right: Node) -> Expression:
        if isinstance(left, Constant) and isinstance(right, Field):
            return self.compare_constant(MIRRORED[operator], right, left.value)
        if isinstance(left, Field) and isinstance(right, Constant):
            return self.compare_constant(operator, left, right.value)
        if isinstance(left, Constant) or isinstance(right, Constant):
            one, constant = (left, right) if isinstance(right, Constant) else (right, left)
            assert isinstance(constant, Constant)
            operator, value = beside_double(operator if one is left else MIRRORED[operator], constant.value)  # type: ignore[arg-type]
            return _COMPARE[operator](self.double(one), self._lit(value))
        ours, others = (isinstance(side, Field) and self._is_whole(side.path) for side in (left, right))
        if ours and not others:
            return self._whole_beside_double(operator, self.number(left), right)
        if others and not ours:
            return self._whole_beside_double(MIRRORED[operator], self.number(right), left)
        read = self.number if ours else self.double
        return _COMPARE[operator](read(left), read(right))

    def _whole_beside_double(self, operator: str, whole: Expression, other: Node) -> Expression:
        """Rounding keeps the order. Only if the rounded number is the double does what was rounded away decide."""
        rounded = whole.cast("double")
        kept = self.functions.least(rounded, self._lit(_BELOW_2_63)).cast("long")
        away = self.functions.when(rounded <= _BELOW_2_63, whole - kept).otherwise(self._lit(-1))

        def compared(double: Expression) -> Expression:
            differ = self.functions.when(rounded != double, _COMPARE[operator](rounded, double))
            return differ.when(rounded == double, _COMPARE[operator](away, self._lit(0)))

        return self._let(other, self.double(other), compared)

    def compare_constant(self, operator: str, field: Field, value: Any) -> Expression:
        compare = _COMPARE[operator]
        if not self._is_whole(field.path):
            operator, value = beside_double(operator, value)
            return _COMPARE[operator](self.double(field), self._lit(value))
        if not isinstance(value, int):
            return compare(self.double(field), self._lit(value))
        if -(2**63) <= value < 2**63:
            return compare(self.number(field), self._lit(value))
        # Beyond all whole columns, so any number there will do.
        beyond = self._lit(Decimal(10**19 if value > 0 else -(10**19)))
        return compare(self.number(field).cast("decimal(20,0)"), beyond)

    def belongs(self, operand: Node, values: list[Constant]) -> Expression:
        chosen: list[Any] = [value.value for value in values]
        if kind_of(operand) is Kind.TEXT:
            return self.text(operand).isin(chosen)
        if isinstance(operand, Field) and self._is_whole(operand.path):
            found = self.number(operand)
            chosen = [value for value in chosen if isinstance(value, int) and -(2**63) <= value < 2**63]
        else:
            found = self.double(operand)
            chosen = [float(value) for value in chosen if beside_double("=", value)[1] == value]
        return found.isin(chosen) if chosen else found != found

    # --- values -----------------------------------------------------------------------------------------------------

    def double(self, node: Node, operand: bool = False) -> Expression:
        match node:
            case Field():
                return self.operand(node) if operand else self.number(node).cast("double")
            case Constant(value):
                assert not isinstance(value, str)
                taken = numbers.operand(value) if operand else float(value)
                return self._lit(None).cast("double") if taken != taken else self._lit(taken)
            case Arithmetic(operator, left, right):
                one, other = self.double(left, operand=True), self.double(right, operand=True)
                match operator:
                    case "+":
                        return one + other
                    case "-":
                        return one - other
                    case "*":
                        return one * other
                return one / self._let(right, other, lambda divisor: self._when(divisor != 0, divisor))
            case Call("NOW"):
                if self.now is not None:
                    return self._lit(float(self.now))
                return self.functions.unix_micros(self.functions.current_timestamp()) / 1e6
            case Call("LENGTH", (argument,)):
                return self.functions.char_length(self.text(argument)).cast("double")
            case Call():
                return self.call(node)
        raise AssertionError(f"{node} is no number")

    def operand(self, field: Field) -> Expression:
        number = self.number(field).cast("double")
        size = self.functions.abs(number)
        inside = self.functions.when(size.between(OPERAND_MIN, OPERAND_MAX), number)
        return inside.when(size < OPERAND_MIN, self._lit(0.0))

    def text(self, node: Node) -> Expression:
        match node:
            case Constant(value):
                return self._lit(value)
            case Field(path):
                return self._raw(path) if self._kind(path) is Kind.TEXT else self._lit(None).cast("string")
            case Call(name, (argument,)):
                letters = (_CAPITALS, _SMALL) if name == "LOWER" else (_SMALL, _CAPITALS)
                return self.functions.translate(self.text(argument), *letters)
        raise AssertionError(f"{node} is no text")

    def truth(self, field: Field) -> Expression:
        return self._raw(field.path) if self._kind(field.path) is Kind.BOOLEAN else self.unknown

    def call(self, node: Call) -> Expression:
        taken = [self.double(argument, operand=True) for argument in node.arguments]
        if node.name == "ABS":
            return self.functions.abs(taken[0])
        if node.name == "FLOOR":
            return self._let(node.arguments[0], taken[0], self._floor)
        if node.name == "DISTANCE":
            return self._distance(node.arguments, taken)
        return self._let(node.arguments[0], taken[0], lambda seconds: self._calendar(node.name, seconds))

    def _floor(self, number: Expression) -> Expression:
        # Spark's floor is a whole number of 64 bits; doubles beyond 2**52 have no fraction to lose.
        small = self.functions.abs(number) < 2.0**52
        return self.functions.when(small, self.functions.floor(number).cast("double")).otherwise(number)

    def _distance(self, arguments: tuple[Node, ...], taken: list[Expression]) -> Expression:
        radians, sin, cos = self.functions.radians, self.functions.sin, self.functions.cos

        def from_places(places: list[Expression]) -> Expression:
            latitude, longitude, other_latitude, other_longitude = (
                self._when(place.between(-bound, bound), place)
                for place, bound in zip(places, (90.0, 180.0, 90.0, 180.0), strict=True)
            )
            north, east = sin(radians(other_latitude - latitude) / 2), sin(radians(other_longitude - longitude) / 2)
            square = north * north + cos(radians(latitude)) * cos(radians(other_latitude)) * east * east
            return self._bind(square, lambda a: self.functions.when(a > 1, 1.0).otherwise(self.functions.sqrt(a)))

        def bind(known: list[Expression]) -> Expression:
            if len(known) == 4:
                return from_places(known)
            at = len(known)
            return self._let(arguments[at], taken[at], lambda value: bind([*known, value]))

        return self.functions.asin(bind([])) * (2 * EARTH_RADIUS_M)

    def _calendar(self, part: str, seconds: Expression) -> Expression:
        known = self._when(seconds.between(float(SECONDS_MIN), float(SECONDS_MAX)), seconds)
        whole = self.functions.floor(known)
        day = self.functions.date_from_unix_date(self.functions.floor(known / 86_400).cast("int"))
        second = self.functions.pmod(whole, self._lit(86_400))
        match part:
            case "YEAR" | "MONTH" | "DAY":
                found = getattr(self.functions, part.lower())(day)
            case "WEEKDAY":
                found = self.functions.weekday(day) + 1
            case "HOUR":
                found = self.functions.floor(second / 3_600)
            case "MINUTE":
                found = self.functions.floor(self.functions.pmod(second, self._lit(3_600)) / 60)
            case _:
                found = self.functions.pmod(second, self._lit(60))
        return found.cast("double")

    # --- expressions that are used more than once -------------------------------------------------------------------

    def _let(self, node: Node, value: Expression, use: Callable[[Expression], Expression]) -> Expression:
        return use(value) if isinstance(node, Field | Constant) else self._bind(value, use)

    def _bind(self, value: Expression, use: Callable[[Expression], Expression]) -> Expression:
        """A name for a value, so that nesting does not double the expression at each step."""
        return self.functions.get(self.functions.transform(self.functions.array(value), use), 0)

    def _when(self, condition: Any, value: Expression) -> Expression:
        return self.functions.when(condition, value)

    def _lit(self, value: Any) -> Expression:
        return self.functions.lit(value)

    # --- fields -----------------------------------------------------------------------------------------------------

    def number(self, node: Node) -> Expression:
        assert isinstance(node, Field)
        name = self._type_name(node.path)
        if self._kind(node.path) is not Kind.NUMBER:
            return self._lit(None).cast("double")
        raw = self._raw(node.path)
        if name in ("float", "double"):
            return self._when(~self.functions.isnan(raw), raw)
        if name == "timestamp":
            return self.functions.unix_micros(raw) / 1e6
        if name == "date":
            return self.functions.unix_date(raw).cast("long") * 86_400
        return raw if name in _WHOLE else raw.cast("double")

    def absent(self, field: Field) -> Expression:
        raw = self._raw(field.path)
        if self._type_name(field.path) in ("float", "double"):
            return raw.isNull() | self.functions.isnan(raw)
        return raw.isNull()

    def _raw(self, path: Path) -> Expression:
        if self._type_of(path) is None:
            return self._lit(None)
        first, *rest = path
        escaped = first.replace("`", "``")
        found: Expression = self.functions.col(f"`{escaped}`")
        for name in rest:
            found = found[name]
        return found

    def _type_of(self, path: Path) -> Any:
        known: Any = self.schema
        for name in path:
            if known.typeName() == "struct" and name in known.names:
                known = known[name].dataType
            elif known.typeName() == "map" and known.keyType.typeName() == "string":
                known = known.valueType
            else:
                return None
        return known

    def _type_name(self, path: Path) -> str:
        known = self._type_of(path)
        return "void" if known is None else known.typeName()

    def _kind(self, path: Path) -> Kind:
        name = self._type_name(path)
        if name in (*_WHOLE, "float", "double", "timestamp", "date") or name.startswith("decimal"):
            return Kind.NUMBER
        return {"string": Kind.TEXT, "boolean": Kind.BOOLEAN}.get(name, Kind.ANY)

    def _is_whole(self, path: Path) -> bool:
        return self._type_name(path) in (*_WHOLE, "date")

    def _is_double(self, path: Path) -> bool:
        return self._type_name(path) in ("float", "double")
