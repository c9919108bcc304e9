"""Whether this member was held up: its process stopped, its machine asleep, its loop blocked.

The detector looks at the clock with every beat, so two looks that are far apart mean that the member was held up
between them. Others may have gone on without it meanwhile, and the datagrams that it reads next may be that old. The
clock is one that goes on while the machine sleeps.

A protocol that must know looks before it acts, once a stimulus. Each delay that is found is counted. A protocol that
remembers the count learns of a delay even if another one found it first.
"""

from __future__ import annotations

from collections.abc import Callable


class Waking:
    """``watch`` says how regularly this member looks; before it is called, no delay is found."""

    __slots__ = ("_elapsed", "_late_s", "_seen_at", "times")

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._late_s = float("inf")
        self._seen_at = 0.0
        self.times = 0
        """How often this member was found late."""

    def watch(self, late_s: float) -> None:
        """From now on this member looks more often than every ``late_s``; a longer time between two looks is a
        delay."""
        self._late_s = late_s
        self._seen_at = self._elapsed()

    def look(self) -> int:
        """How often this member was held up until now."""
        now = self._elapsed()
        if now - self._seen_at > self._late_s:
            self.times += 1
        self._seen_at = now
        return self.times
