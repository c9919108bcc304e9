"""A sender from outside: a process of the bus that sends to an open group without being in it.

Theory of operation
-------------------
Messages are numbered and gathered in batches; a batch that was sent once never changes. They are sent to one member of
the group, the *relay*, repeatedly until it answers that they are settled (``member`` says what that means). If the
relay is silent for ``SILENT_S``, or gone, another member is sent everything that is not settled. Members drop messages
that they have, so each message is delivered once, and all in the order in which this process sent them.

A process that was cut off does not know which members were with it and which were elsewhere. Messages that it had sent
before are still repeated, but end as ``Uncertain``.

When a view of the group begins, counting begins with the first message that is not settled (``begins``), and all of
them are sent again. A view without members ends everything that is under way, because nobody would ever answer. It is
unknown then whether messages that a relay was sent have been delivered.

Bounded: messages that are not settled by ``OUTSIDE_BYTES_MAX`` and ``OUTSIDE_MESSAGES_MAX``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...core.errors import NoMembers, PluribusError, Refused, TooLarge, Uncertain
from ...core.ids import MemberId, MessageId
from ...core.limits import BATCH_MESSAGES_MAX, OUTSIDE_BODY_BYTES_MAX, OUTSIDE_BYTES_MAX, OUTSIDE_MESSAGES_MAX
from ...core.ports import Timer
from ...stack.events import Members
from ...wire.bodies import Kind
from .words import CLOSED, RELAYED_FIRST, Forward, Settled, is_open

REPEAT_S = 0.1
REPEAT_S_MAX = 0.8
SILENT_S = 1.5
FLIGHT_BYTES_MAX = 64 << 10
"""Bytes that may be sent to the relay and not be acknowledged yet."""
BATCH_BYTES_MAX = 8 << 10


class OutsideBatch:
    """Messages of one kind that are sent together. ``said``: it was sent to some member before. ``parted``: members of
    the group may have been elsewhere meanwhile, and lack it."""

    __slots__ = ("bodies", "first", "kind", "parted", "said", "size")

    def __init__(self, first: int, kind: Kind) -> None:
        self.first = first
        self.kind = kind
        self.bodies: list[bytes] = []
        self.size = 0
        self.said = self.parted = False

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)


class Outside:
    """One process outside one group."""

    def __init__(
        self,
        name: str,
        me: MemberId,
        *,
        say: Callable[[int, Forward], None],
        after: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
    ) -> None:
        self.name = name
        self.me = me
        self.next = 0
        self.settled = 0
        self.on_settled: Callable[[], None] = lambda: None
        self.on_lost: Callable[[int, int, PluribusError], None] = lambda first, end, error: None
        """Called with the range of messages that will not be sent any more, and the reason."""
        self.on_closed: Callable[[], None] = lambda: None
        self.relays = 0
        """How often another member was chosen."""
        self._say = say
        self._after = after
        self._now = now
        self._batches: deque[OutsideBatch] = deque()
        self._bytes = 0
        self.members: tuple[int, ...] = ()
        self._promises = ""
        self._stamp = 0
        self._begins = 0
        self._relay = 0
        self._said = 0
        """Messages before this number were sent to the present relay."""
        self._taken = 0
        self._heard_at = 0.0
        self._timer: Timer | None = None
        self._repeat_s = REPEAT_S

    # The application

    def check(self) -> None:
        """Raise if nothing can be sent now."""
        error = self._why_not()
        if error is not None:
            raise error

    def _why_not(self) -> PluribusError | None:
        if not self.members:
            return NoMembers(f"group {self.name!r} has no members now: wait until somebody opens it, or open it")
        if not is_open(self._promises):
            return self._closed()
        return None

    def _closed(self) -> PluribusError:
        return Refused(
            f"group {self.name!r} is closed, only its members send: join it with bus.group({self.name!r}), or let all "
            "its members open it with open=True"
        )

    def fits(self, size: int) -> bool:
        """Whether there is room for a body; one that is alone always fits."""
        if size > OUTSIDE_BODY_BYTES_MAX:
            raise TooLarge(
                f"a body of {size:,} bytes exceeds the {OUTSIDE_BODY_BYTES_MAX:,} of a sender that is no member of "
                f"{self.name!r}: join the group, or send it in parts"
            )
        if not self._batches:
            return True
        return self._bytes + size <= OUTSIDE_BYTES_MAX and self.next - self.settled < OUTSIDE_MESSAGES_MAX

    def add(self, kind: Kind, encoded: bytes) -> int:
        """Add a message that fits; returns its number. ``pump`` sends it."""
        batch = self._batches[-1] if self._batches else None
        full = batch is None or batch.said or batch.kind != kind or len(batch.bodies) >= BATCH_MESSAGES_MAX
        if batch is None or full or batch.size + len(encoded) > BATCH_BYTES_MAX:
            batch = OutsideBatch(self.next, kind)
            self._batches.append(batch)
        batch.bodies.append(encoded)
        batch.size += len(encoded)
        self._bytes += len(encoded)
        self.next += 1
        return self.next - 1

    def id_of(self, number: int) -> MessageId:
        """The identity of a message, as receivers see it."""
        return (self.me, RELAYED_FIRST + number)

    @property
    def pending(self) -> int:
        return self.next - self.settled

    def close(self) -> None:
        """The bus is closed."""
        self._be_quiet()
        self.on_closed()

    def _be_quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The group

    def shown(self, group: Members) -> None:
        """The group has these members now."""
        self.members, self._promises = group.members, group.promises
        if group.stamp != self._stamp:
            self._stamp = group.stamp
            self._begins = self.settled
            self._said = self._taken = self.settled
        error = self._why_not()
        if error is not None:
            self._relay = 0
            self._give_up(error)
            return
        if self._relay not in self.members:
            self._choose(int(self.me) % len(self.members))
        self.pump()

    def apart(self) -> None:
        """This process and some members may have been apart until now. Messages that were sent already may have been
        delivered while some members were elsewhere. For the others they are duplicates, so those members will never
        get them."""
        for batch in self._batches:
            batch.parted = batch.parted or batch.said

    def _choose(self, at: int) -> None:
        """Choose a relay, which must be sent everything again."""
        self._relay = self.members[at % len(self.members)]
        self.relays += 1
        self._said = self._taken = self.settled
        self._heard_at = self._now()

    def _give_up(self, error: PluribusError, *, refused: bool = False) -> None:
        """Fail all messages under way, as perhaps delivered unless ``refused``: nobody will answer for them."""
        batches, self._batches = self._batches, deque()
        self._bytes = 0
        for batch in batches:
            if batch.said and not refused:
                text = f"messages to {self.name!r} were handed to a member that is gone: they may have been delivered"
                self.on_lost(batch.first, batch.end, Uncertain(text, self.id_of(batch.first)))
            else:
                self.on_lost(batch.first, batch.end, error)
        self.settled = self._said = self._taken = self.next
        self._be_quiet()
        self.on_settled()

    # Saying

    def pump(self) -> None:
        """Send the relay the messages that it has not been sent."""
        if not self._relay:
            return
        for batch in self._batches:
            if batch.first >= self._said:
                if self._said - self._taken > 0 and self._under_way() + batch.size > FLIGHT_BYTES_MAX:
                    break
                self._tell(batch)
        if self._batches and self._timer is None:
            self._timer = self._after(self._repeat_s, self._again)

    def _under_way(self) -> int:
        return sum(batch.size for batch in self._batches if self._taken <= batch.first < self._said)

    def _tell(self, batch: OutsideBatch) -> None:
        batch.said = True
        self._said = max(self._said, batch.end)
        self._say(self._relay, Forward(self._stamp, self._begins, batch.first, batch.kind, batch.bodies, self.settled))

    def _again(self) -> None:
        """Some messages are not settled: repeat those that the relay has not acknowledged; if it has all, the first."""
        self._timer = None
        if not self._batches or not self._relay:
            return
        self._repeat_s = min(self._repeat_s * 2, REPEAT_S_MAX)
        if self._now() - self._heard_at > SILENT_S and len(self.members) > 1:
            self._choose(self.members.index(self._relay) + 1)
        self._said = max(self._taken, self.settled)
        if self._said >= self.next:
            self._tell(self._batches[0])
        self.pump()

    def heard(self, member: int, word: Settled) -> None:
        """A member answers."""
        if word.refused == CLOSED and member == self._relay:
            self._give_up(self._closed(), refused=True)
            return
        if word.stamp != self._stamp or word.settled > self.next:
            return
        if member == self._relay:
            self._heard_at = self._now()
            if word.taken > self._taken:
                self._taken = word.taken
                self._repeat_s = REPEAT_S
        if word.settled > self.settled:
            self._repeat_s = REPEAT_S
            self.settled = word.settled
            while self._batches and self._batches[0].end <= self.settled:
                batch = self._batches.popleft()
                self._bytes -= batch.size
                if batch.parted:
                    text = f"messages to {self.name!r} were under way while the bus was apart: some may never have them"
                    self.on_lost(batch.first, batch.end, Uncertain(text, self.id_of(batch.first)))
            self._said = max(self._said, self.settled)
            self._taken = max(self._taken, self.settled)
            if not self._batches:
                self._be_quiet()
            self.on_settled()
        self.pump()

    def validate(self) -> None:
        assert self.settled <= self._taken <= self.next and self.settled <= self._said <= self.next
        assert self._bytes == sum(batch.size for batch in self._batches)
        assert not self._batches or self._batches[0].first == self.settled, "batches are settled whole"
