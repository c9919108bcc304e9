"""Durable topics as an application has them: publish, subscribe, read the log. The same on a member and on a client.

``Durable`` asks keepers through a ``KeeperLine``: the keeper of this process, one that is a member of the same bus, or
one behind a TCP connection. A line may break; the request is then repeated, to another keeper if need be. Every request
may be repeated: batches have identities, and commands name the whole state that they ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeVar

from ...._speed.packing import of_one_topic
from ....core.errors import (
    BadInput,
    Closed,
    Damaged,
    NoKeeper,
    NoMembers,
    NotPrimary,
    Overflow,
    PluribusError,
    Refused,
    Uncertain,
    Unreachable,
)
from ....core.ids import MessageId
from ....pubsub.consumer_groups.words import Outcome as GroupOutcome
from ....pubsub.durable import commands
from ....pubsub.durable.batch import StoredBatch, pack
from ....pubsub.durable.commands import REFUSED, Outcome
from ....pubsub.durable.requests import (
    FETCH_BYTES,
    At,
    Do,
    Fetch,
    Fetched,
    Find,
    GroupKnown,
    Groups,
    Known,
    Last,
    Put,
    RemoveGroup,
    Subscribed,
    Who,
)
from ....pubsub.durable.stages import KEEP_WRITER_S
from ....pubsub.event import with_key
from ....pubsub.topics import checked_topic, levels_of
from ....wire.bodies import BYTES, encode_body
from ...machines.line import MachineLine
from .face import HELD_MAX, TRIES
from .follower import DurableSubscription, Mailbox, Start, unpacked
from .publisher import PAUSE_S, PAUSE_S_MAX, Confirmation, Ended, Publisher
from .shared import SharedSubscription, group_name, redriven

B = TypeVar("B")

ASK_S = 15.0
WAITING_BYTES_MAX = 64 << 20
"""Events that are published and not confirmed; a further event waits, or raises ``Overflow``."""
FOR_EVER = 1 << 62
NOWHERE = "pluribus/nowhere"
"""A topic that keepers are asked for, to learn whether there are keepers."""
LEASE_S = 3_600.0
RETAIN_MAX = 1e12
"""The largest limits of retention, in seconds or bytes."""

TRANSIENT = (Closed, Damaged, NotPrimary, Overflow, Uncertain, Unreachable, NoMembers)
"""Errors after which the request is repeated, perhaps to another keeper."""
DOUBTFUL = (Closed, Uncertain, Unreachable)
"""Errors after which the request may have been done."""


class KeeperLine(Protocol):
    """A way to a keeper."""

    async def ask(self, request: Any) -> Any:
        """One attempt; raises an error of ``TRANSIENT`` if another attempt may succeed."""

    def ask_now(self, put: Put, answered: Ended) -> bool:
        """Ask a keeper in this process; false if there is none, and nothing was asked."""


class Durable:
    """``sender`` names the publisher, as readers see it."""

    def __init__(self, line: KeeperLine, sender: int, new_number: Callable[[], int], wall: Callable[[], float]) -> None:
        self._line = line
        self._sender = sender
        self._new_number = new_number
        self.wall = wall
        self._publishers: dict[str, Publisher] = {}
        self._rooms: list[asyncio.Future[None]] = []
        self._subscriptions: dict[DurableSubscription[Any], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""
        self._kept = False
        """True if a keeper has ever answered."""
        self._closed = False

    def new_number(self) -> int:
        """A random number for a session or a consumer, which no other one draws."""
        return self._new_number()

    @property
    def closed(self) -> bool:
        return self._closed

    # Asking.

    async def ask(self, request: Any, timeout: float | None = ASK_S) -> Any:
        """Ask until there is an answer. After ``timeout`` seconds the last error is raised, ``NoKeeper`` at once. If
        any attempt may have done the request, that is ``Uncertain``, whatever the last attempt raised."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        pause_s = PAUSE_S
        doubt = ""
        while True:
            try:
                return await self._line.ask(request)
            except NoKeeper as error:
                if timeout is not None:
                    _raise(error, doubt)
            except TRANSIENT as error:
                if self._closed or (until is not None and loop.time() + pause_s > until):
                    _raise(error, doubt)
                if isinstance(error, DOUBTFUL):
                    doubt = str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def do(self, command: commands.Command, timeout: float | None = ASK_S) -> Outcome:
        """Have a command done; ``Refused`` says why it was refused."""
        outcome: Outcome = await self.ask(Do(commands.encode(command)), timeout)
        if outcome.status == REFUSED:
            raise Refused(outcome.reason)
        return outcome

    # Publishing.

    async def publish(
        self,
        topic: str,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        id: MessageId | None = None,
    ) -> MessageId:
        """Returns when a majority of the voters have the event on disk. ``Uncertain(id)``: perhaps they have, perhaps
        not; publish it again with that ``id``, and the topic has it once. ``NoKeeper``: there is no keeper, and nothing
        was published; a ``timeout`` gives a keeper time to come."""
        if not self._kept:
            timeout = await self._keeper(timeout)
        if id is not None:
            return await self._again(topic, body, headers, parent, timeout, id)
        publisher = await self._room(topic)
        id = publisher.add(*_encoded(body), headers, parent)
        await self._confirmed(publisher.confirmed(), id, timeout)
        return id

    async def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        keys: Sequence[str | None] | None = None,
    ) -> Sequence[MessageId]:
        """Publish pairs of a topic and a body; returns when all of them are on disk. They share synchronisations of the
        disk. ``keys`` are the keys of the events, one each."""
        pairs = events if isinstance(events, list) else list(events)
        if not self._kept and pairs:
            timeout = await self._keeper(timeout)
        plain = of_one_topic(pairs) if headers is None and keys is None else None
        if plain is not None:
            topic, bodies, size = plain
            run, several = (await self._room(topic)).add_bytes(bodies, size)
            if len(several) == 1:  # the usual case, without one more coroutine
                await self._confirmed(several[0], run[0], timeout)
            else:
                await self._all_confirmed(dict.fromkeys(several, run[0]), timeout)
            return run
        ids: list[MessageId] = []
        waiting: dict[Confirmation, MessageId] = {}
        for place, (topic, body) in enumerate(pairs):
            known = self._publishers.get(topic)
            roomy = known is not None and known.waiting_bytes <= WAITING_BYTES_MAX
            publisher = known if known is not None and roomy else await self._room(topic)
            kind, encoded = (BYTES, body) if type(body) is bytes else _encoded(body)
            id = publisher.add(kind, encoded, headers if keys is None else with_key(headers, keys[place]))
            ids.append(id)
            waiting.setdefault(publisher.confirmed(), id)
        await self._all_confirmed(waiting, timeout)
        return ids

    async def _keeper(self, timeout: float | None) -> float | None:
        """Returns when there is a keeper, with the remaining seconds of ``timeout``; ``NoKeeper`` if there is none in
        that time, or at once without ``timeout``. This is asked before anything is published, so that ``NoKeeper``
        means that nothing was."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        pause_s = PAUSE_S
        while not self._kept:
            try:
                async with asyncio.timeout_at(until):
                    await self._line.ask(Find(NOWHERE))
            except NoKeeper:
                if until is None or loop.time() + pause_s > until:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                continue
            except TimeoutError:
                raise NoKeeper(
                    f"no keeper answered in {timeout:g} s, and nothing was published: give it more time, or start one "
                    "with `pluribus keep --store PATH`"
                ) from None
            except TRANSIENT:
                break  # there are keepers: publishing will report the error
            self._kept = True
        return None if until is None else max(until - loop.time(), 0.0)

    async def _all_confirmed(self, waiting: Mapping[Confirmation, MessageId], timeout: float | None) -> None:
        """Returns when all are confirmed; ``timeout`` is for all of them together."""
        if timeout is None or len(waiting) == 1:
            for done, id in waiting.items():
                await self._confirmed(done, id, timeout)
            return
        until = asyncio.get_running_loop().time() + timeout
        for done, id in waiting.items():
            try:
                async with asyncio.timeout_at(until):
                    await self._confirmed(done, id, None)
            except TimeoutError:
                raise Uncertain(f"no keeper confirmed all in {timeout:g} s: publish it again with id=", id) from None

    def publish_soon(
        self, topic: str, body: Any, *, headers: Mapping[str, Any] | None = None, parent: MessageId | None = None
    ) -> MessageId:
        """Publish without waiting; ``await flush()`` waits for all. ``Overflow`` if too many events wait already."""
        self._check_open()
        publisher = self._publisher(topic)
        if publisher.waiting_bytes > WAITING_BYTES_MAX:
            raise Overflow(f"{publisher.waiting_bytes:,} bytes wait for the keepers: await bus.flush()")
        id = publisher.add(*_encoded(body), headers, parent)
        publisher.confirmed().soon = True
        return id

    async def flush(self) -> None:
        """Returns when every published event is on disk; ``Uncertain`` with the first that may not be."""
        for publisher in list(self._publishers.values()):
            await publisher.flush()

    async def drain(self, timeout: float) -> None:
        """Returns when every event of ``publish_soon`` is on disk; ``Uncertain`` with the first that may not be."""
        try:
            async with asyncio.timeout(timeout):
                for publisher in [publisher for publisher in self._publishers.values() if publisher.owes]:
                    await publisher.flush()
        except TimeoutError:
            for publisher in self._publishers.values():
                publisher.close()
            await self.flush()

    async def _confirmed(self, done: Confirmation, id: MessageId, timeout: float | None) -> None:
        try:
            if timeout is None:
                await done.waiter()
            else:
                async with asyncio.timeout(timeout):
                    await done.waiter()
        except TimeoutError:
            raise Uncertain(f"no keeper confirmed it in {timeout:g} s: publish it again with id=", id) from None
        except Uncertain as error:
            raise Uncertain(str(error), id) from None

    async def _again(
        self,
        topic: str,
        body: Any,
        headers: Mapping[str, Any] | None,
        parent: MessageId | None,
        timeout: float | None,
        id: MessageId,
    ) -> MessageId:
        session, number = id
        if number < 1:
            raise BadInput(f"id={tuple(id)!r} was never given to an event: their numbers begin with 1")
        done = self._publisher(topic).pending(id)
        if done is not None:
            await self._confirmed(done, id, timeout)
            return id
        kind, encoded = _encoded(body)
        time_us = int(self.wall() * 1e6)
        packed = pack(topic, session, number, self._sender, kind, time_us, [encoded], [dict(headers or {})], [parent])
        try:
            (outcome,) = await self.ask(Put([packed]), ASK_S if timeout is None else timeout)
        except TRANSIENT as error:
            raise Uncertain(f"{error}; publish it again with id=", id) from None
        if outcome.status == REFUSED:
            raise Refused(f"{outcome.reason}: publish the ones before it again first, in their order")
        return id

    def _publisher(self, topic: str) -> Publisher:
        publisher = self._publishers.get(topic)
        if publisher is None:
            self._check_open()
            checked_topic(topic)
            line = self._line
            publisher = Publisher(topic, self._sender, self._new_number, line.ask, line.ask_now, self.wall, self._freed)
            self._publishers[topic] = publisher
        return publisher

    async def _room(self, topic: str) -> Publisher:
        publisher = self._publisher(topic)
        while publisher.waiting_bytes > WAITING_BYTES_MAX:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._rooms.append(room)
            await room
        self._check_open()
        return publisher

    def _freed(self) -> None:
        if self._rooms:
            rooms, self._rooms = self._rooms, []
            for room in rooms:
                if not room.done():
                    room.set_result(None)

    # Subscribing and reading.

    def subscribe(
        self,
        pattern: str | Sequence[str],
        *,
        where: Any = None,
        type: type[B] | None = None,
        name: str | None = None,
        start: Start = "latest",
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        shared: bool = False,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> DurableSubscription[B]:
        """Subscribe to durable topics; see ``DurableSubscription``, and with ``shared``, ``SharedSubscription``."""
        self._check_open()
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        for one in patterns:
            levels_of(one)
        options: dict[str, Any] = {"start": start, "where": where, "commit": commit, "max_bytes": max_bytes}
        subscription: DurableSubscription[B]
        if shared:
            if name is None:
                raise BadInput("shared=True shares what is read under a name: give durable=NAME with it")
            subscription = SharedSubscription(self, patterns, name=name, type=type, tries=tries, ahead=ahead, **options)
        else:
            subscription = DurableSubscription(self, patterns, name=name, type=type, **options)
        self._subscriptions[subscription] = None
        return subscription

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """A mailbox, which keeps events for a subscriber that may be away: events of these topics, and events posted to
        it."""
        self._check_open()
        watched = [topics] if isinstance(topics, str) else list(topics)
        for one in watched:
            levels_of(one)
        box = Mailbox(self, checked_topic(name), watched)
        self._subscriptions[box] = None
        return box

    def forgotten(self, subscription: DurableSubscription[Any]) -> None:
        self._subscriptions.pop(subscription, None)

    async def unsubscribe(self, name: str) -> None:
        """Forget a durable subscription and its committed offsets."""
        await self.do(commands.Detach(name))

    def log(self, topic: str) -> Log:
        """The log of one topic."""
        self._check_open()
        return Log(self, checked_topic(topic))

    async def topics(self, pattern: str = "#") -> list[Known]:
        """Durable topics that match, with their first offset, end, latest time and bytes."""
        found: list[Known] = await self.ask(Find(pattern))
        return found

    async def groups(self) -> list[GroupKnown]:
        """Consumer groups: names, topics, members, events that are not settled, dead letters."""
        found: list[GroupKnown] = await self.ask(Groups())
        return found

    async def redrive_group(self, name: str, most: int = 1_000) -> int:
        """Deliver the oldest dead letters of a consumer group again; returns how many. The group need not have
        members."""
        known = {one.name: one for one in await self.groups()}
        if name not in known:
            raise BadInput(f"there is no consumer group {name!r}: there are {', '.join(known) or 'none'}")
        return await redriven(MachineLine(group_name(name), self, GroupOutcome, True), known[name].dead[:most])

    async def remove_group(self, name: str) -> None:
        """Forget a consumer group, with its committed offsets and its dead letters. The events stay in their topics. A
        group that still has members is refused: close them first; a member that died is gone after 10 s."""
        known = [one.name for one in await self.groups()]
        if name not in known:
            raise BadInput(f"there is no consumer group {name!r}: there are {', '.join(known) or 'none'}")
        outcome: Outcome = await self.ask(RemoveGroup(name), ASK_S)
        if outcome.status == REFUSED:
            raise Refused(outcome.reason)

    async def retain(self, topic: str, *, age: float = 0.0, size: int = 0, keys: str | None = None) -> None:
        """Keep events of the last ``age`` seconds, and about ``size`` bytes of them; 0 is no limit. Older events are
        removed soon, in larger steps. ``keys="last"``: of the events with one ``key``, the last one stays; earlier ones
        are removed some time later, and the remaining events keep their offsets. Each call replaces all settings of the
        one before."""
        for name, given in (("age", age), ("size", size)):
            if isinstance(given, bool) or not isinstance(given, int | float):
                raise BadInput(
                    f"{name}={given!r} is no number: give age in seconds (86_400 is a day) and size in bytes"
                )
            if not 0 <= given <= RETAIN_MAX:
                raise BadInput(f"retention by {name}={given:g}: use 0 for no limit, or more, up to {RETAIN_MAX:g}")
        if keys not in (None, "last"):
            raise BadInput(f'keys={keys!r}: use "last", which keeps the last event of each key, or leave it out')
        if keys is not None and size:
            raise BadInput("a topic is bounded by its size or by its keys: leave out size= or keys=")
        await self.do(commands.Retain(checked_topic(topic), int(age * 1e6), int(size), keys is not None))

    async def subscribers(self, pattern: str = "#") -> list[Subscribed]:
        """Durable subscriptions and mailboxes of matching topics, with their committed offsets."""
        levels_of(pattern)
        found: list[Subscribed] = await self.ask(Who(pattern))
        return found

    async def delete(self, topic: str) -> int:
        """Remove every event that a topic has now; returns how many there were. Offsets are never reused: the topic
        goes on at the next one."""
        for known in await self.ask(Find(checked_topic(topic))):
            await self.do(commands.Forget(topic, known.end))
            return int(known.end - known.first)
        return 0

    # Writers that commit batches (for Spark's sink).

    async def stage(
        self,
        writer: str,
        batch: int,
        attempt: str,
        part: int,
        packed: bytes,
        lease: float = LEASE_S,
        *,
        query: str = "",
        anew: bool = False,
    ) -> Outcome:
        """Write a part of a batch; the part is invisible before ``commit_batch``."""
        at = int(self.wall() * 1e6)
        return await self.do(commands.Stage(writer, batch, attempt, part, at, int(lease * 1e6), packed, query, anew))

    async def commit_batch(
        self,
        writer: str,
        batch: int,
        attempts: Sequence[tuple[str, int]],
        *,
        query: str = "",
        anew: bool = False,
        keep: float = KEEP_WRITER_S,
    ) -> Outcome:
        """Make the staged parts of these attempts visible, all at once; ``attempts`` gives the number of parts of each.
        It takes effect once, however often it is repeated.

        The number of the batch is remembered for ``keep`` seconds. The writer belongs to ``query``: if another query
        has used its name, ``Refused``, unless this one begins ``anew``.
        """
        at, keep_us = int(self.wall() * 1e6), int(keep * 1e6)
        return await self.do(commands.Publish(writer, batch, list(attempts), query, anew, at, keep_us))

    async def abort_batch(self, writer: str, batch: int, *, query: str = "") -> None:
        """Drop the staged parts of a batch."""
        await self.do(commands.Drop(0, writer, batch, query))

    async def last_batch(self, writer: str, *, query: str = "") -> int:
        """The last batch that a writer committed; -1 if none."""
        found: int = await self.ask(Last(writer, query))
        return found

    # The end.

    async def close(self) -> None:
        for subscription in list(self._subscriptions):
            await subscription.close()
        self.abandon()

    def abandon(self) -> None:
        self._closed = True
        for publisher in self._publishers.values():
            publisher.close()
        for subscription in list(self._subscriptions):
            subscription.abandon()
        self._freed()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the bus is closed: connect again")


class Log:
    """One durable topic, to be read by offset. Made by ``bus.log(topic)``."""

    def __init__(self, durable: Durable, topic: str) -> None:
        self._durable = durable
        self.topic = topic

    async def offsets(self) -> tuple[int, int]:
        """The first offset that is kept, and the one that the next event will have."""
        found: list[Known] = await self._durable.ask(Find(self.topic))
        return (found[0].first, found[0].end) if found else (0, 0)

    async def offset_at(self, time: float | datetime) -> int:
        """The first offset whose event has this time (seconds since 1970, or a datetime) or a later one."""
        found: int = await self._durable.ask(At(self.topic, _microseconds(time)))
        return found

    async def fetch(
        self,
        start: int,
        stop: int = FOR_EVER,
        max_bytes: int = FETCH_BYTES,
        where: str | None = None,
        bodies: bool = True,
        wait: float = 0.0,
    ) -> Fetched:
        """One answer of a keeper: packed batches, and where to go on."""
        if not 0 <= start <= stop:
            upto = "the end" if stop == FOR_EVER else stop
            raise BadInput(f"offsets from {start} to {upto}: start with 0 or more, and not behind the stop")
        found: Fetched = await self._durable.ask(Fetch(self.topic, start, stop, max_bytes, wait, where or "", bodies))
        return found

    async def read(
        self,
        start: int = 0,
        stop: int | None = None,
        max_bytes: int = FETCH_BYTES,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Batches:
        """The events from ``start`` up to ``stop``, about ``max_bytes`` of them: packed batches that unpack to events.

        ``next`` of the result is the offset at which to go on. ``where`` is a filter on bodies that the keeper applies;
        ``columns`` without ``"body"`` leaves bodies out. ``BadInput`` names the first offset that is kept, if ``start``
        was removed by retention.
        """
        stop = FOR_EVER if stop is None else stop
        found = await self.fetch(start, stop, max_bytes, where, columns is None or "body" in columns)
        batches = [StoredBatch(packed, offset).cut(start, stop) for offset, packed in found.pieces]
        return Batches(batches, found.next, found.first, found.end)

    def __repr__(self) -> str:
        return f"<log of {self.topic!r}>"


class Batches(list[StoredBatch]):
    """The result of a read: packed batches, whose columns numpy and Arrow read without a copy; or ``events()``."""

    def __init__(self, batches: list[StoredBatch], next: int, first: int, end: int) -> None:
        super().__init__(batches)
        self.next = next
        """The offset at which to read on."""
        self.first = first
        self.end = end

    def events(self) -> list[Any]:
        return [event for batch in self for event in unpacked(batch)]


def _raise(error: PluribusError, doubt: str) -> NoReturn:
    """Raise the error. ``doubt`` is the reason why an earlier attempt may have done the request."""
    if doubt and not isinstance(error, DOUBTFUL):
        raise Uncertain(f"{doubt}; asked again: {error}") from None
    raise error


def _encoded(body: Any) -> tuple[Any, bytes]:
    return (BYTES, body) if type(body) is bytes else encode_body(body)


def _microseconds(time: float | datetime) -> int:
    return int((time.timestamp() if isinstance(time, datetime) else time) * 1e6)
