"""Flood: members of a best-effort group send all the time while everything goes wrong."""

from __future__ import annotations

import asyncio

from ...runtime.bus import BEST_EFFORT, Bus
from ...runtime.group.group import Group
from ..checkers.delivery import fifo, integrity, reached
from ..machinery.chaos import STRIKES, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario

GROUP = "flood"
TORMENT_S = 20.0
CALM_S = 30.0
"""Seconds without faults after which all survivors must have found each other."""
LAST_ROUNDS = 20


class Player:
    """One member: sends numbered bodies at random intervals, and records what it delivers."""

    def __init__(self, world: World, history: History, bus: Bus, group: Group) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.group = group
        self.tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._read())]
        self._count = 0

    async def send_one(self) -> None:
        self._count += 1
        body = f"{self.group.me}/{self._count}".encode() * self.world.random.randrange(1, 20)
        sent = await self.group.send(body)
        self.history.add(Happening(self.world.now, self.group.me, "send", GROUP, sent, body))

    async def _send(self) -> None:
        while not self.group.closed:
            await asyncio.sleep(self.world.random.random() * 0.2)
            if self.bus.closed:
                return
            for _ in range(self.world.random.randrange(1, 6)):
                await self.send_one()

    async def _read(self) -> None:
        async for message in self.group:
            self.world.note("deliver", self.bus.name, message.body)
            self.history.add(Happening(self.world.now, self.group.me, "deliver", GROUP, message.id, message.body))

    async def stop_sending(self) -> None:
        self.tasks[0].cancel()
        await asyncio.gather(self.tasks[0], return_exceptions=True)


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        old = players.pop(number, None)
        if old is not None:
            await old.stop_sending()
        players[number] = Player(world, history, bus, await bus.group(GROUP))

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin)
    await asyncio.sleep(CALM_S)
    for player in players.values():
        await player.stop_sending()
    await asyncio.sleep(1)
    world.validate()
    everybody = tuple(player.group.me for player in players.values())
    history.add(Happening(world.now, 0, "settled", members=everybody))
    await asyncio.sleep(0.001)
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            await player.send_one()
        await asyncio.sleep(0.01)  # a frame each, or one would stand for all
    await asyncio.sleep(2)
    world.validate()


FLOOD = Scenario(
    "flood",
    "a best-effort group under every fault",
    BEST_EFFORT,
    play,
    {"integrity": integrity, "fifo": fifo, "reached": reached},
    STRIKES,
)
