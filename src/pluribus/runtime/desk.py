"""What a keeper does for those who ask: publish, read, follow, commit. One ``Desk`` serves the own process, members of
the bus and clients alike; ``ask`` is all there is.

Reading is from this keeper's own log, of what it has applied, which is committed; nothing is asked of others for it.
Only where it finds nothing it asks the leader whether that is all: what was acknowledged before a question is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any

import msgspec

from ..core.errors import BadInput, Closed, MalformedFrame, Overflow, PluribusError, Refused
from ..filters import parse
from ..group.host import words
from ..group.host.host import HOST, Host, Hosted
from ..group.host.machine import Machine
from ..group.host.tending import Tending, machines_of
from ..group.host.user import UserMachine
from ..group.host.words import Announce, Create
from ..group.keepers import Keeper
from ..group.keepers.leader import Leader
from ..group.keepers.voting import MachineStanding, Standing, standing_of
from ..group.log import StateMachine
from ..group.sessions import Command, Entry
from ..pubsub.durable import commands
from ..pubsub.durable.batch import Batch, checked, head_of, is_batch
from ..pubsub.durable.commands import Outcome
from ..pubsub.durable.machine import Topic, Topics
from ..pubsub.durable.reading import READ_BYTES_MAX, Piece, Reading
from ..pubsub.durable.requests import (
    Adopt,
    At,
    Call,
    Do,
    Fetch,
    Fetched,
    Find,
    Follow,
    Followed,
    Inspect,
    Known,
    Last,
    Lead,
    Open,
    Put,
    Request,
    Stand,
    Voting,
)
from ..pubsub.durable.many import AtMany, DoMany, FetchMany
from ..pubsub.topics import matches
from .manydesk import ManyDesk
from .publisher import Ended

MACHINE_FIELDS = ("machine", "kind", "version", "commands", "turn_bytes")
TOPICS = 1
"""The number of the machine that durable topics are: every log begins with it."""
WAITERS_MAX = 65_536
FILTERS_MAX = 256
TURN_BYTES = 512 << 10
"""What is read before others have a turn."""
LONG_AGO_BYTES = 8 << 20
"""What is read for a filter that finds nothing, before others have a turn."""


class Desk:
    """The machines on their keeper, and what is asked of durable topics, which are one of them."""

    def __init__(self, keeper: Keeper, codes: Mapping[str, type[Machine]] | None = None) -> None:
        self.keeper = keeper
        self.host = Host(keeper, {Topics.kind: Topics, **(codes or {})}, builtin=(Topics.kind,))
        self.host.on_applied = self._applied
        self.tending = Tending(self.host, keeper)
        self._many = ManyDesk(self)
        keeper.seat.state = self.host
        keeper.keep_rows(0)
        self._reading: Reading | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._filters: dict[str, Callable[[Any], Any]] = {}
        self._read_bytes = 0
        """Since others had a turn."""
        self._turns = 0
        self._closed = False
        self.member = ""
        """The name of the member whose keeper it is."""

    @property
    def topics(self) -> Topics:
        """The state of durable topics; another object after a snapshot was taken over."""
        hosted = self.host.named(Topics.kind)
        if hosted is None:
            raise Closed(f"this keeper {self.keeper.seat.halted or 'has no durable topics'}: ask another one")
        machine = hosted.machine
        assert isinstance(machine, Topics)
        return machine

    @property
    def reading(self) -> Reading:
        topics = self.topics
        if self._reading is None or self._reading.topics is not topics:
            self._reading = Reading(topics, self._rows, self._row)
        return self._reading

    def _rows(self, start: int, bytes_max: int) -> list[tuple[int, list[bytes]]]:
        return self.keeper.read_rows(start, bytes_max, TOPICS)

    def _row(self, at: int) -> tuple[bool, Sequence[bytes]]:
        machine, held = self.keeper.read_row(at)
        return machine == HOST, held

    def _applied(self) -> None:
        self.tending.applied()
        self._wake()

    def close(self) -> None:
        self._closed = True
        self.tending.stop()
        self._wake()

    def stats(self) -> dict[str, Any]:
        """What is on this keeper, for people."""
        host, leader = self.host, self.keeper.role
        turns = leader.turns if isinstance(leader, Leader) else {}
        told: dict[str, Any] = {
            "machines": machines_of(host, turns),
            "live_bytes": host.space.live,
            "dead_bytes": host.space.total - host.space.live,
        }
        if host.named(Topics.kind) is not None:
            topics = self.topics
            told |= {
                "topics": len(topics.topics),
                "subscriptions": len(topics.subscriptions.known),
                "sessions": len(host.streams),
                "staged": len(topics.stages),
            }
        return told

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Asking.

    async def ask(self, request: Request) -> Any:
        """Whatever the request asks for; errors of ours, each with its remedy."""
        if isinstance(request, Put):
            return await self.put(request.batches)
        if isinstance(request, Fetch):
            return await self._fetch(request)
        if isinstance(request, Follow):
            return await self._follow(request)
        if isinstance(request, Do):
            return await self._do(request.command)
        if isinstance(request, Find):
            return await self._find(request)
        if isinstance(request, At):
            await self.barrier()
            return self.reading.offset_at(request.topic, request.time_us)
        if isinstance(request, Call):
            return await self._call(request)
        if isinstance(request, Inspect):
            return await self._query(request)
        if isinstance(request, Open):
            return await self._open(request)
        if isinstance(request, FetchMany | DoMany | AtMany):
            return await self._many.ask(request)
        if isinstance(request, Last):
            await self.barrier()
            return self.topics.stages.last(request.writer, request.query)
        return await self._tended(request)

    def _standing(self) -> Standing:
        told, seat = self.stats(), self.keeper.seat
        machines = [MachineStanding(*(one[field] for field in MACHINE_FIELDS)) for one in told["machines"]]
        return msgspec.structs.replace(
            standing_of(self.keeper, self.member),
            machines=machines,
            live_bytes=told["live_bytes"],
            dead_bytes=told["dead_bytes"],
            snapshot_s=-1.0 if seat.kept_at is None else round(seat.clock.now() - seat.kept_at, 3),
        )

    async def _tended(self, request: Request) -> Any:
        """What people who look after keepers want of this one."""
        keeper = self.keeper
        if isinstance(request, Stand):
            return self._standing()
        if isinstance(request, Voting):
            await self._placed(lambda done: keeper.set_voter(request.keeper, request.votes, done))
        elif isinstance(request, Lead):
            keeper.force(request.cluster, request.epoch)
        elif isinstance(request, Adopt):
            keeper.adopt(request.old, request.cluster, request.epoch, request.end)
        else:
            raise BadInput(f"a keeper is not asked for {type(request).__name__}: ask a member")
        return None

    # Users' machines.

    async def _open(self, asked: Open) -> int:
        """Only what is not there in that version costs a command."""
        found = self.host.named(asked.name)
        if found is not None and found.kind == asked.kind and found.version >= asked.version:
            return found.number
        await self.announced()
        (outcome,) = await self.ordered(HOST, [words.encode(Create(asked.name, asked.kind, asked.version))])
        if outcome.status == words.REFUSED:
            raise Refused(outcome.reason)
        return int(outcome.number)

    async def announced(self) -> None:
        """What this process has the code of is known to all keepers."""
        if dict(self.host.announced(self.keeper.id)) != self.host.versions():
            await self.ordered(HOST, [words.encode(Announce(self.keeper.id, self.host.versions()))])

    async def _call(self, asked: Call) -> Entry:
        if Command.decoded(asked.command) is None:
            raise MalformedFrame("what was called is no command with an identity")
        (entry,) = await self.ordered((await self._hosted(asked.name)).number, [asked.command])
        if not isinstance(entry, Entry):
            raise Refused(f"the machine {asked.name!r} was removed: open it again")
        return entry

    async def _query(self, asked: Inspect) -> bytes:
        if not asked.stale:
            await self.barrier()
        hosted = await self._hosted(asked.name)
        if not asked.question:
            return b""
        query = getattr(getattr(hosted.machine, "machine", None), "query", None)
        if query is None:
            raise BadInput(f"the machine {asked.name!r} has no method query(bytes) -> bytes: add one, or use call")
        try:
            answer = query(asked.question)
        except Exception as error:  # noqa: BLE001 - it is the asker's
            raise Refused(f"{asked.name!r} refused the question: {type(error).__name__}: {error}") from None
        return bytes(answer)

    async def _hosted(self, name: str) -> Hosted:
        found = self.host.named(name)
        if found is None:  # or perhaps this keeper is behind
            await self.barrier()
            found = self.host.named(name)
        if found is None or not isinstance(found.machine, UserMachine):
            raise BadInput(f"there is no replica {name!r} on the keepers: open it with bus.replica(..., durable=True)")
        return found

    def machine_of(self, name: str) -> StateMachine | None:
        """A user's machine as this keeper has it."""
        found = self.host.named(name)
        return found.machine.machine if found is not None and isinstance(found.machine, UserMachine) else None

    async def ordered(self, machine: int, held: Sequence[bytes]) -> list[Any]:
        """Have commands of one machine ordered, and what became of each."""
        first = await self._placed(lambda done: self.keeper.submit_many(held, done, machine))
        return self._outcomes_of(first, len(held))

    # Durable topics.

    async def put(self, batches: Sequence[bytes]) -> list[Outcome]:
        for packed in batches:
            if not is_batch(packed):
                raise MalformedFrame("what was put is no batch of events")
            checked(packed)
        return await self.submit(batches)

    async def submit(self, held: Sequence[bytes]) -> list[Outcome]:
        """Have commands ordered, and what became of each."""
        return await self.ordered(TOPICS, held)

    def submit_now(self, held: Sequence[bytes], answered: Ended) -> None:
        """The same for one who is called back, perhaps before this returns."""

        def done(index: int, error: PluribusError | None) -> None:
            outcomes: list[Outcome] = []
            if error is None:
                try:
                    outcomes = self._outcomes_of(index, len(held))
                except Overflow as forgotten:
                    error = forgotten
            answered(outcomes, error)

        try:
            self.keeper.submit_many(held, done, TOPICS)
        except PluribusError as error:
            answered([], error)

    def _outcomes_of(self, first: int, count: int) -> list[Any]:
        outcomes = self.host.take_outcomes(first, count)
        if outcomes is None:
            raise Overflow("too much was done at once to remember what became of it: ask again")
        return outcomes

    async def _do(self, command: bytes) -> Outcome:
        found = commands.command_of(command)
        if isinstance(found, commands.Stage):
            checked(found.packed)
        return (await self.submit([command]))[0]

    async def barrier(self) -> None:
        await self._placed(self.keeper.barrier)

    async def _placed(self, ask: Callable[[Callable[[int, PluribusError | None], None]], None]) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(index: int, error: PluribusError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(index)
                else:
                    future.set_exception(error)

        ask(done)
        return await future

    # Reading.

    @property
    def log(self) -> int:
        """Which log this is: the number that its first keepers gave it."""
        return self.keeper.ledger.meta.cluster

    async def _fetch(self, asked: Fetch) -> Fetched:
        start, stop, fresh = asked.start, asked.stop, False
        until = asyncio.get_running_loop().time() + asked.wait_s
        while True:
            try:
                pieces, start = await self._read_in_turns(asked, start)
            except BadInput:  # or perhaps this keeper is behind
                if fresh:
                    raise
                await self.barrier()
                fresh = True
                continue
            topic = self.topics.topic(asked.topic)
            first, end = topic.bounds if topic is not None else (0, 0)
            if pieces or start >= stop:
                return Fetched(pieces, start, first, end, self.log)
            if start < end:
                await asyncio.sleep(0)
            elif not fresh:  # nothing: is that so, or is this keeper behind?
                await self.barrier()
                fresh = True
            elif not await self._changed(until):
                return Fetched(pieces, start, first, end, self.log)

    async def _read_in_turns(self, asked: Fetch, start: int) -> tuple[list[Piece], int]:
        """As much as is asked for, a little at a time, so that others have their turns. They also have them when
        somebody asks again and again for little: what is here is read without waiting for anything."""
        pieces: list[Piece] = []
        left = min(max(asked.bytes_max, 1), READ_BYTES_MAX)  # with none at all it would never come to an end
        while True:
            if self._read_bytes >= TURN_BYTES:
                self._read_bytes = 0
                await asyncio.sleep(0)
            some, at = self._read(asked.topic, start, asked.stop, min(left, TURN_BYTES), asked.where, asked.bodies)
            pieces += some
            left -= sum(len(packed) for _, packed in some)
            if left <= 0 or at >= asked.stop or not some:
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
            for name in (*names[at:], *names[:at]):  # each is the first one some time: a busy one fills the answer
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
            elif not await self._changed(until):
                return Followed(pieces, offsets)

    def _read(
        self, name: str, start: int, stop: int, bytes_max: int, where: str, bodies: bool
    ) -> tuple[list[Piece], int]:
        """Packed batches, and the offset behind the last event that was looked at."""
        if not where and bodies:
            pieces = self.reading.read(name, start, stop, bytes_max)
            self._read_bytes += sum(len(packed) for _, packed in pieces)
            return pieces, max(start, min(stop, _end(pieces[-1]))) if pieces else start
        kept: list[Piece] = []
        looked, size = 0, 0
        while start < stop and size < bytes_max and looked < LONG_AGO_BYTES:
            pieces = self.reading.read(name, start, stop, min(bytes_max, 256 << 10))
            if not pieces:
                break
            for offset, packed in pieces:
                looked += len(packed)
                chosen = self.chosen(Batch(packed, offset).cut(start, stop), where, bodies)
                start = min(_end((offset, packed)), stop)
                if chosen is not None:
                    kept.append((offset, chosen.data))
                    size += len(chosen.data)
        self._read_bytes += looked
        return kept, start

    def chosen(self, batch: Batch, where: str, bodies: bool) -> Batch | None:
        which: Sequence[int] = range(len(batch))
        if where:
            wanted = self._filter(where)
            which = [place for place, body in enumerate(batch.plain()) if wanted(body)]
        if not which:
            return None
        return batch if len(which) == len(batch) and bodies else batch.chosen(which, bodies)

    def _filter(self, where: str) -> Callable[[Any], Any]:
        found = self._filters.get(where)
        if found is None:
            if len(self._filters) >= FILTERS_MAX:
                del self._filters[next(iter(self._filters))]
            found = self._filters[where] = parse(where).predicate(now=time)
        return found

    async def _find(self, asked: Find) -> list[Known]:
        if asked.fresh:
            await self.barrier()
        if asked.pattern in self.topics.bounds:
            names = [asked.pattern]
        else:
            names = [name for name in self.topics.bounds if matches(asked.pattern, name)]
        return [_known(name, topic, self.log) for name in names if (topic := self.topics.topic(name)) is not None]

    async def _changed(self, until: float) -> bool:
        """Whether something was committed before that time."""
        loop = asyncio.get_running_loop()
        if self._closed:
            raise Closed("this keeper was stopped: ask another one")
        if loop.time() >= until:
            return False
        if len(self._waiters) >= WAITERS_MAX:
            raise Overflow(f"{WAITERS_MAX:,} readers wait for this keeper: ask another one")
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_at(until, _end_wait, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _end(piece: Piece) -> int:
    offset, packed = piece
    return offset + head_of(packed).events


def _known(name: str, topic: Topic, log: int) -> Known:
    bounds = (topic.first, topic.end, topic.latest, topic.kept_bytes)
    return Known(name, *bounds, topic.age_us, topic.size_bytes, log)
