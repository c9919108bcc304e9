"""The last value under each topic, for later subscribers.

Every member keeps all of them. Of two values the one with the later time is the last, then the one with the greater
identity: the same everywhere, in whatever order they arrive. So members that have got the same events have equal
tables, and a newcomer can merge another member's table with what it has heard itself. An empty body (``b""`` or
``None``) says that there is no value any more. That is remembered too, as long as there is room, because an older value
may still come from a member that was away.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from ..core.errors import MalformedFrame, TooLarge
from ..core.limits import RETAINED_MAX
from .batch import Arrived, decode_batch, encode_batch
from .event import Event
from .interest import Interest
from .topics import is_channel, matches

Rank = tuple[float, int, int]


def _digest(topic: str, rank: Rank) -> int:
    return int.from_bytes(blake2b(repr((topic, rank)).encode(), digest_size=7).digest(), "big")


class Retained:
    def __init__(self) -> None:
        self._kept: dict[str, tuple[Rank, bytes]] = {}
        self._emptied: dict[str, None] = {}
        """Topics whose last value was removed, the earliest first."""
        self.refused = 0
        self.ahead: set[tuple[int, int]] = set()
        """Identities of values that other members told, and that may still arrive as events."""
        self.digest = 0
        """The same for the same values, in whatever order they came; 0 for none."""

    def __len__(self) -> int:
        return len(self._kept)

    def check(self, topic: str) -> None:
        """Whether one more may be published."""
        if topic not in self._kept and len(self._kept) >= RETAINED_MAX and not self._emptied:
            raise TooLarge(f"{RETAINED_MAX:,} topics have a retained value already: publish empty ones to forget some")

    def take(self, arrived: Arrived) -> None:
        """Keep the retained events of a batch."""
        for section in arrived.sections():
            for place, extra in section.part.extras.items():
                if extra.retain and place < section.part.count:
                    batch = section.single(place)
                    self.ahead.discard((batch.sender, batch.first))
                    self._keep((batch.time, batch.sender, batch.first), batch.topics[0], encode_batch(batch))

    def _keep(self, rank: Rank, topic: str, data: bytes) -> bool:
        known = self._kept.get(topic)
        if known is None and len(self._kept) >= RETAINED_MAX:
            if not self._emptied:
                self.refused += 1
                return False
            self.forget(next(iter(self._emptied)))
        if known is not None and known[0] >= rank:
            return False
        if known is not None:
            self.ahead.discard(known[0][1:])
            self.digest ^= _digest(topic, known[0])
        self._kept[topic] = (rank, data)
        self.digest ^= _digest(topic, rank)
        self._emptied.pop(topic, None)
        if self._event(data) is None:
            self._emptied[topic] = None
        return True

    def forget(self, topic: str) -> None:
        """Forget a topic as if it had never been heard of."""
        rank, _ = self._kept.pop(topic)
        self._emptied.pop(topic, None)
        self.ahead.discard(rank[1:])
        self.digest ^= _digest(topic, rank)

    def snapshot(self) -> list[bytes]:
        return [data for _, data in self._kept.values()]

    def merge(self, kept: Iterable[bytes]) -> list[str]:
        """Merge another member's values; returns the topics for which it has a later one."""
        later = []
        for data in kept:
            batch = decode_batch(data)
            if self._keep((batch.time, batch.sender, batch.first), batch.topics[0], data):
                later.append(batch.topics[0])
                self.ahead.add((batch.sender, batch.first))
        return later

    def topics(self) -> list[str]:
        return [topic for topic, (_, data) in self._kept.items() if self._event(data) is not None]

    def of(self, interest: Interest, among: Iterable[str] | None = None) -> list[Event[Any]]:
        """The values that a new subscription is given; or an old one, of topics whose last value was elsewhere."""
        pattern = interest.pattern
        if among is None and is_channel(pattern):
            topics = [pattern] if pattern in self._kept else []
        else:
            topics = [topic for topic in (self._kept if among is None else among) if matches(pattern, topic)]
        events = [self._event(self._kept[topic][1]) for topic in topics]
        return interest.chosen(event for event in events if event is not None)

    def _event(self, data: bytes) -> Event[Any] | None:
        try:
            ((event,),) = [section.events() for section in Arrived(decode_batch(data)).sections()]
        except (MalformedFrame, ValueError):
            return None
        event.retained = True
        return None if event.body is None or event.body == b"" else event
