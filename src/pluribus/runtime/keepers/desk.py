"""The desk of a keeper: answers questions of the own process, of members of the bus, and of clients, all by ``ask``.

The desk itself answers questions about machines and about the keeper. Styles with questions of their own add *parts*
(``TopicsDesk`` is one). A part answers from what this keeper has applied; the desk gives it a way to place commands, a
barrier, and a way to wait for a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ...core.errors import BadInput, Closed, MalformedFrame, Overflow, PluribusError, Refused
from ...group.host import words
from ...group.host.host import HOST, Host, Hosted
from ...group.host.machine import Machine
from ...group.host.requests import Await, Call, Examine, Fetch, Inspect, Make, Open, Order, Resolve, Transact
from ...group.host.tending import Tending, machines_of
from ...group.host.user import UserMachine
from ...group.host.words import Announce, Create
from ...group.keepers import Keeper
from ...group.keepers.leader import Leader
from ...group.keepers.operations import Adopt, Lead, Stand, Voting
from ...group.keepers.voting import MachineStanding, Standing, standing_of
from ...group.log import StateMachine
from ...group.sessions import Command, SessionEntry
from ...pubsub.consumer_groups.machine import ConsumerGroup
from ...pubsub.durable.machine import TopicsMachine
from ..machines.desk import MachineDesk
from ..styles.topics.compacting import CompactingDesk
from ..styles.topics.desk import TopicsDesk
from ..styles.topics.groups_desk import GroupsDesk
from ..styles.topics.many_desk import ManyDesk

MACHINE_FIELDS = ("machine", "kind", "version", "commands", "turn_bytes")
WAITERS_MAX = 65_536
CODE_S = 3.0
"""For a voter that is there to say which code it has."""


class DeskPart(Protocol):
    """What a style adds to the desk."""

    def questions(self) -> Mapping[type, Callable[[Any], Awaitable[Any]]]: ...

    def stats(self) -> dict[str, Any]: ...


class KeeperDesk:
    """The machines on one keeper, and the questions that it answers."""

    def __init__(self, keeper: Keeper, codes: Mapping[str, type[Machine]] | None = None) -> None:
        self.keeper = keeper
        shipped: dict[str, type[Machine]] = {TopicsMachine.kind: TopicsMachine, ConsumerGroup.kind: ConsumerGroup}
        self.host = Host(keeper, {**shipped, **(codes or {})}, builtin=(TopicsMachine.kind,))
        self.host.on_applied = self._applied
        self.tending = Tending(self.host, keeper)
        self.machines = MachineDesk(self.host, keeper, self.announced, keeper.alive)
        keeper.seat.state = self.host
        keeper.keep_rows(0)
        self.of_topics = TopicsDesk(self)
        self.host.on_restored = self._restored
        self.groups = GroupsDesk(self, self.of_topics)
        self.compacting = CompactingDesk(self, self.of_topics)
        self.tending.also = self._led
        self._parts: list[DeskPart] = [self.of_topics, ManyDesk(self.of_topics), self.groups]
        self._questions: dict[type, Callable[[Any], Awaitable[Any]]] = {
            **dict.fromkeys((Make, Order, Examine, Resolve, Await, Fetch, Transact), self._machine),
            Call: self._call,
            Inspect: self._query,
            Open: self._open,
            Stand: self._stand,
            Voting: self._voting,
            Lead: self._lead,
            Adopt: self._adopt,
        }
        for part in self._parts:
            self._questions.update(part.questions())
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self.member = ""
        """The name of the member whose keeper it is."""

    def _applied(self) -> None:
        self.tending.applied()
        self.machines.applied()
        self.of_topics.applied()
        self._wake()

    def _led(self) -> None:
        self.groups.look()
        self.compacting.look()

    def _restored(self) -> None:
        self.machines.restored()
        self.of_topics.wake()

    def close(self) -> None:
        self._closed = True
        self.tending.stop()
        self.compacting.stop()
        self.machines.close()
        self.host.bodies.close()
        self.of_topics.wake()
        self._wake()

    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this keeper, for people."""
        host, leader = self.host, self.keeper.role
        turns = leader.turns if isinstance(leader, Leader) else {}
        told: dict[str, Any] = {
            "machines": machines_of(host, turns),
            "live_bytes": host.space.live,
            "dead_bytes": host.space.total - host.space.live,
        }
        lags = self.groups.lags()
        for one in told["machines"]:
            if one["machine"] in lags:
                one["behind"] = lags[one["machine"]]
        for part in self._parts:
            told |= part.stats()
        return told

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Asking.

    async def ask(self, request: Any) -> Any:
        """The answer to a request; or an exception of ``core.errors``, with its remedy."""
        answer = self._questions.get(type(request))
        if answer is None:
            raise BadInput(f"a keeper is not asked for {type(request).__name__}: ask a member")
        return await answer(request)

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

    async def _machine(self, request: Any) -> Any:
        """About a machine of a style. Durable topics have questions of their own, which check what comes."""
        if isinstance(request, Order) and request.name == TopicsMachine.kind:
            raise Refused("durable topics take no bare commands: publish to them")
        return await self.machines.ask(request)

    # Looking after it.

    async def _stand(self, request: Stand) -> Standing:
        return self._standing()

    async def _voting(self, request: Voting) -> None:
        await self.placed(lambda done: self.keeper.set_voter(request.keeper, request.votes, done))

    async def _lead(self, request: Lead) -> None:
        self.keeper.force(request.cluster, request.epoch)

    async def _adopt(self, request: Adopt) -> None:
        self.keeper.adopt(request.old, request.cluster, request.epoch, request.end)

    # Users' machines.

    async def _open(self, asked: Open) -> int:
        """Open a machine; a command is needed only if it is not there in that version."""
        found = self.host.named(asked.name)
        if found is not None and found.kind == asked.kind and found.version >= asked.version:
            return found.number
        await self.announced()
        (outcome,) = await self.ordered(HOST, [words.encode(Create(asked.name, asked.kind, asked.version))])
        if outcome.status == words.REFUSED:
            raise Refused(outcome.reason)
        return int(outcome.number)

    async def announced(self) -> None:
        """What this process has the code of is known to all keepers, and what the other voters have, too, unless they
        take long to say it: one that was started just now has the code and did not say so yet."""
        if dict(self.host.announced(self.keeper.id)) != self.host.versions():
            await self.ordered(HOST, [words.encode(Announce(self.keeper.id, self.host.versions()))])
        until = asyncio.get_running_loop().time() + CODE_S
        while not all(self.host.announced(voter) for voter in (*self.keeper.applied_voters, *self.keeper.voters)):
            if not await self.changed(until):
                return

    async def _call(self, asked: Call) -> SessionEntry:
        if Command.decoded(asked.command) is None:
            raise MalformedFrame("what was called is no command with an identity")
        (entry,) = await self.ordered((await self._hosted(asked.name)).number, [asked.command])
        if not isinstance(entry, SessionEntry):
            raise Refused(f"the machine {asked.name!r} was removed: open it again")
        return entry

    async def _query(self, asked: Inspect) -> bytes:
        if not asked.stale:
            await self.barrier()
        hosted = await self._hosted(asked.name)
        if asked.question is None:
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
        """Have commands of one machine ordered; returns the result of each."""
        return await self.machines.ordered(machine, held)

    # What parts use.

    def outcomes_of(self, first: int, count: int) -> list[Any]:
        outcomes = self.host.take_outcomes(first, count)
        if outcomes is None:
            raise Overflow("too much was done at once to remember what became of it: ask again")
        return outcomes

    async def barrier(self) -> None:
        await self.placed(self.keeper.barrier)

    async def placed(self, ask: Callable[[Callable[[int, PluribusError | None], None]], None]) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(index: int, error: PluribusError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(index)
                else:
                    future.set_exception(error)

        ask(done)
        return await future

    async def changed(self, until: float) -> bool:
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
