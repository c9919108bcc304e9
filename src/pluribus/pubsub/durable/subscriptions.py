"""Durable subscriptions: which topics a named subscriber wants, and how far it has come in each of them.

A subscription belongs to one consumer at a time. A consumer that attaches takes it over, and gets the next epoch;
commits of earlier epochs are refused. So a subscriber that was believed dead cannot set back its successor, and
committed events are not handled again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...core.errors import BadTopic
from ...core.limits import DURABLE_SUBSCRIPTIONS_MAX
from ..topics import levels_of, matches
from .commands import AGAIN, DONE, EARLIEST, LATEST, REFUSED, Attach, Commit, Detach, Outcome

Bounds = tuple[int, int]
"""The first offset of a topic that is kept, and the next one that it will give."""


class SubscriptionRecord(msgspec.Struct, array_like=True):
    patterns: list[str]
    offsets: dict[str, int]
    epoch: int = 0
    consumer: int = 0

    def wants(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.patterns)


class Subscriptions:
    def __init__(self) -> None:
        self.known: dict[str, SubscriptionRecord] = {}
        self.news: dict[str, None] = {}
        """Subscriptions that were taken over or removed since this was last cleared. Not part of the state."""

    def _tell(self, name: str) -> None:
        if len(self.news) >= DURABLE_SUBSCRIPTIONS_MAX:  # nobody looks
            self.news.clear()
        self.news[name] = None

    def attach(self, command: Attach, topics: Mapping[str, Bounds]) -> Outcome:
        try:
            for pattern in command.patterns:
                levels_of(pattern)
        except BadTopic as error:
            return Outcome(REFUSED, 0, str(error))
        found = self.known.get(command.name)
        if found is None:
            if len(self.known) >= DURABLE_SUBSCRIPTIONS_MAX:
                return Outcome(
                    REFUSED, 0, f"{DURABLE_SUBSCRIPTIONS_MAX:,} durable subscriptions are there: remove some"
                )
            found = self.known[command.name] = SubscriptionRecord(list(command.patterns), {})
            for topic, bounds in topics.items():
                if found.wants(topic):
                    found.offsets[topic] = command.starts.get(topic, _start(command.start, bounds))
        elif found.patterns != command.patterns:
            found.patterns = list(command.patterns)
            found.offsets = {topic: offset for topic, offset in found.offsets.items() if found.wants(topic)}
        if found.consumer == command.consumer and found.epoch:
            return Outcome(AGAIN, found.epoch, "", dict(found.offsets))
        found.consumer = command.consumer
        found.epoch += 1
        self._tell(command.name)
        return Outcome(DONE, found.epoch, "", dict(found.offsets))

    def commit(self, command: Commit, topics: Mapping[str, Bounds]) -> Outcome:
        found = self.known.get(command.name)
        if found is None:
            return Outcome(REFUSED, 0, f"there is no durable subscription {command.name!r} any more: subscribe again")
        if command.epoch != found.epoch:
            return Outcome(REFUSED, found.epoch, f"another consumer took over the subscription {command.name!r}")
        for topic, offset in command.offsets.items():
            if topic in topics and offset > found.offsets.get(topic, 0):
                found.offsets[topic] = min(offset, topics[topic][1])
        return Outcome(DONE, found.epoch)

    def detach(self, command: Detach) -> Outcome:
        self._tell(command.name)
        return Outcome(AGAIN if self.known.pop(command.name, None) is None else DONE)

    def saved(self) -> Any:
        return list(self.known.items())

    def restore(self, saved: Any) -> None:
        self.known = dict(msgspec.convert(saved, list[tuple[str, SubscriptionRecord]]))


def _start(start: int, bounds: Bounds) -> int:
    first, end = bounds
    if start == EARLIEST:
        return first
    return end if start == LATEST else min(max(start, first), end)
