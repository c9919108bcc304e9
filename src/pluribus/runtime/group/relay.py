"""Sending to a group without being in it: ``bus.send`` for one message, ``bus.relay(name)`` for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...core.errors import BadInput, Closed, Overflow, PluribusError, Uncertain, Undelivered
from ...core.ids import MessageId, checked_name, number_of
from ...group.dispatch import Dispatch
from ...wire.bodies import BYTES, encode_body
from ..loop.futures import has_come

FIRST_LOOK_S = 2.0
LOOK_S = 0.02


class Relayed:
    """Made by ``bus.relay(name)``: this process as a sender to an open group that it is not in.

    A message goes to one member, which sends it to all with this process's identity and number. If that member is gone
    or silent, another one does; each message is delivered once, and all in the order in which they were sent.
    """

    def __init__(self, name: str, dispatch: Dispatch, now: Callable[[], float]) -> None:
        self._dispatch = dispatch
        self._now = now
        self._outside = dispatch.desk.outside(name, dispatch.members.get(number_of(checked_name(name, "the group"))))
        self._outside.on_settled = self._settled
        self._outside.on_lost = self._lost
        self._outside.on_closed = self.abandon
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._rooms: list[asyncio.Future[None]] = []
        self._error: PluribusError | None = None
        self._closed = self._scheduled = False

    @property
    def name(self) -> str:
        return self._outside.name

    @property
    def pending(self) -> int:
        """Messages that not every member is known to have."""
        return self._outside.pending

    def __repr__(self) -> str:
        return f"<way to the open group {self.name!r}>"

    async def send(self, body: Any, *, timeout: float | None = None, wait: str | None = None) -> MessageId:
        """Send. Returns the message's identity, as receivers see it, when there is room for the message; with
        ``wait="stable"``, when every member has it.

        Raises ``NoMembers`` if nobody is in the group, ``Refused`` if it is closed, ``Overflow`` if there is no room
        within ``timeout`` seconds. Without ``wait``, the failure of an earlier message is raised by the next call or by
        ``drain``: ``Uncertain`` if the message was sent to members and all of them went away.
        """
        if wait not in (None, "stable"):
            raise BadInput(f"wait={wait!r} is nothing to wait for: use wait='stable', or leave it out")
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        deadline = None if timeout is None else self._now() + timeout
        outside = self._outside
        await self._found()
        self._check()
        while not outside.fits(len(encoded)):
            await self._room(deadline)
            self._check()
        number = outside.add(kind, encoded)
        if not self._scheduled:
            self._scheduled = True
            self._dispatch.clock.call_soon(self._turn_ended)
        if wait is not None:
            await self._until(number + 1, deadline)
        return outside.id_of(number)

    async def drain(self, timeout: float | None = None) -> None:
        """Return when every member has what was sent; raise what ``send`` would."""
        await self._until(self._outside.next, None if timeout is None else self._now() + timeout)
        self._raise()

    async def drained(self, timeout: float) -> None:
        """Like ``drain``, before the bus is closed: ``Undelivered`` says which messages have not arrived."""
        if self.pending:
            try:
                await self.drain(timeout)
            except PluribusError as error:
                told = f"{self.pending} messages to {self.name!r} have not reached its members: {error}"
                raise Undelivered(told) from None

    async def _found(self) -> None:
        """A new member does not know the groups of the bus yet: wait until it has found others, or a short time."""
        until = self._now() + FIRST_LOOK_S
        while self._dispatch.view.number <= 1 and not (self._outside.members or self._closed):
            if self._now() >= until:
                return
            await asyncio.sleep(LOOK_S)

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the bus is closed, and nothing more is sent to {self.name!r}")
        self._raise()
        self._outside.check()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _turn_ended(self) -> None:
        self._scheduled = False
        if not self._closed:
            self._dispatch.stimulus(self._outside.pump)

    async def _room(self, deadline: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rooms.append(waiter)
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - self._now(), 0.0)):
                await waiter
        except TimeoutError:
            raise Overflow(
                f"{self.pending} messages to {self.name!r} are under way, and its members do not take more: wait longer"
            ) from None
        finally:
            if waiter in self._rooms:
                self._rooms.remove(waiter)

    async def _until(self, end: int, deadline: float | None) -> None:
        """Everything before ``end`` is settled."""
        if self._outside.settled >= end:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end, over))
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - self._now(), 0.0)):
                await over
        except TimeoutError:
            if has_come(over):
                return over.result()
            raise Uncertain(
                f"a message to {self.name!r} is under way, but not all are known to have it: wait longer",
                self._outside.id_of(end - 1),
            ) from None
        finally:
            self._waiting = [waiter for waiter in self._waiting if waiter[1] is not over]

    def _settled(self) -> None:
        for end, over in self._waiting:
            if end <= self._outside.settled and not over.done():
                over.set_result(None)
        rooms, self._rooms = self._rooms, []
        for waiter in rooms:
            if not waiter.done():
                waiter.set_result(None)

    def _lost(self, first: int, end: int, error: PluribusError) -> None:
        told = 0
        for upto, over in self._waiting:
            if first < upto and not over.done():
                over.set_exception(error)
                told = max(told, upto)
        if told < end:  # nobody waited for the last of them
            self._error = error

    def abandon(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        for over in [*(over for _, over in self._waiting), *self._rooms]:
            if not over.done():
                over.set_exception(Closed(f"the bus was closed while a message to {self.name!r} was under way"))
