"""The words of spreading on the wire. Members are named by their index in the list along which the message goes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number, Position
from ...core.tree import SHAPE_MAX

LIST_MEMBERS_MAX = 10_000
NUMBERS_PER_WORD_MAX = 512
HAVES_PER_WORD_MAX = 512
DIGEST_STREAMS_MAX = 64

Index = Annotated[int, msgspec.Meta(ge=0, lt=LIST_MEMBERS_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LIST_MEMBERS_MAX)]
Indices = Annotated[list[Index], msgspec.Meta(max_length=LIST_MEMBERS_MAX)]
Shape = Annotated[int, msgspec.Meta(ge=0, le=SHAPE_MAX)]
Numbers = Annotated[list[Position], msgspec.Meta(max_length=NUMBERS_PER_WORD_MAX)]


class Copy(Header, tag=100):
    """On a frame for everybody of which each member is sent its own copy."""


class Down(Header, tag=101):
    """On a frame that goes down a tree: which message it is, and to which members the addressee passes it on."""

    along: Number
    proxy: Index
    stream: Number
    number: Position
    origin: Number
    """The member that the frame is from."""
    submission: Number
    """The number under which the origin handed it to a proxy; 0 if it is its own proxy."""
    first: Index
    count: Count
    """The addressee's own sub-list; 0 says that it is a leaf."""
    shape: Shape
    by: Index
    """The member that is responsible for the whole list: the proxy, or its heir."""
    done: Position
    """The permission to forget: every member has what is before this number."""
    without: Indices
    """Members that the sender takes for dead, in the addressee's sub-list."""


class Have(msgspec.Struct, array_like=True):
    """All members of a sub-list have these messages of a stream, except members that could not be reached."""

    along: Number
    proxy: Index
    stream: Number
    number: Position
    messages: Count
    first: Index
    count: Count
    skipped: Indices


class Up(Header, tag=102):
    """To a parent: acknowledgements, each for a whole sub-list."""

    haves: Annotated[list[Have], msgspec.Meta(max_length=HAVES_PER_WORD_MAX)]


class Working(Header, tag=103):
    """To a parent: wait longer for these messages, because I am recovering a part of my sub-list."""

    along: Number
    proxy: Index
    stream: Number
    numbers: Numbers


class Missing(Header, tag=104):
    """I know of these messages and do not have them: send them."""

    along: Number
    proxy: Index
    stream: Number
    numbers: Numbers


class Failed(Header, tag=105):
    """To a proxy: this member does not answer; leave it out."""

    along: Number
    member: Index


class Submit(Header, tag=106):
    """On a frame that a proxy is asked to spread."""

    along: Number
    number: Position
    shape: Shape


class Taken(Header, tag=107):
    """Every member has what was submitted under this number."""

    along: Number
    number: Position


class Asked(Header, tag=108):
    """From the heir of a dead proxy: what do you hold of its stream?"""

    along: Number
    proxy: Index
    stream: Number


class Holding(Header, tag=109):
    """To the heir: the sender has all messages up to ``next``, and some after it. Every member has those before
    ``done``. If the sender has closed the stream already, ``next`` is the end at which it was closed."""

    along: Number
    proxy: Index
    stream: Number
    done: Position
    next: Position
    ahead: Numbers
    closed: bool


class Closed(Header, tag=110):
    """From the heir: every member has the messages before ``end``, and no member will get a later one."""

    along: Number
    proxy: Index
    stream: Number
    end: Position


class Done(Header, tag=111):
    """The permission to forget, sent on its own when no next message carries it."""

    along: Number
    proxy: Index
    stream: Number
    done: Position
    first: Index
    count: Count
    shape: Shape


class DonePlease(Header, tag=112):
    """To the proxy: I still hold messages of this stream; does anybody need them?"""

    along: Number
    proxy: Index
    stream: Number


class Rumour(Header, tag=113):
    """On a frame that spreads by gossip: each member passes it on once, to some others."""

    along: Number
    origin: Index
    stream: Number
    number: Position
    spent: bool
    """It answers a digest: nobody passes it on."""


class Known(msgspec.Struct, array_like=True):
    """How far every member has one origin's stream, as far as the sender of this word knows. Its own number is exact;
    the others have at least so much."""

    origin: Index
    stream: Number
    next: Annotated[list[Position], msgspec.Meta(max_length=LIST_MEMBERS_MAX)]


class Digest(Header, tag=114):
    """What the sender knows. A receiver with more messages sends them; one with fewer is sent them."""

    along: Number
    streams: Annotated[list[Known], msgspec.Meta(max_length=DIGEST_STREAMS_MAX)]
    answer: bool


class Probe(Header, tag=122):
    """To everybody, by multicast: answer if you hear this."""

    number: Number


class Heard(Header, tag=123):
    """The answer to ``Probe``."""

    number: Number
