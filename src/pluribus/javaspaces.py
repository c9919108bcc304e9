"""JavaSpaces in Python names: the API of figure 6.23 of *Indirect Communication* on a replicated space.

::

    space = await JavaSpace.find(bus, "AlarmSpace")
    lease = await space.write(Alarm("Fire!"), None, 60 * 60 * 1000)
    entry = await space.read(Alarm("Fire!"), None, FOREVER)

Times are milliseconds, as there; ``FOREVER`` waits or stays for ever. An entry is an object of a registered class; a
template is one in which fields are None. ``txn`` is a transaction of the bus (``bus.transaction()``), over durable
spaces, queues and topics, or None; several processes act in one by ``bus.transaction(join=tx.id)``::

    space = await JavaSpace.find(bus, "Accounts", durable=True)
    async with bus.transaction() as txn:
        entry = await space.take(Account("Ann"), txn, FOREVER)
        await space.write(Account("Ann", entry.balance - 5), txn, FOREVER)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from .core.errors import BadInput, Closed, LeaseEnded
from .runtime.styles.spaces.space import Acts, Lease, Registration, Space, SpaceEvent

FOREVER = (1 << 63) - 1
"""``Lease.FOREVER``."""
NO_WAIT = 0

Txn = Acts | int | None
"""A transaction of the bus, the number that it is known by in the space, or none."""

RemoteEventListener = Callable[["RemoteEvent"], Any]
"""Is called with every event; a coroutine function is awaited. If it fails, that is logged, and it is called again with
the next event."""

log = logging.getLogger(__name__)


class RemoteEvent(msgspec.Struct, frozen=True):
    """An entry that matches a registration was written."""

    sequence_number: int
    registration: int
    hand_back: Any
    entry: Any
    """What was written. Jini's events do not have it."""
    missed: int


class EventRegistration:
    """What ``notify`` returns: the lease of the registration."""

    def __init__(self, registration: Registration, task: asyncio.Task[None]) -> None:
        self._registration = registration
        self._task = task

    @property
    def id(self) -> int:
        return self._registration.number

    async def renew(self, lease: int) -> int:
        """Milliseconds that were granted."""
        return _milliseconds(await self._registration.renew(_seconds(lease)))

    async def cancel(self) -> None:
        self._task.cancel()
        await self._registration.cancel()


class JavaSpace:
    """``find`` gives one; entries go in and out of it."""

    def __init__(self, space: Space) -> None:
        if space.kind != "replicated":
            raise BadInput(f"a JavaSpace is a space of kind 'replicated', and this one is of kind {space.kind!r}")
        self.space = space

    @classmethod
    async def find(cls, bus: Any, name: str, *, durable: bool = False) -> JavaSpace:
        """The space of that name on a bus: the book's ``SpaceAccessor.findSpace``."""
        return cls(await bus.space(name, durable=durable))

    async def write(self, entry: Any, txn: Txn, lease: int) -> Lease:
        """Place an entry into the space. The lease may be shorter than asked for."""
        return await self.space.write(_entry(entry), _seconds(lease), transaction=_number(txn))

    async def read(self, tmpl: Any, txn: Txn, timeout: int) -> Any | None:
        """A copy of an entry that matches; waits at most ``timeout``, then None."""
        try:
            return await self.space.read(_entry(tmpl), timeout=_seconds(timeout), transaction=_number(txn))
        except TimeoutError:
            return None

    async def read_if_exists(self, tmpl: Any, txn: Txn, timeout: int) -> Any | None:
        """A copy of an entry that matches, or None. Waits, at most ``timeout``, only while a transaction hides it."""
        return await self.space.read_if_exists(_entry(tmpl), timeout=_seconds(timeout), transaction=_number(txn))

    async def take(self, tmpl: Any, txn: Txn, timeout: int) -> Any | None:
        """An entry that matches, removed; waits at most ``timeout``, then None."""
        try:
            return await self.space.take(_entry(tmpl), timeout=_seconds(timeout), transaction=_number(txn))
        except TimeoutError:
            return None

    async def take_if_exists(self, tmpl: Any, txn: Txn, timeout: int) -> Any | None:
        return await self.space.take_if_exists(_entry(tmpl), timeout=_seconds(timeout), transaction=_number(txn))

    async def notify(
        self, tmpl: Any, txn: Txn, listen: RemoteEventListener, lease: int, hand_back: Any = None
    ) -> EventRegistration:
        """Call ``listen`` for every entry that is written from now on and matches."""
        registration = await self.space.notify(
            _entry(tmpl), lease=_seconds(lease), hand_back=hand_back, transaction=_number(txn)
        )
        return EventRegistration(registration, asyncio.create_task(_listen(registration, listen)))

    async def resume(self, registration: int, listen: RemoteEventListener) -> EventRegistration:
        """Go on with a registration by its ``id`` after a break, here or in another process. What it kept meanwhile
        comes first; ``missed`` of an event says how many before it were dropped."""
        found = await self.space.resume(registration)
        return EventRegistration(found, asyncio.create_task(_listen(found, listen)))


async def _listen(registration: Registration, listen: RemoteEventListener) -> None:
    event: SpaceEvent
    try:
        async for event in registration:
            told = RemoteEvent(event.sequence, registration.number, event.hand_back, event.value, event.missed)
            try:
                answer = listen(told)
                if isinstance(answer, Awaitable):
                    await answer
            except Exception:
                log.exception("a listener failed on %r", told)
    except (LeaseEnded, Closed):
        return


def _entry(entry: Any) -> Any:
    if isinstance(entry, tuple | list):
        raise BadInput("a JavaSpace holds entries: write an object of a registered class, or use bus.space for tuples")
    return entry


def _number(txn: Txn) -> Acts | int:
    return 0 if txn is None else txn


def _seconds(milliseconds: int) -> float | None:
    if milliseconds < 0:
        raise BadInput(f"{milliseconds} ms cannot be: use 0 or more, or FOREVER")
    return None if milliseconds >= FOREVER else milliseconds / 1_000


def _milliseconds(seconds: float | None) -> int:
    return FOREVER if seconds is None else int(seconds * 1_000)


__all__ = ["FOREVER", "NO_WAIT", "EventRegistration", "JavaSpace", "Lease", "RemoteEvent", "RemoteEventListener"]
