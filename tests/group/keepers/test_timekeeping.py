"""The time of rows never falls, does not jump, and comes to the wall clock."""

from hypothesis import given
from hypothesis import strategies as st

from pluribus.group.keepers.timekeeping import Timekeeper


@given(
    st.integers(0, 10**15),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 2e9)), min_size=1, max_size=30),
)
def test_it_never_falls_whatever_the_wall_clock_does(latest_us, steps):
    now, wall = 5.0, [0.0]
    keeper = Timekeeper(latest_us, now, lambda: wall[0])
    before = latest_us
    for passed, wall[0] in steps:
        now += passed
        time_us = keeper.now_us(now)
        assert time_us >= before
        before = time_us


def test_a_wall_clock_that_is_behind_halves_its_speed_until_both_agree():
    wall = 100.0
    keeper = Timekeeper(110_000_000, 0.0, lambda: wall)
    for second in range(1, 21):
        wall = 100.0 + second
        time_us = keeper.now_us(float(second))
        assert time_us == max(110_000_000 + second * 500_000, int(wall * 1e6))


def test_a_wall_clock_that_is_ahead_is_caught_up_with_and_never_passed():
    wall = 1_000.0
    keeper = Timekeeper(1_000_000, 0.0, lambda: wall)
    behind = []
    for second in range(1, 61):
        wall = 1_000.0 + second
        behind.append(wall - keeper.now_us(float(second)) / 1e6)
    assert behind == sorted(behind, reverse=True) and 0 <= behind[-1] < 3 and behind[0] > 800


def test_a_log_without_a_time_begins_with_the_wall_clock():
    assert Timekeeper(0, 3.0, lambda: 77.0).now_us(3.0) == 77_000_000
    assert Timekeeper(0, 3.0, None).now_us(4.0) == 4_000_000
