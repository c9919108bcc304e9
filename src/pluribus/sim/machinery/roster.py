"""Roster: a fixed list of members, to try layers that spread messages without any layer above that would help them.

A layer for scenarios. It waits until it has heard of as many members as it was told, puts them into one list, and from
then on hands bodies down and takes them from below. A dead member stays in the list: the layer below must cope with
that. ``outside`` of the members are in no list: they only send.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.frame import Frame
from ...core.ids import MessageId
from ...stack.events import Event, Found, Install, Members
from ...stack.layer import Layer
from ...wire.bodies import BYTES, decode_bodies, join_bodies

GROUP = 7


class Roster(Layer):
    """a fixed list of members, for trying what is below"""

    name = "roster"
    requires = frozenset({"detection", "spreading"})
    provides = frozenset({"members"})

    def __init__(self, members: int, outside: int = 0) -> None:
        self._expected = members
        self._outside = outside
        self._known: dict[int, str] = {}
        self._sent = 0
        self.members: tuple[int, ...] = ()
        """Empty until everybody is known."""
        self.deliver: Callable[[MessageId, bytes], None] = lambda number, body: None

    def start(self) -> None:
        self._known[self.node.me] = self.node.name
        self._look()

    def event_up(self, event: Event) -> None:
        if isinstance(event, Found) and not self.members:
            self._known[event.member] = event.name
            self._look()
        self.tell_up(event)

    def _look(self) -> None:
        if len(self._known) < self._expected or self.members:
            return
        everybody = sorted(self._known)
        self.members = tuple(everybody[: len(everybody) - self._outside])
        self.tell_down(Install(1, tuple(everybody), {GROUP: self.members}, {}))
        self.tell_up(Members(0, tuple(everybody), dict(self._known)))

    def send(self, body: bytes) -> MessageId:
        """To all members of the list. Call it inside a stimulus."""
        self._sent += 1
        number = self._sent
        bodies = join_bodies(BYTES, [body])
        frame = Frame(sender=self.node.me, group=GROUP, first=number, count=1, size=len(body), bodies=bodies)
        frame.kind = BYTES
        self.pass_down(frame)
        return (self.node.me, number)

    def up(self, frame: Frame) -> None:
        if frame.group != GROUP:
            self.pass_up(frame)
            return
        for place, body in enumerate(decode_bodies(frame.kind, frame.bodies, frame.count)):
            self.deliver((frame.sender, frame.first + place), body)
