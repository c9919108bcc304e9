"""The leading keeper reads ahead for consumer groups whose members wait.

The group itself (``pubsub/consumer_groups/machine.py``) cannot read the log. The keeper reads the log, applies the
group's filter, and brings offsets, sizes and keys to the group by a command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ....core.errors import PluribusError
from ....group.host.host import HOST
from ....group.host.words import Remove, encode
from ....pubsub.consumer_groups import words
from ....pubsub.consumer_groups.machine import ConsumerGroup
from ....pubsub.consumer_groups.words import AHEAD_EVENTS_MAX, Ahead
from ....pubsub.durable.batch import StoredBatch
from ....pubsub.durable.commands import AGAIN, DONE, REFUSED, Outcome
from ....pubsub.durable.machine import TopicsMachine
from ....pubsub.durable.requests import GroupKnown, Groups, RemoveGroup
from ....pubsub.event import KEY

if TYPE_CHECKING:
    from ...keepers.desk import KeeperDesk
    from .desk import TopicsDesk

AHEAD_BYTES = 256 << 10
"""Bytes that are read for one group before other tasks have a turn."""
PREFIX = "consumers/"
"""The prefix of the names of groups' machines."""


class GroupsDesk:
    """Consumer groups on one keeper."""

    def __init__(self, desk: KeeperDesk, topics: TopicsDesk) -> None:
        self._desk = desk
        self._topics = topics
        self._under_way: set[int] = set()
        """Machines to which a command is under way."""
        self._names: dict[int, tuple[ConsumerGroup, int, list[str]]] = {}
        """By machine: the topics that it reads, as of a number of topics."""
        self._turns = 0

    def questions(self) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
        return {Groups: self._groups, RemoveGroup: self._remove}

    def stats(self) -> dict[str, Any]:
        count = sum(1 for _ in self._machines())
        return {"consumer_groups": count} if count else {}

    def _machines(self) -> list[tuple[int, str, ConsumerGroup]]:
        return [
            (number, hosted.name, hosted.machine)
            for number, hosted in self._desk.host.machines.items()
            if isinstance(hosted.machine, ConsumerGroup)
        ]

    async def _groups(self, asked: Groups) -> list[GroupKnown]:
        await self._desk.barrier()
        found: list[GroupKnown] = []
        for _, name, group in self._machines():
            standing = group.standing()
            behind = self._behind(standing)
            found.append(
                GroupKnown(
                    name.removeprefix(PREFIX), standing.patterns, standing.members, standing.held, behind, standing.dead
                )
            )
        return found

    def _behind(self, standing: words.Standing) -> int:
        """Events that are not settled, whether the group was shown them or not."""
        bounds = self._topics.topics.bounds
        ends = {one.topic: bounds[one.topic][1] for one in standing.positions if one.topic in bounds}
        return sum(max(ends.get(one.topic, 0) - one.seen, 0) + one.open for one in standing.positions)

    def lags(self) -> dict[str, int]:
        """By machine: the events that a group has not settled."""
        if self._desk.host.named(TopicsMachine.kind) is None:
            return {}
        return {name: self._behind(group.standing()) for _, name, group in self._machines()}

    async def _remove(self, asked: RemoveGroup) -> Outcome:
        await self._desk.barrier()
        name = PREFIX + asked.name
        hosted = self._desk.host.named(name)
        if hosted is None or not isinstance(hosted.machine, ConsumerGroup):
            return Outcome(AGAIN)
        if members := hosted.machine.standing().members:
            return Outcome(REFUSED, members, f"{members:,} members read in the group {asked.name!r}: close them first")
        await self._desk.ordered(HOST, [encode(Remove(name))])
        return Outcome(DONE)

    # Reading ahead.

    def look(self) -> None:
        """Bring more to groups whose members wait; this keeper leads."""
        for number, _, group in self._machines():
            if number not in self._under_way and (room := group.hungry):
                found = self._ahead(number, group, room)
                if found is not None:
                    self._bring(number, found)

    def _bring(self, number: int, found: Ahead) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            self._under_way.discard(number)
            if error is None:
                self._desk.host.take_outcomes(index, 1)

        self._under_way.add(number)
        try:
            self._desk.keeper.submit_many([words.encode(found)], done, number)
        except PluribusError:  # another one leads, and does it
            self._under_way.discard(number)

    def _ahead(self, number: int, group: ConsumerGroup, room: int) -> Ahead | None:
        """The next events in one of the group's topics, each topic in its turn; None if the group was shown
        everything."""
        names = self._topics_of(number, group)
        bounds = self._topics.topics.bounds
        self._turns += 1
        at = self._turns % max(len(names), 1)
        for name in (*names[at:], *names[:at]):
            first, end = bounds[name]
            seen = group.seen(name)
            start = max(seen, first)
            if start < end:
                try:
                    return self._read(group, name, seen, start, end, min(room, AHEAD_EVENTS_MAX))
                except PluribusError:  # damaged here: go to the next topic; this one when the row was mended
                    continue
            if seen < first:  # every event was removed by retention
                return Ahead(name, seen, first, [])
        return None

    def _topics_of(self, number: int, group: ConsumerGroup) -> list[str]:
        topics = self._topics.topics
        known = self._names.get(number)
        if known is None or known[0] is not group or known[1] != len(topics.topics):
            names = [name for name in topics.bounds if group.wants(name)]
            known = self._names[number] = (group, len(topics.topics), names)
        return known[2]

    def _read(self, group: ConsumerGroup, name: str, seen: int, start: int, end: int, count: int) -> Ahead:
        events: list[tuple[int, int, int]] = []
        pieces, upto = self._topics.reading.read(name, start, end, AHEAD_BYTES)
        for offset, packed in pieces:
            batch = StoredBatch(packed, offset).cut(start, end)
            ends, offsets, headers = batch.ends.tolist(), batch.offsets.tolist(), batch.extra.headers
            for place in self._topics.which(batch, group.where):
                if len(events) == count:
                    return Ahead(name, seen, offsets[place], events)
                key = (headers[place] or {}).get(KEY) if headers else None
                size = ends[place + 1] - ends[place]
                events.append((offsets[place], size, 0 if key is None else number_of_key(key)))
        return Ahead(name, seen, upto, events)


def number_of_key(key: object) -> int:
    """A number for a key that is not 0, the same at every keeper."""
    return int.from_bytes(blake2b(str(key).encode(), digest_size=7).digest(), "little") | 1 << 56
