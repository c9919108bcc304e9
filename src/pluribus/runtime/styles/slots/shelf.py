"""The way of a bus without a router to the keepers, which have its map on their disks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....core.ids import number_of
from ....slots.map import BusMap
from ....slots.shelf import PREFIX, KeptMap, LookAtMap, MapShelf, PutMap, encode
from ...machines.line import MachineLine
from ...machines.machines import Machines

if TYPE_CHECKING:
    from ...bus import Bus

KEEPERS = number_of("keepers")


def has_keepers(bus: Bus) -> bool:
    return KEEPERS in bus._dispatch.members


class Shelf:
    """The shelf of one bus, for one member. A map that several tasks put at a time is put once."""

    def __init__(self, line: MachineLine[KeptMap]) -> None:
        self._line = line
        self._putting = asyncio.Lock()
        self._kept = KeptMap()

    @classmethod
    async def opened(cls, bus: Bus, name: str) -> Shelf:
        return cls(await bus._style(Machines).open(f"{PREFIX}{name}", MapShelf, KeptMap))

    async def put(self, map: BusMap) -> KeptMap:
        """Put a map. Returns the keepers' map: this one, a later state of it, or another map that they had before."""
        async with self._putting:
            if self._kept.born != map.born or self._kept.age < map.age:
                self._kept = await self._line.call(encode(PutMap(map.born, map.age, map.snapshot())))
            return self._kept

    async def look(self) -> bytes:
        return await self._line.inspect(encode(LookAtMap()))
