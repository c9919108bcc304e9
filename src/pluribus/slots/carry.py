"""What an occupant takes along when it moves, as it is and as bytes."""

from __future__ import annotations

import msgspec

from ..core.errors import BadInput
from .inbox import Remembered
from .outbox import Carried


class Carry(msgspec.Struct, array_like=True, frozen=True):
    """What goes with an occupant that moves: who it is, what it has queued, what it has acknowledged."""

    origin: int
    next_number: int
    queue: list[Carried]
    memory: list[Remembered]

    def packed(self) -> bytes:
        """For a file or another process; ``bus.enroll(..., carry=...)`` takes it as it is."""
        return msgspec.msgpack.encode(self)


def carry_from(given: Carry | bytes | None) -> Carry | None:
    """``BadInput`` if these bytes are not what ``Carry.packed`` made."""
    if not isinstance(given, bytes):
        return given
    try:
        return msgspec.msgpack.decode(given, type=Carry)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"these bytes are nothing that a mover takes along ({error}): give what packed() made") from None
