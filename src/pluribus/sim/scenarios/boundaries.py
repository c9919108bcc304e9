"""Boundaries: the tree on a list of five, with deaths at every boundary between its datagrams, one after another.

``spread`` picks boundaries by chance, in lists of any length and in any weather. Here nothing is left to chance: a seed
is a place in an enumeration of ways, of a first death and of a second one at every boundary soon after it. A datagram
has three boundaries: the sender dies before the datagram leaves, or after that, or the addressee dies before the
datagram arrives. Two members send, so the dead are children and proxies, before and after receipt, and both at once.
``SEEDS`` is the number of seeds that cover the whole enumeration.
"""

from __future__ import annotations

import asyncio

from ...core.ports import Address
from ...runtime.bus import Bus
from ..checkers.delivery import integrity
from ..machinery.history import Happening, History
from ..machinery.host import Host
from ..machinery.network import Link
from ..machinery.world import World
from . import Scenario
from .spread import FAILURES, Reaper, agreement, forgotten, kind_of, listening, roster_of, send

MEMBERS = 5
WAYS = ("by='tree'", "by='tree', proxy='first'", "by='tree', k=2", "by='pipeline'")
FIRST = 75
"""Boundaries for the first death: those of two messages, of their acknowledgements and of the permission to forget."""
SECOND = 24
"""Boundaries for the second death, counted from the first; one number more means that there is no second death."""
SEEDS = len(WAYS) * FIRST * (SECOND + 1)
SETTLING_S = 8.0
SURVIVORS_MIN = 2
STRIKES = (*(failure for failure in FAILURES if failure != "proxy_before"), "several")
"""Failures that a campaign must see often. ``proxy_before`` has few boundaries, and all of them are struck."""
STEADY = Link(latency_s=0.001, jitter_s=0.0)
"""A link without chance, so that a boundary is the same datagram in every run."""


def deaths(seed: int) -> tuple[str, int, int]:
    """The way to spread, the boundary of the first death, and the number of boundaries to the second; 0: there is
    none."""
    rest, way = divmod(seed, len(WAYS))
    second, first = divmod(rest, FIRST)
    return WAYS[way], first, second % (SECOND + 1)


def stack(seed: int, members: int) -> str:
    detector = "detector(beat_s=0.2, silence_s=1.5)"
    return f"transport | fragment | {detector} | spread({deaths(seed)[0]}) | roster(members={members}) | groups"


class Enumerated(Reaper):
    """Kills the host at each boundary that the seed names."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        _, first, second = deaths(world.seed)
        self._at = {first, first + second}
        self._boundary = -1

    def rest(self) -> None:
        self._at.clear()

    def carry(self, source: Address, target: Address, data: bytes) -> None:
        sender, receiver = self._hosts[source], self._hosts[target]
        word = self._word(sender, data) if sender.up else None
        if word is None:
            if sender.up:
                self._carry(source, target, data)
            return
        self._reach(sender, word, sends=True)
        if sender.up:
            self._carry(source, target, data)
        self._reach(sender, word, sends=True)
        self._reach(receiver, word, sends=False)

    def _reach(self, host: Host, word: object, *, sends: bool) -> None:
        self._boundary += 1
        if self._boundary in self._at and host.up and sum(other.up for other in self.world.hosts) > SURVIVORS_MIN:
            self._dead += 1
            self.world.faults[kind_of(host, word, sends=sends)] += 1
            self.world.faults["several"] += self._dead == 2
            self.world.crash(self.world.hosts.index(host))


async def play(world: World, history: History) -> None:
    world.set_link(STEADY)
    await listening(world, history)
    reaper = Enumerated(world)
    senders: list[Bus] = sorted(world.buses, key=lambda bus: roster_of(bus).members.index(bus.me))[1:3]
    for bus in senders:
        if not bus.closed and bus in world.buses:
            send(world, history, bus)
        await asyncio.sleep(0.0015)
    await asyncio.sleep(SETTLING_S)
    reaper.rest()
    world.validate()
    history.add(Happening(world.now, 0, "settled", members=tuple(bus.me for bus in world.buses)))
    for bus in world.buses:
        spread = bus.stats()["spread"]
        held = str(spread["kept"] + spread["submissions"]).encode()
        history.add(Happening(world.now, bus.me, "held", "spread", body=held))


BOUNDARIES = Scenario(
    "boundaries",
    f"the tree on a list of {MEMBERS}: {SEEDS:,} seeds are one death and two at every boundary between datagrams",
    stack,
    play,
    {"integrity": integrity, "agreement": agreement, "forgotten": forgotten},
    STRIKES,
    members_min=MEMBERS,
    members_max=MEMBERS,
)
