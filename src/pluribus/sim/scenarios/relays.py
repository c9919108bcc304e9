"""Relays: processes send to an open group that they are not in, while its members come, go and die."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ...core.errors import Excluded, NoMembers, Overflow, PluribusError, Uncertain, Violation
from ...core.ids import MessageId
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ..checkers.delivery import reached
from ..checkers.relays import relayed_everywhere, relayed_once, relayed_without_gaps
from ..checkers.totals import safe, total
from ..checkers.views import view_synchrony
from ..machinery.chaos import STRIKES, ordeal
from ..machinery.history import Happening, History
from ..machinery.observer import Observer
from ..machinery.world import World
from . import Scenario
from .groups import CALM_S, MEDIA, TORMENT_S

NAME = "news"
OUTSIDE = 2
"""How many hosts, the first ones, are no members and only send."""
LAST_ROUNDS = 20
PROMISES = ("fifo", "causal", "semantic", "total", "total safe")


class Player:
    """One process: a member that now and then leaves and comes back, or a sender from outside."""

    def __init__(self, world: World, history: History, bus: Bus, promises: str, *, outside: bool) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.outside = outside
        self.calm = False
        self._promises = promises
        self._count = 0
        self._under_way: list[MessageId] = []
        self._left = False
        self.observer = Observer(bus, (NAME,), lambda: world.now, self._add)
        self.task = asyncio.create_task(self._send() if outside else self._read())

    def _add(self, happening: Happening) -> None:
        if happening.what == "view" and self._left:  # of a membership that is over for who left
            self._left = self.bus.me in happening.members
            if self._left:
                return
        self.history.add(happening)
        if happening.what == "deliver":
            self.world.note("deliver", self.bus.name, happening.body)

    async def _read(self) -> None:
        random = self.world.random
        order, _, safe = self._promises.partition(" ")
        try:
            while not self.bus.closed:
                group = await self.bus.group(NAME, order=order, safe=bool(safe), open=True)
                asyncio.create_task(self._drain(group))  # noqa: RUF006 - it ends with the group
                for _ in range(random.randrange(10, 100)):
                    await asyncio.sleep(random.random() * 0.2)
                    if self.calm:
                        return
                    if random.random() < 0.2:
                        at, body = self.world.now, self._body()
                        sent = await group.send(body)
                        self.history.add(Happening(at, self.bus.me, "send", NAME, sent, body))
                self._left = self.bus.me in group.view
                self.history.add(Happening(self.world.now, self.bus.me, "view", NAME))
                await group.close()
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _drain(self, group: Group) -> None:
        while not group.closed:
            with suppress(Excluded):
                async for _ in group:
                    pass

    def _body(self) -> bytes:
        self._count += 1
        return f"{self.bus.me}/{self._count}/".encode() * self.world.random.randrange(1, 40)

    async def _send(self) -> None:
        random = self.world.random
        try:
            while not (self.bus.closed or self.calm):
                await asyncio.sleep(random.random() * 0.2)
                for _ in range(random.randrange(1, 8)):
                    await self.send_one()
                if random.random() < 0.5:
                    await self.settle(random.choice((0.05, 1.0, 5.0)))
        except PluribusError:
            if not self.bus.closed:
                raise

    async def send_one(self) -> None:
        at, body = self.world.now, self._body()
        try:
            sent = await self.bus.relay(NAME).send(body, timeout=1)
        except (NoMembers, Uncertain):
            self._under_way.clear()  # what was under way was given up
        except Overflow:
            pass
        else:
            self.history.add(Happening(at, self.bus.me, "send", NAME, sent, body))
            self._under_way.append(sent)

    async def settle(self, timeout: float) -> None:
        try:
            await self.bus.relay(NAME).drain(timeout)
        except NoMembers:
            self._under_way.clear()
        except Uncertain as error:
            if "not all are known" not in str(error):
                self._under_way.clear()
        else:
            for sent in self._under_way:
                self.history.add(Happening(self.world.now, self.bus.me, "stable", NAME, sent))
            self._under_way.clear()


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    promises = world.random.choice(PROMISES)

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, promises, outside=number < OUTSIDE)

    await ordeal(world, players, begin, TORMENT_S, CALM_S, "to join or to send")
    for player in players.values():
        if player.outside and player.bus.relay(NAME).pending:
            raise Violation(f"{player.bus.me!r} was not told what became of its messages {CALM_S:g} s after all faults")
    inside = tuple(sorted(player.bus.me for player in players.values() if not player.outside))
    history.add(Happening(world.now, 0, "settled", members=inside))
    await asyncio.sleep(0.001)
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            if player.outside:
                await player.send_one()
    for player in players.values():
        if player.outside:
            await player.bus.relay(NAME).drain(timeout=5)
    await asyncio.sleep(2)
    history.sends_first()
    world.validate()
    for player in players.values():
        faulty = player.bus.stats()["transport"]["faulty"]
        if faulty:
            raise Violation(f"{faulty} frames made a layer of {player.bus.me!r} fail")


RELAYS = Scenario(
    "relays",
    "senders from outside an open group, through members that die",
    VIEWS,
    play,
    {
        "relayed_once": relayed_once,
        "relayed_without_gaps": relayed_without_gaps,
        "relayed_everywhere": relayed_everywhere,
        "view_synchrony": view_synchrony,
        "total": total,
        "safe": safe,
        "reached": reached,
    },
    STRIKES,
    members_min=4,
    members_max=6,
    media=MEDIA,
    promises=tuple(f"{promises} open" for promises in PROMISES),
)
