"""Semantic order: a message is delivered after the message it answers, and waits for nothing else.

Source: M2MC, chapter 4 (the Sb order and its Message Ordering Protocol).

Theory of operation
-------------------
Every message may name one *parent*, the message that it answers. The parents make a forest. The promise is that no
member delivers a message before its parent, and nothing else: two answers to two questions never wait for each other,
nor do two messages of one sender or of one batch. A batch some of whose messages must wait is taken apart.

State, per group:

``streams``  by sender: the intervals of numbers that came. Messages come from below in any order, each once: a frame
             is not held back because others of its sender are missing (``AnyOrder``), and says so (``Ahead``). Numbers
             of before this member's time count as delivered. Mostly that is one interval a sender, and looking one
             up costs the same at any length.
``waiting``  messages whose parent was not delivered, by their identity, those that wait longest first.
``children`` who waits for which message, by its sender and number: letting go the answers to a message is one look-up
             each, so n messages cost O(n) whatever order they come in, where the thesis's table costs O(n²).

Letting go is iterative: a chain of a million answers must not meet the recursion limit.

Some parents never come. In each case the answer is delivered after a bounded time. An answer whose parent is lost is an
*orphan*, and marked so.

*The parent is lost.* At a view change all survivors have the same messages of the old view (assumed from below). A
message that still waits has a parent that none of them has, or one that waits itself. The former are delivered marked
``orphan``, the latter after them, and only then the view changes. So all survivors have delivered the same messages.

*The parent is older than this view.* Nobody gets it any more. The sender of an answer says so (``Older``) if it had the
parent before the view began. Then nobody waits, and the answer is no orphan, because the parent was not lost. A joiner
that took over what others have delivered (``adopt_intervals``) knows it by itself.

*The parent's sender is not in the view*, and no ``Older`` vouches for the parent: the answer is an orphan at once.

*The network lost the parent*, in a stack without agreed views: it may only be late, so the answer waits as in the next
case. If the parent is below ``Ahead.floor``, or its stream has gone on elsewhere, it is lost, and its answers are
orphans at once.

*The parent was never sent, or this member cannot know*: the answer is an orphan after one to two times ``PATIENCE_S``,
and further answers to the same parent are orphans at once. At ``WAITING_MAX`` the messages that wait longest become
orphans. So a forged parent costs bounded time and memory. A parent that comes after all is delivered then; its answer
was marked.

Credit: a batch counts in its sender's window until all of it is consumed. Its parts have together the size of the
batch. Above, each part is reported as a frame of its own; ``event_down`` corrects the number of frames.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice
from typing import Annotated, Any

import msgspec

from ...core.frame import Ahead, Frame, Header, Parents
from ...core.ids import ALL, MessageId
from ...core.intervals import Span
from ...core.limits import BATCH_MESSAGES_MAX
from ...core.ports import Timer
from ...stack.events import AnyOrder, Consumed, Credit, Event, JoinGroup, LeaveGroup, Members, ViewChanged
from ...stack.layer import Layer
from ...wire.codec import DECODE_ERRORS
from .batch import Batch, parents_of
from .forest import LATE, ORPHAN, READY, Forest, Stream

WAITING_MAX = 100_000
"""Messages that wait in a group."""
PATIENCE_S = 10.0
SENDERS_MAX = 4_096
"""Senders that are gone and whose delivered messages are remembered."""


class Older(Header, tag=55):
    """Places in the batch of messages whose parent their sender had delivered before this view began."""

    places: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, lt=BATCH_MESSAGES_MAX)]], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)
    ]


class Semantic(Layer):
    """answers after what they answer, and nothing else waits"""

    name = "semantic"
    requires = frozenset({"flow", "members"})
    provides = frozenset({"semantic"})
    headers = (Older, Ahead)
    selective = True
    deaf_to = frozenset({Credit})

    def __init__(self) -> None:
        self._groups: dict[int, Forest] = {}
        self._wished: set[int] = set()
        self._extra: dict[tuple[int, int], int] = {}
        """By sender and group: parts that will be reported as frames, less the frames that they were."""
        self._age = 0
        self._timer: Timer | None = None
        self.held = 0
        self.orphans = 0

    def concerns(self) -> Container[int]:
        return self._groups

    marks = concerns

    def down(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        if group is not None and frame.to == ALL and frame.count:
            answers = parents_of(frame)
            if answers is not None:
                streams = group.streams
                older = [
                    place
                    for place, parent in enumerate(answers.of)
                    if parent is not None
                    and (stream := streams.get(parent[0])) is not None
                    and parent[1] < stream.base
                    and parent[1] in stream.settled
                ]
                if older:
                    frame.headers.append(Older(older))
        self.pass_down(frame)

    def up(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        start = frame.first
        floor = 0
        if frame.headers and type(frame.headers[-1]) is Ahead:
            start = floor = frame.headers.pop().floor
        if group is None or frame.to != ALL or not frame.count:
            self.pass_up(frame)
            return
        older: list[int] = []
        if frame.headers and type(frame.headers[-1]) is Older:
            older = frame.headers.pop().places
        stream = group.streams.get(frame.sender)
        if stream is None:
            stream = group.stream(frame.sender)
        if start > stream.next:
            self._skip(group, stream, frame.sender, start)
        elif floor > stream.floor:
            stream.floor = floor
        answers = parents_of(frame)
        if answers is not None and answers.orphans:  # nobody but this layer may say so
            frame.headers = [Parents(answers.of) if header is answers else header for header in frame.headers]
        if (
            answers is None
            or group.passes(frame, answers.of)
            or len(answers.of) != frame.count
            or not self._take_apart(group, stream, frame, answers.of, older)
        ):
            end = frame.first + frame.count
            group.came(frame.sender, stream, frame.first, end)
            self.pass_up(frame)
            if stream.children:
                self._answers_to(group, frame.sender, stream.awaited(frame.first, end))

    def _skip(self, group: Forest, stream: Stream, sender: int, first: int) -> None:
        """The stream goes on at another number: it is new here, or this member was away meanwhile. Without agreed views
        it is unknown who was there, so the missing messages of a stream that was heard before count as lost."""
        if group.agreed or not stream.next:
            stream.go_to(first)
            self._answers_to(group, sender, group.past(sender, stream))
        else:
            stream.floor = first
            lost = [number for number in stream.children if number < first and number not in stream.settled]
            self._orphan(group, [(sender, number) for number in lost])

    def _take_apart(
        self, group: Forest, stream: Stream, frame: Frame, of: list[MessageId | None], older: list[int]
    ) -> bool:
        """Deliver the messages that need not wait, hold the others. False if the bodies cannot be read."""
        try:
            batch = Batch(frame, of)
        except DECODE_ERRORS:
            return False
        vouched = frozenset(older)
        numbers = range(frame.first, frame.first + frame.count)
        ready = []
        for place, parent in enumerate(of):
            verdict = READY
            if parent is not None:
                child = (frame.sender, frame.first + place)
                verdict = group.verdict(parent, child, numbers, older=place in vouched)
            if verdict == LATE and parent is not None:
                group.hold(batch, place, parent, self._age)
                self.held += 1
                continue
            if verdict == ORPHAN:
                batch.orphans.add(place)
                self.orphans += 1
            ready.append((batch, place))
        group.came(frame.sender, stream, frame.first, frame.first + frame.count)
        self._deliver(group, ready)
        if len(group.waiting) > WAITING_MAX:
            self._too_many(group)
        if group.waiting and self._timer is None:
            self._timer = self.after(PATIENCE_S, self._lose_patience)
        return True

    def _answers_to(self, group: Forest, sender: int, numbers: Iterable[int]) -> None:
        """These messages were delivered, or count as such: deliver what waited for them."""
        ready = [found for number in numbers for found in group.let_go((sender, number))]
        if ready:
            self._deliver(group, ready)

    def _deliver(self, group: Forest, ready: list[tuple[Batch, int]]) -> None:
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

    def _orphan(self, group: Forest, parents: Iterable[MessageId]) -> None:
        """Deliver the messages that wait for these parents, marked as orphans; then those that wait for the
        messages."""
        ready: list[tuple[Batch, int]] = []
        for parent in parents:
            children = group.let_go(parent)
            for batch, place in children:
                batch.orphans.add(place)
            self.orphans += len(children)
            ready += children
        self._deliver(group, ready)

    def _too_many(self, group: Forest) -> None:
        """Make orphans of a sixteenth of the waiting messages at once, so that the search is rare."""
        longest = [parent for _, _, parent, _ in islice(group.waiting.values(), WAITING_MAX // 16 + 1)]
        self._orphan(group, dict.fromkeys(longest))

    def _lose_patience(self) -> None:
        """Called regularly: messages that waited through two calls have waited long enough."""
        self._timer = None
        self._age += 1
        for group in self._groups.values():
            tired: dict[MessageId, None] = {}
            for _, _, parent, age in group.waiting.values():
                if self._age - age < 2:
                    break
                if parent not in group.waiting:
                    tired[parent] = None
            for parent in tired:
                group.give_up(parent)
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

    def _finish(self, group: Forest) -> None:
        while group.waiting:
            self._orphan(group, group.lost())
        for stream in group.streams.values():
            stream.base = stream.floor = stream.next

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
            group = self._groups[event.group] = Forest()
        elif event.agreed:
            self._finish(group)
        group.members, group.agreed = frozenset(event.members), event.agreed
        # With agreed views nothing waits here. Without them, those who left will not send what is waited for.
        self._orphan(group, [parent for parent in group.lost() if parent[0] not in group.members])
        gone = [of for of, stream in group.streams.items() if of not in group.members and not stream.children]
        for sender in gone[: max(len(gone) - SENDERS_MAX, 0)]:
            del group.streams[sender]
        self._forget_credit(event.group, group.members)

    def _forget_credit(self, group: int, members: frozenset[int]) -> None:
        """Forget the credit of members that are gone."""
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
            # Answers to its own messages wait for them; the channel knows whether the application wants to hear them.
            self.tell_down(msgspec.structs.replace(event, own=True))
            event = AnyOrder(event.group, frozenset({Parents, Older}))
        elif isinstance(event, LeaveGroup):
            self._wished.discard(event.group)
        self.tell_down(event)

    # State transfer

    def delivered_intervals(self, number: int) -> dict[int, list[Span]]:
        """By sender: which messages of the group were delivered, for a member that joins."""
        group = self._groups.get(number)
        return {} if group is None else group.intervals()

    def adopt_intervals(self, number: int, delivered: dict[int, list[Span]]) -> None:
        """Take over what another member had delivered when the present view began: it counts as delivered here."""
        group = self._groups.get(number)
        if group is None:
            return
        for sender, spans in delivered.items():
            stream = group.stream(sender)
            stream.adopt(spans)
            self._answers_to(group, sender, group.past(sender, stream))

    def stats(self) -> dict[str, Any]:
        """``delivered`` counts messages; ``intervals`` is how many intervals of numbers are kept for them."""
        spans = [span for group in self._groups.values() for known in group.intervals().values() for span in known]
        return {
            "groups": len(self._groups),
            "delivered": sum(last - first + 1 for first, last in spans),
            "intervals": len(spans),
            "held": self.held,
            "waiting": sum(len(group.waiting) for group in self._groups.values()),
            "orphans": self.orphans,
        }

    def validate(self) -> None:
        assert all(count >= 0 for count in self._extra.values())
        for group in self._groups.values():
            assert len(group.waiting) <= WAITING_MAX
            assert not group.waiting or self._timer is not None
            group.validate()
