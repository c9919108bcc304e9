"""The words of total order on the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number

ENTRIES_PER_FRAME_MAX = 1_024

Ballot = tuple[Number, Number]
"""The identity of a view of the bus: number and leader."""


class Entry(msgspec.Struct, array_like=True):
    """Messages of one stream that are next."""

    group: Number
    sender: Number
    first: Number
    count: Number
    stamp: Number
    """Of its group's view: nothing of a later one is ordered before everything of an earlier one."""


class Order(Header, tag=60):
    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]


class OrderPlease(Header, tag=61):
    """To a sequencer that is not in the sender's group; for the named view alone, because a view change orders by
    itself what has no order yet."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]
    view: Ballot


class StillIn(Header, tag=62):
    """To all: I was held up. Are you in this view, and on your way to no other?"""

    question: Number
    view: Ballot


class YesStill(Header, tag=63):
    """The answer; who is not says nothing."""

    question: Number
