"""What the language takes, and what it refuses: each refusal has a position, a reason and a remedy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadFilter, BadInput
from pluribus.core.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_IN_MAX
from pluribus.filters import parse
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


def number(name, *more):
    return Field((name, *more), Kind.NUMBER)


def of(value):
    kinds = {bool: Kind.BOOLEAN, str: Kind.TEXT}
    return Constant(value, kinds.get(type(value), Kind.NUMBER))


a, text, truth = number("a"), Field(("s",), Kind.TEXT), Field(("b",), Kind.BOOLEAN)

RIGHT = {
    "a > 100": Compare(">", a, of(100)),
    "a >= 1e3": Compare(">=", a, of(1000)),
    "a = -.5": Compare("=", a, of(-0.5)),
    "a != 1": Compare("<>", a, of(1)),
    "100 < a": Compare("<", of(100), a),
    "a BETWEEN 1 AND 2": And((Compare(">=", a, of(1)), Compare("<=", a, of(2)))),
    "a NOT BETWEEN 1 AND 2": Not(And((Compare(">=", a, of(1)), Compare("<=", a, of(2))))),
    "a IN (1, 2, 2)": In(a, (of(1), of(2))),
    "s NOT IN ('x', 'it''s')": Not(In(text, (of("x"), of("it's")))),
    "s LIKE 'a!%%' ESCAPE '!'": Like(text, of("a!%%"), "!"),
    "s NOT LIKE 'a_'": Not(Like(text, of("a_"))),
    "a IS NULL": IsNull(Field(("a",))),
    "a IS NOT NULL": Not(IsNull(Field(("a",)))),
    "b IS TRUE": IsTruth(truth, True),
    "b IS NOT FALSE": Not(IsTruth(truth, False)),
    "(a > 1) IS UNKNOWN": IsNull(Compare(">", a, of(1))),
    "b": truth,
    "NOT b": Not(truth),
    "b = TRUE": truth,
    "b = FALSE": Not(truth),
    "TRUE": of(True),
    "NOT NOT b": truth,
    "b AND (b AND a > 1)": And((truth, Compare(">", a, of(1)))),
    "b OR a > 1 AND a < 3": Or((truth, And((Compare(">", a, of(1)), Compare("<", a, of(3)))))),
    "a + 2 * 3 > 1": Compare(">", Arithmetic("+", a, of(6)), of(1)),
    "-a < 1": Compare("<", Arithmetic("-", of(0), a), of(1)),
    "a.b.c > 1": Compare(">", number("a", "b", "c"), of(1)),
    'a."the b"."order" > 1': Compare(">", number("a", "the b", "order"), of(1)),
    "a = b": Compare("=", Field(("a",)), Field(("b",))),
    "a = c AND c > 1": And((Compare("=", a, number("c")), Compare(">", number("c"), of(1)))),
    "(a > 1) = (a < 3)": Compare("=", Compare(">", a, of(1)), Compare("<", a, of(3))),
    "a = TIMESTAMP '2026-01-01T00:00:00Z'": Compare("=", a, of(1_767_225_600)),
    "a = DATE '2026-01-01'": Compare("=", a, of(1_767_225_600)),
    "a > NOW() - INTERVAL '1.5' HOUR": Compare(">", a, Arithmetic("-", Call("NOW", ()), of(5_400))),
    "a > CURRENT_TIMESTAMP": Compare(">", a, Call("NOW", ())),
    "LOWER(s) = 'x'": Compare("=", Call("LOWER", (text,)), of("x")),
    "hour(a) = 7": Compare("=", Call("HOUR", (a,)), of(7)),
    "WITHIN(p, 1, 2, 30)": Compare(
        "<=", Call("DISTANCE", (number("p", "lat"), number("p", "lon"), of(1), of(2))), of(30)
    ),
    "a = 1 -- and a remark": Compare("=", a, of(1)),
    "a\n=\n1": Compare("=", a, of(1)),
}


@pytest.mark.parametrize("words", RIGHT)
def test_what_is_right_becomes_a_tree(words):
    assert parse(words).tree == RIGHT[words]


WRONG = {
    # text: (position, reason)
    "": (1, "empty"),
    "   ": (1, "empty"),
    "a >": (3, "missing after '>'"),
    "a > 1 AND": (7, "missing after 'AND'"),
    "(a > 1": (6, ") is missing"),
    "a > 1)": (6, "')' does not belong here"),
    "a > 1 b": (7, "'b' does not belong here"),
    "a = 'open": (5, "never closed"),
    'a = 1 AND "open': (11, "never closed"),
    "a = 1; DROP TABLE x": (6, "one condition"),
    "SELECT 1": (8, "'1' does not belong here"),
    "a = (SELECT 1)": (13, ") is missing near '1'"),
    "'x' = 1": (1, "compares a text ('x') with a number (1)"),
    "a > 1 AND a = 'x'": (11, "a is a number at character 1, but is used as a text"),
    "a = b AND a > 1 AND b LIKE 'x'": (21, "b is a number at character 11"),
    "a + 1 = 'x'": (1, "compares a number with a text ('x')"),
    "a + 'x' > 1": (5, "a text stands where a number is needed, with +"),
    "LOWER(1) = 'x'": (7, "a number stands where a text is needed, in LOWER"),
    "a + 1": (1, "a number stands where true or false is needed, as a condition"),
    "'x' AND b": (1, "a text stands where true or false is needed"),
    "b > TRUE": (1, "true and false have no order"),
    "a IN (1, 'x')": (10, "a is a number at character 7"),
    "a IN (c)": (7, "no constant"),
    "a IN ()": (1, "IN has no values"),
    "a IN (TRUE)": (1, "IN is for numbers and texts"),
    "a = NULL": (1, "nothing is equal to NULL"),
    "s LIKE u": (8, "no constant"),
    "s LIKE 1": (8, "a number stands where a text is needed, as a pattern"),
    "s LIKE 'a' ESCAPE '!!'": (19, "not one character"),
    "s LIKE 'a!b' ESCAPE '!'": (8, "'!' escapes %, _ and itself, not 'b'"),
    "s LIKE 'a!' ESCAPE '!'": (8, "not 'the end'"),
    "s ILIKE 'a'": (3, "'ILIKE' does not belong here"),
    "a IS DISTINCT FROM 1": (1, "NULLSAFENEQ is not part"),
    "a BETWEEN SYMMETRIC 1 AND 2": (1, "BETWEEN with symmetric is not part"),
    "a AT TIME ZONE 'x' = 1": (1, "ATTIMEZONE is not part"),
    "a.1 = 2": (1, "names no field"),
    "* = 2": (1, "names no field"),
    "(a, b) = 1": (2, "TUPLE is not part"),
    "a = LOWER(s = 'x')": (11, "a condition stands where a value is needed"),
    "FOO(a) = 1": (1, "there is no function FOO"),
    "ABS(a, 1) = 1": (1, "ABS has 2 arguments"),
    "WITHIN(p, 1, 2)": (1, "WITHIN has 3 arguments"),
    "WITHIN(1, 1, 2, 3)": (8, "WITHIN's first argument is no field"),
    "a = 1e400": (5, "too large"),
    "a = " + "9" * 5_000: (5, "too large"),
    "a = 1e": (5, "'1e' is no number"),
    "a * a * a * a * a * a * a > 1": (1, "more than 6 factors"),
    "a % 2 = 0": (1, "MOD is not part"),
    "a || 'x' = 'y'": (4, "missing after '|'"),
    "a[1] = 2": (1, "BRACKET is not part"),
    "a.* = 2": (1, "names no field"),
    "CAST(a AS INT) = 1": (8, ") is missing near 'AS'"),
    "a::int = 1": (2, "':' does not belong here"),
    "a = TIMESTAMP 'tomorrow'": (15, "'tomorrow' is no time"),
    "a = INTERVAL '5' MONTH": (14, "no interval"),
    "a = ?": (1, "no name"),
    "a = :limit": (5, ":limit has no value"),
    "a.b.c.d.e.f.g.h.i = 1": (1, "the path has 9 names"),
    '"a""b" = 1': (1, "no name of a field"),
    "(" * (FILTER_DEPTH_MAX + 1) + "b" + ")" * (FILTER_DEPTH_MAX + 1): (FILTER_DEPTH_MAX + 1, "nested more than"),
    "NOT " * 40 + "b": (4 * FILTER_DEPTH_MAX + 1, "nested more than"),
    "a" + " + a" * 40 + " > 1": (1, "nested more than"),
    "a = 1 OR " * 1_000 + "b": (FILTER_CHARS_MAX + 1, "more than 8,192"),
    f"a IN ({', '.join('1' * (FILTER_IN_MAX + 1))})": (1, "IN has 1,025 values"),
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words[:40])
def test_what_is_wrong_is_refused_with_position_reason_and_remedy(words):
    position, reason = WRONG[words]
    with pytest.raises(BadFilter) as refused:
        parse(words)
    error = refused.value
    assert (error.position, error.text) == (position, words)
    assert reason in error.reason and error.remedy
    assert isinstance(error, BadInput) and isinstance(error, ValueError)
    assert f"character {position}" in str(error) and error.remedy in str(error)


def parsed_or_refused(words):
    try:
        return parse(words)
    except BadFilter as error:
        return error


def test_what_is_as_deep_as_allowed_prints_as_what_is_allowed():
    words = "b"
    deepest = 0
    for depth in range(FILTER_DEPTH_MAX):
        words = f"({words}) = (a NOT BETWEEN -a AND {depth})"
        made = parsed_or_refused(words)
        if isinstance(made, BadFilter):
            assert "nested" in made.reason
        else:
            deepest = depth
            assert parse(str(made)) == made
    assert 6 < deepest < FILTER_DEPTH_MAX - 1


def test_a_long_conjunction_is_not_deep():
    words = " AND ".join(f"a{number} = 1" for number in range(500))
    assert len(parse(words).tree.terms) == 500


FRAGMENTS = r"""
a b.c ' " 'x' 1 2.5 -1 ( ) , ; + - * / = <> < > AND OR NOT IN LIKE ESCAPE BETWEEN IS NULL TRUE CASE WHEN END SELECT FROM
ABS( NOW( INTERVAL TIMESTAMP DATE :x ? [ ] { } :: . .. @ # $ % & | || ! ~ \ -- /* */ ä 😀 EXISTS( ANY( x' b' N' 1e5 1e
0x1 CAST( AS INT LATERAL OVER( FILTER( DISTINCT UNNEST( MATCH_RECOGNIZE(
"""
fragments = st.sampled_from([*FRAGMENTS.split(), "\0", "\n"])


@settings(max_examples=250)
@given(st.lists(fragments, max_size=14).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_filter_or_refused(words):
    """Nothing else comes out of the parser, whatever goes in, and what it took prints as what parses again."""
    made = parsed_or_refused(words)
    if isinstance(made, BadFilter):
        assert 1 <= made.position <= max(1, len(words) + 1)
    else:
        assert parse(str(made)) == made
