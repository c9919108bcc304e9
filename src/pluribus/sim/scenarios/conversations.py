"""Conversations: members write, leave silently, come back after an hour, are cut off and meet again; one member forges
messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from ...conversations.history import Delivered
from ...conversations.joining import JOINED
from ...conversations.words import Answer, Entry, GroupInfo, Groups, Request, Row, Said, encode
from ...core.errors import PluribusError, Violation
from ...core.ids import MessageId
from ...runtime.bus import ADHOC, VIEWS, Bus
from ...runtime.styles.conversations.lobby import LOBBY, PREFIX, Conversations
from ...runtime.styles.conversations.room import Room
from ..checkers.conversations import (
    answered_in_order,
    as_said,
    as_wished,
    nothing_lost,
    packed,
    same_table,
    same_tree,
    shown,
)
from ..machinery.chaos import STRIKES, torment
from ..machinery.history import Happening, History
from ..machinery.network import Link, Medium
from ..machinery.world import World
from . import Scenario

ROOMS = ("delhi", "chennai")
TORMENT_S = 15.0
PACE_S = 0.5
"""Seconds between messages, on average. While a member is away, twenty messages are sent."""
AWAY_S = 60.0
HOUR_S = 3_600.0
CALM_S = 100.0
"""Seconds without faults after which members that reach each other have the same messages, and no message waits for its
parent."""
FORGER = "eve"


class Player:
    """One member: opens rooms, says things, answers, leaves and joins again."""

    def __init__(self, world: World, history: History, bus: Bus, *, light: bool) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.light = light
        self.calm = False
        self.pace_s = PACE_S
        self.lobby: Conversations | None = None
        self.rooms: dict[str, Room] = {}
        self._count = 0
        self._recent: dict[str, deque[Entry]] = {}
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        random = self.world.random
        try:
            self.lobby = await self.bus.conversations()
            await self.open(ROOMS[0])
            while not self.bus.closed and not self.calm:
                await asyncio.sleep(random.random() * self.pace_s)
                name = random.choice(ROOMS)
                if name not in self.rooms:
                    if random.random() < 0.3:
                        await self.open(name)
                elif random.random() < 0.03:
                    await self._leave(name)
                else:
                    for _ in range(random.randrange(1, 4)):
                        await self.say(name)
        except (PluribusError, OSError):
            if not self.bus.closed:
                raise

    async def open(self, name: str) -> None:
        assert self.lobby is not None
        self._note("join", name, body=self.bus.name.encode())
        room = await self.lobby.room(name, f"about {name}", identities_only=self.light)
        self.rooms[name] = room
        known = room.history()
        self._note("opened", name, body=packed([entry.id for entry in known]))
        self._recent[name] = deque(known[-30:], 30)
        room.on_messages(lambda delivered: self._given(name, delivered))

    async def _leave(self, name: str) -> None:
        self._note("leave", name, body=self.bus.name.encode())
        await self.rooms.pop(name).leave()

    def _given(self, name: str, delivered: Iterable[Delivered]) -> None:
        for found in delivered:
            entry = found.entry
            self._recent[name].append(entry)
            body = (entry.body or "").encode()
            self.world.note("deliver", self.bus.name, body)
            heard = Happening(
                *(self.world.now, self.bus.me, "deliver", name, entry.id, body),
                parent=entry.parent,
                orphan=found.orphan,
                late=self.light,
            )
            self.history.add(heard)

    async def say(self, name: str) -> None:
        room, random = self.rooms[name], self.world.random
        self._count += 1
        text = f"{self.bus.me}/{self._count}/" * random.randrange(1, 20)
        known = self._recent.get(name)
        answered = random.choice(known) if known and random.random() < 0.7 else None
        if answered is not None and room.get(answered.id) is None:
            if answered.by != FORGER:
                raise Violation(f"{self.bus.me!r} was given {answered.id} of {name!r}, and has it no more")
            answered = None  # it left too many gaps, and this message gave way
        parent = None if answered is None else answered.id
        self._note("trying", name, body=text.encode(), parent=parent)
        try:
            sent = await room.send(text, parent=parent)
        except OSError:  # the disk is full
            return
        self.history.add(Happening(self.world.now, self.bus.me, "send", name, sent, text.encode(), parent=parent))

    def _note(self, what: str, name: str, *, body: bytes, parent: MessageId | None = None) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, name, body=body, parent=parent))

    def tell(self) -> None:
        """Record the trees of messages and the list of conversations that the member shows at the end."""
        assert self.lobby is not None
        for name, room in self.rooms.items():
            for found in shown(self.world.now, self.bus.me, name, room.tree(), late=self.light):
                self.history.add(found)
        told = {info.gid: (info.description, info.members) for info in self.lobby if not info.gid.startswith("spam")}
        self._note("table", "", body=repr(sorted(told.items())).encode())
        for group, (_, members) in told.items():
            self._note("members", group, body=" ".join(members).encode())


async def forge(world: World, bus: Bus) -> None:
    """A member whose protocol messages are well formed and untrue. It forges no message of another member, because
    without signatures nobody can detect that."""
    random = world.random
    lobby = await bus.group(LOBBY, order="semantic", own=False)
    room = await bus.group(PREFIX + ROOMS[0], order="semantic", own=False)
    me = int(bus.me)

    def entry(writer: int, number: int, parent: MessageId | None, at: float = 1.0) -> Entry:
        return Entry((writer, number), parent, FORGER, at, "forged")

    while not bus.closed:
        others = [int(member) for member in bus.members]
        number = random.randrange(0, 1 << 40)
        words = (
            Said([entry(random.choice(others), number, None)]),
            Said([entry(me, 2 * number, (me, 2 * number)), entry(me, number, (7, number))]),
            Answer(random.choice(others), 1, 0, [entry(other, number, None, float("nan")) for other in others]),
            Request(number, random.randrange(0, 99), 0, (1 << 63) - 1, [(7, [(0, number), (9, 3)])]),
            Request(number, 0, 5, 4, [(me, [(number, number)])], [(me, [(0, 1)])]),
        )
        await room.send(encode(random.choice(words)))
        spam = [GroupInfo(f"spam {number} {part}", "", 0.0, [Row(FORGER, number, True)], 1) for part in range(20)]
        await lobby.send(encode(Groups(spam)))
        await asyncio.sleep(random.random())


async def play(world: World, history: History) -> None:
    random = world.random
    players: dict[int, Player] = {}
    light = random.randrange(0, len(world.hosts)) if random.random() < 0.3 else -1
    forger = len(world.hosts) - 1 if len(world.hosts) > 3 and random.random() < 0.3 else -1
    forging: list[asyncio.Task[None]] = []

    async def begin(number: int, bus: Bus) -> None:
        if number == forger:
            forging.append(asyncio.create_task(_forged(world, bus)))
        else:
            players[number] = Player(world, history, bus, light=number == light)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin)
    hour = "membership" not in world.stack and world.seed % 100 == 0
    gone = random.choice([number for number in players if number != light])
    world.crash(gone)
    world.set_link(Link(loss=0.05))
    away_s = HOUR_S if hour else AWAY_S
    for player in players.values():
        player.pace_s = away_s / 20
    await asyncio.sleep(away_s)
    for player in players.values():
        player.pace_s = PACE_S
    world.faults["away"] += 1
    world.set_link(Link())
    await begin(gone, await world.restart(gone))
    for task in forging:
        task.cancel()
    if forger >= 0 and world.hosts[forger].up:
        world.crash(forger)
    await asyncio.sleep(2)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(away_s / 10 + CALM_S / 2)
    for player in players.values():
        player.task.result()
        assert player.lobby is not None
        for name in ROOMS:  # the tree of a conversation is for those who are in it
            standing = player.lobby._joining.groups.get(name)
            if standing is not None and standing.standing == JOINED and name not in player.rooms:
                await player.open(name)
    await asyncio.sleep(CALM_S / 4)
    world.validate()
    for player in players.values():
        player.tell()
    world.note("roles", f"light {light} forger {forger} gone {gone}", b"")
    history.add(Happening(world.now, 0, "settled", members=tuple(int(p.bus.me) for p in players.values())))


async def _forged(world: World, bus: Bus) -> None:
    try:
        await forge(world, bus)
    except PluribusError:
        if not bus.closed:
            raise


CONVERSATIONS = Scenario(
    "conversations",
    "threaded talk without a server: members leave, come back after an hour, part and meet; one forges",
    lambda seed, members: ADHOC if seed % 2 == 0 else VIEWS,
    play,
    {
        "same_tree": same_tree,
        "same_table": same_table,
        "answered_in_order": answered_in_order,
        "as_said": as_said,
        "nothing_lost": nothing_lost,
        "as_wished": as_wished,
    },
    (*STRIKES, "away"),
    media=(Medium(), Medium(), Medium(broadcasts=False), Medium(broadcasts=False)),
)
