"""Where keepers have the map of a bus without a router: the latest state that members of the bus have put there.

The members order what changes the map among themselves (``machine.py``); before they tell anybody that something is
done, the state with it is here, on the disks of most voters. So a map outlives all occupants, and a forced primary that
knows less learns what is missing. A state that has no more than the one that is here changes nothing (``BusMap.age``),
nor does a map that was begun without knowing of this one (``BusMap.born``): members go on with what is here.
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
"""Of the machine's name; the rest is the bus."""
STATE_BYTES_MAX = 16 << 20
_PART = "map"


class PutMap(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A state of the map, and how much it has seen."""

    born: Number
    age: Version
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]


class LookAtMap(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The state that is here; empty if there is none."""


class KeptMap(msgspec.Struct, array_like=True, frozen=True):
    """What is here, after a command."""

    born: Number = 0
    age: Version = (0, 0)


class MapShelf(Machine):
    """Of one bus."""

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
"""Members of the bus speak to it; clients do not."""
