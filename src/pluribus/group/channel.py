"""A channel: one group as one member sees it. Bodies go out by streams, frames come in to an inbox, views change.

The channel is pure; ``runtime.group`` adds ``await``. What the stack tells it is kept until the application asks. It
calls ``on_arrival``, ``on_room`` and ``on_view`` so that waiting tasks can be woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any

from .._speed.quick import Reading
from ..core.errors import Excluded, MalformedFrame
from ..core.frame import Frame, Message, Parents
from ..core.ids import ALL, MemberId
from ..core.view import View
from ..stack.events import Consumed, Event
from ..wire.bodies import BYTES, decode_bodies
from ..wire.questions import ANSWER, CALL, MARKED, QUESTION, unwrapped, words_of
from .acknowledged import Runs
from .asking import Asking, Question
from .outgoing import Outgoing
from .pieces import Pieces, piece_of
from .relay import Relay
from .seal import Seal
from .state import Transfer
from .state.line import Mark

REPORT_BUSY_BYTES = 256 << 10
"""A reader that never pauses reports after so many bytes, so that senders go on while it works."""
REPORT_IDLE_BYTES = 4 << 10
"""A reader that has caught up leaves less than this unreported: far below the smallest window, so nobody waits."""
REPORT_FRAME_BYTES = 768
DIRECT_RANGE_BITS = 40
LEFT_GROUPS_MAX = 10_000
"""Groups that were left and whose numbering is remembered."""
DIRECT_RANGES_MAX = (1 << 21) - 1
"""Number ranges of direct streams; then they start again, because nobody keeps an identity for so long."""


class Numbers:
    """Where a member's streams start to count, so that (sender, number) identifies one message of a group.

    The stream to everybody starts at 0; in a group that was left and is joined again it starts where it ended, so that
    it has no gap. Each stream to one member has a range of its own far above.
    """

    __slots__ = ("_ended", "_highest", "_questions", "_ranges")

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}
        self._highest = 0
        self._ranges = 0
        self._questions = 0

    def question(self) -> int:
        """A number that is never used twice, so that a late answer is not taken for one to a new question."""
        self._questions += 1
        return self._questions

    def start_of(self, group: int) -> int:
        """The first number in a group. A group that is not remembered any more starts behind every number that was ever
        used; that leaves a gap, which does no harm."""
        return self._ended.get(group, self._highest if len(self._ended) >= LEFT_GROUPS_MAX else 0)

    def direct_range(self) -> int:
        self._ranges = self._ranges % DIRECT_RANGES_MAX + 1
        return self._ranges << DIRECT_RANGE_BITS

    def used(self, group: int, up_to: int) -> None:
        self._highest = max(self._highest, up_to)
        self._ended.pop(group, None)
        if len(self._ended) >= LEFT_GROUPS_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[group] = up_to


def nobody() -> None:
    """The call-back of a channel that nobody waits on."""


class Channel(Reading):
    """State of one group in one member."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "blocked",
        "closed",
        "number",
        "on_arrival",
        "out",
        "paused",
        "relay",
        "seal",
    )
    """Those that are asked a message have places of their own."""

    def __init__(
        self,
        name: str,
        number: int,
        me: MemberId,
        path_bytes: int,
        pass_down: Callable[[Frame], None],
        tell_down: Callable[[Event], None],
        numbers: Numbers,
        *,
        own: bool = True,
        echoes: bool = True,
        long_bytes: int = 0,
    ) -> None:
        self.name = name
        self.number = number
        self.me = me
        self.own = own
        self.promises = ""
        """The promises that this member asked for."""
        self.view = View(0, ())
        self.malformed = 0
        self.restarts = 0
        """How often messages under way in pieces had to begin again."""
        self.pieces = Pieces()
        self.paused = ""
        self.blocked = False
        """The group's view is about to change: what is sent waits for the next one."""
        self.refused = ""
        """Why this member cannot be in the group."""
        self.closed = False
        self.excludes = False
        """Whether members that do not read are asked to leave the group."""
        self.stalls_itself = False
        """True while this member's own full inbox is what holds its sending up."""
        self.inbox = deque()
        self.on_arrival: Callable[[], None] = nobody
        self.on_room: Callable[[], None] = nobody
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_excluded: Callable[[str], None] = lambda reason: None
        self.on_call: Callable[[Frame], None] = self.pass_over
        self.asking = Asking(name, me, own=own, echoes=echoes)
        self.answer: Callable[[Question, Any], Any] | None = None
        """Answers a question of another member; ``message.reply`` calls it."""
        self.state: Transfer | None = None
        """State transfer, in groups that have a state."""
        self.relay: Relay | None = None
        """Forwards for senders from outside, in groups that are open."""
        self.seal: Seal | None = None
        """In groups that have a key."""
        self.acknowledged: Runs | None = None
        """In totally ordered groups: which of this member's messages have come back in their place."""
        self.bus_view = (0, 0)
        """The view of the bus in which the group was last seen to change."""
        self._sizes = (path_bytes, long_bytes)
        self._pass_down = pass_down
        self._tell_down = tell_down
        self._numbers = numbers
        self._people = {me: me}
        self._taken = {}
        self._taken_bytes = 0
        self._plain = BYTES
        self._frame_bytes = REPORT_FRAME_BYTES
        self._busy_bytes, self._idle_bytes = REPORT_BUSY_BYTES, REPORT_IDLE_BYTES
        self.out = self._stream(ALL, numbers.start_of(number))
        self.direct: dict[int, Outgoing] = {}

    def outgoing(self, to: int) -> Outgoing:
        """The stream to everybody or to one member."""
        if to == ALL:
            return self.out
        stream = self.direct.get(to)
        if stream is None:
            stream = self.direct[to] = self._stream(to, self._numbers.direct_range())
        return stream

    def close_batches(self) -> None:
        if not self.paused and not self.blocked:
            self.out.close()
        for stream in self.direct.values():
            stream.close()

    def arrived(self, frame: Frame) -> None:
        """From the stack, in the order that the stack promises."""
        if self.acknowledged is not None and frame.sender == self.me and frame.to == ALL:
            self.acknowledged.delivered(frame)
        if self.relay is not None and frame.headers and self.relay.arrived(frame):
            return
        if frame.sender == self.me and not self.own:
            self._tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
            if self.asking.pending:
                self.asking.heard_upto(frame.first + frame.count, self.view.members)
            return
        if self.seal is not None:
            opened = self.seal.opened(frame)
            if opened is None:
                self.malformed += 1
                self._tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
                return
            frame = opened
        if frame.headers:
            piece = piece_of(frame)
            if piece is not None:
                frame = self.pieces.take(frame, piece)
        if frame.kind in MARKED and self._diverted(frame):
            return
        if self.state is None:
            self.inbox.append(frame)
            self.on_arrival()
        else:
            self.let_in(frame)

    def let_in(self, frame: Frame) -> None:
        """Put a frame into the inbox, or hold it until the state that precedes it is there."""
        if self.state is None or not self.state.keeps(frame):
            self.inbox.append(frame)
            self.on_arrival()

    def _diverted(self, frame: Frame) -> bool:
        """True for frames that are no messages for the reader: answers go to the asker, calls to the served object."""
        if frame.kind == ANSWER:
            self._tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))
            self.asking.answers(frame)
            return True
        if frame.sender == self.me:
            self.asking.heard(frame, self.view.members)
        if frame.kind == CALL:
            self.on_call(frame)
            return True
        return False

    def pass_over(self, frame: Frame) -> None:
        """A frame that was not taken from the inbox counts as read."""
        stream = (frame.sender, frame.group, frame.to) if type(frame) is Frame else frame.stream
        frames, size = self._taken.get(stream, (0, 0))
        self._taken[stream] = (frames + 1, size + frame.size)
        self._taken_bytes += frame.size + REPORT_FRAME_BYTES

    def take(self) -> Iterator[Message]:
        """The messages of the next frame, or none. They count as consumed, which soon makes room for senders. Where
        messages are missing it raises ``Excluded``, once."""
        plain = self.take_plain()
        if plain is not None:
            return plain
        messages, frame = self.take_unpaid()
        if frame is not None:
            self.pass_over(frame)
        return messages

    def take_unpaid(self) -> tuple[Iterator[Message], Frame | None]:
        """The messages of the next frame, and the frame itself, which the caller gives to ``pass_over`` later: for a
        reader that hands messages on, and wants senders to wait until they are read. The frame is None if it counts as
        read already."""
        frame = self.inbox.popleft()
        if type(frame) is Mark:
            frame.act()
            return iter(()), None
        paid = self.state is not None and self.state.passed(frame)
        return self._messages(frame), None if paid else frame

    def _messages(self, frame: Frame) -> Iterator[Message]:
        sender = self._people.get(frame.sender)
        if sender is None:
            sender = MemberId(frame.sender)
        try:
            if frame.kind == QUESTION:
                return iter(self._questions(frame, sender))
            bodies = decode_bodies(frame.kind, frame.bodies, frame.count)
        except MalformedFrame:
            self.malformed += 1
            return iter(())
        first = frame.first
        if not frame.headers:
            if len(bodies) == 1:
                return iter((Message(bodies[0], sender, (sender, first)),))
            return map(Message, bodies, repeat(sender), zip(repeat(sender), count(first)))
        ids = zip(repeat(sender), range(first, first + len(bodies)))
        answers = frame.headers[-1]
        if isinstance(answers, Parents) and len(answers.of) == len(bodies):
            if answers.orphans:
                marks = [place in answers.orphans for place in range(len(bodies))]
                return map(Message, bodies, repeat(sender), ids, answers.of, marks)
            return map(Message, bodies, repeat(sender), ids, answers.of)
        return map(Message, bodies, repeat(sender), ids)

    def _questions(self, frame: Frame, sender: MemberId) -> list[Message]:
        answers = frame.headers[-1] if frame.headers else None
        parents = (
            answers.of if isinstance(answers, Parents) and len(answers.of) == frame.count else [None] * frame.count
        )
        orphans = answers.orphans if isinstance(answers, Parents) else ()
        found: list[Message] = []
        for place, (word, parent) in enumerate(zip(words_of(frame), parents, strict=True)):
            fields = (unwrapped(word.body), sender, (sender, frame.first + place), parent, place in orphans)
            if word.of and self.me not in word.of:
                found.append(Message(*fields))
            else:
                found.append(Question(*fields, word.question, self.answer))
        return found

    def take_marks(self) -> None:
        """Run the marks that stand before the next message."""
        while self.inbox and type(self.inbox[0]) is Mark:
            self.take()

    @property
    def at_mark(self) -> bool:
        """Whether a mark stands before the next message."""
        return bool(self.inbox) and type(self.inbox[0]) is Mark

    def missed(self) -> None:
        """The primary went on without this member: its reader has a gap here, unless it is given the state anew."""
        last = self.inbox[-1] if self.inbox else None
        if self.state is None and not (type(last) is Mark and last.act == self._raise_missed):
            self.inbox.append(Mark.of(self._raise_missed))
            self.on_arrival()

    def _raise_missed(self) -> None:
        raise Excluded(
            f"the primary went on without this member, so {self.name!r} has a gap here: get its state anew from "
            "others, and read on"
        )

    def report_consumed(self) -> None:
        taken, self._taken, self._taken_bytes = self._taken, {}, 0
        for (sender, group, to), (frames, size) in taken.items():
            self._tell_down(Consumed(sender, group, to, frames, size))

    def members_changed(
        self,
        members: tuple[int, ...],
        names: dict[int, str],
        agreed: bool,
        *,
        merged: bool = False,
        limbo: bool = False,
    ) -> None:
        """``limbo``: the rest of what was begun may still come, on the way to the next primary."""
        self._people = {member: MemberId(member) for member in (*members, self.me)}
        people = tuple(self._people[member] for member in members)
        joined = agreed and (merged or any(member not in self.view for member in members))
        self.restarts += joined
        if not limbo:
            self.pieces.keep_only(members, joined=joined)
        self.view = View(self.view.number + 1, people, {self._people[m]: name for m, name in names.items()}, agreed)
        for to in [to for to in self.direct if to not in members]:
            del self.direct[to]
        if self.asking.pending:
            self.asking.members_changed(members, self.out.first)
        self.on_view(self.view)
        self.on_room()

    def new_question(self) -> int:
        return self._numbers.question()

    def pause(self, reason: str) -> None:
        """While ``reason`` is not empty, nothing may be sent to the group."""
        self.paused = reason
        self.restarts += 1  # pieces that nobody ordered are lost
        self.out.pause(bool(reason))
        if not reason:
            self.on_room()

    def refuse(self, reason: str) -> None:
        self.refused = reason
        self.on_view(self.view)

    def credited(self, to: int, room_bytes: int) -> None:
        self.outgoing(to).granted(room_bytes)
        if room_bytes > 0:
            self.on_room()
            if self.relay is not None:
                self.relay.pump()

    def validate(self) -> None:
        assert len(self.out.pending) == 0 or self.out.size > 0
        assert len(self.direct) <= len(self.view.members)
        self.asking.validate()
        if self.relay is not None:
            self.relay.validate()

    def _stream(self, to: int, first: int) -> Outgoing:
        path_bytes, long_bytes = self._sizes
        return Outgoing(self.me, self.number, to, first, path_bytes, self._pass_down, long_bytes)
