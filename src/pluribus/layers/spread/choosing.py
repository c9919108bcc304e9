"""``auto``: which way a message goes is chosen by what was measured.

Theory of operation
-------------------
*Multicast where it reaches everybody.* If the engine has a medium that brings one transmission to everybody, nothing is
faster. Members of a view found each other by that medium, so multicast is trusted at first. When about 100 KB have been
sent by it, or when the layer above keeps repeating itself to somebody, every member is asked, by multicast, whether it
hears. A member that does not answer three times is not reached: groups that it is in use another way, and it is asked
again every ten seconds.

*Otherwise by what is sent.* To a few members frames are sent one by one: nothing to wait for, nobody in between. A tree
is used if a frame is long and has more than two receivers, or if there are many receivers: the sender's line carries
log n copies and not n. The pipelined tree is used if even log n copies of what was just sent would keep the sender's
line busy.

A switch to a way that spares the line happens at once. A switch back happens only after a second without need, because
frames on different ways overtake each other, and overtaken frames are asked for.
"""

from __future__ import annotations

from ...core.frame import Frame
from ...core.ids import ALL
from ...stack.layer import Layer
from .lists import Listed
from .words import Heard, Probe

MULTICAST, UNICAST, TREE, PIPELINE = "multicast", "unicast", "tree", "pipeline"
FEW = 6
"""Up to so many receivers are sent to one by one."""
LONG_BYTES = 16_000
"""A frame of this length goes down a tree if it has three receivers or more."""
MOMENT_S = 0.05
BUSY_BYTES = 256 << 10
"""More than this in a moment, to all together, keeps a line of 50 Mbit/s busy."""
CALM_S = 1.0
PROBED_AFTER_BYTES = 96 << 10
"""Less than the initial window of a stream, at which a receiver that hears nothing would stop the sender."""
REMINDERS = 6
"""So many frames without a message, one after another, show that the layer above lacks an answer."""
PROBE_S = 0.3
PROBES = 3
PROBE_AGAIN_S = 10.0
RANKS = {UNICAST: 0, TREE: 1, PIPELINE: 2}


class Habit:
    """The way that frames to one group took lately."""

    __slots__ = ("moment", "moment_bytes", "needed_at", "way")

    def __init__(self, now: float) -> None:
        self.way = UNICAST
        self.moment = now
        self.moment_bytes = 0
        self.needed_at = now


class Chooser:
    """Measures and picks, for every frame that is for everybody."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._habits: dict[int, Habit] = {}
        self._members: tuple[int, ...] = ()
        self._multicast_bytes = 0
        self._reminders = 0
        self._probe = 0
        self._tries = 0
        self._heard: set[int] = set()
        self._probing = False
        self.unreached: frozenset[int] = frozenset()

    def way(self, frame: Frame, listed: Listed) -> str:
        if self._layer.ports.engine.broadcasts and not (self.unreached and self.unreached & listed.places.keys()):
            self._multicast_bytes += frame.size
            self._reminders = 0 if frame.count else self._reminders + 1
            doubtful = self._multicast_bytes >= PROBED_AFTER_BYTES or self._reminders >= REMINDERS
            if doubtful and not self._probing:
                self._begin_probes()
            return MULTICAST
        return self._one_of_ours(frame, listed)

    def _one_of_ours(self, frame: Frame, listed: Listed) -> str:
        now = self._layer.ports.clock.now()
        habit = self._habits.get(listed.group)
        if habit is None:
            habit = self._habits[listed.group] = Habit(now)
        if now - habit.moment > MOMENT_S:
            habit.moment, habit.moment_bytes = now, 0
        habit.moment_bytes += frame.size
        needed = self._needed(frame.size, habit.moment_bytes, len(listed) - 1)
        if RANKS[needed] >= RANKS[habit.way] or now - habit.needed_at > CALM_S:
            habit.way, habit.needed_at = needed, now
        return habit.way

    @staticmethod
    def _needed(size: int, moment_bytes: int, others: int) -> str:
        if others > 2 and moment_bytes * others > BUSY_BYTES and moment_bytes > size:
            return PIPELINE
        if others > FEW or (others > 2 and size >= LONG_BYTES):
            return TREE
        return UNICAST

    # Whether multicast reaches

    def reset(self, members: tuple[int, ...]) -> None:
        """A new view; what was measured of members that stay is kept."""
        self._members = members
        self.unreached &= frozenset(members)
        self._habits.clear()
        self._multicast_bytes = 0

    def _begin_probes(self) -> None:
        self._probing = True
        self._tries = 0
        self._heard = {self._layer.node.me}
        self._probe += 1
        self._ask()

    def _ask(self) -> None:
        missing = [member for member in self._members if member not in self._heard]
        if not missing or self._tries >= PROBES:
            self.unreached = frozenset(missing)
            self._multicast_bytes = self._reminders = 0
            delay_s = PROBE_AGAIN_S if missing else 0.0
            self._layer.after(delay_s, self._end_probes)
            return
        self._tries += 1
        self._layer.pass_down(Frame(sender=self._layer.node.me, to=ALL, headers=[Probe(self._probe)]))
        self._layer.after(PROBE_S, self._ask)

    def _end_probes(self) -> None:
        self._probing = False
        if self.unreached:
            self._begin_probes()

    def probed(self, member: int, word: Probe) -> None:
        self._layer.pass_down(Frame(sender=self._layer.node.me, to=member, headers=[Heard(word.number)]))

    def heard(self, member: int, word: Heard) -> None:
        if word.number == self._probe:
            self._heard.add(member)
