"""Replica: a replicated map under every fault, with members that come and go and callers that give up and ask again."""

from __future__ import annotations

import asyncio

import msgspec

from ...core.errors import NotPrimary, PluribusError, Uncertain, Violation
from ...group.state.line import ViewChange
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.replica import Replica
from ..checkers.linearizability import linearizable
from ..checkers.replicas import Fold, answered, digest, folded, once, one_sequence, same_in_the_end
from ..machinery.chaos import STRIKES, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA

NAME = "map"
KEYS = tuple("abcdefghijklmnop")
CALLERS = 2
TORMENT_S = 20.0
CALM_S = 30.0
FOUNDERS = 3
STACK = VIEWS.replace("membership", f"membership(founders={FOUNDERS})")
TIMEOUTS_S = (None, None, 3.0, 0.5, 0.05, 0.0)

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class Map(Fold):
    """The machine: cells by key. A command is [identity, what, key, arguments...]."""

    def __init__(self) -> None:
        self.cells: dict[str, int] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        _, what, key, *given = _decode(command)
        was = self.cells.get(key)
        if what == "put":
            self.cells[key] = given[0]
            return _encode(None)
        if what == "add":
            self.cells[key] = (was or 0) + given[0]
            return _encode(self.cells[key])
        if what == "cas" and was == given[0]:
            self.cells[key] = given[1]
        return _encode(was == given[0] if what == "cas" else was)

    def snapshot(self) -> bytes:
        return _encode(sorted(self.cells.items()))

    def restore(self, state: bytes) -> None:
        self.cells = dict(_decode(state)) if state else {}


class Watched(Map):
    """One member's copy of the map, which records every operation."""

    def __init__(self, player: Player) -> None:
        super().__init__()
        self.player = player

    def apply(self, index: int, command: bytes) -> bytes:
        life = self.player.life(index)
        self.player.note("apply", (life, index), command)
        result = super().apply(index, command)
        self.player.note("after", (life, index + 1), digest(self.snapshot()))
        return result

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.player.restored()
        index = self.player.index
        self.player.note("state", (self.player.life(index), index), digest(self.snapshot()))


class Player:
    """One member with two callers; now and then it closes the replica and opens it again, as a new member."""

    def __init__(self, world: World, history: History, bus: Bus) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self.replica: Replica[Watched] | None = None
        self._calls = 0
        self._life = 0
        self.tasks = [asyncio.create_task(self._live()), *[asyncio.create_task(self._call()) for _ in range(CALLERS)]]

    def life(self, index: int) -> int:
        """The generation of the replica now. A new one is recorded first: that it began here, or that it goes on in
        another chain of primaries, with the state that it has."""
        replica = self.bus._replicas[NAME]
        life, transfer = replica.generation, replica._channel.state
        if life != self._life:
            if self._life:
                self.note("reborn", (life, index), _encode([self._life, sorted(replica.machine.cells.items())]))
            elif transfer is not None and transfer.founded:
                self.note("began", (life, 0), members=tuple(replica.view.members))
            self._life = life
        return life

    def restored(self) -> None:
        self._life = self.bus._replicas[NAME].generation

    @property
    def index(self) -> int:
        return self.bus._replicas[NAME].applied

    def note(self, what: str, id: tuple[int, int], body: bytes = b"", members: tuple[int, ...] = ()) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, NAME, id, body, members))
        self.world.note(what, self.bus.name, body)

    async def _live(self) -> None:
        random = self.world.random
        try:
            while not self.bus.closed:
                self.replica = await self.bus.replica(NAME, Watched(self))
                self.life(self.index)
                self._watch(self.replica)
                await asyncio.sleep(2 + random.random() * 20)
                if self.calm:
                    return
                replica, self.replica = self.replica, None
                self.note("gone", (0, 0))
                self._life = 0
                await replica.close()
                await asyncio.sleep(random.random())
        except PluribusError:
            if not self.bus.closed:
                raise

    def _watch(self, replica: Replica[Watched]) -> None:
        """Record at once that a generation goes on with an older state: this member may hand it to others and leave
        before it applies anything."""
        transfer = replica._channel.state
        assert transfer is not None, "replicas have a state"
        told = transfer.on_older

        def older(change: ViewChange) -> None:
            told(change)
            self.life(self.index)

        transfer.on_older = older

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
                result = await replica.read(lambda machine: machine.cells.get(key), timeout=timeout)
            else:
                result = _decode(await self._asked(replica, _encode([identity, what, key, *given]), timeout))
        except NotPrimary:
            self.note("refused", identity)
        except PluribusError:
            pass  # nobody knows
        else:
            self.note("answer", identity, _encode([replica.generation, result]))

    async def _asked(self, replica: Replica[Watched], command: bytes, timeout: float | None) -> bytes:
        """Call, and mostly call again after an uncertain answer; from then on not even ``NotPrimary`` is certain."""
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


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, TORMENT_S, begin, every_s=1.0)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S / 2)
    restore_primary(world)
    await asyncio.sleep(CALM_S / 2)
    for player in players.values():
        for task in player.tasks:
            if not task.done() and task is not player.tasks[0]:
                raise Violation(f"{player.bus.me!r} still waits for an answer {CALM_S:g} s after the last fault")
            if task.done():
                task.result()
        if player.replica is None:
            raise Violation(f"{player.bus.me!r} still has no replica {CALM_S:g} s after the last fault")
    history.add(Happening(world.now, 0, "settled", members=tuple(sorted(player.bus.me for player in players.values()))))
    await asyncio.sleep(0.001)
    for key in KEYS:
        for player in players.values():
            await asyncio.wait_for(player.call_one(key, None, world.random.choice(("get", "add"))), 5)
    await asyncio.sleep(1)
    for player in players.values():
        assert player.replica is not None, "seen above"
        player.note("end", (player.life(player.index), player.index), player.replica.machine.snapshot())
    world.validate()


def identity_of(command: bytes) -> object:
    return tuple(_decode(command)[0])


REPLICA = Scenario(
    "replica",
    "a replicated map whose members come and go, under every fault",
    STACK,
    play,
    {
        "linearizable": linearizable,
        "one_sequence": one_sequence,
        "once": once(identity_of),
        "folded": folded(Map),
        "same_in_the_end": same_in_the_end,
        "answered": answered,
    },
    STRIKES,
    members_min=3,
    members_max=5,
    media=MEDIA,
)
