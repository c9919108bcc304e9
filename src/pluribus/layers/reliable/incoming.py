"""One stream of another member: frames that came in order, frames that came ahead, frames kept for repair."""

from __future__ import annotations

from collections import deque

from ...core.frame import Frame
from ...core.ports import Timer
from .outgoing import between


class Incoming:
    """``next`` is the message that is due; ``known`` is how far the sender is known to have sent."""

    __slots__ = (
        "ahead",
        "asked",
        "consumed",
        "delivered",
        "early",
        "end",
        "granted",
        "kept",
        "kept_bytes",
        "known",
        "next",
        "stable",
        "told",
        "want",
    )

    def __init__(self, first: int) -> None:
        self.next = first
        self.known = first
        self.stable = first
        self.end = 0
        self.delivered = 0
        self.consumed = 0
        self.granted = 0
        self.told = first
        self.ahead: dict[int, tuple[Frame, int]] = {}
        self.early: set[int] = set()
        """The first numbers of frames ahead that were passed up early."""
        self.kept: deque[Frame] = deque()
        self.kept_bytes = 0
        self.want: Timer | None = None
        self.asked = 0

    @property
    def unread(self) -> int:
        return self.delivered - self.consumed

    @property
    def gap(self) -> bool:
        return self.next < self.known

    def missing_upto(self) -> int:
        """The end of the first gap: where the frames ahead begin, or else ``known``."""
        return min(self.ahead, default=self.known)

    def forget_upto(self, stable: int) -> None:
        """Forget frames up to here: every receiver has them, so nobody will ask for them."""
        self.stable = max(self.stable, stable)
        kept = self.kept
        while kept and kept[0].first + kept[0].count <= self.stable:
            self.kept_bytes -= kept.popleft().size

    def forget(self) -> deque[Frame]:
        """A new view begins, all of whose members have everything. Returns the frames that were kept until now."""
        kept, self.kept, self.kept_bytes = self.kept, deque(), 0
        return kept

    def frames(self, first: int, stop: int) -> list[Frame]:
        found = between(self.kept, first, stop)
        if self.ahead:
            found += [self.ahead[number][0] for number in sorted(self.ahead) if first <= number < stop]
        return found

    def cancel(self) -> None:
        if self.want is not None:
            self.want.cancel()
            self.want = None

    def validate(self) -> None:
        assert self.next <= self.known
        assert self.consumed <= self.delivered
        assert all(first >= self.next for first in self.ahead)
        assert self.early <= self.ahead.keys()
        assert self.kept_bytes == sum(frame.size for frame in self.kept)
        for one, other in zip(self.kept, list(self.kept)[1:], strict=False):
            assert one.first + one.count == other.first
