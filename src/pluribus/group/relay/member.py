"""A member of an open group: forwards what senders from outside hand it, and reads what any member forwards, once.

Theory of operation
-------------------
A *relay* is the member that forwards for a sender. It sends the messages on its own stream, with the sender's identity
and numbers. They are ordered and delivered as the group promises, as messages of the relay; only when they are read it
shows whose they are. The same messages may come by two relays, because a sender that hears nothing tries another. So
every member counts, by sender, which message is next. It drops messages that it has read, and holds back messages that
came ahead until the earlier ones have come by the other relay.

*Views.* Members might start to count at different numbers: a new member knows nothing of earlier views, and members
that were apart know different things. So when a view of the group begins, every member says which number it expects of
each sender (``Standing``). Relayed messages are read when all have said so, from the greatest of these numbers on. All
members of a view count from the same number and receive the same messages in it. So members that leave it together have
read the same relayed messages, and in total order in the same order. A sender names in every word its first message of
this view: earlier ones are settled or given up, and nobody waits for them.

*Settled* is a message that its relay forwarded, has read itself and knows to be everywhere; and every message before
the common number at the beginning of a view, because the members of the view before have it. A sender forgets only
settled messages.

A member of a totally ordered group that is cut off from the primary still counts as in the last view there, because
messages of it may come out of limbo. But it relays nothing and answers nobody: what is confirmed now is confirmed by
those that were cut off with it, and the sender, who still sees the view of the primary, would take it for everybody.

A member that was excluded from the primary may have read messages that the primary has not. In totally ordered groups
it forgets its numbers, like a new member; what it reads again is in the order of the primary.

Live: a sender repeats what is not settled, to another member if one is silent; a view in which somebody does not say
how far it is ends, because that member is gone. Bounded: places by ``OUTSIDERS_REMEMBERED_MAX``, the queue by
``RELAY_QUEUE_BYTES_MAX``, what is held by the windows of the relays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from ...core.frame import Frame, Header, Relayed, Standing
from ...core.limits import OUTSIDERS_REMEMBERED_MAX, RELAY_QUEUE_BYTES_MAX, VIEW_MEMBERS_MAX
from ...wire.bodies import BYTES, Kind, array_header
from ...wire.questions import MARKED
from .words import RELAYED_FIRST, Forward, Settled, Through

Told = Callable[[bool], None]

_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class RelayedSender:
    """A sender from outside that this member forwards for, in this view."""

    __slots__ = ("begins", "confirmed", "taken", "told")

    def __init__(self, begins: int) -> None:
        self.begins = self.taken = self.confirmed = begins
        self.told = -1


class Relay:
    """The relay of one member in one open group. It is handed everything that it needs of the stack."""

    def __init__(
        self,
        me: int,
        *,
        ready: Callable[[], bool],
        room: Callable[[], bool],
        send: Callable[[Header, Kind, list[bytes], int], int],
        confirm: Callable[[int, Told], object],
        say: Callable[[int, Header], None],
        release: Callable[[Frame], None],
        consumed: Callable[[Frame], None],
    ) -> None:
        self._me = me
        self._ready = ready
        self._room = room
        self._send = send
        self._confirm = confirm
        self._say = say
        self._release = release
        self._consumed = consumed
        self._next: dict[int, int] = {}
        """By sender, the number of the message to be read next; the sender heard of last is last."""
        self._excluded = (0, 0)
        self._stamp = 0
        self._members: frozenset[int] = frozenset()
        self._here: frozenset[int] = frozenset()
        self._announce = False
        self._standing = False
        """Whether every member has sent its ``Standing`` in this view."""
        self._heard: dict[int, list[tuple[int, int]]] = {}
        self._base: dict[int, int] = {}
        self._early: list[tuple[Frame, Relayed]] = []
        self._ahead: dict[int, dict[int, tuple[Frame, Relayed]]] = {}
        self._sources: dict[int, RelayedSender] = {}
        self._queue: deque[tuple[int, Forward]] = deque()
        self._queue_bytes = 0
        self.forwarded = 0
        self.duplicates = 0

    # Views

    def view_changed(
        self,
        stamp: int,
        members: Collection[int],
        everybody: Collection[int],
        *,
        excluded: tuple[int, int] | None = None,
    ) -> None:
        """A view of the group begins. Messages that could not be read in the old view are dropped; their senders send
        them again. ``excluded`` is the view of the bus to which this member came back as a new member of the group."""
        self._drop_held()
        self._stamp = stamp
        self._members, self._here = frozenset(members), frozenset(everybody)
        self._heard.clear()
        self._stop_forwarding()
        self._standing = False
        self._announce = self._me in self._members
        if excluded is not None and excluded != self._excluded:
            self._excluded = excluded
            self._next.clear()

    def cut_off(self) -> None:
        """The group has lost its primary. Messages of its last view there may still come out of limbo, and are counted
        as in that view; no sender is answered any more."""
        self._stamp = 0
        self._stop_forwarding()

    def close(self) -> None:
        """The group is left."""
        self._drop_held()
        self._members = frozenset()
        self._announce = self._standing = False

    def _stop_forwarding(self) -> None:
        self._sources.clear()
        self._queue.clear()
        self._queue_bytes = 0

    def _drop_held(self) -> None:
        for frame, _ in self._early:
            self._consumed(frame)
        for waiting in self._ahead.values():
            for frame, _ in waiting.values():
                self._consumed(frame)
        self._early.clear()
        self._ahead.clear()

    # Reading

    def arrived(self, frame: Frame) -> bool:
        """A frame from the stack, in the group's order; false if it was not relayed."""
        for header in frame.headers:
            if type(header) is Relayed:
                if self._standing:
                    self._take(frame, header)
                else:
                    self._early.append((frame, header))
                return True
            if type(header) is Standing:
                self._consumed(frame)
                self._stands(frame.sender, header)
                return True
        return False

    def _stands(self, member: int, standing: Standing) -> None:
        if self._standing or member not in self._members:
            return
        self._heard[member] = standing.places
        if len(self._heard) < len(self._members):
            return
        self._standing = True
        for places in self._heard.values():
            for sender, place in places:
                self._count(sender, max(place, self._next.get(sender, 0)))
        self._base = {sender: place for sender, place in self._next.items() if sender in self._here}
        early, self._early = self._early, []
        for frame, header in early:
            self._take(frame, header)
        for sender, source in self._sources.items():
            self._answer(sender, source)
        self.pump()

    def _count(self, sender: int, place: int) -> None:
        self._next.pop(sender, None)
        if len(self._next) >= OUTSIDERS_REMEMBERED_MAX:
            del self._next[next(iter(self._next))]
        self._next[sender] = place

    def _take(self, frame: Frame, header: Relayed) -> None:
        sender = header.sender
        place = max(self._next.get(sender, 0), header.begins)
        waiting = self._ahead.get(sender, {})
        if header.first < place or header.first in waiting:
            self.duplicates += 1
            self._consumed(frame)
        elif header.first > place:
            self._ahead.setdefault(sender, {})[header.first] = (frame, header)
        else:
            self._read(frame, header)
            while (found := waiting.pop(self._next[sender], None)) is not None:
                self._read(*found)
            if sender in self._ahead and not waiting:
                del self._ahead[sender]
            source = self._sources.get(sender)
            if source is not None and self._settled(sender, source) > source.told:
                self._answer(sender, source)

    def _read(self, frame: Frame, header: Relayed) -> None:
        self._count(header.sender, header.first + frame.count)
        self._release(
            Through(
                sender=header.sender,
                to=frame.to,
                group=frame.group,
                first=RELAYED_FIRST + header.first,
                count=frame.count,
                size=frame.size,
                kind=frame.kind,
                bodies=frame.bodies,
                relay=frame.sender,
            )
        )

    # Forwarding

    def asked(self, sender: int, word: Forward) -> None:
        """A sender from outside sends messages, perhaps again. It is answered if it knows the present view."""
        if word.stamp != self._stamp or self._me not in self._members or sender not in self._here:
            return
        source = self._sources.get(sender)
        if source is None:
            source = self._sources[sender] = RelayedSender(word.begins)
        source.confirmed = max(source.confirmed, word.settled)  # by another relay
        source.taken = max(source.taken, word.settled, self._settled(sender, source))
        if word.first == source.taken and self._queue_bytes < RELAY_QUEUE_BYTES_MAX and _is_sound(word):
            source.taken += len(word.bodies)
            self._queue.append((sender, word))
            self._queue_bytes += _size(word)
        self.pump()
        self._answer(sender, source)

    def pump(self) -> None:
        """Send the messages that may be sent now; called whenever that may have changed."""
        if self._announce and self._ready():
            self._announce = False
            places = [(sender, place) for sender, place in self._next.items() if sender in self._here]
            self._send(Standing(places[-VIEW_MEMBERS_MAX:]), BYTES, [b""], 0)
        while self._standing and self._queue and self._ready() and self._room():
            sender, word = self._queue.popleft()
            size, end = _size(word), word.first + len(word.bodies)
            self._queue_bytes -= size
            source = self._sources[sender]
            header = Relayed(sender, word.first, source.begins)
            number = self._send(header, word.kind, word.bodies, size)
            self.forwarded += len(word.bodies)
            self._confirm(number, partial(self._confirmed, sender, source, end))

    def _confirmed(self, sender: int, source: RelayedSender, end: int, has: bool) -> None:
        if has and self._sources.get(sender) is source:
            source.confirmed = max(source.confirmed, end)
            if self._settled(sender, source) > source.told:
                self._answer(sender, source)

    def _settled(self, sender: int, source: RelayedSender) -> int:
        """The number before which every member has the sender's messages."""
        here = min(source.confirmed, self._next.get(sender, 0))
        base = self._base.get(sender, 0) if self._standing else 0
        return max(base, source.begins, here)

    def _answer(self, sender: int, source: RelayedSender) -> None:
        source.told = self._settled(sender, source)
        self._say(sender, Settled(self._stamp, source.told, max(source.taken, source.told)))

    def validate(self) -> None:
        assert len(self._next) <= OUTSIDERS_REMEMBERED_MAX
        assert self._standing or not self._ahead, "nothing is counted before everybody has said how far it is"
        for sender, waiting in self._ahead.items():
            assert all(first > self._next.get(sender, 0) for first in waiting), "what is next is read"
        assert self._queue_bytes == sum(_size(word) for _, word in self._queue)


def _size(word: Forward) -> int:
    return sum(map(len, word.bodies))


def _is_sound(word: Forward) -> bool:
    """Whether these are bodies of one kind that fit a frame; others would stop the relay's own stream."""
    if not word.bodies or word.kind in MARKED:
        return False
    if word.kind == BYTES:
        return True
    try:
        return len(_decode_raw(array_header(len(word.bodies)) + b"".join(word.bodies))) == len(word.bodies)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
