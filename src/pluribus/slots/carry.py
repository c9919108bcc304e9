"""The state that an occupant takes along when it moves, as an object and as bytes."""

from __future__ import annotations

import msgspec

from ..core.errors import BadInput
from .inbox import Remembered
from .outbox import Carried


class Carry(msgspec.Struct, array_like=True, frozen=True):
    """The state of a moving occupant: its identity, its queued messages, and its memory of acknowledged ones."""

    origin: int
    next_number: int
    queue: list[Carried]
    memory: list[Remembered]

    def packed(self) -> bytes:
        """As bytes, for a file or another process; ``bus.enroll(..., carry=...)`` takes them too."""
        return msgspec.msgpack.encode(self)


def carry_from(given: Carry | bytes | None) -> Carry | None:
    """The state in these bytes; ``BadInput`` if ``Carry.packed`` did not make them."""
    if not isinstance(given, bytes):
        return given
    try:
        return msgspec.msgpack.decode(given, type=Carry)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"these bytes are nothing that a mover takes along ({error}): give what packed() made") from None
