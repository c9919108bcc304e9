"""Which streams are in use: these share most of a receiver's buffer, and the others get little of it.

If every stream counted that was ever opened, a lone sender would get a small part of the buffer: many acknowledgements
and half-empty frames. The same holds if streams counted that send a word now and then. So a stream is *in use* if it
has moved lately by a notable part of the buffer. Each other stream gets an equal part among all streams that moved
lately: it is acknowledged soon, and what is kept of all of them stays bounded. An idle stream keeps the credit that it
was given. If many idle streams begin at once, the buffer may overflow, and what is lost is repaired.
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
        """These streams have moved; ``brought`` is how many bytes each has brought so far. A stream that was not seen
        for a while counts as in use if it has ever brought a notable part."""
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
        """The bytes of the buffer that a stream gets."""
        return self._share if key in self._at else self._small

    def window(self, key: Hashable, bytes_max: int) -> int:
        """What a stream may have under way: its share, within bounds."""
        return max(min(bytes_max, self.share(key)), WINDOW_BYTES_MIN)
