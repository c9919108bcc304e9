"""Whether this member was held up: its process stopped, its machine asleep, its loop blocked.

A member whose detector looks at the clock with every beat finds two looks far apart only if it was held up in between.
Others may have gone on without it meanwhile, and what it reads next may be as old as that. The clock is one that goes
on while the machine sleeps.

Whoever must know looks before it acts, once a stimulus. Each time that somebody finds the member late is counted, and
who remembers the count learns of it whoever looked first.
"""

from __future__ import annotations

from collections.abc import Callable


class Waking:
    """``watch`` is for who looks regularly; before that nobody is late."""

    __slots__ = ("_elapsed", "_late_s", "_seen_at", "times")

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._late_s = float("inf")
        self._seen_at = 0.0
        self.times = 0
        """How often this member was found late."""

    def watch(self, late_s: float) -> None:
        """From now on somebody looks more often than this; a longer time between two looks is lateness."""
        self._late_s = late_s
        self._seen_at = self._elapsed()

    def look(self) -> int:
        """How often this member was late until now."""
        now = self._elapsed()
        if now - self._seen_at > self._late_s:
            self.times += 1
        self._seen_at = now
        return self.times
