"""Giving way: a receiver in full flow lets others run before it looks at its socket again.

The kernel wakes a receiver for every datagram, and lets it run at once in place of the sender. With more processes than
cores, each datagram then costs a change of processes, and code and data are cold every time: twice the price of a
datagram that is found together with others. So after a read of many bytes the receiver offers its core to any process
that is ready. Mostly that is the sender, and there is more to read afterwards. On a core where no process waits the
offer costs a fraction of a microsecond.

Programs that compute and never wait would take the offer every time and keep the core for long. An offer that took
long is not repeated for a while, so such a neighbour gets a small part of the time and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

FLOW_BYTES_MIN = 32_768
"""Bytes of one read: fewer are a question or an answer, and the receiver does not give way."""
LONG_S = 0.003
REST_TIMES = 50
_let_others_run: Callable[[], None] | None = getattr(os, "sched_yield", None)


class Courtesy:
    """The courtesy of one socket; ``offer`` is the system's way to let others run, if it has one."""

    __slots__ = ("_not_before", "_now", "_offer")

    def __init__(
        self, offer: Callable[[], None] | None = _let_others_run, now: Callable[[], float] = monotonic
    ) -> None:
        self._offer = offer
        self._now = now
        self._not_before = 0.0

    def give_way(self) -> None:
        if self._offer is None:
            return
        before = self._now()
        if before < self._not_before:
            return
        self._offer()
        took_s = self._now() - before
        if took_s > LONG_S:
            self._not_before = before + took_s * REST_TIMES
