"""Founding: processes start while the members of the primary are paused, are connected to late, or are being restarted.

Five worlds, by seed. On *one machine* a lock decides: pauses, late connections and partitions may have any length, and
``founders=1`` is enough. Where members are always *heard* within the time for which a starting process listens,
``founders=1`` is enough as well. With several *founders* any fault may happen, as long as fewer processes than that
start at a time without reaching the primary. *Apart*, with ``founders=1``, two primaries do arise; then each member
that loses something must be told.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from ...core.errors import Excluded, PluribusError, Violation
from ...core.ids import MessageId
from ...events import Dissolved, Event
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ...runtime.group.replica import Replica
from ..checkers.founding import APART, alike, kept, told
from ..machinery import chaos
from ..machinery.chaos import CALM, Fault, Restarted
from ..machinery.history import Happening, History
from ..machinery.network import Link, Medium, faulty_link
from ..machinery.world import World
from . import Scenario

TORMENT_S = 20.0
PAUSE_S_MAX = 6.0
CALM_S = 30.0
LISTEN_S = 1.5
HEARD_S = 0.5
"""Seconds for which members are paused, or connected to late, in a world in which a starting process hears all members
in time."""
CALLS, MESSAGES = "calls", "messages"
TIMEOUT_S = 3.0

ONE_MACHINE, HEARD, FOUNDERS = "one machine", "heard", "founders"
WORLDS = (
    (ONE_MACHINE, Medium(machines=1)),
    (ONE_MACHINE, Medium(broadcasts=False, machines=1)),
    (HEARD, Medium(listen_s=LISTEN_S)),
    (FOUNDERS, Medium(listen_s=LISTEN_S)),
    (FOUNDERS, Medium(broadcasts=False, machines=2, listen_s=LISTEN_S)),
    (APART, Medium(listen_s=0.0)),
)

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[MessageId]).decode
_decode_token = msgspec.msgpack.Decoder(MessageId).decode


def kind_of(seed: int) -> str:
    return WORLDS[seed % len(WORLDS)][0]


def founders_of(seed: int, members: int) -> int:
    return members // 2 + 1 if kind_of(seed) == FOUNDERS else 1


def stack_of(seed: int, members: int) -> str:
    return VIEWS.replace("membership", f"membership(founders={founders_of(seed, members)})")


class Tokens:
    """The tokens that one member has: the machine of a replica, and the state of a group."""

    def __init__(self, player: Player, name: str) -> None:
        self.had: dict[MessageId, None] = {}
        self._player = player
        self._name = name

    def apply(self, index: int, command: bytes) -> bytes:
        token = _decode_token(command)
        self.had[token] = None
        self._player.note("gets", self._name, token)
        return b""

    def snapshot(self) -> bytes:
        return _encode(list(self.had))

    def restore(self, state: bytes) -> None:
        self.had = dict.fromkeys(_decode(state))
        self._player.note("has", self._name, body=state)


class Player:
    """One process: calls a replica and sends to a safe group with a state, and records what is acknowledged."""

    def __init__(self, world: World, history: History, bus: Bus) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self.states = {name: Tokens(self, name) for name in (CALLS, MESSAGES)}
        self.replica: Replica[Tokens] | None = None
        self._count = 0
        self._confirmed: dict[MessageId, MessageId] = {}
        bus.on_event(self._told)
        self.tasks = [asyncio.create_task(self._call()), asyncio.create_task(self._send())]

    def note(
        self, what: str, name: str, id: MessageId = (0, 0), body: bytes = b"", own: MessageId | None = None
    ) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, name, id, body, parent=own))
        self.world.note(what, self.bus.name, str(id).encode())

    def _told(self, event: Event) -> None:
        if isinstance(event, Dissolved):
            self.note("dissolved", event.what, body=_encode(event.ids))

    def _new_token(self) -> MessageId:
        self._count += 1
        return (int(self.bus.me), self._count)

    async def _call(self) -> None:
        try:
            self.replica = replica = await self.bus.replica(CALLS, self.states[CALLS])
            while not (self.calm or self.bus.closed):
                await asyncio.sleep(self.world.random.random() * 0.3)
                token, call = self._new_token(), replica.new_id()
                try:
                    await replica.call(_encode(token), id=call, timeout=TIMEOUT_S)
                except PluribusError:
                    continue  # nobody said that it was kept
                self.note("acknowledged", CALLS, token, own=call)
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _send(self) -> None:
        try:
            group = await self.bus.group(MESSAGES, safe=True, state=self.states[MESSAGES])
            reading = asyncio.create_task(self._read(group))
            while not (self.calm or self.bus.closed):
                await asyncio.sleep(self.world.random.random() * 0.3)
                token = self._new_token()
                try:
                    sent = await group.send(_encode(token), wait="stable", timeout=TIMEOUT_S)
                except PluribusError:
                    continue
                self._confirmed[token] = sent
                self._acknowledge(token)
            if self.bus.closed:
                reading.cancel()
        except PluribusError:
            if not self.bus.closed:
                raise

    def _acknowledge(self, token: MessageId) -> None:
        """Acknowledge a token: its message is acknowledged when all members have it, and this member has received it in
        its order."""
        if token in self._confirmed and token in self.states[MESSAGES].had:
            self.note("acknowledged", MESSAGES, token, own=self._confirmed.pop(token))

    async def _read(self, group: Group) -> None:
        while not group.closed:
            try:
                async for message in group:
                    self.states[MESSAGES].apply(0, message.body)
                    self._acknowledge(_decode_token(message.body))
            except Excluded:
                continue

    def end(self) -> None:
        for name, state in self.states.items():
            self.note("end", name, body=state.snapshot())


async def play(world: World, history: History) -> None:
    kind = kind_of(world.seed)
    if kind == APART:
        history.add(Happening(0.0, 0, APART))
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    world.set_link(faulty_link(world.random, 0.3))
    end = world.now + TORMENT_S
    while world.now < end:
        await asyncio.sleep(world.random.random() * 1.2)
        await world.random.choice(FAULTS[kind])(world, begin)
    await _calm_down(world, begin)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(CALM_S / 2)
    _founded(world)
    chaos.restore_primary(world)
    await asyncio.sleep(CALM_S / 2)
    for player in players.values():
        for task in player.tasks:
            if not task.done():
                raise Violation(f"{player.bus.me!r} still waits to be in a primary {CALM_S:g} s after the last fault")
            task.result()
    history.add(Happening(world.now, 0, "settled", members=tuple(sorted(player.bus.me for player in players.values()))))
    for player in players.values():
        player.end()
    world.validate()


def _founded(world: World) -> None:
    """If no process was ever in a primary, or had agreed to one, a primary must have been founded by now."""
    starting = [chaos._membership_of(bus)._unfounded for bus in world.buses]
    if all(starting) and len(starting) >= founders_of(world.seed, len(world.hosts)):
        raise Violation(f"{len(starting)} members are there {CALM_S / 2:g} s after the last fault, and nobody founds")


async def _calm_down(world: World, begin: Restarted) -> None:
    """Wait until all paused members run, before any process starts: it could not hear paused ones."""
    world.heal()
    world.network.clear_links()
    world.set_link(CALM)
    for host in world.hosts:
        host.drift(1.0)
    await asyncio.sleep(PAUSE_S_MAX)
    for number, host in enumerate(world.hosts):
        if not host.up:
            await begin(number, await world.restart(number))


# Faults


async def restart(world: World, begin: Restarted, late_s: float = 0.0) -> None:
    """Restart a process. At first it is cut off in both directions, as if all had to connect to it anew."""
    down = [number for number, host in enumerate(world.hosts) if not host.up]
    starting = [bus for bus in world.buses if chaos._membership_of(bus)._unfounded]
    few = kind_of(world.seed) != FOUNDERS or len(starting) + 1 < founders_of(world.seed, len(world.hosts))
    if not down or not few:
        return
    number = world.random.choice(down)
    late_s *= world.random.random()
    if late_s:
        world.faults["late"] += 1
        _reach(world, number, Link(loss=1.0))
    await begin(number, await world.restart(number))
    if late_s:
        await asyncio.sleep(late_s)
        world.network.clear_links()


def _reach(world: World, number: int, link: Link) -> None:
    for other in range(len(world.hosts)):
        if other != number:
            world.set_link(link, number, other)
            world.set_link(link, other, number)


async def pause(world: World, begin: Restarted, most_s: float = PAUSE_S_MAX) -> None:
    world.pause(world.random.randrange(len(world.hosts)), world.random.random() * most_s)


async def pause_all(world: World, begin: Restarted, most_s: float = PAUSE_S_MAX) -> None:
    """Pause all members; a process that starts now hears none of them."""
    for number in range(len(world.hosts)):
        world.pause(number, world.random.random() * most_s)
    await restart(world, begin)


LATE, SLOW = partial(restart, late_s=5.0), partial(restart, late_s=HEARD_S)
ANYTHING: tuple[Fault, ...] = (
    *(chaos.crash, chaos.crash, restart, LATE, LATE, pause, pause_all),
    *(chaos.drift, chaos.partition, chaos.heal, chaos.bad_links, chaos.good_links),
)
FAULTS: dict[str, tuple[Fault, ...]] = {
    ONE_MACHINE: ANYTHING,
    HEARD: (
        *(chaos.crash, chaos.crash, restart, SLOW, SLOW, chaos.drift),
        *(partial(pause, most_s=HEARD_S), partial(pause_all, most_s=HEARD_S)),
    ),
    FOUNDERS: ANYTHING,
    APART: ANYTHING,
}

FOUNDING = Scenario(
    "founding",
    "processes that start while the primary cannot be heard",
    stack_of,
    play,
    {"kept": kept, "told": told, "alike": alike},
    ("crash", "restart", "pause", "late", "drift", "partition", "heal", "cut", "loss", "together"),
    members_min=3,
    members_max=5,
    media=tuple(medium for _, medium in WORLDS),
)
