"""Which streams are in use: they share a receiver's buffer among them, and the others have little of it.

Counting every stream that was ever opened would leave a lone sender a small part of the buffer: small steps, an
acknowledgement for a few messages, and half-empty frames. The same holds for streams that only say a word now and
then: so a stream is in use if it has moved by a notable part of the buffer lately. The others have the share that all
streams would have that moved lately: they are acknowledged soon, and what is kept of them all stays bounded. A stream
that has been idle keeps the credit that it was given; if many of those begin at once the buffer may overflow, and
repair brings what was lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ..core.limits import WINDOW_BYTES_MIN

IDLE_S = 1.0
NOTABLE_PART = 64
"""Streams that move by less than this part of the buffer in ``IDLE_S`` are not in use."""


class Busy:
    """When each stream last moved, and from where; bounded by the streams that its owner has."""

    __slots__ = ("_at", "_from", "_lately", "_looked", "_seen", "_share", "_small")

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._from: dict[Hashable, int] = {}
        self._seen: dict[Hashable, int] = {}
        self._lately = 0
        """Streams that moved in this second or in the one before: counted as they come, there may be thousands."""
        self._looked = 0.0
        self._share = self._small = 0

    def moved(self, brought: Mapping[Any, int], buffer_bytes: int, now: float) -> None:
        """These streams have moved, and brought so many bytes so far. One that was not seen for a while is taken for
        one in use as soon as it has ever brought much."""
        if now - self._looked > IDLE_S:
            self._looked = now
            self._at = {key: last for key, last in self._at.items() if now - last <= IDLE_S}
            self._from, self._seen = self._seen, {}
            self._lately = len(self._from)
        notable = buffer_bytes // NOTABLE_PART
        for key, size in brought.items():
            self._lately += key not in self._from and key not in self._seen
            if size - self._from.get(key, 0) >= notable:
                self._at[key] = now
        self._seen.update(brought)
        self._share = buffer_bytes // max(len(self._at), 1)
        self._small = min(buffer_bytes // max(self._lately, 1), self._share)

    def share(self, key: Hashable) -> int:
        """What a stream has of the buffer."""
        return self._share if key in self._at else self._small

    def window(self, key: Hashable, bytes_max: int) -> int:
        """What a stream may have under way: its share, within bounds."""
        return max(min(bytes_max, self.share(key)), WINDOW_BYTES_MIN)
