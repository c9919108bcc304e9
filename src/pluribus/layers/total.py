"""Total order, and safe order on top of it: all members deliver the same messages in the same order.

Theory of operation
-------------------
One member of the primary view, its eldest, is the *sequencer*. Data goes from its sender to all members of the group
as ever. The sequencer says in which order: entries (group, sender, first, count), a batch of them a frame, on its
control stream, which every member of the view receives in order and without gaps. A member delivers the entries of
groups that it is in, one after another, each when its data is there. There is one sequencer for all groups, so groups
that overlap agree. A sequencer that is not in a group does not see its data; then the sender asks for its order.

*Safe* groups wait longer: an entry is delivered when every member of the group holds the data and every member of the
view holds the entry. Whoever survives then has both, and delivers alike, whatever happens to those who delivered first.

At a view change, the survivors have the same data and the same entries (the membership's cut). If the new view is the
next primary after the old one, they deliver what was ordered, then what was not, by age of the sender and by number:
the same everywhere. The new sequencer starts from nothing. If it is not, this member is cut off: what it holds may be
ordered otherwise elsewhere, so it is dropped, except for what another survivor has delivered already, and counted as
``uncertain``; what of it this member had sent is reported (``Dropped``), and the group is paused until there is a
primary again.

Promises: members that pass from a primary view to the next together deliver the same total sequence. With safe, any
member that delivered at all delivered a prefix of what the primary delivers. Assumes reliable FIFO streams, views with
a common cut, one primary. Live while there is a primary: entries and data arrive because streams are reliable.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import msgspec

from ..core.frame import Frame, Header, Number, Piece
from ..core.ids import ALL, MessageId
from ..stack.events import (
    Blocked,
    CollectDelivered,
    Consumed,
    Dropped,
    Event,
    Members,
    Paused,
    Stable,
    ViewChanged,
    Watch,
)
from ..stack.layer import Layer

CONTROL = 0
ENTRIES_PER_FRAME_MAX = 1_024
EARLY_MAX = 1_024
"""Requests for the order of a view that this member has not entered yet."""
NOT_PRIMARY = "is not in the primary view: it waits until most of the members are together again"


class Entry(msgspec.Struct, array_like=True):
    """Messages of one stream that are next."""

    group: Number
    sender: Number
    first: Number
    count: Number


class Order(Header, tag=60):
    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]


class OrderPlease(Header, tag=61):
    """From a sender to a sequencer that is not in its group; for the named view alone, because a view change orders by
    itself what has no order yet."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_FRAME_MAX)]
    view: tuple[Number, Number]


class Total(Layer):
    """one order for everybody; safe: only what all hold"""

    name = "total"
    requires = frozenset({"views", "reliability"})
    provides = frozenset({"total"})
    headers = (Order, OrderPlease)

    def __init__(self) -> None:
        self._groups: dict[int, frozenset[int]] = {}
        self._safe: set[int] = set()
        self._members: tuple[int, ...] = ()
        self._view = (0, 0)
        self._early: list[OrderPlease] = []
        self._primary = False
        self._blocked = False
        self._held: dict[tuple[int, int], deque[Frame]] = {}
        self._queue: deque[tuple[Entry, int]] = deque()
        self._to_order: list[Entry] = []
        self._to_ask: list[Entry] = []
        self._stable: dict[tuple[int, int], int] = {}
        self._paused: set[int] = set()
        self._delivered = 0
        self.ordered = 0
        self.uncertain = 0

    @property
    def _sequencer(self) -> int:
        return self._members[0] if self._members and self._primary else 0

    # Sending

    def down(self, frame: Frame) -> None:
        members = self._groups.get(frame.group)
        if members is not None and frame.to == ALL and frame.count and self._sequencer not in members:
            self._to_ask.append(Entry(frame.group, frame.sender, frame.first, frame.count))
        self.pass_down(frame)

    def settle(self) -> None:
        """What was asked for or arrived in this stimulus is ordered by one frame. During a view change nothing is: what
        has no order then is ordered by the change itself."""
        if self._blocked:
            return
        if self._to_ask:
            asked, self._to_ask = self._to_ask, []
            if self._sequencer == self.node.me:
                self._to_order += asked
            elif self._sequencer:
                self._send(self._sequencer, asked, OrderPlease)
        if self._to_order:
            entries, self._to_order = self._to_order, []
            if self._sequencer == self.node.me:
                self.ordered += len(entries)
                self._send(ALL, entries, Order)

    def _send(self, to: int, entries: list[Entry], header: type[Order] | type[OrderPlease]) -> None:
        for at in range(0, len(entries), ENTRIES_PER_FRAME_MAX):
            some = entries[at : at + ENTRIES_PER_FRAME_MAX]
            words = Order(some) if header is Order else OrderPlease(some, self._view)
            self.pass_down(Frame(sender=self.node.me, to=to, group=CONTROL, count=1, headers=[words]))

    # Receiving

    def up(self, frame: Frame) -> None:
        if frame.group == CONTROL:
            header = frame.headers[-1] if frame.headers else None
            if isinstance(header, Order):
                if frame.sender == self._sequencer:
                    # Copies, because an entry shrinks as it is delivered, and the frame may have to be sent again.
                    self._queue.extend((msgspec.structs.replace(entry), frame.first) for entry in header.entries)
                    self._deliver()
            elif isinstance(header, OrderPlease):
                self._asked(header)
            else:
                self.pass_up(frame)
            return
        members = self._groups.get(frame.group)
        if members is None or frame.to != ALL or not frame.count:
            self.pass_up(frame)
            return
        self._held.setdefault((frame.sender, frame.group), deque()).append(frame)
        if self._sequencer == self.node.me:
            self._note(Entry(frame.group, frame.sender, frame.first, frame.count))
        elif self._queue:
            self._deliver()

    def _asked(self, please: OrderPlease) -> None:
        if please.view == self._view:
            if self._sequencer == self.node.me:
                self._to_order += please.entries
        elif please.view > self._view and len(self._early) < EARLY_MAX:
            self._early.append(please)  # its sender has entered the next view before us

    def _note(self, entry: Entry) -> None:
        """Order an arrival; a run of one stream makes one entry."""
        last = self._to_order[-1] if self._to_order else None
        if last is not None and (last.group, last.sender, last.first + last.count) == (
            entry.group,
            entry.sender,
            entry.first,
        ):
            last.count += entry.count
        else:
            self._to_order.append(entry)

    def _deliver(self) -> None:
        """Deliver entries from the front while their data is there, and, if they must be safe, while they are."""
        queue = self._queue
        while queue and not self._blocked:
            entry, number = queue[0]
            mine = self.node.me in self._groups.get(entry.group, ())
            if mine and entry.group in self._safe and not self._is_safe(entry, number):
                return
            if not self._deliver_entry(entry):
                return
            queue.popleft()

    def _deliver_entry(self, entry: Entry) -> bool:
        """Pass up the data of an entry as far as it is there; whether that was all. The entry remembers the rest. A
        place in the order is one message, also of groups that this member is not in."""
        if self.node.me not in self._groups.get(entry.group, ()):
            self._delivered += entry.count
            return True
        held = self._held.get((entry.sender, entry.group))
        while entry.count > 0:
            if not held:
                return False
            frame = held.popleft()
            entry.first += frame.count
            entry.count -= frame.count
            self._delivered += frame.count
            self.pass_up(frame)
        return True

    def _is_safe(self, entry: Entry, number: int) -> bool:
        if self._stable.get((entry.sender, entry.group), 0) < entry.first + entry.count:
            return False
        return self._stable.get((self._sequencer, CONTROL), 0) > number

    # Views

    def event_up(self, event: Event) -> None:
        match event:
            case Stable(sender, group, upto):
                # Of its own stream a member hears twice: what it knows, and what its frame said when it was sent.
                self._stable[(sender, group)] = max(upto, self._stable.get((sender, group), 0))
                if self._queue:
                    self._deliver()
                return
            case ViewChanged():
                dropped = self._view_changed(event)
                self.tell_up(event)
                for report in dropped:  # behind the view, which says why
                    self.tell_up(report)
                return
            case Blocked(blocked):
                self._blocked = blocked
                self._deliver()
            case CollectDelivered(into):
                into.append(self._delivered)
                return
            case Members(group, members, _, _, promises):
                self._group_changed(group, frozenset(members), promises)
            case _:
                pass
        self.tell_up(event)

    def _view_changed(self, view: ViewChanged) -> list[Dropped]:
        if self._primary:
            self._finish(view.delivered, everything=view.continues)
        dropped = self._drop_all()
        self._queue.clear()
        self._to_order.clear()
        self._to_ask.clear()
        self._stable.clear()
        self._delivered = 0
        self._members = view.members
        self._primary = view.primary
        self._view = (view.number, view.leader)
        early, self._early = self._early, []
        for please in early:
            self._asked(please)
        for group in sorted(self._groups):
            self._pause(group)
        return dropped

    def _finish(self, delivered: int, *, everything: bool) -> None:
        """Deliver what the survivors of the old view have, in an order that follows from what they have: everything on
        the way to a primary view, else as much as any of them has delivered already."""
        while self._queue and (everything or self._delivered < delivered):
            entry, _ = self._queue.popleft()
            self._deliver_entry(entry)
        if not everything:
            return
        age = {member: at for at, member in enumerate(self._members)}
        for sender, group in sorted(self._held, key=lambda key: (age.get(key[0], len(age)), key)):
            for frame in self._held[(sender, group)]:
                self.pass_up(frame)
        self._held.clear()

    def _drop_all(self) -> list[Dropped]:
        """What is held goes; which of it this member had sent."""
        own: list[Dropped] = []
        for (sender, group), held in self._held.items():
            for frame in held:
                self.uncertain += frame.count
                self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
            if sender == self.node.me:
                own.append(Dropped(group, tuple(message for frame in held for message in messages_of(frame))))
        self._held.clear()
        return own

    def _group_changed(self, group: int, members: frozenset[int], promises: str) -> None:
        if not members or not promises.startswith("total"):
            if self._groups.pop(group, None) is not None and group in self._safe:
                self._safe.discard(group)
                self._watch(group, watched=False)
            if group in self._paused:  # who opens it again must not find it paused by a view that is over
                self._paused.discard(group)
                self.tell_up(Paused(group, ""))
            return
        self._groups[group] = members
        if promises.endswith("safe") and group not in self._safe:
            self._safe.add(group)
            self._watch(group, watched=True)
        self._pause(group)

    def _watch(self, group: int, *, watched: bool) -> None:
        self.tell_down(Watch(group, watched))
        self.tell_down(Watch(CONTROL, bool(self._safe)))

    def _pause(self, group: int) -> None:
        """Outside a primary nothing is sent to an ordered group."""
        if self._primary and group in self._paused:
            self._paused.discard(group)
            self.tell_up(Paused(group, ""))
        elif not self._primary and group not in self._paused:
            self._paused.add(group)
            self.tell_up(Paused(group, NOT_PRIMARY))

    def stats(self) -> dict[str, Any]:
        return {
            "groups": len(self._groups),
            "ordered": self.ordered,
            "waiting": len(self._queue),
            "held_frames": sum(map(len, self._held.values())),
            "uncertain": self.uncertain,
        }

    def validate(self) -> None:
        assert self._safe <= self._groups.keys()
        assert self._primary or not self._queue


def messages_of(frame: Frame) -> list[MessageId]:
    """The messages that a frame completes: of pieces, the one whose last piece it is."""
    piece = next((header for header in frame.headers if type(header) is Piece), None)
    if piece is not None and piece.index + 1 != piece.total:
        return []
    return [(frame.sender, number) for number in range(frame.first, frame.first + frame.count)]
