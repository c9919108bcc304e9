"""Where keepers have the map of a bus without a router: the latest state that members of the bus have put there.

The members order what changes the map among themselves (``machine.py``); before they tell anybody that something is
done, the state with it is here, on the disks of most voters. So a map outlives all occupants, and a forced primary that
knows less learns what is missing. A state that has no more than the one that is here changes nothing (``BusMap.age``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec

from ..group.host.machine import Ground, Machine
from ..group.host.rights import MachineRights
from .words import Version

KIND = "slots-map"
PREFIX = "slots/"
"""Of the machine's name; the rest is the bus."""
STATE_BYTES_MAX = 16 << 20
_PART = "map"


class Put(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A state of the map, and how much it has seen."""

    age: Version
    state: Annotated[bytes, msgspec.Meta(max_length=STATE_BYTES_MAX)]


class Look(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The state that is here; empty if there is none."""


class MapShelf(Machine):
    """Of one bus. A command is answered with the age of the state that is here then."""

    kind: ClassVar[str] = KIND
    version: ClassVar[int] = 1

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.age: Version = (0, 0)
        self.state = b""

    def apply(self, row: int, place: int, command: bytes) -> Version:
        try:
            given = _put.decode(command)
        except (msgspec.MsgspecError, ValueError):  # from outside: a machine never raises
            return self.age
        if given.age > self.age:
            self.parts.touch(_PART)
            self.age, self.state = given.age, given.state
        return self.age

    def query(self, question: bytes) -> bytes:
        return self.state

    def part_names(self) -> list[str]:
        return [_PART]

    def encode_part(self, name: str) -> bytes:
        return encode(Put(self.age, self.state))

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self.age, self.state = (0, 0), b""
        for _, data in parts:
            kept = _put.decode(data)
            self.age, self.state = kept.age, kept.state

    def validate(self) -> None:
        assert len(self.state) <= STATE_BYTES_MAX


encode = msgspec.msgpack.encode
_put = msgspec.msgpack.Decoder(Put)

RIGHTS = MachineRights("slots", PREFIX, KIND, {Put: None}, {Look: None}, makes=None)
"""Members of the bus speak to it; clients do not."""
