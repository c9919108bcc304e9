"""Frames that are passed up before others of their stream, and how a view change makes all members have the same ones.

A group whose order is made above (``AnyOrder``) need not wait for a frame that was lost: what came behind it is passed
up at once, and the stream goes on as ever below. While the sender lives, every gap closes, and nobody can tell. When it
dies, the gap may stay: some survivors have passed up a frame behind it, others never got that frame. All must have
passed up the same when the view ends. So the digest of a member names its early frames one by one, the cut holds those
of all survivors, and each asks the named holder for what it lacks.

The membership takes the digest as it is: numbers by (sender, group), of which it finds the greatest and who has it. An
early frame is named there as if it were a stream of its own: ``name_of`` makes of the sender's place in the view and
the frame's first number one that is no member's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.ports import Timer

EARLY_FRAMES_MAX = 64
"""Of a stream; more than these wait for the gap to close. A digest names each of them."""
NUMBER_BITS = 46
PLACE_BITS = 16
MARK = 1 << (NUMBER_BITS + PLACE_BITS)

InKey = tuple[int, int, int]


def can_be_named(first: int) -> bool:
    return not first >> NUMBER_BITS


def name_of(place: int, first: int) -> int:
    return MARK | place << NUMBER_BITS | first


class EarlyCut:
    """The early frames that a cut asks for: by stream and first number, where the frame ends and who has it."""

    def __init__(self) -> None:
        self._of: dict[InKey, dict[int, tuple[int, int]]] = {}
        self.asked = 0
        """How often what is missing was asked for."""
        self.want: Timer | None = None

    def take_from(
        self,
        upto: dict[tuple[int, int], int],
        holders: dict[tuple[int, int], int],
        members: Sequence[int],
        to: int,
    ) -> dict[tuple[int, int], int]:
        """Take the early frames out of a cut; return the streams, which are the rest of it."""
        self._of.clear()
        self.asked = 0
        known = set(members)
        streams: dict[tuple[int, int], int] = {}
        for (named, group), end in upto.items():
            place = named >> NUMBER_BITS & ((1 << PLACE_BITS) - 1)
            if named in known or not named & MARK or place >= len(members):
                streams[(named, group)] = end
                continue
            first = named & ((1 << NUMBER_BITS) - 1)
            key = (members[place], group, to)
            self._of.setdefault(key, {})[first] = (end, holders.get((named, group), members[place]))
        return streams

    def clear(self) -> None:
        self._of.clear()

    def __contains__(self, frame: tuple[InKey, int]) -> bool:
        return frame[1] in self._of.get(frame[0], ())

    def __iter__(self) -> Iterator[tuple[InKey, dict[int, tuple[int, int]]]]:
        return iter(self._of.items())

    def of(self, key: InKey) -> dict[int, tuple[int, int]]:
        return self._of.get(key, {})
