"""The matcher against the oracle, however the events are cut into batches, kept and brought out of order."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadPattern
from pluribus.patterns import Matcher, Pattern
from tests.patterns import oracle
from tests.patterns.strategies import streams, texts


def pattern_of(text):
    try:
        return Pattern(text)
    except BadPattern as error:
        assume("matches no rows" not in error.reason)
        raise


def shown(matches):
    return sorted(
        ((tuple(match.partition.values()), tuple(match.measures.values()), match.event) for match in matches), key=repr
    )


def expected(pattern, events):
    return sorted(oracle.matches(pattern, [dict(event) for event in events]), key=repr)


@settings(max_examples=120)
@given(texts(), streams(), st.integers(1, 9))
def test_it_finds_what_the_oracle_finds(text, events, batch):
    pattern = pattern_of(text)
    matcher = Matcher(pattern)
    found = []
    for first in range(0, len(events), batch):
        found += matcher.feed(events[first : first + batch])
        matcher.validate()
    found += matcher.finish()
    assert shown(found) == expected(pattern, events)
    assert not matcher.problems


@settings(max_examples=75)
@given(texts(), streams(), st.integers(1, 5), st.data())
def test_its_state_can_be_kept_and_brought_back(text, events, batch, data):
    pattern = pattern_of(text)
    matcher, found = Matcher(pattern), []
    for first in range(0, len(events), batch):
        found += matcher.feed(events[first : first + batch])
        if data.draw(st.booleans()):
            kept = matcher.state()
            matcher = Matcher(pattern)
            matcher.restore(kept)
            matcher.validate()
    found += matcher.finish()
    assert shown(found) == expected(pattern, events)


@settings(max_examples=75)
@given(texts(), streams(gap_max=3), st.integers(1, 4), st.data())
def test_what_comes_out_of_order_is_put_in_order(text, events, batch, data):
    """Every event may be late by up to five seconds."""
    pattern = pattern_of(text)
    delays = data.draw(st.lists(st.integers(0, 5), min_size=len(events), max_size=len(events)))
    order = sorted(range(len(events)), key=lambda number: events[number]["t"] + delays[number])
    matcher, found = Matcher(pattern, lateness_s=5), []
    for first in range(0, len(order), batch):
        found += matcher.feed([events[number] for number in order[first : first + batch]])
        matcher.validate()
    found += matcher.finish()
    # Of equal times, one whose second column is less may come after the watermark stood exactly there.
    late = [problem.event for problem in matcher.problems if problem.kind == "late"]
    assert len(late) == len(matcher.problems) == matcher.problem_counts["late"]
    assert all(event in events for event in late)
    assert shown(found) == expected(pattern, [event for event in events if event not in late])


@settings(max_examples=75)
@given(texts(), streams(), st.integers(1, 9))
def test_the_number_of_a_match_does_not_depend_on_batches(text, events, batch):
    pattern = pattern_of(text)
    one, several = Matcher(pattern), Matcher(pattern)
    found = [[match for event in events for match in one.feed([event])]]
    found.append([match for at in range(0, len(events), batch) for match in several.feed(events[at : at + batch])])
    numbers = [
        sorted(((*match.partition.values(), match.first, match.last, match.number) for match in some), key=repr)
        for some in (found[0] + one.finish(), found[1] + several.finish())
    ]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("extra", "numbers"),
    [("", [0, 0]), ("MEASURES MATCH_NUMBER() AS n", [1, 2]), ("ALL ROWS PER MATCH", [1, 1, 2, 2])],
)
def test_matches_are_counted_where_that_can_matter(extra, numbers):
    matcher = Matcher(f"ORDER BY t {extra} PATTERN (A B) DEFINE A AS x = 1, B AS x = 2")
    found = [match for at in range(4) for match in matcher.feed([{"t": at, "x": at % 2 + 1}])]
    assert [match.number for match in found] == numbers
