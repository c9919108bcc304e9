"""The dealing room itself: starts all processes, opens, closes, waits for the last alert, and counts.

The room does not know which process has which role: roles report on the bus that they are ready, closed, done
(``room/…``). On an in-process bus all of them are tasks of this process, and the room keeps the log itself.

The room ends after so many seconds, or when Spark has answered, or at an interrupt (``Scene.interrupts``). An interrupt
is in a hurry: a process that has not reported within ``HURRY_S`` is left out of the summary, which says so.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from time import perf_counter
from typing import Any

from pluribus.cli.dealing import spark as dealing_spark
from pluribus.cli.dealing.cast import Cast, TaskCast
from pluribus.cli.dealing.players import (
    CLOCK,
    DESKS,
    END_S,
    EXCHANGES,
    KEEPERS,
    RATE,
    START_S,
    address,
    dealers,
)
from pluribus.cli.dealing.scene import HISTORY_MAX, Keeper, Scene
from pluribus.cli.dealing.spark import Crew
from pluribus.core.errors import PluribusError, Unreachable
from pluribus.runtime.bus import Bus, connect
from pluribus.runtime.loop.running import run
from pluribus.runtime.styles.topics.subscription import Subscription

CATCH_UP_S = 60.0
"""Seconds for which a closed room waits for Spark to read the rest of the log, by default."""
CLOCK_S = 0.5
LOOK_S = 0.05
DISK_S = 1.0
MINUTE_S = 50.0
"""Seconds for which a room that ends by itself deals at least; Spark needs some seconds more to read to the end."""
ANSWER_S = 120.0
"""Seconds for which a room that ends by itself waits for Spark's first alert."""
HURRY_S = 3.0
"""Seconds from an interrupt to the summary, at most; the rest of five seconds is for ending the processes."""
LEAVE_S = 0.5
BACK_S = 4.0
"""Seconds after which a killed process is started again."""


class Interrupted(PluribusError):
    """Ctrl-C before the room was open."""


def room(
    url: str | None,
    scene: Scene,
    seconds: float | None = None,
    rate: int = RATE,
    spark: bool = True,
    patience_s: float = CATCH_UP_S,
) -> dict[str, Any]:
    """Run the dealing room for so many seconds; with 0 until an interrupt; with None until Spark has answered. Returns
    the summary. ``scene`` is the state that is shown meanwhile."""
    url = url or os.environ.get("PLURIBUS_URL") or f"multicast://dealing-{os.getpid()}"
    scene.ends_by_itself = seconds != 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        crew = None
        scene.spark = dealing_spark.why_not(seconds or 0.0) if spark else scene.spark
        if spark and not scene.spark:
            crew, scene.spark = Crew(folder), f"Spark: {dealing_spark.STARTS}"
        held = Room(url, scene, seconds, rate, folder, crew, patience_s)
        try:
            return run(held.hold())
        finally:
            if crew is not None:
                crew.end(0.0)


class Room:
    def __init__(
        self,
        url: str,
        scene: Scene,
        seconds: float | None,
        rate: int,
        folder: str,
        crew: Crew | None,
        patience_s: float,
    ) -> None:
        self._url = url
        self._scene = scene
        self._seconds = seconds
        self._rate = rate
        self._folder = folder
        self._crew = crew
        self._patience_s = patience_s
        self._alone = url.startswith("inproc:")
        self._cast = TaskCast() if self._alone else Cast()
        self._parts: dict[str, tuple[Any, ...]] = {}
        """The role of every process, and the arguments of the role."""
        self._back: dict[str, float] = {}
        """Killed processes, and the times at which they are started again."""
        self._hurry: float | None = None
        """The time at which the room must have ended, after an interrupt."""
        self._first: float | None = None
        """The time of the first price that was reported."""
        self._verdict = ""
        """The verdict on Spark, once it is known; batches that end later do not change it."""
        self.killed: list[str] = []

    async def hold(self) -> dict[str, Any]:
        """Run the room from the first process to the last one; returns the summary."""
        async with AsyncExitStack() as later:
            summary = await self._held(later)
            # Who was killed does not say good-bye; to wait for that would take longer than anybody wants.
            leaving = asyncio.ensure_future(later.pop_all().aclose())
            await asyncio.wait([leaving], timeout=LEAVE_S if self._hurry else END_S)
            leaving.cancel()
            await asyncio.wait([leaving], timeout=LEAVE_S)
            return summary

    async def _held(self, later: AsyncExitStack) -> dict[str, Any]:
        own = {"store": f"{self._folder}/room.db", "votes": True, "serve": "127.0.0.1:0"} if self._alone else {}
        bus = await later.enter_async_context(connect(self._url, name="room", **own))  # type: ignore[arg-type]
        ready, closed, reports = [
            await later.enter_async_context(bus.subscribe(f"room/{what}/+")) for what in ("ready", "closed", "report")
        ]
        later.callback(self._cast.end_now)
        try:
            await self._gather(bus, ready)
        except Interrupted:
            return self._summary({}, {}, 0.0, 0)
        return await self._open(bus, ready, closed, reports)

    # Starting

    async def _gather(self, bus: Bus, ready: Subscription[Any]) -> None:
        """Start the processes: keepers first, because the others need them."""
        keepers = [] if self._alone else [f"keeper-{number}" for number in range(1, KEEPERS + 1)]
        for name in keepers:
            self._begin(name, "keep", self._url, name, f"{self._folder}/{name}.db", "127.0.0.1:0")
        doors = await self._all(ready, keepers, "keeps the log")
        for name, door in doors.items():
            role, url, _, store, _ = self._parts[name]
            self._parts[name] = (role, url, name, store, door)  # who comes back is found at the same address
        if self._crew is not None:
            self._crew.begin(f"client://{','.join(doors.values()) or address(bus)}/{bus.url.bus}")
        others = [*EXCHANGES, *(f"desk-{number}" for number in range(DESKS))]
        for exchange in EXCHANGES:
            self._begin(exchange, "provide", self._url, exchange, self._rate)
        for number in range(DESKS):
            self._begin(f"desk-{number}", "deal", self._url, number)
        await self._all(ready, others, "takes its place")

    def _begin(self, name: str, *part: Any) -> None:
        self._parts[name] = part
        self._scene.away[name] = "starts"
        self._cast.start(name, *part)

    async def _all(self, ready: Subscription[Any], names: list[str], what: str) -> dict[str, Any]:
        """Wait until all of these are ready; returns what they reported."""
        said: dict[str, Any] = {}
        until = perf_counter() + START_S
        while not said.keys() >= set(names):
            if self._interrupted():
                raise Interrupted("interrupted")
            self._look_at_spark()
            for name, why in self._cast.failed().items():
                raise Unreachable(f"{name} of the dealing room failed: {why}")
            if perf_counter() > until:
                missing = ", ".join(sorted(set(names) - said.keys()))
                raise Unreachable(f"nobody {what} as {missing} within {START_S:g} s: `pluribus doctor` may say why")
            said |= await self._heard(ready)
        return said

    async def _heard(self, events: Subscription[Any]) -> dict[str, Any]:
        """Handle the reports that came meanwhile, by the last level of their topics."""
        try:
            found = await events.receive_many(timeout=LOOK_S)
        except TimeoutError:
            return {}
        said = {event.topic.rpartition("/")[2]: event.body for event in found}
        if events.pattern == "room/ready/+":
            for name in said:
                self._scene.away.pop(name, None)
        return said

    def _interrupted(self) -> bool:
        if self._scene.interrupts and self._hurry is None:
            self._hurry = perf_counter() + HURRY_S
        return self._hurry is not None

    # Open

    async def _open(
        self, bus: Bus, ready: Subscription[Any], closed: Subscription[Any], reports: Subscription[Any]
    ) -> dict[str, Any]:
        began, scene = perf_counter(), self._scene
        await bus.publish("room/open", True, retain=True)
        scene.phase, scene.killing = "open", self._cast.kills
        seen: list[Coroutine[Any, Any, None]] = [
            self._told(bus, "room/status/+", self._desk_told),
            self._told(bus, "room/prices/+", self._provider_told),
            self._told(bus, "room/spark", lambda event: self._spark_told(event, perf_counter() - began)),
            self._told(bus, "alerts/+", self._alert_told, start="earliest"),
            self._told(bus, "averages", self._average_told, start="earliest"),
            self._look_at_disk(bus),
        ]
        showing = [asyncio.create_task(one) for one in seen]
        while not self._interrupted() and not self._over():
            for name in (await self._heard(ready)).keys() & set(self.killed):
                scene.happens(f"{name} is back, and has caught up")
            self._look_at_keys()
            self._look_after_everybody()
            self._look_at_spark()
        scene.phase, scene.killing = "closes", False
        took = perf_counter() - (self._first or began)
        await bus.publish("room/close", True, retain=True)
        for name in self._back:
            self._back[name] = 0.0  # who is away comes back at once, to be counted
        ended = await self._reported(closed, list(EXCHANGES))
        missing = await self._catch_up(bus, ended)
        await bus.publish("room/count", len(ended) == len(EXCHANGES), retain=True)
        desks = await self._reported(reports, [f"desk-{number}" for number in range(DESKS)])
        for task in showing:
            task.cancel()
        scene.desks |= desks
        scene.phase = "closed"
        self._look_at_spark()
        if self._crew is not None:
            await asyncio.to_thread(self._crew.end, 0.0 if self._hurry else dealing_spark.END_S)
        await bus.publish("room/over", True, retain=True)
        await self._cast.end(LEAVE_S if self._hurry else END_S)
        return self._summary(ended, desks, took, missing)

    def _over(self) -> bool:
        if self._first is None:
            return False
        seconds = perf_counter() - self._first
        if self._seconds is not None:
            return 0 < self._seconds <= seconds
        answered = self._crew is None or bool(self._crew.complaint()) or self._scene.alerts_count > 0
        return seconds >= (MINUTE_S if answered else ANSWER_S)

    def _look_at_keys(self) -> None:
        scene = self._scene
        while scene.keys:
            key = scene.keys.popleft()
            if key not in "kp":
                continue
            if not self._cast.kills:
                scene.happens("on an in-process bus everybody is in this process: nobody can be killed")
            elif key == "k":
                self._kill_a_keeper()
            else:
                self._kill_a_provider()

    def _kill_a_keeper(self) -> None:
        scene = self._scene
        keepers = [f"keeper-{number}" for number in range(1, KEEPERS + 1)]
        if away := next((name for name in keepers if name in scene.away), ""):
            scene.happens(f"{away} is still away: two of three keepers must be there")
            return
        leader = next((one.name for one in scene.keepers if one.role == "leader"), keepers[0])
        self._kill(leader, "it led; the two others elect a leader")

    def _kill_a_provider(self) -> None:
        scene = self._scene
        here = [exchange for exchange in EXCHANGES if exchange not in scene.away]
        if not here:
            scene.happens("all four providers are away: wait for one")
            return
        turn = sum(name in EXCHANGES for name in self.killed)
        self._kill(here[turn % len(here)], "it will ask the keepers where to go on")

    def _kill(self, name: str, what: str) -> None:
        self._cast.kill(name)
        self.killed.append(name)
        self._away(name, "KILLED")
        self._scene.happens(f"{name} was killed: {what}")

    def _away(self, name: str, why: str) -> None:
        self._scene.away[name] = why
        self._back[name] = perf_counter() + BACK_S

    def _look_after_everybody(self) -> None:
        """Restart processes that were killed, or failed. A provider or keeper goes on where the log ends; a desk
        cannot."""
        for name, why in self._cast.failed().items():
            if name.startswith("desk-") or self._alone:
                raise Unreachable(f"{name} of the dealing room failed: {why}")
            if name not in self._back:
                self._away(name, "FAILED")
                self._scene.happens(f"{name} failed, and is started again: {why}")
            if perf_counter() >= self._back[name]:
                del self._back[name]
                self._begin(name, *self._parts[name])
                self._scene.happens(f"{name} is started again")

    # Closing

    async def _reported(self, events: Subscription[Any], names: list[str]) -> dict[str, dict[str, Any]]:
        """The final reports of these processes; after an interrupt, of those that reported in time."""
        said: dict[str, dict[str, Any]] = {}
        until = perf_counter() + END_S
        while not said.keys() >= set(names):
            self._interrupted()
            if perf_counter() > (until if self._hurry is None else self._hurry):
                if self._hurry is not None:
                    break
                missing = ", ".join(sorted(set(names) - said.keys()))
                raise Unreachable(f"{missing} did not report within {END_S:g} s: `pluribus doctor` may say why")
            self._look_after_everybody()
            said |= await self._heard(events)
        return said

    async def _catch_up(self, bus: Bus, ended: dict[str, dict[str, Any]]) -> int:
        """Wait until Spark has read everything and dealers were alerted of every turn. Returns how many alerts are
        missing although Spark has read everything.

        Spark decides on an event when a later one is old enough, so some more events are published, of a stock that no
        dealer watches.
        """
        crew, until = self._crew, perf_counter() + self._patience_s
        turns, published = (sum(one[what] for one in ended.values()) for what in ("turns", "published"))
        if crew is None:
            return 0
        while True:
            alerts = sum(desk["alerts"] for desk in self._scene.desks.values())
            if alerts >= turns and self._scene.averages_count and crew.rows >= published:
                self._verdict = "Spark found every turn"
                return 0
            if self._interrupted():
                behind = max(published - crew.rows, 0)
                self._verdict = f"Spark was stopped {behind:,} prices behind" if crew.rows else "Spark was starting"
                return 0
            if crew.complaint() or perf_counter() > until:
                read = crew.answered >= published
                late = f"Spark was still behind {self._patience_s:g} s after the room closed, on a machine this busy"
                self._verdict = crew.complaint() or ("Spark missed turns" if read and alerts < turns else late)
                return max(turns - alerts, 0) if read else 0
            self._look_at_spark()
            await bus.publish("stocks/room/clock", CLOCK, durable=True, live=False)
            await asyncio.sleep(CLOCK_S)

    def _summary(
        self, ended: dict[str, dict[str, Any]], desks: dict[str, dict[str, Any]], took: float, missing: int
    ) -> dict[str, Any]:
        expected: Counter[str] = Counter()
        for one in ended.values():
            expected.update(one["expected"])
        got = Counter({dealer: count for desk in desks.values() for dealer, count in desk["got"].items()})
        published = sum(one["published"] for one in ended.values())
        turns, alerts = (
            sum(one[what] for one in them.values()) for what, them in (("turns", ended), ("alerts", desks))
        )
        crew = self._crew
        names = [*EXCHANGES, *(f"desk-{number}" for number in range(DESKS))]
        uncounted = sorted(set(names) - ended.keys() - desks.keys())
        return {
            "providers": len(EXCHANGES),
            "dealers": len(dealers()),
            "keepers": 1 if self._alone else KEEPERS,
            "published": published,
            "delivered": sum(got.values()),
            "lost": 0 if uncounted else sum((expected - got).values()) + missing,
            "unasked": 0 if uncounted else sum((got - expected).values()) + max(alerts - turns, 0),
            "uncounted": uncounted,
            "killed": self.killed,
            "moves": sum(desk["moves"] for desk in desks.values()),
            "alerts": alerts,
            "turns": turns,
            "averages": self._scene.averages_count,
            "spark": self._verdict or self._scene.spark,
            "spark_batches": crew.batches if crew else 0,
            "spark_rows": crew.rows if crew else 0,
            "report": crew.report if crew else None,
            "spark_began_s": crew and crew.began_s and round(crew.began_s, 1),
            "rate": round(published / took) if took else 0,
            "first_alert_s": self._scene.first_alert_s and round(self._scene.first_alert_s, 1),
            "late_us_p50": round(max((desk["p50_us"] for desk in desks.values()), default=0.0), 1),
            "late_us_p99": round(max((desk["p99_us"] for desk in desks.values()), default=0.0), 1),
            "alert_s_p50": round(max((desk["alert_s"] for desk in desks.values()), default=0.0), 3),
            "seconds": round(took, 3),
        }

    # What is seen meanwhile

    async def _told(self, bus: Bus, pattern: str, take: Callable[[Any], None], start: str | None = None) -> None:
        async with bus.subscribe(pattern) if start is None else bus.subscribe(pattern, start=start) as events:
            async for event in events:
                take(event)

    def _desk_told(self, event: Any) -> None:
        self._scene.desks[event.body["desk"]] = event.body

    def _provider_told(self, event: Any) -> None:
        told, scene = event.body, self._scene
        self._first = self._first or perf_counter()
        scene.prices[told["exchange"]] = told["last"]
        for symbol, (price, _) in told["last"].items():
            scene.history.setdefault(symbol, deque(maxlen=HISTORY_MAX)).append(price)

    def _spark_told(self, event: Any, now_s: float) -> None:
        if self._crew is not None:
            self._crew.heard(event.body, now_s)
            self._look_at_spark()

    def _alert_told(self, event: Any) -> None:
        turn, scene = event.body, self._scene
        if "top" not in turn or turn["top"] is None:
            return  # what the pattern could not place
        if not scene.alerts_count:
            scene.first_alert_s = scene.seconds
            scene.happens("Spark's first alert is here")
        scene.alerts_count += 1
        text = f"{turn['symbol']:<4} fell from {turn['top']:.2f} to {turn['bottom']:.2f}, rose to {turn['now']:.2f}"
        scene.alerts.append((scene.seconds, event.topic.rpartition("/")[2], text))

    def _average_told(self, event: Any) -> None:
        self._scene.averages_count += 1
        self._scene.averages[event.body["symbol"]] = event.body["mean"]

    def _look_at_spark(self) -> None:
        crew, scene = self._crew, self._scene
        if crew is None:
            return
        if complaint := self._verdict or crew.complaint():
            scene.spark, scene.spark_live = complaint, complaint == self._verdict
        elif crew.batches:
            behind = max(scene.on_disk - crew.rows, 0)
            scene.spark_live = True
            found = f"{scene.alerts_count:,} alerts, {scene.averages_count:,} averages"
            read = f"{crew.rows:,} prices read, {behind:,} to read" if crew.rows else "the first prices are read"
            scene.spark = f"Spark is live: {found}; {read}"
        else:
            scene.spark = f"Spark starts: {crew.step}"

    async def _look_at_disk(self, bus: Bus) -> None:
        scene = self._scene
        while True:
            with suppress(PluribusError, TimeoutError):
                known = await bus.durable.topics("stocks/+/+")
                scene.on_disk = sum(one.end for one in known if one.topic != "stocks/room/clock")
                scene.disk_bytes = sum(one.kept_bytes for one in known)
                found = await bus.keepers.ls()
                was = next((one.name for one in scene.keepers if one.role == "leader"), "")
                scene.keepers = sorted(
                    (Keeper(one.member, one.role, one.end, one.here) for one in found if one.member),
                    key=lambda one: one.name,
                )
                leads = next((one.name for one in scene.keepers if one.role == "leader"), "")
                if was and leads and leads != was:
                    scene.happens(f"{leads} leads now, and the log goes on")
            await asyncio.sleep(DISK_S)
