"""What senders from outside and members of an open group say to each other. It may be lost: senders repeat it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Frame, Header, Number, Position
from ...core.limits import BATCH_MESSAGES_MAX, NAME_CHARS_MAX

RELAYED_FIRST = 1 << 61
"""Numbers of relayed messages start here: far above those that the same process may use as a member."""

OPEN = "open"
"""The word in a group's promises."""

TAKEN, CLOSED = 0, 1


class Forward(Header, tag=92):
    """To a member of an open group: send these messages of mine to all."""

    stamp: Number
    """Of the view of the group that the sender sees. A member that is in another one does not answer."""
    begins: Position
    """The sender's first message that was not settled when that view began."""
    first: Position
    kind: Number | Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    bodies: Annotated[list[bytes], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)]
    settled: Position = 0
    """What is before the sender has forgotten, because another member answered that it is settled."""


class Settled(Header, tag=93):
    """The answer: what is before ``settled`` every member has, and what is before ``taken`` need not be said again."""

    stamp: Number
    settled: Position
    taken: Position
    refused: Number = TAKEN


WORDS: tuple[type[Header], ...] = (Forward, Settled)


class Through(Frame, kw_only=True):
    """Messages of a sender from outside, as they are read. The window that they are charged to is the relay's."""

    relay: int

    @property
    def stream(self) -> tuple[int, int, int]:
        return (self.relay, self.group, self.to)


def is_open(promises: str) -> bool:
    return OPEN in promises.split()
