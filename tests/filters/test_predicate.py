"""The compiled function against the oracle, on every kind of event."""

import math
from collections import OrderedDict, namedtuple
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings

from pluribus.core.errors import BadInput
from pluribus.filters import Filter, parse
from pluribus.filters.events import document
from pluribus.filters.grammar import parse_tree
from pluribus.filters.normal import fold, negations_inward
from pluribus.filters.predicate import _Writing, compile_predicate
from pluribus.filters.tree import Field, Kind, walk
from tests.filters.oracle import NOW, evaluate
from tests.filters.strategies import events, trees


@settings(max_examples=200)
@given(trees, events())
def test_a_filter_is_true_false_or_unknown_as_the_books_tell_it(tree, event):
    assert Filter(tree).truth(event) is evaluate(tree, event)


@given(trees, events())
def test_what_goes_to_a_database_matches_alike(tree, event):
    assert Filter(tree).truth(document(event)) is evaluate(tree, event)


def structs_of(event):
    return {
        "mapping": OrderedDict(event),
        "struct": msgspec.defstruct("Event", list(event))(**event),
        "dataclass": make_dataclass("Event", list(event))(**event),
        "named tuple": namedtuple("Event", list(event))(**event),
    }


@given(trees, events())
def test_an_event_may_be_a_mapping_a_struct_a_dataclass_or_a_named_tuple(tree, event):
    if isinstance(event.get("deep"), dict):
        event["deep"] = structs_of(event["deep"])["struct"]
    expected = Filter(tree).matches(event)
    for form, made in structs_of(event).items():
        assert Filter(tree).matches(made) is expected, form


def test_an_event_without_fields_has_none():
    for event in (None, 3, "text", object(), [1]):
        assert parse("a IS NULL").matches(event)
        assert not parse("a = 1").matches(event)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (Decimal("0.1"), "v = 0.1"),
        (datetime(2026, 1, 1, tzinfo=UTC), "v = TIMESTAMP '2026-01-01T00:00:00Z'"),
        (datetime(2026, 1, 1), "v = TIMESTAMP '2026-01-01T01:00:00+01:00'"),
        (date(2026, 1, 1), "v = DATE '2026-01-01'"),
        (timedelta(minutes=5), "v = INTERVAL '5' MINUTE"),
        (Colour.RED, "v = 'red'"),
        (Level.HIGH, "v > 2 AND v < 4"),
        (UUID(int=7), "v LIKE '%-000000000007'"),
        (math.nan, "v IS NULL"),
        (math.inf, "v > 1e307"),
        (b"bytes", "v IS NOT NULL"),
        ([1], "v IS NOT NULL"),
        (2**63 - 1, "v > 9223372036854775806"),
        (9_007_199_254_740_993, "v <> 9007199254740992"),
    ],
)
def test_what_a_value_is(value, condition):
    assert parse(condition).matches({"v": value})
    assert parse(condition).matches(document({"v": value}))


def test_numpys_values_are_numbers_and_truths():
    numpy = pytest.importorskip("numpy")
    event = {"a": numpy.int64(3), "b": numpy.float64(1.5), "c": numpy.bool_(True), "d": numpy.float32(0.5)}
    assert parse("a = 3 AND b = 1.5 AND c AND d = 0.5").matches(event)


def test_only_declared_fields_of_an_object_are_read():
    class Sly(msgspec.Struct):
        open: int

        @property
        def hidden(self) -> int:
            raise AssertionError("a filter ran code of the program")

    assert parse("hidden IS NULL AND __class__ IS NULL AND open = 1").matches(Sly(1))


def test_words_of_a_filter_never_become_code():
    nasty = "__import__('os').system('false')"
    quoted = nasty.replace("'", "''")
    assert parse(f"s = '{quoted}'").matches({"s": nasty})
    assert parse(f'"{nasty}" = 1').matches({nasty: 1})


def test_filters_of_one_shape_share_their_code():
    one, other = (compile_predicate(parse(f"a = {number} AND b > {number}.5").tree) for number in (1, 2))
    assert one.__code__ is other.__code__
    assert one({"a": 1, "b": 2}) and not other({"a": 1, "b": 2})


def test_now_is_what_the_clock_says():
    condition = parse("t > NOW() - INTERVAL '10' SECOND")
    assert condition.needs_now and not parse("t > 3").needs_now
    recent = condition.predicate(now=lambda: NOW)
    assert recent({"t": NOW - 9}) and not recent({"t": NOW - 11})
    with pytest.raises(BadInput, match="now="):
        condition.matches({"t": 1})


NAVIGATION = {"PREV": None, "LAST": None, "COUNT": Kind.NUMBER, "CLASSIFIER": Kind.TEXT}


def test_a_resolver_says_where_fields_come_from():
    tree, _ = parse_tree("A.price > 2 * PREV(B.price, 3) AND LAST(price) = 5", navigation=NAVIGATION)
    asked = []

    def resolve(field):
        asked.append((field.path, field.via))
        return lambda row: row[field.path[-1]] * (2 if field.via else 5)

    assert compile_predicate(tree, resolve=resolve)({"price": 2.5})
    assert not compile_predicate(tree, resolve=resolve)({"price": 3})
    assert asked[:3] == [(("A", "price"), ()), (("B", "price"), (("PREV", 3),)), (("price",), (("LAST", 0),))]


def test_navigation_goes_to_every_field_of_an_expression():
    tree, _ = parse_tree("PREV(LAST(a + b * 2), 4) > 0", navigation=NAVIGATION)
    steps = (("PREV", 4), ("LAST", 0))
    assert _fields(tree) == [Field((name,), Kind.NUMBER, steps) for name in "ab"]


def test_a_function_of_rows_may_have_a_kind_of_its_own():
    tree, _ = parse_tree(
        "COUNT(A.*) > 3 AND COUNT(A.s) > 1 AND CLASSIFIER() = 'A' AND A.s = 'x'", navigation=NAVIGATION
    )
    kinds = {(field.path, field.via): field.kind for field in _fields(tree)}
    assert kinds == {
        (("A",), (("COUNT", 0),)): Kind.NUMBER,
        (("A", "s"), (("COUNT", 0),)): Kind.NUMBER,
        ((), (("CLASSIFIER", 0),)): Kind.TEXT,
        (("A", "s"), ()): Kind.TEXT,
    }


def _fields(tree):
    return [node for node in walk(tree) if isinstance(node, Field)]


@pytest.mark.parametrize("step", ["({} = {})", "({} <> {})", "(({} IS NULL) = {})", "(NOT ({} AND {}) = c)"])
def test_conditions_of_conditions_take_no_longer_the_deeper_they_are(step):
    words = "a"
    for depth in range(7 if "AND" in step else 10):
        words = step.format(words, f"f{depth}")
    tree, _ = parse_tree(words)
    source = _Writing(None, None).true(fold(negations_inward(tree)))
    assert len(source) < 2_000
    for event in ({}, {"a": True}, {"a": False, "c": True, **{f"f{n}": n % 3 == 0 for n in range(10)}}):
        assert Filter(tree).truth(event) is evaluate(tree, event)


class Rating(Enum):
    NONE = None
    GOOD = 5


@pytest.mark.parametrize(
    ("odd", "positive"),
    [
        (Decimal("sNaN"), None),
        (Decimal("NaN"), None),
        (msgspec.UNSET, None),
        (Rating.NONE, None),
        (Fraction(10**400), True),
        (Fraction(-(10**400), 3), False),
        (Decimal("-1e400"), False),
        (Rating.GOOD, True),
    ],
)
def test_no_number_makes_a_filter_fail_and_none_is_null(odd, positive):
    for event in ({"x": odd}, document({"x": odd})):
        assert parse("x > 0").truth(event) is positive
        assert parse("x IS NULL").truth(event) is (positive is None)
    assert parse("x * 1e30 > 0").truth({"x": odd}) is (True if odd is Rating.GOOD else None)
