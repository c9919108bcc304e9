"""The spaces that one bus has open, and the list of all that there are.

The list is a space in memory. Durable spaces are also listed in a durable space, so that they are found after all
members were gone. Of two entries with one name the older counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.errors import BadInput, NoKeeper, NoMembers, Overflow, PluribusError, Refused
from ....core.ids import checked_name
from ....group.sessions import SessionEntry
from ....spaces.machine import SpaceMachine
from ....spaces.templates import template_of
from ....spaces.values import FIELDS_MAX, item_of, written_of
from ....spaces.visits import SpacePlace
from ....spaces.words import Write
from ...machines.machines import Machines
from ..style import Asker, Style
from .replicated import ReplicatedWay
from .space import Space, SpaceWay

if TYPE_CHECKING:
    from .crew import Crew

KINDS = ("replicated", "views", "partitioned")
MACHINE = "space/"
LIST = "spaces"
"""The space in which spaces are listed."""
COPIES_MAX = 16
CLIENTS_SPACES_MAX = 256
"""Spaces in which a member takes part for its clients; it stays in them until the bus closes."""


class SpaceInfo(msgspec.Struct, frozen=True):
    """One line of the list."""

    name: str
    kind: str
    durable: bool


class Spaces(Style):
    """The spaces that one bus, or one client, has open."""

    on_clients = "pluribus.runtime.styles.spaces.spaces:ClientSpaces"
    closes = 40

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self._open: list[Space] = []
        self._crews: dict[str, Crew] = {}
        self._joining: dict[str, asyncio.Lock] = {}
        self._listings: dict[bool, ReplicatedWay] = {}
        """The spaces that hold the list, by whether they are durable."""
        self._opening = {durable: asyncio.Lock() for durable in (False, True)}

    async def open(
        self, name: str, kind: str, durable: bool, replica: bool, copies: int, key: int, timeout: float | None
    ) -> Space:
        checked_name(name, "the space")
        if kind not in KINDS:
            raise BadInput(f"there is no kind {kind!r} of spaces: use one of {', '.join(KINDS)}")
        if durable and kind != "replicated":
            raise BadInput(f"only a space of kind 'replicated' is durable, and {name!r} is to be of kind {kind!r}")
        if not 1 <= copies <= COPIES_MAX or not 0 <= key < FIELDS_MAX:
            raise BadInput(
                f"copies={copies}, key={key}: use 1 to {COPIES_MAX} copies, and a field from 0 to {FIELDS_MAX - 1}"
            )
        if kind != "partitioned" and (copies, key) != (1, 0):
            raise BadInput(f"copies= and key= are of the kind 'partitioned', and {name!r} is to be of kind {kind!r}")
        if kind == "replicated" and not replica:
            raise BadInput("replica=False is of the kinds 'views' and 'partitioned': leave it out")
        async with asyncio.timeout(timeout):
            await self._enlist(SpaceInfo(name, kind, durable))
            way = await self._way(SpacePlace(name, kind, copies, key), durable, replica)
        space = Space(name, way)
        self._open = [one for one in self._open if not one.closed]
        self._open.append(space)
        return space

    async def _way(self, place: SpacePlace, durable: bool, replica: bool) -> SpaceWay:
        if place.kind == "replicated":
            return await self._replicated(MACHINE + place.name, place.name, durable)
        return await self._crew(place, replica)

    async def _crew(self, place: SpacePlace, replica: bool | None) -> Crew:
        """This member's part in a space that its members hold; one for all users here. ``replica`` None: with a
        replica, if the space is not open yet."""
        from .ways import PartitionedWay, ViewsWay

        bus, name = self.bus, place.name
        if "total" not in bus.orders:
            raise BadInput(f"a space of kind {place.kind!r} needs agreed views: connect with stack='views'")
        async with self._joining.setdefault(name, asyncio.Lock()):
            way = self._crews.get(name)
            if way is None or way.closed:
                if place.kind == "views":
                    way = ViewsWay(bus, name, self._draw(), replica is not False)
                else:
                    way = PartitionedWay(bus, name, self._draw(), replica is not False, place.copies, place.key)
                try:
                    await way.start()
                except BaseException:
                    await way.leave()
                    raise
                self._crews[name] = way
            else:
                await way.also(bool(replica), place.copies, place.key)
            way.users += 1
            return way

    async def joined(self, place: SpacePlace) -> Crew:
        """Take part for clients of this member, which stays part of the space when they are gone."""
        if place.kind not in KINDS[1:]:
            raise Refused(f"a space of kind {place.kind!r} is not asked for through a member")
        way = self._crews.get(checked_name(place.name, "the space"))
        if way is None or way.closed or not way.for_clients:
            if sum(one.for_clients for one in self._crews.values()) >= CLIENTS_SPACES_MAX:
                raise Overflow(f"this member takes part in {CLIENTS_SPACES_MAX} spaces for clients: ask another one")
            way = await self._crew(place, None)
            if way.for_clients:  # two clients came at once
                way.users -= 1
            way.for_clients = True
        if way.kind != place.kind:
            raise BadInput(f"the space {place.name!r} is of kind {way.kind!r}: open it as the others did")
        await way.also(False, place.copies, place.key)
        return way

    async def handle(self, request: Any, asker: Asker) -> Any:
        from .hosting import visited

        return await visited(self, request, asker)

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
        """Enter a space in the list. ``BadInput`` if the list has it with other settings."""
        for durable in (False, True) if info.durable else (False,):
            listing = await self._list(durable)
            known = await self._find(listing, info.name)
            if known is None:
                await listing.call(Write([item_of((info.name, info.kind, info.durable))]))
                known = await self._find(listing, info.name)  # another one may have been first
            if known is not None and known != info:
                raise BadInput(
                    f"the space {info.name!r} is of kind {known.kind!r}{', durable' if known.durable else ''}: "
                    "open it as the others did"
                )

    async def _list(self, durable: bool) -> ReplicatedWay:
        async with self._opening[durable]:
            if durable not in self._listings:
                self._listings[durable] = await self._replicated(LIST, LIST, durable)
            return self._listings[durable]

    async def _find(self, listing: ReplicatedWay, name: str) -> SpaceInfo | None:
        item = await listing.read(template_of((name, str, bool)), 0, False, 0, False)
        return None if item is None else SpaceInfo(*written_of(item))

    async def listed(self, timeout: float | None) -> list[SpaceInfo]:
        found: dict[str, SpaceInfo] = {}
        async with asyncio.timeout(timeout):
            for durable in (True, False) if await self._keeps() else (False,):
                async for value in Space(LIST, await self._list(durable)).read_all((str, str, bool)):
                    found.setdefault(value[0], SpaceInfo(*value))
        return [found[name] for name in sorted(found)]

    async def _keeps(self) -> bool:
        """True if there are keepers on this bus."""
        try:
            await self.bus._style(Machines).open(LIST, SpaceMachine, SessionEntry, timeout=0.0)
        except (NoKeeper, NoMembers):
            return False
        except PluribusError:
            return True
        return True

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
        for way in self._crews.values():  # those that were opened for clients
            if not way.closed:
                way.users = 1
                try:
                    await way.close()
                except PluribusError:
                    way.abandon()

    def abandon(self) -> None:
        for space in self._open:
            if not space.closed:
                space.abandon()
        for way in self._crews.values():
            way.abandon()

    def validate(self) -> None:
        for space in self._open:
            if not space.closed:
                space.validate()
        for way in self._crews.values():
            if not way.closed:
                way.validate()


class ClientSpaces(Spaces):
    """On a client: its member, or the keepers, hold the spaces."""

    async def _way(self, place: SpacePlace, durable: bool, replica: bool) -> SpaceWay:
        if place.kind == "replicated":
            return await self._replicated(MACHINE + place.name, place.name, durable)
        from .visiting import VisitingWay

        if not replica:
            raise BadInput("replica=False is for members, and client:// is none: leave it out")
        way = VisitingWay(self.bus, place)
        await way.start()
        return way

    async def drain(self, timeout: float) -> None:
        """Nothing to wait for: a client's write is done when the call returns."""

    def _own(self, machine: str, durable: bool) -> SpaceMachine | None:
        return None

    def _draw(self) -> int:
        return int(self.bus.new_number())
