"""Messages that change their format between two queues while members crash and keepers fail.

Every member sends to the queue ``incoming``, and every member has a transformer that moves messages to ``orders``: so
they compete, and a member that dies leaves some messages in doubt. One message in six is no JSON.
"""

from __future__ import annotations

import asyncio

import msgspec

from ...core.errors import Damaged, NotTransformed, PluribusError, Violation
from ...runtime.bus import VIEWS, Bus
from ...runtime.styles.queues.queue import MessageQueue
from ...transformations.registry import transformation
from ..checkers.transformations import failures_kept, moved_once, transformed_whole
from ..machinery.chaos import STRIKES, restore_primary, torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario
from .spaces import FAULTS, KEEPERS, SETTINGS

TORMENT_S = 15.0
CALM_S = 60.0
MESSAGES_MAX = 60
"""Messages that a member sends in one life."""
CHAIN = "json > simulated.tripled > msgpack"

_encode = msgspec.msgpack.encode


@transformation("simulated.tripled")
async def tripled(value: object) -> object:
    """A slow function of a chain, so that members die while it runs."""
    if not isinstance(value, int):
        raise NotTransformed(f"{value!r} is no number")
    await asyncio.sleep(0.02)
    return 3 * value


class Player:
    """One life of one member: it keeps, sends and transforms."""

    def __init__(self, play: Play, bus: Bus, number: int) -> None:
        self.play = play
        self.bus = bus
        self.number = number
        self.keeping = asyncio.create_task(self._keep())
        self.tasks = [asyncio.create_task(self._lives(self._send)), asyncio.create_task(self._lives(self._transform))]

    async def _keep(self) -> None:
        if self.number >= KEEPERS:
            return
        keeping, host = self.bus.keeping, self.play.world.hosts[self.number]
        keeping._keeps = True
        try:
            try:
                await keeping.keep_in(await keeping.meeting(), host.disk, votes=True, voters=KEEPERS, settings=SETTINGS)
            except Damaged:  # both copies of who it is have gone bad: it is given a new disk, as the sentence says
                host.change_disk()
                await keeping.keep_in(await keeping.meeting(), host.disk, votes=True, voters=KEEPERS, settings=SETTINGS)
        except PluribusError:
            if not self.bus.closed:  # this life was over before it kept anything
                raise

    async def _lives(self, act: object) -> None:
        """Try again whatever fails, until this life or the run is over."""
        assert callable(act)
        while not self.bus.closed and not self.play.over:
            try:
                await act()
                return
            except (PluribusError, TimeoutError):
                await asyncio.sleep(0.2)

    async def _send(self) -> None:
        random, play = self.play.world.random, self.play
        incoming = await self.bus.queue("incoming", timeout=20.0)
        for _ in range(MESSAGES_MAX):
            await asyncio.sleep(random.random() * 0.4)
            if play.calm or self.bus.closed:
                return
            number = play.next_number()
            good = random.random() < 5 / 6
            play.note("sending", number, good)
            await incoming.send(str(number) if good else f"{number} is no JSON", key=f"key {number % 5}")
            play.note("sent", number, good)

    async def _transform(self) -> None:
        await self.bus.transformer("incoming", "orders", CHAIN).run()


class Play:
    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.calm = self.over = False
        self.players: dict[int, Player] = {}
        self._numbers = 0

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def note(self, what: str, number: int, body: object) -> None:
        self.history.add(Happening(self.world.now, 0, what, "kept", (number, 0), _encode(body)))

    async def begin(self, number: int, bus: Bus) -> None:
        self.players[number] = Player(self, bus, number)

    async def settled(self, incoming: MessageQueue) -> None:
        """Returns when every message has been moved, or is a dead letter."""
        try:
            async with asyncio.timeout(3 * CALM_S):
                while (await incoming.stats()).depth:  # noqa: ASYNC110 - keepers tell nobody
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise Violation(f"messages still wait {3 * CALM_S:g} s after the last fault") from None


async def play(world: World, history: History) -> None:
    playing = Play(world, history)
    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await playing.begin(number, host.bus)
    await torment(world, TORMENT_S, playing.begin, every_s=1.0, faults=FAULTS)
    playing.calm = True
    await asyncio.sleep(CALM_S / 2)
    restore_primary(world)
    for player in playing.players.values():
        await player.keeping
    bus = playing.players[0].bus
    incoming, orders = await bus.queue("incoming", timeout=CALM_S), await bus.queue("orders", timeout=CALM_S)
    await playing.settled(incoming)
    async for message in orders.browse():
        playing.note(
            "moved", msgspec.msgpack.decode(message.body) // 3, [msgspec.msgpack.decode(message.body), message.key]
        )
    async for message in incoming.browse(dead=True):
        playing.note("dead", int(str(message.body).split()[0]), message.reason)
    playing.over = True
    for player in playing.players.values():
        for task in player.tasks:
            task.cancel()
    world.validate()


TRANSFORMATIONS = Scenario(
    "transformations",
    "messages change their format between two queues, by transformers that compete and die",
    VIEWS,
    play,
    {"moved_once": moved_once, "transformed_whole": transformed_whole, "failures_kept": failures_kept},
    STRIKES,
    members_min=3,
    members_max=5,
)
