"""The scenario of groups, over a path so short that most messages travel in pieces; and with other layers in its stack.

The observer of that scenario sees frames as they come up, below the place where pieces are put together. Here it puts
them together itself, as every channel does, also for a group that the member has just left.
"""

from __future__ import annotations

from collections import Counter

from pluribus.core.frame import Frame
from pluribus.core.ids import number_of
from pluribus.group.pieces import Pieces, piece_of
from pluribus.sim.checkers import Checker
from pluribus.sim.history import Happening, History
from pluribus.sim.scenarios import Scenario, groups
from pluribus.sim.world import World
from pluribus.stack.events import Event, Members

ABOVE = groups.VIEWS.partition("detector")[2]
NUMBERS = {number_of(name) for name in groups.NAMES}
SHORT_PATH = "fragment(path_bytes=620)"


class Player(groups.Player):
    def _observe(self, what: Frame | Event) -> None:
        if isinstance(what, Members) and what.group in NUMBERS:
            pieces, members = self._pieces_of(what.group)
            joined = any(member not in members for member in what.members)
            pieces.keep_only(what.members, joined=joined)
            self._begun[what.group] = (pieces, what.members)
        elif isinstance(what, Frame):
            piece = piece_of(what)
            if piece is not None:
                LARGE["pieces"] += 1
                what = self._pieces_of(what.group)[0].take(what, piece)
                LARGE["whole"] += what.count
        super()._observe(what)

    def _pieces_of(self, group: int) -> tuple[Pieces, tuple[int, ...]]:
        self._begun: dict[int, tuple[Pieces, tuple[int, ...]]] = getattr(self, "_begun", {})
        return self._begun.setdefault(group, (Pieces(), ()))


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


def as_sent(check: Checker) -> Checker:
    """A large message is delivered here while its last piece is being sent; it was sent before it was delivered."""

    def checked(history: History) -> int:
        sends = {(h.group, h.id): h for h in history.of("send")}
        ordered, written = History(), set()

        def write(h: Happening) -> None:
            if h.what == "send":
                if (h.group, h.id) in written:
                    return
                written.add((h.group, h.id))
            ordered.add(h)

        for h in history.happenings:
            if h.what == "deliver" and h.member == h.id[0] and (h.group, h.id) in sends:
                write(sends[(h.group, h.id)])
            write(h)
        return check(ordered)

    return checked


def variant(name: str, lower: str) -> Scenario:
    """The same with these layers below the detector."""
    checkers = {name: as_sent(check) for name, check in groups.GROUPS.checkers.items()}
    return Scenario(name, f"groups on {lower}", f"{lower} | detector{ABOVE}", play, checkers, groups.GROUPS.faults)


FRAGMENT = variant("fragment", f"transport | {SHORT_PATH}")
SECURE = variant("secure", "transport | secure")
COMPRESS = variant("compress", "transport | compress(threshold=60)")
ALL_OF_THEM = variant("all", f"transport | {SHORT_PATH} | secure | compress(threshold=60)")
