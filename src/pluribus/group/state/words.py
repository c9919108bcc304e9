"""The words of state transfer on the wire. They travel beside the streams, to one member each, and may be lost; a
member that waits for an answer asks again."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number, Position
from ...core.limits import PATH_BYTES_LOOPBACK

RANK_NUMBERS = 7
SEEN_MAX = 65_536
Rank = Annotated[tuple[Number, ...], msgspec.Meta(min_length=1, max_length=RANK_NUMBERS)]
"""How good a member's state is at the beginning of a view; of two ranks the greater is better. See ``transfer``."""

Seen = tuple[Number, Position, Position]
"""Messages of one sender, from the first up to the last, that are in a state already."""


class Need(Header, tag=70):
    """To every member of a group: how good is your state at the beginning of this view?"""

    point: Number


class Have(Header, tag=71):
    """The answer. It is about the beginning of the view, so it does not change while the view lasts."""

    point: Number
    rank: Rank


class Want(Header, tag=72):
    """To the member with the best state: send me these chunks of a snapshot that was taken in this view or later."""

    point: Number
    transfer: Number
    """The asker's number for this transfer."""
    first: Position
    stop: Position


class Chunk(Header, tag=73):
    """A part of a snapshot. The first has no data but says what the snapshot holds: everything before a view (its
    point), and the listed messages of that view."""

    transfer: Number
    snapshot: Number
    """The provider's number of the snapshot. It may have forgotten the snapshot with which this transfer began, and
    taken another. If it has left the group since and is back, the number may be the same, but the point is not."""
    index: Position
    data: Annotated[bytes, msgspec.Meta(max_length=PATH_BYTES_LOOPBACK)] = b""
    last: bool = False
    point: Number = 0
    seen: Annotated[list[Seen], msgspec.Meta(max_length=SEEN_MAX)] = []  # noqa: RUF012 - msgspec copies it


class Over(Header, tag=74):
    """From either side of a transfer: I need no more of it; or you get no more of it from me."""

    transfer: Number


WORDS: tuple[type[Header], ...] = (Need, Have, Want, Chunk, Over)
