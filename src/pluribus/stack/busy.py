"""Which streams are in use: they share a receiver's buffer among them, and the idle ones have no part in it.

Counting every stream that was ever opened would leave a lone sender a small part of the buffer: small steps, an
acknowledgement for a few messages, and half-empty frames. A stream that has been idle keeps the credit that it was
given; if many of those begin at once the buffer may overflow, and repair brings what was lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

IDLE_S = 1.0


class Busy:
    """When each stream last moved; bounded by the streams that its owner has."""

    __slots__ = ("_at", "_looked")

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._looked = 0.0

    def count(self, moved: Iterable[Hashable], now: float) -> int:
        """Streams in use, these included: at least 1."""
        at = self._at
        for key in moved:
            at[key] = now
        if now - self._looked > IDLE_S:
            self._looked = now
            self._at = at = {key: last for key, last in at.items() if now - last <= IDLE_S}
        return max(len(at), 1)
