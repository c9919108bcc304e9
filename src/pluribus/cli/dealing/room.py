"""The dealing room itself: starts everybody, opens, closes, waits for the last alert, and counts.

Nothing here knows who does what: roles say on the bus that they are ready, closed, done (``room/…``). On an in-process
bus all of them are tasks of this process, and the room keeps the log itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pluribus.cli.dealing import spark as dealing_spark
from pluribus.cli.dealing.players import (
    DESKS,
    END_S,
    EXCHANGES,
    KEEPERS,
    RATE,
    START_S,
    STATUS_S,
    Tick,
    address,
    deal,
    dealers,
    keep,
    provide,
)
from pluribus.cli.dealing.spark import Crew
from pluribus.core.errors import Unreachable
from pluribus.pubsub.event import Event
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.loop.running import run
from pluribus.runtime.styles.topics.subscription import Subscription

CATCH_UP_S = 60.0
"""How long a closed room waits for Spark to find what is still in the log, unless told otherwise."""
CLOCK_S = 0.5
FOREVER_S = 1e9


@dataclass
class Scene:
    """What the room shows while it is open."""

    desks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    averages: int = 0
    spark: str = "Spark takes no part"


Show = Callable[[Scene], None]
Complaint = Callable[[], str]


def room(
    url: str | None,
    seconds: float,
    show: Show,
    rate: int = RATE,
    spark: bool = True,
    patience_s: float = CATCH_UP_S,
) -> dict[str, Any]:
    """Run the dealing room for so long, or until an interrupt if that is 0; ``show`` is given what there is to see, now
    and then. The summary."""
    url = url or os.environ.get("PLURIBUS_URL") or f"multicast://dealing-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        return run(Room(url, seconds or FOREVER_S, show, rate, folder, patience_s).hold(spark))


class Room:
    def __init__(
        self, url: str, seconds: float, show: Show, rate: int, folder: str, patience_s: float = CATCH_UP_S
    ) -> None:
        self._url = url
        self._seconds = seconds
        self._show = show
        self._rate = rate
        self._folder = folder
        self._patience_s = patience_s
        self._verdict = ""
        """On Spark, once it is known; batches that end later do not change it."""
        self._scene = Scene()
        self._said: dict[str, dict[str, Any]] = {}
        self._crew: Crew | None = None
        self._averages = 0

    async def hold(self, spark: bool) -> dict[str, Any]:
        alone = self._url.startswith("inproc:")
        own = {"store": os.path.join(self._folder, "room.db"), "votes": True, "serve": "127.0.0.1:0"} if alone else {}
        async with (
            connect(self._url, name="room", **own) as bus,  # type: ignore[arg-type]
            bus.subscribe("room/ready/+") as ready,
            bus.subscribe("room/closed/+") as closed,
            bus.subscribe("room/report/+") as reports,
            AsyncExitStack() as later,
        ):
            if spark:
                self._scene.spark = dealing_spark.why_not(self._seconds)
            if spark and not self._scene.spark:
                self._crew, self._scene.spark = Crew(), "Spark starts"
                later.push_async_callback(self._crew.end)
            start = _tasks if alone else _processes
            keepers = [] if alone else [(keep, self._url, n, f"{self._folder}/{n}.db") for n in range(KEEPERS)]
            of_keepers = await later.enter_async_context(start(keepers))
            doors = [await _one(ready, of_keepers, START_S, "keeps the log") for _ in keepers] or [address(bus)]
            if self._crew is not None:
                self._crew.begin(f"client://{','.join(doors)}/{bus.url.bus}")
            roles: list[tuple[Any, ...]] = [
                *((provide, self._url, exchange, self._seconds, self._rate) for exchange in EXCHANGES),
                *((deal, self._url, number) for number in range(DESKS)),
            ]
            of_roles = await later.enter_async_context(start(roles))
            for _ in roles:
                await _one(ready, of_roles, START_S, "takes its place")
            return await self._open(bus, closed, reports, lambda: of_keepers() or of_roles())

    async def _open(
        self, bus: Bus, closed: Subscription[Any], reports: Subscription[Any], complaint: Complaint
    ) -> dict[str, Any]:
        began = perf_counter()
        seen = (self._desks_tell(bus), self._spark_tells(bus, began), self._averaged(bus), self._look(began))
        showing = [asyncio.create_task(one) for one in seen]
        with _interrupts(lambda: bus.publish_soon("room/close", True)):
            await bus.publish("room/open", True, retain=True)
            ended = [await _one(closed, complaint, self._seconds + END_S, "closes") for _ in EXCHANGES]
        took = perf_counter() - began
        missing = await self._catch_up(bus, ended)
        await bus.publish("room/count", True, retain=True)
        desks = [await _one(reports, complaint, END_S, "reports") for _ in range(DESKS)]
        for task in showing:
            task.cancel()
        self._scene.desks = desks
        self._scene.spark = self._verdict or self._scene.spark
        await asyncio.to_thread(self._show, self._scene)
        if self._crew is not None:
            await self._crew.end()
        await bus.publish("room/over", True, retain=True)
        await bus.flush()
        return self._summary(ended, desks, took, missing)

    async def _catch_up(self, bus: Bus, ended: list[dict[str, Any]]) -> int:
        """Wait until dealers were alerted of every turn; how many alerts are missing though Spark has read everything.

        Spark decides on an event when a later one is old enough, so there are some more, of a stock that nobody has.
        """
        crew, until = self._crew, perf_counter() + self._patience_s
        turns = sum(one["turns"] for one in ended)
        if crew is None:
            return 0
        while (alerts := sum(desk["alerts"] for desk in self._said.values())) < turns:
            if crew.complaint() or perf_counter() > until:
                read = crew.rows >= sum(one["published"] for one in ended)
                behind = f"Spark was still behind {self._patience_s:g} s after the room closed, on a machine this busy"
                self._verdict = crew.complaint() or ("Spark missed turns" if read else behind)
                return turns - alerts if read else 0
            await bus.publish("stocks/room/clock", Tick("clock", 0.0, 0.0, 0), durable=True, live=False)
            await asyncio.sleep(CLOCK_S)
        self._verdict = "Spark found every turn"
        return 0

    def _summary(
        self, ended: list[dict[str, Any]], desks: list[dict[str, Any]], took: float, missing: int
    ) -> dict[str, Any]:
        expected: Counter[str] = Counter()
        for one in ended:
            expected.update(one["expected"])
        got = Counter({dealer: count for desk in desks for dealer, count in desk["got"].items()})
        published = sum(one["published"] for one in ended)
        turns, alerts = sum(one["turns"] for one in ended), sum(desk["alerts"] for desk in desks)
        crew = self._crew
        return {
            "providers": len(ended),
            "dealers": len(dealers()),
            "keepers": 1 if self._url.startswith("inproc:") else KEEPERS,
            "published": published,
            "delivered": sum(got.values()),
            "lost": sum((expected - got).values()) + missing,
            "unasked": sum((got - expected).values()) + max(alerts - turns, 0),
            "moves": sum(desk["moves"] for desk in desks),
            "alerts": alerts,
            "turns": turns,
            "averages": self._averages,
            "spark": self._verdict or self._scene.spark,
            "spark_batches": crew.batches if crew else 0,
            "spark_rows": crew.rows if crew else 0,
            "spark_began_s": crew and crew.began_s and round(crew.began_s, 1),
            "rate": round(published / took),
            "late_us_p50": round(max(desk["p50_us"] for desk in desks), 1),
            "late_us_p99": round(max(desk["p99_us"] for desk in desks), 1),
            "alert_s_p50": round(max(desk["alert_s"] for desk in desks), 3),
            "seconds": round(took, 3),
        }

    # What is seen meanwhile

    async def _desks_tell(self, bus: Bus) -> None:
        async with bus.subscribe("room/status/+") as status:
            async for event in status:
                self._said[event.body["desk"]] = event.body

    async def _averaged(self, bus: Bus) -> None:
        async with bus.subscribe("averages", start="earliest") as averages:
            async for _ in averages:
                self._averages += 1

    async def _spark_tells(self, bus: Bus, began: float) -> None:
        async with bus.subscribe("room/spark") as told:
            async for event in told:
                if self._crew is not None:
                    self._crew.heard(event.body, perf_counter() - began)
                    live = f"Spark is live: {self._crew.rows:,} events in {self._crew.batches} batches"
                    self._scene.spark = self._verdict or live

    async def _look(self, began: float) -> None:
        while True:
            if self._crew is not None and self._crew.complaint():
                self._scene.spark = self._crew.complaint()
            self._scene.desks = list(self._said.values())
            self._scene.averages = self._averages
            self._scene.seconds = perf_counter() - began
            await asyncio.to_thread(self._show, self._scene)  # drawing takes longer than a turn of the loop may
            await asyncio.sleep(STATUS_S)


async def _one(events: Subscription[Any], complaint: Complaint, seconds: float, what: str) -> Any:
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


@contextmanager
def _interrupts(close: Callable[[], object]) -> Iterator[None]:
    """Meanwhile Ctrl-C closes the room, and a second one ends it at once."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        close()

    with suppress(NotImplementedError, ValueError, RuntimeError):  # no signals here: an interrupt ends it all
        loop.add_signal_handler(signal.SIGINT, once)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)


@asynccontextmanager
async def _processes(roles: Sequence[tuple[Any, ...]]) -> AsyncIterator[Complaint]:
    with tempfile.TemporaryFile() as errors:
        processes = []
        for function, *arguments in roles:
            code = f"from pluribus.cli.dealing.players import play; play({function.__name__!r}, *{tuple(arguments)!r})"
            # Ctrl-C is for the room alone; a room that is gone closes their standard input, and they go too.
            processes.append(
                subprocess.Popen(  # noqa: ASYNC220
                    [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=errors, start_new_session=True
                )
            )

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
        if not seconds and process.stdin is not None:
            process.stdin.close()


@asynccontextmanager
async def _tasks(roles: Sequence[tuple[Any, ...]]) -> AsyncIterator[Complaint]:
    """Members of an in-process bus live in one process."""
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(role[0](*role[1:])) for role in roles]

    def complaint() -> str:
        return next((str(task.exception()) for task in tasks if task.done() and task.exception()), "")

    try:
        yield complaint
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
