"""Deaf: members that do not want to hear themselves, among others that do, under every fault.

Where an order can do without it, their own messages do not come back to them: they have delivered them when they send
them. Nothing comes up that could be observed then, so that is written down before whatever comes up next.
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
"""There are no such groups here, and a member does not read its own messages."""


class DeafPlayer(Player):
    """In each group, each time that it joins it, it hears itself or not."""

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
        """What has gone out since something came in."""
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
