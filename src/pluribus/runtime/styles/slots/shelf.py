"""The way of a bus without a router to the keepers, which have its map on their disks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....core.ids import number_of
from ....slots.map import BusMap
from ....slots.shelf import PREFIX, Look, MapShelf, Put, encode
from ....slots.words import Version
from ...machines.line import MachineLine
from ...machines.machines import Machines

if TYPE_CHECKING:
    from ...bus import Bus

KEEPERS = number_of("keepers")


def has_keepers(bus: Bus) -> bool:
    return KEEPERS in bus._dispatch.members


class Shelf:
    """Of one bus, for one member. What several wait for is put there once."""

    def __init__(self, line: MachineLine[Version]) -> None:
        self._line = line
        self._putting = asyncio.Lock()
        self._age: Version = (0, 0)

    @classmethod
    async def opened(cls, bus: Bus, name: str) -> Shelf:
        return cls(await bus._style(Machines).open(f"{PREFIX}{name}", MapShelf, Version))  # type: ignore[arg-type]

    async def put(self, map: BusMap) -> Version:
        """The age of what the keepers have then: that of this map, or a later one."""
        async with self._putting:
            if self._age < map.age:
                self._age = await self._line.call(encode(Put(map.age, map.snapshot())))
            return self._age

    async def look(self) -> bytes:
        return await self._line.inspect(encode(Look()))
