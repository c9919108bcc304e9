"""Which streams are in use: they share a receiver's buffer among them, and the others have no part in it.

Counting every stream that was ever opened would leave a lone sender a small part of the buffer: small steps, an
acknowledgement for a few messages, and half-empty frames. The same holds for streams that only say a word now and
then: so a stream is in use if it has moved by a notable part of the buffer. One that has been idle keeps the credit
that it was given; if many of those begin at once the buffer may overflow, and repair brings what was lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

IDLE_S = 1.0
NOTABLE_PART = 64
"""Streams that move by less than this part of the buffer in ``IDLE_S`` could not fill it together, however many speak
at once."""


class Busy:
    """When each stream last moved, and from where; bounded by the streams that its owner has."""

    __slots__ = ("_at", "_from", "_looked", "_seen")

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._from: dict[Hashable, int] = {}
        self._seen: dict[Hashable, int] = {}
        self._looked = 0.0

    def share(self, moved: Mapping[Any, int], buffer_bytes: int, now: float) -> int:
        """What a stream in use has of the buffer. ``moved`` has how many bytes each of these has brought so far; one
        that was not seen for a while is taken for one in use as soon as it has ever brought much."""
        if now - self._looked > IDLE_S:
            self._looked = now
            self._at = {key: last for key, last in self._at.items() if now - last <= IDLE_S}
            self._from, self._seen = self._seen, {}
        self._seen.update(moved)
        notable = buffer_bytes // NOTABLE_PART
        for key, brought in moved.items():
            if brought - self._from.get(key, 0) >= notable:
                self._at[key] = now
        return buffer_bytes // max(len(self._at), 1)
