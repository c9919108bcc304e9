"""What keepers answer about durable topics: publish, read, follow, find. A part of a keeper's desk.

A keeper reads from its own log the events that it has applied, which are committed; it asks no other keeper for them.
Only if it finds nothing, it asks the leader whether it is behind: so every event that was acknowledged before the
question is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, Closed, MalformedFrame, Overflow, PluribusError
from ....filters import parse
from ....group.host.host import HOST
from ....pubsub.durable import commands
from ....pubsub.durable.batch import StoredBatch, checked, is_batch
from ....pubsub.durable.commands import Outcome
from ....pubsub.durable.machine import Topic, TopicsMachine
from ....pubsub.durable.reading import READ_BYTES_MAX, Piece, Reading
from ....pubsub.durable.requests import (
    At,
    Do,
    Fetch,
    Fetched,
    Find,
    Follow,
    Followed,
    Known,
    Last,
    Put,
    Subscribed,
    Watch,
    Who,
)
from ....pubsub.topics import matches, overlap
from .publisher import Ended

if TYPE_CHECKING:
    from ...keepers.desk import KeeperDesk

TOPICS = 1
"""The number of the machine of durable topics: every log begins with it."""
FILTERS_MAX = 256
WATCHERS_MAX = 1_024
"""Followers of one durable subscription that wait; beyond that the oldest is told at once."""
TURN_BYTES = 512 << 10
"""Bytes that are read before other tasks have a turn."""
LONG_AGO_BYTES = 8 << 20
"""Bytes that are read for a filter that finds nothing, before other tasks have a turn."""


class TopicsDesk:
    """Durable topics of one keeper. ``questions`` are the requests that it answers."""

    def __init__(self, desk: KeeperDesk) -> None:
        self._desk = desk
        self._reading: Reading | None = None
        self._filters: dict[str, Callable[[Any], Any]] = {}
        self._read_bytes = 0
        """Bytes read since other tasks had a turn."""
        self._turns = 0
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}
        """By durable subscription: readers that want to know when another one takes it over."""

    def questions(self) -> Mapping[type, Callable[[Any], Any]]:
        return {
            Put: self._put,
            Fetch: self._fetch,
            Follow: self._follow,
            Do: self._do,
            Find: self._find,
            At: self._at,
            Last: self._last,
            Watch: self._watch,
            Who: self._who,
        }

    @property
    def topics(self) -> TopicsMachine:
        """The state of durable topics; another object after a snapshot was taken over."""
        hosted = self._desk.host.named(TopicsMachine.kind)
        if hosted is None:
            raise Closed(f"this keeper {self._desk.keeper.seat.halted or 'has no durable topics'}: ask another one")
        machine = hosted.machine
        assert isinstance(machine, TopicsMachine)
        return machine

    @property
    def reading(self) -> Reading:
        topics = self.topics
        if self._reading is None or self._reading.topics is not topics:
            self._reading = Reading(topics, self._rows, self._row)
        return self._reading

    def _rows(self, start: int, bytes_max: int) -> list[tuple[int, list[bytes]]]:
        return self._desk.keeper.read_rows(start, bytes_max, TOPICS)

    def _row(self, at: int) -> tuple[bool, Sequence[bytes]]:
        machine, held = self._desk.keeper.read_row(at)
        return machine == HOST, held

    def stats(self) -> dict[str, Any]:
        host = self._desk.host
        if host.named(TopicsMachine.kind) is None:
            return {}
        topics = self.topics
        return {
            "topics": len(topics.topics),
            "subscriptions": len(topics.subscriptions.known),
            "sessions": len(host.streams),
            "staged": len(topics.stages),
        }

    # Writing.

    async def _put(self, request: Put) -> list[Outcome]:
        return await self.put(request.batches)

    async def put(self, batches: Sequence[bytes]) -> list[Outcome]:
        for packed in batches:
            if not is_batch(packed):
                raise MalformedFrame("what was put is no batch of events")
            checked(packed)
        return await self.submit(batches)

    async def submit(self, held: Sequence[bytes]) -> list[Outcome]:
        """Have commands ordered; returns the outcome of each."""
        return await self._desk.ordered(TOPICS, held)

    def submit_now(self, held: Sequence[bytes], answered: Ended) -> None:
        """The same with a call-back, which may be called before this returns."""

        def done(index: int, error: PluribusError | None) -> None:
            outcomes: list[Outcome] = []
            if error is None:
                try:
                    outcomes = self._desk.outcomes_of(index, len(held))
                except Overflow as forgotten:
                    error = forgotten
            answered(outcomes, error)

        try:
            self._desk.keeper.submit_many(held, done, TOPICS)
        except PluribusError as error:
            answered([], error)

    async def _do(self, request: Do) -> Outcome:
        found = commands.command_of(request.command)
        if isinstance(found, commands.Stage):
            checked(found.packed)
        return (await self.submit([request.command]))[0]

    async def _at(self, request: At) -> int:
        await self._desk.barrier()
        return self.reading.offset_at(request.topic, request.time_us)

    async def _last(self, request: Last) -> int:
        await self._desk.barrier()
        return self.topics.stages.last(request.writer, request.query)

    async def _watch(self, asked: Watch) -> bool:
        loop = asyncio.get_running_loop()
        until, fresh = loop.time() + asked.wait_s, False
        while True:
            known = self.topics.subscriptions.known.get(asked.name)
            if known is not None and known.epoch >= asked.epoch:
                if known.epoch > asked.epoch:
                    return True
                if loop.time() >= until:
                    return False
                await self._news_of(asked.name, until)
            elif fresh:  # the topic was removed
                return True
            else:  # or perhaps this keeper is behind
                await self._desk.barrier()
                fresh = True

    async def _news_of(self, name: str, until: float) -> None:
        loop = asyncio.get_running_loop()
        watcher: asyncio.Future[None] = loop.create_future()
        watchers = self._watchers.setdefault(name, [])
        if len(watchers) >= WATCHERS_MAX:
            raise Overflow(f"{WATCHERS_MAX:,} subscribers watch {name!r} here: ask another keeper")
        watchers.append(watcher)
        timer = loop.call_at(until, _wake, watcher)
        try:
            await watcher
        finally:
            timer.cancel()
            watchers.remove(watcher)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]

    def applied(self) -> None:
        """Commands were applied: a reader whose subscription was taken over is told."""
        hosted = self._desk.host.named(TopicsMachine.kind) if self._watchers else None
        news = self.topics.subscriptions.news if hosted is not None else {}
        if news:
            for name in news:
                for watcher in self._watchers.get(name, ()):
                    _wake(watcher)
            news.clear()

    def wake(self) -> None:
        """The state was replaced, or this keeper stops: every waiting task looks again."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                _wake(watcher)

    async def barrier(self) -> None:
        """Returns when this keeper has applied all that was committed before."""
        await self._desk.barrier()

    # Reading.

    @property
    def log(self) -> int:
        """Which log this is: the number that its first keepers gave it."""
        return self._desk.keeper.ledger.meta.cluster

    async def _fetch(self, asked: Fetch) -> Fetched:
        start, stop, fresh = asked.start, asked.stop, False
        until = asyncio.get_running_loop().time() + asked.wait_s
        while True:
            try:
                pieces, start = await self._read_in_turns(asked, start)
            except BadInput:  # or perhaps this keeper is behind
                if fresh:
                    raise
                await self._desk.barrier()
                fresh = True
                continue
            topic = self.topics.topic(asked.topic)
            first, end = topic.bounds if topic is not None else (0, 0)
            if pieces or start >= stop:
                return Fetched(pieces, start, first, end, self.log)
            if start < end:
                await asyncio.sleep(0)
            elif not fresh:  # nothing found: is there none, or is this keeper behind?
                await self._desk.barrier()
                fresh = True
            elif not await self._desk.changed(until):
                return Fetched(pieces, start, first, end, self.log)

    async def _read_in_turns(self, asked: Fetch, start: int) -> tuple[list[Piece], int]:
        """Read as much as is asked for, a little at a time, so that other tasks have their turns; they also have them
        when a client asks again and again for little. Events that are here are read without waiting."""
        pieces: list[Piece] = []
        left = min(max(asked.bytes_max, 1), READ_BYTES_MAX)  # with none at all it would never come to an end
        while True:
            if self._read_bytes >= TURN_BYTES:
                self._read_bytes = 0
                await asyncio.sleep(0)
            some, at = self._read(asked.topic, start, asked.stop, min(left, TURN_BYTES), asked.where, asked.bodies)
            pieces += some
            left -= sum(len(packed) for _, packed in some)
            if left <= 0 or at >= asked.stop or at == start:
                return pieces, at
            start = at

    async def _follow(self, asked: Follow) -> Followed:
        until = asyncio.get_running_loop().time() + asked.wait_s
        offsets = dict(asked.offsets)
        known, names = -1, list[str]()
        while True:
            if known != len(self.topics.topics):
                known = len(self.topics.topics)
                names = [name for name in self.topics.bounds if any(matches(p, name) for p in asked.patterns)]
            pieces: list[Piece] = []
            left, behind = max(asked.bytes_max, 1), False
            self._turns += 1
            at = self._turns % max(len(names), 1)
            for name in (*names[at:], *names[:at]):  # each topic is the first at some time: a busy one fills the answer
                first, end = self.topics.bounds[name]
                start = max(offsets.get(name, first), first)
                if start < end and left > 0:
                    found, offsets[name] = self._read(name, start, end, left, asked.where, True)
                    pieces += found
                    left -= sum(len(packed) for _, packed in found)
                    behind = behind or offsets[name] < end
            if pieces:
                return Followed(pieces, offsets)
            if behind:
                await asyncio.sleep(0)
            elif not await self._desk.changed(until):
                return Followed(pieces, offsets)

    def _read(
        self, name: str, start: int, stop: int, bytes_max: int, where: str, bodies: bool
    ) -> tuple[list[Piece], int]:
        """Packed batches, and the offset behind the last event that was looked at."""
        if not where and bodies:
            pieces, at = self.reading.read(name, start, stop, bytes_max)
            self._read_bytes += sum(len(packed) for _, packed in pieces)
            return pieces, at
        kept: list[Piece] = []
        looked, size = 0, 0
        while start < stop and size < bytes_max and looked < LONG_AGO_BYTES:
            pieces, at = self.reading.read(name, start, stop, min(bytes_max, 256 << 10))
            if at == start:
                break
            for offset, packed in pieces:
                looked += len(packed)
                chosen = self.chosen(StoredBatch(packed, offset).cut(start, stop), where, bodies)
                if chosen is not None:
                    kept.append((offset, chosen.data))
                    size += len(chosen.data)
            start = at
        self._read_bytes += looked
        return kept, start

    def chosen(self, batch: StoredBatch, where: str, bodies: bool) -> StoredBatch | None:
        which = self.which(batch, where)
        if not which:
            return None
        return batch if len(which) == len(batch) and bodies else batch.chosen(which, bodies)

    def which(self, batch: StoredBatch, where: str) -> Sequence[int]:
        """The places, in the batch, of the events that a filter accepts."""
        if not where:
            return range(len(batch))
        wanted = self._filter(where)
        return [place for place, body in enumerate(batch.plain()) if wanted(body)]

    def _filter(self, where: str) -> Callable[[Any], Any]:
        found = self._filters.get(where)
        if found is None:
            if len(self._filters) >= FILTERS_MAX:
                del self._filters[next(iter(self._filters))]
            found = self._filters[where] = parse(where).predicate(now=time)
        return found

    async def _find(self, asked: Find) -> list[Known]:
        if asked.fresh:
            await self._desk.barrier()
        if asked.pattern in self.topics.bounds:
            names = [asked.pattern]
        else:
            names = [name for name in self.topics.bounds if matches(asked.pattern, name)]
        return [_known(name, topic, self.log) for name in names if (topic := self.topics.topic(name)) is not None]

    async def _who(self, asked: Who) -> list[Subscribed]:
        await self._desk.barrier()
        topics = self.topics
        wanted = [name for name in topics.bounds if matches(asked.pattern, name)]
        found = []
        for name, one in topics.subscriptions.known.items():
            offsets = {topic: one.offsets.get(topic, 0) for topic in wanted if one.wants(topic)}
            if offsets or any(overlap(asked.pattern, pattern) for pattern in one.patterns):
                found.append(Subscribed(name, one.patterns, offsets))
        return found


def _wake(watcher: asyncio.Future[None]) -> None:
    if not watcher.done():
        watcher.set_result(None)


def _known(name: str, topic: Topic, log: int) -> Known:
    bounds = (topic.first, topic.end, topic.latest, topic.kept_bytes)
    return Known(name, *bounds, topic.age_us, topic.size_bytes, log, topic.keyed)
