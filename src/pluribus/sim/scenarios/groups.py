"""Groups: members with agreed views send and change groups all the time while everything goes wrong."""

from __future__ import annotations

import asyncio

from ...core.errors import PluribusError, Violation
from ...core.frame import Frame
from ...core.ids import number_of
from ...runtime.bus import VIEWS, Bus
from ...runtime.group import Group
from ...stack.events import Event, Members, ViewChanged
from ...wire.bodies import decode_bodies
from ..chaos import torment
from ..checkers import fifo, integrity, reached
from ..history import Happening, History
from ..views import converged, one_primary, sent_by_members, validity, view_agreement, view_synchrony
from ..world import World
from . import Scenario

NAMES = ("red", "green")
TORMENT_S = 20.0
CALM_S = 30.0
"""Within it all survivors must be in one view, and every message delivered or reported."""
LAST_ROUNDS = 20


class Player:
    """One member: is in one or two groups, sends numbered bodies, sometimes leaves a group and joins it again."""

    def __init__(self, world: World, history: History, bus: Bus) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.groups: dict[str, Group] = {}
        self.calm = False
        self._count = 0
        self._names = {number_of(name): name for name in NAMES}
        bus._dispatch.observe = self._observe
        self.task = asyncio.create_task(self._live())

    def _observe(self, what: Frame | Event) -> None:
        """Everything that comes up, as it comes: what an application would see if it never waited."""
        now, me = self.world.now, self.bus.me
        if isinstance(what, Frame):
            name = self._names.get(what.group)
            if name is None:
                return
            bodies = decode_bodies(what.kind, what.bodies, what.count)
            for at, body in enumerate(bodies, what.first):
                self.history.add(Happening(now, me, "deliver", name, (what.sender, at), body))
                self.world.note("deliver", self.bus.name, body)
        elif isinstance(what, Members):
            name = self._names.get(what.group)
            if name is not None:
                self.history.add(Happening(now, me, "view", name, members=what.members))
        elif isinstance(what, ViewChanged):
            chain = (what.lineage, what.epoch)
            view = (what.number, what.leader)
            self.history.add(Happening(now, me, "bus", "", view, members=what.members, chain=chain))

    async def _live(self) -> None:
        random = self.world.random
        try:
            await self._join(NAMES[0])
            while not self.bus.closed:
                await asyncio.sleep(random.random() * 0.2)
                if self.calm:
                    return
                chance = random.random()
                if chance < 0.03 and len(self.groups) < len(NAMES):
                    await self._join(NAMES[1])
                elif chance < 0.05 and NAMES[1] in self.groups:
                    await self.groups.pop(NAMES[1]).close()
                else:
                    await self._send_some(random.choice(sorted(self.groups)))
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _join(self, name: str) -> None:
        group = await self.bus.group(name)
        self.groups[name] = group
        asyncio.create_task(self._read(group))  # noqa: RUF006 - it ends with the group

    async def _read(self, group: Group) -> None:
        async for _ in group:
            pass

    async def _send_some(self, name: str) -> None:
        for _ in range(self.world.random.randrange(1, 6)):
            await self.send_one(name)

    async def send_one(self, name: str) -> None:
        self._count += 1
        body = f"{self.bus.me}/{self._count}/".encode() * self.world.random.randrange(1, 20)
        at = self.world.now
        sent = await self.groups[name].send(body)
        self.history.add(Happening(at, self.bus.me, "send", name, sent, body))


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S)
    for player in players.values():
        if not player.task.done():
            raise Violation(f"{player.bus.me!r} still waits to join or to send {CALM_S:g} s after the last fault")
        player.task.result()
    everybody = tuple(sorted(player.bus.me for player in players.values()))
    history.add(Happening(world.now, 0, "settled", members=everybody))
    await asyncio.sleep(0.001)
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            await player.send_one(NAMES[0])
    await asyncio.sleep(2)
    world.validate()
    for player in players.values():
        faulty = player.bus.stats()["transport"]["faulty"]
        if faulty:
            raise Violation(f"{faulty} frames made a layer of {player.bus.me!r} fail")


GROUPS = Scenario(
    "groups",
    "agreed views and fifo groups under every fault",
    VIEWS,
    play,
    {
        "integrity": integrity,
        "fifo": fifo,
        "validity": validity,
        "view_agreement": view_agreement,
        "view_synchrony": view_synchrony,
        "sent_by_members": sent_by_members,
        "one_primary": one_primary,
        "converged": converged,
        "reached": reached,
    },
    (
        *("loss", "duplicate", "reorder", "corrupt", "crash", "restart"),
        *("pause", "drift", "partition", "heal", "cut"),
    ),
)
