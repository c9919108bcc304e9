"""Total order, and safe order on top of it: all members deliver the same messages in the same order.

Theory of operation
-------------------
One member of the primary view, its eldest, is the *sequencer*. Data goes from its sender to all members of the group as
in any group. The sequencer says in which order: entries (group, sender, first, count), many in a frame, on its control
stream, which every member of the view receives in order and without gaps. A member delivers the entries of its groups
one after another, each when its data is there. There is one sequencer for all groups, so overlapping groups agree. A
sequencer that is not in a group does not see the group's data; then the sender asks it for an order.

*Safe* groups wait longer: an entry is delivered when every member of the group holds the data and every member of the
view holds the entry. Then every survivor has both and delivers alike, whatever happens to members that delivered first.

A group that changes inside a view: messages of its old view are ordered before any message of the new view, because the
sequencer gets them all before it sees anything of the new view. A member shows the new view when it has delivered the
last message of the old one; a member that has just come passes over entries of messages from before its time. Requests
for an order travel on the control streams, ahead of what their senders say of the group's change.

At a view change the survivors have the same data and the same entries (the membership's cut). If the new view is the
next primary after the old one, they deliver the messages with an order, then those without one, by the age of the
sender and by number: the same everywhere. The new sequencer starts from nothing. If the new view is not that primary,
this member is cut off: elsewhere its messages may be ordered otherwise. Then it delivers what another survivor has
delivered already, and in safe groups what was safe at one of them. The rest is ``uncertain``; messages of this member
among it are reported (``Dropped``), and its groups wait.

*Limbo.* All members may lose each other at once, just after one of them delivered a safe message. The members of the
next primary then come from views that are none, and must not go on without that message. So a member that is cut off
keeps what it holds of the order, with its data. If the next primary that it enters follows directly after the one from
which it was cut off, it delivers this as far as all members that come from there hold it; in safe groups, as far as
they hold the messages of safe groups. Everything that any member delivered as safe is among it. The rest is dropped; if
another primary went on meanwhile, all is dropped.

*Doubt.* A member that was held up delivers nothing until a quorum has answered that its view is still theirs. Otherwise
a sequencer that wakes up would order and deliver what waits in its buffers, although the others have long ordered it
otherwise (``doubt``). It checks once a stimulus, before it delivers. Messages that it sends meanwhile belong to its
view only.

Promises: members that pass from a primary view to the next together deliver the same total sequence. With safe, any
member that delivered at all delivered a prefix of what the primary delivers. Assumes reliable FIFO streams, views with
a common cut, one primary. Live while there is a primary: entries and data arrive because streams are reliable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from typing import Any

import msgspec

from ...core.frame import Frame
from ...core.ids import ALL, MessageId
from ...stack.events import (
    NOWHERE,
    Blocked,
    CollectDelivered,
    CollectHeld,
    Consumed,
    Credit,
    Dropped,
    Event,
    GroupBlocked,
    Members,
    Paused,
    Places,
    Stable,
    ViewChanged,
    Watch,
)
from ...stack.layer import Layer
from ...stack.limbo import Limbo, messages_of, reached
from .doubt import Doubt
from .words import ENTRIES_PER_FRAME_MAX, Entry, Order, OrderPlease, StillIn, YesStill

CONTROL = 0
EARLY_MAX = 1_024
"""Requests for an order that are kept because this member has not entered their view yet."""
BURIED_MAX = 4_096
NOT_PRIMARY = "is not in the primary view: it waits until most of the members are together again"


class Total(Layer):
    """one order for everybody; safe: only what all hold"""

    name = "total"
    requires = frozenset({"views", "reliability"})
    provides = frozenset({"total"})
    headers = (Order, OrderPlease, StillIn, YesStill)
    selective = True
    deaf_to = frozenset({Credit})

    def __init__(self) -> None:
        self._groups: dict[int, frozenset[int]] = {}
        self._safe: set[int] = set()
        self._members: tuple[int, ...] = ()
        self._view = (0, 0)
        self._stamps: dict[int, int] = {}
        """The stamp of each group's view in the layers below; the layers above may still be shown an older view."""
        self._shown: dict[int, int] = {}
        self._since: dict[int, int] = {}
        """By group: the stamp of the first view of it that this member is in."""
        self._buried: dict[int, None] = {}
        """Groups that ended in this view."""
        self._deferred: dict[int, deque[Members]] = {}
        """Views of groups that are shown when everything of the view before has been delivered."""
        self._unblock: set[int] = set()
        """Groups with such a view to which this member may send again when the view has been shown."""
        self._early: list[OrderPlease] = []
        self._primary = False
        self._blocked = False
        self._held: dict[tuple[int, int], deque[Frame]] = {}
        self._queue: deque[tuple[Entry, int]] = deque()
        self._to_order: list[Entry] = []
        self._to_ask: list[Entry] = []
        self._noted: dict[tuple[int, int], int] = {}
        """At the sequencer, by sender and group: messages before this number have an order."""
        self._stable: dict[tuple[int, int], int] = {}
        self._paused: set[int] = set()
        self._limbo: Limbo | None = None
        """Between a primary that this member was cut off from and the next one that it enters."""
        self._delivered = 0
        self._heard: Places = NOWHERE
        """Positions in the order up to the last message that this member delivered. Entries of groups that it is not in
        do not count: their messages may not be safe yet, and oblige nobody."""
        self._doubt = Doubt(self, self._deliver)
        self._looked = False
        """Whether this member has checked, in this stimulus, that it was not held up."""
        self.ordered = 0
        self.uncertain = 0

    @property
    def _sequencer(self) -> int:
        return self._members[0] if self._members and self._primary else 0

    # Sending

    def concerns(self) -> Container[int]:
        return self._groups

    marks = concerns

    def down(self, frame: Frame) -> None:
        members = self._groups.get(frame.group)
        if members is not None and frame.to == ALL and frame.count and self._sequencer not in members:
            self._to_ask.append(self._entry(frame))
            self.unsettled = True
        self.pass_down(frame)

    def _entry(self, frame: Frame) -> Entry:
        return Entry(frame.group, frame.sender, frame.first, frame.count, self._stamps.get(frame.group, 0))

    def settle(self) -> None:
        """One frame orders everything that arrived or was asked for in this stimulus. During a view change nothing is
        ordered: messages without an order are ordered by the change itself."""
        self._looked = False
        if self._blocked:
            return
        self.unsettled = False
        if self._to_ask:
            asked, self._to_ask = self._to_ask, []
            if self._sequencer == self.node.me:
                self._to_order += asked
            elif self._sequencer:
                for at in range(0, len(asked), ENTRIES_PER_FRAME_MAX):
                    self._cast(OrderPlease(asked[at : at + ENTRIES_PER_FRAME_MAX], self._view))
        if self._to_order:
            entries, self._to_order = self._to_order, []
            if self._sequencer == self.node.me:
                self.ordered += len(entries)
                for at in range(0, len(entries), ENTRIES_PER_FRAME_MAX):
                    self._cast(Order(entries[at : at + ENTRIES_PER_FRAME_MAX]))

    def _cast(self, header: Order | OrderPlease) -> None:
        self.pass_down(Frame(sender=self.node.me, to=ALL, group=CONTROL, count=1, headers=[header]))

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
            elif isinstance(header, StillIn):
                self._doubt.asked(frame.sender, header, changing=self._blocked)
            elif isinstance(header, YesStill):
                self._doubt.answered(frame.sender, header)
            else:
                self.pass_up(frame)
            return
        members = self._groups.get(frame.group)
        if members is None or frame.to != ALL or not frame.count:
            self.pass_up(frame)
            return
        self._held.setdefault((frame.sender, frame.group), deque()).append(frame)
        if self._sequencer == self.node.me:
            self._note(self._entry(frame))
        elif self._queue:
            self._deliver()

    def _asked(self, please: OrderPlease) -> None:
        if please.view == self._view:
            if self._sequencer != self.node.me:
                return
            early: list[Entry] = []
            self.unsettled = True
            for entry in please.entries:
                (early if self._is_early(entry) else self._to_order).append(entry)
            if early:  # its sender is in a later view of the group than we are
                self._early.append(OrderPlease(early, please.view))
        elif please.view > self._view and len(self._early) < EARLY_MAX:
            self._early.append(please)  # its sender has entered the next view before us

    def _is_early(self, entry: Entry) -> bool:
        """True if the entry is of a view of its group that this member has not entered."""
        return entry.stamp > self._stamps.get(entry.group, 0)

    def _ask_again(self) -> None:
        early, self._early = self._early, []
        for please in early:
            self._asked(please)

    def _note(self, entry: Entry) -> None:
        """Order an arrival; a run of one stream makes one entry."""
        self._noted[(entry.sender, entry.group)] = entry.first + entry.count
        last = self._to_order[-1] if self._to_order else None
        follows = (entry.group, entry.sender, entry.first, entry.stamp)
        if last is not None and (last.group, last.sender, last.first + last.count, last.stamp) == follows:
            last.count += entry.count
        else:
            self._to_order.append(entry)
            self.unsettled = True

    def _deliver(self) -> None:
        """Deliver entries from the front while their data is there, and, if they must be safe, while they are."""
        queue = self._queue
        if queue and not self._looked:
            self._looked = self.unsettled = True
            self._doubt.look()
        while queue and not self._blocked and not self._doubt.open:
            entry, number = queue[0]
            if self._is_early(entry):
                return
            if entry.group in self._safe and self._is_mine(entry) and not self._is_safe(entry, number):
                return
            if not self._deliver_entry(entry):
                return
            queue.popleft()

    def _deliver_entry(self, entry: Entry) -> bool:
        """Pass up the data of an entry as far as it is there; true if that was all of it. The entry remembers the rest.
        Messages of groups that this member is not in take a place in the order too."""
        if not self._is_mine(entry):
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
            self._heard = (self._delivered, self._delivered if entry.group in self._safe else self._heard[1])
            self.pass_up(frame)
        if self._deferred and entry.group in self._deferred:
            self._show_deferred(entry.group)
        return True

    def _is_mine(self, entry: Entry) -> bool:
        """True if this member is in the entry's group, and was when the messages were sent."""
        return self.node.me in self._groups.get(entry.group, ()) and entry.stamp >= self._since.get(entry.group, 0)

    def _show_deferred(self, group: int) -> None:
        """Show views of the group whose messages are next: nothing of the view before is left."""
        waiting = self._deferred[group]
        while waiting and not any(
            held and held[0].first < waiting[0].starts.get(sender, 0)
            for (sender, of), held in self._held.items()
            if of == group
        ):
            self._show(waiting.popleft())
        if not waiting:
            del self._deferred[group]
            self._let_go(group)

    def _let_go(self, group: int) -> None:
        if group in self._unblock:
            self._unblock.discard(group)
            self.tell_up(GroupBlocked(group, False))

    def _show(self, event: Members) -> None:
        if event.group in self._groups:
            self._shown[event.group] = event.stamp
        self.tell_up(event)

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
                into.append(self._heard)
                return
            case CollectHeld(into):
                into += (self._places_held(), self._heard if self._primary else reached(self._limbo))
                return
            case Members():
                self._members_told(event)
                return
            case GroupBlocked(group, blocked):
                self._unblock.discard(group)
                if not blocked and group in self._deferred:
                    self._unblock.add(group)
                    return
            case _:
                pass
        self.tell_up(event)

    def _view_changed(self, view: ViewChanged) -> list[Dropped]:
        if self._primary:
            all_have = view.limbo if view.primary and view.after == self._view else NOWHERE
            upto = (max(view.delivered[0], all_have[0]), max(view.delivered[1], all_have[1]))
            self._limbo = self._finish(upto, everything=view.continues)
        if view.primary and self._limbo is not None:
            # First: what is delivered now was uncertain only to somebody else.
            self._leave_limbo(self._limbo, view.limbo if view.after == self._limbo.view else NOWHERE)
        dropped = self._drop_all()
        if view.primary:
            self._limbo = None
        for group in sorted(self._deferred):
            waiting = self._deferred.pop(group)
            for event in waiting if view.continues else ():  # who is cut off has not come to them
                self._show(event)
            self._let_go(group)
        self._queue.clear()
        self._to_order.clear()
        self._to_ask.clear()
        self._noted.clear()
        self._stable.clear()
        self._buried.clear()
        self._stamps = {group: stamp for group, stamp in self._stamps.items() if group in self._groups}
        self._delivered = 0
        self._heard = NOWHERE
        self._members = view.members
        self._primary = view.primary
        self._view = (view.number, view.leader)
        self._doubt.entered(self._view, view.members, primary=view.primary)
        self._ask_again()
        for group in sorted(self._groups):
            self._pause(group)
        return dropped

    def _finish(self, upto: Places, *, everything: bool) -> Limbo | None:
        """Deliver messages of the old view in an order that depends only on what the survivors have. On the way to a
        primary view: everything. Otherwise: as far as one of them has delivered already, or as all of them have it;
        complete messages behind that are kept, and are uncertain until there is a primary."""
        if everything:
            while self._queue:
                self._deliver_entry(self._queue.popleft()[0])
            self._deliver_unordered()
            return None
        limbo = Limbo(self._view, self._places_held(), upto)
        for place, entry, frame in list(self._ahead()):
            safe = entry.group in self._safe
            if frame is None or place > max(upto[safe], limbo.held[safe]):
                continue
            self._held[(entry.sender, entry.group)].popleft()
            if place > upto[safe]:
                limbo.steps.append((place, frame))
                continue
            self._show_before(frame)
            self.pass_up(frame)
            if entry.group in self._deferred:
                self._show_deferred(entry.group)
        return limbo

    def _ahead(self) -> Iterator[tuple[int, Entry, Frame | None]]:
        """Messages with a place in the order that were not delivered: the end of the place, and the message. It is None
        if the message is missing, or not for this member."""
        place = self._delivered
        waiting = {stream: iter(held) for stream, held in self._held.items()}
        for entry, _ in self._queue:
            count = entry.count
            held = waiting.get((entry.sender, entry.group), iter(())) if self._is_mine(entry) else iter(())
            while count > 0 and (frame := next(held, None)) is not None:
                count -= frame.count
                place += frame.count
                yield place, entry, frame
            if count > 0:
                place += count
                yield place, entry, None

    def _places_held(self) -> Places:
        """Two positions. Nothing is missing before the first; no message of a safe group is missing before the second.
        A missing message of another group does not hold back safe ones, nor did it when they became safe."""
        if not self._primary:
            return self._limbo.held if self._limbo is not None else NOWHERE
        found, complete = [self._delivered, self._delivered], [True, True]
        for place, entry, frame in self._ahead():
            if frame is None and self._is_mine(entry):
                complete = [False, complete[1] and entry.group not in self._safe]
            found = [place if complete[kind] else found[kind] for kind in (0, 1)]
        return found[0], found[1]

    def _leave_limbo(self, limbo: Limbo, upto: Places) -> None:
        """Deliver messages that all members from that primary have; drop the rest, and those of groups that were
        left."""
        steps, limbo.steps = limbo.steps, []
        for place, frame in steps:
            if place <= upto[frame.group in self._safe] and self.node.me in self._groups.get(frame.group, ()):
                self._show_before(frame)
                self.pass_up(frame)
            else:
                limbo.steps.append((place, frame))
                self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))

    def _deliver_unordered(self) -> None:
        """Deliver messages without an order: by the view of their group, by the age of their sender, by number. That is
        the same order at all survivors, whichever views of their groups they have shown already."""
        age = {member: at for at, member in enumerate(self._members)}
        left: list[tuple[int, int, int, int, Frame]] = []
        for (sender, group), held in self._held.items():
            for frame in held:
                left.append((self._stamp_of(frame), age.get(sender, len(age)), sender, group, frame))
        self._held.clear()
        for _, _, _, _, frame in sorted(left, key=lambda found: found[:4]):
            self._show_before(frame)
            self.pass_up(frame)

    def _show_before(self, frame: Frame) -> None:
        """Show the views of the group that precede a message."""
        waiting, stamp = self._deferred.get(frame.group), self._stamp_of(frame)
        while waiting and waiting[0].stamp <= stamp:
            self._show(waiting.popleft())

    def _stamp_of(self, frame: Frame) -> int:
        """The view of its group that a message belongs to."""
        stamp = self._shown.get(frame.group, 0)
        for event in self._deferred.get(frame.group, ()):
            if frame.first >= event.starts.get(frame.sender, 0):
                stamp = event.stamp
        return stamp

    def _drop(self, group: int) -> None:
        """This member has left the group."""
        for key in [key for key in self._held if key[1] == group]:
            for frame in self._held.pop(key):
                self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
        if self._limbo is not None:  # who joins again is a new member
            self._limbo.forget(group)
        self._deferred.pop(group, None)  # views that this member has not come to
        self._let_go(group)

    def _drop_all(self) -> list[Dropped]:
        """Drop everything that is held, limbo included; return the messages among it that this member had sent."""
        own: list[Dropped] = []
        if self._limbo is not None and self._primary:
            mine: dict[int, list[MessageId]] = {}
            for _, frame in self._limbo.steps:
                self.uncertain += frame.count
                if frame.sender == self.node.me:
                    mine.setdefault(frame.group, []).extend(messages_of(frame))
            own += [Dropped(group, tuple(ids)) for group, ids in mine.items() if ids]
        for (sender, group), held in self._held.items():
            for frame in held:
                self.uncertain += frame.count
                self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
            if sender == self.node.me:
                own.append(Dropped(group, tuple(message for frame in held for message in messages_of(frame))))
        self._held.clear()
        return own

    def _members_told(self, event: Members) -> None:
        group, me = event.group, self.node.me
        was_in = me in self._groups.get(group, ())
        if self._sequencer == me:
            if was_in and me not in event.members:
                self._order_rest(event)
            for member in event.members:
                self._noted[(member, group)] = event.starts.get(member, 0)
        if group in self._groups or event.promises.startswith("total"):
            self._stamps[group] = event.stamp
        self._group_changed(group, frozenset(event.members), event.promises)
        if event.starts and was_in and me in event.members:
            self._deferred.setdefault(group, deque()).append(event)
            self._show_deferred(group)
        else:
            if me not in event.members:
                self._drop(group)
            elif not was_in:
                self._since[group] = event.stamp
            self._show(event)
        if self._early:
            self._ask_again()
        if self._queue:
            self._deliver()

    def _order_rest(self, event: Members) -> None:
        """The sequencer has left the group: it orders the rest of its last view there, whose end it knows."""
        group = event.group
        for member, end in sorted(event.starts.items()):
            first = self._noted.pop((member, group), end)
            if first < end:
                self._to_order.append(Entry(group, member, first, end - first, self._stamps.get(group, 0)))
                self.unsettled = True

    def _group_changed(self, group: int, members: frozenset[int], promises: str) -> None:
        if not members or not promises.startswith("total"):
            for known in (self._shown, self._since):
                known.pop(group, None)
            if promises.startswith("total"):
                self._bury(group)
            else:
                self._stamps.pop(group, None)
            if self._groups.pop(group, None) is not None and group in self._safe:
                self._safe.discard(group)
                self._watch(group, watched=False)
            if group in self._paused:  # who opens it again must not find it paused by a view that is over
                self._paused.discard(group)
                self.tell_up(Paused(group, ""))
            return
        self._groups[group] = members
        if "safe" in promises.split() and group not in self._safe:
            self._safe.add(group)
            self._watch(group, watched=True)
        self._pause(group)

    def _bury(self, group: int) -> None:
        """Nobody is in the group any more. Its last messages may still get an order; a member that knows that the last
        view is over does not wait for them."""
        self._buried.pop(group, None)
        self._buried[group] = None
        if len(self._buried) > BURIED_MAX:
            oldest = next(iter(self._buried))
            del self._buried[oldest]
            if oldest not in self._groups:
                self._stamps.pop(oldest, None)

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
            "doubts": self._doubt.doubts,
        }

    def validate(self) -> None:
        assert self._safe <= self._groups.keys()
        assert self._primary or not self._queue
        self._doubt.validate()
