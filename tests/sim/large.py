"""The scenario of groups, over a path so short that most messages travel in pieces; and with other layers in its
stack."""

from __future__ import annotations

from collections import Counter

from pluribus.core.frame import Frame
from pluribus.group.pieces import piece_of
from pluribus.sim.machinery.history import History
from pluribus.sim.machinery.world import World
from pluribus.sim.scenarios import Scenario, groups
from pluribus.stack.events import Event

ABOVE = groups.VIEWS.partition("detector")[2]
SHORT_PATH = "fragment(path_bytes=620)"


class Player(groups.Player):
    def _observe(self, what: Frame | Event) -> None:
        piece = piece_of(what) if isinstance(what, Frame) else None
        if piece is not None:
            LARGE["pieces"] += 1
            LARGE["whole"] += piece.index + 1 == piece.total
        super()._observe(what)


LARGE: Counter[str] = Counter()
"""What was seen of them, so that a test can tell that there were any."""


async def play(world: World, history: History) -> None:
    usual, groups.Player = groups.Player, Player  # type: ignore[misc]
    try:
        await groups.play(world, history)
    finally:
        groups.Player = usual  # type: ignore[misc]
    for bus in world.buses:
        assert bus.stats()["groups"]["pieces_refused"] == 0


def variant(name: str, lower: str) -> Scenario:
    """The same with these layers below the detector."""
    usual = groups.GROUPS
    return Scenario(name, f"groups on {lower}", f"{lower} | detector{ABOVE}", play, usual.checkers, usual.faults)


FRAGMENT = variant("fragment", f"transport | {SHORT_PATH}")
SECURE = variant("secure", "transport | secure")
COMPRESS = variant("compress", "transport | compress(threshold=60)")
ALL_OF_THEM = variant("all", f"transport | {SHORT_PATH} | secure | compress(threshold=60)")
