"""Which counters have been seen: a frame is accepted once, also when frames overtake each other."""

from __future__ import annotations

from ...core.limits import REPLAY_WINDOW

_MASK = (1 << REPLAY_WINDOW) - 1


class ReplayWindow:
    """The highest counter, and a bitmap of the counters below it; older ones count as seen (as in RFC 4303)."""

    __slots__ = ("_seen", "_top")

    def __init__(self, after: int = 0) -> None:
        """Everything up to ``after`` counts as seen."""
        self._top = after
        self._seen = _MASK

    @property
    def top(self) -> int:
        return self._top

    def fresh(self, counter: int) -> bool:
        """Whether this counter may still come. Asked before a frame is opened, because it is cheap."""
        behind = self._top - counter
        return behind < 0 or (behind < REPLAY_WINDOW and not self._seen >> behind & 1)

    def note(self, counter: int) -> None:
        """A frame with this counter was opened, so the counter is authentic."""
        ahead = counter - self._top
        if ahead <= 0:
            self._seen |= 1 << -ahead
        else:
            self._seen = (self._seen << ahead | 1) & _MASK if ahead < REPLAY_WINDOW else 1
            self._top = counter

    def close(self, counter: int) -> None:
        """Nothing up to here is accepted any more."""
        self._top = max(self._top, counter)
        self._seen = _MASK
