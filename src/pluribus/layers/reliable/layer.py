"""The window: reliable streams, flow control and stability as one mechanism.

Theory of operation
-------------------
A stream is (sender, group, destination); its messages are numbered without gaps, and its bytes are counted from its
beginning. A receiver passes a stream up in order, keeps what came ahead, and says how far it has received the stream
and how many bytes it has room for. Both only grow, so acknowledgements may be lost, repeated or reordered without
harm.

*Repair.* A gap shows itself by a frame that came ahead or by the sender's status. After a short wait, because the
network may only have swapped two frames, the receiver asks for what it misses: the sender first, and whoever kept it
when the sender does not answer. Everybody keeps what is not yet known to be everywhere.

*The lost last message.* While somebody's acknowledgement is missing, the sender says now and then how far it has gone
(``Status``); a receiver that knew less asks for the rest, and every status is answered.

*Stability.* What every receiver has acknowledged is stable: the sender forgets it, says so on its next frame or status,
and receivers forget it too.

*Flow.* The sender goes on up to the lowest limit of its receivers, then the caller waits. Control messages (group 0)
have room of their own and wait for nobody.

*Views.* The membership above freezes the streams, learns how far everybody is, names the cut that all must reach, and
installs the next view, from which all state of receivers is derived anew. Promise to it: between ``Freeze`` and
``Install`` nothing but what ``Reach`` asks for is passed up. Streams to one member are not part of that.

Live: every unacknowledged frame leads to a status, every status to an acknowledgement or a request, every request to a
repair, as long as some datagrams arrive and somebody who has the frame is there; when nobody is, the membership's next
view ends the stream.

Bounded: what is kept and what is ahead by the window, streams by ``STREAMS_MAX``, early frames by ``EARLY_MAX``.
"""

from __future__ import annotations

from ...core.ids import ALL
from ...stack.events import (
    CollectDigest,
    Confirm,
    Consumed,
    Event,
    Freeze,
    Install,
    JoinGroup,
    LeaveGroup,
    Reach,
    Reached,
    Receivers,
    Watch,
)
from .headers import Ack, Data, Repair, Status, Want
from .incoming import Incoming
from .streams import CONTROL, FRAME_CHARGE_BYTES, INITIAL_BYTES, UNORDERED, Streams


class Reliable(Streams):
    """reliable streams, flow control, stability: one window"""

    name = "reliable"
    requires = frozenset({"datagrams"})
    provides = frozenset({"flow", "reliability"})
    headers = (Data, Ack, Status, Want, Repair)

    # Views

    def event_down(self, event: Event) -> None:
        match event:
            case Consumed():
                self._consumed(event)
            case Freeze():
                self._freeze()
            case CollectDigest(into, own):
                self._digest(into, own)
            case Reach(upto, holders):
                self._reach(upto, holders)
            case Receivers(group, members, starts):
                self.tell_down(event)  # first: what is sent from now on spreads along the new list
                self._set_receivers(group, frozenset(members), starts)
                self._try_early()
            case Install():
                self.tell_down(event)
                self._install(event)
            case Confirm(group, to, upto):
                self._confirming.want((group, to), upto)
            case Watch(group, watched):
                (self._watched.add if watched else self._watched.discard)(group)
            case _:
                if isinstance(event, JoinGroup):
                    self._wished.add(event.group)
                    if not event.own and event.promises in UNORDERED:  # orders need to see a member's own messages too
                        self._deaf.add(event.group)
                    if (event.group, ALL) not in self._out:
                        self._open((event.group, ALL), event.first)
                elif isinstance(event, LeaveGroup):
                    self._deaf.discard(event.group)
                    self._wished.discard(event.group)
                self.tell_down(event)

    def _consumed(self, event: Consumed) -> None:
        key = (event.sender, event.group, event.to)
        stream = self._in.get(key)
        if stream is not None:
            consumed = stream.consumed + event.size + FRAME_CHARGE_BYTES * event.frames
            stream.consumed = min(consumed, stream.delivered)
            self._moved.setdefault(key, False)

    def _digest(self, into: dict[tuple[int, int], int], own: dict[int, int]) -> None:
        me = self.node.me
        into |= {(sender, group): stream.next for (sender, group, to), stream in self._in.items() if to == ALL}
        for (group, to), out in self._out.items():
            if to == ALL:
                own[group] = out.next
                if me in self._members.get(group, frozenset()):
                    into[(me, group)] = out.next

    def _freeze(self) -> None:
        self._frozen = True
        self._cut = None
        for key, stream in self._in.items():
            if key[2] == ALL:
                stream.cancel()

    def _reach(self, upto: dict[tuple[int, int], int], holders: dict[tuple[int, int], int]) -> None:
        self._cut = {(sender, group, ALL): end for (sender, group), end in upto.items()}
        self._holders = {(sender, group, ALL): holder for (sender, group), holder in holders.items()}
        for key, end in self._cut.items():
            if key[0] == self.node.me or self.node.me not in self._members.get(key[1], frozenset()):
                continue
            stream = self._in.get(key)
            if stream is None:
                stream = self._in[key] = Incoming(0)
            stream.known = max(stream.known, end)
            self._go_on(key, stream)
            if stream.next < end:
                stream.asked = 0
                stream.cancel()
                self._want(key, stream)
        self._check_reached()

    def _check_reached(self) -> None:
        cut = self._cut
        if cut is None:
            return
        me = self.node.me
        for key, end in cut.items():
            if key[0] != me and me in self._members.get(key[1], frozenset()):
                stream = self._in.get(key)
                if stream is None or stream.next < end:
                    return
        self._cut = None
        self.tell_up(Reached())

    def _install(self, view: Install) -> None:
        self._frozen = False
        self._stamp = view.stamp
        self._cut = None
        for key in [key for key in self._in if key[0] not in view.members]:
            self._drop(key)
        groups = {CONTROL: view.members, **view.groups}
        for group in [group for group in self._members if group not in groups]:
            self._set_receivers(group, frozenset(), {})
        for group, members in groups.items():
            starts = {sender: first for (sender, of), first in view.starts.items() if of == group}
            for (of, to), out in self._out.items():
                if of == group and to == ALL:
                    out.forget()
                    out.limits.clear()
                    out.acked.clear()
            self._set_receivers(group, frozenset(members), starts)
        self._try_early()

    def _set_receivers(self, group: int, members: frozenset[int], starts: dict[int, int]) -> None:
        me = self.node.me
        if members:
            self._members[group] = members
        else:
            self._members.pop(group, None)
        for key in [key for key in self._in if key[1] == group and (key[0] not in members or me not in members)]:
            self._drop(key)
        for sender, first in starts.items():
            if sender in members and me in members:
                self._start(sender, group, first)
        for (of, to), out in list(self._out.items()):
            if of == group:
                if (to != ALL and to not in members) or (me not in members and group not in self._wished):
                    del self._out[(of, to)]
                    continue
                out.receivers(self._receivers((of, to)), INITIAL_BYTES)
                self._tell_credit((of, to), out)

    def _start(self, sender: int, group: int, first: int) -> None:
        """The stream counts from here on."""
        key = (sender, group, ALL)
        stream = self._in.get(key)
        if stream is None or stream.next != first:
            fresh = Incoming(first)
            if stream is not None:
                fresh.delivered, fresh.consumed = stream.delivered, stream.consumed
                stream.cancel()
            stream = self._in[key] = fresh
        stream.kept.clear()
        stream.kept_bytes = 0
        stream.stable = first
        stream.granted = 0
        stream.ahead.clear()  # of the view that is over; what came early of the new one waits elsewhere
        stream.known = first
