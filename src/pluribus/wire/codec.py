"""Frames to datagrams and back.

A datagram is one msgpack array, the fields of ``Frame`` in order. The first seven bytes are the same for every frame of
a bus (array header, version, a 32-bit tag of the bus's name), so a foreign datagram is told from ours by one comparison
and never decoded. The version byte is major * 16 + minor: minors interoperate, because fields and headers only ever
grow at their end and msgspec skips what it does not know; another major is refused.

Everything that comes from outside is checked while it is decoded (types, ranges, lengths, header tags), and msgspec
checks each announced size against the bytes that are there before it allocates. What is wrong raises ``MalformedFrame``
and nothing else.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from ..core.errors import BadStack, MalformedFrame
from ..core.frame import Frame, Header
from ..core.limits import HEADERS_PER_FRAME_MAX

MAJOR, MINOR = 1, 0
VERSION = MAJOR * 16 + MINOR

_TAG_FIRST = 1 << 16  # below it msgpack would use fewer bytes, and the prefix would change its length
_FIELDS = len(Frame.__struct_fields__)
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError, MemoryError)


class Codec:
    """The codec of one bus and one stack: it accepts the headers of that stack's layers and no others."""

    def __init__(self, bus: str, header_types: Sequence[type[Header]] = ()) -> None:
        self.bus = bus
        self.tag = max(int.from_bytes(blake2b(bus.encode(), digest_size=4).digest(), "big"), _TAG_FIRST)
        self.prefix = bytes([0x90 + _FIELDS, VERSION, 0xCE]) + self.tag.to_bytes(4, "big")
        self.pack = msgspec.msgpack.Encoder().encode
        """Encodes a frame whose version and bus are set already."""
        self.unpack = msgspec.msgpack.Decoder(_frame_type(header_types)).decode

    def encode(self, frame: Frame) -> bytes:
        frame.version = VERSION
        frame.bus = self.tag
        return self.pack(frame)

    def decode(self, data: bytes) -> Frame:
        """The frame, or ``MalformedFrame`` with the reason; no other exception leaves here."""
        if data[:7] != self.prefix:
            self._check_prefix(data)
        try:
            frame: Frame = self.unpack(data)
        except DECODE_ERRORS as error:
            raise MalformedFrame(f"not a frame: {error}") from None
        if frame.size > len(data) or frame.count > len(data):
            # Windows count by them, so they are believed only as far as the bytes that came with them.
            raise MalformedFrame(f"{frame.count} messages of {frame.size} bytes in a datagram of {len(data)}")
        return frame

    def _check_prefix(self, data: bytes) -> None:
        """Called when the prefix is not exactly ours: the longer array of a later minor is accepted."""
        if len(data) < 7 or data[2:3] != b"\xce" or not 0x90 < data[0] <= 0x9F:
            raise MalformedFrame("not a Pluribus datagram")
        if data[1] >> 4 != MAJOR:
            raise MalformedFrame(
                f"wire version {data[1] >> 4}.{data[1] & 15} is not {MAJOR}.x: "
                "install the same major release on both sides"
            )
        if data[3:7] != self.prefix[3:]:
            raise MalformedFrame("a datagram of another bus")


def _frame_type(header_types: Sequence[type[Header]]) -> Any:
    """A subclass of ``Frame`` whose ``headers`` are the union of these types and whose ``bodies`` stay encoded."""
    tags: dict[object, type[Header]] = {}
    for header in header_types:
        tag = header.__struct_config__.tag
        if not isinstance(tag, int):
            raise BadStack(f"the header {header.__name__} has no integer tag: declare it with tag=NUMBER")
        other = tags.setdefault(tag, header)
        if other is not header:
            raise BadStack(f"the headers {other.__name__} and {header.__name__} share tag {tag}: change one of them")
    union: Any = functools.reduce(operator.or_, header_types) if header_types else None
    headers = Annotated[list[union], msgspec.Meta(max_length=HEADERS_PER_FRAME_MAX)]
    return msgspec.defstruct(
        "WireFrame", [("headers", headers), ("bodies", msgspec.Raw)], bases=(Frame,), array_like=True, kw_only=True
    )
