"""A batch some of whose messages must wait, and how it is taken apart."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.frame import Frame, Parents
from ...core.ids import MessageId
from ...wire.bodies import array_header

_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def parents_of(frame: Frame) -> Parents | None:
    for header in frame.headers:
        if type(header) is Parents:
            return header
    return None


class Batch:
    """A batch that does not pass as a whole: its messages are passed up in parts."""

    __slots__ = ("_bodies", "_left", "_size", "first", "frame", "of", "orphans", "sender")

    def __init__(self, frame: Frame, of: list[MessageId | None]) -> None:
        self.frame = frame
        self.sender = frame.sender
        self.first = frame.first
        self.of = of
        self.orphans: set[int] = set()
        self._left = frame.count
        self._size = frame.size
        self._bodies: list[Any] = []
        if frame.count > 1:
            self._bodies = frame.bodies if isinstance(frame.bodies, list) else _decode_raw(frame.bodies)
            if len(self._bodies) != frame.count:
                raise ValueError(f"{len(self._bodies)} bodies where the frame says {frame.count}")

    def part(self, start: int, stop: int) -> tuple[Frame, bool]:
        """A frame of these messages, and whether it is the last part. The last part has the size that the others
        left."""
        self._left -= stop - start
        frame, last = self.frame, not self._left
        whole = stop - start == frame.count
        if whole and not self.orphans:
            return frame, last
        answers = Parents(self.of[start:stop], [place - start for place in range(start, stop) if place in self.orphans])
        headers = [answers if type(header) is Parents else header for header in frame.headers]
        if whole:
            frame.headers = headers
            return frame, last
        bodies = self._bodies[start:stop]
        size = self._size if last else min(sum(map(len, bodies)), self._size)
        self._size -= size
        part = Frame(
            sender=frame.sender,
            to=frame.to,
            group=frame.group,
            first=frame.first + start,
            count=stop - start,
            size=size,
            kind=frame.kind,
            headers=headers,
            bodies=bodies
            if isinstance(frame.bodies, list)
            else msgspec.Raw(array_header(stop - start) + b"".join(bodies)),
        )
        return part, last
