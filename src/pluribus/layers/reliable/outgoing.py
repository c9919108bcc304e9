"""One stream of this member: what it sent, which receivers have it, and how far each lets it go on."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from ...core.frame import Frame
from ...stack.stalls import Stalls

UNLIMITED_BYTES = 1 << 62


class Outgoing:
    """Frames are kept until every receiver has them. ``validate`` states what always holds."""

    __slots__ = (
        "acked",
        "kept",
        "kept_bytes",
        "limits",
        "next",
        "offset",
        "sent_at",
        "stable",
        "stalls",
        "stamp",
        "tightest",
        "told",
        "told_stable",
    )

    def __init__(self, first: int = 0) -> None:
        self.next = first
        self.offset = 0
        self.stable = first
        self.told_stable = first
        self.kept: deque[Frame] = deque()
        self.kept_bytes = 0
        self.acked: dict[int, int] = {}
        self.limits: dict[int, int] = {}
        self.tightest: dict[int, int] = {}
        self.stamp = 0
        """The stamp of the group's view in which the stream is sent."""
        self.sent_at = 0.0
        self.told = -1
        self.stalls = Stalls()

    @property
    def unstable(self) -> bool:
        return self.stable < self.next

    @property
    def lacking(self) -> list[int]:
        """Receivers that are not known to have everything."""
        return [member for member, has in self.acked.items() if has < self.next]

    @property
    def room(self) -> int:
        return (min(self.limits.values()) if self.limits else UNLIMITED_BYTES) - self.offset

    def full(self) -> list[int]:
        """The receivers without room. Where a receiver answers for others, the member below it that has none."""
        return [self.tightest.get(member, member) for member, limit in self.limits.items() if limit <= self.offset]

    def receivers(self, members: frozenset[int], initial_bytes: int) -> None:
        """The receivers from now on. Receivers that left do not count; new ones begin at the present end of the
        stream."""
        self.tightest.clear()
        for member in [member for member in self.acked if member not in members]:
            del self.acked[member], self.limits[member]
        for member in members - self.acked.keys():
            self.acked[member] = self.next
            self.limits[member] = self.offset + initial_bytes
        self.settle()

    def answered_by(self, members: frozenset[int], me: int, initial_bytes: int) -> None:
        """Other members answer from now on, or they answer for others than before. So only what every receiver had is
        still known, and the least room of all; new members have the initial room."""
        limit = min([*self.limits.values(), self.offset + initial_bytes])
        self.acked = {member: self.next if member == me else self.stable for member in members}
        self.limits = dict.fromkeys(members, limit)
        self.tightest.clear()
        if not members:
            self.settle()

    def acknowledged(self, member: int, received: int, limit: int) -> bool:
        """True if this made more messages stable, or more room. A message that was never sent cannot be
        acknowledged."""
        if member not in self.acked or received > self.next:
            return False
        moved = received > self.acked[member] or limit > self.limits[member]
        self.acked[member] = max(received, self.acked[member])
        self.limits[member] = max(limit, self.limits[member])
        return moved and self.settle()

    def settle(self) -> bool:
        stable = min(self.acked.values(), default=self.next)
        if stable > self.stable:
            self.stable = stable
            kept = self.kept
            while kept and kept[0].first + kept[0].count <= stable:
                self.kept_bytes -= kept.popleft().size
        return True

    def forget(self) -> deque[Frame]:
        """A new view: everybody who is in it has everything. What was kept until now."""
        kept, self.kept, self.kept_bytes = self.kept, deque(), 0
        self.stable = self.told_stable = self.next
        self.acked = dict.fromkeys(self.acked, self.next)
        return kept

    def frames(self, first: int, stop: int) -> list[Frame]:
        return between(self.kept, first, stop)

    def validate(self) -> None:
        assert self.stable <= self.next
        assert self.acked.keys() == self.limits.keys()
        assert all(received <= self.next for received in self.acked.values())
        assert self.kept_bytes == sum(frame.size for frame in self.kept)
        expected = self.next
        for frame in reversed(self.kept):
            assert frame.first + frame.count == expected, "what is kept has no gap and ends at the end"
            expected = frame.first


def between(kept: deque[Frame], first: int, stop: int) -> list[Frame]:
    """The kept frames that hold any message from ``first`` up to ``stop``."""
    if not kept:
        return []
    at = max(bisect_right(kept, first, key=lambda frame: frame.first) - 1, 0)
    found = []
    while at < len(kept) and kept[at].first < stop:
        if kept[at].first + kept[at].count > first:
            found.append(kept[at])
        at += 1
    return found
