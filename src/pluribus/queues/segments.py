"""The places and states of a queue's messages. Bodies are in the log; here are handles to them.

Theory of operation
-------------------
Messages are numbered 0, 1, 2, … in the order in which they came. Consecutive
numbers make a *segment*, of two forms:

*A run* is a plain batch of one sender, or a part of one. All its messages are alike but for their numbers, so a run
has one row, one place, one size; it costs some bits a message.

*Columns* are for all other messages: a row, a place, a size a message, in arrays; and more arrays where some message of
the segment needs them. A run becomes columns when its messages are written forward.

The state of messages is in bitmaps, whole numbers of which bit ``i`` is message ``first + i``: *live* (not gone),
*held* by a consumer, *dead* letters, *ready* to be delivered, by priority. A live message that is none of the last
three waits for its time (``due_us``), or for its turn in its key.

*Order.* For each priority there is a heap of the segments with ready messages, so that the first ready message is found
at once, also when messages come back to their old places.

*Space.* A segment without a live message is removed. A segment with few is *thinned*: it keeps the numbers of its
messages in an array. ``size`` says how many bytes of its row each message charges; the charges of a command add up to
its length.

Ready bitmaps, heaps and counts are not part of the state: they follow from the rest.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec

from .words import PRIORITIES, PRIORITY

RUN_MIN = 32
"""Messages that a plain batch must have to become a run; fewer become columns."""
RUN_MAX = 8_192
COLUMNS_MAX = 4_096
PART_BITS = 13
"""Low bits of a segment's first number that are ignored when its part of the snapshot is chosen."""
THIN_MIN = 256
"""Segments with fewer places are not thinned."""


class SegmentExtra(msgspec.Struct, array_like=True):
    """Fields that few messages of a segment have, by place in it."""

    tries: dict[int, int] = {}
    keys: dict[int, str] = {}
    properties: dict[int, bytes] = {}
    reasons: dict[int, tuple[int, int, str]] = {}
    """Of dead letters: their number among the dead letters, when they died, and the reason."""
    pieces: dict[int, list[tuple[int, int, int]]] = {}
    """Of long bodies: the places of their pieces, and the bytes that each charges."""

    def tables(self) -> tuple[dict[int, Any], ...]:
        return (self.tries, self.keys, self.properties, self.reasons, self.pieces)

    def chosen(self, places: dict[int, int]) -> SegmentExtra:
        """The fields of some places only, each under its new number. In order, so that equal states are equal bytes."""
        return SegmentExtra(
            *({places[at]: table[at] for at in sorted(table) if at in places} for table in self.tables())
        )

    def ordered(self) -> SegmentExtra:
        return SegmentExtra(*(dict(sorted(table.items())) for table in self.tables()))


class Segment:
    """One segment. A field that is an ``int`` in a run is an array in columns."""

    __slots__ = (
        "at_us",
        "columns",
        "count",
        "dead",
        "due",
        "expiry",
        "extra",
        "first",
        "heaped",
        "held",
        "live",
        "numbers",
        "part",
        "piece",
        "place",
        "priority",
        "readies",
        "ready",
        "rest",
        "row",
        "size",
    )

    def __init__(self, first: int, columns: bool) -> None:
        self.first = first
        self.count = 0
        self.columns = columns
        self.part = f"m/{first >> PART_BITS:010x}"
        self.live = self.held = self.dead = 0
        self.ready = 0
        self.readies: dict[int, int] | None = {} if columns else None
        self.heaped = 0
        """Priorities for which the segment is in the heap, as bits."""
        self.row: Any = array("q") if columns else 0
        self.place: Any = array("q") if columns else 0
        self.piece: Any = array("I") if columns else 0
        self.size: Any = array("I") if columns else 0
        self.at_us: Any = array("q") if columns else 0
        self.priority: Any = bytearray() if columns else PRIORITY
        self.rest = 0
        """Of a run: bytes of its command that are freed with its last message."""
        self.due: array[int] | None = None
        self.expiry: array[int] | None = None
        self.extra: SegmentExtra | None = None
        self.numbers: array[int] | None = None
        """Of a thinned segment: the numbers of its messages."""

    def place_of(self, thing: int) -> int:
        """The place of a message in the segment; -1 if it is not there any more."""
        if self.numbers is None:
            at = thing - self.first
            return at if 0 <= at < self.count else -1
        at = bisect_left(self.numbers, thing)
        return at if at < self.count and self.numbers[at] == thing else -1

    def thing_at(self, at: int) -> int:
        return self.first + at if self.numbers is None else self.numbers[at]

    @property
    def last(self) -> int:
        return self.thing_at(self.count - 1)

    def handle(self, at: int) -> tuple[int, int, int]:
        if self.columns:
            return self.row[at], self.place[at], self.piece[at]
        return self.row, self.place, self.piece + at

    def size_of(self, at: int) -> int:
        size: int = self.size[at] if self.columns else self.size
        return size

    def priority_of(self, at: int) -> int:
        priority: int = self.priority[at] if self.columns else self.priority
        return priority

    def at_us_of(self, at: int) -> int:
        time: int = self.at_us[at] if self.columns else self.at_us
        return time

    def due_of(self, at: int) -> int:
        return 0 if self.due is None else self.due[at]

    def expiry_of(self, at: int) -> int:
        return 0 if self.expiry is None else self.expiry[at]

    def tries_of(self, at: int) -> int:
        return 0 if self.extra is None else self.extra.tries.get(at, 0)

    def key_of(self, at: int) -> str:
        return "" if self.extra is None else self.extra.keys.get(at, "")

    def properties_of(self, at: int) -> bytes:
        return b"" if self.extra is None else self.extra.properties.get(at, b"")

    def more(self) -> SegmentExtra:
        if self.extra is None:
            self.extra = SegmentExtra({}, {}, {}, {}, {})
        return self.extra

    def set_due(self, at: int, time_us: int) -> None:
        if self.due is None:
            self.due = array("q", bytes(8 * self.count))
        self.due[at] = time_us

    def set_expiry(self, at: int, time_us: int) -> None:
        if self.expiry is None:
            self.expiry = array("q", bytes(8 * self.count))
        self.expiry[at] = time_us

    # Columns.

    def append(self, row: int, place: int, piece: int, size: int, at_us: int, priority: int) -> int:
        """Append one message; returns its place."""
        at = self.count
        self.row.append(row)
        self.place.append(place)
        self.piece.append(piece)
        self.size.append(size)
        self.at_us.append(at_us)
        self.priority.append(priority)
        for column in (self.due, self.expiry):
            if column is not None:
                column.append(0)
        self.count += 1
        self.live |= 1 << at
        return at

    def make_columns(self) -> int:
        """Turn a run into columns, so that its messages can have different rows. Returns how many bytes more the
        messages that are not dead letters charge then."""
        assert not self.columns
        count = self.count
        self.piece = array("I", range(self.piece, self.piece + count))
        self.row = array("q", [self.row]) * count
        self.place = array("q", [self.place]) * count
        self.size = array("I", [self.size]) * count
        self.at_us = array("q", [self.at_us]) * count
        usual = self.live & ~self.dead
        rest, self.rest = self.rest, 0
        self.size[(usual or self.live).bit_length() - 1] += rest
        self.readies = {self.priority: self.ready} if self.ready else {}
        self.ready = 0
        self.priority = bytearray([self.priority]) * count
        self.columns = True
        return rest if usual else 0

    @property
    def sparse(self) -> bool:
        """True if few messages of these columns are left."""
        return self.columns and self.live.bit_count() * 8 < self.count

    def thin(self) -> None:
        """Keep only the live messages of columns."""
        kept = list(bits_of(self.live))
        self.numbers = array("q", [self.thing_at(at) for at in kept])
        for name in ("row", "place", "piece", "size", "at_us", "due", "expiry"):
            column = getattr(self, name)
            if column is not None:
                setattr(self, name, array(column.typecode, [column[at] for at in kept]))
        self.priority = bytearray(self.priority[at] for at in kept)
        if self.extra is not None:
            self.extra = self.extra.chosen({at: number for number, at in enumerate(kept)})
        for name in ("held", "dead"):
            bits = getattr(self, name)
            setattr(self, name, sum(1 << number for number, at in enumerate(kept) if bits >> at & 1))
        self.readies = {
            priority: sum(1 << number for number, at in enumerate(kept) if bits >> at & 1)
            for priority, bits in (self.readies or {}).items()
            if bits
        }
        self.count = len(kept)
        self.live = (1 << self.count) - 1

    # Snapshots.

    def saved(self) -> Any:
        columns = (self.row, self.place, self.piece, self.size, self.at_us, self.priority)
        packed = [_little(column) if self.columns else column for column in columns]
        extra = None if self.extra is None else self.extra.ordered()
        rare = [None if column is None else _little(column) for column in (self.due, self.expiry, self.numbers)]
        bitmaps = [_bytes(bits) for bits in (self.live, self.held, self.dead)]
        return (self.first, self.count, self.columns, self.rest, packed, bitmaps, rare, extra)

    @staticmethod
    def restored(saved: Any) -> Segment:
        first, count, columns, rest, packed, bitmaps, rare, extra = saved
        segment = Segment(first, columns)
        segment.count, segment.rest = count, rest
        if columns:
            names = (("row", "q"), ("place", "q"), ("piece", "I"), ("size", "I"), ("at_us", "q"))
            for (name, code), data in zip(names, packed, strict=False):
                setattr(segment, name, _array(code, data))
            segment.priority = bytearray(packed[5])
        else:
            segment.row, segment.place, segment.piece, segment.size, segment.at_us, segment.priority = packed
        segment.live, segment.held, segment.dead = (int.from_bytes(bits, "little") for bits in bitmaps)
        segment.due, segment.expiry, segment.numbers = (None if one is None else _array("q", one) for one in rare)
        segment.extra = None if extra is None else msgspec.convert(extra, SegmentExtra)
        return segment


class Segments:
    """All segments, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: list[Segment] = []
        self._by_first: dict[int, Segment] = {}
        self._heaps: list[list[int]] = [[] for _ in range(PRIORITIES)]
        self.ready = [0] * PRIORITIES
        """How many messages are ready, by priority."""
        self.parts: dict[str, int] = {}
        """Parts of the snapshot, with the number of segments in each."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def ready_count(self) -> int:
        return sum(self.ready)

    def find(self, thing: int) -> tuple[Segment, int] | None:
        """The segment and place of a live message."""
        number = bisect_right(self._starts, thing) - 1
        if number < 0:
            return None
        segment = self._segments[number]
        at = segment.place_of(thing)
        return (segment, at) if at >= 0 and segment.live >> at & 1 else None

    def since(self, thing: int) -> Iterator[Segment]:
        """The segment that has a message, and the segments behind it."""
        for number in range(max(bisect_right(self._starts, thing) - 1, 0), len(self._segments)):
            yield self._segments[number]

    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    def add(self, segment: Segment) -> None:
        self._starts.append(segment.first)
        self._segments.append(segment)
        self._by_first[segment.first] = segment
        self.parts[segment.part] = self.parts.get(segment.part, 0) + 1

    def remove(self, segment: Segment) -> bool:
        """Remove a segment without live messages; true if its part of the snapshot is gone with it."""
        number = bisect_left(self._starts, segment.first)
        assert self._segments[number] is segment and not segment.live
        del self._starts[number]
        del self._segments[number]
        del self._by_first[segment.first]
        left = self.parts[segment.part] - 1
        if left:
            self.parts[segment.part] = left
        else:
            del self.parts[segment.part]
        return not left

    # Ready messages.

    def make_ready(self, segment: Segment, mask: int, priority: int) -> None:
        """Messages of one priority become ready; none of them was ready before."""
        if segment.readies is None:
            assert priority == segment.priority and not segment.ready & mask
            segment.ready |= mask
        else:
            assert not segment.readies.get(priority, 0) & mask
            segment.readies[priority] = segment.readies.get(priority, 0) | mask
        self.ready[priority] += mask.bit_count()
        if not segment.heaped >> priority & 1:
            segment.heaped |= 1 << priority
            heapq.heappush(self._heaps[priority], segment.first)

    def unready(self, segment: Segment, mask: int, priority: int) -> None:
        if segment.readies is None:
            assert segment.ready & mask == mask
            segment.ready &= ~mask
        else:
            assert segment.readies[priority] & mask == mask
            segment.readies[priority] &= ~mask
            if not segment.readies[priority]:
                del segment.readies[priority]
        self.ready[priority] -= mask.bit_count()

    def ready_bits(self, segment: Segment, priority: int) -> int:
        if segment.readies is None:
            return segment.ready if priority == segment.priority else 0
        return segment.readies.get(priority, 0)

    def is_ready(self, segment: Segment, at: int) -> bool:
        return bool(self.ready_bits(segment, segment.priority_of(at)) >> at & 1)

    def first_ready(self) -> tuple[Segment, int, int] | None:
        """The first ready message: its segment, its place, its priority."""
        for priority in range(PRIORITIES - 1, -1, -1):
            if not self.ready[priority]:
                continue
            heap = self._heaps[priority]
            while heap:
                segment = self._by_first.get(heap[0])
                bits = 0 if segment is None else self.ready_bits(segment, priority)
                if segment is not None and bits:
                    return segment, (bits & -bits).bit_length() - 1, priority
                heapq.heappop(heap)
                if segment is not None:
                    segment.heaped &= ~(1 << priority)
        return None

    def ready_in_order(self, priority: int, start: int = 0) -> Iterator[tuple[Segment, int]]:
        """All ready messages of a priority, from a number on. Changes made meanwhile may be seen or not."""
        for segment in list(self.since(start)):
            for at in bits_of(self.ready_bits(segment, priority)):
                if segment.thing_at(at) >= start:
                    yield segment, at

    def validate(self) -> None:
        """For tests."""
        assert self._starts == sorted(set(self._starts)) == [segment.first for segment in self._segments]
        counts = [0] * PRIORITIES
        for segment in self._segments:
            assert segment.live, "a segment with nothing in it"
            assert segment.count <= max(RUN_MAX, COLUMNS_MAX)
            assert segment.held & segment.dead == 0 and (segment.held | segment.dead) & ~segment.live == 0
            everything = 0
            for priority in range(PRIORITIES):
                bits = self.ready_bits(segment, priority)
                counts[priority] += bits.bit_count()
                assert not bits & everything and not bits & ~segment.live
                assert not bits & (segment.held | segment.dead)
                assert all(segment.priority_of(at) == priority for at in bits_of(bits))
                assert not bits or segment.heaped >> priority & 1
                everything |= bits
            if segment.columns:
                columns = (segment.row, segment.place, segment.piece, segment.size, segment.at_us, segment.priority)
                assert {len(column) for column in columns} == {segment.count}
            for column in (segment.due, segment.expiry, segment.numbers):
                assert column is None or len(column) == segment.count
        assert counts == self.ready, f"{counts} are ready, and {self.ready} are counted"


def bits_of(bits: int) -> Iterator[int]:
    """The places of the set bits, the lowest first."""
    while bits:
        low = bits & -bits
        at = low.bit_length() - 1
        run = bits >> at
        ones = (~run & (run + 1)).bit_length() - 1
        yield from range(at, at + ones)
        bits &= bits + low if ones else 0


def ones_at(bits: int, at: int, most: int) -> int:
    """How many consecutive bits are set from this place on, at most ``most``."""
    run = bits >> at
    return min((~run & (run + 1)).bit_length() - 1, most)


def mask_of(at: int, count: int) -> int:
    return ((1 << count) - 1) << at


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _little(column: Any) -> bytes:
    if isinstance(column, bytearray):
        return bytes(column)
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    packed: bytes = column.tobytes()
    return packed


def _array(code: str, data: bytes) -> array[int]:
    column: array[int] = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
