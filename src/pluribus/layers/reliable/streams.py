"""Streams: what a member sends and receives, acknowledges, misses and repairs, while a view lasts."""

from __future__ import annotations

from typing import Any

from ...core.errors import MalformedFrame
from ...core.frame import Frame
from ...core.ids import ALL
from ...core.limits import (
    BATCH_BYTES_MAX,
    DEPARTED_STREAMS_MAX,
    STALL_S,
    STREAMS_MAX,
    WINDOW_BYTES_MAX,
)
from ...core.ports import Timer
from ...stack.busy import Busy
from ...stack.events import Credit, NoRoom, Stable
from ...stack.layer import Layer
from ...stack.stalls import checked_stall_s
from .confirming import Confirming
from .early import EarlyCut
from .headers import STREAMS_PER_FRAME_MAX, Ack, Data, Granted, Repair, Sent, Status, Summed, Sums, Want
from .incoming import Incoming
from .leftovers import Leftovers
from .outgoing import UNLIMITED_BYTES, Outgoing
from .summing import SUM_ABOVE, Summing

FRAME_CHARGE_BYTES = 768
INITIAL_BYTES = 128 << 10
GRANT_PART = 2
"""A receiver tells its limit again when that has moved by the window divided by this. With half a window the sender
still has the other half to go on with, and there are half as many acknowledgements as with a quarter."""
STATUS_S = 0.03
STATUS_S_MAX = 0.5
WANT_S = 0.004
WANT_S_MAX = 0.25
WANT_FRAMES_MAX = 64
"""Frames that answer one request; the asker asks again for the rest."""
EARLY_MAX = 256
LEFT_MAX = 1_024
"""Groups that a member has left in a view and still answers for."""
AHEAD_MAX = 4_096
CONTROL = 0
DIRECT_RANGE_BITS = 40
"""``group.channel`` numbers the messages of each direct stream in a range of its own, of so many bits."""

Key = tuple[int, int]
InKey = tuple[int, int, int]


class Streams(Layer):
    """The half of ``Reliable`` that works within a view; ``layer`` leads from one view to the next."""

    # What is asked a frame
    __slots__ = (
        "_echo",
        "_frozen",
        "_stamp",
        "_status",
        "frames_in",
        "frames_out",
        "messages_in",
        "messages_out",
    )

    def __init__(self, bytes_max: int = WINDOW_BYTES_MAX, stall_s: float = STALL_S, sum_above: int = SUM_ABOVE) -> None:
        self._bytes_max = bytes_max
        self._sum_above = sum_above
        self._stall_s = checked_stall_s(stall_s, self.name)
        self._out: dict[Key, Outgoing] = {}
        self._in: dict[InKey, Incoming] = {}
        self._members: dict[int, frozenset[int]] = {}
        self._departed: dict[InKey, int] = {}
        self._moved: dict[InKey, bool] = {}
        self._busy = Busy()
        self._echo: list[Frame] = []
        self._early: list[Frame] = []
        self._deaf: set[int] = set()
        self._watched: set[int] = set()
        self._stabler: dict[Key, Outgoing] = {}
        self._confirming = Confirming()
        self._summing = Summing(sum_above)
        self._sums: dict[int, list[Summed]] = {}
        self._wished: set[int] = {CONTROL}
        self._frozen = False
        self._stamp = 0
        self._stamps: dict[int, int] = {}
        """Of groups that have changed inside this view."""
        self._closing: dict[int, dict[int, int]] = {}
        """Groups about to change: by sender, where its stream ends."""
        self._leaving: dict[Key, None] = {}
        """Streams of groups that this member has left in this view: others may still ask for its messages, and which of
        them are stable."""
        self._ended: dict[InKey, Incoming] = {}
        """Streams of groups that their sender or this member has left, until everybody has everything."""
        self._any_order: dict[int, frozenset[type]] = {}
        """Groups whose order is made by a layer above, and the headers of frames that may be passed up early."""
        self._order: tuple[int, ...] = ()  # the members of the view
        self._cut: dict[InKey, int] | None = None
        self._early_cut = EarlyCut()
        self._holders: dict[InKey, int] = {}
        self._leftovers = Leftovers()
        self._status: Timer | None = None
        self._status_s = STATUS_S
        self._ranges = 0
        self.frames_in = self.messages_in = self.frames_out = self.messages_out = 0
        self.repaired = 0
        self.wanted = 0
        self.duplicates = 0
        self.early_dropped = self.early_passed = 0
        self.foreign = 0
        """Frames of groups that this member is not in."""
        self.stalls = 0

    # Sending

    def down(self, frame: Frame) -> None:
        if not frame.count:
            self.pass_down(frame)
            return
        key = (frame.group, frame.to)
        out = self._out.get(key)
        if out is None:
            out = self._open(key, frame.first)
        if frame.group == CONTROL:
            frame.first = out.next
        else:
            self.frames_out += 1
            self.messages_out += frame.count
        frame.headers.append(Data(out.offset, out.stable, out.stamp if frame.to == ALL else 0))
        out.told_stable = out.stable
        out.next = frame.first + frame.count
        out.offset += frame.size + FRAME_CHARGE_BYTES
        out.sent_at = self.ports.clock.now()
        me = self.node.me
        mine = me in out.acked
        if mine:
            out.acked[me] = out.next
            if not self._echo:
                self.stimulus(self._hear_self)
            self._echo.append(frame)
            if len(out.acked) == 1 and frame.group in self._watched:
                self._became_stabler(key, out)
        if len(out.acked) > mine:
            out.kept.append(frame)
            out.kept_bytes += frame.size
            self.pass_down(frame.copy())
            if self._status is None:
                self._watch()
        else:
            out.settle()
        self._tell_credit(key, out)

    def _open(self, key: Key, first: int) -> Outgoing:
        if key[0] == CONTROL and key[1] != ALL:  # a range of its own too: its receiver may remember the one before
            self._ranges += 1
            first = self._ranges << DIRECT_RANGE_BITS
        out = self._out[key] = Outgoing(first)
        out.stamp = self._stamps.get(key[0], self._stamp)
        out.receivers(self._receivers(key), INITIAL_BYTES)
        return out

    def _receivers(self, key: Key) -> frozenset[int]:
        group, to = key
        members = self._members.get(group, frozenset())
        if to != ALL:
            return members & {to}
        if self._summing.applies(me := self.node.me, group, me):  # each of them stands for all below it
            members = frozenset({me, *self._summing.around(me, group, me)[1]})
        return members - {self.node.me} if group in self._deaf else members

    def _tell_credit(self, key: Key, out: Outgoing) -> None:
        if key[0] == CONTROL:
            return
        room = min(min(out.limits.values(), default=UNLIMITED_BYTES) - out.offset, BATCH_BYTES_MAX)
        if room != out.told:
            if room <= 0 < out.told:
                self.stalls += 1
            out.told = room
            self.tell_up(Credit(key[0], key[1], room))
            if room <= 0 or out.stalls:
                self._look_at(key, out)

    def _look_at(self, key: Key, out: Outgoing) -> None:
        """Report receivers that leave no room for long."""
        stalled, over = out.stalls.look(self.ports.clock.now(), out.full(), self._stall_s)
        for member in (*stalled, *over):
            self.tell_up(NoRoom(*key, member, member in over))
        if out.stalls:
            self._watch()

    def _watch(self) -> None:
        if self._status is None:
            self._status = self.after(self._status_s, self._say_status)

    def _say_status(self) -> None:
        """Tell receivers of streams that have been quiet while something in them is unstable, or was until now."""
        self._status = None
        quiet_since = self.ports.clock.now() - STATUS_S * 0.9
        waiting = False
        by_target: dict[int, list[Sent]] = {}
        for (group, to), out in self._out.items():
            unstable = out.stable < out.next or out.room <= 0
            waiting = waiting or unstable
            if out.stalls:
                self._look_at((group, to), out)
            if (unstable and out.sent_at <= quiet_since) or out.told_stable < out.stable:
                out.told_stable = out.stable
                if len(out.acked) > (self.node.me in out.acked):
                    by_target.setdefault(to, []).append(Sent(group, to, out.next, out.offset, out.stable))
        for key, stream in (*self._in.items(), *self._ended.items()):
            if key[1] in self._watched and key[2] == ALL and stream.told < stream.next and key[0] != self.node.me:
                waiting = True  # somebody waits to hear that it is stable; the word may have been lost
                self._answer(key, True)
        for to, streams in by_target.items():
            for at in range(0, len(streams), STREAMS_PER_FRAME_MAX):
                status = Status(streams[at : at + STREAMS_PER_FRAME_MAX], self._stamp if to == ALL else 0)
                self.pass_down(Frame(sender=self.node.me, to=to, headers=[status]))
        if waiting:
            self._status_s = min(self._status_s * 1.5, STATUS_S_MAX)
            self._watch()
        else:
            self._status_s = STATUS_S

    def _acknowledged(self, member: int, ack: Ack) -> None:
        for granted in ack.streams:
            key = (granted.group, granted.to)
            out = self._out.get(key)
            if out is None:
                continue
            stable = out.stable
            if out.acknowledged(member, granted.received, granted.limit):
                self._status_s = STATUS_S
                if out.stable > stable:
                    if granted.group in self._watched and granted.to == ALL:
                        self._became_stabler(key, out)
                    self._watch()
                self._tell_credit(key, out)
            elif granted.received == out.stable and (granted.group in self._watched or key in self._leaving):
                out.told_stable = min(out.told_stable, out.stable - 1)  # it does not know
                self._became_stabler(key, out)

    # Receiving

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if isinstance(header, Data):
            self._receive(frame, header)
        elif isinstance(header, Ack):
            self._acknowledged(frame.sender, self._summing.plain(header, self.node.me))
        elif isinstance(header, Status):
            if header.stamp in (0, self._stamp):
                for sent in header.streams:
                    self._told(frame.sender, sent, quiet=header.quiet)
        elif isinstance(header, Sums):
            self._summed(frame.sender, header)
        elif isinstance(header, Want):
            self._asked(frame.sender, header)
        elif isinstance(header, Repair):
            self._repaired(header)
        else:
            self.pass_up(frame)

    def _admit(self, key: InKey, first: int, stable: int = 0) -> Incoming | None:
        """The stream, if its sender and this member are both in the group. A direct stream starts anew in each range of
        numbers, behind what this member is known to have. Every other stream starts where the membership said, or else
        at its beginning."""
        sender, group, to = key
        members = self._members.get(group, frozenset())
        if sender not in members or self.node.me not in members or to not in (ALL, self.node.me):
            return None
        stream = self._in.get(key)
        if to != ALL:
            start = max(first >> DIRECT_RANGE_BITS << DIRECT_RANGE_BITS, stable, self._departed.get(key, 0))
            if stream is not None and stream.next < first >> DIRECT_RANGE_BITS << DIRECT_RANGE_BITS:
                self._drop(key)
                stream = None
        else:
            start = 0
        if stream is None:
            if len(self._in) >= STREAMS_MAX:
                return None
            stream = self._in[key] = Incoming(start)
        return stream

    def _receive(self, frame: Frame, data: Data) -> None:
        if frame.to == ALL and data.stamp != self._stamps.get(frame.group, self._stamp):
            if data.stamp > self._stamps.get(frame.group, self._stamp):
                self._too_early(frame)
            else:
                self.duplicates += 1  # of a view that is over, and settled without it
            return
        key = (frame.sender, frame.group, frame.to)
        stream = self._in.get(key)
        if stream is None or frame.to != ALL:
            stream = self._admit(key, frame.first, data.stable)
            if stream is None:
                if frame.to == ALL:
                    self.foreign += 1
                else:
                    self._too_early(frame)
                return
        end = frame.first + frame.count
        if frame.first < stream.next or frame.first in stream.ahead:
            self.duplicates += 1
            self._answer(key, True)  # the acknowledgement was lost, perhaps
            return
        if end > stream.known:
            stream.known = end
        if frame.first > stream.next or (self._frozen and frame.to == ALL):
            needed = frame.first == stream.next or (key, frame.first) in self._early_cut
            if len(stream.ahead) < AHEAD_MAX or needed:  # the rest waits for it
                stream.ahead[frame.first] = (frame, data.offset)
                if frame.group in self._any_order and not self._frozen:
                    self._pass_early(key, stream, frame)
            if not self._frozen:
                self._want_later(key, stream)
            elif self._cut is not None:
                self._go_on(key, stream)
            return
        self._pass(key, stream, frame, data)
        if stream.ahead:
            self._go_on(key, stream)
        elif self._closing and frame.group in self._closing:
            self._check_closed(frame.group)

    def _pass(self, key: InKey, stream: Incoming, frame: Frame, data: Data) -> None:
        cost = frame.size + FRAME_CHARGE_BYTES
        early = frame.first in stream.early
        stream.next = frame.first + frame.count
        stream.asked = 0
        stream.end = max(stream.end, data.offset + cost)
        if early:
            stream.early.remove(frame.first)
        else:
            stream.delivered += cost
        if data.stable > stream.stable:
            stream.forget_upto(data.stable)
        if frame.group in self._watched and frame.to == ALL:
            self._answer(key, True)
            self._tell_stable(key, stream, data.stable)
            self._watch()
        elif not stream.granted or frame.group == CONTROL:
            # Else the limit stays where it is: what came is unread. It moves when that is consumed.
            self._answer(key, False)
        if frame.sender != self.node.me and frame.to == ALL:
            stream.kept.append(frame)
            stream.kept_bytes += frame.size
            if early:
                return
            frame = frame.copy()
        frame.headers.pop()
        if frame.group == CONTROL:
            stream.consumed += cost
        else:
            self.frames_in += 1
            self.messages_in += frame.count
        self.pass_up(frame)

    def _go_on(self, key: InKey, stream: Incoming) -> None:
        """Pass up what came ahead and is due now: while frozen, only as far as the cut."""
        upto = stream.known
        if self._frozen and key[2] == ALL:
            upto = -1 if self._cut is None else self._cut.get(key, -1)
        while stream.next < upto:
            found = stream.ahead.pop(stream.next, None)
            if found is None:
                break
            header = found[0].headers[-1]
            self._pass(key, stream, found[0], header)
        if self._cut is not None:
            for first in self._early_cut.of(key):
                if first in stream.ahead:
                    self._pass_early(key, stream, stream.ahead[first][0], forced=True)
        if not stream.gap:
            stream.cancel()
        elif not self._frozen or key[2] != ALL:
            self._want_later(key, stream)
        if key[1] in self._closing:
            self._check_closed(key[1])
        if self._cut is not None:
            self._check_reached()

    def _told(self, sender: int, sent: Sent, *, quiet: bool) -> None:
        """A sender's status: learn how far it has gone, ask for what is missing, and answer in any case."""
        key = (sender, sent.group, sent.to)
        if sent.to == ALL and self._frozen:
            return  # the cut will say what counts
        if key in self._ended:
            self._told_of_the_past(key, sent, quiet=quiet)
        stream = self._in.get(key) or self._admit(key, sent.next, sent.stable)
        if stream is None:
            return
        if sent.to == ALL or stream.next <= sent.next:
            stream.known = max(stream.known, sent.next)
            stream.forget_upto(min(sent.stable, stream.next))
            if sent.group in self._watched and sent.to == ALL:
                self._tell_stable(key, stream, sent.stable)
            if stream.next >= sent.next:
                stream.end = max(stream.end, sent.offset)
            if not quiet:
                self._answer(key, True)
            if stream.gap and not self._frozen:
                self._want_later(key, stream)

    def _told_of_the_past(self, key: InKey, sent: Sent, *, quiet: bool) -> None:
        """Answer about a stream of a group that its sender or this member has left. The stream is complete here; when
        all receivers have it, it is forgotten."""
        ended = self._ended[key]
        ended.forget_upto(min(sent.stable, ended.next))
        if sent.group in self._watched:
            self._tell_stable(key, ended, min(sent.stable, ended.next))
        if not ended.kept:
            del self._ended[key]
        if not quiet:
            ack = Ack([Granted(sent.group, sent.to, ended.next, 0)])
            self.pass_down(Frame(sender=self.node.me, to=key[0], headers=[ack]))

    def _tell_stable(self, key: InKey, stream: Incoming, stable: int) -> None:
        if stable > stream.told:
            stream.told = stable
            self.tell_up(Stable(key[0], key[1], stable))

    # Repair

    def _want_later(self, key: InKey, stream: Incoming) -> None:
        if stream.want is None and stream.gap:
            delay_s = min(WANT_S * 2**stream.asked, WANT_S_MAX) * (0.5 + self.ports.random.random())
            stream.want = self.after(delay_s, lambda: self._want(key, stream))

    def _want(self, key: InKey, stream: Incoming) -> None:
        stream.want = None
        if self._in.get(key) is not stream or not stream.gap:
            return
        sender, group, to = key
        target, stop = sender, stream.missing_upto()
        if self._frozen and to == ALL:
            if self._cut is None or stream.next >= self._cut.get(key, -1):
                return
            target = self._holders.get(key, sender)
            stop = min(stop, self._cut[key])
            if stream.asked % 2:  # the holder may have come to the group later, and have no more than the end of it
                others = sorted(self._members.get(CONTROL, frozenset()) - {self.node.me})
                target = self.ports.random.choice(others) if others else target
        elif stream.asked >= 3 and to == ALL:
            others = sorted(self._members.get(group, frozenset()) - {self.node.me, sender})
            target = self.ports.random.choice(others) if others and stream.asked % 2 else sender
        stream.asked += 1
        self.wanted += 1
        want = Want(sender, group, to, stream.next, max(stop, stream.next + 1))
        self.pass_down(Frame(sender=self.node.me, to=target, headers=[want]))
        self._want_later(key, stream)

    def _asked(self, member: int, want: Want) -> None:
        if want.sender == self.node.me:
            out = self._out.get((want.group, want.to))
            if out is None or (want.to != ALL and want.to != member):
                return
            for frame in out.frames(want.first, want.stop)[:WANT_FRAMES_MAX]:
                if want.to == ALL:
                    self._wrap(frame, member)
                else:
                    self.pass_down(frame.copy())
            return
        key = (want.sender, want.group, want.to)
        for stream in (self._in.get(key), self._ended.get(key)):
            if stream is not None and want.to == ALL:
                for frame in stream.frames(want.first, want.stop)[:WANT_FRAMES_MAX]:
                    self._wrap(frame, member)

    def _wrap(self, frame: Frame, member: int) -> None:
        repair = Repair(self.node.codec.encode(frame))
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[repair]))

    def _repaired(self, repair: Repair) -> None:
        try:
            frame = self.node.codec.decode(repair.frame)
        except MalformedFrame:
            return
        data = frame.headers[-1] if frame.headers else None
        if isinstance(data, Data) and frame.sender != self.node.me and frame.count:
            self.repaired += 1
            self._receive(frame, data)

    def _too_early(self, frame: Frame) -> None:
        """Hold a frame that may be of a newer view than ours: we do not know its sender as a member yet."""
        if len(self._early) < EARLY_MAX:
            self._early.append(frame)
        else:
            self.early_dropped += 1

    # Acknowledging

    def _hear_self(self) -> None:
        """Pass up own frames before the stimulus settles, so that layers above can still answer within it."""
        echo, self._echo = self._echo, []
        for frame in echo:
            self.up(frame.copy())

    def _answer(self, key: InKey, forced: bool) -> None:
        """The stream moved: acknowledge it if it has moved far enough, or if ``forced``."""
        self._moved[key] = forced or self._moved.get(key, False)
        self.unsettled = True

    def _became_stabler(self, key: Key, out: Outgoing) -> None:
        self._stabler[key] = out
        self.unsettled = True

    def _acknowledge(self) -> None:
        """Grant what moved by a half of the window; a status or a duplicate is answered in any case."""
        # Words of protocols have no part in the buffer: few and short.
        moved = {key: self._in[key].delivered for key in self._moved if key[1] != CONTROL and key in self._in}
        self._busy.moved(moved, self.ports.engine.buffer_bytes, self.ports.clock.now())
        granted: dict[int, list[Granted]] = {}
        for key, forced in self._moved.items():
            stream = self._in.get(key) or self._ended.get(key)
            if stream is None or (self._frozen and key[2] == ALL):
                continue  # frozen: what the membership was told must remain all that anybody believes to be here
            window = self._busy.window(key, self._bytes_max)
            limit = stream.end - stream.unread + window
            if forced or limit - stream.granted >= window // GRANT_PART:
                stream.granted = max(limit, stream.granted)
                if key[2] == ALL and key[0] != self.node.me and self._summing.applies(key[0], key[1], self.node.me):
                    self._sum_up(key, stream, forced=forced)
                    continue
                granted.setdefault(key[0], []).append(Granted(key[1], key[2], stream.next, max(stream.granted, 0)))
        self._moved.clear()
        self._say_sums()
        for member, streams in granted.items():
            for at in range(0, len(streams), STREAMS_PER_FRAME_MAX):
                ack = Ack(streams[at : at + STREAMS_PER_FRAME_MAX])
                if member == self.node.me:
                    self._acknowledged(member, ack)
                else:
                    self.pass_down(Frame(sender=self.node.me, to=member, headers=[ack]))

    def _drop(self, key: InKey) -> None:
        self._summing.drop(key[0], key[1])
        stream = self._in.pop(key, None)
        if stream is not None:
            stream.cancel()
            if key[2] != ALL:  # its sender may not know that it was out of sight, and goes on where it was
                self._departed.pop(key, None)
                if len(self._departed) >= DEPARTED_STREAMS_MAX:
                    del self._departed[next(iter(self._departed))]
                self._departed[key] = stream.next
        self._moved.pop(key, None)

    def options(self) -> dict[str, Any]:
        """All members must sum acknowledgements alike, so the option is part of the fingerprint."""
        return {} if self._sum_above == SUM_ABOVE else {"sum_above": self._sum_above}

    def stats(self) -> dict[str, Any]:
        return {
            "streams_out": len(self._out),
            "streams_in": len(self._in),
            "kept_bytes": sum(out.kept_bytes for out in self._out.values())
            + sum(stream.kept_bytes for stream in self._in.values()),
            "room_bytes": min((out.room for out in self._out.values() if out.limits), default=0),
            "frames_in": self.frames_in,
            "messages_in": self.messages_in,
            "frames_out": self.frames_out,
            "messages_out": self.messages_out,
            "wanted": self.wanted,
            "repaired": self.repaired,
            "duplicates": self.duplicates,
            "early_dropped": self.early_dropped,
            "early_passed": self.early_passed,
            "foreign": self.foreign,
            "stalls": self.stalls,
            "stalled": sum(len(out.stalls) for out in self._out.values()),
        }

    def validate(self) -> None:
        assert len(self._in) <= STREAMS_MAX and len(self._early) <= EARLY_MAX
        assert len(self._departed) <= DEPARTED_STREAMS_MAX
        for out in self._out.values():
            out.validate()
        for stream in self._in.values():
            stream.validate()

    def _pass_early(self, key: InKey, stream: Incoming, frame: Frame, *, forced: bool = False) -> None:
        raise NotImplementedError

    def _check_closed(self, group: int) -> None:
        raise NotImplementedError

    def _check_reached(self) -> None:
        raise NotImplementedError

    def _summed(self, child: int, word: Sums) -> None:
        raise NotImplementedError

    def _sum_up(self, key: InKey, stream: Incoming, *, forced: bool) -> None:
        raise NotImplementedError

    def _say_sums(self) -> None:
        raise NotImplementedError
