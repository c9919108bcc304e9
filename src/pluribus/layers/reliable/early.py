"""*Early* frames are passed up before others of their stream. A view change makes all members have the same ones.

In a group whose order is made by a layer above (``AnyOrder``), frames need not wait for one that was lost: they are
passed up at once, and below the stream goes on as usual. While the sender lives, every gap is closed. When it dies, a
gap may stay: some survivors have passed up a frame behind the gap, others never got that frame. When the view ends, all
must have passed up the same frames. So the digest of a member names its early frames one by one, the cut has those of
all survivors, and each member asks the named holder for frames that it lacks.

For the membership a digest is a table of numbers by (sender, group), of which it finds the greatest and its holder. An
early frame is entered there as if it were a stream of its own: ``name_of`` computes, from the sender's place in the
view and the frame's first number, a sender that is no member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.ports import Timer

EARLY_FRAMES_MAX = 64
"""Early frames of one stream, each of which a digest names; further frames wait for the gap to close."""
NUMBER_BITS = 46
PLACE_BITS = 16
MARK = 1 << (NUMBER_BITS + PLACE_BITS)

InKey = tuple[int, int, int]


def can_be_named(first: int) -> bool:
    return not first >> NUMBER_BITS


def name_of(place: int, first: int) -> int:
    return MARK | place << NUMBER_BITS | first


class EarlyCut:
    """The early frames of a cut: by stream and first number, the frame's end and a member that has it."""

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
        """Take the early frames out of a cut; return the rest, which are streams."""
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
