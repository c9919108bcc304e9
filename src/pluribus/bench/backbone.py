"""``pluribus bench backbone``: a backbone end to end, from published events to answers on a topic, on ``local[2]``.

The keeper is a process of its own, with its log on disk; a thread publishes at a steady rate, packed, while the
backbone runs: bodies with a symbol, a price, a number and the moment of publishing; one in a hundred breaks a rule.
Every event is judged, told from its duplicates by its identity, joined with a table, and part of a window; every five
hundredth is an answer of its own, whose arrival is waited for. *Rate* is the number of events a second whose answers
arrived; *publish to answer* is the time from publishing, which is in the body, until a reader has the answer.

It is measured twice: at a rate that leaves the machine room (*paced*), where the time says how quick micro-batches are;
and at the rate that is wanted.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from pathlib import Path
from time import time
from typing import Any

import msgspec

from ..pipeline.backbone.configuration import load
from ..pipeline.backbone.running import Backbone
from ..pipeline.session import session
from ..pubsub.durable.batch import pack
from ..runtime.clients.log_client import LogClient
from ..wire.bodies import DATA
from .pipeline import START_S, Progress, keeper
from .report import at_least, at_most, report, result

SYMBOLS = 100
ANSWER_EVERY = 500
BAD_EVERY = 100
PUTS_A_SECOND = 20
PACED, FULL = 10_000, 50_000
"""Events a second."""
CONFIGURATION = """
name = "bench"
state = "state"
tables = "tables"

[[silver]]
name = "ticks"
topics = "ticks/#"
fields = "symbol string, price double, n bigint, at double"
late = "5 seconds"
unique = ["id"]

[[silver.rules]]
name = "a price"
where = "price > 0"

[[enrich]]
name = "known"
of = "ticks"
table = "stocks.csv"
columns = "symbol string, sector string"
on = ["symbol"]

[[gold]]
name = "averages"
of = "known"
kind = "windows"
width = "5 seconds"
by = ["symbol", "sector"]
topic = "averages"
values = { mean = "avg(price)", ticks = "count(*)" }

[[gold]]
name = "answered"
of = "ticks"
kind = "where"
where = "FLOOR(n / 500) * 500 = n"
topic = "answered"
"""


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    seconds, rates = (8.0, {"": 5_000}) if quick else (60.0, {"paced ": PACED, "": FULL})
    results, goals = [], []
    for name, rate in rates.items():
        with tempfile.TemporaryDirectory() as folder, session("local[2]", "bench backbone") as spark:
            spark.sparkContext.setLogLevel("ERROR")
            found = _whole(spark, Path(folder), seconds if rate == max(rates.values()) else seconds / 2, rate, progress)
        assert found["adds_up"], found
        results += [
            result(f"{name}events a second", "events/s", [found["rate"]]),
            result(f"{name}publish to answer, p50", "s", [found["p50"]]),
            result(f"{name}publish to answer, p99", "s", [found["p99"]]),
        ]
    goals.append(at_most("publish to answer, p50, s", found["p50"], 2.0))
    if not quick:
        goals.append(at_least("events a second", found["rate"], 0.95 * FULL))
    return report("backbone", results, goals)


def _whole(spark: Any, folder: Path, seconds: float, rate: int, progress: Progress) -> dict[str, Any]:
    (folder / "bench.toml").write_text(CONFIGURATION)
    stocks = "".join(f"s{number},sector{number % 7}\n" for number in range(SYMBOLS))
    (folder / "stocks.csv").write_text(f"symbol,sector\n{stocks}")
    progress("the keeper starts")
    with keeper(folder, 0) as url:
        return _measured(spark, folder, url, seconds, rate, progress)


def _measured(spark: Any, folder: Path, url: str, seconds: float, rate: int, progress: Progress) -> dict[str, Any]:
    """Measure, after a warm-up of Spark at the same rate, half as long."""
    warm = int(rate * seconds / 2) // ANSWER_EVERY * ANSWER_EVERY
    events = warm + int(rate * seconds)
    backbone = Backbone(spark, load(folder / "bench.toml", url))
    told: dict[str, Any] = {}
    running = threading.Thread(target=lambda: told.update(backbone.run()))
    progress(f"{rate:,} events a second for {1.5 * seconds:g} s")
    running.start()
    _first(url, time() + START_S)
    marks: dict[str, float] = {}
    feeder = threading.Thread(target=_feed, args=(url, events, warm, rate, marks))
    feeder.start()
    try:
        delays = _answers(url, events, warm, time() + 4 * seconds + 120)
    finally:
        feeder.join()
        backbone.stop()
        running.join()
    assert told["read"] == events + 1, f"{told['read']:,} of {events + 1:,} events were read"
    took_s = max(arrived for arrived, _ in delays) - marks["counted"]
    late = sorted(delay for _, delay in delays)
    return {
        **told,
        "rate": (events - warm) / took_s,
        "p50": statistics.median(late),
        "p99": late[min(int(len(late) * 0.99), len(late) - 1)],
    }


def _first(url: str, until: float) -> None:
    """Publish one event and wait for its answer: then all queries run."""
    body = msgspec.msgpack.encode({"symbol": "s0", "price": 1.0, "n": -ANSWER_EVERY, "at": time()})
    with LogClient(url) as keepers:
        keepers.put([pack("ticks/all", 8, 1, 0, DATA, [int(time() * 1e6)], [body])])
        while not keepers.offsets("answered")[1]:
            assert time() < until, "the first event was not answered: is the machine overloaded?"
            threading.Event().wait(0.05)


def _feed(url: str, events: int, warm: int, rate: int, marks: dict[str, float]) -> None:
    each = rate // PUTS_A_SECOND
    begun, number = time(), 0
    encode = msgspec.msgpack.Encoder().encode
    with LogClient(url) as keepers:
        while number < events:
            now = time()
            if number >= warm:
                marks.setdefault("counted", now)
            some = range(number, min(number + each, events))
            bodies = [
                encode(
                    {"symbol": f"s{n % SYMBOLS}", "price": 0.0 if n % BAD_EVERY == 7 else n / 100, "n": n, "at": now}
                )
                for n in some
            ]
            keepers.put([pack("ticks/all", 7, number + 1, 0, DATA, [int(now * 1e6)] * len(bodies), bodies)])
            number += len(some)
            early_s = begun + number / rate - time()
            if early_s > 0:
                threading.Event().wait(early_s)


def _answers(url: str, events: int, warm: int, until: float) -> list[tuple[float, float]]:
    """Arrival and delay of the answer to every event that is measured."""
    found: list[tuple[float, float]] = []
    wanted = sum(1 for n in range(warm, events) if n % ANSWER_EVERY == 0)
    at = 0
    with LogClient(url) as keepers:
        while len(found) < wanted:
            assert time() < until, f"{len(found):,} of {wanted:,} answers came"
            _, end = keepers.offsets("answered")
            now = time()
            for batch in keepers.read("answered", at, end) if end > at else ():
                found += [(now, now - body["at"]) for body in batch.plain() if body["n"] >= warm]
            at = max(at, end)
            threading.Event().wait(0.01)
    return found
