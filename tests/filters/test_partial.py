"""A filter of which some fields are known says the same of the events that have these values."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.filters import Filter, parse
from pluribus.filters.tree import FALSE, TRUE
from tests.filters.oracle import evaluate
from tests.filters.strategies import events, trees

names = st.sets(st.sampled_from(["n", "m", "deep", "s", "u", "b", "c", "x", "y", "t", "place"]))


@settings(max_examples=150)
@given(trees, events(), names)
def test_what_is_left_holds_for_the_same_events(tree, event, known):
    rest = Filter(tree).partial({name: event.get(name) for name in known})
    assert rest.matches(event) is (evaluate(tree, event) is True)


@pytest.mark.parametrize(
    ("words", "known", "left"),
    [
        ("region = 'eu' AND price > 100", {"region": "eu"}, "price > 100"),
        ("region = 'eu' AND price > 100", {"region": "us"}, "FALSE"),
        ("region = 'eu' OR price > 100", {"region": "eu"}, "TRUE"),
        ("region = 'eu' OR price > 100", {"region": None}, "price > 100"),
        ("price * size > 100", {"size": 2}, "price * 2 > 100"),
        ("price > low + 1", {"low": 4}, "price > 5"),
        ("a = b", {"b": "x"}, "a = 'x'"),
        ("a < b", {"b": True}, "FALSE"),
        ("a = b AND c", {"b": True}, "a AND c"),
        ("NOT (a > 1 AND b > 2)", {"a": 2}, "b <= 2"),
        ("place.city = 'Wien' AND b > 2", {"place": {"city": "Wien"}}, "b > 2"),
        ("a IS NULL AND b > 2", {"a": None}, "b > 2"),
        ("(a + b) IS NULL", {"a": 1}, "a + b IS NULL"),
        ("a > b", {"a": math.inf}, "a > b"),
        ("t > NOW() - 5 AND a = 1", {"a": 1}, "t > NOW() - 5"),
        ("a > NOW()", {"a": 1}, "1 > NOW()"),
    ],
)
def test_what_is_left(words, known, left):
    assert str(parse(words).partial(known)) == left


def test_nothing_and_everything():
    assert parse("a > 1").partial({}) == parse("a > 1")
    assert parse("a > 1").partial({"a": 2}).tree == TRUE
    assert parse("a > 1").partial({"a": "two"}).tree == FALSE


def test_a_known_number_beyond_all_doubles_is_one():
    assert parse("a > b").partial({"a": 10**400}).matches({"a": 10**400, "b": 5})
    assert parse("a > b AND a + b > 1").partial({"a": -(10**400)}).matches({"a": -(10**400), "b": 5}) is False


def test_a_known_number_is_computed_with_as_a_double():
    event = {"a": 2**53, "b": 2**53 + 1}
    for text in ("a + 0 < b", "b + 0 < b"):
        assert parse(text).matches(event) and parse(text).partial({"a": 2**53}).matches(event)
