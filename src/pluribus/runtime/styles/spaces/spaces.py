"""The spaces that one bus has open, and the list of all that there are."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ....core.errors import BadInput, PluribusError
from ....core.ids import checked_name
from ....group.sessions import SessionEntry
from ....spaces.machine import SpaceMachine
from ....spaces.templates import template_of
from ...machines.machines import Machines
from ..style import Style
from .replicated import ReplicatedWay
from .space import Space, SpaceWay

KINDS = ("replicated", "views", "partitioned")
MACHINE = "space/"
LIST = "spaces"
"""The space in memory in which spaces are listed."""
COPIES_MAX = 16


class SpaceInfo(msgspec.Struct, frozen=True):
    """One line of the list."""

    name: str
    kind: str
    durable: bool


class Spaces(Style):
    """What one bus, or one client, has open."""

    on_clients = "pluribus.runtime.styles.spaces.spaces:ClientSpaces"
    closes = 40

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self._open: list[Space] = []
        self._listing: ReplicatedWay | None = None
        self._opening = asyncio.Lock()

    async def open(
        self, name: str, kind: str, durable: bool, replica: bool, copies: int, key: int, timeout: float | None
    ) -> Space:
        checked_name(name, "the space")
        if kind not in KINDS:
            raise BadInput(f"there is no kind {kind!r} of spaces: use one of {', '.join(KINDS)}")
        if durable and kind != "replicated":
            raise BadInput(f"only a space of kind 'replicated' is durable, and {name!r} is to be of kind {kind!r}")
        if not 1 <= copies <= COPIES_MAX or key < 0:
            raise BadInput(f"copies={copies}, key={key}: use 1 to {COPIES_MAX} copies, and a field from 0 on")
        async with asyncio.timeout(timeout):
            await self._enlist(SpaceInfo(name, kind, durable))
            way = await self._way(name, kind, durable, replica, copies, key, timeout)
        space = Space(name, way)
        self._open = [one for one in self._open if not one.closed]
        self._open.append(space)
        return space

    async def _way(
        self, name: str, kind: str, durable: bool, replica: bool, copies: int, key: int, timeout: float | None
    ) -> SpaceWay:
        if kind == "replicated":
            return await self._replicated(MACHINE + name, name, durable)
        from .crew import Crew, PartitionedWay, ViewsWay

        bus = self.bus
        if "total" not in bus.orders:
            raise BadInput(f"a space of kind {kind!r} needs agreed views: connect with stack='views'")
        if any(one.name == name and one.kind == kind and not one.closed for one in self._open):
            raise BadInput(f"this bus has the space {name!r} of kind {kind!r} open already: use that one")
        worker = self._draw()
        way: Crew
        if kind == "views":
            way = ViewsWay(bus, name, worker, replica)
        else:
            way = PartitionedWay(bus, name, worker, replica, copies, key)
        try:
            await way.start(timeout)
        except BaseException:
            await way.leave()
            raise
        return way

    async def _replicated(self, machine: str, name: str, durable: bool) -> ReplicatedWay:
        machines = self.bus._style(Machines)
        line = await machines.open(machine, SpaceMachine, SessionEntry, durable=durable)
        return ReplicatedWay(name, line, int(self.bus.me), self._draw, lambda: self._own(machine, durable))

    def _own(self, machine: str, durable: bool) -> SpaceMachine | None:
        """This process's own copy of a machine."""
        if durable:
            keeper = self.bus.keeping.keeper
            host = None if keeper is None else keeper.desk.host
        else:
            group = self.bus._style(Machines).group_host(machine)
            host = None if group is None else group.host
        found = None if host is None else host.named(machine)
        return found.machine if found is not None and isinstance(found.machine, SpaceMachine) else None

    def _draw(self) -> int:
        return int(self.bus._random.getrandbits(60)) + 1

    # The list.

    async def _enlist(self, info: SpaceInfo) -> None:
        from ....spaces import words
        from ....spaces.values import item_of

        listing = await self._list()
        known = await self._find(info.name)
        if known is not None:
            if known != info:
                raise BadInput(
                    f"the space {info.name!r} is of kind {known.kind!r}{', durable' if known.durable else ''}: "
                    "open it as the others did"
                )
            return
        await listing.call(words.Write([item_of((info.name, info.kind, info.durable))]))

    async def _list(self) -> ReplicatedWay:
        async with self._opening:
            if self._listing is None:
                self._listing = await self._replicated(LIST, LIST, False)
            return self._listing

    async def _find(self, name: str) -> SpaceInfo | None:
        from ....spaces.values import written_of

        listing = await self._list()
        item = await listing.read(template_of((name, str, bool)), 0, False, 0, False)
        return None if item is None else SpaceInfo(*written_of(item))

    async def listed(self, timeout: float | None) -> list[SpaceInfo]:
        async with asyncio.timeout(timeout):
            await self._list()
        assert self._listing is not None
        space = Space(LIST, self._listing)
        found = {SpaceInfo(*value) async for value in space.read_all((str, str, bool))}
        return sorted(found, key=lambda info: info.name)

    # The end.

    async def drain(self, timeout: float) -> None:
        for space in self._open:
            if not space.closed:
                async with asyncio.timeout(timeout):
                    await space.flush()

    async def close(self) -> None:
        for space in self._open:
            try:
                await space.close()
            except PluribusError:
                space.abandon()

    def abandon(self) -> None:
        for space in self._open:
            if not space.closed:
                space.abandon()

    def validate(self) -> None:
        for space in self._open:
            if not space.closed:
                space.validate()


class ClientSpaces(Spaces):
    """On a client: replicated spaces, which its member has, or the keepers."""

    async def _way(
        self, name: str, kind: str, durable: bool, replica: bool, copies: int, key: int, timeout: float | None
    ) -> SpaceWay:
        if kind != "replicated":
            raise BadInput(
                f"the members of the bus make a space of kind {kind!r}, and client:// is none: connect to the bus "
                "itself, or open a space of kind 'replicated'"
            )
        return await self._replicated(MACHINE + name, name, durable)

    def _own(self, machine: str, durable: bool) -> SpaceMachine | None:
        return None

    def _draw(self) -> int:
        return int(self.bus.new_number())
