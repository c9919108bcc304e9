"""Callers above that wait until every receiver has a message of this member.

Receivers acknowledge when they grant more room, or when they are asked how far they are. A caller that waits should not
depend on either. So as soon as the message has been sent its receivers are asked; if that question is lost, the
periodic status asks again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.ids import ALL
from .outgoing import Outgoing

Key = tuple[int, int]


class Confirming:
    """``wanted`` says, for each stream that is waited for, how far every receiver must have it."""

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
        """Which streams are confirmed, and about which to ask."""
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
