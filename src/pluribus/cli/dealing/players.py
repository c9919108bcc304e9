"""Who is in the dealing room: four information providers publish prices, twenty dealers watch the stocks that they deal
in, three keepers have every price on disk before a dealer sees it.

Each provider, keeper and desk is a process; dealers sit at four desks, five to a desk, each with a subscription of its
own: its pattern, its condition. Desks also get the alerts of one exchange, which Spark finds in what keepers keep.
Every provider counts for how many of its events each dealer's condition holds, and how often its prices turn; at the
end ``room.py`` compares these numbers with the events that the dealers got.

Keepers and providers may be killed. A keeper comes back with its store. A provider comes back and asks the keepers how
many prices of each of its stocks are on disk: the prices of a stock are drawn from a seed of its own, so the provider
draws those again, counts them again, and goes on behind them. Prices that were on disk and perhaps not yet announced to
dealers are announced once more; each price has a number, and dealers drop those that they have.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from pluribus.core.errors import PluribusError
from pluribus.filters import Filter, parse
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
RATE = 250
"""Updates a second of one provider, by default."""
TICK_S = 0.01
PACE_S = 0.05
"""Seconds for which a provider gathers prices that it publishes together, with one fsync."""
STATUS_S = 0.25
START_S = 60.0
END_S = 30.0
HURRY_S = 0.5
"""Seconds for which a desk waits for providers that have not closed, after an interrupt."""
MOVE = 2.0
"""A dealer notes a price that has moved by so much at once."""
DELAYS_MAX = 100_000
EVERY_PRICE = "volume > 0"
"""A condition that every price meets: a dealer with it sees every gap in the numbers of a stock's prices."""


class Tick(msgspec.Struct, frozen=True):
    """One update of a price; ``number`` counts those of its stock."""

    symbol: str
    price: float
    change: float
    volume: int
    number: int = 0


register(Tick, "pluribus.dealing.Tick")
CLOCK = Tick("clock", 1.0, 0.0, 0)
"""The room's clock, as a stock whose price stays the same: it ends what only later events can end."""


@cache
def turn() -> str:
    """The pattern of a turn: the text with which the backbone of the room looks for them on Spark."""
    told = tomllib.loads(Path(__file__).with_name("backbone.toml").read_text(encoding="utf-8"))
    found: str = next(gold["pattern"] for gold in told["gold"] if gold["name"] == "turns")
    return found


class Dealer(msgspec.Struct, frozen=True):
    name: str
    pattern: str
    where: str

    def filter(self) -> Filter:
        return _parsed(self.where)


@cache
def _parsed(where: str) -> Filter:
    return parse(where, type=Tick)


def dealers() -> list[Dealer]:
    """Twenty dealers, each with interests of its own."""
    found: list[Dealer] = []
    for place, (exchange, symbols) in enumerate(EXCHANGES.items()):
        one, two, *_ = symbols
        wishes = [
            (f"stocks/{exchange}/{one}", EVERY_PRICE),
            (f"stocks/{exchange}/#", f"symbol IN ('{one}', '{two}') AND price > 95"),
            (f"stocks/{exchange}/+", "change < -0.5 OR change > 0.5"),
            ("stocks/#", f"symbol LIKE '{one[0]}%' AND volume >= 500"),
            ("stocks/+/+", f"price BETWEEN {80 + 10 * place} AND {100 + 10 * place}"),
        ]
        found += [Dealer(f"dealer-{len(found) + 1 + at}", *wish) for at, wish in enumerate(wishes)]
    return found


# Providers


class Stock:
    """Prices of one stock that wander: the same ones in the same order, whichever process draws them."""

    def __init__(self, exchange: str, symbol: str) -> None:
        self.symbol, self.topic = symbol, f"stocks/{exchange}/{symbol}"
        self._random, self._price = Random(self.topic), 100.0
        self._watched = [(dealer.name, dealer.filter()) for dealer in dealers() if matches(dealer.pattern, self.topic)]
        self.number = 0

    def next(self) -> Tick:
        change = round(self._random.gauss(0.0, 0.8), 2)
        self._price = round(max(self._price + change, 1.0), 2)
        tick = Tick(self.symbol, self._price, change, self._random.randrange(1, 1_000), self.number)
        self.number += 1
        return tick

    def wanted_by(self, tick: Tick) -> list[str]:
        return [dealer for dealer, wanted in self._watched if wanted.matches(tick)]


class Prices:
    """Prices of one exchange, and how many events and turns dealers and Spark must find in them."""

    def __init__(self, exchange: str) -> None:
        from pluribus.patterns import Matcher

        self._exchange, self._random = exchange, Random()
        self._stocks = [Stock(exchange, symbol) for symbol in EXCHANGES[exchange]]
        self._turns = Matcher(turn())
        self.published = self.turns = 0
        self.expected: Counter[str] = Counter()
        self.last: dict[str, tuple[float, float]] = {}

    def next(self) -> tuple[str, Tick]:
        return self._drawn(self._random.choice(self._stocks))

    def resume(self, kept: dict[str, int], again: int) -> list[tuple[str, Tick]]:
        """Draw again the prices that are on disk, so many of each topic; returns the last ``again`` of each topic, to
        be announced once more."""
        tail: list[tuple[str, Tick]] = []
        for stock in self._stocks:
            last: deque[tuple[str, Tick]] = deque(maxlen=again)
            for _ in range(kept.get(stock.topic, 0)):
                last.append(self._drawn(stock))
            tail += last
        return tail

    def _drawn(self, stock: Stock) -> tuple[str, Tick]:
        tick = stock.next()
        self.expected.update(stock.wanted_by(tick))
        self.published += 1
        place = {"exchange": self._exchange, "symbol": stock.symbol, "time": self.published, "offset": tick.number}
        self.turns += len(self._turns.feed([{**place, "price": tick.price}]))
        self.last[stock.symbol] = (tick.price, tick.change)
        return stock.topic, tick

    def status(self) -> dict[str, Any]:
        return {"exchange": self._exchange, "published": self.published, "last": self.last}

    def report(self) -> dict[str, Any]:
        return {**self.status(), "expected": dict(self.expected), "turns": self.turns}


async def provide(url: str, exchange: str, rate: int) -> None:
    """Run a provider: publish prices at its rate until the room closes."""
    prices = Prices(exchange)
    async with (
        connect(url, name=exchange) as bus,
        bus.subscribe("room/open") as opened,
        bus.subscribe("room/close") as closing,
    ):
        await bus.advertise(f"stocks/{exchange}/+", Tick, about=f"prices of {exchange}")
        await bus.publish(f"room/ready/{exchange}", exchange, retain=True)
        await opened.receive(START_S)
        kept = {known.topic: known.end for known in await bus.durable.topics(f"stocks/{exchange}/+")}
        await bus.publish_many(prices.resume(kept, rate))
        started, before, told = perf_counter(), prices.published, 0.0
        while not closing.waiting:
            now = perf_counter() - started
            due = int(now * rate) - (prices.published - before)
            await bus.publish_many([prices.next() for _ in range(min(due, rate))], durable=True)
            if now - told >= STATUS_S:
                told = now
                await bus.publish(f"room/prices/{exchange}", prices.status())
            await asyncio.sleep(PACE_S)
        await bus.publish(f"room/closed/{exchange}", prices.report(), retain=True)
        await _over(bus)


async def keep(url: str, name: str, store: str, door: str) -> None:
    """Run a keeper, which votes and serves Spark."""
    async with connect(url, name=name, store=store, votes=True, voters=KEEPERS, serve=door) as bus:
        keeper = bus.keeping.keeper
        assert keeper is not None
        while not keeper.counted:  # noqa: ASYNC110 - roles change without telling
            await asyncio.sleep(TICK_S)
        await bus.publish(f"room/ready/{name}", address(bus), retain=True)
        await _over(bus)


async def _over(bus: Bus) -> None:
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
        self.moves = self.alerts = self.gaps = 0
        self._seen: dict[tuple[str, str], int] = {}
        """The number of the last price that a dealer got, by dealer and topic."""
        self.late_us: list[float] = []
        self.alert_s: list[float] = []
        self.last: dict[str, str] = {}

    async def deal(self, events: Subscription[Any], dealer: Dealer, wall: Callable[[], float]) -> None:
        async for event in events:
            tick: Tick = event.body
            before = self._seen.get((dealer.name, event.topic), -1)
            if tick.number <= before:
                continue  # announced again by a provider that was killed
            self._seen[dealer.name, event.topic] = tick.number
            if dealer.where == EVERY_PRICE:
                self.gaps += tick.number - before - 1
            self.got[dealer.name] += 1
            self.moves += abs(tick.change) >= MOVE
            self.last[dealer.name] = f"{tick.symbol} {tick.price:.2f} {tick.change:+.2f}"
            if len(self.late_us) < DELAYS_MAX:
                self.late_us.append((wall() - event.time) * 1e6)

    async def listen(self, alerts: Any, wall: Callable[[], float]) -> None:
        """Read the alerts that Spark found. They are durable events, so a desk also gets those that came before it
        subscribed."""
        async for event in alerts:
            self.alerts += 1
            if len(self.alert_s) < DELAYS_MAX:
                self.alert_s.append(wall() - event.body["at"].timestamp())

    def status(self) -> dict[str, Any]:
        told = {"desk": self.name, "got": dict(self.got), "moves": self.moves, "last": self.last}
        return {**told, "alerts": self.alerts, "gaps": self.gaps}

    def report(self) -> dict[str, Any]:
        late = sorted(self.late_us) or [0.0]
        recent = sorted(self.alert_s[len(self.alert_s) // 2 :]) or [0.0]  # the first ones waited for Spark to start
        delays = {"p50_us": late[len(late) // 2], "p99_us": late[len(late) * 99 // 100]}
        return {**self.status(), **delays, "alert_s": recent[len(recent) // 2]}


async def deal(url: str, number: int) -> None:
    """Run a desk."""
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
        closed = asyncio.create_task(_closed(bus))
        everybody = (await count.receive()).body
        await asyncio.wait([closed], timeout=None if everybody else HURRY_S)
        # In the order of each provider its events were before that, so they are here; the dealers only have to read.
        while any(events.waiting for events in subscriptions):  # noqa: ASYNC110 - the dealers have no word for it
            await asyncio.sleep(TICK_S)
        await asyncio.sleep(TICK_S)
        closed.cancel()
        telling.cancel()
        await bus.publish(f"room/report/{desk.name}", desk.report(), retain=True)
        await _over(bus)
        for events in subscriptions:
            await events.close()
        listening.cancel()
        await asyncio.gather(*dealing)


async def _closed(bus: Bus) -> None:
    """Wait until every provider has closed. A provider that was killed meanwhile closes again, so providers are told
    apart by name."""
    async with bus.subscribe("room/closed/+") as closed:
        names: set[str] = set()
        while len(names) < len(EXCHANGES):
            names.add((await closed.receive()).topic)


async def _tell(bus: Bus, desk: Desk) -> None:
    while True:
        await asyncio.sleep(STATUS_S)
        await bus.publish(f"room/status/{desk.name}", desk.status())


# As processes

ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"provide": provide, "deal": deal, "keep": keep}


def play(role: str, *arguments: Any) -> None:
    """Run one role in a process of its own. The process ends when the one that holds the other end of its standard
    input ends."""
    threading.Thread(target=_end_with_the_room, daemon=True).start()
    try:
        run(ROLES[role](*arguments))
    except PluribusError as error:
        sys.exit(str(error))


def _end_with_the_room() -> None:
    sys.stdin.read()
    os._exit(1)
