"""Computing: the rules that keep every operation finite everywhere, distances, the calendar."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.filters import numbers, parse
from pluribus.filters.numbers import FACTORS_MAX, OPERAND_MAX, OPERAND_MIN

any_number = st.floats() | st.integers(-(2**70), 2**70)


@given(any_number)
def test_an_operand_is_zero_moderate_or_unknown(value):
    taken = numbers.operand(value)
    assert taken == 0.0 or math.isnan(taken) or OPERAND_MIN <= abs(taken) <= OPERAND_MAX
    if OPERAND_MIN <= abs(value) <= OPERAND_MAX:
        assert taken == float(value)


@given(st.lists(st.tuples(st.sampled_from("*/+-"), any_number), min_size=FACTORS_MAX - 1, max_size=FACTORS_MAX - 1))
def test_six_factors_never_overflow_and_never_vanish(steps):
    """The claim at the top of numbers.py, for chains of operations."""
    result = 1.0
    for operator, value in steps:
        operand = numbers.operand(value)
        before = result
        if operator == "*":
            result = before * operand
        elif operator == "/":
            result = numbers.divide(before, operand)
        else:
            result = before + operand if operator == "+" else before - operand
        assert not math.isinf(result)
        if operator in "*/" and before and operand:
            assert result != 0 or math.isnan(result)


@pytest.mark.parametrize(
    ("here", "there", "metres"),
    [
        ((51.5007, -0.1246), (40.6892, -74.0445), 5_574_840),
        ((0, 0), (0, 180), 20_015_115),
        ((90, 0), (-90, 0), 20_015_115),
        ((0, 179.5), (0, -179.5), 111_195),
        ((48.2, 16.37), (48.2, 16.37), 0),
    ],
)
def test_distances_on_earth(here, there, metres):
    assert numbers.distance(*here, *there) == pytest.approx(metres, rel=1e-5, abs=1e-6)


def test_a_place_that_is_none_on_earth_has_no_distance():
    for place in ((90.1, 0), (-91, 0), (0, 181), (math.nan, 0)):
        assert math.isnan(numbers.distance(*place, 0, 0)) and math.isnan(numbers.distance(0, 0, *place))


def test_within_is_within():
    near = parse("WITHIN(position, 48.2082, 16.3738, 2000)")
    assert near.matches({"position": {"lat": 48.2102, "lon": 16.3658}})
    assert not near.matches({"position": {"lat": 48.2302, "lon": 16.3658}})
    assert near.truth({"position": "Vienna"}) is None


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda naive: naive.replace(tzinfo=UTC)))
def test_the_calendar_is_that_of_utc(moment):
    seconds = moment.timestamp()
    shown = datetime.fromtimestamp(math.floor(seconds), UTC)
    for part in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
        assert numbers.calendar(part, seconds) == getattr(shown, part.lower())
    assert numbers.calendar("WEEKDAY", seconds) == shown.isoweekday()


def test_times_outside_of_the_calendar_are_unknown():
    assert math.isnan(numbers.calendar("YEAR", 1e12)) and math.isnan(numbers.calendar("HOUR", -1e12))
