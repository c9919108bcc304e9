"""Topics: members publish and subscribe in every way while everything goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from ...core.errors import Closed, Gap, PluribusError
from ...core.events import Dissolved, Reverted
from ...core.frame import Frame
from ...core.ids import number_of
from ...core.limits import PATH_BYTES_LOOPBACK
from ...pubsub.batch import Arrived, checked, decode_batch
from ...runtime.bus import VIEWS, Bus
from ...runtime.styles.topics.pubsub import GROUP, SAFE
from ...runtime.styles.topics.subscription import Subscription
from ...stack.events import Event, Members, ViewChanged
from ...wire.bodies import BYTES, EVENTS, decode_bodies
from ..checkers.topics import (
    RELIABLE,
    SHARED,
    TOTAL,
    agreed,
    arrived_in_the_end,
    asked_for,
    begun_once,
    complete,
    contiguous,
    finished_once,
    none_abandoned,
    none_forgotten,
    pattern_of,
    shared_once,
)
from ..machinery.chaos import EVERY_FAULT, STRIKES, crash, drift, good_links, ordeal, restart
from ..machinery.history import Happening, History
from ..machinery.network import Medium
from ..machinery.world import World
from . import Scenario

NAMES = ("a", "a/b", "a/c", "d")
WISHES = (
    (RELIABLE, "#"),
    (RELIABLE, "a/+"),
    (RELIABLE, "d"),
    (TOTAL, "a/#"),
    (SHARED, "+"),
)
WORK_S_MAX = 0.05
"""Seconds that the work on one event of a shared subscription takes, at most."""
SLOW_SHARE, SLOW_S_MAX = 0.05, 4.0
"""The share of the events of a shared subscription on which the work takes longer, and how long."""
GIVES_UP_SHARE, AWAY_S_MAX = 0.1, 4.0
"""The share of the times that a worker asks and does not wait for the event, but is away, and the seconds of that, at
most."""
LEAVES_SHARE = 0.03
"""The share of the events of a shared subscription during which the worker leaves the set and begins anew, if it is not
loyal: only who stays can tell that nothing was lost."""
TORMENT_S = 20.0
CALM_S = 60.0
LAST_ROUNDS = 20
FOR_EVER_S = 1e6
LAST_S = 8.0
"""In which a single worker does all the last events, while all others of its set are at one for ever."""
ORDERED_SHARE = 0.6
"""The share of members that subscribe in total order, or share subscriptions; the other members learn of them only by
messages."""
NUMBER = number_of(GROUP)
SAFE_NUMBER = number_of(f"{GROUP}/{SAFE}")


MILD = (crash, restart, restart, drift, good_links)
"""Faults of worlds in which most members are never cut off: there no event may be lost."""


class Player:
    """One member: subscribes, publishes, now and then ends a subscription and begins another."""

    def __init__(self, world: World, history: History, bus: Bus, plain: bool, loyal: bool) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self._loyal = loyal
        self._wishes = [
            wish for wish in WISHES if wish[0] == RELIABLE or (not plain and world.random.random() < ORDERED_SHARE)
        ]
        self._epochs: Counter[int] = Counter()
        self._there: set[int] = set()
        self._labels = 0
        self.working: list[str] = []
        """Its shared subscriptions that are open."""
        self.stuck = False
        """From now on its worker is at one event for ever, or goes away for ever when it has asked."""
        bus._dispatch.observe = self._observe
        bus.on_event(self._told)
        self.task = asyncio.create_task(self._live())

    def _told(self, event: object) -> None:
        """Record that events on which a primary had agreed are lost, and that the application was told."""
        if isinstance(event, (Dissolved, Reverted)):
            self.history.add(Happening(self.world.now, int(self.bus.me), "lost"))

    # What comes up, before anybody reads it

    def _observe(self, what: Frame | Event) -> None:
        if isinstance(what, ViewChanged):
            if not what.primary or len(what.sides) > 1:
                self.history.add(Happening(self.world.now, int(self.bus.me), "cut"))
            if what.primary:
                members = tuple(sorted(map(int, what.members)))
                self.history.add(Happening(self.world.now, int(self.bus.me), "primary", members=members))
            for side in what.sides:
                if int(self.bus.me) not in side:
                    self._epochs.update(side)
        elif isinstance(what, Members) and what.group == NUMBER:
            there = set(what.members)
            self._epochs.update(self._there - there)
            self._there = there
        elif isinstance(what, Frame) and what.group == NUMBER and what.kind in (BYTES, EVENTS) and what.count:
            for body in decode_bodies(what.kind, what.bodies, what.count):
                batch = checked(body) if what.kind == EVENTS else decode_batch(body)
                for section in Arrived(batch).sections():
                    for event in section.events():
                        chain = (0, self._epochs[int(event.sender)])
                        self._add("arrive", event, chain=chain)

        elif isinstance(what, Frame) and what.group == SAFE_NUMBER and what.kind == EVENTS and what.count:
            for body in decode_bodies(what.kind, what.bodies, what.count):
                for section in Arrived(checked(body)).sections():
                    for event in section.events():
                        self._add("came", event)

    def _add(self, what: str, event: object, label: str = "", chain: tuple[int, int] = (0, 0)) -> None:
        topic, id, again = event.topic, event.id, event.again  # type: ignore[attr-defined]
        number = (int(id[0]), id[1])
        happening = Happening(
            self.world.now, int(self.bus.me), what, label, number, topic.encode(), chain=chain, orphan=again
        )
        self.history.add(happening)
        self.world.note(what, self.bus.name, repr((label, number[1])).encode())

    # What a program does

    async def _live(self) -> None:
        random = self.world.random
        try:
            for wish in self._wishes:
                await self._subscribe(*wish)
            while not self.bus.closed and not self.calm:
                await asyncio.sleep(random.random() * 0.2)
                for _ in range(random.randrange(1, 6)):
                    await self.publish()
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _subscribe(self, kind: str, pattern: str) -> None:
        self._labels += 1
        label = f"{kind} {pattern} {self._labels}"
        options: dict[str, Any] = {"shared": "set"} if kind == SHARED else {"guarantee": kind}
        subscription = await self.bus.subscribe(pattern, retain=False, **options)
        self.history.add(Happening(self.world.now, int(self.bus.me), "begun", label))
        read = self._work if kind == SHARED else self._read
        asyncio.create_task(read(subscription, label))  # noqa: RUF006 - it ends with the bus

    async def _read(self, subscription: Subscription[Any], label: str) -> None:
        while not subscription.closed:
            try:
                async for event in subscription:
                    self._add("deliver", event, label)
            except Gap:  # this member was cut off from the total order
                self.history.add(Happening(self.world.now, int(self.bus.me), "gap", label))

    async def _work(self, subscription: Subscription[Any], label: str) -> None:
        """As a rule it is quick, sometimes slow; sometimes it is away when it has asked, or leaves the set."""
        random = self.world.random
        self.working.append(label)
        while True:
            gives_up = self.stuck or (not self.calm and random.random() < GIVES_UP_SHARE)
            patience_s = 0.0 if self.stuck else random.random() * WORK_S_MAX
            if not self.bus.closed:  # as it is when the member has crashed
                self.history.add(Happening(self.world.now, int(self.bus.me), "asks", label))
            try:
                event = await subscription.receive(patience_s if gives_up else None)
            except TimeoutError:
                await asyncio.sleep(FOR_EVER_S if self.stuck else random.random() * AWAY_S_MAX)
                continue
            except Closed:
                break
            self._add("deliver", event, label)
            if self.stuck and random.random() < 0.5:
                await asyncio.sleep(FOR_EVER_S)
            slow = random.random() < SLOW_SHARE and not self.calm
            await asyncio.sleep(random.random() * (SLOW_S_MAX if slow else WORK_S_MAX))
            if not self.calm and random.random() < LEAVES_SHARE and not self._loyal:
                self.working.remove(label)
                self.history.add(Happening(self.world.now, int(self.bus.me), "ended", label))
                await subscription.close()
                with suppress(Closed):  # the member has crashed
                    await self._subscribe(SHARED, pattern_of(label))
                break

    async def publish(self) -> None:
        topic = self.world.random.choice(NAMES)
        at = self.world.now
        sent = await self.bus.publish(topic, b"x" * self.world.random.randrange(50))
        number = (int(sent[0]), sent[1])
        self.history.add(Happening(at, int(self.bus.me), "publish", "", number, topic.encode()))


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    plain = world.random.random() < 0.5

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, plain, loyal=number % 2 == 0)

    faults = EVERY_FAULT if plain or world.random.random() < 0.5 else MILD
    await ordeal(world, players, begin, TORMENT_S, CALM_S, "to subscribe or publish", faults)
    everybody = tuple(sorted(int(player.bus.me) for player in players.values()))
    history.add(Happening(world.now, 0, "settled", members=everybody))
    await asyncio.sleep(0.001)
    working = [player for player in players.values() if player.working]
    for player in working[1:]:
        player.stuck = True
    for _ in range(LAST_ROUNDS):
        for player in players.values():
            await player.publish()
    await asyncio.sleep(LAST_S)
    world.validate()


TOPICS = Scenario(
    "topics",
    "publish and subscribe, in total order and shared too, under every fault",
    VIEWS,
    play,
    {
        "asked_for": asked_for,
        "contiguous": contiguous,
        "complete": complete,
        "agreed": agreed,
        "shared_once": shared_once,
        "begun_once": begun_once,
        "finished_once": finished_once,
        "none_forgotten": none_forgotten,
        "none_abandoned": none_abandoned,
        "arrived_in_the_end": arrived_in_the_end,
    },
    STRIKES,
    media=tuple(Medium(broadcasts=broadcasts, path_bytes=PATH_BYTES_LOOPBACK) for broadcasts in (True, False)),
)
