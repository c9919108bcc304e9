"""A tuple space as a program holds it. The three kinds have the same methods; a method that a kind lacks says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

import msgspec

from ....core.errors import BadInput, Closed, LeaseEnded
from ....spaces.templates import Template, template_of
from ....spaces.values import Item, item_of, value_of, written_of
from ....spaces.words import MANY_MAX

FOREVER = None
"""The lease of a tuple that stays until it is taken."""
PAGE = 1_000
LEASE_S_MAX = 1e9


class WriteResult(msgspec.Struct, frozen=True):
    """Numbers of the tuples, and the seconds of lease that were granted; None: for ever."""

    numbers: list[int]
    granted_s: float | None


class SpaceWay(Protocol):
    """The way to the tuples of one space. Times are seconds; ``timeout`` None waits for ever, 0 does not wait."""

    kind: str

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult: ...

    async def take(
        self,
        template: Template,
        most: int,
        timeout: float | None,
        if_exists: bool,
        transaction: int,
        write: list[Item],
        lease_s: float | None,
    ) -> list[Item]: ...

    async def read(
        self, template: Template, timeout: float | None, if_exists: bool, transaction: int, stale: bool
    ) -> Item | None: ...

    async def page(
        self, template: Template, after: int, most: int, transaction: int
    ) -> tuple[list[int], list[Item]]: ...

    async def count(self, template: Template, transaction: int) -> int: ...

    async def renew(self, number: int, lease_s: float | None, item: Item) -> WriteResult:
        """Renew a lease. ``item`` is the tuple; the answer has its new number."""

    async def cancel(self, number: int, item: Item) -> None: ...

    async def notify(
        self, template: Template, lease_s: float | None, hand_back: bytes, transaction: int
    ) -> Registration: ...

    async def resume(self, number: int) -> Registration: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...

    def validate(self) -> None: ...


class Acts(Protocol):
    """A transaction, as ``bus.transaction()`` gives it."""

    async def enter(self, space: Any, /) -> int: ...


class Lease:
    """What ``write`` returns: the lease of the tuple, and the methods to change it."""

    __slots__ = ("_item", "_way", "granted_s", "number")

    def __init__(self, way: SpaceWay, number: int, granted_s: float | None, item: Item) -> None:
        self._way = way
        self._item = item
        self.number = number
        self.granted_s = granted_s
        """Seconds that were granted, perhaps fewer than were asked for; None: for ever."""

    async def renew(self, lease: float | None) -> float | None:
        """Let the lease begin anew, with this length; returns the seconds granted. ``LeaseEnded`` if it is over."""
        found = await self._way.renew(self.number, checked_lease(lease), self._item)
        self.number, self.granted_s = found.numbers[0], found.granted_s
        return self.granted_s

    async def cancel(self) -> None:
        """End the lease now, which removes the tuple. ``LeaseEnded`` if it is over already."""
        await self._way.cancel(self.number, self._item)

    def __repr__(self) -> str:
        return f"<lease {self.number}, {'for ever' if self.granted_s is None else f'{self.granted_s:g} s'}>"


class SpaceEvent(msgspec.Struct, frozen=True):
    """A tuple was written that matches a registration."""

    sequence: int
    value: Any
    hand_back: Any
    missed: int = 0
    """How many events before this one were dropped, because they were not fetched in time."""
    gap: bool = False
    """True if events before this one may be lost with a member that died, and nobody knows how many."""


class Registration(Protocol):
    """What ``notify`` returns: iterate it for events. After a break it goes on where it was."""

    number: int
    granted_s: float | None

    def __aiter__(self) -> AsyncIterator[SpaceEvent]: ...

    async def renew(self, lease: float | None) -> float | None: ...

    async def cancel(self) -> None: ...


class Space:
    """Made by ``bus.space(name)``. Tuples are written as tuples; templates are tuples of values and types, in which
    ``...`` matches anything; or both are objects of registered classes.

    ``where`` adds a condition over the fields, which are called ``f0``, ``f1``, … in tuples and by their names in
    entries. ``timeout`` is in seconds: None waits for ever; after it ``TimeoutError``. ``transaction`` is one that
    ``bus.transaction()`` gave, or the number that its ``enter`` returned. Until the transaction ends, tuples that it
    takes are hidden from others, tuples that it writes are seen only in it, and tuples that it reads cannot be taken by
    others."""

    def __init__(self, name: str, way: SpaceWay) -> None:
        self.name = name
        self._way = way
        self._closed = False

    @property
    def kind(self) -> str:
        return self._way.kind

    # Writing.

    async def write(self, value: Any, lease: float | None = FOREVER, *, transaction: int | Acts = 0) -> Lease:
        """Put a tuple or an entry into the space, for ever or for so many seconds. ``BadBody`` for a value that cannot
        travel."""
        self._check_open()
        item = item_of(value)
        found = await self._way.write([item], checked_lease(lease), await self._number(transaction))
        return Lease(self._way, found.numbers[0], found.granted_s, item)

    async def write_many(
        self, values: Iterable[Any], lease: float | None = FOREVER, *, transaction: int | Acts = 0
    ) -> list[Lease]:
        """Write several tuples, in one command for each ten thousand."""
        self._check_open()
        items = [item_of(value) for value in values]
        leases: list[Lease] = []
        for at in range(0, len(items), MANY_MAX):
            some = items[at : at + MANY_MAX]
            found = await self._way.write(some, checked_lease(lease), await self._number(transaction))
            pairs = zip(found.numbers, some, strict=True)
            leases += [Lease(self._way, number, found.granted_s, item) for number, item in pairs]
        return leases

    # Reading and taking.

    async def read(
        self,
        template: Any,
        where: str = "",
        *,
        timeout: float | None = None,
        stale: bool = False,
        transaction: int | Acts = 0,
    ) -> Any:
        """Read a match, which stays in the space; waits for one. ``stale=True`` answers from this member's own copy,
        which may be a little behind."""
        self._check_open()
        _check_stale(stale, transaction)
        wanted = template_of(template, where)
        item = await self._way.read(wanted, timeout, False, await self._number(transaction), stale)
        if item is None:
            raise self._late("read", template, timeout)
        return written_of(item)

    async def take(
        self, template: Any, where: str = "", *, timeout: float | None = None, transaction: int | Acts = 0
    ) -> Any:
        """Take a match, which removes it; waits for one. Waiting takes are served in the order in which they came."""
        return (await self.take_many(template, 1, where, timeout=timeout, transaction=transaction))[0]

    async def take_many(
        self,
        template: Any,
        most: int = PAGE,
        where: str = "",
        *,
        timeout: float | None = None,
        transaction: int | Acts = 0,
    ) -> list[Any]:
        """Take as many matches as are there, up to ``most``; waits for the first."""
        self._check_open()
        if not 1 <= most <= MANY_MAX:
            raise BadInput(f"{most} tuples at once cannot be taken: from 1 to {MANY_MAX:,}")
        wanted = template_of(template, where)
        items = await self._way.take(wanted, most, timeout, False, await self._number(transaction), [], None)
        if not items:
            raise self._late("take", template, timeout)
        return [written_of(item) for item in items]

    async def read_if_exists(
        self,
        template: Any,
        where: str = "",
        *,
        timeout: float | None = 0,
        stale: bool = False,
        transaction: int | Acts = 0,
    ) -> Any | None:
        """Read a match; None if there is none. If a transaction hides the only matches, waits until it ends, at most
        ``timeout`` seconds."""
        self._check_open()
        _check_stale(stale, transaction)
        item = await self._way.read(template_of(template, where), timeout, True, await self._number(transaction), stale)
        return None if item is None else written_of(item)

    async def take_if_exists(
        self, template: Any, where: str = "", *, timeout: float | None = 0, transaction: int | Acts = 0
    ) -> Any | None:
        """Like ``read_if_exists``, and the match is removed."""
        self._check_open()
        items = await self._way.take(
            template_of(template, where), 1, timeout, True, await self._number(transaction), [], None
        )
        return written_of(items[0]) if items else None

    async def replace(
        self,
        template: Any,
        value: Any,
        where: str = "",
        *,
        lease: float | None = FOREVER,
        timeout: float | None = None,
        transaction: int | Acts = 0,
    ) -> Any:
        """Take a match and write ``value`` in one atomic step; returns the tuple that was taken. Waits for a match. In
        the kind *partitioned* the new tuple appears a moment after the old one is gone, if another member has its
        range. A cancelled call has either replaced a match or done nothing; no tuple is lost."""
        self._check_open()
        written = item_of(value)
        wanted = template_of(template, where)
        number = await self._number(transaction)
        items = await self._way.take(wanted, 1, timeout, False, number, [written], checked_lease(lease))
        if not items:
            raise self._late("replace", template, timeout)
        return written_of(items[0])

    async def read_all(
        self, template: Any = None, where: str = "", *, transaction: int | Acts = 0
    ) -> AsyncIterator[Any]:
        """All matches as a stream, oldest first; in the kind *partitioned*, those of one range. Tuples that are written
        or taken meanwhile may be seen or not. In a transaction, its own writes are included; nothing is locked."""
        self._check_open()
        wanted, after = template_of(template, where, all_allowed=True), 0
        while True:
            numbers, items = await self._way.page(wanted, after, PAGE, await self._number(transaction))
            for item in items:
                yield written_of(item)
            if len(items) < PAGE or not numbers:
                return
            after = numbers[-1]

    async def count(self, template: Any = None, where: str = "", *, transaction: int | Acts = 0) -> int:
        """How many tuples match; without a template, how many there are. In a transaction, its own writes are included;
        nothing is locked."""
        self._check_open()
        wanted = template_of(template, where, all_allowed=True)
        return await self._way.count(wanted, await self._number(transaction))

    async def notify(
        self,
        template: Any = None,
        where: str = "",
        *,
        lease: float | None = FOREVER,
        hand_back: Any = None,
        transaction: int | Acts = 0,
    ) -> Registration:
        """Register for every matching tuple that is written from now on: iterate the result. ``hand_back`` comes with
        every event."""
        self._check_open()
        wanted = template_of(template, where, all_allowed=True)
        return await self._way.notify(wanted, checked_lease(lease), packed(hand_back), await self._number(transaction))

    async def resume(self, registration: int) -> Registration:
        """Go on with a registration by its ``number``, here or in another process: events that were not acknowledged
        come first. ``LeaseEnded`` if it is over."""
        self._check_open()
        return await self._way.resume(registration)

    out = write
    """Linda's name."""
    rd = read
    """Linda's name."""
    in_ = take
    """Linda's name, but for the underscore that Python needs."""

    # The end.

    async def flush(self) -> None:
        """Returns when every write and take of this program is done where the tuples are kept; with *views*, at all
        replicas."""
        self._check_open()
        await self._way.flush()

    def on_void(self, listener: Callable[[Any], None]) -> None:
        """Kind *views*: call ``listener`` with each tuple that this program has taken and must give up: this program
        was cut off at that moment, and another one has taken the tuple."""
        self._listeners("on_void").append(listener)

    def on_lost(self, listener: Callable[[dict[int, int]], None]) -> None:
        """Kinds *views* and *partitioned*: call ``listener`` when tuples are lost, with the lost ranges and about how
        many tuples each had; with no ranges if the whole space is lost."""
        self._listeners("on_lost").append(listener)

    def _listeners(self, name: str) -> list[Any]:
        found: list[Any] | None = getattr(self._way, name, None)
        if found is None:
            raise BadInput(f"a space of kind {self.kind!r} has no {name}: nothing of it is lost or taken back")
        return found

    def stats(self) -> dict[str, Any]:
        return self._way.stats()

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Close. The tuples stay as long as others have the space open; for ever if it is durable."""
        if not self._closed:
            self._closed = True
            await self._way.close()

    def abandon(self) -> None:
        self._closed = True
        self._way.abandon()

    def validate(self) -> None:
        self._way.validate()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the space {self.name!r} is closed: open it again with bus.space()")

    async def _number(self, transaction: int | Acts) -> int:
        return transaction if isinstance(transaction, int) else await transaction.enter(self)

    def _late(self, what: str, template: Any, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{what}: nothing in {self.name!r} matched {template!r} in {timeout or 0:g} s")

    async def __aenter__(self) -> Space:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{self.kind} space {self.name!r}{', closed' if self._closed else ''}>"


def _check_stale(stale: bool, transaction: int | Acts) -> None:
    if stale and transaction:
        raise BadInput("stale=True reads the own copy, and a transaction locks what it reads: leave one of them out")


def checked_lease(lease: float | None) -> float | None:
    if lease is None:
        return None
    if not 0 < lease <= LEASE_S_MAX:
        raise BadInput(f"a lease of {lease!r} cannot be granted: give seconds above 0, or None for ever")
    return float(lease)


def packed(hand_back: Any) -> bytes:
    from ....spaces.values import field_of

    return b"" if hand_back is None else msgspec.msgpack.encode(field_of(hand_back))


def unpacked(data: bytes) -> Any:
    from ....spaces.values import FieldValue

    return value_of(msgspec.msgpack.decode(data, type=FieldValue)) if data else None


def microseconds(lease_s: float | None) -> int:
    return 0 if lease_s is None else max(int(lease_s * 1e6), 1)


def seconds(lease_us: int) -> float | None:
    return lease_us / 1e6 if lease_us else None


def ended(name: str, what: str) -> LeaseEnded:
    return LeaseEnded(f"the {what} in {name!r} has ended, or was taken: write or register again")


def only_durable(kind: str) -> BadInput:
    return BadInput(f"only a durable space of kind 'replicated' joins a transaction, and this one is of kind {kind!r}")
