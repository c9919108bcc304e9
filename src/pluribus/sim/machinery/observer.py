"""An observer of one member: it records everything that comes up to the member's groups, for checkers.

It sees what an application would see that never waits, and sees it between two views exactly where it belongs. Worlds
use it, and so can real processes: what they write down is a history too, and the same checkers read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...core.frame import Frame, Parents, Relayed, Standing
from ...core.ids import number_of
from ...group.pieces import Pieces, piece_of
from ...runtime.bus import Bus
from ...stack.events import Blocked, Dropped, Event, Members, ViewChanged
from ...wire.bodies import decode_bodies
from .history import Happening


class Watch:
    """Makes happenings of what comes up to the groups of a member that have a name."""

    def __init__(
        self, me: int, names: Mapping[int, str], now: Callable[[], float], add: Callable[[Happening], None]
    ) -> None:
        self._me = self._leader = me
        self._names = names
        self._now = now
        self._add = add
        self._pieces: dict[int, Pieces] = {}
        self._members: dict[int, tuple[int, ...]] = {}
        self._merging = False
        self._primary = False
        self._promises: dict[int, str] = {}

    def see(self, what: Frame | Event) -> None:
        match what:
            case Frame():
                self._delivered(what)
            case Members(group) if group in self._names:
                self._regrouped(what)
            case ViewChanged():
                self._merging = bool(what.sides)
                self._entered(what)
            case Blocked(blocked):
                self._merging = self._merging and blocked
            case Dropped(group, ids) if group in self._names:
                for dropped in ids:
                    self._add(Happening(self._now(), self._me, "uncertain", self._names[group], dropped))
            case _:
                pass

    def _regrouped(self, group: Members) -> None:
        number, members, name = group.group, group.members, self._names[group.group]
        before = self._members.get(number, ())
        self._members[number] = members
        if members:
            self._promises[number] = group.promises
        joined = self._merging or any(member not in before for member in members)
        if self._primary or self._me not in members or not group.promises.startswith("total"):
            self._pieces_of(number).keep_only(members, joined=joined)
        view = (group.stamp, self._leader)  # of two views that nobody shares the stamps may be alike
        self._add(Happening(self._now(), self._me, "view", name, view, members=members, promises=group.promises))

    def _pieces_of(self, group: int) -> Pieces:
        """A message in pieces is put together as every channel does, also for a group that was just left."""
        return self._pieces.setdefault(group, Pieces())

    def _delivered(self, frame: Frame) -> None:
        name = self._names.get(frame.group)
        if name is None or any(isinstance(header, Relayed | Standing) for header in frame.headers):
            return  # what is relayed is seen again when it is read, as its sender's
        piece = piece_of(frame) if frame.headers else None
        if piece is not None:
            frame = self._pieces_of(frame.group).take(frame, piece)
        bodies = decode_bodies(frame.kind, frame.bodies, frame.count)
        answers = next((header for header in frame.headers if isinstance(header, Parents)), Parents([]))
        for place, body in enumerate(bodies):
            parent, orphan = answers.of[place] if answers.of else None, place in answers.orphans
            number = (frame.sender, frame.first + place)
            late = not self._primary and self._promises.get(frame.group, "").startswith("total")
            what = Happening(
                self._now(), self._me, "deliver", name, number, body, parent=parent, orphan=orphan, late=late
            )
            self._add(what)

    def _entered(self, view: ViewChanged) -> None:
        self._leader = view.leader
        self._primary = view.primary
        number = (view.number, view.leader)
        chain = (view.lineage, view.epoch)
        self._add(Happening(self._now(), self._me, "bus", "", number, members=view.members, chain=chain))
        if view.excluded:
            self._add(Happening(self._now(), self._me, "excluded", "", number))


class Observer(Watch):
    """Watches the named groups of a bus, and its views. ``add`` is called with every happening."""

    def __init__(
        self, bus: Bus, groups: Iterable[str], now: Callable[[], float], add: Callable[[Happening], None]
    ) -> None:
        super().__init__(int(bus.me), {number_of(name): name for name in groups}, now, add)
        bus._dispatch.observe = self.see
