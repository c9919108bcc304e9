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
    """For one stream of the addressee: this message is received, and it may send up to that byte."""

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
    """From a sender that waits for acknowledgements: how far it has sent, so that a lost last message is noticed."""

    streams: Annotated[list[Sent], msgspec.Meta(max_length=STREAMS_PER_FRAME_MAX)]
    stamp: Number
    """Of the sender's view: a message that is stable in that view may be missing in another one."""
    quiet: bool = False
    """Needs no answer."""


class Want(Header, tag=23):
    """The sender of this word lacks messages of a stream, from ``first`` up to ``stop``."""

    sender: Number
    group: Number
    to: Number
    first: Number
    stop: Number


class Repair(Header, tag=24):
    """A frame of another sender, as that sender encoded it, from a member that kept it."""

    frame: bytes


class Summed(msgspec.Struct, array_like=True):
    """About a stream to a large group: every member below the sender of this word, in the tree of acknowledgements, has
    received the stream up to here, and has room up to there."""

    owner: Number
    group: Number
    stamp: Number
    received: Number
    limit: Number
    tightest: Number
    """The member that has the least room."""


class Sums(Header, tag=25):
    streams: Annotated[list[Summed], msgspec.Meta(max_length=STREAMS_PER_FRAME_MAX)]
