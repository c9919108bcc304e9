"""The words of total order on the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number

ENTRIES_PER_FRAME_MAX = 1_024

Ballot = tuple[Number, Number]
"""The identity of a view of the bus: number and leader."""


class Entry(msgspec.Struct, array_like=True):
    """Messages of one stream that are next in the order."""

    group: Number
    sender: Number
    first: Number
    count: Number
    stamp: Number
    """The stamp of the group's view. All messages of an earlier view are ordered before any of a later view."""


class Order(Header, tag=60):
    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]


class OrderPlease(Header, tag=61):
    """To a sequencer that is not in the sender's group: order these messages. For the named view alone, because a view
    change orders messages without an order by itself."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]
    view: Ballot


class StillIn(Header, tag=62):
    """To all: I was held up. Are you in this view, and on your way to no other?"""

    question: Number
    view: Ballot


class YesStill(Header, tag=63):
    """The answer; a member that is not in the view says nothing."""

    question: Number
