"""Who is in the dealing room: four information providers publish prices, twenty dealers watch the stocks that they deal
in, three keepers have every price on disk before a dealer sees it.

Each provider, keeper and desk is a process; dealers sit at four desks, five to a desk, each with a subscription of its
own: its pattern, its condition. Desks also get the alerts of one exchange, which Spark finds in what keepers keep.
Every provider counts by itself how many of its events each dealer's condition holds for, and how often its prices turn;
at the end that is compared with what the dealers got (``dealing_room.py``).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from pluribus.core.errors import PluribusError
from pluribus.filters import Filter, parse
from pluribus.patterns import Matcher
from pluribus.pipeline.dealing import TURN
from pluribus.pubsub.topics import matches
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.loop.running import run
from pluribus.runtime.styles.topics.subscription import Subscription
from pluribus.wire.bodies import register

EXCHANGES = {
    "nyse": ("IBM", "GE", "KO", "DIS", "F"),
    "nasdaq": ("AAPL", "MSFT", "AMZN", "INTC", "CSCO"),
    "xetra": ("SAP", "SIE", "BMW", "BAS", "ALV"),
    "lse": ("BP", "HSBA", "VOD", "GSK", "RIO"),
}
DESKS, DEALERS_PER_DESK, KEEPERS = 4, 5, 3
RATE = 500
"""Updates a second and provider, unless told otherwise."""
TICK_S = 0.01
PACE_S = 0.02
"""A provider publishes what came together in this time at once: one fsync for all of it."""
STATUS_S = 0.25
START_S = 60.0
END_S = 30.0
MOVE = 2.0
"""A dealer takes note when a price has moved by so much at once."""
DELAYS_MAX = 100_000


class Tick(msgspec.Struct, frozen=True):
    """One update of a price."""

    symbol: str
    price: float
    change: float
    volume: int


register(Tick, "pluribus.dealing.Tick")


class Dealer(msgspec.Struct, frozen=True):
    name: str
    pattern: str
    where: str

    def filter(self) -> Filter:
        return parse(self.where, type=Tick)


def dealers() -> list[Dealer]:
    """Twenty, each with interests of its own."""
    found: list[Dealer] = []
    for place, (exchange, symbols) in enumerate(EXCHANGES.items()):
        one, two, *_ = symbols
        wishes = [
            (f"stocks/{exchange}/{one}", "volume > 0"),
            (f"stocks/{exchange}/#", f"symbol IN ('{one}', '{two}') AND price > 95"),
            (f"stocks/{exchange}/+", "change < -0.5 OR change > 0.5"),
            ("stocks/#", f"symbol LIKE '{one[0]}%' AND volume >= 500"),
            ("stocks/+/+", f"price BETWEEN {80 + 10 * place} AND {100 + 10 * place}"),
        ]
        found += [Dealer(f"dealer-{len(found) + 1 + at}", *wish) for at, wish in enumerate(wishes)]
    return found


# Providers


class Prices:
    """Prices of one exchange that wander, and what is to be expected of them."""

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._random, self._now = Random(exchange), dict.fromkeys(EXCHANGES[exchange], 100.0)
        self._watched = [(dealer, dealer.filter()) for dealer in dealers()]
        self._turns = Matcher(TURN)
        self.published = self.turns = 0
        self.expected: Counter[str] = Counter()

    def next(self) -> tuple[str, Tick]:
        random, symbol = self._random, self._random.choice(EXCHANGES[self._exchange])
        change = round(random.gauss(0.0, 0.8), 2)
        price = self._now[symbol] = round(max(self._now[symbol] + change, 1.0), 2)
        tick, topic = Tick(symbol, price, change, random.randrange(1, 1_000)), f"stocks/{self._exchange}/{symbol}"
        for dealer, wanted in self._watched:
            if matches(dealer.pattern, topic) and wanted.matches(tick):
                self.expected[dealer.name] += 1
        self.published += 1
        row = {"topic": topic, "time": self.published, "offset": self.published, "price": price}
        self.turns += len(self._turns.feed([row]))
        return topic, tick

    def report(self) -> dict[str, Any]:
        return {"published": self.published, "expected": dict(self.expected), "turns": self.turns}


async def provide(url: str, exchange: str, seconds: float, rate: int) -> None:
    """What a provider does: as fast as it is told, until it is time or the room closes."""
    prices = Prices(exchange)
    async with (
        connect(url, name=exchange) as bus,
        bus.subscribe("room/open") as opened,
        bus.subscribe("room/close") as closing,
    ):
        await bus.advertise(f"stocks/{exchange}/+", Tick, about=f"prices of {exchange}")
        await bus.publish(f"room/ready/{exchange}", exchange, retain=True)
        await opened.receive(START_S)
        started = perf_counter()
        while (now := perf_counter() - started) < seconds and not closing.waiting:
            due = int(now * rate) - prices.published
            await bus.publish_many([prices.next() for _ in range(min(due, rate))], durable=True)
            await asyncio.sleep(PACE_S)
        await bus.publish(f"room/closed/{exchange}", prices.report(), retain=True)
        async with bus.subscribe("room/over") as over:
            await over.receive()


async def keep(url: str, number: int, store: str) -> None:
    """What a keeper does: votes, and serves Spark."""
    async with connect(url, name=f"keeper-{number}", store=store, votes=True, serve="127.0.0.1:0") as bus:
        keeper = bus.keeping.keeper
        assert keeper is not None
        while not keeper.counted:  # noqa: ASYNC110 - roles change without telling
            await asyncio.sleep(TICK_S)
        await bus.publish(f"room/ready/{bus.name}", address(bus), retain=True)
        async with bus.subscribe("room/over") as over:
            await over.receive()


def address(bus: Bus) -> str:
    host, port = bus.doors[0].address
    return f"{host}:{port}"


# Dealers


class Desk:
    """Five dealers, and the alerts of one exchange."""

    def __init__(self, number: int) -> None:
        self.name = f"desk-{number}"
        self.exchange = list(EXCHANGES)[number]
        self.dealers = dealers()[number * DEALERS_PER_DESK : (number + 1) * DEALERS_PER_DESK]
        self.got: Counter[str] = Counter()
        self.moves = self.alerts = 0
        self.late_us: list[float] = []
        self.alert_s: list[float] = []
        self.last: dict[str, str] = {}
        self.turn = ""

    async def deal(self, events: Subscription[Any], dealer: Dealer, wall: Callable[[], float]) -> None:
        async for event in events:
            tick: Tick = event.body
            self.got[dealer.name] += 1
            self.moves += abs(tick.change) >= MOVE
            self.last[dealer.name] = f"{tick.symbol} {tick.price:.2f} {tick.change:+.2f}"
            if len(self.late_us) < DELAYS_MAX:
                self.late_us.append((wall() - event.time) * 1e6)

    async def listen(self, alerts: Any, wall: Callable[[], float]) -> None:
        """What Spark found. It is in the log like all else, so none is missed that came before anybody listened."""
        async for event in alerts:
            turn = event.body
            self.alerts += 1
            self.turn = f"{turn['symbol']} fell from {turn['top']:.2f} to {turn['bottom']:.2f}, now {turn['now']:.2f}"
            if len(self.alert_s) < DELAYS_MAX:
                self.alert_s.append(wall() - turn["at"].timestamp())

    def status(self) -> dict[str, Any]:
        told = {"desk": self.name, "got": dict(self.got), "moves": self.moves, "last": self.last}
        return {**told, "alerts": self.alerts, "turn": self.turn}

    def report(self) -> dict[str, Any]:
        late = sorted(self.late_us) or [0.0]
        recent = sorted(self.alert_s[len(self.alert_s) // 2 :]) or [0.0]  # the first ones waited for Spark to start
        delays = {"p50_us": late[len(late) // 2], "p99_us": late[len(late) * 99 // 100]}
        return {**self.status(), **delays, "alert_s": recent[len(recent) // 2]}


async def deal(url: str, number: int) -> None:
    """What a desk does."""
    desk = Desk(number)
    async with (
        connect(url, name=desk.name) as bus,
        bus.subscribe("room/count") as count,
        bus.subscribe(f"alerts/{desk.exchange}", start="earliest") as alerts,
    ):
        wall = bus.pubsub.wall
        subscriptions = [await bus.subscribe(dealer.pattern, where=dealer.where, type=Tick) for dealer in desk.dealers]
        pairs = zip(subscriptions, desk.dealers, strict=True)
        dealing = [asyncio.create_task(desk.deal(events, dealer, wall)) for events, dealer in pairs]
        listening = asyncio.create_task(desk.listen(alerts, wall))
        await bus.publish(f"room/ready/{desk.name}", desk.name, retain=True)
        telling = asyncio.create_task(_tell(bus, desk))
        await _closed(bus)
        # In the order of each provider its events were before that, so they are here; the dealers only have to read.
        while any(events.waiting for events in subscriptions):  # noqa: ASYNC110 - the dealers have no word for it
            await asyncio.sleep(TICK_S)
        await count.receive()
        await asyncio.sleep(TICK_S)
        telling.cancel()
        await bus.publish(f"room/report/{desk.name}", desk.report(), retain=True)
        async with bus.subscribe("room/over") as over:
            await over.receive()
        for events in subscriptions:
            await events.close()
        listening.cancel()
        await asyncio.gather(*dealing)


async def _closed(bus: Bus) -> None:
    async with bus.subscribe("room/closed/+") as closed:
        for _ in EXCHANGES:
            await closed.receive()


async def _tell(bus: Bus, desk: Desk) -> None:
    while True:
        await asyncio.sleep(STATUS_S)
        await bus.publish(f"room/status/{desk.name}", desk.status())


# As processes

ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"provide": provide, "deal": deal, "keep": keep}


def play(role: str, *arguments: Any) -> None:
    """What the processes run. They end with the process that has the other end of their standard input."""
    threading.Thread(target=_end_with_the_room, daemon=True).start()
    try:
        run(ROLES[role](*arguments))
    except PluribusError as error:
        sys.exit(str(error))


def _end_with_the_room() -> None:
    sys.stdin.read()
    os._exit(1)
