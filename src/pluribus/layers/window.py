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
is not delivered: nobody gets a message twice. If the window closes and the acknowledgement that opened it is lost, the
sender would wait for ever: it probes every ``PROBE_S`` with its offset, and a receiver answers a probe with its limit.

A member of the group that sends hears itself through the same account: ``echo`` frames go up here, at the end of the
stimulus, and its own unread messages hold it up like anybody's.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.frame import Frame, Header, Number
from ..core.ids import ALL
from ..core.limits import STREAMS_MAX, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from ..core.ports import Timer
from ..stack.events import Consumed, Credit, Event, Gone, Members
from ..stack.layer import Layer

FRAME_CHARGE_BYTES = 768
PROBE_S = 0.2
UNLIMITED_BYTES = 1 << 62
ROOM_TOLD_BYTES_MAX = 64 << 10
"""More room than one batch can use makes no difference above, and is not worth an event."""
INITIAL_BYTES = 128 << 10
"""What may be sent before the first acknowledgement: little enough for any receiver's buffer."""


class Sent(Header, tag=10):
    """On every data frame: where in its stream it starts."""

    offset: Number


class Granted(msgspec.Struct, array_like=True):
    """For one stream of the addressee: messages received up to here, bytes granted up to there."""

    group: Number
    to: Number
    received: Number
    limit: Number


class Ack(Header, tag=11):
    """One frame acknowledges every stream that moved."""

    streams: Annotated[list[Granted], msgspec.Meta(max_length=4_096)]


class Probe(Header, tag=12):
    """A waiting sender asks for its limits."""

    group: Number
    to: Number
    offset: Number


class Outgoing:
    """One stream of this member: how far it has gone and how far each receiver lets it go."""

    __slots__ = ("limits", "offset", "probe", "told")

    def __init__(self) -> None:
        self.offset = 0
        self.limits: dict[int, int] = {}
        self.told = -1
        self.probe: Timer | None = None


class Incoming:
    """One stream of another member: what came, what the application took, what was granted."""

    __slots__ = ("consumed", "delivered", "end", "granted", "next", "touched_at")

    def __init__(self) -> None:
        self.next = 0
        self.end = 0
        self.delivered = 0
        self.consumed = 0
        self.granted = 0
        self.touched_at = 0.0


class Window(Layer):
    """flow control: credit by stream and receiver"""

    name = "window"
    requires = frozenset({"members"})
    provides = frozenset({"flow"})
    headers = (Sent, Ack, Probe)

    def __init__(self, bytes_max: int = WINDOW_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[tuple[int, int, int], Incoming] = {}
        self._members: dict[int, frozenset[int]] = {}
        self._moved: dict[tuple[int, int, int], Incoming] = {}
        self._echo: list[Frame] = []
        self.lost = 0
        self.late = 0
        self.stalls = 0
        self.ignored = 0

    # Sending

    def down(self, frame: Frame) -> None:
        if not frame.count:
            self.pass_down(frame)
            return
        key = (frame.group, frame.to)
        out = self._outgoing.get(key) or self._open(key)
        frame.headers.append(Sent(out.offset))
        out.offset += frame.size + FRAME_CHARGE_BYTES
        self._tell_credit(key, out)
        me = self.node.me
        if me in out.limits:
            self._echo.append(frame.copy())
        if len(out.limits) > (me in out.limits):
            self.pass_down(frame)

    def _open(self, key: tuple[int, int]) -> Outgoing:
        out = self._outgoing[key] = Outgoing()
        for member in sorted(self._receivers(key)):
            out.limits[member] = INITIAL_BYTES
        return out

    def _receivers(self, key: tuple[int, int]) -> frozenset[int]:
        group, to = key
        members = self._members.get(group, frozenset())
        return members if to == ALL else members & {to}

    def _tell_credit(self, key: tuple[int, int], out: Outgoing) -> None:
        """Tell above when the room changed, and watch over a stream that must wait."""
        limit = min(out.limits.values()) if out.limits else UNLIMITED_BYTES
        room = min(limit - out.offset, ROOM_TOLD_BYTES_MAX)
        if room != out.told:
            out.told = room
            self.tell_up(Credit(key[0], key[1], room))
        if room <= 0 and out.probe is None:
            self.stalls += 1
            out.probe = self.after(PROBE_S, lambda: self._probe(key, out))

    def _probe(self, key: tuple[int, int], out: Outgoing) -> None:
        out.probe = None
        for member, limit in sorted(out.limits.items()):
            if limit <= out.offset and member != self.node.me:
                self.pass_down(Frame(sender=self.node.me, to=member, headers=[Probe(key[0], key[1], out.offset)]))
        self._tell_credit(key, out)

    def _acknowledged(self, member: int, ack: Ack) -> None:
        for granted in ack.streams:
            key = (granted.group, granted.to)
            out = self._outgoing.get(key)
            if out is not None and granted.limit > out.limits.get(member, UNLIMITED_BYTES):
                out.limits[member] = granted.limit
                if out.probe is not None and min(out.limits.values()) > out.offset:
                    out.probe.cancel()
                    out.probe = None
                self._tell_credit(key, out)

    # Receiving

    def up(self, frame: Frame) -> None:
        header = frame.headers.pop() if frame.headers else None
        if isinstance(header, Sent):
            self._receive(frame, header.offset)
        elif isinstance(header, Ack):
            self._acknowledged(frame.sender, header)
        elif isinstance(header, Probe):
            stream = self._incoming.get((frame.sender, header.group, header.to))
            if stream is None:
                stream = self._admit((frame.sender, header.group, header.to), 0, header.offset)
            if stream is not None:
                # What the sender sent and we did not get is lost: it must not hold the stream up for ever.
                stream.end = max(stream.end, header.offset)
                stream.granted = 0
                self._moved[(frame.sender, header.group, header.to)] = stream
        elif header is not None:
            frame.headers.append(header)
            self.pass_up(frame)
        else:
            self.pass_up(frame)

    def _receive(self, frame: Frame, offset: int) -> None:
        key = (frame.sender, frame.group, frame.to)
        stream = self._incoming.get(key) or self._admit(key, frame.first, offset)
        if stream is None:
            return
        if frame.first < stream.next:
            self.late += 1
            return
        self.lost += frame.first - stream.next
        stream.next = frame.first + frame.count
        cost = frame.size + FRAME_CHARGE_BYTES
        stream.end = max(stream.end, offset + cost)
        stream.delivered += cost
        self._moved[key] = stream
        self.pass_up(frame)

    def _admit(self, key: tuple[int, int, int], first: int, offset: int) -> Incoming | None:
        """A stream begins for us wherever we first hear it; its limit is granted at once."""
        if len(self._incoming) >= STREAMS_MAX:
            self.ignored += 1
            return None
        stream = self._incoming[key] = Incoming()
        stream.next = first
        stream.end = offset
        return stream

    def event_down(self, event: Event) -> None:
        if isinstance(event, Consumed):
            key = (event.sender, event.group, event.to)
            stream = self._incoming.get(key)
            if stream is not None:
                stream.consumed += event.size + FRAME_CHARGE_BYTES * event.frames
                self._moved[key] = stream
            return
        self.tell_down(event)

    def settle(self) -> None:
        if self._echo:
            echo, self._echo = self._echo, []
            for frame in echo:
                self.up(frame)
        if self._moved:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Grant what moved by a quarter of the window or more; the rest waits, it would only make small steps."""
        window = max(min(self._bytes_max, self.ports.engine.buffer_bytes // len(self._incoming)), WINDOW_BYTES_MIN)
        granted: dict[int, list[Granted]] = {}
        for key, stream in self._moved.items():
            limit = stream.end - (stream.delivered - stream.consumed) + window
            if limit - stream.granted >= window // 4:
                stream.granted = limit
                granted.setdefault(key[0], []).append(Granted(key[1], key[2], stream.next, limit))
        self._moved.clear()
        for member, streams in granted.items():
            if member == self.node.me:
                self._acknowledged(member, Ack(streams))
            else:
                self.pass_down(Frame(sender=self.node.me, to=member, headers=[Ack(streams)]))

    # Membership

    def event_up(self, event: Event) -> None:
        if isinstance(event, Members):
            self._members_changed(event.group, frozenset(event.members))
        elif isinstance(event, Gone):
            for key in [key for key in self._incoming if key[0] == event.member]:
                del self._incoming[key]
                self._moved.pop(key, None)
        self.tell_up(event)

    def _members_changed(self, group: int, members: frozenset[int]) -> None:
        self._members[group] = members
        if not members:
            del self._members[group]
        for key, out in list(self._outgoing.items()):
            if key[0] != group:
                continue
            receivers = self._receivers(key)
            for member in [member for member in out.limits if member not in receivers]:
                del out.limits[member]
            for member in sorted(receivers - out.limits.keys()):
                out.limits[member] = out.offset + INITIAL_BYTES
            self._tell_credit(key, out)

    def stats(self) -> dict[str, Any]:
        return {
            "streams_out": len(self._outgoing),
            "streams_in": len(self._incoming),
            "lost": self.lost,
            "late": self.late,
            "stalls": self.stalls,
            "ignored": self.ignored,
        }

    def validate(self) -> None:
        assert len(self._incoming) <= STREAMS_MAX
        for stream in self._incoming.values():
            assert stream.consumed <= stream.delivered
        for key, out in self._outgoing.items():
            assert out.limits.keys() == self._receivers(key)
