"""A shelf: the keepers' copy of the map of a bus without a router, the latest state that members of the bus have put
there.

The members order the changes of the map among themselves (``machine.py``); before they acknowledge a change, the state
with it is on the shelf, on the disks of most voters. So a map outlives all occupants, and a forced primary with an
older map learns the later changes. A state that is not ahead of the one on the shelf changes nothing (``BusMap.age``),
nor does a map that was begun without knowing this one (``BusMap.born``): members go on with the state on the shelf.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec

from ..core.frame import Number
from ..group.host.machine import Ground, Machine
from ..group.host.rights import MachineRights
from .words import Version

KIND = "slots-map"
PREFIX = "slots/"
"""The prefix of the machine's name; the rest is the bus."""
STATE_BYTES_MAX = 16 << 20
_PART = "map"


class PutMap(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A state of the map, and its age."""

    born: Number
    age: Version
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]


class LookAtMap(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Asks for the state on the shelf; empty if there is none."""


class KeptMap(msgspec.Struct, array_like=True, frozen=True):
    """The state on the shelf, after a command."""

    born: Number = 0
    age: Version = (0, 0)


class MapShelf(Machine):
    """The shelf of one bus."""

    kind: ClassVar[str] = KIND
    version: ClassVar[int] = 1

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.kept = KeptMap()
        self.state = b""

    def apply(self, row: int, place: int, command: bytes) -> KeptMap:
        try:
            given = _put.decode(command)
        except (msgspec.MsgspecError, ValueError):  # from outside: a machine never raises
            return self.kept
        if not self.state or (given.born == self.kept.born and given.age > self.kept.age):
            self.parts.touch(_PART)
            self.kept, self.state = KeptMap(given.born, given.age), given.state
        return self.kept

    def query(self, question: bytes) -> bytes:
        return self.state

    def part_names(self) -> list[str]:
        return [_PART]

    def encode_part(self, name: str) -> bytes:
        return encode(PutMap(self.kept.born, self.kept.age, self.state))

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self.kept, self.state = KeptMap(), b""
        for _, data in parts:
            found = _put.decode(data)
            self.kept, self.state = KeptMap(found.born, found.age), found.state

    def validate(self) -> None:
        assert len(self.state) <= STATE_BYTES_MAX


encode = msgspec.msgpack.encode
_put = msgspec.msgpack.Decoder(PutMap)

RIGHTS = MachineRights("slots", PREFIX, KIND, {PutMap: None}, {LookAtMap: None}, makes=None)
"""Members of the bus use it; clients do not."""
