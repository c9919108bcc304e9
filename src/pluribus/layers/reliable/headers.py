"""The words of the reliability layer on the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number

STREAMS_PER_FRAME_MAX = 1_024


class Data(Header, tag=20):
    """On every sequenced frame: its offset in bytes, and the message up to which every receiver has the stream."""

    offset: Number
    stable: Number
    stamp: Number
    """Of the view it was sent in; 0 to one member, which belongs to no view."""


class Granted(msgspec.Struct, array_like=True):
    """For one stream of the addressee: received up to this message, granted up to that byte."""

    group: Number
    to: Number
    received: Number
    limit: Number


class Ack(Header, tag=21):
    streams: Annotated[list[Granted], msgspec.Meta(max_length=STREAMS_PER_FRAME_MAX)]


class Sent(msgspec.Struct, array_like=True):
    """How far one stream of the sender has gone, and up to where all receivers have it."""

    group: Number
    to: Number
    next: Number
    offset: Number
    stable: Number


class Status(Header, tag=22):
    """A sender that waits for acknowledgements says what it has sent, so that a lost last message is found."""

    streams: Annotated[list[Sent], msgspec.Meta(max_length=STREAMS_PER_FRAME_MAX)]
    stamp: Number
    """Of the sender's view: what is stable there may be missing elsewhere."""
    quiet: bool = False
    """Needs no answer."""


class Want(Header, tag=23):
    """Messages of somebody's stream that the sender of this misses, from ``first`` up to ``stop``."""

    sender: Number
    group: Number
    to: Number
    first: Number
    stop: Number


class Repair(Header, tag=24):
    """A frame of another sender, encoded as it was, from somebody who kept it."""

    frame: bytes


class Summed(msgspec.Struct, array_like=True):
    """Of somebody's stream to a large group: everybody below the sender of this has received it up to here and has room
    up to there."""

    owner: Number
    group: Number
    stamp: Number
    received: Number
    limit: Number
    tightest: Number
    """The member that has the least room."""


class Sums(Header, tag=25):
    streams: Annotated[list[Summed], msgspec.Meta(max_length=STREAMS_PER_FRAME_MAX)]
