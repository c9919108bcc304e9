"""Answers questions about machines on a host in this process: on a keeper's log, or on the safe order of a group.

All questions go through ``ask``; a member's own program, other members and clients use the same words
(``group/host/requests.py``). Consumers ask for their assignments: a question that finds none waits here, and the
command that brings one answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ...core.errors import BadInput, Closed, Overflow, PluribusError, Refused, Uncertain
from ...group.host import Host
from ...group.host.bodies import Handle
from ...group.host.demand import Held
from ...group.host.host import HOST, Hosted
from ...group.host.requests import (
    ANSWER_BYTES,
    Await,
    Examine,
    Fetch,
    Given,
    MachineRequest,
    Make,
    Order,
    Resolve,
    Told,
    Transact,
)
from ...group.host.words import REFUSED, Create, Outcome, Together, encode
from ...group.log import Done
from .reading import read_bodies

WAITERS_MAX = 65_536
LOOKING = -1
"""Stands for a consumer in questions that wait for any command of the machine."""
READ_HANDLES = 64
"""Bodies that are read in one go."""
ALIVE_S = 0.25
"""How often the leader hears which owners wait here."""
STOPPED = "this keeper was stopped, or this member left"

Owner = tuple[int, int]
"""The owner of a lease: the number of the machine, and the owner's own number."""


class CommandLog(Protocol):
    """The log that puts commands in order: a keeper, or a ``VolatileLog``."""

    def submit_many(self, commands: Sequence[bytes], done: Done, machine: int = 0) -> None: ...

    def barrier(self, done: Done) -> None: ...


async def nothing() -> None:
    """Nobody has to be told which code is here."""


class MachineDesk:
    """``announce`` tells the log which code is here, before a machine is made; ``alive`` tells the member that counts
    leases which owners are there."""

    def __init__(
        self,
        host: Host,
        log: CommandLog,
        announce: Callable[[], Awaitable[None]] = nothing,
        alive: Callable[[Sequence[Owner]], None] | None = None,
    ) -> None:
        self.host = host
        self._log = log
        self._announce = announce
        self._alive = alive
        self._waiters: dict[tuple[int, int], list[asyncio.Future[None]]] = {}
        """By machine and consumer: the questions that wait."""
        self._ordering: dict[asyncio.Future[list[Any]], None] = {}
        """Commands that are under way."""
        self._count = 0
        self._here: dict[Owner, int] = {}
        """Owners that wait here, and how often."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        host.on_restored = self.restored

    async def ask(self, request: MachineRequest) -> Any:
        """The answer to a request; or an exception of ``core.errors``, with its remedy."""
        if isinstance(request, Order):
            return await self.ordered((await self._hosted(request.name)).number, request.commands)
        if isinstance(request, Await):
            return await self._told(request)
        if isinstance(request, Resolve):
            return await self._read(await self._hosted(request.name), request.handles)
        if isinstance(request, Fetch):
            return await self._fetched(request)
        if isinstance(request, Examine):
            return await self._examined(request)
        if isinstance(request, Transact):
            return await self._transacted(request)
        return await self._made(request)

    # Commands.

    async def ordered(self, machine: int, commands: Sequence[bytes]) -> list[Any]:
        """Have commands of one machine ordered, and what became of each."""
        self._check_open()
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def done(index: int, error: PluribusError | None) -> None:
            outcomes = self.host.take_outcomes(index, len(commands)) if error is None else None
            if future.done():
                return
            if outcomes is not None:
                future.set_result(outcomes)
            else:
                future.set_exception(error or Overflow("too much was done at once to remember it: ask again"))

        self._ordering[future] = None
        try:
            self._log.submit_many(commands, done, machine)
            return await future
        finally:
            self._ordering.pop(future, None)

    async def _made(self, asked: Make) -> int:
        """Only what is not there in that version costs a command."""
        found = self.host.named(asked.name)
        if found is not None and found.kind == asked.kind and found.version >= asked.version:
            return found.number
        await self._announce()
        (outcome,) = await self.ordered(HOST, [encode(Create(asked.name, asked.kind, asked.version))])
        assert isinstance(outcome, Outcome)
        if outcome.status == REFUSED:
            raise Refused(outcome.reason)
        return outcome.number

    async def _transacted(self, asked: Transact) -> Outcome:
        parts = [((await self._hosted(name)).number, commands) for name, commands in asked.parts]
        (outcome,) = await self.ordered(HOST, [encode(Together(asked.session, asked.sequence, asked.settled, parts))])
        assert isinstance(outcome, Outcome)
        return outcome

    async def _hosted(self, name: str) -> Hosted:
        found = self.host.named(name)
        if found is None:  # or perhaps this one is behind
            await self._fresh()
            found = self.host.named(name)
        if found is None:
            raise BadInput(f"there is no machine {name!r}: open it first")
        return found

    # Questions.

    async def _examined(self, asked: Examine) -> bytes:
        if not asked.stale:
            await self._fresh()
        hosted = await self._hosted(asked.name)
        if not asked.question:
            return b""
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait_s
        while True:
            answer = self._queried(hosted, asked)
            if answer or loop.time() >= until:
                return answer
            await self._something((hosted.number, LOOKING), None, until)
            self._check_open()
            hosted = await self._hosted(asked.name)

    def _queried(self, hosted: Hosted, asked: Examine) -> bytes:
        try:
            return hosted.machine.query(asked.question)
        except PluribusError:
            raise
        except Exception as error:  # noqa: BLE001 - it is the asker's
            raise Refused(f"{asked.name!r} refused the question: {type(error).__name__}: {error}") from None

    async def _fresh(self) -> None:
        """Everything that was done before this call is applied here."""
        self._check_open()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(index: int, error: PluribusError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

        self._log.barrier(done)
        await future

    # Consumers.

    async def _told(self, asked: Await) -> Told:
        hosted = await self._hosted(asked.name)
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait_s
        fresh = False
        while True:
            self._check_open()
            found = self.host.machines.get(hosted.number)
            demands = None if found is None else found.machine.demands
            if found is None or demands is None:
                raise BadInput(f"the machine {asked.name!r} hands nothing out, or was removed: look at its name")
            given = demands.given(asked.consumer, asked.epoch, asked.after)
            if given is None:
                if fresh:
                    return Told([], ended=True)
                await self._fresh()  # or perhaps this one is behind
                fresh = True
                continue
            if given:
                told = await self._with_bodies(found, asked, given, fresh)
                if told is not None:
                    return told
                await self._fresh()  # some of it was settled, or written forward, meanwhile
                fresh = True
                continue
            if loop.time() >= until:
                return Told([])
            consumer = demands.consumers[asked.consumer]
            await self._something((hosted.number, asked.consumer), (hosted.number, consumer.owner), until)

    async def _with_bodies(
        self, hosted: Hosted, asked: Await, given: Sequence[tuple[int, Held]], fresh: bool
    ) -> Told | None:
        """Assignments with their bodies, as many as were asked for, at least one. None if a body is not where the
        machine said: it was moved, or the machine is behind. If the machine is not behind (``fresh``), the body is
        lost, and the thing is told without it."""
        chosen: list[tuple[int, Held]] = []
        size = fit = 0
        for thing, held in given:
            if chosen and size + held.size > asked.bytes_max and held.number != chosen[-1][1].number:
                break  # what was given together is told together
            chosen.append((thing, held))
            size += held.size
            fit += size <= ANSWER_BYTES
        machine = hosted.machine
        told = machine.told_many([thing for thing, _ in chosen[:fit]])
        bodies = await read_bodies(self.host, hosted.number, [one for handles, _ in told for one in handles])
        if None in bodies and not fresh:
            return None
        if self.host.machines.get(hosted.number) is not hosted or hosted.machine is not machine:
            return None  # the state was replaced
        demands = machine.demands
        still = dict(demands.given(asked.consumer, asked.epoch, asked.after) or ()) if demands is not None else {}
        left = [(thing, held) for thing, held in chosen if still.get(thing) == held]
        if left and len(left) < len(chosen):  # some of it was settled meanwhile, and others may refer to that
            return await self._with_bodies(hosted, asked, left, fresh)
        answer: list[Given] = []
        at = 0
        for (thing, held), (handles, note) in zip(chosen, told, strict=False):
            if still.get(thing) == held:
                answer.append(Given(thing, held.delivery, held.number, note, list(bodies[at : at + len(handles)])))
            at += len(handles)
        for thing, held in chosen[fit:]:
            handles, note = machine.told(thing)
            if still.get(thing) == held:
                answer.append(Given(thing, held.delivery, held.number, note, [], len(handles)))
        return Told(answer) if answer else None

    async def _fetched(self, asked: Fetch) -> Sequence[bytes | None]:
        hosted = await self._hosted(asked.name)
        fresh = False
        while True:
            self._check_open()
            found = self.host.machines.get(hosted.number)
            demands = None if found is None else found.machine.demands
            consumer = None if demands is None else demands.consumers.get(asked.consumer)
            held = None if consumer is None else consumer.held.get(asked.thing)
            if (
                found is not None
                and consumer is not None
                and held is not None
                and (consumer.epoch, held.number) == (asked.epoch, asked.number)
            ):
                if self._alive is not None:
                    self._alive([(hosted.number, consumer.owner)])
                handles, _ = found.machine.told(asked.thing)
                bodies = await self._read(found, handles[asked.first :])
                if None not in bodies or fresh:
                    return bodies
            elif fresh:
                return ()
            await self._fresh()  # it was written forward meanwhile, or this one is behind
            fresh = True

    async def _read(self, hosted: Hosted, handles: Sequence[Handle]) -> Sequence[bytes | None]:
        """The bodies of the first handles, as many as one answer has, at least one."""
        bodies: list[bytes | None] = []
        size = 0
        for at in range(0, len(handles), READ_HANDLES):
            for body in await read_bodies(self.host, hosted.number, handles[at : at + READ_HANDLES]):
                size += 0 if body is None else len(body)
                if bodies and size > ANSWER_BYTES:
                    return bodies
                bodies.append(body)
        return bodies

    async def _something(self, consumer: tuple[int, int], owner: Owner | None, until: float) -> None:
        """Returns when the consumer was given something, or is another one's, or the time is over. With an owner, its
        lease does not end meanwhile."""
        if self._count >= WAITERS_MAX:
            raise Overflow(f"{WAITERS_MAX:,} consumers wait here: ask another keeper")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiters = self._waiters.setdefault(consumer, [])
        waiters.append(waiter)
        self._count += 1
        if owner is not None:
            self._here[owner] = self._here.get(owner, 0) + 1
        if self._timer is None and self._alive is not None:
            self._tell_alive()
        timer = loop.call_at(until, _end, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._count -= 1
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters and self._waiters.get(consumer) is waiters:
                del self._waiters[consumer]
            if owner is not None:
                self._here[owner] -= 1
                if not self._here[owner]:
                    del self._here[owner]

    def _tell_alive(self) -> None:
        self._timer = None
        if self._here and self._alive is not None and not self._closed:
            self._alive(list(self._here))
            self._timer = asyncio.get_running_loop().call_later(ALIVE_S, self._tell_alive)

    # The host.

    def applied(self) -> None:
        """Commands were applied, or the state was replaced: wake the questions of consumers that were given
        something."""
        host = self.host
        for number in host.recent:
            if (number, LOOKING) in self._waiters:
                self._wake((number, LOOKING))
            hosted = host.machines.get(number)
            demands = None if hosted is None else hosted.machine.demands
            if demands is not None and demands.news:
                for consumer in demands.news:
                    self._wake((number, consumer))
                demands.news.clear()
        host.recent.clear()

    def restored(self) -> None:
        """The state was replaced: all waiting questions look again."""
        for consumer in list(self._waiters):
            self._wake(consumer)

    def _wake(self, consumer: tuple[int, int]) -> None:
        for waiter in self._waiters.pop(consumer, ()):
            _end(waiter)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.restored()
        for future in self._ordering:
            if not future.done():
                future.set_exception(Uncertain(f"{STOPPED}; what was under way may have been done or not"))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{STOPPED}: ask another one")


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
