"""Real time and real chance, as ports."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from ...core.ports import Timer


def counts_sleep() -> Callable[[], float]:
    """A monotonic clock that goes on while the machine sleeps; where the system has none, one that does not."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot is None else lambda: time.clock_gettime(boot)


class LoopClock:
    """The running loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time
        self.elapsed = counts_sleep()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)


def real_random() -> random.Random:
    """Seeded by the operating system; identities need no more than to differ."""
    return random.SystemRandom()
