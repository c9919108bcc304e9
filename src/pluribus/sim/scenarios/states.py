"""States: groups of every order whose members hand their state to those who come, under every fault."""

from __future__ import annotations

import asyncio

import msgspec

from ...core.errors import PluribusError, Violation
from ...core.ids import MessageId
from ...group.state.line import Mark, Seens, ViewChange
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ..checkers.states import applied_once, heard, nothing_left_out, same_state
from ..machinery.chaos import STRIKES, ordeal
from ..machinery.history import Happening, History
from ..machinery.observer import Observer
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA

NAME = "notes"
TORMENT_S = 20.0
CALM_S = 30.0
LAST_ROUNDS = 20
PROMISES = ("fifo", "causal", "semantic", "total", "total safe")
"""The orders of groups; a seed has one of them."""
PADDING_BYTES = (0, 0, 10_000, 1_000_000)
"""Bytes that are added to the state, so that handing it on takes no time, or some."""

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(tuple[list[tuple[int, int]], bytes]).decode


class Notes:
    """What was applied, in order."""

    def __init__(self, player: Player, padding: bytes) -> None:
        self.applied: list[MessageId] = []
        self.padding = padding
        self.player = player

    def snapshot(self) -> bytes:
        return _encode((self.applied, self.padding))

    def restore(self, state: bytes) -> None:
        self.applied, self.padding = _decode(state)


class Player:
    """One member: sends, reads quickly or slowly, and now and then leaves and comes back as a new member."""

    def __init__(self, world: World, history: History, bus: Bus, promises: str, padding: int) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.promises = promises
        self.padding = padding
        self.calm = False
        self.group: Group | None = None
        self.notes = Notes(self, b"")
        self._count = 0
        Observer(bus, [NAME], lambda: world.now, history.add)
        self.task = asyncio.create_task(self._live())

    def note(self, what: str, id: MessageId = (0, 0), body: bytes = b"") -> None:
        promises = self.promises if what == "end" else ""
        self.history.add(Happening(self.world.now, self.bus.me, what, NAME, id, body, promises=promises))
        self.world.note(what, self.bus.name, str(id).encode())

    async def _live(self) -> None:
        random = self.world.random
        try:
            while not self.bus.closed:
                await self._open()
                until = self.world.now + 2 + random.random() * 20
                while self.world.now < until or self.calm:
                    await asyncio.sleep(random.random() * 0.2)
                    if self.calm:
                        return
                    for _ in range(random.randrange(1, 6)):
                        await self.send_one()
                assert self.group is not None, "opened above"
                group, self.group = self.group, None
                await group.close()
                await asyncio.sleep(random.random())
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _open(self) -> None:
        self.notes = Notes(self, bytes(self.padding))
        self.note("open")
        order, _, safe = self.promises.partition(" ")
        opening = asyncio.create_task(self.bus.group(NAME, order=order, safe=bool(safe), state=self.notes))
        await asyncio.sleep(0)  # the channel is there, and has seen no view yet
        self._watch()
        self.group = await opening
        asyncio.create_task(self._read(self.group, self.notes))  # noqa: RUF006 - it ends with the group

    def _watch(self) -> None:
        """Record where states begin: in a view in which the first member is alone and has no state; when a reader
        restores one; and when a member goes on with an older state because all members with a later one are gone."""
        channel = next((found for found in self.bus._dispatch.channels.values() if found.name == NAME), None)
        channel = channel or next(found for found, _ in self.bus._dispatch._again.values())
        transfer, notes = channel.state, self.notes
        assert transfer is not None, "opened with a state"
        resolve = transfer._resolve

        def restored(change: ViewChange, seens: Seens) -> None:
            self.note("restored", (change.point, 0), _encode(notes.applied))

        def resolved() -> None:
            if not transfer.has:
                last = [frame.change for frame in transfer._hold if isinstance(frame, Mark)][-1]
                self.note("founded", (last.point, 0))
            resolve()

        told = transfer.on_older

        def older(change: ViewChange) -> None:
            at, members = self.world.now, change.members
            self.history.add(Happening(at, self.bus.me, "older", NAME, (change.point, 0), members=members))
            told(change)

        transfer.on_older = older
        transfer._resolve = resolved  # type: ignore[method-assign]
        transfer.on_restored = restored

    async def _read(self, group: Group, notes: Notes) -> None:
        random = self.world.random
        slow = random.random() < 0.3
        async for message in group:
            if notes is self.notes:
                notes.applied.append((int(message.id[0]), message.id[1]))
                self.note("apply", notes.applied[-1])
            if slow and not self.calm and random.random() < 0.1:
                await asyncio.sleep(random.random() * 0.2)

    async def send_one(self) -> None:
        if self.group is None:
            return
        self._count += 1
        at = self.world.now
        sent = await self.group.send(b"%d/" % self._count * self.world.random.randrange(1, 20))
        self.history.add(Happening(at, self.bus.me, "send", NAME, (int(sent[0]), sent[1])))


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    promises, padding = world.random.choice(PROMISES), world.random.choice(PADDING_BYTES)

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, promises, padding)

    await ordeal(world, players, begin, TORMENT_S, CALM_S, "for its state or to send")
    for player in players.values():
        if player.group is None:
            raise Violation(f"{player.bus.me!r} has no group {CALM_S:g} s after the last fault")
    history.add(Happening(world.now, 0, "settled"))
    await asyncio.sleep(0.001)
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            await player.send_one()
    await asyncio.sleep(2)
    for player in players.values():
        player.note("end", body=_encode(player.notes.applied))
    world.validate()


STATES = Scenario(
    "states",
    "groups of every order that hand their state to joiners, under every fault",
    VIEWS,
    play,
    {
        "applied_once": applied_once,
        "nothing_left_out": nothing_left_out,
        "same_state": same_state,
        "heard": heard,
    },
    STRIKES,
    media=MEDIA,
    promises=PROMISES,
)
