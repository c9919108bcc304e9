"""Who above waits until every receiver has something that this member sent.

Receivers acknowledge when they have room to give, or when they are asked how far they are. Somebody who waits should
not wait for either, so a stream that is waited for is asked about as soon as it has gone so far; if that is lost, the
periodic status asks again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.ids import ALL
from .outgoing import Outgoing

Key = tuple[int, int]


class Confirming:
    """``wanted`` is how far each stream must be everywhere. It has at most one entry a stream."""

    __slots__ = ("_asked", "_told", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[Key, int] = {}
        self._asked: dict[Key, int] = {}
        self._told: dict[Key, int] = {}

    def want(self, key: Key, upto: int) -> None:
        self.wanted[key] = max(upto, self.wanted.get(key, 0))

    def look(
        self, streams: Mapping[Key, Outgoing], members: Mapping[int, frozenset[int]]
    ) -> tuple[list[tuple[Key, int]], list[Key]]:
        """What to tell above, and which streams to ask about."""
        confirmed: list[tuple[Key, int]] = []
        hasten: list[Key] = []
        for key, upto in list(self.wanted.items()):
            group, to = key
            stream = streams.get(key)
            if stream is None:
                if to == ALL:  # the group was left, and what was sent to it is settled
                    confirmed.append((key, upto))
                    self._forget(key)
                elif to not in members.get(group, frozenset()):
                    self._forget(key)
                continue
            if stream.stable >= upto or stream.stable > self._told.get(key, -1):
                self._told[key] = stream.stable
                confirmed.append((key, stream.stable))
            if stream.stable >= upto:
                self._forget(key)
            elif stream.next >= upto > self._asked.get(key, -1):
                self._asked[key] = upto
                hasten.append(key)
        return confirmed, hasten

    def _forget(self, key: Key) -> None:
        del self.wanted[key]
        self._asked.pop(key, None)
        self._told.pop(key, None)
