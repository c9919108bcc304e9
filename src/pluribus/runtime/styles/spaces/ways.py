"""The ways to spaces of the kinds *views* and *partitioned*: what differs between the crews of the two."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, Overflow, Uncertain
from ....spaces.kept import granted
from ....spaces.partitioned import words as partitioned_words
from ....spaces.partitioned.member import PartitionedMember
from ....spaces.templates import Template
from ....spaces.values import Item
from ....spaces.views import words as views_words
from ....spaces.views.member import ViewsMember
from ....spaces.views.words import Name
from .crew import Crew, settings_of
from .space import WriteResult, ended, microseconds, seconds

if TYPE_CHECKING:
    from ...bus import Bus

ALL_MAX = 100_000
"""Tuples that ``read_all`` fetches at a time."""

log = logging.getLogger(__name__)


class ViewsWay(Crew):
    """A member of a space of the kind *views*."""

    kind = "views"

    def __init__(self, bus: Bus, name: str, worker: int, replica: bool) -> None:
        super().__init__(bus, name, ViewsMember(int(bus.me), worker, replica, bus._random), views_words, replica, "")

    def _cancel(self, number: int) -> None:
        self._settle()
        if not self.member.cancel(number):
            return  # its result comes all the same
        self._taking.discard(number)
        waiter = self._waiters.pop(number, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _told(self) -> None:
        void, self.member.void = self.member.void, []
        for item in void:
            log.warning("a take of %r did not happen: this member was cut off, and another took the tuple", self.name)
            self._tell(self.on_void, item)
        if self.member.lost > self._lost:
            self._lost = self.member.lost
            log.warning("the space %r is lost with all its replicas: it is empty now", self.name)
            self._tell(self.on_lost, {})

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult:
        self._check(transaction)
        lease_us = granted(microseconds(lease_s))
        self.member.check_room()  # all of them are written, or none
        names = [self.member.write(item, lease_us, self._now) for item in items]
        self._settle()
        return WriteResult([number for _, number in names], seconds(lease_us))

    async def _relet(self, name: Name, item: Item, lease_us: int, ends: bool) -> Name:
        """Under the lock of a take: remove the tuple, and write it again with the new lease."""
        self._check(0)
        asked = self.member.relet(name, item, lease_us, ends, self._now)
        result = await self._result(asked, None, False)
        if result.item is None:
            raise ended(self.name, f"lease {name[1]}")
        return self.named(int(result.written))

    async def _renew(self, registration: Name, lease_us: int, ends: bool) -> bool:
        if ends and (await self.fetched(registration, [], 0, True)).ended:
            return False
        await self._result(self.member.renew(registration, lease_us, ends, self._now), None, False)
        return ends or not (await self.fetched(registration, [], 0, True)).ended

    async def page(self, template: Template, after: int, most: int, transaction: int) -> tuple[list[int], list[Item]]:
        self._check(transaction)
        return [], (await self._replica()).every(template)

    async def count(self, template: Template, transaction: int) -> int:
        self._check(transaction)
        return int((await self._replica()).count(template))

    async def _replica(self) -> Any:
        """The own replica, when it has the tuples of this epoch and the earlier operations of this worker."""
        if self.member.replica is None:
            raise BadInput(f"this member has no replica of {self.name!r} to count in: open it with replica=True")
        await self._in_primary()
        last = self.member.last
        await self._wait_until(lambda: self.member.has_executed(last))
        return self.member.replica


class PartitionedWay(Crew):
    """A member of a partitioned space."""

    kind = "partitioned"

    def __init__(self, bus: Bus, name: str, worker: int, holds: bool, copies: int, key: int) -> None:
        member = PartitionedMember(int(bus.me), worker, bus._random, copies, key)
        super().__init__(bus, name, member, partitioned_words, holds, settings_of(copies, key))

    def _cancel(self, number: int) -> None:
        self.member.cancel(number, self._now)

    def _told(self) -> None:
        lost, self.member.lost = self.member.lost, []
        for ranges in lost:
            count = sum(ranges.values())
            log.warning("%d ranges of the space %r are lost, with about %d tuples", len(ranges), self.name, count)
            self._tell(self.on_lost, ranges)

    async def write(self, items: list[Item], lease_s: float | None, transaction: int) -> WriteResult:
        self._check(transaction)
        lease_us = granted(microseconds(lease_s))
        self.member.check_room()  # all of them are written, or none
        asked = [self.member.write(item, lease_us, self._now) for item in items]
        results = await asyncio.gather(*[self._result(number, None, False) for number in asked])
        if any(result.unknown for result in results):
            raise Uncertain(
                f"a server of {self.name!r} was lost while it was written to: look whether the tuple is there"
            )
        return WriteResult([result.name[1] for result in results], seconds(lease_us))

    async def _relet(self, name: Name, item: Item, lease_us: int, ends: bool) -> Name:
        self._check(0)
        asked = self.member.relet(name, item, lease_us, ends, self._now)
        if not (await self._result(asked, None, False)).done:
            raise ended(self.name, f"lease {name[1]}")
        return name

    async def _renew(self, registration: Name, lease_us: int, ends: bool) -> bool:
        asked = self.member.renew(registration, lease_us, ends, self._now)
        return bool((await self._result(asked, None, False)).done)

    async def page(self, template: Template, after: int, most: int, transaction: int) -> tuple[list[int], list[Item]]:
        self._check(transaction)
        result = await self._result(self.member.tally(template, ALL_MAX, self._now), None, False)
        if result.count > len(result.items):
            raise Overflow(
                f"{result.count:,} tuples match, and {len(result.items):,} are read at once: ask for fewer of them"
            )
        return [], result.items

    async def count(self, template: Template, transaction: int) -> int:
        self._check(transaction)
        result = await self._result(self.member.tally(template, 0, self._now), None, False)
        return int(result.count)
