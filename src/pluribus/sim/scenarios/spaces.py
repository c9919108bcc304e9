"""Tuple spaces of all three kinds, on whole buses: workers write, read, take and wait while every fault strikes.

The first three hosts keep the replicated space on their disks. All members make the other two: the fourth has no
replica of the space of the kind *views*, the fifth keeps no range of the partitioned one, of which there are one or two
copies. Members crash, are restarted as new ones, leave in order and come back. Some listen to registrations, and go on
with those of others that have crashed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...core.errors import Closed, Damaged, LeaseEnded, PluribusError, Refused, Violation
from ...group.keepers import Settings
from ...runtime.bus import VIEWS, Bus
from ...runtime.keepers.keeper import BusKeeper
from ...runtime.styles.spaces.space import Space
from ...runtime.styles.spaces.spaces import KINDS
from ..checkers.spaces import (
    cancelled_are_gone,
    crashed,
    events_told,
    leases_end,
    linearizable,
    not_invented,
    not_lost,
    own_writes_seen,
    taken_once,
)
from ..machinery.chaos import EVERY_FAULT, STRIKES, Restarted, flip, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario

KEEPERS = 3
TORMENT_S = 15.0
CALM_S = 40.0
NAMES = ("a", "b")
CELLS = ("c0", "c1")
OPERATIONS_MAX = 40
"""The operations of one worker in one kind of space."""
LEASED = "l"
"""The name of tuples that are written with a lease."""
MOVED = "m"
"""The name of tuples that transactions take and write: meanwhile they are hidden."""
MOVE_S = 4.0
"""Seconds for which a transaction acts."""
LEASE_S = 2.0
LISTENERS_MAX = 4
"""Registrations of one kind."""
QUIET_S = 5.0
"""Seconds without an event after which there are no more."""
SETTINGS = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=20_000, slack_rows=6)


async def flip_first(world: World, restarted: Restarted) -> None:
    """Flip a bit of the first keeper's disk only: a row that is damaged on two keepers of three has no majority. The
    scenarios of keepers test that."""
    world.flip_bit(0)


FAULTS = tuple(flip_first if fault is flip else fault for fault in EVERY_FAULT)

_encode = msgspec.msgpack.encode


class Heard(msgspec.Struct, eq=False):
    """A registration, and the player who listens to it."""

    index: int
    number: int
    player: Player
    ended: bool = False


class Player:
    """One member: a worker at each of the three spaces, and perhaps a listener."""

    def __init__(self, play: Play, bus: Bus, number: int) -> None:
        self.play = play
        self.world = play.world
        self.bus = bus
        self.number = number
        self.spaces: dict[str, Space] = {}
        self.tasks = [asyncio.create_task(self._live())]
        self.listening = [asyncio.create_task(self._listen(kind)) for kind in KINDS]

    def note(self, what: str, kind: str, id: tuple[int, int] = (0, 0), body: Any = None) -> None:
        encoded = _encode(body)
        self.play.history.add(Happening(self.world.now, int(self.bus.me), what, kind, id, encoded))
        self.world.note(what, kind, repr(id).encode() + encoded)

    async def _live(self) -> None:
        try:
            if self.number < KEEPERS:
                await self._keep()
            await asyncio.gather(*[self._work(kind) for kind in KINDS])
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _keep(self) -> None:
        keeping = self.bus.keeping
        keeping._keeps = True
        host = self.world.hosts[self.number]
        options: Any = {"votes": True, "voters": KEEPERS, "settings": SETTINGS}
        try:
            keeper = await keeping.keep_in(await keeping.meeting(), host.disk, **options)
        except Damaged:  # both copies of who it is have gone bad: it is given a new disk, as the sentence says
            host.change_disk()
            keeper = await keeping.keep_in(await keeping.meeting(), host.disk, **options)
        old = self.play.keepers.get(self.number, keeper.keeper.id)
        self.play.keepers[self.number] = keeper.keeper.id
        if old != keeper.keeper.id:
            self.tasks.append(asyncio.create_task(self._replace(keeper, old)))

    async def _replace(self, keeper: BusKeeper, old: int) -> None:
        """What somebody does who looks after the keepers: the lost one has no vote any more."""
        while not self.bus.closed:
            try:
                await keeper.set_voter(old, False)
                return
            except (PluribusError, TimeoutError):
                await asyncio.sleep(0.5)

    async def _open(self, kind: str) -> Space:
        without = {"views": 3, "partitioned": 4}
        while True:
            try:
                space = await self.bus.space(
                    kind,
                    kind=kind,
                    durable=kind == "replicated",
                    replica=self.number != without.get(kind),
                    copies=1 + self.world.seed % 2 if kind == "partitioned" else 1,
                    timeout=20.0,
                )
            except (PluribusError, TimeoutError):
                if self.bus.closed:
                    raise Closed("it crashed") from None
                await asyncio.sleep(0.2)
                continue
            if kind != "replicated":
                space.on_lost(lambda ranges: self.note("lost", kind, body=sorted(ranges)))
                self.note("generation", kind, (space.stats()["generation"], 0))
            if kind == "views":
                space.on_void(lambda value: self.note("void", kind, body=value))
            self.spaces[kind] = space
            return space

    async def _work(self, kind: str) -> None:
        random = self.world.random
        space = await self._open(kind)
        for _ in range(OPERATIONS_MAX):
            if self.play.calm or self.bus.closed:
                return
            await asyncio.sleep(random.random() * 0.6)
            if random.random() < 0.03 and kind != "replicated":
                await space.flush()
                await space.close()
                space = await self._open(kind)
            await self._one(space, kind)

    async def _one(self, space: Space, kind: str) -> None:
        random = self.world.random
        dice = random.random()
        if dice < 0.37:
            value = (random.choice(NAMES + CELLS), self.play.next_value())
            await self.call(space, kind, "write", value)
            if random.random() < 0.3:
                await self.call(space, kind, "own", value)
        elif dice < 0.55:
            name = random.choice((*NAMES, ""))
            await self.call(space, kind, "take", (name,), random.choice((0.3, 1.0, 3.0)))
        elif dice < 0.67:
            await self.call(space, kind, "take_now", (random.choice(NAMES + CELLS),))
        elif dice < 0.78:
            await self.call(space, kind, "read_now", (random.choice(NAMES + CELLS),))
        elif dice < 0.91:
            await self.lease(space, kind, (LEASED, self.play.next_value()))
        elif dice < 0.95:
            await self.replace(space, kind, random.choice(NAMES + CELLS))
        elif dice < 0.97:
            await self.call(space, kind, "read", (random.choice(NAMES),), 1.0)
        elif dice < 0.98 or kind != "replicated":
            await space.flush()
            self.note("flushed", kind)
        else:
            await self.move(space, kind)

    def begin(self, kind: str, what: str, given: tuple[Any, ...], twin: int = 0) -> tuple[int, int]:
        """Note that a call begins. ``twin``: the other half of what happens in one step with it."""
        id = (int(self.bus.me), self.play.next_value())
        self.note("call", kind, id, [what, given, twin])
        return id

    async def lease(self, space: Space, kind: str, value: tuple[Any, ...]) -> None:
        """Write a tuple with a lease; perhaps renew the lease, or end it."""
        id = self.begin(kind, "write_leased", value)
        cancelled: tuple[int, int] | None = None
        try:
            lease = await space.write(value, lease=LEASE_S)
            self.note("answer", kind, id)
            if self.world.random.random() < 0.5:
                await lease.renew(LEASE_S)
            if self.world.random.random() < 0.6:
                cancelled = self.begin(kind, "cancel", value)
                await lease.cancel()
                self.note("answer", kind, cancelled, value)
        except LeaseEnded:
            if cancelled is not None:
                self.note("answer", kind, cancelled)
        except PluribusError:
            return  # nobody knows

    async def replace(self, space: Space, kind: str, name: str) -> None:
        value = (name, self.play.next_value())
        written = self.begin(kind, "write", value)
        taken = self.begin(kind, "take_now", (name,), written[1])
        try:
            found = await space.replace((name, int), value, timeout=0)
        except TimeoutError:
            self.note("undone", kind, written)
            self.note("answer", kind, taken)
        except PluribusError:
            return
        else:
            self.note("answer", kind, written)
            self.note("answer", kind, taken, found)

    async def move(self, space: Space, kind: str) -> None:
        """Take a tuple and write another in a transaction, which may be aborted, or end with this member."""
        value = (MOVED, self.play.next_value())
        written = self.begin(kind, "write", value)
        taken = self.begin(kind, "take_now", (MOVED,), written[1])
        random = self.world.random
        try:
            async with self.bus.transaction(timeout=MOVE_S) as tx:
                found = await space.take_if_exists((MOVED, int), timeout=random.choice((0, 1.0)), transaction=tx)
                await space.write(value, transaction=tx)
                await asyncio.sleep(random.random())
                if random.random() < 0.2:
                    raise Refused("it is aborted")
        except Refused as error:
            if str(error) == "it is aborted":
                self.note("undone", kind, written)
                self.note("undone", kind, taken)
        except (PluribusError, TimeoutError):
            return
        else:
            self.note("answer", kind, written)
            self.note("answer", kind, taken, found)

    async def call(self, space: Space, kind: str, what: str, given: tuple[Any, ...], timeout: float = 0.0) -> Any:
        """Do one operation, and record what its caller learns."""
        id = self.begin(kind, what, given)
        name = given[0] or str
        # Without a name it could match a cell, and nobody waits for those.
        where = "" if given[0] else "f0 < 'c'"
        result: Any = None
        try:
            if what == "write":
                await space.write(given)
            elif what == "own":
                result = await space.read_if_exists(given)
            elif what == "take_now":
                result = await space.take_if_exists((name, int), where)
            elif what == "read_now":
                result = await space.read_if_exists((name, int), where)
            elif what == "take":
                result = await space.take((name, int), where, timeout=timeout)
            else:
                result = await space.read((name, int), where, timeout=timeout)
        except TimeoutError:
            pass
        except PluribusError:
            return None  # nobody knows
        self.note("answer", kind, id, result)
        return result

    # Events.

    async def _listen(self, kind: str) -> None:
        """Listen to a new registration, or to one of a player that is gone."""
        heard: Heard | None = None
        while not self.bus.closed:
            space = self.spaces.get(kind)
            if space is None or space.closed:
                await asyncio.sleep(0.2)
                continue
            try:
                if heard is None:
                    heard = self.play.left_alone(kind, self) or await self._registered(space, kind)
                if heard is None:
                    return
                await self.hear(space, heard)
                return
            except (PluribusError, TimeoutError):
                await asyncio.sleep(0.2)

    async def _registered(self, space: Space, kind: str) -> Heard | None:
        known = self.play.heard[kind]
        if len(known) >= LISTENERS_MAX:
            return None
        registration = await space.notify((str, int))
        known.append(Heard(self.play.next_value(), registration.number, self))
        self.note("registered", kind, (known[-1].index, 0))
        return known[-1]

    async def hear(self, space: Space, heard: Heard, quiet_s: float | None = None) -> None:
        """Note the events of a registration, until it is over, or until there are none for a while."""
        listening = (heard.index, self.play.next_value())
        try:
            events = aiter(await space.resume(heard.number))
            while True:
                event = await asyncio.wait_for(anext(events), quiet_s)
                self.note("event", space.kind, listening, [event.value, event.missed, event.gap])
        except LeaseEnded:
            heard.ended = True
            self.note("ended", space.kind, listening)
        except TimeoutError:
            if quiet_s is None:
                raise

    async def drain(self, kind: str) -> None:
        """Take all tuples that are left."""
        space = self.spaces[kind]
        for name in (*NAMES, *CELLS, LEASED, MOVED):
            while await self.call(space, kind, "take_now", (name,)) is not None:
                pass


class Play:
    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.calm = False
        self.players: dict[int, Player] = {}
        self.keepers: dict[int, int] = {}
        """By host: the keeper on its disk."""
        self.heard: dict[str, list[Heard]] = {kind: [] for kind in KINDS}
        self._values = 0

    def left_alone(self, kind: str, player: Player) -> Heard | None:
        """A registration whose listener has crashed: this player listens to it from now on."""
        for heard in self.heard[kind]:
            if heard.player.bus.closed and not heard.ended and self.world.random.random() < 0.7:
                heard.player = player
                return heard
        return None

    def next_value(self) -> int:
        self._values += 1
        return self._values

    async def begin(self, number: int, bus: Bus) -> None:
        before = self.players.get(number)
        if before is not None:
            self.history.add(crashed(int(before.bus.me), self.world.now))
        self.players[number] = Player(self, bus, number)


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await playing.begin(number, host.bus)
    await torment(world, TORMENT_S, playing.begin, every_s=1.0, faults=FAULTS)
    playing.calm = True
    await asyncio.sleep(CALM_S / 2)
    if not any(bus.primary for bus in world.buses):
        for kind in KINDS[1:]:
            history.add(Happening(world.now, 0, "lost", kind))
        history.add(Happening(world.now, 0, "forced"))
    restore_primary(world)
    await asyncio.sleep(CALM_S)
    for player in playing.players.values():
        for task in player.tasks:
            if not task.done():
                raise Violation(f"{player.bus.me!r} still works {1.5 * CALM_S:g} s after the last fault")
            task.result()
        missing = set(KINDS) - set(player.spaces)
        if missing:
            raise Violation(f"{player.bus.me!r} has no space {missing} {1.5 * CALM_S:g} s after the last fault")
    for kind in KINDS:
        first = next(iter(playing.players.values()))
        await asyncio.wait_for(first.drain(kind), 60)
        for listener in playing.players.values():
            listener.listening[KINDS.index(kind)].cancel()
        for heard in playing.heard[kind]:
            if not heard.ended:
                await asyncio.wait_for(first.hear(first.spaces[kind], heard, QUIET_S), 60)
    world.validate()


SPACES = Scenario(
    "spaces",
    "tuple spaces, replicated, by views and partitioned, under crashes, partitions, pauses, joins and leaves",
    VIEWS,
    play,
    {
        "taken_once": taken_once,
        "not_invented": not_invented,
        "not_lost": not_lost,
        "own_writes_seen": own_writes_seen,
        "linearizable": linearizable,
        "leases_end": leases_end,
        "cancelled_are_gone": cancelled_are_gone,
        "events_told": events_told,
    },
    STRIKES,
    members_min=3,
    members_max=5,
)
