"""What can be written, what is refused and where, and what the corners of the language mean."""

import pickle

import msgspec
import pytest

from pluribus.core.errors import BadPattern
from pluribus.patterns import Matcher, Pattern, parse
from pluribus.patterns.tree import shown

LETTERS = "DEFINE A AS x = 1, B AS x = 2"
WITH_C = f"{LETTERS}, C AS x = 3"


def ways(rows, values, define=LETTERS, more=""):
    """The variables of each match, as words, for rows with these values of x."""
    pattern = Pattern(
        f"ORDER BY t MEASURES CLASSIFIER() AS v ALL ROWS PER MATCH {more} PATTERN ({rows}) WITHIN 100 ROWS {define}"
    )
    matcher = Matcher(pattern)
    events = [{"t": time, "x": value} for time, value in enumerate(values)]
    found = [*matcher.feed(events), *matcher.finish()]
    words = {}
    for match in found:
        words.setdefault(match.number, []).append(match["v"])
    return ["".join(letters) for letters in words.values()]


@pytest.mark.parametrize(
    ("rows", "values", "found"),
    [
        ("A B", [1, 2, 2, 1, 2], ["AB", "AB"]),
        ("A B+", [1, 2, 2, 1, 2], ["ABB", "AB"]),
        ("A B+?", [1, 2, 2], ["AB"]),
        ("A B*", [1, 1, 2], ["A", "AB"]),
        ("A B??", [1, 2], ["A"]),
        ("A B{2}", [1, 2, 2, 2], ["ABB"]),
        ("A B{1,2} C", [1, 2, 2, 2, 3, 1, 2, 3], ["ABC"]),
        ("A B{,1} C", [1, 3, 1, 2, 3], ["AC", "ABC"]),
        ("A (B | C)+", [1, 2, 3, 2, 1], ["ABCB"]),
        ("PERMUTE(A, B, C)", [3, 1, 2, 1], ["CAB"]),
        ("(A B)+ C", [1, 2, 1, 2, 3], ["ABABC"]),
        ("(A?){2} B", [1, 1, 1, 2], ["AAB"]),
    ],
)
def test_row_patterns(rows, values, found):
    assert ways(rows, values, WITH_C if "C" in rows else LETTERS if "B" in rows else "DEFINE A AS x = 1") == found


def test_the_first_choice_is_preferred_even_if_it_is_shorter():
    assert ways("A | A B", [1, 2]) == ["A"]
    assert ways("A B | A", [1, 2]) == ["AB"]


@pytest.mark.parametrize(
    ("skip", "found"),
    [
        ("PAST LAST ROW", ["AABB", "AB"]),
        ("TO NEXT ROW", ["AABB", "ABB", "AB"]),
        ("TO FIRST B", ["AABB", "AB"]),
        ("TO LAST A", ["AABB", "ABB", "AB"]),
        ("TO B", ["AABB", "AB"]),
    ],
)
def test_where_to_go_on_after_a_match(skip, found):
    assert ways("A+ B+", [1, 1, 2, 2, 1, 2], more=f"AFTER MATCH SKIP {skip}") == found


def test_ways_that_remember_different_rows_are_not_mistaken_for_each_other():
    define = "DEFINE S AS x = 9, B AS x > 0, C AS x = B.x"
    assert ways("S X*? B X*? C", [9, 1, 2, 0, 2], define) == ["SXBXC"]


def test_a_match_is_told_with_the_row_that_decides_it():
    matcher = Matcher("ORDER BY t PATTERN (A B{1,2}) DEFINE A AS x = 1, B AS x = 2")
    assert not matcher.feed([{"t": 0, "x": 1}, {"t": 1, "x": 2}])
    assert len(matcher.feed([{"t": 2, "x": 2}])) == 1, "there can be no longer one, so nothing is waited for"


def test_within_is_decided_by_the_time_of_other_partitions():
    matcher = Matcher(f"PARTITION BY k ORDER BY t PATTERN (A B*) WITHIN INTERVAL '5' SECOND {LETTERS}")
    assert not matcher.feed([{"k": 1, "t": 0, "x": 1}, {"k": 2, "t": 5, "x": 7}])
    (match,) = matcher.feed([{"k": 2, "t": 5.5, "x": 7}])
    assert match.partition == {"k": 1}
    assert not matcher.feed([{"k": 1, "t": 6, "x": 1}])
    assert len(matcher.advance(12)) == 1


def test_types_check_the_fields():
    class Tick(msgspec.Struct):
        t: float
        price: float
        symbol: str

    text = "ORDER BY t PATTERN (A B) DEFINE B AS B.prize > A.price"
    with pytest.raises(BadPattern, match=r"Tick has no field B\.prize") as caught:
        parse(text, type=Tick)
    assert caught.value.position == text.index("B.prize") + 1
    pattern = parse("ORDER BY t PATTERN (A B) DEFINE B AS B.price > A.price", type=Tick)
    assert len(Matcher(pattern).feed([Tick(1, 2.0, "a"), Tick(2, 3.0, "a")])) == 1


def test_a_pattern_travels_as_its_text():
    pattern = parse(f"ORDER BY t PATTERN (A B) {LETTERS}")
    assert pickle.loads(pickle.dumps(pattern)) == pattern == parse(str(pattern))
    assert shown(parse("ORDER BY t PATTERN ((A | B){2,3}? C+ (A B)* D{2} E?)  WITHIN 9 ROWS").clauses.rows) == (
        "(A | B){2,3}? C+ (A B)* D{2} E?"
    )


# --- refusals -------------------------------------------------------------------------------------------------------

REFUSED = [
    ("PATTERN (A)", "PATTERN", "ORDER BY is missing"),
    ("ORDER BY t DESC PATTERN (A)", "DESC", "not matched backwards"),
    ("ORDER BY t PATTERN (A B+ C)", "+", r"B\+ goes on without bound, and no WITHIN bounds it"),
    ("ORDER BY t PATTERN (A (B C*){2})", "*", r"C\* goes on without bound"),
    ("ORDER BY t PATTERN (A?)", "PATTERN", "matches no rows at all"),
    ("ORDER BY t PATTERN (A{3,2})", "{3,2}", "between 3 and 2 rounds are none"),
    ("ORDER BY t PATTERN (A{2000})", "A{", "more than 1,000 variables"),
    ("ORDER BY t PATTERN (A B", "", r"\) is missing"),
    ("ORDER BY t PATTERN (A | )", ")", "a variable is missing"),
    ("ORDER BY t PATTERN (^ A)", "^", "no first and no last row"),
    ("ORDER BY t PATTERN (A {- B -})", "{-", "leaves rows out"),
    ("ORDER BY t PATTERN (PERMUTE(A, B, C, D, E, F))", "PERMUTE", "PERMUTE of 6 parts"),
    ("ORDER BY t PATTERN (A) WITHIN INTERVAL '5' FORTNIGHT", "'5'", "no interval"),
    ("ORDER BY t PATTERN (A) WITHIN 0 ROWS", "0 ROWS", "WITHIN 0 ROWS"),
    ("ORDER BY t PATTERN (A) DEFINE B AS x = 1", "B AS", "PATTERN has no variable B"),
    ("ORDER BY t PATTERN (A) DEFINE A AS x = 1, A AS x = 2", "A AS x = 2", "A is defined twice"),
    ("ORDER BY t PATTERN (A) DEFINE A AS x = 'a' AND x > 1", "x > 1", "x is a text"),
    ("ORDER BY t PATTERN (A) DEFINE A AS x > NEXT(x)", "x > NEXT", "still to come"),
    ("ORDER BY t PATTERN (A) DEFINE A AS x > FIRST(PREV(x))", "x > FIRST", "FIRST of PREV says nothing"),
    ("ORDER BY t PATTERN (A) DEFINE A AS SUM(x * y) > 1", "SUM", "SUM is of no field"),
    ("ORDER BY t PATTERN (A) DEFINE A AS t > NOW()", "t > NOW", "NOW"),
    ("ORDER BY t PATTERN (A) DEFINE A AS CLASSIFIER() = 'A'", "CLASSIFIER", "use it in MEASURES"),
    ("ORDER BY t PATTERN (A) DEFINE A AS", "", "the condition of A is missing"),
    ("ORDER BY t MEASURES x PATTERN (A)", "x PATTERN", "a measure has no name"),
    ("ORDER BY t MEASURES x AS a, y AS a PATTERN (A)", "a PATTERN", "two measures are called a"),
    ("ORDER BY t AFTER MATCH SKIP TO LAST Z PATTERN (A)", "Z PATTERN", "no variable Z"),
    ("ORDER BY t PATTERN (A) SUBSET A = (A)", "A = (", "A is there already"),
    ("ORDER BY t PATTERN (A) nonsense", "nonsense", "'nonsense' does not belong here"),
    ("MATCH_RECOGNIZE (ORDER BY t PATTERN (A) DEFINE A AS x = 1", "1", "not closed"),
    ("ORDER BY t PATTERN (A) DEFINE A AS x = 'a", "'a", "a quote is never closed"),
]


@pytest.mark.parametrize(("text", "at", "reason"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_is_refused(text, at, reason):
    with pytest.raises(BadPattern, match=reason) as caught:
        Pattern(text)
    assert caught.value.remedy
    assert caught.value.position == (text.rindex(at) + 1 if at else len(text) + 1)


def test_what_is_in_double_quotes_is_a_name_and_no_clause():
    pattern = Pattern('ORDER BY "order" MEASURES "PATTERN" AS p PATTERN (A) DEFINE A AS "DEFINE" = 1')
    (match,) = Matcher(pattern).feed([{"order": 1, "PATTERN": "x", "DEFINE": 1}])
    assert match["p"] == "x"


def test_the_whole_clause_of_sql_is_taken_too():
    text = f"MATCH_RECOGNIZE (PARTITION BY k ORDER BY t PATTERN (A B) {LETTERS})"
    assert len(Matcher(text).feed([{"k": 1, "t": 1, "x": 1}, {"k": 1, "t": 2, "x": 2}])) == 1


@pytest.mark.parametrize(("last", "found"), [(599.999, 1), (600, 1), (600.001, 0)])
def test_within_includes_its_edge(last, found):
    matcher = Matcher("ORDER BY t PATTERN (A B) WITHIN INTERVAL '10' MINUTE DEFINE A AS x = 1, B AS x = 2")
    assert len(matcher.feed([{"t": 0, "x": 1}, {"t": last, "x": 2}])) == found
