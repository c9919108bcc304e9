"""What is bounded, and that going over a bound is told and loses nothing else."""

import pytest

from pluribus.core.errors import BadInput
from pluribus.patterns import Matcher
from pluribus.patterns import matcher as matcher_module
from pluribus.patterns import steps as steps_module

GROWING = """
    PARTITION BY k ORDER BY t MEASURES COUNT(*) AS n
    PATTERN (A B* C) WITHIN INTERVAL '1000' SECOND DEFINE B AS x < 9, C AS x = 9
"""


def event(time, x=0, k="p"):
    return {"t": time, "x": x, "k": k}


def test_a_late_event_is_told_and_matched_no_more():
    told = []
    matcher = Matcher(GROWING, lateness_s=2, on_problem=told.append)
    assert not matcher.feed([event(1), event(10), event(8), event(7.9)])
    assert [(problem.kind, problem.event) for problem in told] == [("late", event(7.9))]
    assert "0.100000 s before" in told[0].reason and "lateness_s" in told[0].reason
    (match,) = [*matcher.feed([event(11, 9)]), *matcher.finish()]
    assert match["n"] == 4


def test_of_equal_times_one_whose_place_was_taken_is_late():
    matcher = Matcher("ORDER BY t, i PATTERN (A B) DEFINE A AS x = 1, B AS x = 2")
    matcher.feed([{"t": 1, "i": 5, "x": 1}])
    late = {"t": 1, "i": 4, "x": 2}
    assert not matcher.feed([late]) and matcher.problems[0].event == late
    assert matcher.feed([{"t": 1, "i": 6, "x": 2}])


@pytest.mark.parametrize(
    "wrong",
    [{"x": 1}, {"t": None}, {"t": "noon"}, {"t": float("nan")}, {"t": 1, "k": ["a list"]}, {"t": float("inf")}],
    ids=str,
)
def test_an_event_that_fits_nowhere_is_set_aside(wrong):
    matcher = Matcher(GROWING)
    assert not matcher.feed([event(1), wrong, event(2)])
    assert [(problem.kind, problem.event) for problem in matcher.problems] == [("misfit", wrong)]
    (match,) = matcher.feed([event(3, 9)])
    assert match["n"] == 3


def test_too_many_rows_give_up_the_attempt(monkeypatch):
    monkeypatch.setattr(steps_module, "PATTERN_ROWS_MAX", 50)
    matcher = Matcher(GROWING)
    assert not matcher.feed([event(time) for time in range(60)])
    (problem,) = matcher.problems
    assert problem.kind == "overflow" and problem.partition == ("p",) and "more than 50 rows" in problem.reason
    (match,) = matcher.feed([event(60, 9)])
    assert match["n"] == 11, "the next attempt begins after what was given up"


def test_too_many_ways_give_up_the_attempt(monkeypatch):
    monkeypatch.setattr(steps_module, "PATTERN_THREADS_MAX", 20)
    text = "ORDER BY t PATTERN (A X* B X* C) WITHIN 1000 ROWS DEFINE C AS x = B.x + 1000"
    matcher = Matcher(text)
    assert not matcher.feed([{"t": time, "x": time} for time in range(40)])
    assert matcher.problem_counts["overflow"] >= 1
    assert "more than 20 ways" in matcher.problems[0].reason
    matcher.validate()


def test_too_many_partitions_set_events_aside():
    matcher = Matcher(GROWING, partitions_max=2)
    matcher.feed([event(1, k="p"), event(2, k="q"), event(3, k="r"), event(4, k="p")])
    assert [(problem.kind, problem.event) for problem in matcher.problems] == [("overflow", event(3, k="r"))]
    assert len(matcher.feed([event(5, 9, k="p")])) == 1
    assert not matcher.feed([event(6, k="r")]) and matcher.problem_counts["overflow"] == 1


def test_rows_that_wait_are_bounded_and_taken_in_order(monkeypatch):
    monkeypatch.setattr(matcher_module, "PATTERN_ROWS_MAX", 10)
    matcher = Matcher(GROWING, lateness_s=100)
    matcher.feed([event(time) for time in range(30)])
    assert matcher.problem_counts == {"late": 0, "misfit": 0, "overflow": 1}
    matcher.feed([event(5.5)])
    assert matcher.problem_counts["late"] == 1, "its place was taken early"
    (match,) = [*matcher.feed([event(30, 9)]), *matcher.finish()]
    assert match["n"] == 31


def test_a_partition_of_which_nothing_is_needed_is_forgotten():
    matcher = Matcher("PARTITION BY k ORDER BY t PATTERN (A B) WITHIN INTERVAL '5' SECOND DEFINE A AS x = 1")
    matcher.feed([{"k": k, "t": k / 100, "x": 1} for k in range(500)])
    before = len(matcher.state())
    matcher.feed([{"k": 0, "t": 100, "x": 0}])
    assert len(matcher.state()) < before / 100


def test_partitions_that_come_and_go_leave_nothing_behind():
    matcher = Matcher("PARTITION BY k ORDER BY t PATTERN (A B) WITHIN INTERVAL '9' DAY DEFINE A AS x = 1, B AS x = 2")
    for time in range(5_000):
        matcher.feed([{"k": time % 7, "t": time, "x": 1}])
        assert len(matcher.feed([{"k": time % 7, "t": time, "x": 2}])) == 1
        assert len(matcher) == 0
    matcher.validate()
    assert matcher.feed([{"k": 1, "t": 5_000, "x": 1}]) == [] and len(matcher) == 1
    matcher.validate()
    assert matcher.advance(5_000 + 10 * 86_400) == [] and len(matcher) == 0


def test_a_matcher_takes_only_the_state_of_its_own_pattern():
    with pytest.raises(BadInput, match="another pattern"):
        Matcher(GROWING).restore(Matcher("ORDER BY t PATTERN (A B)").state())
    with pytest.raises(BadInput, match="lateness_s=-1"):
        Matcher(GROWING, lateness_s=-1)
