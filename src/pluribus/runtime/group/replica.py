"""The application's hold on a replica: ``await call``, ``await read``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from ...core.errors import Closed, GroupMismatch, NotPrimary, Overflow, PluribusError, Uncertain
from ...core.events import Event
from ...core.view import View
from ...group import replica as core
from ...group.acknowledged import dissolved
from ...group.channel import Channel
from ...group.log import StateMachine
from ...group.replica import CALLS_MAX, CallId
from ...group.safelog import SafeLog
from ..loop.futures import has_come, taken
from ..loop.opening import Opening

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")


class Replica(Generic[M]):
    """Made by ``bus.replica(name, machine)``. All members that open the name run the machine alike."""

    def __init__(
        self,
        name: str,
        log: SafeLog,
        machine: M,
        session: int,
        left: Callable[[Replica[M]], None],
        tell: Callable[[Event], None],
    ) -> None:
        self.name = name
        self._tell = tell
        self._log = log
        self._core = core.LoggedMachine(name, log, machine, session)
        self._left = left
        self._waiters: list[asyncio.Future[None]] = []
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._read_room = asyncio.Semaphore(CALLS_MAX)
        self._closed = False
        self.opening = Opening(self.close)
        log.on_ready = self._wake
        log.on_failed = self._core.on_failed = self._leave
        log.on_lost = self._lost
        self._channel: Channel = log.start()

    @property
    def machine(self) -> M:
        """This member's own copy; reading it directly is a stale read, changing it breaks it."""
        return self._core.machine

    @property
    def view(self) -> View:
        """The members that have the replica open."""
        return self._channel.view

    @property
    def applied(self) -> int:
        """How many commands this member has applied."""
        return self._core.applied

    @property
    def generation(self) -> int:
        """Another number means that all members with the state were gone, and the replica began anew."""
        return self._core.generation

    @property
    def closed(self) -> bool:
        return self._closed

    def new_id(self) -> CallId:
        """An identity for a call that has not been made yet, for callers that write it down first."""
        return self._core.new_id()

    async def ready(self) -> None:
        """Returns when the state is here."""
        while not self._log.ready or self._closed:
            if self._channel.refused:
                raise GroupMismatch(f"the group of the replica {self.name!r} {self._channel.refused}")
            await self._changed("before its state was there")

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        async with asyncio.timeout(timeout):
            while len(self.view) < members:
                await self._changed(f"while waiting for {members} members")
        return self.view

    async def _changed(self, when: str) -> None:
        if self._closed:
            raise Closed(f"the replica {self.name!r} was closed {when}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def call(self, command: bytes, *, id: CallId | None = None, timeout: float | None = None) -> bytes:
        """Have a command applied by every member, and return the result of this member's machine.

        The command is applied once, between the beginning and the end of this call. Outside a primary the call waits.
        With ``timeout`` it raises after so many seconds: ``NotPrimary`` if the command was never sent, else
        ``Uncertain``; its ``id``, given to another call on any member, makes sure that the command is applied once.
        With ``timeout=0`` it waits neither for a primary (``NotPrimary``) nor for one to come back (``Uncertain``).
        ``Refused``: the machine raised an exception.
        """
        if timeout == 0 and self._log.paused:
            raise NotPrimary(f"the replica {self.name!r} {self._log.paused}")
        if timeout == 0 and self._room.locked():
            raise Overflow(f"{CALLS_MAX:,} calls of {self.name!r} are under way: await some of them")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        key: CallId | None = None

        def answer(result: bytes, error: PluribusError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        try:
            async with asyncio.timeout(timeout or None), self._room:
                key = self._core.call(command, answer, id=id, repeat=timeout != 0)
                return await future
        except TimeoutError:
            if has_come(future):
                return future.result()
            raise self._too_late(key, id, timeout) from None
        except asyncio.CancelledError:
            if key is not None:
                self._core.give_up(key)
            raise

    def _too_late(self, key: CallId | None, id: CallId | None, timeout: float | None) -> PluribusError:
        """``key`` is None if there was not even room for it, ``id`` what it was called with, perhaps before."""
        known = key if key is not None else id
        if known is None or (key is not None and self._core.give_up(key)):
            return NotPrimary(f"the replica {self.name!r} {self._log.paused or 'could not send'} for {timeout:g} s")
        return Uncertain(f"no answer of the replica {self.name!r} in {timeout:g} s: call again with the same id", known)

    async def read(self, question: Callable[[M], T], *, stale: bool = False, timeout: float | None = None) -> T:
        """Call ``question`` with the machine, which it must not change, and return its result.

        It sees everything that was applied anywhere before this call. With ``stale=True`` it is called at once, with
        what this member has. Outside a primary a read waits; with ``timeout`` it raises ``NotPrimary`` after so many
        seconds.
        """
        if not stale:
            if timeout == 0 and self._log.paused:
                raise NotPrimary(f"the replica {self.name!r} {self._log.paused}")
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

            def fresh(error: PluribusError | None) -> None:
                if future.done():
                    return
                if error is not None:
                    future.set_exception(error)
                    return
                try:
                    future.set_result(question(self._core.machine))
                except Exception as failure:  # noqa: BLE001 - it is the asker's
                    future.set_exception(taken(failure))

            try:
                async with self._read_room, asyncio.timeout(timeout or None):
                    self._core.read(fresh)
                    return await future
            except TimeoutError:
                if has_come(future):
                    return future.result()
                raise NotPrimary(f"the replica {self.name!r} could not order a read in {timeout:g} s") from None
            finally:
                self._core.give_up_read(fresh)
        return question(self._core.machine)

    async def close(self) -> None:
        """Leave: calls that have no answer end as ``Uncertain``, or as ``Closed`` if they were never sent."""
        self._leave()

    def _leave(self) -> None:
        if not self._closed:
            self.abandon()
            self._log.close()
            self._left(self)

    def abandon(self) -> None:
        """As a crash would leave it: closed, and nobody waits for it."""
        self._closed = True
        self._core.close()
        self._wake()

    def _lost(self) -> None:
        """Another primary's state replaces this one, and calls that were acknowledged here are lost."""
        if self._core.acknowledged.count:
            self._tell(dissolved("calls", self.name, self._core.acknowledged))
            self._core.acknowledged.clear()

    def _wake(self) -> None:
        woken, self._waiters = self._waiters, []
        for waiter in woken:
            if not waiter.done():
                waiter.set_result(None)

    def validate(self) -> None:
        """Assert every invariant; for tests and the simulator."""
        self._core.validate()
        self._log.validate()

    def __repr__(self) -> str:
        return f"<replica {self.name!r}, {self.applied:,} commands applied{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Replica[M]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
