"""The time that a leader gives its rows: it never falls, runs with the monotonic clock, and approaches the wall clock.

The state machines on a log have no clock: what the time is, they learn from the rows. A new leader goes on from the
latest time in the log, whatever its own wall clock says. From there the time runs with its monotonic clock, which does
not jump. If the wall clock is ahead, the time runs faster until it has caught up, by a tenth of the difference a
second; if the wall clock is behind, the time runs at half speed until the wall clock has caught up. So a wall clock
that jumps, or differs between leaders, moves leases and delays a little, and no time ever passes twice.

Where there is no wall clock (in tests of the protocol alone) the time is the monotonic clock's.
"""

from __future__ import annotations

from collections.abc import Callable

CATCH_UP_S = 10.0
"""A difference to a wall clock that is ahead shrinks to a third in so many seconds."""


class Timekeeper:
    """``latest_us`` is the latest time in the log, ``now`` the monotonic clock's."""

    def __init__(self, latest_us: int, now: float, wall: Callable[[], float] | None) -> None:
        self._time = latest_us / 1e6
        self._told_us = latest_us
        self._at = now
        self._wall = wall
        if not latest_us:  # a log that has no time yet begins with the wall clock's
            self._time = wall() if wall is not None else now

    def now_us(self, now: float) -> int:
        passed = max(now - self._at, 0.0)
        self._at = max(now, self._at)
        ahead = (self._wall() if self._wall is not None else self._time + passed) - (self._time + passed)
        if ahead > 0:
            self._time += passed + ahead * min(passed / CATCH_UP_S, 1.0)
        else:
            self._time += passed + max(ahead, -passed / 2)
        self._told_us = max(self._told_us, int(self._time * 1e6))  # rounded, it could fall by one
        return self._told_us
