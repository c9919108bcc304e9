"""The frames that have come to a member and wait for its program; import it from ``quick``.

``c`` has the same in C. It is used where it was compiled, because every question and every answer waits for it. A
test holds the two to the same answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import msgspec

from ..core.frame import Frame, Message
from ..core.ids import MemberId

_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class Reading:
    """Frames wait in ``inbox``. What was taken from it is counted until the senders are told."""

    __slots__ = (
        "_busy_bytes",
        "_frame_bytes",
        "_idle_bytes",
        "_people",
        "_plain",
        "_taken",
        "_taken_bytes",
        "inbox",
        "state",
    )

    inbox: deque[Frame]
    state: Any
    """Whatever has to see frames before they are read, or None."""
    _taken: dict[tuple[int, int, int], tuple[int, int]]
    """By stream: frames, and what they weigh."""
    _taken_bytes: int
    _people: dict[int, MemberId]
    _plain: int
    """The kind of bodies that are bytes."""
    _frame_bytes: int
    """What a frame counts for, besides its bodies."""
    _busy_bytes: int
    _idle_bytes: int

    def take_lone(self) -> Message | None:
        """The message of the next frame, if that has one message of plain bytes and no headers, as most questions and
        answers have; else None, and the frame stays."""
        if self.inbox[0].count != 1:
            return None
        return next(iter(self.take_plain() or ()), None)

    def take_plain(self) -> Iterator[Message] | None:
        """The messages of the next frame, if they are plain bytes without headers; else None, and the frame stays."""
        frame = self.inbox[0]
        if type(frame) is not Frame or frame.kind != self._plain or frame.headers or self.state is not None:
            return None
        number, first, bodies = frame.sender, frame.first, frame.bodies
        sender = self._people.get(number)
        if sender is None:
            return None
        if type(bodies) is not list:
            try:
                bodies = _decode(bodies)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return None
        if len(bodies) != frame.count:
            return None
        self.inbox.popleft()
        stream = (number, frame.group, frame.to)
        frames, size = self._taken.get(stream, (0, 0))
        self._taken[stream] = (frames + 1, size + frame.size)
        self._taken_bytes += frame.size + self._frame_bytes
        return map(Message, bodies, repeat(sender), zip(repeat(sender), count(first)))

    @property
    def must_report(self) -> bool:
        """Whether senders should hear now of what was taken."""
        return self._taken_bytes >= (self._busy_bytes if self.inbox else self._idle_bytes)
