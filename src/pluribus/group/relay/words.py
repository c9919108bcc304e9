"""The words between senders from outside and members of an open group. They may be lost; senders repeat theirs."""

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
    """The stamp of the view of the group that the sender knows. A member in another view does not answer."""
    begins: Position
    """The sender's first message that was not settled when that view began."""
    first: Position
    kind: Number | Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    bodies: Annotated[list[bytes], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)]
    settled: Position = 0
    """The sender has forgotten earlier messages, because another member answered that they are settled."""


class Settled(Header, tag=93):
    """The answer: every member has the messages before ``settled``; those before ``taken`` need not be repeated."""

    stamp: Number
    settled: Position
    taken: Position
    refused: Number = TAKEN


WORDS: tuple[type[Header], ...] = (Forward, Settled)


class Through(Frame, kw_only=True):
    """Messages of a sender from outside, as they are read. They are charged to the relay's window."""

    relay: int

    @property
    def stream(self) -> tuple[int, int, int]:
        return (self.relay, self.group, self.to)


def is_open(promises: str) -> bool:
    return OPEN in promises.split()
