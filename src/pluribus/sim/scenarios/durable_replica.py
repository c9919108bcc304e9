"""Durable replica: a user's map on the keepers' log, called by members that come and go, under every fault. In every
other seed the map is a ``TableMachine``. In every fifth seed keepers that are started again have later code; when all
have it, the version is raised.

The first three hosts keep it; the others are members without a disk. Whole buses run here, with views, relays of
requests and retries, where ``hosts`` runs keepers alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from ...core.errors import Damaged, NotPrimary, PluribusError, Refused, Uncertain, Violation
from ...group.host.table import TableMachine
from ...group.keepers import Settings
from ...runtime.bus import Bus
from ...runtime.keepers.durable_replica import DurableReplica
from ..checkers.linearizability import linearizable
from ..machinery.chaos import EVERY_FAULT, STRIKES, Restarted, flip, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA
from .replica import CALM_S, KEYS, NAME, STACK, TORMENT_S, Map

KEEPERS = 3
LATER_S = 3.0
"""Keepers that are started after this time may have later code."""
CALLERS = 2
KIND = "map"
TIMEOUTS_S = (None, None, 3.0, 0.5, 0.05)
SETTINGS = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=3_000, slack_rows=6)
COUNT = "commands"
LIFE = 1
"""The number of the only generation of a durable replica."""

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class Asked(Map):
    """The map, which also answers questions: a question is a key."""

    def query(self, question: bytes) -> bytes:
        return _encode(self.cells.get(question.decode()))


class Tabled(Asked, TableMachine):
    """The same map as a ``TableMachine``: its cells are in parts."""

    def __init__(self) -> None:
        self.cells = self.table  # type: ignore[assignment]  # a mapping like the other

    snapshot = TableMachine.snapshot
    restore = TableMachine.restore


class Later(Map):
    """From version 2 on commands are counted, too."""

    version = 2

    def apply(self, index: int, command: bytes) -> bytes:
        if self.version >= 2:
            self.cells[COUNT] = self.cells.get(COUNT, 0) + 1
        return super().apply(index, command)


class LaterAsked(Later, Asked):
    pass


class LaterTabled(Later, Tabled):
    pass


class Player:
    """One member with two callers, and a keeper if its host has one."""

    def __init__(self, world: World, history: History, bus: Bus, number: int) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.number = number
        self.calm = False
        self.replica: DurableReplica[Asked] | None = None
        self.later = upgraded(world) and world.now > LATER_S
        self._calls = 0
        self.tasks = [asyncio.create_task(self._live()), *[asyncio.create_task(self._call()) for _ in range(CALLERS)]]

    def note(self, what: str, id: tuple[int, int], body: bytes = b"") -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, NAME, id, body))
        self.world.note(what, self.bus.name, body)

    async def _live(self) -> None:
        try:
            if self.number < KEEPERS:
                await self._keep()
            while self.replica is None and not self.bus.closed:
                try:
                    self.replica = await self.bus.replica(NAME, KIND, durable=True, timeout=5.0)
                except (PluribusError, TimeoutError):
                    await asyncio.sleep(0.2)
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _keep(self) -> None:
        keeping = self.bus.keeping
        keeping._keeps = True
        former, later = (Tabled, LaterTabled) if self.world.seed % 2 else (Asked, LaterAsked)
        code = later if self.later else former
        host, options = self.world.hosts[self.number], {"settings": SETTINGS, "machines": {KIND: code}}
        try:
            await keeping.keep_in(await keeping.meeting(), host.disk, votes=True, voters=KEEPERS, **options)
        except Damaged:  # both copies of who it is have gone bad: it is given a new disk, as the sentence says
            host.change_disk()
            await keeping.keep_in(await keeping.meeting(), host.disk, votes=True, voters=KEEPERS, **options)

    async def _call(self) -> None:
        random = self.world.random
        while not (self.calm or self.bus.closed):
            await asyncio.sleep(random.random() * 0.3)
            if self.replica is not None and not self.bus.closed:
                await self.call_one(random.choice(KEYS), random.choice(TIMEOUTS_S))

    async def call_one(self, key: str, timeout: float | None, what: str = "") -> None:
        """Do one operation and record what the caller learns of it; after an uncertain answer it asks again, or gives
        up."""
        random, replica = self.world.random, self.replica
        if replica is None:
            return
        what = what or random.choice(("get", "get", "put", "cas", "add"))
        given = {"put": [random.randrange(5)], "cas": [random.randrange(5), random.randrange(5)], "add": [1]}.get(
            what, []
        )
        self._calls += 1
        identity = (int(self.bus.me), self._calls)
        self.note("call", identity, _encode([what, key, *given]))
        try:
            if what == "get" and random.random() < 0.7:
                result = _decode(await replica.query(key.encode(), timeout=timeout))
            else:
                result = _decode(await self._asked(replica, _encode([identity, what, key, *given]), timeout))
        except (NotPrimary, Refused):
            self.note("unanswered", identity)
        except PluribusError:
            pass  # nobody knows
        else:
            self.note("answer", identity, _encode([LIFE, result]))

    async def _asked(self, replica: DurableReplica[Asked], command: bytes, timeout: float | None) -> bytes:
        try:
            return await replica.call(command, timeout=timeout)
        except Uncertain as error:
            for _ in range(5):
                if self.world.random.random() < 0.3 or replica.closed:
                    break
                try:
                    return await replica.call(command, id=error.id, timeout=self.world.random.choice(TIMEOUTS_S))
                except (Uncertain, NotPrimary):
                    await asyncio.sleep(self.world.random.random())
            raise error


def upgraded(world: World) -> bool:
    """True if keepers get later code in this run."""
    return world.seed % 5 == 3


async def flip_at_one(world: World, restarted: Restarted) -> None:
    """Flip bits on the disk of one keeper only: damage on several disks at once can stop the keepers
    (``docs/durable.md``)."""
    world.flip_bit(len(world.hosts) % KEEPERS)


FAULTS = tuple(flip_at_one if fault is flip else fault for fault in EVERY_FAULT)


async def remove_lost(bus: Bus) -> None:
    """The operator: removes the vote of a voter whose disk is gone. Otherwise no machine could be made, because not all
    voters have announced that they have its code."""
    for _ in range(20):
        with suppress(PluribusError, TimeoutError):
            lost = [one.keeper for one in await bus.keepers.ls() if not one.here]
            for keeper in lost:
                await bus.keepers.remove(keeper)
            if not lost:
                return
        await asyncio.sleep(1)


async def raise_version(bus: Bus) -> None:
    for _ in range(20):
        with suppress(PluribusError, TimeoutError):
            await bus.replica(NAME, KIND, durable=True, version=Later.version, timeout=5.0)
            return
        await asyncio.sleep(1)
    raise Violation("the version cannot be raised, though all keepers have the code")


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, number)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin, every_s=1.0, faults=FAULTS)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S / 2)
    restore_primary(world)
    if world.network.faults["disk_lost"]:
        await remove_lost(next(iter(players.values())).bus)
    await asyncio.sleep(CALM_S)
    if upgraded(world):
        for number in [number for number in range(KEEPERS) if not players[number].later]:
            world.crash(number)
            await begin(number, await world.restart(number))
            players[number].calm = True
            await asyncio.sleep(5)
        await raise_version(players[0].bus)
    for player in players.values():
        for task in player.tasks:
            if not task.done():
                raise Violation(f"{player.bus.me!r} still waits {1.5 * CALM_S:g} s after the last fault")
            task.result()
        if player.replica is None:
            raise Violation(f"{player.bus.me!r} still has no replica {1.5 * CALM_S:g} s after the last fault")
    for key in KEYS:
        for player in players.values():
            await asyncio.wait_for(player.call_one(key, None, world.random.choice(("get", "add"))), 10)
    await asyncio.sleep(2)
    for player in players.values():
        if player.number < KEEPERS:
            machine = player.bus.keeping.machine_of(NAME)
            assert isinstance(machine, Map)
            player.note("end", (LIFE, 0), _encode(sorted(machine.cells.items())))
    history.add(Happening(world.now, 0, "settled", members=tuple(sorted(player.bus.me for player in players.values()))))
    world.validate()


def same_in_the_end(history: History) -> int:
    """All keepers end with the same state."""
    ends = {h.member: h.body for h in history.of("end")}
    if len(set(ends.values())) > 1:
        raise Violation(f"keepers end with {len(set(ends.values()))} different states")
    return sum(len(_decode(body)) for body in ends.values())


DURABLE_REPLICA = Scenario(
    "durable-replica",
    "a user's machine on the keepers' log, called by members that come and go, under every fault",
    STACK,
    play,
    {"linearizable": linearizable, "same_in_the_end": same_in_the_end},
    STRIKES,
    members_min=3,
    members_max=5,
    media=MEDIA,
)
