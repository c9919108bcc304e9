"""Crowd: members come and go and three in ten die at once, while messages spread by gossip on partial views."""

from __future__ import annotations

import asyncio

from ...core.errors import PluribusError, Violation
from ...core.ids import MemberId
from ...layers.spread import Crowd
from ...runtime.bus import Bus
from ...runtime.group.group import Group
from ..checkers.delivery import fifo, integrity
from ..machinery.history import Happening, History
from ..machinery.network import Link, Medium
from ..machinery.world import World
from . import Scenario

GROUP = "crowd"
GATHERING_S = 8.0
CHURN_S = 6.0
SETTLING_S = 20.0
ENTERING_S = 3.0
"""Seconds after its start for which a member counts as still joining."""
MASS_SHARE = 0.3
LINK = Link(loss=0.02, duplicate=0.02, reorder=0.05)


class Player:
    """One member: sends now and then, and records what it delivers."""

    def __init__(self, world: World, history: History, number: int, bus: Bus, group: Group) -> None:
        self.world = world
        self.history = history
        self.number = number
        self.bus = bus
        self.group = group
        self.quiet = False
        history.add(Happening(world.now, bus.me, "here"))
        self.tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._read())]

    async def _send(self) -> None:
        random, count = self.world.random, 0
        while not self.group.closed:
            await asyncio.sleep(random.random() * 8)
            if self.bus.closed or self.quiet:
                return
            for _ in range(random.randrange(1, 3)):
                count += 1
                body = f"{self.bus.me}/{count}".encode() * random.randrange(1, 20)
                try:
                    sent = await self.group.send(body)
                except PluribusError:
                    return
                self.history.add(Happening(self.world.now, self.bus.me, "send", GROUP, sent, body))

    async def _read(self) -> None:
        async for message in self.group:
            self.world.note("deliver", self.bus.name, message.body)
            self.history.add(Happening(self.world.now, self.bus.me, "deliver", GROUP, message.id, message.body))


async def play(world: World, history: History) -> None:
    random = world.random
    players: dict[int, Player] = {}

    async def begin(number: int) -> None:
        bus = world.hosts[number].bus
        assert bus is not None
        players[number] = Player(world, history, number, bus, await bus.group(GROUP))

    for number in range(len(world.hosts)):
        await begin(number)
    await asyncio.sleep(GATHERING_S)
    world.set_link(LINK)
    look(world, history)
    await churn(world, players, begin)
    living = [number for number, host in enumerate(world.hosts) if host.up and number > 1]
    for number in random.sample(living, int(len(living) * MASS_SHARE)):
        world.crash(number)
        world.faults["mass"] += 1
    look(world, history)
    await asyncio.sleep(CHURN_S)
    for player in players.values():
        player.quiet = True
    await asyncio.sleep(SETTLING_S)
    look(world, history)
    absorbed(world)
    world.validate()
    history.add(Happening(world.now, 0, "settled", members=tuple(bus.me for bus in world.buses)))


async def churn(world: World, players: dict[int, Player], begin: object) -> None:
    """Joins, leaves and single deaths, one after another; the two members that newcomers know stay."""
    random = world.random
    end = world.now + CHURN_S
    while world.now < end:
        await asyncio.sleep(random.random())
        up = [number for number, host in enumerate(world.hosts) if host.up and number > 1]
        chance = random.random()
        if chance < 0.4:
            await world.add()
            world.faults["join"] += 1
            await begin(len(world.hosts) - 1)  # type: ignore[operator]
        elif chance < 0.7:
            world.crash(random.choice(up))
        else:
            number = random.choice(up)
            world.faults["leave"] += 1
            bus = players[number].bus
            await bus.close()
            world.hosts[number].bus = None


def crowd_of(bus: Bus) -> Crowd:
    found = bus._stack.find(Crowd)
    assert isinstance(found, Crowd)
    return found


def look(world: World, history: History) -> None:
    """True if every live member can be reached from every other one along the partial views of live members."""
    here = {h.member: h.at for h in history.of("here")}
    settled = [bus for bus in world.buses if here[bus.me] + ENTERING_S <= world.now]
    views = {bus.me: crowd_of(bus).view.members for bus in settled}
    beside: dict[int, set[int]] = {member: set() for member in views}
    for member, neighbours in views.items():
        for other in neighbours:
            if other in views:
                beside[member].add(other)
                beside[other].add(member)
    first = min(beside)
    reached, waiting = {first}, [first]
    while waiting:
        new = beside[waiting.pop()] - reached
        reached |= new
        waiting += new
    history.add(Happening(world.now, len(reached), "overlay", members=tuple(sorted(views))))


def absorbed(world: World) -> None:
    living = {bus.me for bus in world.buses}
    for bus in world.buses:
        dead = [member for member in crowd_of(bus).view.members if member not in living]
        if dead:
            raise Violation(f"{bus.name} still points to {len(dead)} members that are gone")


def connected(history: History) -> int:
    """The overlay is connected: before the deaths, right after three in ten died, and at the end."""
    checks = 0
    for h in history.of("overlay"):
        checks += len(h.members)
        if h.member != len(h.members):
            raise Violation(
                f"at {h.at:.1f} only {h.member} of {len(h.members)} members can be reached from one of them"
            )
    return checks


def certain(history: History) -> int:
    """Members that were there when a message was sent, and stayed, have it, if its sender stayed or any member that
    stayed has it."""
    settled = next(history.of("settled"))
    here = {h.member: h.at for h in history.of("here")}
    delivered: dict[tuple[int, int], set[int]] = {}
    for h in history.of("deliver"):
        delivered.setdefault(h.id, set()).add(h.member)
    stayed = set(settled.members)
    checks = 0
    for h in history.of("send"):
        have = delivered.get(h.id, set()) & stayed
        if h.member not in stayed and not have:
            continue
        for member in settled.members:
            if here[member] + FRESH_S > h.at:
                continue
            checks += 1
            if member not in have:
                raise Violation(
                    f"{MemberId(member)!r} never delivered {h.id}, sent at {h.at:.1f}; {len(have)} others did"
                )
    return checks


FRESH_S = 6.0
"""A member that joined less than so many seconds before a message may miss it."""

CROWD = Scenario(
    "crowd",
    "partial views and gossip, with joins, leaves and three deaths in ten at once",
    "transport | fragment | crowd(neighbours=12, fanout=4) | groups",
    play,
    {"integrity": integrity, "fifo": fifo, "certain": certain, "connected": connected},
    ("join", "leave", "crash", "mass", "loss", "duplicate", "reorder"),
    members_min=20,
    members_max=50,
    media=(Medium(broadcasts=False),),
)
