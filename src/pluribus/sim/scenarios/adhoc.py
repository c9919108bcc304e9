"""Ad hoc: no agreed views. Members come and go, open and leave groups, and nobody waits for anybody to agree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...core.errors import PluribusError, Violation
from ...core.ids import MemberId, MessageId
from ...runtime.bus import ADHOC, Bus
from ...runtime.group.group import Group
from ..checkers.delivery import Checker, fifo, integrity, reached
from ..checkers.orders import answers, unmarked
from ..machinery.chaos import STRIKES, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario

GROUPS = {"news": "fifo", "talk": "semantic"}
TORMENT_S = 20.0
CALM_S = 40.0
"""Seconds without faults after which all survivors have found each other, and no message waits for its parent."""
LAST_ROUNDS = 20
PATIENT_S = 25.0
"""Seconds to wait for the last messages: their parents may have been lost on the way to some members."""


class Player:
    """One member: sends, answers messages that it knows, leaves groups and joins them again."""

    def __init__(self, world: World, history: History, bus: Bus) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.groups: dict[str, Group] = {}
        self.calm = False
        self._count = 0
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        random = self.world.random
        try:
            await self.join(GROUPS)
            while not self.bus.closed and not self.calm:
                await asyncio.sleep(random.random() * 0.2)
                name = random.choice(sorted(GROUPS))
                if name not in self.groups:
                    await self.join([name])
                elif random.random() < 0.05:
                    await self.groups.pop(name).close()
                    self.history.add(Happening(self.world.now, self.bus.me, "view", name))
                else:
                    for _ in range(random.randrange(1, 6)):
                        await self.send_one(name)
            await self.join(GROUPS)
        except PluribusError:
            if not self.bus.closed:
                raise

    async def join(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.groups:
                self.groups[name] = group = await self.bus.group(name, order=GROUPS[name])
                asyncio.create_task(self._read(group))  # noqa: RUF006 - it ends with the group

    async def _read(self, group: Group) -> None:
        async for message in group:
            if group.closed:
                return
            self.world.note("deliver", self.bus.name, message.body)
            heard = (self.world.now, self.bus.me, "deliver", group.name, message.id, message.body)
            self.history.add(Happening(*heard, parent=message.parent, orphan=message.orphan))

    async def send_one(self, name: str) -> None:
        self._count += 1
        body = f"{self.bus.me}/{self._count}/".encode() * self.world.random.randrange(1, 20)
        parent = self._parent(name) if GROUPS[name] == "semantic" else None
        at = self.world.now
        sent = await self.groups[name].send(body, parent=parent)
        self.history.add(Happening(at, self.bus.me, "send", name, sent, body, parent=parent))

    def _parent(self, name: str) -> MessageId | None:
        """A recent message of any member: it may still be on its way here, or be known only because another message
        names it."""
        last = self.history.happenings[-20:]
        for h in self.world.random.sample(last, min(len(last), 3)):
            if h.group == name and h.what in ("send", "deliver"):
                return h.id
        return None


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
        player.task.result()
    everybody = tuple(sorted(player.bus.me for player in players.values()))
    history.add(Happening(world.now, 0, "settled", members=everybody))
    await asyncio.sleep(0.001)
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            for name in GROUPS:
                await player.send_one(name)
        await asyncio.sleep(0.01)  # a frame each, or one would stand for all
    await asyncio.sleep(PATIENT_S)
    history.sends_first()
    world.validate()


def hears_itself(history: History) -> int:
    """A member that is up at the end has delivered all messages that it sent; a member that leaves a group gives up
    unread messages."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    left = {(h.member, h.group): h.at for h in history.of("view")}
    own = {(h.group, h.id) for h in history.of("deliver") if h.id[0] == h.member}
    checks = 0
    for h in history.of("send"):
        if h.member in survivors and h.at > left.get((h.member, h.group), -1.0):
            checks += 1
            if (h.group, h.id) not in own:
                raise Violation(f"{MemberId(h.member)!r} never delivered its own {h.id} of {h.group!r}")
    return checks


def of_group(check: Checker, name: str) -> Checker:
    def checked(history: History) -> int:
        part = History()
        part.happenings = [h for h in history.happenings if h.group == name]
        return check(part)

    return checked


ADHOC_GROUPS = Scenario(
    "adhoc",
    "members without agreed views that come and go, in fifo and semantic order",
    ADHOC,
    play,
    {
        "integrity": integrity,
        "fifo": of_group(fifo, "news"),
        "answers": answers,
        "unmarked": unmarked,
        "hears_itself": hears_itself,
        "reached": reached,
    },
    STRIKES,
)
