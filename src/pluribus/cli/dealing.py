"""The dealing room: four information providers publish prices, twenty dealers watch the stocks that they deal in.

Providers are processes. Dealers sit at four desks, a process each, five to a desk, each with a subscription of its own:
its pattern, its condition. On an in-process bus all of them are tasks of this process. Every provider counts by itself
how many of its events each dealer's condition holds for; at the end that is compared with what the dealers got.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from pluribus.core.errors import PluribusError, Unreachable
from pluribus.filters import Filter, parse
from pluribus.pubsub.event import Event
from pluribus.pubsub.topics import matches
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.running import run
from pluribus.runtime.subscription import Subscription
from pluribus.wire.bodies import register

EXCHANGES = {
    "nyse": ("IBM", "GE", "KO", "DIS", "F"),
    "nasdaq": ("AAPL", "MSFT", "AMZN", "INTC", "CSCO"),
    "xetra": ("SAP", "SIE", "BMW", "BAS", "ALV"),
    "lse": ("BP", "HSBA", "VOD", "GSK", "RIO"),
}
DESKS, DEALERS_PER_DESK = 4, 5
RATE = 500
"""Updates a second and provider, unless told otherwise."""
TICK_S = 0.01
STATUS_S = 0.25
START_S = 60.0
END_S = 30.0
ALERT = 2.0
"""A dealer is alerted when a price has moved by so much at once."""


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


async def provide(url: str, exchange: str, seconds: float, rate: int) -> None:
    """What a provider does: a price that wanders, as fast as it is told."""
    random, prices = Random(exchange), dict.fromkeys(EXCHANGES[exchange], 100.0)
    watched = [(dealer, dealer.filter()) for dealer in dealers()]
    expected: Counter[str] = Counter()
    async with connect(url, name=exchange) as bus, bus.subscribe("room/open") as opened:
        await bus.advertise(f"stocks/{exchange}/+", Tick, about=f"prices of {exchange}")
        await bus.publish(f"room/ready/{exchange}", exchange, retain=True)
        await opened.receive(START_S)
        sent, started = 0, perf_counter()
        while (now := perf_counter() - started) < seconds:
            for _ in range(int(now * rate) - sent):
                symbol = random.choice(EXCHANGES[exchange])
                change = round(random.gauss(0.0, 0.8), 2)
                price = prices[symbol] = round(max(prices[symbol] + change, 1.0), 2)
                tick, topic = Tick(symbol, price, change, random.randrange(1, 1_000)), f"stocks/{exchange}/{symbol}"
                await bus.publish(topic, tick)
                sent += 1
                for dealer, wanted in watched:
                    if matches(dealer.pattern, topic) and wanted.matches(tick):
                        expected[dealer.name] += 1
            await asyncio.sleep(TICK_S)
        await bus.publish(f"room/closed/{exchange}", {"published": sent, "expected": dict(expected)}, retain=True)
        async with bus.subscribe("room/over") as over:
            await over.receive(END_S)


# Dealers


class Desk:
    """Five dealers."""

    def __init__(self, number: int) -> None:
        self.name = f"desk-{number}"
        self.dealers = dealers()[number * DEALERS_PER_DESK : (number + 1) * DEALERS_PER_DESK]
        self.got: Counter[str] = Counter()
        self.alerts = 0
        self.late_us: list[float] = []
        self.last: dict[str, str] = {}

    async def deal(self, events: Subscription, dealer: Dealer, wall: Callable[[], float]) -> None:
        async for event in events:
            tick: Tick = event.body
            self.got[dealer.name] += 1
            self.alerts += abs(tick.change) >= ALERT
            self.last[dealer.name] = f"{tick.symbol} {tick.price:.2f} {tick.change:+.2f}"
            if len(self.late_us) < 100_000:
                self.late_us.append((wall() - event.time) * 1e6)

    def status(self) -> dict[str, Any]:
        return {"desk": self.name, "got": dict(self.got), "alerts": self.alerts, "last": self.last}

    def report(self) -> dict[str, Any]:
        late = sorted(self.late_us) or [0.0]
        return {**self.status(), "p50_us": late[len(late) // 2], "p99_us": late[len(late) * 99 // 100]}


async def deal(url: str, number: int) -> None:
    """What a desk does."""
    desk = Desk(number)
    async with connect(url, name=desk.name) as bus, bus.subscribe("room/closed/+") as closed:
        wall = bus.pubsub.wall
        subscriptions = [await bus.subscribe(dealer.pattern, where=dealer.where, type=Tick) for dealer in desk.dealers]
        pairs = zip(subscriptions, desk.dealers, strict=True)
        dealing = [asyncio.create_task(desk.deal(events, dealer, wall)) for events, dealer in pairs]
        await bus.publish(f"room/ready/{desk.name}", desk.name, retain=True)
        telling = asyncio.create_task(_tell(bus, desk))
        for _ in EXCHANGES:
            await closed.receive()
        # In the order of each provider its events were before that, so they are here; the dealers only have to read.
        while any(events.waiting for events in subscriptions):  # noqa: ASYNC110 - the dealers have no word for it
            await asyncio.sleep(TICK_S)
        await asyncio.sleep(TICK_S)
        telling.cancel()
        await bus.publish(f"room/report/{desk.name}", desk.report(), retain=True)
        async with bus.subscribe("room/over") as over:
            await over.receive(END_S)
        for events in subscriptions:
            await events.close()
        await asyncio.gather(*dealing)


async def _tell(bus: Bus, desk: Desk) -> None:
    while True:
        await asyncio.sleep(STATUS_S)
        await bus.publish(f"room/status/{desk.name}", desk.status())


# The room

ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"provide": provide, "deal": deal}
Show = Callable[[list[dict[str, Any]], float], None]


def room(url: str | None, seconds: float, show: Show, rate: int = RATE) -> dict[str, Any]:
    """Run the dealing room; ``show`` is given what the desks say, now and then. The summary."""
    url = url or os.environ.get("PLURIBUS_URL") or f"multicast://dealing-{os.getpid()}"
    return run(_room(url, seconds, show, rate))


async def _room(url: str, seconds: float, show: Show, rate: int) -> dict[str, Any]:
    async with (
        connect(url, name="room") as bus,
        bus.subscribe("room/ready/+") as ready,
        bus.subscribe("room/status/+") as status,
        bus.subscribe("room/closed/+") as closed,
        bus.subscribe("room/report/+") as reports,
    ):
        roles: list[tuple[Any, ...]] = [(provide, url, exchange, seconds, rate) for exchange in EXCHANGES]
        roles += [(deal, url, number) for number in range(DESKS)]
        start = _tasks if bus.url.scheme == "inproc" else _processes
        async with start(roles) as complaint:
            for _ in roles:
                await _one(ready, complaint, START_S, "takes its place")
            began = perf_counter()
            await bus.publish("room/open", True, retain=True)
            showing = asyncio.create_task(_show(status, show, began))
            ended = [await _one(closed, complaint, seconds + END_S, "closes") for _ in EXCHANGES]
            took = perf_counter() - began
            desks = [await _one(reports, complaint, END_S, "reports") for _ in range(DESKS)]
            showing.cancel()
            show(desks, took)
            await bus.publish("room/over", True, retain=True)
            await bus.flush()
        return _summary(ended, desks, took)


def _summary(ended: list[dict[str, Any]], desks: list[dict[str, Any]], took: float) -> dict[str, Any]:
    expected: Counter[str] = Counter()
    for one in ended:
        expected.update(one["expected"])
    got = Counter({dealer: count for desk in desks for dealer, count in desk["got"].items()})
    published = sum(one["published"] for one in ended)
    return {
        "providers": len(ended),
        "dealers": len(dealers()),
        "published": published,
        "delivered": sum(got.values()),
        "lost": sum((expected - got).values()),
        "unasked": sum((got - expected).values()),
        "alerts": sum(desk["alerts"] for desk in desks),
        "rate": round(published / took),
        "late_us_p50": round(max(desk["p50_us"] for desk in desks), 1),
        "late_us_p99": round(max(desk["p99_us"] for desk in desks), 1),
        "seconds": round(took, 3),
    }


async def _show(status: Subscription, show: Show, began: float) -> None:
    said: dict[str, dict[str, Any]] = {}
    async for event in status:
        said[event.body["desk"]] = event.body
        show(list(said.values()), perf_counter() - began)


async def _one(events: Subscription, complaint: Callable[[], str], seconds: float, what: str) -> Any:
    until = perf_counter() + seconds
    while True:
        try:
            event: Event[Any] = await events.receive(0.2)
            return event.body
        except TimeoutError:
            why = complaint()
            if why:
                raise Unreachable(f"somebody of the dealing room failed: {why}") from None
            if perf_counter() > until:
                raise Unreachable(
                    f"nobody {what} within {seconds:g} s: `pluribus doctor` tells what is wrong"
                ) from None


def play(role: str, *arguments: Any) -> None:
    """What the processes run."""
    try:
        run(ROLES[role](*arguments))
    except PluribusError as error:
        sys.exit(str(error))


@asynccontextmanager
async def _processes(roles: list[tuple[Any, ...]]) -> AsyncIterator[Callable[[], str]]:
    with tempfile.TemporaryFile() as errors:
        processes = []
        for function, *arguments in roles:
            code = f"from pluribus.cli.dealing import play; play({function.__name__!r}, *{tuple(arguments)!r})"
            processes.append(subprocess.Popen([sys.executable, "-c", code], stderr=errors))  # noqa: ASYNC220

        def complaint() -> str:
            if not any(process.poll() for process in processes):
                return ""
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it ended without a word"

        try:
            yield complaint
            await asyncio.to_thread(_end, processes, END_S)
        finally:
            _end(processes, 0.0)


def _end(processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    until = perf_counter() + seconds
    for process in processes:
        try:
            process.wait(max(until - perf_counter(), 0.0))
        except subprocess.TimeoutExpired:
            if not seconds:
                process.kill()
                process.wait()


@asynccontextmanager
async def _tasks(roles: list[tuple[Any, ...]]) -> AsyncIterator[Callable[[], str]]:
    """Members of an in-process bus live in one process."""
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(role[0](*role[1:])) for role in roles]

    def complaint() -> str:
        return next((str(task.exception()) for task in tasks if task.done() and task.exception()), "")

    try:
        yield complaint
        await asyncio.wait(tasks, timeout=END_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
