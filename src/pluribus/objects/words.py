"""The words of this style on the wire. All have one kind, so that they share batches.

A ``Letter`` names its receiver outside of its payload, so that a process that has no such object never decodes it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.frame import Number
from ..core.limits import NAME_CHARS_MAX, OBJECTS_MAX
from ..wire.bodies import reserve
from ..wire.questions import Called, Wrapped

KIND = 40
KQML, OBJECT = 0, 1
ONE, ALL = 0, 1
GOOD, FAILED, REFUSED = 0, 1, 2

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Names = Annotated[list[Name], msgspec.Meta(max_length=OBJECTS_MAX)]


class Letter(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """A message to one object or to all with a name. Sent as a question, it is answered with ``Outcomes``."""

    kind: Number
    receiver: Name
    """An id or an alias."""
    how: Number
    sender: Name
    payload: bytes
    """KQML in its binary form, or a graph of objects."""
    reply_with: str = ""
    """The token, of an object message; KQML has it inside."""
    in_reply_to: str = ""
    bridges: Number = 0
    """The number of bridges that an object message has crossed; KQML has it inside."""


class Invocation(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A call through a handle."""

    how: Name
    interface: Name
    receiver: Name
    """The group, or the object's id; empty for all."""
    results: Name
    call: Called
    """Its arguments are still encoded."""
    bridges: Number = 0
    """The number of bridges that the call has crossed."""


class Sought(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A question: which of your objects have this id, alias or interface? The answer is ``Found``."""

    name: Name
    interface: bool = False


class Found(msgspec.Struct, array_like=True, frozen=True, tag=3):
    ids: Names


class Changed(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """These names mean other objects here now: processes that remember them ask again."""

    names: Names


class Outcomes(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The results of one process's objects for a call or a message: id, outcome, and a body."""

    of: Annotated[list[tuple[Name, Number, Wrapped]], msgspec.Meta(max_length=OBJECTS_MAX)]


class Listing(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """A question: which objects are yours? And its answer: id, type, aliases and interfaces of each."""

    of: Annotated[list[tuple[Name, Name, Names, Names]], msgspec.Meta(max_length=OBJECTS_MAX)] = []


class Offer(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """A queued call, as a question; it is repeated as often as needed, and done once. The answer is ``Outcomes`` with
    one."""

    queue: Name
    """The caller's queue, which outlives its process."""
    number: Number
    """The number of the call in that queue."""
    settled: Number
    """All calls below are over: their answers need not be kept."""
    site: Name
    """The site that was offered it first; no other may do it."""
    receiver: Name
    payload: bytes


class Settled(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The caller has all answers below."""

    queue: Name
    below: Number


class Whereabouts(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """A question: which site are you, and do you have this object? The answer has both, or an empty receiver."""

    receiver: Name
    site: Name = ""


Styled = Letter | Invocation | Sought | Found | Changed | Outcomes | Listing | Offer | Settled | Whereabouts
reserve(KIND, *Styled.__args__)

_encode = msgspec.msgpack.Encoder().encode
_decode_called = msgspec.msgpack.Decoder(Called).decode


def packed_call(call: Called) -> bytes:
    return _encode(call)


def unpacked_call(payload: bytes) -> Called:
    """The parts of a call; ``msgspec.MsgspecError`` if these bytes are not one."""
    return _decode_called(payload)


def is_ours(body: Any) -> bool:
    return isinstance(body, Styled)
