"""One machine as a style uses it, wherever it is: the same calls on the keepers' log and on the safe order of a group.

A line asks again until it is answered: commands are done once by their machine, and everything else changes nothing.
With ``timeout`` it raises after so many seconds what kept it from an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ...core.errors import Closed, Damaged, NotPrimary, Overflow, Uncertain
from ...group.host.bodies import Handle
from ...group.host.requests import (
    GIVEN_BYTES,
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
from ...group.host.words import Outcome
from ...wire.asking import WAIT_S_MAX
from .group_host import GroupHost

T = TypeVar("T")
PAUSE_S = 0.01
PAUSE_S_MAX = 0.5
TRANSIENT = (Closed, Damaged, NotPrimary, Overflow, Uncertain)
"""Ask again."""


class Way(Protocol):
    """Ask a program that has the machine, again until one answers."""

    async def ask(self, request: Any, timeout: float | None = None) -> Any: ...


class GroupWay:
    """To the copy in this process. ``opened`` gives the group's host, again if this member had to leave it."""

    def __init__(self, opened: Callable[[], Awaitable[GroupHost]]) -> None:
        self._opened = opened

    async def ask(self, request: MachineRequest, timeout: float | None = None) -> Any:
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        pause_s = PAUSE_S
        while True:
            try:
                async with asyncio.timeout_at(until):
                    return await (await self._opened()).desk.ask(request)
            except TimeoutError:
                raise NotPrimary(f"the group did not answer in {timeout:g} s: ask again") from None
            except TRANSIENT:
                if until is not None and loop.time() + pause_s > until:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


class MachineLine(Generic[T]):
    """``outcome`` is the type of what the machine's commands answer. Made by ``Machines.open``."""

    def __init__(self, name: str, way: Way, outcome: type[T], durable: bool) -> None:
        self.name = name
        self.durable = durable
        self._way = way
        self._decode = msgspec.msgpack.Decoder(outcome).decode
        self._closed = False

    async def open(self, kind: str, version: int, timeout: float | None = None) -> None:
        """Make the machine, if it is not there, in this version at least."""
        await self.ask(Make(self.name, kind, version), timeout)

    async def call(self, command: bytes, timeout: float | None = None) -> T:
        """Have one command done; what became of it."""
        return (await self.order([command], timeout))[0]

    async def order(self, commands: Sequence[bytes], timeout: float | None = None) -> list[T]:
        """Have commands done in their order, together; what became of each."""
        found = await self.ask(Order(self.name, list(commands)), timeout)
        return [self._decode(one) if isinstance(one, msgspec.Raw) else one for one in found]

    async def inspect(self, question: bytes, *, stale: bool = False, timeout: float | None = None) -> bytes:
        """What the machine answers; everything that was done before this call is seen, unless ``stale``."""
        answer: bytes = await self.ask(Examine(self.name, question, stale), timeout)
        return answer

    async def bodies(self, handles: Sequence[Handle], timeout: float | None = None) -> Sequence[bytes | None]:
        """Bodies by handle. None: it was written forward, or is needed no more; look the handle up again."""
        found: list[bytes | None] = []
        while len(found) < len(handles):
            found += await self.ask(Resolve(self.name, list(handles[len(found) :])), timeout)
        return found

    async def given(
        self,
        consumer: int,
        epoch: int,
        after: int,
        *,
        bytes_max: int = GIVEN_BYTES,
        wait_s: float = WAIT_S_MAX,
        timeout: float | None = None,
    ) -> Told:
        """What a consumer was given behind the assignment ``after``, with the bodies, as soon as there is something, or
        nothing after ``wait_s``. A consumer that waits here holds its lease: ask again and again, also while there is
        no room."""
        found: Told = await self.ask(Await(self.name, consumer, epoch, after, bytes_max, wait_s), timeout)
        if not any(one.left_out for one in found.given):
            return found
        whole = [await self._fetched(consumer, epoch, one, timeout) if one.left_out else one for one in found.given]
        return Told([one for one in whole if one is not None], found.ended)

    async def _fetched(self, consumer: int, epoch: int, given: Given, timeout: float | None) -> Given | None:
        """The same with its bodies; None if the consumer does not hold it any more."""
        bodies: list[bytes | None] = []
        while len(bodies) < given.left_out:
            asked = Fetch(self.name, consumer, epoch, given.thing, given.number, len(bodies))
            more: list[bytes | None] = await self.ask(asked, timeout)
            if not more:
                return None
            bodies += more
        return msgspec.structs.replace(given, bodies=bodies, left_out=0)

    async def transact(
        self,
        session: int,
        sequence: int,
        settled: int,
        parts: Sequence[tuple[str, Sequence[bytes]]],
        timeout: float | None = None,
    ) -> Outcome:
        """Commands of several machines of the log that this one is on, all of them or none, once."""
        named = [(name, list(commands)) for name, commands in parts]
        outcome: Outcome = await self.ask(Transact(session, sequence, settled, named), timeout)
        return outcome

    async def ask(self, request: MachineRequest, timeout: float | None = None) -> Any:
        if self._closed:
            raise Closed(f"the line to {self.name!r} is closed: open it again")
        return await self._way.ask(request, timeout)

    def close(self) -> None:
        self._closed = True
