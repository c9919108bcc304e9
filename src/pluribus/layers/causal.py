"""Causal order: no message is delivered before a message that its sender knew when it sent it.

Theory of operation
-------------------
Every batch says what its sender had delivered when the batch closed: how many messages of each member of the group, in
the order of the view, counted from the beginning of the view. A receiver delivers the batch when it has delivered at
least as many. Then it has delivered everything that could have caused the batch, because those messages waited for
their causes in the same way. Streams are FIFO from below, so a count stands for a set of messages. A member's own
messages need no count. A member that does not hear itself has delivered its own messages when it sends them.

Only differences travel: each batch carries how much every count has grown since the sender's batch before, one small
number a member, or nothing if the sender heard nothing in between. Receivers add them up, which is enough because a
batch is delivered after the batch before it. The counts are taken when a batch closes. So a message may wait for one
that its sender delivered a moment after it was sent, which is harmless; the opposite never happens. Causality is
promised within a group.

State, for each group and view: ``delivered``, how many messages of each member were passed up here; ``told``, the same
when this member's last batch closed; ``needs``, by sender, the sender's counts as of its last batch; ``waiting``, by
sender, batches that came too early. Only the first of a sender's waiting batches is looked at, and only when the count
that it lacked has grown. When nothing waits, a batch costs one comparison of two lists.

At a view change all survivors have the same batches of the old view (assumed from below). Which of them can be
delivered depends on that set alone, not on the order in which they came, because delivering one never prevents another.
So all survivors have delivered the same batches, and the same batches are left. Each of those waits for a message that
no survivor has. The message's sender would have it, and the batch's sender has delivered it, so both are gone and the
message will never come. Every survivor drops these batches and counts them as ``lost_dependencies``. The counts start
again with the next view.

Live: the message for which a batch waits was sent in this view, so it arrives, or the view changes. Bounded: a batch
that waits is not consumed, so the window of its sender bounds what may wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from operator import add, ge, sub
from typing import Annotated, Any

import msgspec

from ..core.frame import Frame, Header, Number
from ..core.ids import ALL
from ..core.limits import VIEW_MEMBERS_MAX
from ..stack.events import Consumed, Credit, Event, JoinGroup, LeaveGroup, Members, ViewChanged
from ..stack.layer import Layer


class Known(Header, tag=50):
    """For each member, in the order of the view: how many messages the sender has delivered since its batch before.
    Empty if none."""

    more: Annotated[list[Number], msgspec.Meta(max_length=VIEW_MEMBERS_MAX)]


class Early:
    """The waiting batches of one sender, the counts that each needs, and the first count that the first of them
    lacks."""

    __slots__ = ("batches", "missing", "place")

    def __init__(self) -> None:
        self.batches: deque[tuple[Frame, list[int]]] = deque()
        self.place = 0
        self.missing = 0


class CausalGroup:
    """One group in one view. Lists are in the order of the view; those in ``needs`` are replaced, never changed."""

    __slots__ = ("delivered", "me", "needs", "news", "places", "told", "waiting")

    def __init__(self, members: tuple[int, ...], me: int) -> None:
        self.places = {member: place for place, member in enumerate(members)}
        self.me = self.places[me]
        self.delivered = [0] * len(members)
        self.told = self.delivered.copy()
        self.needs = [self.told] * len(members)
        self.news = False
        self.waiting: dict[int, Early] = {}

    def known(self) -> list[int]:
        """This member's deliveries since its last batch, as the next batch carries them."""
        if not self.news:
            return []
        self.news = False
        more = list(map(sub, self.delivered, self.told))
        more[self.me] = 0
        self.told = self.delivered.copy()
        return more

    def ready(self, needs: list[int]) -> bool:
        return all(map(ge, self.delivered, needs))

    def wait(self, place: int, frame: Frame, needs: list[int]) -> None:
        early = self.waiting.get(place)
        if early is None:
            early = self.waiting[place] = Early()
            self.look(early, needs)
        early.batches.append((frame, needs))

    def look(self, early: Early, needs: list[int]) -> bool:
        """Whether these counts are reached; if not, remember the first that is not."""
        for place, (delivered, needed) in enumerate(zip(self.delivered, needs, strict=True)):
            if delivered < needed:
                early.place, early.missing = place, needed
                return False
        return True


class Causal(Layer):
    """causes before effects: one vector a batch"""

    name = "causal"
    requires = frozenset({"reliability", "views"})
    provides = frozenset({"causal"})
    headers = (Known,)
    selective = True
    deaf_to = frozenset({Credit, Consumed})

    def __init__(self) -> None:
        self._groups: dict[int, CausalGroup] = {}
        self._deaf: set[int] = set()
        """Groups in which this member's own messages do not come back to it; they count as delivered when they are
        sent."""
        self.early = 0
        self.lost_dependencies = 0
        self.malformed = 0

    def marks(self) -> Container[int]:
        return self._groups

    def down(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        if group is not None and frame.to == ALL and frame.count:
            frame.headers.append(Known(group.known()))
            if frame.group in self._deaf:
                group.delivered[group.me] += frame.count
        self.pass_down(frame)

    def up(self, frame: Frame) -> None:
        group = self._groups.get(frame.group)
        if group is None or not frame.headers or type(frame.headers[-1]) is not Known:
            self.pass_up(frame)
            return
        more = frame.headers.pop().more
        place = group.places.get(frame.sender, -1)
        if place < 0 or len(more) not in (0, len(group.delivered)):
            self.malformed += 1
            self._drop(frame)
            return
        if more:
            group.needs[place] = list(map(add, group.needs[place], more))
        if place in group.waiting or (more and not group.ready(group.needs[place])):
            self.early += 1
            group.wait(place, frame, group.needs[place])
            return
        self._deliver(group, place, frame)
        if group.waiting:
            self._release(group)

    def _deliver(self, group: CausalGroup, place: int, frame: Frame) -> None:
        group.delivered[place] += frame.count
        if place != group.me:
            group.news = True
        self.pass_up(frame)

    def _release(self, group: CausalGroup) -> None:
        """Deliver waiting batches until a round over all senders delivers nothing."""
        released = True
        while released:
            released = False
            for place, early in list(group.waiting.items()):
                batches = early.batches
                while group.delivered[early.place] >= early.missing and group.look(early, batches[0][1]):
                    frame, _ = batches.popleft()
                    released = True
                    self._deliver(group, place, frame)
                    if not batches:
                        del group.waiting[place]
                        break

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            (self._deaf.add if event.deaf else self._deaf.discard)(event.group)
        elif isinstance(event, LeaveGroup):
            self._deaf.discard(event.group)
        self.tell_down(event)

    def event_up(self, event: Event) -> None:
        if isinstance(event, ViewChanged):
            self._finish()
        elif isinstance(event, Members):
            self._finish_group(event.group)
            if self.name in event.promises and self.node.me in event.members:
                self._groups[event.group] = CausalGroup(event.members, self.node.me)
        self.tell_up(event)

    def _finish(self) -> None:
        for group in list(self._groups):
            self._finish_group(group)

    def _finish_group(self, number: int) -> None:
        """The group's view is over: batches that still wait need a message that nobody here has or will have."""
        group = self._groups.pop(number, None)
        for early in group.waiting.values() if group is not None else ():
            for frame, _ in early.batches:
                self.lost_dependencies += frame.count
                self._drop(frame)

    def _drop(self, frame: Frame) -> None:
        self.tell_down(Consumed(frame.sender, frame.group, frame.to, 1, frame.size))

    def stats(self) -> dict[str, Any]:
        early = [early for group in self._groups.values() for early in group.waiting.values()]
        return {
            "groups": len(self._groups),
            "early": self.early,
            "waiting": sum(len(found.batches) for found in early),
            "lost_dependencies": self.lost_dependencies,
            "malformed": self.malformed,
        }

    def validate(self) -> None:
        for group in self._groups.values():
            assert len(group.delivered) == len(group.told) == len(group.needs) == len(group.places)
            assert group.news or all(
                delivered == told
                for place, (delivered, told) in enumerate(zip(group.delivered, group.told, strict=True))
                if place != group.me
            )
            for place, early in group.waiting.items():
                assert early.batches, "a batch waits"
                assert place != group.me, "a member has delivered what its own messages need"
                assert not group.ready(early.batches[0][1]), "nothing waits that could be delivered"
                assert group.delivered[early.place] < early.missing <= early.batches[0][1][early.place]
