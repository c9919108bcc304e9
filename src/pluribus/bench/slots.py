"""``pluribus bench slots``: what one send costs on a software bus, in messages, and in messages a second.

*Counted*: protocol messages at the group, one send at a time, to R recipients, on ``multicast://`` with a member each:
2 + R with the report's router, 1 + R without one, 2 + 2R on a centralised bus, with warm caches; and the same with cold
ones, and where each member loses 5 % of what it receives. *Measured*: messages a second to eight recipients, several
under way, beside the centralised bus; and how long the longest send takes while the router moves. *Simulated*, in
virtual time: the same rates where every host has a line of its own, and after how many round trips a changed route is
known everywhere.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any

from ..runtime.bus import BEST_EFFORT, VIEWS, Bus, connect
from ..runtime.loop.running import run as run_loop
from ..runtime.styles.slots.buses import Slots
from ..runtime.styles.slots.hosts import CENTRAL, REPLICA, ROUTER, RouterHost
from ..runtime.styles.slots.slot import EnrolledSlot
from ..sim.machinery.network import Link, Medium
from ..sim.machinery.world import World
from ..sim.machinery.world import run as run_world
from ..slots.central import CentralBus
from ..slots.check import plan_of
from ..slots.words import DATA_PATH
from .report import Curve, Goal, Result, at_least, at_most, report, result

PLAN = "bus bench\nslot p { out o }\nslot c 0..many { in in }\np.o -> c.in ttl 1 h capacity 100000"
NAME = "bench"
FORMULAS: dict[str, Callable[[int], int]] = {
    ROUTER: lambda r: 2 + r,
    REPLICA: lambda r: 1 + r,
    CENTRAL: lambda r: 2 + 2 * r,
}
ABOUT = {ROUTER: "router", REPLICA: "no router", CENTRAL: "centralised"}
RECIPIENTS = (1, 2, 4, 8, 16, 32)
QUICK_RECIPIENTS = (1, 4)
SENDS = 5
WARM_UP = 10
SETTLE_S = 0.5
LOSS = "drop(p=0.05)"
RATE_RECIPIENTS = 8
RATE_SENDS = 2_000
RATIO = 1.3
LINE = Link(latency_s=0.0005, jitter_s=0.0, bandwidth_bytes_s=12.5e6)
"""The line of each host: 100 Mbit/s."""
LINE_SENDS, LINE_BYTES, LINES = 1_000, 1_000, 3.0
TRIPS, MOVE_S = 3.0, 1.0
MOVES = 3

Progress = Callable[[str], None]


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    """Count, measure, compare with the report's formulas."""
    rows: list[Result] = []
    goals: list[Goal] = []
    curves: list[Curve] = []
    recipients = QUICK_RECIPIENTS if quick else RECIPIENTS
    for by, formula in FORMULAS.items():
        points = []
        for count in recipients:
            progress(f"{ABOUT[by]}, {count} recipients")
            cold, warm = run_loop(counted(by, count, lossy=False))
            rows.append(result(f"{ABOUT[by]}, R = {count}: caches warm", "messages a send", warm))
            rows.append(result(f"{ABOUT[by]}, R = {count}: caches cold", "messages a send", [cold]))
            exact = all(found == formula(count) for found in warm)
            goals.append(
                Goal(f"{ABOUT[by]}, R = {count}: messages a send", statistics.median(warm), formula(count), exact)
            )
            points.append([float(count), float(statistics.median(warm))])
        curves.append(Curve(ABOUT[by], "recipients", "messages a send", points))
        if by != REPLICA:
            lost = run_loop(counted(by, recipients[-1], lossy=True))[1]
            what = f"{ABOUT[by]}, R = {recipients[-1]}: 5 % of frames lost"
            rows.append(result(what, "messages a send", lost))
    rates = rated(1 if quick else 3, 200 if quick else RATE_SENDS, progress)
    rows += [result(f"{ABOUT[way]}, R = {RATE_RECIPIENTS}", "messages/s", rate) for way, rate in rates.items()]
    ratio = statistics.median(rates[ROUTER]) / statistics.median(rates[CENTRAL])
    if not quick:
        goals.append(at_least(f"router over centralised, R = {RATE_RECIPIENTS}: rate", ratio, RATIO))
    progress("simulated, a line a host")
    lines = {by: on_lines(by, 100 if quick else LINE_SENDS) for by in (ROUTER, CENTRAL)}
    rows += [result(f"simulated: {ABOUT[by]}, a line a host", "messages/s", [rate]) for by, rate in lines.items()]
    goals.append(at_least("simulated: router over centralised, a line a host", lines[ROUTER] / lines[CENTRAL], LINES))
    for by in (ROUTER, REPLICA):
        progress(f"{ABOUT[by]}, a route changes")
        goals.append(at_most(f"{ABOUT[by]}: round trips until a route is known everywhere", changed(by), TRIPS))
    progress("the router moves")
    longest_s = run_loop(moved())
    rows.append(result("the router moves: the longest send", "s", [longest_s]))
    goals.append(at_most("the router moves: the longest send, s", longest_s, MOVE_S))
    return report("slots", rows, goals, curves)


class Stage:
    """Members in one process, each with a socket of its own: a producer with the map, and consumers."""

    def __init__(self, by: str, recipients: int, lossy: bool) -> None:
        self.by = by
        self.recipients = recipients
        stack = VIEWS if by == REPLICA else BEST_EFFORT
        self.stack = stack.replace("transport |", f"transport | {LOSS} |") if lossy else stack
        self.buses: list[Bus] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.received = 0
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Stage:
        url = f"multicast://bench-slots-{os.getpid()}-{self.by}-{self.recipients}-{perf_counter():.6f}"
        for number in range(self.recipients + 2):
            self.buses.append(await connect(url, name=f"m{number}", stack=self.stack))
        self.host = await self.buses[0].slots(plan_of(PLAN), by=self.by)
        self.producer = await self.buses[1].enroll("p", on=NAME, timeout=60)
        for bus in self.buses[2:]:
            slot = await bus.enroll("c", on=NAME, timeout=60)
            self.tasks.append(asyncio.create_task(self._read(slot)))
        return self

    async def _read(self, slot: EnrolledSlot) -> None:
        async for _ in slot.port("in"):
            self.received += 1

    async def send(self) -> None:
        """Send one message; returns when every recipient has acknowledged it."""
        before = self.received
        if self.by != CENTRAL:
            await self.producer.send("o", b"x", wait="all")
            return
        await self.producer.send("o", b"x")
        while self.received < before + self.recipients or self.hub.waiting:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.0005)

    @property
    def hub(self) -> CentralBus:
        assert isinstance(self.host, RouterHost) and isinstance(self.host.router, CentralBus)
        return self.host.router

    def cost(self) -> int:
        """Messages since the last call."""
        stations = [bus._style(Slots).stations[NAME] for bus in self.buses]
        found = sum(station.said[word] for station in stations for word in DATA_PATH)
        for station in stations:
            station.said.clear()
        return found

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*(bus.close(timeout=0) for bus in reversed(self.buses)))


async def counted(by: str, recipients: int, lossy: bool) -> tuple[int, list[int]]:
    """Messages for the first send, and for later ones."""
    async with Stage(by, recipients, lossy) as stage:
        stage.cost()
        await stage.send()
        cold = stage.cost()
        for _ in range(WARM_UP):  # senders learn how long acknowledgements take here
            await stage.send()
        await asyncio.sleep(SETTLE_S)
        stage.cost()
        warm = []
        for _ in range(SENDS):
            await stage.send()
            warm.append(stage.cost())
        return cold, warm


def rated(attempts: int, sends: int, progress: Progress) -> dict[str, list[float]]:
    """Messages a second; the ways take turns, so that each sees the same machine."""
    found: dict[str, list[float]] = {by: [] for by in FORMULAS}
    for attempt in range(attempts):
        for by in FORMULAS:
            progress(f"{ABOUT[by]}, rate, run {attempt + 1}")
            found[by].append(run_loop(_rate(by, sends)))
    return found


async def _rate(by: str, sends: int) -> float:
    async with Stage(by, RATE_RECIPIENTS, lossy=False) as stage:
        await stage.send()
        before = stage.received
        started = perf_counter()
        pending: set[asyncio.Task[Any]] = set()
        for _ in range(sends):
            if len(pending) >= 32:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            pending.add(asyncio.create_task(stage.producer.send("o", b"x" * 100)))
        await asyncio.wait(pending)
        while stage.received < before + sends * RATE_RECIPIENTS:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        return sends / (perf_counter() - started)


async def moved() -> float:
    """The longest time of a send until its receivers are counted, while the router moves from member to member."""
    async with Stage(ROUTER, 2, lossy=False) as stage:
        await stage.send()
        host, longest_s, moving = stage.host, 0.0, True

        async def move() -> None:
            nonlocal host, moving
            for number in range(MOVES):
                await asyncio.sleep(0.2)
                state = await host.move()
                host = await stage.buses[1 + number % 2].slots(state)
            await asyncio.sleep(0.2)
            moving = False

        task = asyncio.create_task(move())
        while moving:
            started = perf_counter()
            await stage.producer.send("o", b"x", timeout=10)
            longest_s = max(longest_s, perf_counter() - started)
            await asyncio.sleep(0.005)
        await task
        return longest_s


def on_lines(by: str, sends: int) -> float:
    """Messages a second in virtual time, where each host has a line of its own and a multicast takes it once."""

    async def play() -> float:
        medium = Medium(shared=True)
        async with World(RATE_RECIPIENTS + 2, 1, stack=BEST_EFFORT, medium=medium) as world:
            world.set_link(LINE)
            slots = await _occupied(world, by)
            got = 0

            async def read(slot: EnrolledSlot) -> None:
                nonlocal got
                async for _ in slot.port("in"):
                    got += 1

            tasks = [asyncio.create_task(read(slot)) for slot in slots[1:]]
            await slots[0].send("o", b"x")
            started, pending = world.now, set[asyncio.Task[Any]]()
            for _ in range(sends):
                if len(pending) >= 32:
                    _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                pending.add(asyncio.create_task(slots[0].send("o", b"x" * LINE_BYTES)))
            await asyncio.wait(pending)
            while got < (sends + 1) * RATE_RECIPIENTS:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.0005)
            for task in tasks:
                task.cancel()
            return sends / (world.now - started)

    return run_world(play())


def changed(by: str) -> float:
    """Round trips until every occupant knows a route that one of them has added."""
    latency_s = 0.01

    async def play() -> float:
        stack = VIEWS if by == REPLICA else BEST_EFFORT
        async with World(RATE_RECIPIENTS + 2, 1, stack=stack) as world:
            world.set_link(Link(latency_s=latency_s, jitter_s=0.0))
            slots = await _occupied(world, by)
            occupants = [slot._occupant for slot in slots]
            known = max(occupant.routes.version for occupant in occupants)
            started = world.now
            change = asyncio.create_task(slots[0].del_route("p.o", "c.in"))
            while any(occupant.routes.version <= known for occupant in occupants):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(latency_s / 50)
            took_s = world.now - started
            await change
            return took_s / (2 * latency_s)

    return run_world(play())


async def _occupied(world: World, by: str) -> list[EnrolledSlot]:
    """The producer's slot and the consumers', on a member each; the first member starts the bus."""
    await world.buses[0].slots(plan_of(PLAN), by=by)
    producer = await world.buses[1].enroll("p", on=NAME, timeout=60)
    consumers = [await bus.enroll("c", on=NAME, timeout=60) for bus in world.buses[2:]]
    await asyncio.sleep(SETTLE_S)
    return [producer, *consumers]
