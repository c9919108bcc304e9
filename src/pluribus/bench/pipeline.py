"""``pluribus bench pipeline``: events of 100 bytes from the log into Spark and back, and traces checked on it.

The keeper is a process of its own, with its log on disk. *Batch* reads all bodies and adds up their lengths, with the
whole envelope beside them; *typed* decodes them into columns; *stream* counts them by key in a standing query that
takes what is there; *write* brings rows to a topic, exactly once. Beside them, in the same run: Spark's own socket
source, and the usual way without a sink, ``foreachBatch`` with a loop over the rows and a client that publishes a
thousand of them at a time. *Alerts* is the time from an event's publishing to the arrival of the answer that a standing
query gave to it.

A query of Spark takes some tenths of a second before it reads the first event, whatever it reads; so there are enough
events for that to be a small part of it.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, time
from typing import Any

from ..pipeline.conformance import conformance
from ..pipeline.session import session
from ..pipeline.source import register
from ..pubsub.durable.batch import pack
from ..runtime.clients.log_client import LogClient
from .processes import context, quiet
from .report import Goal, Result, at_least, at_most, report, result
from .traces import write_trace

BODY = b"x" * 100
KEYS = 100
PUBLISH_MANY = 20_000
ALERT_EVERY = 500
TYPED_PART = 4
"""One event in so many has fields, because such events take longer to make."""
LOOP_PART = 40
LINES = 40_000
CHUNK = 1_000
START_S = 120.0
Progress = Callable[[str], None]


def keep(pipe: Any, store: str, events: int) -> None:
    """In a process of its own: a keeper that serves clients, with events of two topics in its log."""
    import pluribus

    quiet()

    async def main() -> None:
        async with pluribus.connect("inproc://bench-pipeline", store=store, serve="127.0.0.1:0") as bus:
            for first in range(0, events, PUBLISH_MANY):
                some = range(first, min(first + PUBLISH_MANY, events))
                await bus.durable.publish_many([("raw", BODY)] * len(some))
                await bus.durable.publish_many([("typed", _tick(n)) for n in some if n < events // TYPED_PART])
            host, port = bus.doors[0].address
            pipe.send(f"client://{host}:{port}/bench-pipeline")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    asyncio.run(main())


def _tick(number: int) -> dict[str, Any]:
    """A tick of about a hundred bytes, with the names of its fields."""
    return {"symbol": f"s{number % KEYS}", "price": float(number), "amount": number, "venue": "xetra", "note": "n" * 40}


@contextmanager
def keeper(folder: Path, events: int) -> Iterator[str]:
    here, there = context.Pipe()
    process = context.Process(target=keep, args=(there, str(folder / "keeper.db"), events), daemon=True)
    process.start()
    try:
        if not here.poll(START_S + events / 10_000):
            raise TimeoutError("the keeper of the benchmark did not start: is the machine overloaded?")
        yield here.recv()
        here.send("enough")
        process.join(10)
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    events, runs, deliveries = (120_000, 1, 200_000) if quick else (4_000_000, 2, 10_000_000)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name, session("local[2]", "bench") as spark:
        folder = Path(name)
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        progress("the log is filled")
        with keeper(folder, events) as url:
            bench = Bench(spark, url, folder, events)
            for case, measured in bench.cases().items():
                progress(case)
                measured()  # once to warm up: the Java machine compiles as it goes
                results.append(result(case, "events/s", [measured() for _ in range(runs)]))
            progress("alerts")
            delays = bench.alerts(5.0 if quick else 20.0, 5_000 if quick else 50_000)
            results += [result(f"alerts, {name}", "s", [value]) for name, value in delays.items()]
        progress("conformance")
        made = write_trace(folder / "trace", deliveries)
        started = perf_counter()
        found = conformance(spark, folder / "trace")
        took_s = perf_counter() - started
        assert found["breaches"] == 0 and found["deliveries"] == made, found
        results.append(result(f"conformance of {made:,} deliveries", "s", [took_s]))
    return report("pipeline", results, _goals({row.case: row.value for row in results}, quick))


def _goals(measured: dict[str, float], quick: bool) -> list[Goal]:
    goals = [
        at_least("batch, events/s", measured["batch, bytes"], 1_000_000),
        at_least("batch, typed, events/s", measured["batch, typed"], 400_000),
        at_least("stream with an aggregate, events/s", measured["stream, aggregate"], 700_000),
        at_least("write, events/s", measured["write"], 200_000),
        at_least("stream over Spark's socket source", measured["stream, aggregate"] / measured["socket source"], 1),
        at_least("write over foreachBatch with a client", measured["write"] / measured["foreachBatch, a client"], 1),
        at_most("publish to alert, p50, s", measured["alerts, p50"], 1.0),
        at_most("publish to alert, p99, s", measured["alerts, p99"], 3.0),
    ]
    if not quick:
        (took_s,) = (value for case, value in measured.items() if case.startswith("conformance"))
        goals.append(at_most("conformance of 10,000,000 deliveries, s", took_s, 120.0))
    return goals


class Bench:
    def __init__(self, spark: Any, url: str, folder: Path, events: int) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.events = events
        self._count = 0

    def cases(self) -> dict[str, Callable[[], float]]:
        return {
            "batch, bytes": self.batch,
            "batch, typed": self.typed,
            "stream, aggregate": self.stream,
            "write": self.write,
            "socket source": self.socket_source,
            "foreachBatch, a client": self.client_loop,
        }

    def _read(self, **options: str) -> Any:
        return self.spark.read.format("pluribus").options(url=self.url, **options).load()

    def _timed(self, work: Callable[[], int], expected: int) -> float:
        started = perf_counter()
        found = work()
        took_s = perf_counter() - started
        assert found == expected, f"{found} of {expected} events"
        return expected / took_s

    def batch(self) -> float:
        table = self._read(topic="raw").selectExpr("sum(length(body)) DIV 100", "count(id.number)")
        return self._timed(lambda: int(table.first()[0]), self.events)

    def typed(self) -> float:
        fields = "symbol string, price double, amount bigint, venue string"
        table = self._read(topic="typed", fields=fields).selectExpr("count(price)", "count(symbol)", "sum(amount)")
        return self._timed(lambda: int(table.first()[0]), self.events // TYPED_PART)

    def stream(self) -> float:
        options = {"url": self.url, "topic": "raw", "start": "earliest", "rows": "2000000"}
        events = self.spark.readStream.format("pluribus").options(**options, columns="topic,time,body").load()
        sums = events.groupBy("topic").agg({"time": "max", "body": "count"})
        return self._until_done(sums, self.events, availableNow=True)

    def _until_done(self, table: Any, wanted: int, **trigger: Any) -> float:
        """Events a second, over the micro-batches with events."""
        self._count += 1
        writer = table.writeStream.format("noop").outputMode("complete").trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{self._count}")).start()
        rows, took_s = 0, 0.0
        while rows < wanted and query.isActive:
            query.awaitTermination(0.2)
            told = [batch for batch in query.recentProgress if batch["numInputRows"]]
            rows = sum(batch["numInputRows"] for batch in told)
            took_s = sum(batch["durationMs"]["triggerExecution"] for batch in told) / 1_000
        query.stop()
        assert rows == wanted, f"{rows} of {wanted} events"
        return rows / took_s

    def write(self) -> float:
        self._count += 1
        topic = f"written-{self._count}"
        rows = self.spark.range(0, self.events, 1, 4).selectExpr("cast(repeat('x', 100) AS binary) AS body")

        def work() -> int:
            rows.write.format("pluribus").options(url=self.url, topic=topic).mode("append").save()
            with LogClient(self.url) as keepers:
                return keepers.offsets(topic)[1]

        return self._timed(work, self.events)

    def socket_source(self) -> float:
        """Lines through Spark's own socket source, from a thread that has them ready; few lines, because the source is
        slow."""
        count = min(self.events // 10, LINES)
        lines = (BODY + b"\n") * count
        with socket.create_server(("127.0.0.1", 0)) as server:

            def feed() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(lines)
                    connection.recv(1)  # until the other side is done

            threading.Thread(target=feed, daemon=True).start()
            host, port = server.getsockname()
            events = self.spark.readStream.format("socket").options(host=host, port=port).load()
            return self._until_done(events.groupBy().count(), count, processingTime="0 seconds")

    def client_loop(self) -> float:
        """The usual way without a sink, for a part of the events: rows come to the driver, and a client publishes
        them."""
        import pluribus

        self._count += 1
        count, topic = self.events // LOOP_PART, f"looped-{self._count}"
        options = {"url": self.url, "topic": "raw", "start": "0", "columns": "body", "rows": str(count)}
        events = self.spark.readStream.format("pluribus").options(**options).load()
        published = took_s = 0.0

        def publish(rows: Any, _batch: int) -> None:
            nonlocal published, took_s
            if published >= count:
                return
            started = perf_counter()
            with pluribus.sync.connect(self.url) as client:
                some: list[tuple[str, bytes]] = []
                for row in rows.toLocalIterator():
                    some.append((topic, bytes(row.body)))
                    if len(some) == CHUNK:
                        client.publish_many(some, durable=True, live=False)
                        some = []
                client.publish_many(some, durable=True, live=False)
            with LogClient(self.url) as keepers:
                published = keepers.offsets(topic)[1]
            took_s += perf_counter() - started

        query = events.writeStream.foreachBatch(publish).option("checkpointLocation", str(self.folder / topic)).start()
        while published < count and query.isActive:
            query.awaitTermination(0.05)
        query.stop()
        assert published == count, f"{published} of {count} events"
        return count / took_s

    def alerts(self, seconds: float, rate: int) -> dict[str, float]:
        """Delays from publishing to the answer's arrival, at so many events a second; half as long before that, Spark
        warms up at the same rate."""
        fields, where = "n bigint, at double", f"n % {ALERT_EVERY} = 0"
        source = {"url": self.url, "topic": "live", "start": "earliest", "fields": fields, "columns": "n,at"}
        with LogClient(self.url) as keepers:
            _put(keepers, 1, [{"n": 1, "at": time()}])  # the topic must be there
        events = self.spark.readStream.format("pluribus").options(**source).load().where(where).select("n", "at")
        writer = events.writeStream.format("pluribus").options(url=self.url, topic="alerts", writer="bench alerts")
        query = writer.option("checkpointLocation", str(self.folder / "alerts")).start()
        warm = int(rate * seconds / 2)
        try:
            arrived = _Arrivals(self.url)
            feeder = threading.Thread(target=self._feed, args=(warm + int(seconds * rate), rate))
            feeder.start()
            wanted = (warm + int(seconds * rate)) // ALERT_EVERY
            found = arrived.collect(wanted, until=time() + 4 * seconds + 60)
            feeder.join()
        finally:
            query.stop()
        delays = sorted(delay for number, delay in found if number > warm)
        return {"p50": statistics.median(delays), "p99": delays[min(int(len(delays) * 0.99), len(delays) - 1)]}

    def _feed(self, events: int, rate: int) -> None:
        each = max(rate // 20, 1)
        begun, number = time(), 2
        with LogClient(self.url) as keepers:
            while number < events:
                _put(keepers, number, [{"n": number + n, "at": time()} for n in range(each)])
                number += each
                early_s = begun + number / rate - time()
                if early_s > 0:
                    threading.Event().wait(early_s)


class _Arrivals:
    """Reads answers as they arrive."""

    def __init__(self, url: str) -> None:
        self._url = url

    def collect(self, wanted: int, until: float) -> list[tuple[int, float]]:
        """The number of each event that was answered, and how long that took."""
        delays: list[tuple[int, float]] = []
        at = 0
        with LogClient(self._url) as keepers:
            while len(delays) < wanted - 1 and time() < until:
                _, end = keepers.offsets("alerts")
                now = time()
                for batch in keepers.read("alerts", at, end) if end > at else ():
                    delays += [(body["n"], now - body["at"]) for body in batch.plain()]
                at = max(at, end)
                threading.Event().wait(0.01)
        return delays


def _put(keepers: LogClient, first: int, bodies: list[dict[str, Any]]) -> None:
    import msgspec

    encoded = [msgspec.msgpack.encode(body) for body in bodies]
    keepers.put([pack("live", 99, first, 0, 2, [int(time() * 1e6)] * len(bodies), encoded)])
