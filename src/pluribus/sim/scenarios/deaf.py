"""Deaf: members that do not receive their own messages (``own=False``), among members that do, under every fault.

Unless an order needs it, such a member's own messages do not come back to it: they count as delivered when they are
sent. Nothing can be observed at that moment, so these deliveries are recorded before the next message that comes up.
"""

from __future__ import annotations

from ...core.frame import Frame
from ...core.ids import MessageId
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ...stack.events import UNHEARD, Event
from ..machinery.chaos import STRIKES
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .groups import GROUPS, MEDIA, Player, tormented

PROMISES = ("fifo", "causal", "total")
UNCHECKED = ("safe", "survives", "semantic", "answers", "all_is_read")
"""Promises that are not checked: there are no such groups here, or a member would have to read its own messages."""


class DeafPlayer(Player):
    """One member: at each join of a group it chooses whether it receives its own messages there."""

    def __init__(self, world: World, history: History, bus: Bus, promises: dict[str, str]) -> None:
        self._deaf: set[str] = set()
        self._unheard: list[tuple[Group, MessageId, bytes]] = []
        super().__init__(world, history, bus, promises)

    def hears_itself(self, name: str) -> bool:
        hears = self.world.random.random() < 0.4
        (self._deaf.discard if hears else self._deaf.add)(name)
        return hears

    def has_sent(self, group: Group, sent: MessageId, body: bytes) -> None:
        if group.name in self._deaf and self.promises[group.name] in UNHEARD:
            self._unheard.append((group, sent, body))

    def write_down(self) -> None:
        """Record own messages that have left since the last look as delivered."""
        waiting, self._unheard = self._unheard, []
        for group, sent, body in waiting:
            if sent[1] < group._channel.out.first:
                self.history.add(Happening(self.world.now, self.bus.me, "deliver", group.name, sent, body))
            else:
                self._unheard.append((group, sent, body))

    def _observe(self, what: Frame | Event) -> None:
        self.write_down()
        super()._observe(what)


async def play(world: World, history: History) -> None:
    for player in await tormented(world, history, PROMISES, DeafPlayer):
        player.write_down()


DEAF = Scenario(
    "deaf",
    "members that do not hear themselves, under every fault",
    VIEWS,
    play,
    {name: checker for name, checker in GROUPS.checkers.items() if name not in UNCHECKED},
    STRIKES,
    media=MEDIA,
    promises=PROMISES,
)
