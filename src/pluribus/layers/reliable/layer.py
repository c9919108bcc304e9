"""The window: reliable streams, flow control and stability as one mechanism.

Theory of operation
-------------------
A stream is (sender, group, destination); its messages are numbered without gaps, and its bytes are counted from its
beginning. A receiver passes a stream up in order, keeps what came ahead, and says how far it has received the stream
and how many bytes it has room for. Both only grow, so acknowledgements may be lost, repeated or reordered without
harm.

*Repair.* A receiver notices a gap by a frame that came ahead or by the sender's status. After a short wait, because the
network may only have swapped two frames, it asks for what it lacks: first the sender, then other members that kept the
frame. All members keep frames that are not known to have reached all receivers.

*The lost last message.* While an acknowledgement is missing, the sender says now and then how far it has sent
(``Status``). A receiver that has less asks for the rest, and every status is answered.

*Stability.* A message that every receiver has acknowledged is stable: the sender forgets it and says so on its next
frame or status, and the receivers forget it too.

*Any order.* In a group whose order is made by a layer above (``AnyOrder``), frames behind a gap are passed up at once;
``early`` says how all survivors of a view still pass up the same frames.

*Flow.* The sender goes on up to the lowest limit of its receivers, then the caller waits. Control messages (group 0)
have room of their own and wait for nobody.

*Views.* The membership above freezes the streams, learns how far each member is, names the cut that all must reach, and
installs the next view, from which all state of receivers is derived anew. This layer promises: between ``Freeze`` and
``Install`` only frames that ``Reach`` asks for are passed up. Streams to one member are not part of that.

*Groups* change inside a view in the same way, each by itself: streams are passed up to their ends (``ReachGroup``),
then the group has other members (``Regroup``). Frames carry the stamp of their group's view; a frame of a later view
waits. Messages of a member that left are kept, by it and by the others, until all members that stay have them.

Live: every unacknowledged frame leads to a status, every status to an acknowledgement or a request, every request to a
repair, as long as some datagrams arrive and somebody who has the frame is there; when nobody is, the membership's next
view ends the stream.

Bounded: frames that are kept or ahead by the window, streams by ``STREAMS_MAX``, frames of a later view by
``EARLY_MAX``.
"""

from __future__ import annotations

from ...core.frame import Ahead, Frame
from ...core.ids import ALL
from ...stack.events import (
    AnyOrder,
    CollectDigest,
    CollectEnds,
    CollectFull,
    Confirm,
    Confirmed,
    Consumed,
    Event,
    Freeze,
    GroupReached,
    Install,
    JoinGroup,
    LeaveGroup,
    Reach,
    Reached,
    ReachGroup,
    Regroup,
    Stable,
    Unconfirmed,
    Watch,
)
from .early import EARLY_FRAMES_MAX, can_be_named, name_of
from .headers import STREAMS_PER_FRAME_MAX, Ack, Data, Granted, Repair, Sent, Status, Summed, Sums, Want
from .incoming import Incoming
from .outgoing import Outgoing
from .streams import CONTROL, FRAME_CHARGE_BYTES, INITIAL_BYTES, LEFT_MAX, WANT_S_MAX, InKey, Key, Streams


class Reliable(Streams):
    """reliable streams, flow control, stability: one window"""

    name = "reliable"
    requires = frozenset({"datagrams"})
    provides = frozenset({"flow", "reliability"})
    headers = (Data, Ack, Status, Want, Repair, Sums)

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
            case Install():
                self.tell_down(event)
                self._install(event)
            case CollectEnds(groups, ends, unstable):
                for group in groups:
                    out = self._out.get((group, ALL))
                    ends[group] = out.next if out is not None else 0
                    if out is not None and out.unstable:
                        unstable.add(group)
            case ReachGroup(group, upto):
                self._close_group(group, upto)
            case Regroup():
                self.tell_down(event)  # first: what is sent from now on spreads along the new list
                self._regroup(event)
            case Confirm(group, to, upto):
                self._confirming.want((group, to), upto)
                self.unsettled = True
            case CollectFull(group, to, into):
                found = self._out.get((group, to))
                into.extend(found.full() if found is not None else ())
            case AnyOrder(group, headers):
                self._any_order[group] = headers
            case Watch(group, watched):
                (self._watched.add if watched else self._watched.discard)(group)
            case _:
                if isinstance(event, JoinGroup):
                    self._wished.add(event.group)
                    self._leaving.pop((event.group, ALL), None)
                    if event.deaf:
                        self._deaf.add(event.group)
                    if (event.group, ALL) not in self._out:
                        self._open((event.group, ALL), event.first)
                elif isinstance(event, LeaveGroup):
                    self._deaf.discard(event.group)
                    self._wished.discard(event.group)
                    self._any_order.pop(event.group, None)
                self.tell_down(event)

    def _consumed(self, event: Consumed) -> None:
        key = (event.sender, event.group, event.to)
        stream = self._in.get(key)
        if stream is not None:
            consumed = stream.consumed + event.size + FRAME_CHARGE_BYTES * event.frames
            stream.consumed = min(consumed, stream.delivered)
            self._answer(key, False)

    def _digest(self, into: dict[tuple[int, int], int], own: dict[int, int]) -> None:
        me = self.node.me
        into |= {(sender, group): stream.next for (sender, group, _), stream in self._ended.items()}
        into |= {(sender, group): stream.next for (sender, group, to), stream in self._in.items() if to == ALL}
        for key, stream in (*self._ended.items(), *self._in.items()):
            for first in stream.early:
                end = first + stream.ahead[first][0].count
                into[(name_of(self._order.index(key[0]), first), key[1])] = end
        for (group, to), out in self._out.items():
            if to == ALL:
                own[group] = out.next
                if me in self._members.get(group, frozenset()) or out.unstable:
                    into[(me, group)] = out.next

    def _freeze(self) -> None:
        self._hear_self()  # what this member has said is of the view that ends, though it was said only just now
        self._frozen = True
        self._cut = None
        for key, stream in self._in.items():
            if key[2] == ALL:
                stream.cancel()

    def _reach(self, upto: dict[tuple[int, int], int], holders: dict[tuple[int, int], int]) -> None:
        streams = self._early_cut.take_from(upto, holders, self._order, ALL)
        self._cut = {(sender, group, ALL): end for (sender, group), end in streams.items()}
        self._holders = {(sender, group, ALL): holder for (sender, group), holder in holders.items()}
        self._pursue_cut()

    def _pursue_cut(self) -> None:
        """Pass up frames of the cut that are here, and ask for the others. A frame that is passed up may change a
        group, and with it the cut."""
        for key, end in list((self._cut or {}).items()):
            if self._cut is None:
                return
            if not self._must_reach(key):
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
        for key, _ in list(self._early_cut):
            if self._cut is not None and self._must_reach(key):
                self._go_on(key, self._in.setdefault(key, Incoming(0)))
        self._ask_early()
        for group in list(self._closing):
            self._check_closed(group)
        self._check_reached()

    def _early_missing(self) -> list[tuple[InKey, int, int, int]]:
        """Early frames of the cut that this member still lacks: stream, first number, end and holder."""
        return [
            (key, first, end, holder)
            for key, frames in self._early_cut
            if self._must_reach(key)
            for first, (end, holder) in frames.items()
            if (stream := self._in.get(key)) is None or (first >= stream.next and first not in stream.early)
        ]

    def _ask_early(self) -> None:
        """Ask for these frames, their holder first; again until they are here or the attempt is over."""
        if self._early_cut.want is not None:
            self._early_cut.want.cancel()
        missing = self._early_missing() if self._cut is not None else []
        for (sender, group, to), first, end, holder in missing:
            target = holder
            if self._early_cut.asked % 2:
                others = sorted(self._members.get(CONTROL, frozenset()) - {self.node.me})
                target = self.ports.random.choice(others) if others else target
            self.wanted += 1
            self.pass_down(Frame(sender=self.node.me, to=target, headers=[Want(sender, group, to, first, end)]))
        if missing:
            self._early_cut.asked += 1
            self._early_cut.want = self.after(WANT_S_MAX / 2, self._ask_early)

    def _must_reach(self, key: InKey) -> bool:
        """Whether this member needs the stream too. It does not if the stream's group was left, or if the stream began
        before this member came."""
        sender, group, _ = key
        members = self._members.get(group, frozenset())
        return sender != self.node.me and sender in members and self.node.me in members

    def _check_reached(self) -> None:
        cut = self._cut
        if cut is None:
            return
        for key, end in cut.items():
            if self._must_reach(key):
                stream = self._in.get(key)
                if stream is None or stream.next < end:
                    return
        if self._early_missing():
            return
        if self._closing:  # a group is about to change, and will be looked at again
            return
        self._cut = None
        self.tell_up(Reached())

    # Groups that change inside a view

    def _close_group(self, group: int, ends: dict[int, int]) -> None:
        self._closing[group] = ends
        for sender, end in ends.items():
            key = (sender, group, ALL)
            stream = self._in.get(key) or (self._admit(key, 0) if end else None)
            if stream is not None and stream.known < end:
                stream.known = end
                if not self._frozen:
                    self._want_later(key, stream)
        self._check_closed(group)

    def _check_closed(self, group: int) -> None:
        if group not in self._closing:  # what was passed up for another group has closed this one too
            return
        for sender, end in self._closing[group].items():
            key = (sender, group, ALL)
            if self._cut is not None:  # no survivor has more: the sender is gone, and its last messages with it
                end = min(end, self._cut.get(key, 0))
            stream = self._in.get(key)
            if end > (stream.next if stream is not None else 0):
                return
        if self._cut is not None and any(key[1] == group for key, *_ in self._early_missing()):
            return
        del self._closing[group]
        self.tell_up(GroupReached(group))

    def _regroup(self, change: Regroup) -> None:
        group, me, members = change.group, self.node.me, frozenset(change.members)
        self._stamps[group] = change.stamp
        was_large, was_summed = self._summing.large(group), self._summing.applies(me, group, me)
        self._summing.set_order(group, change.members)
        if members:
            self._members[group] = members
        else:
            self._members.pop(group, None)
        for key in [key for key in self._in if key[1] == group and (key[0] not in members or me not in members)]:
            stream = self._in[key]
            self._drop(key)
            if key[2] == ALL and stream.kept:
                self._ended[key] = stream
        for sender, first in change.starts.items():
            key = (sender, group, ALL)
            if sender in members and me in members and key not in self._in:
                ended = self._ended.pop(key, None)
                self._in[key] = ended if ended is not None and ended.next == first else Incoming(first)
        for (of, to), out in list(self._out.items()):
            if of == group:
                self._readdress((of, to), out, change.stamp, stays=me in members, was_summed=was_summed)
        if was_large or self._summing.large(group):  # the asker has not heard it yet
            for key in [key for key in self._in if key[1] == group and key[2] == ALL]:
                self._answer(key, True)
        self._try_early()
        if self._cut is not None:
            self._pursue_cut()

    def _readdress(self, key: Key, out: Outgoing, stamp: int, *, stays: bool, was_summed: bool) -> None:
        group, to = key
        if to != ALL and (not stays or to not in self._members.get(group, frozenset())):
            del self._out[key]
            return
        self._leaving.pop(key, None)
        if not stays and group not in self._wished:
            self._leaving[key] = None
            self._watch()
            for old in list(self._leaving)[:-LEFT_MAX]:
                if not self._out[old].unstable:
                    del self._leaving[old], self._out[old]
        out.stamp = stamp
        if to == ALL and (was_summed or self._summing.large(group)):
            out.answered_by(self._receivers(key), self.node.me, INITIAL_BYTES)
        else:
            out.receivers(self._receivers(key), INITIAL_BYTES)
        if group in self._watched and to == ALL:
            self._became_stabler(key, out)  # who left may have been the last that did not have it
        self._tell_credit(key, out)

    # Large groups

    def _sum_up(self, key: InKey, stream: Incoming, *, forced: bool) -> None:
        """Tell the parent in the tree what this member and all members below it have, if that has changed."""
        owner, group, _ = key
        parent, children = self._summing.around(owner, group, self.node.me)
        found = self._summing.own(owner, group, stream.next, max(stream.granted, 0), self.node.me)
        total = self._summing.total(found, children)
        if total is None:
            return
        received, limit, tightest = total
        settled = received > found.said[0] and (received >= stream.known or group in self._watched)
        if forced or settled or limit - found.said[1] >= self._busy.window(key, self._bytes_max) // 4:
            found.said = total
            stamp = self._stamps.get(group, self._stamp)
            self._sums.setdefault(parent, []).append(Summed(owner, group, stamp, received, limit, tightest))

    def _say_sums(self) -> None:
        sums, self._sums = self._sums, {}
        for parent, streams in sums.items():
            for at in range(0, len(streams), STREAMS_PER_FRAME_MAX):
                word = Sums(streams[at : at + STREAMS_PER_FRAME_MAX])
                self.pass_down(Frame(sender=self.node.me, to=parent, headers=[word]))

    def _summed(self, child: int, word: Sums) -> None:
        me = self.node.me
        for summed in word.streams:
            owner, group = summed.owner, summed.group
            if summed.stamp != self._stamps.get(group, self._stamp) or not self._summing.applies(owner, group, me):
                continue
            if child not in self._summing.around(owner, group, me)[1]:
                continue
            if owner == me:
                out = self._out.get((group, ALL))
                if out is not None:
                    out.tightest[child] = summed.tightest
                self._acknowledged(child, Ack([Granted(group, ALL, summed.received, summed.limit)]))
                continue
            self._summing.heard(child, summed)
            stream = self._in.get((owner, group, ALL))
            if stream is not None:
                self._sum_up((owner, group, ALL), stream, forced=False)
        self._say_sums()

    def _try_early(self) -> None:
        early, self._early = self._early, []
        for frame in early:
            self.up(frame)

    # Out of a stream's order

    def _pass_early(self, key: InKey, stream: Incoming, frame: Frame, *, forced: bool = False) -> None:
        """Pass up a frame although earlier ones are missing, if the layer that orders the group allows it. Frames that
        belong together (pieces, relayed messages) have other headers, and wait."""
        allowed = self._any_order.get(frame.group, frozenset())
        if frame.first in stream.early or key[2] != ALL or frame.sender == self.node.me:
            return
        if not forced:
            plain = all(type(header) in allowed for header in frame.headers[:-1])
            if not plain or len(stream.early) >= EARLY_FRAMES_MAX or not can_be_named(frame.first):
                return
        stream.early.add(frame.first)
        stream.delivered += frame.size + FRAME_CHARGE_BYTES
        self.frames_in += 1
        self.messages_in += frame.count
        self.early_passed += 1
        frame = frame.copy()
        frame.headers[-1] = Ahead(stream.next)
        self.pass_up(frame)

    # Views that begin

    def _install(self, view: Install) -> None:
        self._frozen = False
        self._stamp = view.stamp
        self._stamps.clear()
        self._closing.clear()
        self._leaving.clear()
        self._order = view.members
        self._early_cut.clear()
        for ended in self._ended.values():
            self._leftovers.take(ended.forget())
        self._ended.clear()
        self._cut = None
        for key in [key for key in self._in if key[0] not in view.members]:
            self._leftovers.take(self._in[key].forget())
            self._drop(key)
        groups = {CONTROL: view.members, **view.groups}
        for group in [group for group in self._members if group not in groups]:
            self._summing.set_order(group, ())
            self._set_receivers(group, frozenset(), {})
        for group, members in groups.items():
            self._summing.set_order(group, members)
            starts = {sender: first for (sender, of), first in view.starts.items() if of == group}
            for (of, to), out in self._out.items():
                if of == group and to == ALL:
                    self._leftovers.take(out.forget())
                    out.limits.clear()
                    out.acked.clear()
            self._set_receivers(group, frozenset(members), starts)
        for out in self._out.values():
            out.stamp = view.stamp
        self._try_early()
        self._leftovers.free_later(self.after)

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
        """Receive the stream from this number on."""
        key = (sender, group, ALL)
        stream = self._in.get(key)
        if stream is not None:
            self._leftovers.take(stream.forget())
        if stream is None or stream.next != first:
            fresh = Incoming(first)
            if stream is not None:
                fresh.delivered, fresh.consumed = stream.delivered, stream.consumed
                stream.cancel()
            stream = self._in[key] = fresh
        stream.stable = first
        stream.granted = 0
        stream.early.clear()
        stream.ahead.clear()  # of the view that is over; what came early of the new one waits elsewhere
        stream.known = first

    # Settling

    def settle(self) -> None:
        if self._moved:
            self._acknowledge()
        if self._stabler:
            self._say_stable()
        if self._confirming.wanted:
            self._confirm()
        self.unsettled = bool(self._moved or self._stabler or self._confirming.wanted)

    def _confirm(self) -> None:
        """Serve callers above that wait until every receiver has what this member sent."""
        confirmed, hasten = self._confirming.look(self._out, self._members)
        for (group, to), upto in confirmed:
            self.tell_up(Confirmed(group, to, upto))
        for group, to in hasten:
            out = self._out[(group, to)]
            status = Status([Sent(group, to, out.next, out.offset, out.stable)], self._stamp if to == ALL else 0)
            self.pass_down(Frame(sender=self.node.me, to=to, headers=[status]))

    def unconfirmed(self) -> list[Unconfirmed]:
        """The parts of this member's streams that some receiver is not known to have."""
        return [
            Unconfirmed(group, to, out.next, out.next - out.stable, tuple(sorted(out.lacking)))
            for (group, to), out in self._out.items()
            if group != CONTROL and out.unstable
        ]

    def _say_stable(self) -> None:
        """A member waits to hear what is stable: tell it now, and not with the next frame."""
        stabler, self._stabler = self._stabler, {}
        streams = []
        for (group, to), out in stabler.items():
            self.tell_up(Stable(self.node.me, group, out.stable))
            if out.told_stable < out.stable and len(out.acked) > 1:
                out.told_stable = out.stable
                streams.append(Sent(group, to, out.next, out.offset, out.stable))
        if streams:
            self.pass_down(Frame(sender=self.node.me, headers=[Status(streams, self._stamp, quiet=True)]))

    def validate(self) -> None:
        super().validate()
        assert self.unsettled or not (self._moved or self._stabler or self._confirming.wanted)
        self._leftovers.validate()
