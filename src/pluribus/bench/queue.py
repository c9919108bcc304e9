"""``pluribus bench queue``: messages sent, on disk, received and acknowledged, beside other systems; and the cost of a
long queue.

One producer, one consumer, ``DEPTH`` messages under way: they are sent with ``send_soon`` and ``flush``, and received
by an iterator, which settles each message when the next one is asked for. Ours is measured in the process with its
keeper, beside a plain table in SQLite, and as a client of one keeper, beside servers; all in turns, in the same run.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core.errors import Unavailable
from ..runtime.bus import connect
from ..runtime.loop.running import run as run_on_loop
from ..runtime.styles.queues.queue import MessageQueue
from .fuzz import rss_bytes
from .log import keepers
from .peers.kept import folder
from .peers.queues import QUEUE_SETTINGS, QUEUES, queue_names
from .ports import free_port
from .report import Curve, Goal, at_least, at_most, report, result

SIZES = (100, 1_024)
DEPTH = 100
SECONDS = 2.0
OWN, CLIENT = "pluribus, own keeper", "pluribus, client of one"
EMBEDDED = ("sqlite",)
OWN_SHARE_MIN = 0.8
ONE_TIMES_MAX = 1.25
MESSAGES = 5_000_000
SHORT = 1_000
BULK = 1_000
OPEN_S_MAX = 3.0
GROWTH_MAX = 1.25
FIND_MS_MAX = 5.0
RESIDENT_MB_MAX = 600.0
RARE = 100_000
"""One message in so many has the property that is searched for."""

Rates = dict[tuple[str, int], list[float]]


def run(
    *,
    quick: bool = False,
    peers: str = "",
    depth: bool = False,
    messages: int = MESSAGES,
    progress: Callable[[str], None],
    **_: Any,
) -> dict[str, Any]:
    if depth:
        return _deep(min(messages, 50_000) if quick else messages, 0.3 if quick else SECONDS, progress)
    rivals = queue_names(peers)
    runs, seconds = (1, 0.3) if quick else (5, SECONDS)
    rates: Rates = {}
    missing: dict[str, str] = {}
    singles: dict[str, list[float]] = {}
    for attempt in range(runs):
        for size in SIZES:
            progress(f"run {attempt + 1} of {runs}: messages of {size} B")
            for name in _turns(rivals):
                if name not in QUEUES:
                    rates.setdefault((name, size), []).append(_ours(name, size, seconds))
                elif name not in missing:
                    try:
                        rates.setdefault((name, size), []).append(QUEUES[name](size, DEPTH, seconds))
                    except Unavailable as error:
                        missing[name] = str(error)
                        rates.pop((name, size), None)
        progress(f"run {attempt + 1} of {runs}: one at a time")
        with folder() as place:
            singles.setdefault("ours", []).append(run_on_loop(_one_at_a_time(place / "one.db", seconds)))
            singles.setdefault("sqlite", []).append(_one_in_a_table(place / "table.db", seconds))
    results = [result(f"{name}, {size} B", "messages/s", values) for (name, size), values in rates.items()]
    results += [result(f"one at a time, {name}", "ms", values) for name, values in singles.items()]
    slower = statistics.median(a / b for a, b in zip(singles["ours"], singles["sqlite"], strict=True))
    goals = [*_goals(rates), at_most("one at a time: times the table's time", slower, ONE_TIMES_MAX)]
    found = report("queue", results, goals)
    found["settings"] = {"depth": DEPTH, **{rival: missing.get(rival, QUEUE_SETTINGS[rival]) for rival in rivals}}
    return found


def _turns(rivals: Sequence[str]) -> list[str]:
    embedded = [rival for rival in rivals if rival in EMBEDDED]
    return [OWN, *embedded, CLIENT, *(rival for rival in rivals if rival not in EMBEDDED)]


def _goals(rates: Rates) -> list[Goal]:
    goals = []
    for (name, size), theirs in rates.items():
        if name in QUEUES:
            ours = rates[(OWN if name in EMBEDDED else CLIENT, size)]
            times = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            goals.append(at_least(f"{size} B: times {name}", times, OWN_SHARE_MIN if name in EMBEDDED else 1.0))
    return goals


def _ours(name: str, size: int, seconds: float) -> float:
    if name == OWN:
        with folder() as place:
            return run_on_loop(_own(place / "own.db", size, seconds))
    with keepers(1) as url:
        return run_on_loop(_client(url, size, seconds))


async def _own(path: Path, size: int, seconds: float) -> float:
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        return await through(await bus.queue("bench"), size, seconds)


async def _client(url: str, size: int, seconds: float) -> float:
    async with connect(url) as bus:
        return await through(await bus.queue("bench"), size, seconds)


async def through(queue: MessageQueue, size: int, seconds: float) -> float:
    """Messages a second that were sent, received and acknowledged, with at most ``DEPTH`` under way."""
    body = bytes(size)
    received = 0
    everything = asyncio.Event()
    wanted = 0

    async def receive() -> None:
        nonlocal received
        async with queue.messages(credit=DEPTH) as messages:
            async for _ in messages:
                received += 1
                if received >= wanted:
                    everything.set()

    receiving = asyncio.ensure_future(receive())

    async def window() -> None:
        nonlocal wanted
        everything.clear()
        wanted += DEPTH
        for _ in range(DEPTH):
            queue.send_soon(body)
        await queue.flush()
        await everything.wait()

    for _ in range(5):
        await window()
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        await window()
        count += DEPTH
    rate = count / (perf_counter() - since)
    receiving.cancel()
    await asyncio.wait([receiving])
    return rate


async def _one_at_a_time(path: Path, seconds: float) -> float:
    """Milliseconds for one message: sent, received, acknowledged."""
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        queue = await bus.queue("bench")
        count, since = 0, perf_counter()
        while perf_counter() - since < seconds:
            await queue.send(b"one")
            message = await queue.receive()
            assert message is not None
            await message.ack()
            count += 1
        return (perf_counter() - since) / count * 1e3


def _one_in_a_table(path: Path, seconds: float) -> float:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        db.execute("INSERT INTO queue (body) VALUES (?)", (b"one",))
        ((number, _),) = db.execute("SELECT id, body FROM queue ORDER BY id LIMIT 1").fetchall()
        db.execute("DELETE FROM queue WHERE id = ?", (number,))
        count += 1
    spent = (perf_counter() - since) / count * 1e3
    db.close()
    return spent


# Depth.


def _deep(messages: int, seconds: float, progress: Callable[[str], None]) -> dict[str, Any]:
    depths = [SHORT, *(many for many in (10_000, 100_000, 1_000_000) if many < messages), messages]
    figures: dict[int, dict[str, float]] = {}
    with folder() as place:
        for many in depths:
            progress(f"a queue of {many:,} messages")
            run_on_loop(_fill(place / f"{many}.db", many))
            figures[many] = run_on_loop(_use(place / f"{many}.db", many, seconds))
        progress("a selector")
        finds = run_on_loop(_find(place / "find.db", min(messages, 2 * RARE)))
    units = {"open": "s", "rate": "messages/s", "resident": "MB"}
    results = [
        result(f"{many:,} messages: {name}", units[name], [value])
        for many, found in figures.items()
        for name, value in found.items()
    ]
    results.append(result("a selector that matches one in 100,000", "ms", [finds]))
    slower = figures[SHORT]["rate"] / figures[messages]["rate"]
    goals = [
        at_most(f"a queue of {messages:,} messages opens, seconds", figures[messages]["open"], OPEN_S_MAX),
        at_most(f"send and receive with {messages:,}, times {SHORT:,}", slower, GROWTH_MAX),
        at_most(f"a queue of {messages:,} messages is resident, MB", figures[messages]["resident"], RESIDENT_MB_MAX),
        at_most("a selector with a list finds one in 100,000, ms", finds, FIND_MS_MAX),
    ]
    points = [[float(many), figures[many]["rate"]] for many in depths]
    return report("queue", results, goals, [Curve("send and receive", "messages in the queue", "messages/s", points)])


async def _fill(path: Path, count: int) -> None:
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        queue = await bus.queue("bench")
        for at in range(0, count, BULK):
            await queue.send_many([bytes(100)] * min(BULK, count - at))


async def _use(path: Path, count: int, seconds: float) -> dict[str, float]:
    since, before = perf_counter(), rss_bytes()
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        queue = await bus.queue("bench")
        depth = (await queue.stats()).depth
        assert depth == count, f"{depth} of {count} messages are there"
        opened = perf_counter() - since
        resident = max(rss_bytes() - before, 0) / 1e6
        return {"open": opened, "rate": await through(queue, 100, seconds), "resident": resident}


async def _find(path: Path, count: int) -> float:
    """Milliseconds until a selector that matches few has found one, when its property has a list."""
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        queue = await bus.queue("bench")
        for number in range(count):
            queue.send_soon(b"x", properties={"n": number})
            if not number % BULK:
                await queue.flush()
        await queue.flush()
        async with queue.receive(f"n = {count // 2}") as message:  # the list is made
            assert message is not None
        since = perf_counter()
        async with queue.receive(f"n = {count // 3}") as message:
            found_ms = (perf_counter() - since) * 1e3
            assert message is not None
        return found_ms
