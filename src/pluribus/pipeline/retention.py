"""Retention that waits for an archive: topics forget only events that are old *and* archived.

A topic's own retention (``durable.retain``) knows no archive. If an archive does the retention, the topic has no limit
of its own, and the archive has events removed: those that are older than asked for, up to the offset that it has
committed. If the archive stands still, the topic grows; nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time

from ..pubsub.durable import commands
from ..runtime.clients.log_client import LogClient

EVERY_S = 30.0
"""Between two looks at all topics."""


class Retention:
    """Of the topics that match some patterns. Runs beside the driver."""

    def __init__(
        self,
        url: str,
        topics: Sequence[str],
        age_s: float,
        *,
        every_s: float = EVERY_S,
        now: Callable[[], float] = time,
    ) -> None:
        self._url = url
        self._topics = tuple(topics)
        self._age_s = age_s
        self._every_s = every_s
        self._now = now
        self._looked_s: float | None = None

    def let_go(self, archived: Mapping[str, int]) -> int:
        """Have events removed that are old and below these offsets; returns how many."""
        if self._looked_s is not None and monotonic() - self._looked_s < self._every_s:
            return 0
        self._looked_s = monotonic()
        removed = 0
        with LogClient(self._url) as keepers:
            for known in {one.topic: one for pattern in self._topics for one in keepers.topics(pattern)}.values():
                if known.age_us or known.size_bytes:
                    keepers.do(commands.Retain(known.topic, 0, 0))  # it would not wait
                has = archived.get(known.topic, 0)
                if has <= known.first:
                    continue
                before = min(has, keepers.offset_at(known.topic, self._now() - self._age_s))
                if before > known.first:
                    keepers.do(commands.Forget(known.topic, before))
                    removed += before - known.first
        return removed
