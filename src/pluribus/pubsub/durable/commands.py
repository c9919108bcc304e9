"""Commands to the keepers besides events, as they stand in the log, and their outcomes.

Each may be sent twice and is done once, because it says in full what is wanted, not as a difference. Times come with
the commands, in microseconds since 1970, because a state machine has no clock.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.errors import MalformedFrame
from ...core.limits import NAME_CHARS_MAX

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * NAME_CHARS_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
Query = Annotated[str, msgspec.Meta(max_length=2 * NAME_CHARS_MAX)]
"""The query that writes under a writer's name, and to which its numbers of batches belong. Empty: without identity."""

DONE, AGAIN, REFUSED = 0, 1, 2
EARLIEST, LATEST = -2, -1
"""Where a subscription starts, if not at an offset."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """``DONE`` now, ``AGAIN``: it had been done before, ``REFUSED`` with the reason."""

    status: int
    number: int = 0
    """For a batch: the offset of its first event (-1 if that is forgotten), or, if refused, the next sequence. For an
    attachment: its epoch. For a writer's commit: the last batch."""
    reason: str = ""
    offsets: dict[str, int] = {}
    """Of an attachment: from where each topic is to be read."""


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A consumer takes over a durable subscription, which is made if it is new. The one before can commit no more."""

    name: Text
    consumer: Whole
    patterns: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=1_024)]
    start: Annotated[int, msgspec.Meta(ge=EARLIEST)] = LATEST
    """Of topics that exist when the subscription is made: an offset, EARLIEST or LATEST. Later ones from 0."""
    starts: dict[Text, Whole] = {}
    """Offsets of single topics, found by time."""


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Everything below these offsets was handled. An offset never goes back."""

    name: Text
    epoch: Whole
    offsets: Annotated[dict[Text, Whole], msgspec.Meta(max_length=65_536)]


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Forget a subscription."""

    name: Text


class Retain(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """What a topic keeps: events of the last seconds, or of so many bytes; 0 is no limit. ``keys``: of the events of
    one key, only the last."""

    topic: Text
    age_us: Whole = 0
    size_bytes: Whole = 0
    keys: bool = False


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Events below this offset are removed."""

    topic: Text
    before: Whole


class Stage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A part of a writer's batch, not visible before that is committed. An attempt numbers its parts from 0."""

    writer: Text
    batch: Whole
    attempt: Text
    part: Whole
    at: Whole
    lease_us: Whole
    packed: bytes
    query: Query = ""
    anew: bool = False
    """Another query may have written under this name before."""


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Make what these attempts staged visible, in this order, all at once; drop what others staged for the batch."""

    writer: Text
    batch: Whole
    attempts: Annotated[list[tuple[Text, Whole]], msgspec.Meta(max_length=100_000)]
    """With the number of parts that each has, so that none is missing."""
    query: Query = ""
    anew: bool = False
    at: Whole = 0
    keep_us: Whole = 0
    """How long the number of the batch is remembered, from ``at`` on; for ever if one of both is 0."""


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Forget staged parts whose lease is over, and writers that were idle for too long; or the parts staged for one
    batch of a writer."""

    at: Whole = 0
    writer: str = ""
    batch: Whole = 0
    query: Query = ""


class Move(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The batches of one span of a topic, written again, so that their old rows can be freed."""

    topic: bytes
    end: Whole
    """Of the span: the offset behind its last event."""
    row: Whole
    """Where its first batch stood."""
    batches: list[bytes]


class Restage(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A staged part, written again, so that its old row can be freed."""

    writer: Text
    batch: Whole
    attempt: Text
    part: Whole
    row: Whole
    packed: bytes


class Compact(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Spans of a topic that follow each other once more, without the events that a later one of their key replaced."""

    topic: bytes
    start: Whole
    end: Whole
    """Of the spans: the first offset, and the one behind the last."""
    rows: list[Whole]
    """Where the first batch of each span stood; none: nothing is written."""
    batches: list[tuple[Whole, bytes]]
    """The offset from which each counts, up to that of the next one; empty bytes: nothing is left there."""
    upto: Whole = 0
    """Events below this offset were looked at; 0: that is told later."""
    size: Whole = 0
    """With ``upto``: bytes of the topic's events up to there, those that are gone included."""


Command = Attach | Commit | Detach | Retain | Forget | Stage | Publish | Drop | Move | Restage | Compact

encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a command that no release gives: {error}") from None
