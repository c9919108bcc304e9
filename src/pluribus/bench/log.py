"""``pluribus bench log``: durable publishing beside other systems that keep events, and the cost of a long log.

Publishing keeps so many events under way (``DEPTH``) and counts those that are on disk. Ours is measured as a program
with a keeper of its own, beside a table in SQLite, and as a client of one keeper in another process, beside servers;
three voters, each a process, are reported. Peers and ours take turns in the same run.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core.errors import Unavailable
from ..runtime.bus import connect
from ..runtime.clients.log_client import LogClient
from ..runtime.loop.running import run as run_on_loop
from ..runtime.styles.topics.durable import Durable
from .peers.kept import KEPT, SETTINGS, folder, kept_names
from .ports import free_port
from .report import Goal, Result, at_least, at_most, report, result

SIZES = (100, 1_024)
DEPTH = 100
SECONDS = 2.0
EVENTS = 10_000_000
SHORT = 1_000
OPEN_S_MAX = 2.0
GROWTH_MAX = 1.25
READS = 2_000
READ_EVENTS = 100
BULK = 1_000
OWN, CLIENT, THREE = "pluribus, own keeper", "pluribus, client of one", "pluribus, three voters"
EMBEDDED = ("sqlite",)
"""Peers without a server, which are compared with a keeper in the process."""

Rates = dict[tuple[str, int], list[float]]


def run(
    *, quick: bool = False, peers: str = "", events: int = EVENTS, progress: Callable[[str], None], **_: Any
) -> dict[str, Any]:
    rivals = kept_names(peers)
    runs, seconds = (1, 0.3) if quick else (5, SECONDS)
    events = min(events, 200_000) if quick else events
    rates: Rates = {}
    missing: dict[str, str] = {}
    for attempt in range(runs):
        for size in SIZES:
            progress(f"run {attempt + 1} of {runs}: publishing {size} B")
            for name in _turns(rivals):
                if name in KEPT:
                    _theirs(name, size, seconds, rates, missing)
                else:
                    rates.setdefault((name, size), []).append(_ours(name, size, seconds))
    results = [result(f"{name}, {size} B", "events/s", values) for (name, size), values in rates.items()]
    rows, goals = _long(events, runs, seconds, progress)
    found = report("log", [*results, *rows], [*_goals(rates), *goals])
    found["settings"] = {"depth": DEPTH, **{rival: missing.get(rival, SETTINGS[rival]) for rival in rivals}}
    return found


def _turns(rivals: Sequence[str]) -> list[str]:
    """Measure ours and the other system by turns, so that a machine that is slow for a while is slow for both."""
    embedded = [rival for rival in rivals if rival in EMBEDDED]
    servers = [rival for rival in rivals if rival not in EMBEDDED]
    return [OWN, *embedded, CLIENT, *servers, THREE]


def _ours(name: str, size: int, seconds: float) -> float:
    if name == OWN:
        with folder() as place:
            return run_on_loop(_own(place / "own.db", size, seconds))
    with keepers(3 if name == THREE else 1) as url:
        return run_on_loop(_client(url, size, seconds))


def _theirs(rival: str, size: int, seconds: float, rates: Rates, missing: dict[str, str]) -> None:
    if rival not in missing:
        try:
            rates.setdefault((rival, size), []).append(KEPT[rival](size, DEPTH, seconds))
        except Unavailable as error:
            missing[rival] = str(error)
            rates.pop((rival, size), None)


async def _own(path: Path, size: int, seconds: float) -> float:
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        return await published(bus.durable, size, seconds)


async def _client(url: str, size: int, seconds: float) -> float:
    async with connect(url) as bus:
        return await published(bus.durable, size, seconds)


async def published(durable: Durable, size: int, seconds: float) -> float:
    """Events a second that are on disk, with at most ``DEPTH`` under way."""
    window = [("events", bytes(size))] * DEPTH
    for _ in range(5):
        await durable.publish_many(window)
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        await durable.publish_many(window)
        count += DEPTH
    return count / (perf_counter() - since)


@contextmanager
def keepers(count: int) -> Iterator[str]:
    """Start so many voters, each a process; returns the address of the first one that leads or follows."""
    processes: list[subprocess.Popen[str]] = []
    bus = f"bench-{free_port()}"
    with folder() as place:
        try:
            addresses = []
            for number in range(count):
                store = str(place / f"{number}.db")
                command = [sys.executable, "-m", "pluribus", "keep", "--store", store, "--url", f"multicast://{bus}"]
                command += ["--serve", "127.0.0.1:0", "--json"]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                processes.append(process)
                assert process.stdout is not None
                addresses.append(json.loads(process.stdout.readline())["serves"][0])
            url = f"client://{addresses[0]}/{bus}"
            yield url
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.communicate()


def _goals(rates: Rates) -> list[Goal]:
    goals = []
    for (name, size), theirs in rates.items():
        if name in KEPT:
            ours = rates[(OWN if name in EMBEDDED else CLIENT, size)]
            goals.append(at_least(f"{size} B: times {name}", _times(ours, theirs), 1.0))
    return goals


# A long log.


def _long(events: int, runs: int, seconds: float, progress: Callable[[str], None]) -> tuple[list[Result], list[Goal]]:
    with folder() as place:
        figures: dict[int, dict[str, list[float]]] = {}
        for count in (SHORT, events):
            progress(f"filling a log of {count:,} events")
            figures[count] = {"filled": [run_on_loop(_fill(place / f"{count}.db", count))]}
        for attempt in range(runs):
            for count in (SHORT, events):  # in turns: a disk that is slow for a while is slow for both
                progress(f"run {attempt + 1} of {runs}: a log of {count:,} events")
                for name, value in run_on_loop(_use(place / f"{count}.db", count, seconds)).items():
                    figures[count].setdefault(name, []).append(value)
    units = {"filled": "events/s", "open": "s", "append": "events/s", "read": "reads/s", "scan": "events/s"}
    rows = [
        result(f"log of {count:,} events: {name}", units[name], values)
        for count, found in figures.items()
        for name, values in found.items()
    ]
    long, short = figures[events], figures[SHORT]
    return rows, [
        at_most(f"a log of {events:,} events opens, seconds", statistics.median(long["open"]), OPEN_S_MAX),
        at_most(f"appending to {events:,} costs, times {SHORT:,}", _times(short["append"], long["append"]), GROWTH_MAX),
        at_most(f"reading from {events:,} costs, times {SHORT:,}", _times(short["read"], long["read"]), GROWTH_MAX),
    ]


def _times(some: list[float], others: list[float]) -> float:
    """Our rate divided by the other's, run by run."""
    return statistics.median(one / other for one, other in zip(some, others, strict=True))


async def _fill(path: Path, count: int) -> float:
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        body, since = bytes(100), perf_counter()
        for at in range(0, count, BULK):
            await bus.durable.publish_many([("events", body)] * min(BULK, count - at))
        return count / (perf_counter() - since)


async def _use(path: Path, count: int, seconds: float) -> dict[str, float]:
    """Open the log, append to it, and read at any place: always within the events of one append, because a short log
    has no more."""
    found: dict[str, float] = {}
    since = perf_counter()
    async with connect(f"inproc://bench-{free_port()}", store=path, serve="127.0.0.1:0") as bus:
        log = bus.log("events")
        _, end = await log.offsets()
        assert end >= count, f"{end} of {count} events are there"
        found["open"] = perf_counter() - since
        chance = random.Random(1)
        since = perf_counter()
        for _ in range(READS):
            within = chance.randrange(max(min(count, BULK) - READ_EVENTS, 1))
            start = chance.randrange(max(count // BULK, 1)) * BULK + within
            batches = await log.read(start, start + READ_EVENTS)
            assert sum(map(len, batches)) == min(READ_EVENTS, end - start)
        found["read"] = READS / (perf_counter() - since)
        url = "client://{}:{}/{}".format(*bus.doors[0].address, bus.url.bus)
        some = min(end, 1_000_000)
        since = perf_counter()
        assert await asyncio.to_thread(_scan, url, some) == some
        found["scan"] = some / (perf_counter() - since)
        found["append"] = await published(bus.durable, 100, seconds)
    return found


def _scan(url: str, count: int) -> int:
    with LogClient(url) as reader:
        return sum(len(batch) for batch in reader.read("events", 0, count))
