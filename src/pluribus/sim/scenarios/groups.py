"""Groups: members with agreed views send and change groups all the time while everything goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from ...core.errors import Excluded, PluribusError, Violation
from ...core.frame import Frame
from ...core.ids import MessageId
from ...core.limits import PATH_BYTES_LOOPBACK
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ...stack.events import Event
from ..checkers.delivery import fifo, integrity, reached
from ..checkers.orders import among, answers, causal, semantic
from ..checkers.totals import excluded, reported, safe, survives, total
from ..checkers.views import converged, one_primary, sent_by_members, validity, view_agreement, view_synchrony
from ..checkers.wholeness import alike_in_the_end, all_is_read, without_gaps
from ..machinery.chaos import STRIKES, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.network import Medium
from ..machinery.observer import Observer
from ..machinery.world import World
from . import Scenario

NAMES = ("red", "green")
TORMENT_S = 20.0
CALM_S = 30.0
"""Seconds without faults after which all survivors must be in one view, and every message delivered or reported."""
LAST_ROUNDS = 20
PATH_BYTES_SHORT = 620
"""The bytes of a datagram in some seeds: so few that many messages are sent in pieces."""
PROMISES = ("fifo", "causal", "semantic", "total", "total safe")
"""The promises of groups; a seed chooses one for each name."""


MEDIA = tuple(
    Medium(broadcasts=broadcasts, path_bytes=path_bytes)
    for path_bytes in (PATH_BYTES_LOOPBACK, PATH_BYTES_SHORT)
    for broadcasts in (True, False)
)


class Player:
    """One member: is in one or two groups, sends numbered bodies, sometimes leaves a group and joins it again."""

    def __init__(self, world: World, history: History, bus: Bus, promises: dict[str, str]) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.promises = promises
        self.groups: dict[str, Group] = {}
        self.calm = False
        self._count = 0
        self.observer = Observer(bus, NAMES, lambda: world.now, self._add)
        bus._dispatch.observe = self._observe
        self.task = asyncio.create_task(self._live())

    def _observe(self, what: Frame | Event) -> None:
        self.observer.see(what)

    def _add(self, happening: Happening) -> None:
        self.history.add(happening)
        if happening.what == "deliver":
            self.world.note("deliver", self.bus.name, happening.body)

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
                    await self._leave(NAMES[1])
                else:
                    await self._send_some(random.choice(sorted(self.groups)))
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _join(self, name: str) -> None:
        order, _, safe = self.promises[name].partition(" ")
        group = await self.bus.group(name, order=order, safe=bool(safe), own=self.hears_itself(name))
        self.groups[name] = group
        asyncio.create_task(self._read(group))  # noqa: RUF006 - it ends with the group

    async def _leave(self, name: str) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, "leave", name))
        await self.groups.pop(name).close()

    async def _read(self, group: Group) -> None:
        while not group.closed:
            with suppress(Excluded):
                async for message in group:
                    self.history.add(Happening(self.world.now, self.bus.me, "read", group.name, message.id))

    async def _send_some(self, name: str) -> None:
        for _ in range(self.world.random.randrange(1, 6)):
            await self.send_one(name)

    async def send_one(self, name: str) -> None:
        self._count += 1
        body = f"{self.bus.me}/{self._count}/".encode() * self.world.random.randrange(1, 20)
        parent = self._parent(name) if self.promises[name] == "semantic" else None
        at = self.world.now
        group = self.groups[name]
        sent = await group.send(body, parent=parent)
        self.history.add(Happening(at, self.bus.me, "send", name, sent, body, parent=parent))
        self.has_sent(group, sent, body)

    def hears_itself(self, name: str) -> bool:
        return True

    def has_sent(self, group: Group, sent: MessageId, body: bytes) -> None:
        """Called after a send; for players that do not receive their own messages."""

    def _parent(self, name: str) -> MessageId | None:
        """Mostly a recent message of any member: it may still be on its way here, or be known only because another
        message names it."""
        random, happenings = self.world.random, self.history.happenings
        last = happenings[-20:] if random.random() < 0.8 else happenings
        for h in random.sample(last, min(len(last), 3)):
            if h.group == name and h.what in ("send", "deliver"):
                return h.id
        return None


P = TypeVar("P", bound=Player)


async def play(world: World, history: History) -> None:
    await tormented(world, history, PROMISES, Player)


async def tormented(world: World, history: History, choice: Sequence[str], kind: type[P]) -> Iterable[P]:
    """Let players of this class act in groups, each with one of these promises, while faults strike; then end the
    faults and settle."""
    players: dict[int, P] = {}
    promises = {name: world.random.choice(choice) for name in NAMES}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = kind(world, history, bus, promises)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin)
    await settled(world, history, players)
    return players.values()


async def settled(world: World, history: History, players: Mapping[int, Player]) -> None:
    """End the faults: all members find each other, and a last round of messages reaches all."""
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S / 2)
    restore_primary(world)
    await asyncio.sleep(CALM_S / 2)
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
    history.sends_first()
    world.validate()
    for player in players.values():
        faulty = player.bus.stats()["transport"]["faulty"]
        if faulty:
            raise Violation(f"{faulty} frames made a layer of {player.bus.me!r} fail")


GROUPS = Scenario(
    "groups",
    "agreed views and groups of every order under every fault",
    VIEWS,
    play,
    {
        "integrity": integrity,
        "fifo": among(fifo, "fifo", "causal", "total"),
        "causal": causal,
        "total": total,
        "safe": safe,
        "survives": survives,
        "semantic": semantic,
        "answers": answers,
        "reported": reported,
        "excluded": excluded,
        "validity": among(validity, "fifo", "causal", "semantic"),
        "view_agreement": view_agreement,
        "view_synchrony": view_synchrony,
        "sent_by_members": sent_by_members,
        "one_primary": one_primary,
        "converged": converged,
        "reached": reached,
        "without_gaps": without_gaps,
        "alike_in_the_end": alike_in_the_end,
        "all_is_read": all_is_read,
    },
    STRIKES,
    media=MEDIA,
    promises=PROMISES,
)
