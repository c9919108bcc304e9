"""Which messages came from each sender in a group, and which message waits for which."""

from __future__ import annotations

from ...core.frame import Frame
from ...core.ids import MessageId
from ...core.intervals import Intervals, Span
from .batch import Batch

RUNS_MAX = 1_024
"""Intervals kept for one sender; beyond it the two oldest are joined, and the gap between them counts as delivered."""
GIVEN_UP_MAX = 4_096
"""Parents that did not come in time and are remembered, so that further answers to them do not wait again."""

READY, LATE, ORPHAN = range(3)


class Stream:
    """The messages of one sender, and the messages that wait for them. They come in any order, each once."""

    __slots__ = ("absent", "base", "children", "floor", "next", "settled")

    def __init__(self) -> None:
        self.next = 0
        """The number behind the last message that came."""
        self.base = 0
        """``next`` as it was when the view began."""
        self.floor = 0
        """Messages below this number that did not come are lost."""
        self.settled = Intervals()
        """Numbers of messages that came, delivered or waiting, and those of ``absent``."""
        self.absent = Intervals()
        """Numbers of messages that were sent when this member was not there; they count as delivered."""
        self.children: dict[int, list[MessageId]] = {}

    @property
    def holed(self) -> bool:
        """Whether something is missing below ``next``."""
        return len(self.settled) > 1 or self.settled.start > 0

    def came(self, first: int, end: int) -> None:
        self.settled.add(first, end - 1)
        if end > self.next:
            self.next = end
        self.settled.join_oldest(RUNS_MAX)

    def go_to(self, first: int) -> None:
        """Messages from ``next`` up to ``first`` are not for this member."""
        self.absent.add(self.next, first - 1)
        self.absent.join_oldest(RUNS_MAX)
        self.came(self.next, first)

    def adopt(self, spans: list[Span]) -> None:
        """These were delivered elsewhere, before this view."""
        end = max((last + 1 for _, last in spans), default=0)
        known = Intervals([*self.settled, *spans])
        for first, last in Intervals([(0, end - 1)] if end else []).without(known):
            self.absent.add(first, last)
        self.absent.join_oldest(RUNS_MAX)
        self.absent = Intervals(self.absent.without(spans))
        self.came(0, end)
        self.base = max(self.base, end)

    def awaited(self, first: int, end: int) -> list[int]:
        """The numbers in this range for which a message waits."""
        if len(self.children) < end - first:
            return sorted(number for number in self.children if first <= number < end)
        return [number for number in range(first, end) if number in self.children]


class Forest:
    """One group: its members, their streams, the waiting messages. Messages and their answers form a forest."""

    __slots__ = ("agreed", "given_up", "members", "streams", "waiting")

    def __init__(self) -> None:
        self.agreed = False
        """Whether the stack has agreed views."""
        self.given_up: dict[MessageId, None] = {}
        self.members: frozenset[int] = frozenset()
        self.streams: dict[int, Stream] = {}
        self.waiting: dict[MessageId, tuple[Batch, int, MessageId, int]] = {}
        """By identity: the batch, the place in it, the parent, and the age when it came."""

    def stream(self, sender: int) -> Stream:
        stream = self.streams.get(sender)
        if stream is None:
            stream = self.streams[sender] = Stream()
        return stream

    def passes(self, frame: Frame, of: list[MessageId | None]) -> bool:
        """Whether every parent in the batch was delivered, or precedes its answer in the batch: the usual case."""
        streams, waiting = self.streams, self.waiting
        own, first, at = frame.sender, frame.first, frame.first
        for parent in of:
            if parent is not None:
                sender, number = parent
                if sender == own and number >= first:
                    if number >= at:
                        return False
                else:
                    stream = streams.get(sender)
                    if stream is None or number >= stream.next or (stream.holed and number not in stream.settled):
                        return False
                if waiting and parent in waiting:
                    return False
            at += 1
        return True

    def verdict(self, parent: MessageId, child: MessageId, batch: range, *, older: bool) -> int:
        """Whether ``child`` may be delivered, of a batch with these numbers."""
        if parent in self.waiting:
            return LATE
        stream = self.streams.get(parent[0])
        if parent[0] == child[0] and parent[1] in batch:
            here = parent[1] < child[1]  # what stands behind it in its own batch is not delivered yet
        else:
            here = stream is not None and parent[1] in stream.settled
        if here or older:
            return READY
        if parent[0] not in self.members or parent in self.given_up:
            return ORPHAN
        return ORPHAN if stream is not None and parent[1] < stream.floor else LATE

    def give_up(self, parent: MessageId) -> None:
        """The parent did not come in time."""
        if len(self.given_up) >= GIVEN_UP_MAX:
            del self.given_up[next(iter(self.given_up))]
        self.given_up[parent] = None

    def came(self, sender: int, stream: Stream, first: int, end: int) -> None:
        stream.came(first, end)
        if self.given_up:
            for number in range(first, end):
                self.given_up.pop((sender, number), None)

    def hold(self, batch: Batch, place: int, parent: MessageId, age: int) -> None:
        child = (batch.sender, batch.first + place)
        self.waiting[child] = (batch, place, parent, age)
        self.stream(parent[0]).children.setdefault(parent[1], []).append(child)

    def let_go(self, parent: MessageId) -> list[tuple[Batch, int]]:
        """Remove and return the messages that waited for this one."""
        stream = self.streams.get(parent[0])
        children = stream.children.pop(parent[1], ()) if stream is not None else ()
        return [self.waiting.pop(child)[:2] for child in children]

    def past(self, sender: int, stream: Stream) -> list[int]:
        """Awaited messages that count as delivered, so that nobody need wait for them."""
        settled = stream.settled
        return [number for number in stream.children if number in settled and (sender, number) not in self.waiting]

    def lost(self) -> list[MessageId]:
        """The parents that did not come; one waiting message if all of them wait for each other, which is a forgery."""
        lost = dict.fromkeys(parent for _, _, parent, _ in self.waiting.values() if parent not in self.waiting)
        return list(lost) or [self.waiting[child][2] for child in sorted(self.waiting)[:1]]

    def intervals(self) -> dict[int, list[Span]]:
        """By sender: what was delivered."""
        held: dict[int, Intervals] = {}
        for sender, number in sorted(self.waiting):
            held.setdefault(sender, Intervals()).add(number, number)
        found: dict[int, list[Span]] = {}
        for sender, stream in self.streams.items():
            came = Intervals(stream.settled.without(stream.absent))
            if came:
                found[sender] = list(came.without(held.get(sender, ())))
        return found

    def validate(self) -> None:
        indexed = [
            (child, (sender, number))
            for sender, stream in self.streams.items()
            for number, children in stream.children.items()
            for child in children
        ]
        assert len(indexed) == len(self.waiting)
        for child, parent in indexed:
            assert self.waiting[child][2] == parent
            came = parent[1] in self.streams[parent[0]].settled
            assert parent in self.waiting or (not came and parent[0] in self.members), "it need not wait"
        assert len(self.given_up) <= GIVEN_UP_MAX
        for stream in self.streams.values():
            assert stream.base <= stream.next >= stream.floor
            assert stream.settled.end == stream.next and len(stream.settled) <= RUNS_MAX >= len(stream.absent)
            stream.settled.validate()
            stream.absent.validate()
