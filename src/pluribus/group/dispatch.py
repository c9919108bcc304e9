"""Dispatch: the top of a stack. Frames find the channel of their group; what channels gathered goes down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..core.errors import PluribusError
from ..core.events import Excluded, Reverted, Uncertain
from ..core.frame import Frame, Header, Parents, Piece, Relayed, Standing
from ..core.ids import ALL, MemberId, MessageId, checked_name, number_of
from ..core.limits import FRAME_OVERHEAD_BYTES
from ..core.ports import Clock
from ..stack.events import (
    UNHEARD,
    Blocked,
    CollectFull,
    Confirm,
    Confirmed,
    Consumed,
    Credit,
    Dropped,
    Event,
    GroupBlocked,
    GroupRefused,
    JoinGroup,
    LeaveGroup,
    Members,
    NoRoom,
    Paused,
    Unconfirmed,
    ViewChanged,
)
from ..stack.layer import Layer
from ..wire.bodies import BYTES, Kind
from .acknowledged import Acknowledged
from .channel import Channel, Numbers
from .confirmations import Confirmations, Stream, Told
from .relay import Relay, RelayDesk
from .relay.words import WORDS as RELAY_WORDS
from .relay.words import is_open
from .seal import SEAL_BYTES, Seal, SealedState
from .stalled import DROP, EXCLUDE, WAIT, PleaseLeave, StalledMembers
from .state import WORDS, State, Transfer
from .state.line import HeldFrame, Mark, ViewChange
from .state.transfer import PLAIN
from .state.words import Have, Need

log = logging.getLogger(__name__)

CHUNK_BYTES_MIN = 512
LONE_BYTES_MAX = 4_096
"""Longer messages gain little by going out alone, and lose much: a few of them fill a frame."""
LONE_S = 0.0005
"""After such a pause, or when something has come in, a message is the first of its turn. Asking the loop to say when a
turn ends would cost a turn of its own, in every round trip."""
HEARD: tuple[type[Header], ...] = (PleaseLeave, *WORDS)
"""What channels say to each other besides messages."""


class Dispatch(Layer):
    """groups: channels, bundling, inboxes"""

    name = "groups"
    requires = frozenset({"members"})
    provides = frozenset({"groups"})
    headers = (Parents, Piece, Relayed, Standing, *RELAY_WORDS, *HEARD)
    __slots__ = ("_alone_at", "_first", "_scheduled", "blocked", "observe")  # what is asked a message

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self.members: dict[int, Members] = {}
        self.view = ViewChanged(0, 0, (), primary=False)
        self.blocked = False
        self.cuts = False
        """Whether the stack is reliable, so that messages larger than a frame may go in pieces."""
        self.on_event: Callable[[Event], None] = lambda event: None
        """Told of everything that is not about one channel's room."""
        self.confirmations = Confirmations()
        self.observe: Callable[[Frame | Event], None] | None = None
        """Sees everything that comes up, in order: what checkers check."""
        self._clock: Clock | None = None
        self._desk: RelayDesk | None = None
        self._primaries = ((0, 0), (0, 0))
        """The last two primary views that this member was in."""
        self._acknowledged = Acknowledged()
        self._leaving: list[Channel] = []
        self._again: dict[int, tuple[Channel, JoinGroup]] = {}
        """Groups that are joined again before they are left: that comes first."""
        self._paused: dict[int, str] = {}
        self._open: dict[int, Channel] = {}
        self._numbers = Numbers()
        self._stalled = StalledMembers()
        self._scheduled = False
        self._first = True
        """Something came in since the last message that went out alone."""
        self._alone_at = 0.0
        self._merging = False
        """The bus's view is one of several put together: members of the old one may have been elsewhere meanwhile."""
        self.unwanted = 0
        self.given_up = 0

    @property
    def clock(self) -> Clock:
        """The clock for code above the stack. Its timers are no stimuli of the stack, and must not be in its trace."""
        return self._clock or self.ports.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def desk(self) -> RelayDesk:
        """Serves senders from outside of groups, and is this process's own way to send from outside."""
        if self._desk is None:
            self._desk = RelayDesk(
                self.node.me,
                pass_down=self.pass_down,
                stimulus=self.stimulus,
                after=lambda delay_s, call: self.clock.call_later(delay_s, lambda: self.stimulus(call)),
                now=self.clock.now,
                relay_of=lambda group: self.channels[group].relay if group in self.channels else None,
                is_closed=lambda group: group in self.channels and self.channels[group].relay is None,
            )
        return self._desk

    def join(
        self,
        name: str,
        *,
        own: bool = True,
        promises: str = "none",
        state: State | None = None,
        stalled: str = WAIT,
        seal: Seal | None = None,
    ) -> Channel:
        """Become a member of a group. The channel is usable at once; its view follows, and the group's state, if there
        is one."""
        number = number_of(checked_name(name, "the group"))
        channel = self.channels.get(number) or self._again.get(number, (None, None))[0]
        if channel is None:
            me, engine = MemberId(self.node.me), self.ports.engine
            path, long = engine.path_bytes, engine.long_bytes
            echoes = own or promises not in UNHEARD
            pass_down = self.pass_down
            if seal is not None:
                path, long = path - SEAL_BYTES, long - SEAL_BYTES
                pass_down = partial(self._pass_sealed, seal)
                state = SealedState(state, seal) if state is not None else None
            ways = (pass_down, self.tell_down, self._numbers)
            channel = Channel(name, number, me, path, *ways, own=own, echoes=echoes, long_bytes=long)
            channel.seal = seal
            if state is not None:
                channel.state = self._transfer(channel, state, ordered=promises.startswith("total"))
            channel.promises = promises
            if promises.startswith("total"):
                channel.acknowledged = self._acknowledged.of(name)
            if is_open(promises):
                channel.relay = self._relay(channel)
            channel.excludes = stalled == EXCLUDE
            wish = JoinGroup(number, name, own, channel.out.first, promises, stalled == DROP)
            if any(leaving.number == number for leaving in self._leaving) or self._still_in(number):
                self._again[number] = (channel, wish)
            else:
                self._enter(channel, wish)
        return channel

    def _pass_sealed(self, seal: Seal, frame: Frame) -> None:
        self.pass_down(seal.sealed(frame))

    def _still_in(self, number: int) -> bool:
        """Whether this member is still shown in a group that it has left. If it joined again now, views of the former
        membership would be taken for views of the new one."""
        known = self.members.get(number)
        return known is not None and known.agreed and self.node.me in known.members

    def _transfer(self, channel: Channel, state: State, *, ordered: bool) -> Transfer:
        me, number, engine = self.node.me, channel.number, self.ports.engine
        transfer = Transfer(
            me,
            state,
            channel.inbox,
            ordered=ordered,
            chunk_bytes=max(engine.path_bytes - FRAME_OVERHEAD_BYTES, CHUNK_BYTES_MIN),
            buffer_bytes=engine.buffer_bytes,
            wake=lambda: channel.on_arrival(),
            consumed=self._consume,
            say=lambda to, word: self.pass_down(Frame(sender=me, to=to, group=number, headers=[word])),
            run=self.stimulus,
            after=lambda delay_s, call: self.clock.call_later(delay_s, lambda: self.stimulus(call)),
            now=self.clock.now,
        )
        transfer.on_older = lambda change: self._reverted(channel)
        return transfer

    def _reverted(self, channel: Channel) -> None:
        log.warning("%r goes on with an older state: everybody who had a later one is gone", channel.name)
        self.on_event(Reverted(channel.name))

    def _relay(self, channel: Channel) -> Relay:
        number = channel.number
        return Relay(
            self.node.me,
            ready=lambda: not (self.blocked or channel.blocked or channel.paused or channel.closed),
            room=lambda: channel.out.room > 0,
            send=channel.out.send_frame,
            confirm=lambda upto, told: self.confirm((number, ALL), upto, told),
            say=lambda to, word: self.desk.say(number, to, word),
            release=partial(self._release, channel),
            consumed=self._consume,
        )

    def _release(self, channel: Channel, frame: Frame) -> None:
        if self.observe is not None:
            self.observe(frame)
        channel.let_in(frame)

    def _consume(self, frame: Frame) -> None:
        """Count a frame as read that no inbox takes."""
        self.tell_down(Consumed(*frame.stream, 1, frame.size))

    def _enter(self, channel: Channel, wish: JoinGroup) -> None:
        number = channel.number
        self.channels[number] = channel
        channel.pause(self._paused.get(number, ""))
        try:
            self.stimulus(lambda: self.tell_down(wish))
        except PluribusError:  # one group too many: it was not joined, and the next try must say so again
            del self.channels[number]
            raise
        if number in self.members and not self._still_in(number):
            self._show(channel, self.members[number])

    def stop(self) -> None:
        if self._desk is not None:
            self._desk.close()

    def leave(self, channel: Channel) -> None:
        """Leave the group: send what waits, and give up what was not read."""
        if self._again.get(channel.number, (None, None))[0] is channel:
            del self._again[channel.number]
            channel.closed = True
            return
        if self.channels.pop(channel.number, None) is None:
            return
        channel.closed = True
        channel.out.pause(True)  # what gathered may still wait for the next view, and nothing joins it
        if channel.paused:
            self.given_up += channel.out.give_up()
        self._numbers.used(channel.number, channel.out.end)
        if self.blocked or channel.blocked:  # what it still has to send cannot go out before the view has changed
            self._leaving.append(channel)
        else:
            self.stimulus(lambda: self._part(channel))

    def _part(self, channel: Channel) -> None:
        channel.close_batches()
        self._open.pop(channel.number, None)
        self.given_up += channel.out.give_up()  # paused: there is no primary to send it to
        while channel.inbox:
            frame = channel.inbox.popleft()
            if type(frame) is Mark or (type(frame) is HeldFrame and frame.paid):
                continue
            self._consume(frame)
        channel.report_consumed()
        if channel.relay is not None:
            channel.relay.close()
        if channel.state is not None:
            channel.state.close()
        self.tell_down(LeaveGroup(channel.number))
        self._enter_again(channel.number)

    def _enter_again(self, number: int) -> None:
        """The bus has noticed that a group was left, so it can be joined again."""
        leaving = any(channel.number == number for channel in self._leaving)
        if number in self._again and not leaving and not self._still_in(number):
            channel, wish = self._again.pop(number)
            self.stimulus(lambda: self._enter(channel, wish))

    def opened(self, channel: Channel) -> None:
        """A channel's batch got its first body: close it when the loop's turn ends, so that more can join it.

        If the last batch of the channel had only one body, the channel probably asks and answers. Then the first body
        of a turn goes out at once, which saves a turn of the loop in each direction.
        """
        self._open[channel.number] = channel
        if not self._scheduled:
            self._scheduled = True
            out = channel.out
            if out.pending and out.batched <= 1 and len(out.pending[0]) < LONE_BYTES_MAX and self._begins_turn():
                self.flush(channel)
            self.ports.clock.call_soon(self._turn_ended)

    def send_alone(self, channel: Channel, body: bytes, kind: Kind = BYTES) -> MessageId | None:
        """Send a message at once, and return its identity, if it is the first of the loop's turn in a channel that asks
        and answers (``opened``), and nothing prevents it. None: the caller sends it in a batch."""
        out = channel.out
        if self.blocked or self._scheduled or out.pending or out.abandoned or out.batched > 1:
            return None
        if channel.closed or channel.paused or channel.blocked or len(body) > out.longest:
            return None
        if len(body) >= min(out.room, LONE_BYTES_MAX) or not self.ports.engine.writable or not self._begins_turn():
            return None
        sent = (out.me, out.first)
        self.stimulus(out.send_alone, body, kind)
        return sent

    def send_each(self, channel: Channel, bodies: Sequence[Any], kind: Kind) -> bool:
        """Send bodies that nearly fill a frame each, if all of them can be sent now; false: none was sent."""
        if channel.out.pending:
            self.flush(channel)
        out = channel.out
        if self.blocked or out.pending or out.abandoned or channel.closed or channel.paused or channel.blocked:
            return False
        if not self.ports.engine.writable or out.takes(bodies) < len(bodies):
            return False
        self.stimulus(out.send_each, bodies, kind)
        return True

    def _begins_turn(self) -> bool:
        """Whether a message may go out alone now. If so, the next one in this turn may not."""
        now = (self._clock or self.ports.clock).now()
        if not self._first and now - self._alone_at <= LONE_S:
            return False
        self._first, self._alone_at = False, now
        return True

    def flush(self, channel: Channel) -> None:
        """A batch is full: send it now."""
        if not self.blocked:
            self.stimulus(channel.close_batches)

    def unsent(self) -> list[Unconfirmed]:
        """Messages that gathered and are not sent, because a window is full, the view changes, or there is no
        primary."""
        return [
            Unconfirmed(channel.number, int(to), stream.end, len(stream.pending))
            for channel in (*self.channels.values(), *self._leaving)
            for to, stream in ((ALL, channel.out), *channel.direct.items())
            if stream.pending
        ]

    def confirm(self, stream: Stream, upto: int, told: Told) -> Callable[[], None]:
        """Call ``told`` when every receiver has this member's stream up to here; the returned function cancels that."""
        forget = self.confirmations.wait(stream, upto, told)
        self.stimulus(lambda: self.tell_down(Confirm(*stream, upto)))
        return forget

    def consumed(self, channel: Channel) -> None:
        self.stimulus(channel.report_consumed)

    def _turn_ended(self) -> None:
        self._scheduled = False
        if self.blocked:
            return
        waiting = self._open.values()
        if any(channel.out.pending or channel.out.abandoned or channel.direct for channel in waiting):
            self.stimulus(self._close_all)
        else:
            self._open.clear()

    def _close_all(self) -> None:
        opened, self._open = self._open, {}
        for channel in opened.values():
            if channel.out.pending or channel.out.abandoned or channel.direct:
                channel.close_batches()

    def up(self, frame: Frame) -> None:
        if self.observe is not None:
            self.observe(frame)
        if frame.sender != self.node.me:  # what a member hears of itself is nothing to answer
            self._first = True
        channel = self.channels.get(frame.group)
        if channel is None or not frame.count:
            word = frame.headers[-1] if frame.headers else None
            if channel is not None and isinstance(word, HEARD):
                self._hear(channel, frame.sender, word)
                return
            if isinstance(word, RELAY_WORDS):
                self.desk.hear(frame.sender, frame.group, word)
                return
            self.unwanted += 1
            if frame.count:
                self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
            return
        channel.arrived(frame)

    def _hear(self, channel: Channel, sender: int, word: Header) -> None:
        if isinstance(word, PleaseLeave):
            if sender in channel.view:
                self.on_event(Excluded((channel.name,)))
                channel.on_excluded(word.reason)
        elif channel.state is not None:
            channel.state.heard(sender, word)
        elif isinstance(word, Need):  # a member that has no part in the state
            answer = Have(word.point, (PLAIN,))
            self.pass_down(Frame(sender=self.node.me, to=sender, group=channel.number, headers=[answer]))

    def event_up(self, event: Event) -> None:
        if self.observe is not None:
            self.observe(event)
        if isinstance(event, Credit):
            channel = self.channels.get(event.group)
            if channel is not None:
                channel.credited(event.to, event.room_bytes)
        elif isinstance(event, Members):
            if event.members:
                self.members[event.group] = event
            else:
                self.members.pop(event.group, None)
            if self._desk is not None:
                self._desk.shown(event)
            channel = self.channels.get(event.group)
            if channel is not None:
                self._show(channel, event)
                for resumed in self._stalled.keep_only(channel):
                    self.on_event(resumed)
            elif self._again:
                self._enter_again(event.group)
        elif isinstance(event, Confirmed):
            self.confirmations.confirmed((event.group, event.to), event.upto)
        elif isinstance(event, NoRoom):
            self._no_room(event)
        elif isinstance(event, ViewChanged):
            self.view = event
            self._merging = bool(event.sides)
            if event.primary:
                self._primaries = (self._primaries[1], (event.number, event.leader))
            if event.sides:
                self._merged(event.sides)
            if self._desk is not None and not event.continues:
                self._desk.apart()
        elif isinstance(event, Dropped):
            channel = self.channels.get(event.group)
            if channel is not None and event.ids:
                self.on_event(Uncertain(channel.name, event.ids))
                channel.asking.dropped(event.ids)
                self.confirmations.dropped(event.group, event.ids)
        elif isinstance(event, Paused):
            self._paused.pop(event.group, None)
            if event.reason:
                self._paused[event.group] = event.reason
            channel = self.channels.get(event.group)
            if channel is not None:
                channel.pause(event.reason)
                if not event.reason:
                    self._open[channel.number] = channel
                    self.stimulus(self._go_on)
        elif isinstance(event, Blocked):
            self.blocked = event.blocked
            if not event.blocked:
                self._merging = False
                self.stimulus(self._go_on)
        elif isinstance(event, GroupBlocked):
            self._group_blocked(event)
        elif isinstance(event, GroupRefused):
            channel = self.channels.get(event.group)
            if channel is not None:
                channel.refuse(event.reason)
        if not isinstance(event, Credit):
            self.on_event(event)
            if isinstance(event, ViewChanged):
                self._exclude(event)

    def _merged(self, sides: tuple[tuple[int, ...], ...]) -> None:
        """Members that come from another view may have been in ours, and away unnoticed. Messages that were sent
        meanwhile did not reach them, and are not sent again."""
        away = {member for side in sides if self.node.me not in side for member in side}
        for group, known in self.members.items():  # also those that are being left: somebody may still wait for them
            missing = away.intersection(known.members)
            if missing:
                self.confirmations.uncertain(group)
                if group in self.channels:
                    self.channels[group].asking.left(missing)

    def _no_room(self, event: NoRoom) -> None:
        channel = self.channels.get(event.group)
        if channel is None:
            return
        told = self._stalled.changed(channel, event.to, event.member, over=event.over)
        if told is not None:
            self.on_event(told)
        if event.member == self.node.me:
            channel.stalls_itself = not event.over
        channel.on_room()  # a sender that waits may be the one that could make room
        if channel.excludes and not event.over and event.member != self.node.me:
            please = PleaseLeave(f"{self.node.name!r} cannot send, because it does not read")
            self.pass_down(Frame(sender=self.node.me, to=event.member, group=event.group, headers=[please]))

    def full(self, channel: Channel, to: int) -> list[int]:
        """The members that leave a stream of this member no room now."""
        found: list[int] = []
        self.tell_down(CollectFull(channel.number, to, found))
        return found

    def _exclude(self, view: ViewChanged) -> None:
        """This member was excluded: messages that were totally ordered meanwhile are missing here."""
        for lost in self._acknowledged.view_changed(view):
            self.on_event(lost)
        if not view.excluded:
            return
        ordered = [known for known in self.members.values() if known.promises.startswith("total")]
        shown = [self.channels[known.group] for known in ordered if known.group in self.channels]
        missing = [channel for channel in shown if channel.me in channel.view]
        for channel in missing:
            channel.missed()
        self.on_event(Excluded(tuple(sorted(channel.name for channel in missing))))

    def _group_blocked(self, event: GroupBlocked) -> None:
        channel = self.channels.get(event.group)
        if channel is not None:
            channel.blocked = event.blocked
            if not event.blocked:
                self._open[channel.number] = channel
        for leaving in self._leaving:
            if leaving.number == event.group:
                leaving.blocked = event.blocked
        if not event.blocked:
            self.stimulus(self._go_on)

    def _go_on(self) -> None:
        """The view has changed: send what waited, finish leaving groups, wake waiting senders."""
        if self.blocked:
            return
        self._close_all()
        leaving = [channel for channel in self._leaving if not channel.blocked]
        self._leaving = [channel for channel in self._leaving if channel.blocked]
        for channel in leaving:
            self._part(channel)
        for channel in self.channels.values():
            channel.on_room()
            if channel.relay is not None:
                channel.relay.pump()

    def stats(self) -> dict[str, Any]:
        return {
            "channels": len(self.channels),
            "unwanted": self.unwanted,
            "given_up": self.given_up,
            "malformed": sum(channel.malformed for channel in self.channels.values()),
            "inbox_frames": sum(len(channel.inbox) for channel in self.channels.values()),
            "questions": sum(len(channel.asking.pending) for channel in self.channels.values()),
            "answers_late": sum(channel.asking.late for channel in self.channels.values()),
            "answers_twice": sum(channel.asking.duplicates for channel in self.channels.values()),
            **self._transfers(),
            "large_begun": sum(len(channel.pieces) for channel in self.channels.values()),
            "pieces_refused": sum(channel.pieces.refused for channel in self.channels.values()),
        }

    def _transfers(self) -> dict[str, int]:
        states = [channel.state for channel in self.channels.values() if channel.state is not None]
        return {
            "states": len(states),
            "states_awaited": sum(state.holding for state in states),
            "snapshots": sum(state.serving.taken for state in states),
            "restored": sum(state.restored for state in states),
        }

    def validate(self) -> None:
        for channel in self.channels.values():
            channel.validate()
            if channel.state is not None:
                channel.state.validate()
        if self._desk is not None:
            self._desk.validate()

    def _show(self, channel: Channel, event: Members) -> None:
        limbo = event.promises.startswith("total") and not self.view.primary and channel.me in event.members
        channel.members_changed(event.members, event.names, event.agreed, merged=self._merging, limbo=limbo)
        self.confirmations.members_changed(event.group, event.members)
        if channel.relay is not None and limbo:
            channel.relay.cut_off()
        elif channel.relay is not None:
            excluded = self.view.excluded and event.promises.startswith("total")
            since = (self.view.number, self.view.leader) if excluded else None
            everybody = self.members[0].members if 0 in self.members else ()
            channel.relay.view_changed(event.stamp, event.members, everybody, excluded=since)
        if channel.state is not None:
            channel.state.changed(self._change(channel, event))

    def _change(self, channel: Channel, event: Members) -> ViewChange:
        view = self.view
        name = (view.number, view.leader)
        continues = view.continues or channel.bus_view == name
        channel.bus_view = name
        return ViewChange(
            event.stamp,
            event.members,
            primary=view.primary,
            continues=continues,
            lineage=view.lineage,
            epoch=view.epoch,
            sent=channel.out.first,
            view=name,
            after=None if view.excluded else self._primaries[0],
        )
