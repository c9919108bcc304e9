"""The window: a sender never has more under way than its slowest receiver can hold.

Theory of operation
-------------------
A stream is (sender, group, destination). The sender counts the bytes of a stream from its beginning; every frame
carries the offset at which it starts. A receiver grants each stream a *limit*, an offset too: what its application has
consumed plus the window. Both only grow, so acknowledgements may be lost, repeated or reordered without harm. The
sender may go on up to the lowest limit among its receivers; then the caller waits. Nothing is thrown away to make
room.

The receiver's window is bounded by what its socket buffer can hold divided by the streams that are active, so that a
busy program finds its datagrams waiting in the kernel, not lost. A frame is charged ``FRAME_CHARGE_BYTES`` on top of
its bodies, because that is what the kernel charges for a small datagram.

Without repair (best effort), a gap is counted as ``lost`` and passed over; its bytes count as consumed, so a lossy
network never stops a stream. A frame behind one that was passed up already is ``late``, a duplicate or overtaken, and
is not delivered: nobody gets a message twice. In a group whose order is made above (``AnyOrder``) a frame that was
overtaken is delivered when it comes: the gaps of a stream are remembered, and each is filled once.

If the window closes and the acknowledgement that opened it is lost, the sender would wait for ever: it probes every
``PROBE_S`` with its offset, and a receiver answers a probe with its limit.

A stream begins when it is first used, and ends when its sender leaves the group, or its only receiver does. A sender
that comes back starts at offset 0 in a new *epoch*; epochs only grow, and words about an old epoch are ignored. A
receiver that lost sight of a sender remembers how far it had come, so that an old datagram delivers nothing twice.

Messages that a sender sends beyond its limit are not delivered: so unread messages are bounded, whatever senders do.

A receiver that grants nothing for ``stall_s`` seconds is reported to the layers above, repeatedly while that lasts. In
a group that was joined with ``drops`` it is not waited for from then on: the others go on, and it loses what it has no
room for, until it grants again.

A sender hears itself through the same account: ``echo`` frames go up here at the end of the stimulus, and its own
unread messages hold it up like those of other receivers; unless it joined with ``own=False``.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.errors import BadStack
from ..core.frame import Ahead, Frame, Header, Number, Position
from ..core.ids import ALL
from ..core.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    DEPARTED_STREAMS_MAX,
    FRAME_OVERHEAD_BYTES,
    STALL_S,
    STREAMS_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
)
from ..core.ports import Timer
from ..stack.busy import Busy
from ..stack.events import AnyOrder, CollectFull, Consumed, Credit, Event, Gone, JoinGroup, LeaveGroup, Members, NoRoom
from ..stack.layer import Layer
from ..stack.stalls import Stalls, checked_stall_s

FRAME_CHARGE_BYTES = 768
PROBE_S = 0.2
UNLIMITED_BYTES = 1 << 62
INITIAL_BYTES = 128 << 10
"""What may be sent before the first acknowledgement: little enough for any receiver's buffer."""
OVERSHOOT_BYTES_MAX = 512 << 10
"""How far a sender may go beyond its limit: its last batch may be a long frame, and frames are charged after they were
admitted."""
GAP_MESSAGES_MAX = WINDOW_BYTES_MAX // FRAME_CHARGE_BYTES * BATCH_MESSAGES_MAX
"""The most messages that can have been under way: a window full of empty ones."""
HOLES_MAX = 64
"""Gaps of a stream that an overtaken frame may still fill; older ones are lost."""
GRANTED_BYTES = 46  # the longest ``Granted`` in msgpack

StreamKey = tuple[int, int, int]


class Sent(Header, tag=10):
    """On every data frame: where in its stream it starts."""

    offset: Position
    epoch: Number


class Granted(msgspec.Struct, array_like=True):
    """For one stream of the addressee: messages received up to here, bytes granted up to there."""

    group: Number
    to: Number
    received: Number
    limit: Number
    epoch: Number


class Ack(Header, tag=11):
    """One frame acknowledges every stream that moved."""

    streams: Annotated[list[Granted], msgspec.Meta(max_length=4_096)]


class Probe(Header, tag=12):
    """A waiting sender asks for its limits."""

    group: Number
    to: Number
    offset: Position
    epoch: Number


class Outgoing:
    """One stream of this member: how far it has gone and how far each receiver lets it go."""

    __slots__ = ("epoch", "limits", "offset", "probe", "stalls", "told", "uncounted")

    def __init__(self, epoch: int) -> None:
        self.stalls = Stalls()
        self.uncounted: set[int] = set()
        """Receivers that do not read, in a group that does not wait for them."""
        self.epoch = epoch
        self.offset = 0
        self.limits: dict[int, int] = {}
        self.told = -1
        self.probe: Timer | None = None

    @property
    def room(self) -> int:
        counted = [limit for member, limit in self.limits.items() if member not in self.uncounted]
        return (min(counted) if counted else UNLIMITED_BYTES) - self.offset

    def full(self) -> list[int]:
        """The receivers without room."""
        return [member for member, limit in self.limits.items() if limit <= self.offset]


class Incoming:
    """One stream of another member: what came, what the application took, what was granted."""

    __slots__ = ("consumed", "delivered", "end", "epoch", "granted", "holes", "most", "next")

    def __init__(self) -> None:
        self.delivered = 0
        self.consumed = 0
        self.begin(0, 0, 0)

    def begin(self, epoch: int, first: int, offset: int) -> None:
        """What was delivered of an older epoch and is still unread goes on counting."""
        self.epoch = epoch
        self.next = first
        self.end = offset
        self.granted = 0
        self.most = offset + INITIAL_BYTES + OVERSHOOT_BYTES_MAX
        self.holes: list[tuple[int, int]] = []
        """Gaps, each from its first number up to its end, in groups whose order is made above."""

    def passed_over(self, first: int, end: int) -> None:
        self.holes.append((first, end))
        del self.holes[:-HOLES_MAX]

    def fills(self, first: int, end: int) -> bool:
        """True if these numbers are in a gap, which they fill."""
        for place, (start, stop) in enumerate(self.holes):
            if start <= first and end <= stop:
                left = [(start, first)] if start < first else []
                self.holes[place : place + 1] = left + ([(end, stop)] if end < stop else [])
                del self.holes[:-HOLES_MAX]
                return True
        return False

    @property
    def unread(self) -> int:
        return self.delivered - self.consumed


class Window(Layer):
    """flow control: credit by stream and receiver"""

    name = "window"
    requires = frozenset({"members"})
    provides = frozenset({"fifo", "flow"})
    headers = (Sent, Ack, Probe)

    def __init__(self, bytes_max: int = WINDOW_BYTES_MAX, stall_s: float = STALL_S) -> None:
        if bytes_max < WINDOW_BYTES_MIN:
            raise BadStack(f"window(bytes_max={bytes_max}) is too small: use {WINDOW_BYTES_MIN:,} or more")
        self._bytes_max = bytes_max
        self._stall_s = checked_stall_s(stall_s, self.name)
        self._unread_max = bytes_max + INITIAL_BYTES + OVERSHOOT_BYTES_MAX
        self._epoch = 0
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[StreamKey, Incoming] = {}
        self._departed: dict[StreamKey, tuple[int, int]] = {}
        self._members: dict[int, frozenset[int]] = {}
        self._moved: dict[StreamKey, Incoming] = {}
        self._answers: dict[int, list[Granted]] = {}
        self._busy = Busy()
        self._echo: list[Frame] = []
        self._deaf: set[int] = set()
        self._drops: set[int] = set()
        self._any_order: dict[int, frozenset[type]] = {}
        """Groups whose order is made above, and the headers of frames that may be passed up out of order."""
        self.frames_in = self.messages_in = self.frames_out = self.messages_out = 0
        self.lost = 0
        self.late = 0
        self.overtaken = 0
        self.over = 0
        self.stalls = 0
        self.ignored = 0

    # Sending

    def down(self, frame: Frame) -> None:
        if not frame.count:
            self.pass_down(frame)
            return
        key = (frame.group, frame.to)
        out = self._outgoing.get(key) or self._open(key)
        self.frames_out += 1
        self.messages_out += frame.count
        frame.headers.append(Sent(out.offset, out.epoch))
        out.offset += frame.size + FRAME_CHARGE_BYTES
        limits = out.limits
        room = min(limits.values(), default=0) - out.offset
        if room < BATCH_BYTES_MAX or out.told < BATCH_BYTES_MAX or out.uncounted:
            self._tell_credit(key, out)
        mine = self.node.me in limits
        if mine:
            self._echo.append(frame.copy())
            self.unsettled = True
        if len(limits) > mine:
            self.pass_down(frame)

    def _open(self, key: tuple[int, int]) -> Outgoing:
        self._epoch += 1
        out = self._outgoing[key] = Outgoing(self._epoch)
        for member in sorted(self._receivers(key)):
            out.limits[member] = INITIAL_BYTES
        return out

    def _receivers(self, key: tuple[int, int]) -> frozenset[int]:
        group, to = key
        members = self._members.get(group, frozenset())
        if group in self._deaf:
            members -= {self.node.me}
        return members if to == ALL else members & {to}

    def _tell_credit(self, key: tuple[int, int], out: Outgoing) -> None:
        """Tell the layers above when the room changed, and watch a stream that must wait. Room beyond what one batch
        can use makes no difference above, and is not told."""
        limits = out.limits
        if out.uncounted:
            room = min(out.room, BATCH_BYTES_MAX)
        else:
            room = min((min(limits.values()) if limits else UNLIMITED_BYTES) - out.offset, BATCH_BYTES_MAX)
        if room != out.told:
            out.told = room
            self.tell_up(Credit(key[0], key[1], room))
        if room <= 0 or out.stalls:
            self._look_at(key, out)
        if (room <= 0 or out.uncounted) and out.probe is None:
            self.stalls += room <= 0
            out.probe = self.after(PROBE_S, lambda: self._probe(key, out))

    def _look_at(self, key: tuple[int, int], out: Outgoing) -> None:
        """Report receivers that leave no room for long. A receiver that is not waited for counts again when it has
        room."""
        stalled, over = out.stalls.look(self.ports.clock.now(), out.full(), self._stall_s)
        for member in (*stalled, *over):
            self.tell_up(NoRoom(*key, member, member in over))
        if key[0] in self._drops and (stalled or out.uncounted):
            uncounted = (out.uncounted | set(stalled)) & set(out.full())
            if uncounted != out.uncounted:
                out.uncounted = uncounted
                self._tell_credit(key, out)

    def _probe(self, key: tuple[int, int], out: Outgoing) -> None:
        out.probe = None
        for member in sorted(out.full()):
            if member != self.node.me:
                probe = Probe(key[0], key[1], out.offset, out.epoch)
                self.pass_down(Frame(sender=self.node.me, to=member, headers=[probe]))
        self._tell_credit(key, out)

    def _acknowledged(self, member: int, ack: Ack) -> None:
        for granted in ack.streams:
            key = (granted.group, granted.to)
            out = self._outgoing.get(key)
            if out is None or granted.epoch != out.epoch:
                continue
            if granted.limit > out.limits.get(member, UNLIMITED_BYTES):
                out.limits[member] = granted.limit
                if out.probe is not None and not out.full():
                    out.probe.cancel()
                    out.probe = None
                self._tell_credit(key, out)

    # Receiving

    def up(self, frame: Frame) -> None:
        header = frame.headers.pop() if frame.headers else None
        if type(header) is Sent:
            if frame.group in self._members:
                self._receive(frame, header)
            else:
                self.pass_up(frame)  # of a group that this member is not in: nobody keeps it, so it needs no account
        elif isinstance(header, Ack):
            self._acknowledged(frame.sender, header)
        elif isinstance(header, Probe):
            self._probed(frame.sender, header)
        elif header is not None:
            frame.headers.append(header)
            self.pass_up(frame)
        else:
            self.pass_up(frame)

    def _probed(self, sender: int, probe: Probe) -> None:
        if probe.group not in self._members or probe.to not in (ALL, self.node.me):
            return
        key = (sender, probe.group, probe.to)
        stream = self._incoming.get(key)
        if stream is None or probe.epoch > stream.epoch:
            # Nothing of this stream has arrived. It needs no state for an answer: nothing of it is unread either.
            granted = Granted(probe.group, probe.to, 0, probe.offset + INITIAL_BYTES, probe.epoch)
            self._answers.setdefault(sender, []).append(granted)
            self.unsettled = True
        elif probe.epoch == stream.epoch:
            # What the sender sent and we did not get is lost: it must not hold the stream up for ever.
            stream.end = max(stream.end, probe.offset)
            stream.granted = 0
            self._moved[key] = stream
            self.unsettled = True

    def _receive(self, frame: Frame, sent: Sent) -> None:
        key = (frame.sender, frame.group, frame.to)
        stream = self._incoming.get(key) or self._admit(key, frame.first, sent)
        if stream is None:
            return
        if stream.epoch != sent.epoch:
            if sent.epoch < stream.epoch:
                self.late += 1
                return
            stream.begin(sent.epoch, frame.first, sent.offset)
        if frame.first < stream.next:
            self._receive_late(frame, stream)
            return
        if sent.offset > stream.most or frame.first - stream.next > GAP_MESSAGES_MAX:
            # Beyond everything that was granted: it sent while we were not among its receivers. That is not lost.
            stream.begin(sent.epoch, frame.first, sent.offset)
        cost = frame.size + FRAME_CHARGE_BYTES
        if stream.delivered - stream.consumed + cost > self._unread_max:
            self.over += 1
            return
        if not stream.granted or frame.first != stream.next:
            # Else the limit stays where it is: what came is unread. It moves when that is consumed.
            self.lost += frame.first - stream.next
            if frame.first != stream.next and frame.to == ALL and frame.group in self._any_order:
                stream.passed_over(stream.next, frame.first)
            self._moved[key] = stream
            self.unsettled = True
        stream.next = frame.first + frame.count
        stream.end = max(stream.end, sent.offset + cost)
        stream.delivered += cost
        self.frames_in += 1
        self.messages_in += frame.count
        if stream.holes:
            frame.headers.append(Ahead(stream.holes[0][0]))
        self.pass_up(frame)

    def _receive_late(self, frame: Frame, stream: Incoming) -> None:
        """A duplicate, or a frame that was overtaken, which is delivered in groups whose order is made above."""
        allowed = self._any_order.get(frame.group) if frame.to == ALL and stream.holes else None
        cost = frame.size + FRAME_CHARGE_BYTES
        if allowed is None or any(type(header) not in allowed for header in frame.headers):
            self.late += 1
        elif stream.unread + cost > self._unread_max:
            self.over += 1
        elif stream.fills(frame.first, frame.first + frame.count):
            self.overtaken += 1
            self.lost -= frame.count
            stream.delivered += cost
            self.frames_in += 1
            self.messages_in += frame.count
            self.pass_up(frame)
        else:
            self.late += 1

    def _admit(self, key: StreamKey, first: int, sent: Sent) -> Incoming | None:
        """A stream begins where we first hear it, but never before the place at which we last heard it."""
        if sent_before(self._departed.get(key), sent.epoch, first):
            self.late += 1
            return None
        if len(self._incoming) >= STREAMS_MAX:
            self.ignored += 1
            return None
        stream = self._incoming[key] = Incoming()
        stream.begin(sent.epoch, first, sent.offset)
        self._departed.pop(key, None)
        return stream

    def _retire(self, key: StreamKey) -> None:
        stream = self._incoming.pop(key)
        self._moved.pop(key, None)
        if len(self._departed) >= DEPARTED_STREAMS_MAX:
            del self._departed[next(iter(self._departed))]
        self._departed[key] = (stream.epoch, stream.next)

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            (self._drops.add if event.drops else self._drops.discard)(event.group)
            if not event.own:
                self._deaf.add(event.group)
        elif isinstance(event, LeaveGroup):
            self._deaf.discard(event.group)
            self._drops.discard(event.group)
            self._any_order.pop(event.group, None)
        elif isinstance(event, AnyOrder):
            self._any_order[event.group] = event.headers
            return
        elif isinstance(event, CollectFull):
            out = self._outgoing.get((event.group, event.to))
            event.into.extend(out.full() if out is not None else ())
            return
        elif isinstance(event, Consumed):
            key = (event.sender, event.group, event.to)
            stream = self._incoming.get(key)
            if stream is not None:
                # Clamped, because frames of before the stream was lost sight of may still have been unread.
                consumed = stream.consumed + event.size + FRAME_CHARGE_BYTES * event.frames
                stream.consumed = min(consumed, stream.delivered)
                self._moved[key] = stream
                self.unsettled = True
            return
        self.tell_down(event)

    def settle(self) -> None:
        self.unsettled = False
        if self._echo:
            echo, self._echo = self._echo, []
            for frame in echo:
                self.up(frame)
        if self._moved or self._answers:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Grant streams that moved by a quarter of the window or more; smaller steps wait."""
        moved = {key: stream.delivered for key, stream in self._moved.items()}
        self._busy.moved(moved, self.ports.engine.buffer_bytes, self.ports.clock.now())
        granted, self._answers = self._answers, {}
        for key, stream in self._moved.items():
            window = self._busy.window(key, self._bytes_max)
            limit = stream.end - stream.unread + window
            if limit - stream.granted >= window // 4:
                stream.granted = limit
                stream.most = max(stream.most, limit + OVERSHOOT_BYTES_MAX)
                granted.setdefault(key[0], []).append(Granted(key[1], key[2], stream.next, limit, stream.epoch))
        self._moved.clear()
        for member, streams in granted.items():
            if member == self.node.me:
                self._acknowledged(member, Ack(streams))
                continue
            step = max((self.ports.engine.path_bytes - FRAME_OVERHEAD_BYTES) // GRANTED_BYTES, 1)
            for at in range(0, len(streams), step):
                self.pass_down(Frame(sender=self.node.me, to=member, headers=[Ack(streams[at : at + step])]))

    # Membership

    def event_up(self, event: Event) -> None:
        if isinstance(event, Members):
            self._members_changed(event.group, frozenset(event.members))
        elif isinstance(event, Gone):
            for key in [key for key in self._incoming if key[0] == event.member]:
                self._retire(key)
        self.tell_up(event)

    def _members_changed(self, group: int, members: frozenset[int]) -> None:
        if self.node.me in members:
            self._members[group] = members
        elif self._members.pop(group, None) is not None:
            for incoming in [incoming for incoming in self._incoming if incoming[1] == group]:
                self._retire(incoming)
        for key, out in [(key, out) for key, out in self._outgoing.items() if key[0] == group]:
            receivers = self._receivers(key)
            if group not in self._members or (key[1] != ALL and not receivers):
                self._end(key, out)
                continue
            for member in [member for member in out.limits if member not in receivers]:
                del out.limits[member]
                out.uncounted.discard(member)
            for member in sorted(receivers - out.limits.keys()):
                out.limits[member] = out.offset + INITIAL_BYTES
            self._tell_credit(key, out)

    def _end(self, key: tuple[int, int], out: Outgoing) -> None:
        del self._outgoing[key]
        if out.probe is not None:
            out.probe.cancel()

    def stats(self) -> dict[str, Any]:
        rooms = [min(out.limits.values()) - out.offset for out in self._outgoing.values() if out.limits]
        return {
            "streams_out": len(self._outgoing),
            "streams_in": len(self._incoming),
            "room_bytes": min(rooms, default=0),
            "frames_in": self.frames_in,
            "messages_in": self.messages_in,
            "frames_out": self.frames_out,
            "messages_out": self.messages_out,
            "lost": self.lost,
            "late": self.late,
            "overtaken": self.overtaken,
            "over": self.over,
            "stalls": self.stalls,
            "stalled": sum(len(out.stalls) for out in self._outgoing.values()),
            "ignored": self.ignored,
        }

    def validate(self) -> None:
        assert len(self._incoming) <= STREAMS_MAX
        assert len(self._departed) <= DEPARTED_STREAMS_MAX
        assert not self._incoming.keys() & self._departed.keys()
        for incoming, stream in self._incoming.items():
            assert incoming[1] in self._members, "streams of groups that this member left are gone"
            assert 0 <= stream.unread <= self._unread_max
        for key, out in self._outgoing.items():
            assert out.limits.keys() == self._receivers(key)
            assert out.probe is not None or not out.full(), "somebody asks"
            assert out.uncounted <= out.limits.keys() and (not out.uncounted or key[0] in self._drops)


def sent_before(departed: tuple[int, int] | None, epoch: int, first: int) -> bool:
    """True if a frame is from before the place at which its stream was lost sight of."""
    return departed is not None and (epoch < departed[0] or (epoch == departed[0] and first < departed[1]))
