"""What came of each sender in a group, and what waits for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.frame import Frame
from ...core.ids import MessageId
from .batch import Batch

RUNS_MAX = 64
"""Intervals of a sender that are told apart; older ones are joined."""

READY, LATE, ORPHAN = range(3)

Span = tuple[int, int]
"""Numbers from the first to the last, both included."""


class Stream:
    """What one sender sent, and who waits for it."""

    __slots__ = ("base", "children", "next", "runs", "start")

    def __init__(self) -> None:
        self.start = 0
        self.next = 0
        self.base = 0
        """``next`` as it was when the view began."""
        self.runs: list[Span] = []
        """What came before ``start``, apart from it."""
        self.children: dict[int, list[MessageId]] = {}

    def go_to(self, first: int) -> None:
        """What is between ``next`` and here will not come."""
        if self.start < self.next:
            self.runs.append((self.start, self.next - 1))
            if len(self.runs) > RUNS_MAX:
                self.runs[:2] = [(self.runs[0][0], self.runs[1][1])]
        self.start = self.next = first

    def adopt(self, spans: list[Span]) -> None:
        """These were delivered elsewhere, before this view."""
        end = max((last + 1 for _, last in spans), default=0)
        if end > self.next:
            self.go_to(end)
        self.base = max(self.base, end)
        self.runs = united([*self.runs, *spans])[-RUNS_MAX:]

    def spans(self) -> list[Span]:
        """What came, delivered or not."""
        return united([*self.runs, (self.start, self.next - 1)] if self.start < self.next else self.runs)

    def awaited(self, first: int, end: int) -> list[int]:
        """Which of these numbers somebody waits for."""
        if len(self.children) < end - first:
            return sorted(number for number in self.children if first <= number < end)
        return [number for number in range(first, end) if number in self.children]


class Forest:
    """One group: who is in it, what came of each, what waits. Who answers what is a forest, and these are its edges."""

    __slots__ = ("members", "streams", "waiting")

    def __init__(self) -> None:
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
        """Whether every parent in the batch was delivered, or is in it before its answer: the usual case."""
        streams, waiting = self.streams, self.waiting
        own, at = frame.sender, frame.first
        for parent in of:
            if parent is not None:
                sender, number = parent
                if sender == own:
                    if number >= at:
                        return False
                else:
                    stream = streams.get(sender)
                    if stream is None or number >= stream.next:
                        return False
                if waiting and parent in waiting:
                    return False
            at += 1
        return True

    def verdict(self, parent: MessageId, child: MessageId, *, older: bool) -> int:
        if parent in self.waiting:
            return LATE
        if parent[0] == child[0]:
            here = parent[1] < child[1]  # what stands behind it in its own batch is not delivered yet
        else:
            stream = self.streams.get(parent[0])
            here = stream is not None and parent[1] < stream.next
        if here or older:
            return READY
        return LATE if parent[0] in self.members else ORPHAN

    def hold(self, batch: Batch, place: int, parent: MessageId, age: int) -> None:
        child = (batch.sender, batch.first + place)
        self.waiting[child] = (batch, place, parent, age)
        self.stream(parent[0]).children.setdefault(parent[1], []).append(child)

    def let_go(self, parent: MessageId) -> list[tuple[Batch, int]]:
        """The messages that waited for this one; they wait no more."""
        stream = self.streams.get(parent[0])
        children = stream.children.pop(parent[1], ()) if stream is not None else ()
        return [self.waiting.pop(child)[:2] for child in children]

    def past(self, sender: int, stream: Stream) -> list[int]:
        """What somebody waits for and will not come: the stream is beyond it, and it does not wait here."""
        return [number for number in stream.children if number < stream.next and (sender, number) not in self.waiting]

    def lost(self) -> list[MessageId]:
        """The parents that did not come. If all that wait wait for each other, which is a forgery, one of them."""
        lost = dict.fromkeys(parent for _, _, parent, _ in self.waiting.values() if parent not in self.waiting)
        return list(lost) or [self.waiting[child][2] for child in sorted(self.waiting)[:1]]

    def intervals(self) -> dict[int, list[Span]]:
        """By sender: what was delivered."""
        held: dict[int, list[int]] = {}
        for sender, number in sorted(self.waiting):
            held.setdefault(sender, []).append(number)
        return {
            sender: list(without(spans, held.get(sender, [])))
            for sender, stream in self.streams.items()
            if (spans := stream.spans())
        }

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
            came = parent[1] < self.streams[parent[0]].next
            assert parent in self.waiting or (not came and parent[0] in self.members), "it need not wait"
        for stream in self.streams.values():
            assert stream.base <= stream.next >= stream.start and len(stream.runs) <= RUNS_MAX
            assert stream.runs == united(stream.runs)


def united(spans: Iterable[Span]) -> list[Span]:
    """The same numbers in order, in as few spans as possible."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def without(spans: Iterable[Span], numbers: list[int]) -> Iterator[Span]:
    """Spans less a few numbers; both in order."""
    for first, last in spans:
        for number in numbers:
            if first <= number <= last:
                if first < number:
                    yield (first, number - 1)
                first = number + 1
        if first <= last:
            yield (first, last)
