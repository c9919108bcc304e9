"""Semantic order: a message is delivered after the message it answers, and waits for nothing else.

Source: M2MC, chapter 4 (the Sb order and its Message Ordering Protocol).

Theory of operation
-------------------
Every message may name one *parent*, the message it answers. The parents make a forest; the promise is that no member
delivers a message before its parent. Nothing else is promised, and that is the point: two answers to two questions
never wait for each other, nor do two messages of one sender or of one batch. A batch of which some messages must wait
is taken apart.

State, per group:

``streams``  by sender: ``next``, the number after the last that came. Streams are FIFO from below, so what is below
             ``next`` has been delivered, or waits here, or was before this member's time and counts as delivered. That
             is one interval a sender where the thesis keeps lists of them; looking one up costs the same at any length.
``waiting``  messages whose parent was not delivered, by their identity, those that wait longest first.
``children`` who waits for which message, by its sender and number: letting go the answers to a message is one look-up
             each, so n messages cost O(n) whatever order they come in, where the thesis's table costs O(n²).

Letting go is iterative: a chain of a million answers must not meet the recursion limit.

Some parents never come. Each case ends:

*Lost.* At a view change all survivors have the same messages of the old view (assumed from below). What still waits
waits for a parent that none of them has, or for one that itself waits: the former are delivered marked ``orphan``, the
latter after them, and only then the view changes. All survivors have delivered the same messages.

*Older than this view.* Nobody gets it any more: who has not got it was not there. Who sends an answer says so
(``Older``) if it had the parent before the view began; then nobody waits, and the answer is no orphan, because the
parent was not lost. A joiner that took over what others have delivered (``adopt_intervals``) knows it by itself.

*Of nobody here*, and not vouched for: an orphan at once.

*Never sent, or known by hearsay from before the view*: an orphan after ``PATIENCE_S`` to twice that; at
``WAITING_MAX`` those that wait longest become orphans. So a forged parent costs bounded time and memory.

Credit: a batch counts for its sender's window until all of it was consumed. Its parts together weigh what it weighed,
and above each part is reported as a frame; ``event_down`` takes back what the parts are more than the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any

import msgspec

from ..core.frame import Frame, Header, Parents
from ..core.ids import ALL, MessageId
from ..core.limits import BATCH_MESSAGES_MAX
from ..core.ports import Timer
from ..stack.events import Consumed, Event, JoinGroup, LeaveGroup, Members, ViewChanged
from ..stack.layer import Layer
from ..wire.bodies import array_header
from ..wire.codec import DECODE_ERRORS

WAITING_MAX = 100_000
"""Messages that wait in a group."""
PATIENCE_S = 10.0
SENDERS_MAX = 4_096
"""Senders that are gone and of whom it is remembered what they had sent."""
RUNS_MAX = 64
"""Intervals of a sender that are told apart; older ones are joined."""

READY, LATE, ORPHAN = range(3)

Span = tuple[int, int]
"""Numbers from the first to the last, both included."""

_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class Older(Header, tag=55):
    """Which messages of the batch, by their place, answer one that their sender had before this view began."""

    places: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, lt=BATCH_MESSAGES_MAX)]], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)
    ]


class Batch:
    """A batch that does not pass whole: its messages leave in parts."""

    __slots__ = ("_bodies", "_left", "_size", "first", "frame", "of", "orphans", "sender")

    def __init__(self, frame: Frame, of: list[MessageId | None]) -> None:
        self.frame = frame
        self.sender = frame.sender
        self.first = frame.first
        self.of = of
        self.orphans: set[int] = set()
        self._left = frame.count
        self._size = frame.size
        self._bodies: list[Any] = []
        if frame.count > 1:
            self._bodies = frame.bodies if isinstance(frame.bodies, list) else _decode_raw(frame.bodies)
            if len(self._bodies) != frame.count:
                raise ValueError(f"{len(self._bodies)} bodies where the frame says {frame.count}")

    def part(self, start: int, stop: int) -> tuple[Frame, bool]:
        """A frame of these messages, and whether it is the last one. The last weighs what the others left."""
        self._left -= stop - start
        frame, last = self.frame, not self._left
        whole = stop - start == frame.count
        if whole and not self.orphans:
            return frame, last
        answers = Parents(self.of[start:stop], [place - start for place in range(start, stop) if place in self.orphans])
        headers = [answers if type(header) is Parents else header for header in frame.headers]
        if whole:
            frame.headers = headers
            return frame, last
        bodies = self._bodies[start:stop]
        size = self._size if last else min(sum(map(len, bodies)), self._size)
        self._size -= size
        part = Frame(
            sender=frame.sender,
            to=frame.to,
            group=frame.group,
            first=frame.first + start,
            count=stop - start,
            size=size,
            kind=frame.kind,
            headers=headers,
            bodies=bodies
            if isinstance(frame.bodies, list)
            else msgspec.Raw(array_header(stop - start) + b"".join(bodies)),
        )
        return part, last


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

    def awaited(self, first: int, end: int) -> list[int]:
        """Which of these numbers somebody waits for."""
        if len(self.children) < end - first:
            return sorted(number for number in self.children if first <= number < end)
        return [number for number in range(first, end) if number in self.children]


class SemanticGroup:
    """One group: who is in it, what came of each, what waits."""

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

    def lost(self) -> list[MessageId]:
        """The parents that did not come. If all that wait wait for each other, which is a forgery, one of them."""
        lost = dict.fromkeys(parent for _, _, parent, _ in self.waiting.values() if parent not in self.waiting)
        return list(lost) or [self.waiting[child][2] for child in sorted(self.waiting)[:1]]


class Semantic(Layer):
    """answers after what they answer, and nothing else waits"""

    name = "semantic"
    requires = frozenset({"flow", "members"})
    provides = frozenset({"semantic"})
    headers = (Older,)

    def __init__(self) -> None:
        self._groups: dict[int, SemanticGroup] = {}
        self._wished: set[int] = set()
        self._extra: dict[tuple[int, int], int] = {}
        """By sender and group: parts that will be reported as frames, less the frames that they were."""
        self._age = 0
        self._timer: Timer | None = None
        self.held = 0
        self.orphans = 0

    def down(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        if group is not None and frame.to == ALL and frame.count:
            answers = parents_of(frame)
            if answers is not None:
                streams = group.streams
                older = [
                    place
                    for place, parent in enumerate(answers.of)
                    if parent is not None and parent[0] in streams and parent[1] < streams[parent[0]].base
                ]
                if older:
                    frame.headers.append(Older(older))
        self.pass_down(frame)

    def up(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        if group is None or frame.to != ALL or not frame.count:
            self.pass_up(frame)
            return
        older: list[int] = []
        if frame.headers and type(frame.headers[-1]) is Older:
            older = frame.headers.pop().places
        stream = group.streams.get(frame.sender)
        if stream is None:
            stream = group.stream(frame.sender)
        if stream.next != frame.first:
            self._skip(group, stream, frame.sender, frame.first)
        answers = parents_of(frame)
        if answers is not None and answers.orphans:  # nobody but this layer may say so
            frame.headers = [Parents(answers.of) if header is answers else header for header in frame.headers]
        if (
            answers is None
            or group.passes(frame, answers.of)
            or len(answers.of) != frame.count
            or not self._take_apart(group, stream, frame, answers.of, older)
        ):
            stream.next = frame.first + frame.count
            self.pass_up(frame)
            if stream.children:
                self._answers_to(group, frame.sender, stream.awaited(frame.first, stream.next))

    def _skip(self, group: SemanticGroup, stream: Stream, sender: int, first: int) -> None:
        """The stream goes on elsewhere: it is new here, or this member was not there meanwhile."""
        before = [number for number in stream.children if number < first and (sender, number) not in group.waiting]
        stream.go_to(first)
        self._answers_to(group, sender, before)

    def _take_apart(
        self, group: SemanticGroup, stream: Stream, frame: Frame, of: list[MessageId | None], older: list[int]
    ) -> bool:
        """Deliver what can be, hold the rest. False if the bodies are not what the frame says: nobody can read them."""
        try:
            batch = Batch(frame, of)
        except DECODE_ERRORS:
            return False
        vouched = frozenset(older)
        ready = []
        for place, parent in enumerate(of):
            verdict = READY
            if parent is not None:
                verdict = group.verdict(parent, (frame.sender, frame.first + place), older=place in vouched)
            if verdict == LATE and parent is not None:
                group.hold(batch, place, parent, self._age)
                self.held += 1
                continue
            if verdict == ORPHAN:
                batch.orphans.add(place)
                self.orphans += 1
            ready.append((batch, place))
        stream.next = frame.first + frame.count
        self._deliver(group, ready)
        if len(group.waiting) > WAITING_MAX:
            self._too_many(group)
        if group.waiting and self._timer is None:
            self._timer = self.after(PATIENCE_S, self._lose_patience)
        return True

    def _answers_to(self, group: SemanticGroup, sender: int, numbers: Iterable[int]) -> None:
        """These messages were delivered, or count as such: deliver what waited for them."""
        ready = [found for number in numbers for found in group.let_go((sender, number))]
        if ready:
            self._deliver(group, ready)

    def _deliver(self, group: SemanticGroup, ready: list[tuple[Batch, int]]) -> None:
        """Deliver these messages, then those that waited for them, and so on; neighbours of a batch in one part."""
        if group.waiting:
            for batch, place in ready:  # grows while it is gone through
                ready += group.let_go((batch.sender, batch.first + place))
        at = 0
        while at < len(ready):
            batch, start = ready[at]
            stop = start
            while at < len(ready) and ready[at][0] is batch and ready[at][1] == stop:
                stop += 1
                at += 1
            frame, last = batch.part(start, stop)
            if not last:
                stream = (frame.sender, frame.group)
                self._extra[stream] = self._extra.get(stream, 0) + 1
            self.pass_up(frame)

    # Parents that do not come

    def _orphan(self, group: SemanticGroup, parents: Iterable[MessageId]) -> None:
        """Deliver those who wait for these, marked; then those who wait for them, who are no orphans."""
        ready: list[tuple[Batch, int]] = []
        for parent in parents:
            children = group.let_go(parent)
            for batch, place in children:
                batch.orphans.add(place)
            self.orphans += len(children)
            ready += children
        self._deliver(group, ready)

    def _too_many(self, group: SemanticGroup) -> None:
        """A sixteenth of them at once, so that looking for the first costs nothing."""
        longest = [parent for _, _, parent, _ in islice(group.waiting.values(), WAITING_MAX // 16 + 1)]
        self._orphan(group, dict.fromkeys(longest))

    def _lose_patience(self) -> None:
        """What has seen this twice has waited long enough, by a clock that did not stand still in between."""
        self._timer = None
        self._age += 1
        for group in self._groups.values():
            tired: dict[MessageId, None] = {}
            for _, _, parent, age in group.waiting.values():
                if self._age - age < 2:
                    break
                if parent not in group.waiting:
                    tired[parent] = None
            if tired:
                self._orphan(group, tired)
        if any(group.waiting for group in self._groups.values()):
            self._timer = self.after(PATIENCE_S, self._lose_patience)

    # Views and credit

    def event_up(self, event: Event) -> None:
        if isinstance(event, ViewChanged):
            for group in self._groups.values():
                self._finish(group)
        elif isinstance(event, Members):
            self._members_changed(event)
        self.tell_up(event)

    def _finish(self, group: SemanticGroup) -> None:
        while group.waiting:
            self._orphan(group, group.lost())
        for stream in group.streams.values():
            stream.base = stream.next

    def _members_changed(self, event: Members) -> None:
        named = self.name in event.promises or event.group in self._wished
        if not named or self.node.me not in event.members:
            left = self._groups.pop(event.group, None)
            if left is not None:
                self._finish(left)
                self._forget_credit(event.group, frozenset())
            return
        group = self._groups.get(event.group)
        if group is None:
            group = self._groups[event.group] = SemanticGroup()
        group.members = frozenset(event.members)
        # With agreed views nothing waits here. Without them, those who left will not send what is waited for.
        self._orphan(group, [parent for parent in group.lost() if parent[0] not in group.members])
        gone = [of for of, stream in group.streams.items() if of not in group.members and not stream.children]
        for sender in gone[: max(len(gone) - SENDERS_MAX, 0)]:
            del group.streams[sender]
        self._forget_credit(event.group, group.members)

    def _forget_credit(self, group: int, members: frozenset[int]) -> None:
        """The windows of those who are gone are gone too."""
        for stream in [stream for stream in self._extra if stream[1] == group and stream[0] not in members]:
            del self._extra[stream]

    def event_down(self, event: Event) -> None:
        if isinstance(event, Consumed):
            extra = self._extra.get((event.sender, event.group)) if event.to == ALL else None
            if extra:
                taken = min(extra, event.frames)
                self._extra[(event.sender, event.group)] = extra - taken
                event = Consumed(event.sender, event.group, event.to, event.frames - taken, event.size)
        elif isinstance(event, JoinGroup) and self.name in event.promises:
            self._wished.add(event.group)
        elif isinstance(event, LeaveGroup):
            self._wished.discard(event.group)
        self.tell_down(event)

    # State transfer

    def delivered_intervals(self, number: int) -> dict[int, list[Span]]:
        """By sender: which messages of the group were delivered, for a member that joins."""
        group = self._groups.get(number)
        if group is None:
            return {}
        held: dict[int, list[int]] = {}
        for sender, at in sorted(group.waiting):
            held.setdefault(sender, []).append(at)
        found = {}
        for sender, stream in group.streams.items():
            spans = stream.runs if stream.start == stream.next else [*stream.runs, (stream.start, stream.next - 1)]
            if spans:
                found[sender] = list(without(united(spans), held.get(sender, [])))
        return found

    def adopt_intervals(self, number: int, delivered: dict[int, list[Span]]) -> None:
        """Take over what another member had delivered when the present view began: it counts as delivered here."""
        group = self._groups.get(number)
        if group is None:
            return
        for sender, spans in delivered.items():
            stream = group.stream(sender)
            end = max((last + 1 for _, last in spans), default=0)
            if end > stream.next:
                stream.go_to(end)
            stream.base = max(stream.base, end)
            stream.runs = united([*stream.runs, *spans])[-RUNS_MAX:]
            before = [at for at in stream.children if at < stream.next and (sender, at) not in group.waiting]
            self._answers_to(group, sender, before)

    def stats(self) -> dict[str, Any]:
        return {
            "groups": len(self._groups),
            "held": self.held,
            "waiting": sum(len(group.waiting) for group in self._groups.values()),
            "orphans": self.orphans,
        }

    def validate(self) -> None:
        assert all(count >= 0 for count in self._extra.values())
        for group in self._groups.values():
            assert len(group.waiting) <= WAITING_MAX
            assert not group.waiting or self._timer is not None
            indexed = [
                (child, (sender, number))
                for sender, stream in group.streams.items()
                for number, children in stream.children.items()
                for child in children
            ]
            assert len(indexed) == len(group.waiting)
            for child, parent in indexed:
                assert group.waiting[child][2] == parent
                came = parent[1] < group.streams[parent[0]].next
                assert parent in group.waiting or (not came and parent[0] in group.members), "it need not wait"
            for stream in group.streams.values():
                assert stream.base <= stream.next >= stream.start and len(stream.runs) <= RUNS_MAX
                assert stream.runs == united(stream.runs)


def parents_of(frame: Frame) -> Parents | None:
    for header in frame.headers:
        if type(header) is Parents:
            return header
    return None


def united(spans: Iterable[Span]) -> list[Span]:
    """The same numbers in order, in as few spans as possible."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def without(spans: Iterable[Span], numbers: list[int]) -> Iterable[Span]:
    """Spans less a few numbers; both in order."""
    for first, last in spans:
        for number in numbers:
            if first <= number <= last:
                if first < number:
                    yield (first, number - 1)
                first = number + 1
        if first <= last:
            yield (first, last)
