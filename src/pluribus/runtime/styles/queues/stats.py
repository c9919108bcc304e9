"""The figures of a queue."""

from __future__ import annotations

import msgspec

from ....queues.words import Stats


class QueueStats(msgspec.Struct, frozen=True):
    """The state of a queue. Rates are messages a second since the last call of ``stats``; 0 the first time."""

    name: str
    state: Stats
    sent_rate: float = 0.0
    settled_rate: float = 0.0

    @property
    def depth(self) -> int:
        return self.state.depth

    @property
    def dead(self) -> int:
        return self.state.dead

    @property
    def oldest_s(self) -> float:
        return self.state.oldest_s

    @property
    def consumers(self) -> int:
        return self.state.consumers
