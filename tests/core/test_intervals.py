"""Intervals against a set of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.intervals import Intervals

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 8)).map(lambda span: (span[0], span[0] + span[1])))


def numbers(of: object) -> set[int]:
    return {number for first, last in of for number in range(first, last + 1)}


@given(spans)
def test_they_hold_what_a_set_holds(given_spans: list[tuple[int, int]]) -> None:
    found = Intervals()
    for first, last in given_spans:
        found.add(first, last)
        found.validate()
    expected = numbers(given_spans)
    assert {number for number in range(-2, 75) if number in found} == expected
    assert found.count == len(expected) and found.end == max(expected, default=-1) + 1
    assert found == Intervals(sorted(found)) == found.copy()
    assert len(found) == len([number for number in expected if number - 1 not in expected])


@given(spans, spans)
def test_they_are_subtracted_as_sets_are(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    left = list(Intervals(some).without(Intervals(others)))
    assert numbers(left) == numbers(some) - numbers(others)
    assert left == sorted(left) and all(first <= last for first, last in left)


@given(spans, st.integers(1, 4))
def test_the_oldest_are_joined(some: list[tuple[int, int]], limit: int) -> None:
    found = Intervals(some)
    while found.join_oldest(limit):
        found.validate()
    assert len(found) <= limit and numbers(found) >= numbers(some) and found.end == Intervals(some).end


def test_the_ends_of_an_interval_belong_to_it() -> None:
    found = Intervals([(3, 5), (9, 9)])
    assert [number for number in range(12) if number in found] == [3, 4, 5, 9]
    found.add(6, 8)
    assert found.spans() == [(3, 9)]


@given(spans, st.integers(-3, 75), st.integers(-3, 75))
def test_some_are_cut_out_and_the_highest_interval_is_removed(
    some: list[tuple[int, int]], first: int, last: int
) -> None:
    found = Intervals(some)
    cut = found.between(first, last)
    cut.validate()
    assert numbers(cut) == {number for number in numbers(some) if first <= number <= last}
    assert found == Intervals(some), "they are a copy"
    if some and found.count:
        start, end = found.drop_last()
        found.validate()
        assert end == max(numbers(some)) and numbers(found) == numbers(some) - set(range(start, end + 1))
