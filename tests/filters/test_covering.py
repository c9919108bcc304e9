"""Covering never says yes wrongly, and says it where people expect it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.filters import Filter, parse
from pluribus.filters.covering import covers
from pluribus.filters.normal import alternatives
from pluribus.filters.tree import FALSE, TRUE, And, Compare, Field, In, Kind, Like, Not, Or
from tests.filters.oracle import evaluate
from tests.filters.strategies import constant, events, text_values, trees

tiny = st.integers(-1, 1)
subject = st.just(Field(("n",), Kind.NUMBER))
word = st.just(Field(("s",), Kind.TEXT))
close = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), subject, tiny.map(constant)),
    st.builds(In, subject, st.lists(tiny.map(constant), min_size=1, max_size=2).map(tuple)),
    st.builds(Compare, st.sampled_from(["=", "<>", "<", ">="]), word, text_values.map(constant)),
    st.builds(In, word, st.lists(text_values.map(constant), min_size=1, max_size=2).map(tuple)),
    st.builds(Like, word, st.sampled_from(["a%", "%b", "%a%", "ab%", "a_%", "%", "a"]).map(constant)),
)
"""Conditions on the same two fields, so that one often implies another."""
literal = st.one_of(close, close, close.map(Not), trees)
pairs = st.lists(literal, min_size=1, max_size=3).map(lambda terms: And(tuple(terms)))
either = st.one_of(pairs, pairs, st.lists(pairs, min_size=2, max_size=2).map(lambda terms: Or(tuple(terms))))
numbers = st.sampled_from([-2, -1, -0.5, 0, 0.5, 1, 2, None, "odd"])
seen = st.fixed_dictionaries({"n": numbers, "s": st.none() | text_values}) | events()


@settings(max_examples=200)
@given(either, either, st.data())
def test_a_yes_is_always_right(wide, narrow, data):
    if covers(wide, narrow):  # events are made only where they can show that the answer is wrong
        for event in data.draw(st.lists(seen, min_size=10, max_size=20)):
            if evaluate(narrow, event) is True:
                assert evaluate(wide, event) is True


@settings(max_examples=100)
@given(trees, trees)
def test_laws(one, other):
    assert covers(one, one)
    assert covers(TRUE, one) and covers(one, FALSE)
    assert covers(one, And((one, other))) or alternatives(And((one, other)), 64) is None
    assert covers(Or((one, other)), one) or alternatives(one, 64) is None


YES = [
    ("a > 1", "a > 2"),
    ("a >= 2", "a = 2"),
    ("a <> 3", "a > 3"),
    ("a > 1", "a BETWEEN 2 AND 3"),
    ("a BETWEEN 1 AND 5", "a IN (2, 3)"),
    ("a IN (1, 2, 3)", "a IN (1, 3)"),
    ("a IN (1, 2)", "a = 2 AND b > 3"),
    ("a IS NOT NULL", "a > 1"),
    ("a > 1 OR b > 1", "b > 2"),
    ("a > 1", "a > 1 AND b LIKE 'x%'"),
    ("a > 0", "a > 2 OR a = 1"),
    ("s LIKE 'a%'", "s LIKE 'ab%'"),
    ("s LIKE 'a%'", "s = 'abc'"),
    ("s LIKE '%b%'", "s LIKE 'abc%'"),
    ("s LIKE '%c'", "s IN ('abc', 'c')"),
    ("s NOT LIKE 'x%'", "s = 'abc'"),
    ("s >= 'a'", "s > 'b'"),
    ("NOT a < 3", "a > 5"),
    ("a NOT IN (1, 2)", "a > 2"),
    ("a + b > 1", "a + b > 2"),
    ("a <= b", "b > a"),
    ("LOWER(s) = 'x'", "LOWER(s) = 'x' AND c"),
    ("WITHIN(p, 48.2, 16.37, 10000)", "WITHIN(p, 48.21, 16.38, 2000)"),
    ("a = 9007199254740993", "a = 9007199254740993"),
    ("a > 5", "a > 3 AND a < 2"),
    ("c", "c = TRUE AND a = 1"),
]
NO = [
    ("a > 2", "a > 1"),
    ("a > 2", "a >= 2"),
    ("a >= 4", "a > 3"),
    ("a > 1", "b > 2"),
    ("a IS NULL", "a > 1"),
    ("a > 1 AND b > 1", "a > 1"),
    ("s LIKE 'ab%'", "s LIKE 'a%'"),
    ("s LIKE 'a_c'", "s LIKE 'a%'"),
    ("a IS NOT NULL", "(a IS NULL) = b"),
    ("WITHIN(p, 48.2, 16.37, 2000)", "WITHIN(p, 48.21, 16.38, 2000)"),
    ("WITHIN(p, 48.2, 16.37, 9000)", "WITHIN(q, 48.2, 16.37, 2000)"),
    ("a = 9007199254740992", "a = 9007199254740993"),
    ("NOT a > 1", "a > 5"),
    ("a <= b", "a = b"),
    ("a IS NOT NULL", "(a > 1 OR b > 1) = c"),
    ("a IS NOT NULL", "a > 1 OR b > 1"),
    ("a IS NOT NULL", "(a > 1) IS NOT TRUE"),
]


@pytest.mark.parametrize(("wide", "narrow"), YES)
def test_what_people_expect_is_seen(wide, narrow):
    assert parse(wide).covers(parse(narrow))


@pytest.mark.parametrize(("wide", "narrow"), NO)
def test_what_is_not_so_is_not_said(wide, narrow):
    assert not parse(wide).covers(parse(narrow))


def test_very_many_alternatives_are_not_taken_apart():
    both = parse(" AND ".join(f"(a{at} = 1 OR b{at} = 1)" for at in range(12)) + " AND c > 3")
    assert parse("c > 2").covers(both) and not parse("a1 IS NOT NULL").covers(both)
    many = parse(" AND ".join(f"(a{at} = 1 OR b{at} = 1)" for at in range(12)))
    assert many.covers(many)
    assert Filter(TRUE).covers(many)
    assert not parse("c = 1").covers(many)
