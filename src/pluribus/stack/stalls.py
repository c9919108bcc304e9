"""Which receivers leave a stream no room, and for how long: what windows report of receivers that do not read."""

from __future__ import annotations

from ..core.errors import BadStack
from ..core.limits import STALL_S


class Stalls:
    """Of one outgoing stream. A receiver is *stalled* when it has left no room for ``stall_s`` seconds without a break.
    It is reported again after each further ``stall_s``, and once when it has room again."""

    __slots__ = ("_reported", "_since")

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._reported: dict[int, float] = {}

    def look(self, now: float, full: list[int], stall_s: float) -> tuple[list[int], list[int]]:
        """``full`` are the receivers without room now. Returns the receivers to report as stalled, and as not
        stalled."""
        for member in [member for member in self._since if member not in full]:
            del self._since[member]
        over = [member for member in self._reported if member not in full]
        for member in over:
            del self._reported[member]
        stalled = []
        for member in full:
            since = self._since.setdefault(member, now)
            if now - self._reported.get(member, since) >= stall_s:
                self._reported[member] = now
                stalled.append(member)
        return stalled, over

    def __bool__(self) -> bool:
        """Whether any receiver is known to be without room."""
        return bool(self._since)

    def __len__(self) -> int:
        """How many are reported."""
        return len(self._reported)


def checked_stall_s(stall_s: float, layer: str) -> float:
    if not 0 < stall_s < float("inf"):
        raise BadStack(f"{layer}(stall_s={stall_s}) cannot be: use a time above 0; {STALL_S:g} is the default")
    return stall_s
