"""The way of a client to a space of the kinds *views* and *partitioned*: its member takes part in the space for it.

Reads and takes go on after a break, at another host of the URL. A write that was under way is ``Uncertain``. A taken
tuple belongs to the client when the client has acknowledged it (``VisitSettle``); if the client is gone before, the
tuple is written again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, PluribusError, Unreachable
from ....spaces.templates import Template
from ....spaces.values import Item
from ....spaces.visits import (
    Name,
    SpacePlace,
    VisitAll,
    VisitCount,
    VisitFetch,
    VisitFlush,
    VisitNotify,
    VisitOpen,
    VisitRead,
    VisitRelet,
    VisitRenew,
    VisitSettle,
    VisitTake,
    VisitWrite,
    VisitWritten,
)
from ....spaces.watching import Watched
from ...machines.line import PAUSE_S, PAUSE_S_MAX, TRANSIENT
from .space import Registration, WriteResult, microseconds, only_durable, seconds
from .watching import NUMBER_BITS, WatchedRegistration, resumed

if TYPE_CHECKING:
    from ...clients.bus import ClientBus

WAIT_S = 20.0
"""Seconds for which one question waits for a match."""
CLOSE_S = 5.0


class VisitingWay:
    """Made by ``ClientSpaces``."""

    def __init__(self, bus: ClientBus, place: SpacePlace) -> None:
        self.name = place.name
        self.kind = place.kind
        self._bus = bus
        self._place = place
        self._undoing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._ask(VisitOpen(self._place))

    async def _ask(self, request: Any) -> Any:
        """Ask until there is an answer; only for requests that may be repeated."""
        pause_s = PAUSE_S
        while True:
            try:
                return await self._bus.line.ask(request)
            except (*TRANSIENT, Unreachable):
                if self._bus.closed:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult:
        self._check(transaction)
        return _result(await self._bus.line.ask_once(VisitWrite(self._place, items, microseconds(lease_s))))

    async def take(
        self,
        template: Template,
        most: int,
        timeout: float | None,
        if_exists: bool,
        transaction: int,
        write: list[Item],
        lease_s: float | None,
    ) -> list[Item]:
        self._check(transaction)
        deadline = _deadline(timeout)
        while True:
            wait_s, token = _left(deadline), self._bus.new_number()
            asked = VisitTake(self._place, token, template, most, wait_s, if_exists, write, microseconds(lease_s))
            found: list[Item] = await (self._bus.line.ask_once(asked) if write else self._held(asked))
            if found or if_exists or (timeout is not None and not _left(deadline)):
                return found

    async def _held(self, asked: VisitTake | VisitNotify) -> Any:
        """The taken tuples, or the registration, when the member knows that they are here. They are given back if the
        caller has given up."""
        task = asyncio.ensure_future(self._ask(asked))
        try:
            found = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._undo(task, asked.token)
            raise
        if found and not await self._bus.line.ask_once(VisitSettle(asked.token, True)):
            return []  # the connection broke in between: the tuple is in the space again, the registration is over
        return found

    def _undo(self, task: asyncio.Future[Any], token: int) -> None:
        async def undone() -> None:
            with suppress(PluribusError):  # if the connection breaks, the member does it
                if await task:
                    await self._bus.line.ask(VisitSettle(token, False))

        undoing = asyncio.ensure_future(undone())
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    async def read(
        self, template: Template, timeout: float | None, if_exists: bool, transaction: int, stale: bool
    ) -> Item | None:
        self._check(transaction)
        if stale:
            raise BadInput("stale=True reads the own copy, and a client has none: leave it out")
        deadline = _deadline(timeout)
        while True:
            found: Item | None = await self._ask(VisitRead(self._place, template, _left(deadline), if_exists))
            if found is not None or if_exists or (timeout is not None and not _left(deadline)):
                return found

    async def page(self, template: Template, after: int, most: int, transaction: int) -> tuple[list[int], list[Item]]:
        self._check(transaction)
        return [], await self._ask(VisitAll(self._place, template))

    async def count(self, template: Template, transaction: int) -> int:
        self._check(transaction)
        found: int = await self._ask(VisitCount(self._place, template))
        return found

    async def renew(self, number: int, lease_s: float | None, item: Item) -> WriteResult:
        return _result(
            await self._bus.line.ask_once(VisitRelet(self._place, _name(number), item, microseconds(lease_s)))
        )

    async def cancel(self, number: int, item: Item) -> None:
        await self._bus.line.ask_once(VisitRelet(self._place, _name(number), item, ends=True))

    async def notify(
        self, template: Template, lease_s: float | None, hand_back: bytes, transaction: int
    ) -> Registration:
        self._check(transaction)
        while True:
            token = self._bus.new_number()
            found = await self._held(VisitNotify(self._place, token, template, microseconds(lease_s), hand_back))
            if found:
                return WatchedRegistration(self, found.names[0], seconds(found.lease_us), hand_back)

    async def resume(self, number: int) -> Registration:
        return await resumed(self, number)

    async def fetched(self, registration: Name, seen: list[Name], missed: int, probe: bool) -> Watched:
        """Events are acknowledged once: if the connection broke, those that were not acknowledged come again."""
        pause_s = PAUSE_S
        while True:
            asked = VisitFetch(self._place, registration, seen, missed, WAIT_S, probe)
            seen, missed = [], 0
            try:
                watched: Watched = await self._bus.line.ask(asked)
            except (*TRANSIENT, Unreachable):
                if self._bus.closed:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            if watched.events or watched.missed or watched.gap or watched.ended or probe:
                return watched
            pause_s = PAUSE_S

    async def renewed(self, registration: Name, lease_us: int, ends: bool) -> float | None:
        return seconds(await self._bus.line.ask_once(VisitRenew(self._place, registration, lease_us, ends)))

    def _check(self, transaction: int) -> None:
        if transaction:
            raise only_durable(self.kind)

    async def flush(self) -> None:
        if self._undoing:
            await asyncio.wait(set(self._undoing))
        await self._ask(VisitFlush(self._place))

    async def close(self) -> None:
        if self._undoing:
            await asyncio.wait(set(self._undoing), timeout=CLOSE_S)
        self.abandon()  # the member does the rest when the connection ends

    def abandon(self) -> None:
        for task in self._undoing:
            task.cancel()

    def stats(self) -> dict[str, Any]:
        return {}

    def validate(self) -> None:
        """The member's part is validated there."""


def _result(written: VisitWritten) -> WriteResult:
    numbers = [worker << NUMBER_BITS | number for worker, number in written.names]
    return WriteResult(numbers, seconds(written.lease_us))


def _name(number: int) -> Name:
    return number >> NUMBER_BITS, number & ((1 << NUMBER_BITS) - 1)


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


def _left(deadline: float | None) -> float:
    """Seconds for the next question to wait."""
    if deadline is None:
        return WAIT_S
    return max(min(deadline - asyncio.get_running_loop().time(), WAIT_S), 0.0)
