"""A member of a consumer group: the members of a group share the events of durable topics under one name.

A member joins, and says how many events it may hold. The group tells it which events it was assigned; the member
fetches them from the log, and hands them out one after another. Handled events are settled in the background, several
at a time. When a member leaves, or is silent for longer than its lease, the events that it held go to the others.

After any break the member joins again, and keeps the events that are still its own. The others are dropped before they
are handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....core.errors import BadInput, Closed, LeaseEnded, PluribusError, Refused
from ....core.ids import checked_name
from ....filters import parse
from ....group.host.requests import Given
from ....pubsub.consumer_groups import words
from ....pubsub.consumer_groups.machine import ConsumerGroup, Told
from ....pubsub.consumer_groups.words import ENDED, REASON_CHARS_MAX, REFUSED, SETTLES_MAX, Dead, Outcome, Standing
from ....pubsub.durable.batch import StoredBatch
from ....pubsub.durable.requests import FETCH_BYTES, Fetch, Fetched, Find, Known
from ....pubsub.event import Event
from ...machines.line import MachineLine
from .face import HELD_MAX, TRIES
from .follower import AUTO, DurableSubscription, Start, unpacked
from .groups_desk import PREFIX

if TYPE_CHECKING:
    from .durable import Durable

B = TypeVar("B")

LEASE_S = 10.0
"""Seconds for which a member may be silent before its events go to others."""
OPEN_S = 15.0
WAIT_S = 20.0
"""Seconds for which one question for events waits; asking renews the lease."""
PAUSE_S = 0.05
GAP_MAX = 64
"""Unwanted events between two wanted ones that are fetched with them."""

LATE = (
    "the event was settled before, or is not held any more and goes to another member: make what is done with it "
    "repeatable"
)

Key = tuple[str, int]
"""Topic and offset."""
_told = msgspec.msgpack.Decoder(Told).decode


class SharedSubscription(DurableSubscription[B]):
    """Made by ``bus.subscribe(topic, durable=NAME, shared=True)``; use it with ``async with`` and ``async for``.

    Each event goes to one member that has room for it. With ``commit="auto"`` an event counts as handled when the next
    one is asked for; with ``"manual"``, when it is committed: each event by itself, in any order. If a member dies, or
    gives an event back, the event goes to another member, with ``again`` set; after ``tries`` deliveries it becomes a
    dead letter.
    """

    def __init__(
        self,
        durable: Durable,
        patterns: Sequence[str],
        *,
        name: str,
        start: Start = "latest",
        where: Any = None,
        type: type[B] | None = None,
        commit: str = AUTO,
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> None:
        super().__init__(
            durable, patterns, name=name, start=start, where=where, type=type, commit=commit, max_bytes=max_bytes
        )
        if isinstance(tries, bool) or tries < 0:
            raise BadInput(
                f"tries={tries!r}: give the deliveries after which an event is a dead letter, or 0 for never"
            )
        if isinstance(ahead, bool) or not 1 <= ahead <= words.SETTLES_MAX:
            raise BadInput(f"ahead={ahead!r}: a member holds at least 1 event, and at most {words.SETTLES_MAX:,}")
        if self._where:
            parse(self._where)
        self._tries = tries
        self._ahead = ahead
        self._number = durable.new_number()
        self._line: MachineLine[Outcome] = MachineLine(group_name(name), durable, Outcome, True)
        self._after = 0
        self._hands: dict[Key, int] = {}
        """Events that this member was assigned and has not settled, with the numbers of their assignments."""
        self._fetched: list[Event[B]] = []
        self._something = asyncio.Event()
        self._acked: list[int] = []
        self._back: list[tuple[int, str]] = []
        self._leaving: dict[int, asyncio.Future[None] | None] = {}
        """Assignments whose settlement is not answered, and the futures that wait for the answer."""
        self._held: set[int] = set()
        """Events that this member held when it joined last."""
        self._known: set[int] = set()
        """Those of them that it was told of before: they are not taken again."""
        self._listening: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None

    # Joining.

    async def open(self) -> None:
        if self._begun:
            return
        joining = self._joining
        if joining is None:
            joining = self._joining = asyncio.ensure_future(self._begin())
        try:
            await asyncio.shield(joining)
        finally:
            if joining.done():
                self._joining = None

    async def _begin(self) -> None:
        await self._line.open(ConsumerGroup.kind, ConsumerGroup.version, OPEN_S)
        self._offsets = await self._starts_of_all()
        await self._join()
        self._begun = True
        self._listening = asyncio.ensure_future(self._listen())

    async def _starts_of_all(self) -> dict[str, int]:
        known: list[Known] = [one for pattern in self._patterns for one in await self._durable.ask(Find(pattern))]
        return {one.topic: await self._start_of(one) for one in known}

    async def _join(self) -> None:
        join = words.Join(
            self._number,
            self._number,
            int(LEASE_S * 1e6),
            self._patterns,
            self._where,
            self._tries,
            self._offsets,
            self._ahead,
            self._max_bytes,
        )
        outcome = await self._line.call(words.encode(join))
        if outcome.status == REFUSED:
            raise Refused(outcome.reason)
        self._epoch, self._after = outcome.number, 0
        self._held = set(outcome.held)
        self._hands = {key: thing for key, thing in self._hands.items() if thing in self._held}
        self._known = {*self._hands.values(), *self._leaving}
        self._ready[self._at :] = [event for event in self._ready[self._at :] if _key(event) in self._hands]
        self._fetched = [event for event in self._fetched if _key(event) in self._hands]

    # Events that come.

    async def _listen(self) -> None:
        while not self.closed:
            try:
                told = await self._line.given(self._number, self._epoch, self._after, wait_s=WAIT_S, timeout=None)
                if told.ended:
                    await self._join()
                    continue
                await self._take_given(told.given)
            except (Refused, BadInput) as error:
                self._fail(await self._why(error))
                return
            except PluribusError as error:
                if self._durable.closed:
                    self._fail(error)
                    return
                await asyncio.sleep(PAUSE_S)

    async def _why(self, error: PluribusError) -> PluribusError:
        """The error that a reader gets: if the group was removed, the error says so."""
        with suppress(PluribusError):
            if isinstance(error, BadInput) and all(one.name != self.name for one in await self._durable.groups()):
                return Refused(f"the consumer group {self.name!r} was removed: subscribe again to begin anew")
        return error

    def _fail(self, error: PluribusError) -> None:
        self._refused = error
        self._something.set()

    async def _take_given(self, given: Sequence[Given]) -> None:
        epoch = self._epoch
        new: dict[str, dict[int, Given]] = {}
        for one in given:
            told = _told(one.note)
            if one.thing not in self._known:
                new.setdefault(told.topic, {})[told.offset] = one
        events: list[tuple[int, Event[B]]] = []
        for topic, wanted in new.items():
            for event in await self._fetch(topic, wanted):
                assert event.offset is not None
                one = wanted[event.offset]
                event.again = one.delivery > 1
                events.append((one.thing, event))
        if epoch != self._epoch:
            return  # it joined again meanwhile: the group tells it again which events it holds
        for topic, wanted in new.items():
            for offset, one in wanted.items():
                self._hands[topic, offset] = one.thing
        here = {_key(event) for _, event in events}
        for key in [(topic, offset) for topic, wanted in new.items() for offset in wanted]:
            if key not in here:  # removed by retention, or of another type
                self._settle(key)
        self._after = max((one.number for one in given), default=self._after)
        self._fetched += [event for _, event in sorted(events, key=lambda found: found[0])]
        if self._fetched:
            self._something.set()

    async def _fetch(self, topic: str, wanted: dict[int, Given]) -> list[Event[B]]:
        """The events at these offsets; those that were removed by retention are left out."""
        kind, left = self._type, sorted(wanted)
        events: list[Event[B]] = []
        while left:
            stop = left[0] + 1
            for offset in left:
                if offset - stop > GAP_MAX:
                    break
                stop = offset + 1
            try:
                found: Fetched = await self._durable.ask(Fetch(topic, left[0], stop, self._max_bytes), None)
            except BadInput:
                known: list[Known] = await self._durable.ask(Find(topic), None)
                first = known[0].first if known else stop
                if first <= left[0]:
                    raise
                left = [offset for offset in left if offset >= first]
                continue
            for at, packed in found.pieces:
                some = unpacked(StoredBatch(packed, at).cut(left[0], stop))
                events += [event for event in some if event.offset in wanted and event.offset < found.next]
            left = [offset for offset in left if offset >= found.next]
        return events if kind is None else [event for event in events if isinstance(event.body, kind)]

    async def _more(self) -> None:
        await self.open()
        while not self._fetched:
            if self._refused is not None:
                raise self._refused
            if self.closed:
                raise Closed("this subscription is closed: subscribe again")
            self._something.clear()
            await self._something.wait()
        self._ready, self._fetched = self._fetched, []

    # Settling.

    def _handle(self, event: Event[B]) -> None:
        self._settle(_key(event))

    def _handle_all(self) -> None:
        for event in self._ready:
            self._settle(_key(event))

    def _note_read(self) -> None:
        """The events that were read are in ``_hands``."""

    def _settle(self, key: Key, waiter: asyncio.Future[None] | None = None) -> None:
        thing = self._hands.pop(key, None)
        if thing is not None:
            self._leaving[thing] = waiter
            self._acked.append(thing)
            self._settle_soon()

    def _settle_soon(self) -> None:
        if self._settling is None and not self.closed:
            self._settling = asyncio.ensure_future(self._settle_all())

    async def _settle_all(self) -> None:
        error: PluribusError | None = None
        try:
            await asyncio.sleep(0)  # what is settled in the same turn goes with it
            while self._acked or self._back:
                await self._settle_some()
        except PluribusError as found:
            error = found  # events that are not settled are delivered again
        finally:
            self._settling = None
            if error is not None:
                self._acked, self._back = [], []
                for thing in list(self._leaving):
                    self._left(thing, error)

    async def _settle_some(self) -> None:
        acked, self._acked = self._acked[:SETTLES_MAX], self._acked[SETTLES_MAX:]
        back, self._back = self._back[:SETTLES_MAX], self._back[SETTLES_MAX:]
        epoch = self._epoch
        outcome = await self._line.call(words.encode(words.Settle(self._number, epoch, _runs(acked), back)))
        if outcome.status != ENDED:
            for thing in (*acked, *(thing for thing, _ in back)):
                self._left(thing, None)
            return
        if epoch == self._epoch:
            await self._join()
        for thing in (*acked, *(thing for thing, _ in back)):
            if thing not in self._held:
                self._left(thing, LeaseEnded(LATE))
        self._acked = [thing for thing in acked if thing in self._held] + self._acked
        self._back = [one for one in back if one[0] in self._held] + self._back

    def _left(self, thing: int, error: PluribusError | None) -> None:
        waiter = self._leaving.pop(thing, None)
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def commit(self, event: Event[B] | None = None) -> None:
        """Settle this event, or every event that was read; returns when a majority of the voters have that on disk.
        ``LeaseEnded`` if this member does not hold the event any more: another one gets it."""
        loop = asyncio.get_running_loop()
        if event is None:
            waiting = {_key(one) for one in (*self._ready[self._at :], *self._fetched)}
            keys = [key for key in self._hands if key not in waiting]
        elif _key(event) in self._hands:
            keys = [_key(event)]
        else:
            raise LeaseEnded(LATE)
        waiters: list[asyncio.Future[None]] = []
        for key in keys:
            waiters.append(loop.create_future())
            self._settle(key, waiters[-1])
        for found in await asyncio.gather(*waiters, return_exceptions=True):
            if found is not None:
                raise found

    async def give_back(self, event: Event[B], reason: str = "given back") -> None:
        """Give this event to another member; that counts as a try. ``LeaseEnded`` if this member does not hold it."""
        thing = self._hands.pop(_key(event), None)
        if thing is None:
            raise LeaseEnded(LATE)
        waiter = self._leaving[thing] = asyncio.get_running_loop().create_future()
        self._back.append((thing, reason[:REASON_CHARS_MAX]))
        self._settle_soon()
        await waiter

    async def _settled(self) -> None:
        while self._settling is not None:
            await asyncio.wait([self._settling])

    # Dead letters.

    async def dead(self) -> list[Dead]:
        """Events of this group that were tried too often, the oldest first: topic, offset, tries and the reason. They
        stay in their topics; ``bus.log(topic)`` reads them there."""
        return (await self.standing()).dead

    async def redrive(self, most: int = 1_000) -> int:
        """Deliver the oldest dead letters again; returns how many. The command names them, so repeating it redrives
        none twice."""
        return await redriven(self._line, (await self.dead())[:most])

    async def standing(self) -> Standing:
        """The state of the group: members, the events they hold, the offset reached in each topic, dead letters."""
        await self.open()
        return msgspec.msgpack.decode(await self._line.inspect(b"?"), type=Standing)

    # The end.

    async def close(self) -> None:
        """Close. With ``commit="auto"`` events that were handed out count as handled. All others go to the other
        members."""
        if self.closed:
            return
        if self._auto and self._begun:
            for event in self._ready[: self._at]:
                self._settle(_key(event))
        try:
            with suppress(PluribusError):
                await self._settled()
        finally:  # also if the caller gives up: the lease of this member ends then
            self.abandon()
        if self._begun and not self._durable.closed:
            with suppress(PluribusError):
                await self._line.call(words.encode(words.Leave(self._number)), 5.0)

    def abandon(self) -> None:
        super().abandon()
        for task in (self._listening, self._settling, self._joining):
            if task is not None:
                task.cancel()
        for thing in list(self._leaving):
            self._left(thing, Closed("the subscription was closed before this was settled"))
        self._something.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._at and self._auto:
            event = self._ready[self._at - 1]
            with suppress(PluribusError):  # the event that was being handled is tried again
                await self.give_back(event, f"{type(error).__name__}: {error}")
        await super().__aexit__(kind, error, trace)


async def redriven(line: MachineLine[Outcome], dead: Sequence[Dead]) -> int:
    """Deliver these dead letters of a group again; returns how many of them there still were."""
    events = [(one.topic, one.offset) for one in dead]
    return (await line.call(words.encode(words.Redrive(len(events), events)))).number if events else 0


def group_name(name: str) -> str:
    """The name of a group's machine."""
    return PREFIX + checked_name(name, "the group")


def _key(event: Event[Any]) -> Key:
    assert event.offset is not None
    return event.topic, event.offset


def _runs(things: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for thing in sorted(things):
        if runs and runs[-1][0] + runs[-1][1] == thing:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((thing, 1))
    return runs
