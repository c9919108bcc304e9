"""``pluribus bench topics-many``: the same rows in one topic and in ten thousand, through the source and the sink that
Spark uses.

Spark itself is left out: a query of it takes some tenths of a second whatever it reads, which would hide the
difference. What is measured runs in Spark's driver and executors: planning a read (*plan*), reading it into Arrow
columns (*read*), the place that a stream writes down for each micro-batch (*place*, bytes), staging rows and committing
them (*write*). Keepers are processes of their own, with their logs on disk. Last, three readers at a time take the same
rows from one keeper and from three (*readers*), which is reported and has no goal: it depends on the cores.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from .processes import context, quiet
from .report import Goal, Result, at_most, report, result

BODY = b"x" * 100
START_S = 120.0
READERS = 3
Progress = Callable[[str], None]


def keep(pipe: Any, bus_name: str, store: str, voters: int, rows: int, topics: int) -> None:
    """In a process of its own: a keeper that serves clients; the first one fills the log."""
    import pluribus

    quiet()

    async def main() -> None:
        url = f"multicast://{bus_name}" if voters > 1 else f"inproc://{bus_name}"
        async with pluribus.connect(url, store=store, votes=True, serve="127.0.0.1:0") as bus:
            host, port = bus.doors[0].address
            pipe.send(f"{host}:{port}")
            loop = asyncio.get_running_loop()
            if await loop.run_in_executor(None, pipe.recv) == "fill":
                await bus.durable.publish_many([("one", BODY)] * rows, timeout=START_S)
                each = max(rows // max(topics, 1), 1)
                for first in range(0, topics, 1_000):
                    names = [f"many/{number:05d}" for number in range(first, min(first + 1_000, topics))]
                    await bus.durable.publish_many([(name, BODY) for name in names for _ in range(each)])
                pipe.send("filled")
                await loop.run_in_executor(None, pipe.recv)

    asyncio.run(main())


@contextmanager
def keepers(folder: Path, count: int, rows: int, topics: int) -> Iterator[str]:
    """Start so many keepers of one log, with the rows in it; returns their URL."""
    bus_name = f"bench-{uuid.uuid4().hex[:8]}"
    processes, pipes = [], []
    for number in range(count):
        here, there = context.Pipe()
        arguments = (there, bus_name, str(folder / f"keeper{number}.db"), count, rows, topics)
        processes.append(context.Process(target=keep, args=arguments, daemon=True))
        pipes.append(here)
        processes[-1].start()
    try:
        hosts = [_said(pipe) for pipe in pipes]
        pipes[0].send("fill")
        _said(pipes[0], START_S + rows / 1_000)
        yield f"client://{','.join(hosts)}/{bus_name}"
        for pipe in pipes:
            pipe.send("enough")
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _said(pipe: Any, patience_s: float = START_S) -> Any:
    if not pipe.poll(patience_s):
        raise TimeoutError("a process of the benchmark did not answer: is the machine overloaded?")
    return pipe.recv()


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    rows, topics, runs = (20_000, 1_000, 1) if quick else (100_000, 10_000, 3)
    results: list[Result] = []
    measured: dict[str, float] = {}

    def note(case: str, unit: str, values: list[float]) -> None:
        results.append(result(case, unit, values))
        measured[case] = results[-1].value

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        progress("the log is filled")
        url = stack.enter_context(keepers(Path(name), 1, rows, topics))
        several = {"one": "one topic", "many/#": f"{topics:,} topics"}
        for pattern, words in several.items():
            progress(f"read, {words}")
            _read(url, pattern, rows)  # once to warm up
            found = [_read(url, pattern, rows) for _ in range(runs)]
            note(f"plan, {words}", "s", [plan_s for plan_s, _ in found])
            note(f"read, {words}", "s", [read_s for _, read_s in found])
            note(f"plan and read, {words}", "s", [plan_s + read_s for plan_s, read_s in found])
        progress("place")
        size, took_s = _place(url)
        note(f"place, {topics:,} topics", "bytes", [size])
        note(f"next place, {topics:,} topics", "s", [took_s])
        written = 10_000
        for count in (1, max(topics // 5, 1)):
            progress(f"write to {count:,} topics")
            note(f"write {written:,} rows to {count:,} topics", "s", [_write(url, written, count) for _ in range(runs)])
    for count in (1, 3):
        with tempfile.TemporaryDirectory() as name:
            progress(f"{READERS} readers of {count} keepers")
            with keepers(Path(name), count, rows, 0) as url:
                rates = [_readers(url, rows) for _ in range(runs)]
            note(f"{READERS} readers, {count} keepers", "rows/s", rates)
    return report("topics-many", results, _goals(measured, topics))


def _goals(measured: dict[str, float], topics: int) -> list[Goal]:
    ratio = measured[f"plan and read, {topics:,} topics"] / measured["plan and read, one topic"]
    return [
        at_most(f"{topics:,} topics over one topic, the same rows", ratio, 3.0),
        at_most(f"place of {topics:,} topics, bytes", measured[f"place, {topics:,} topics"], 10_240),
    ]


def _reader(url: str, topic: str, **options: str) -> Any:
    from ..pipeline.options import Settings
    from ..pipeline.source import TopicReader

    settings = Settings({"url": url, "topic": topic, **options})
    return TopicReader(settings, settings.schema())


def _read(url: str, topic: str, rows: int) -> tuple[float, float]:
    started = perf_counter()
    reader = _reader(url, topic)
    tasks = reader.partitions()
    planned = perf_counter()
    found = sum(table.num_rows for task in tasks for table in reader.read(task))
    assert found == rows, f"{found:,} rows of {topic}, not {rows:,}"
    return planned - started, perf_counter() - planned


def _place(url: str) -> tuple[int, float]:
    """Bytes of a place, and the time to compute the next one."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from ..pipeline.options import Settings
    from ..pipeline.source import TopicStreamReader

    settings = Settings({"url": url, "topic": "many/#", "start": "earliest"})
    reader = TopicStreamReader(settings, settings.schema())
    place = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    started = perf_counter()
    reader.latestOffset(place, ReadAllAvailable())
    return len(json.dumps(place)), perf_counter() - started


def _write(url: str, rows: int, topics: int) -> float:
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StringType, StructType

    from ..pipeline.options import Settings
    from ..pipeline.sink import BatchWriter

    names = [f"written/{topics}/{number % topics:05d}" for number in range(rows)]
    table = pa.RecordBatch.from_pydict({"topic": names, "body": [BODY] * rows})
    started = perf_counter()
    writer = BatchWriter(Settings({"url": url}), StructType().add("topic", StringType()).add("body", BinaryType()))
    writer.commit([writer.write(iter([table]))])
    return perf_counter() - started


def _read_some(pipe: Any, url: str) -> None:
    """Run one of several readers, in a process of its own."""
    quiet()
    reader = _reader(url, "one", parts_min=str(READERS))
    for table in reader.read(reader.partitions()[0]):  # once to warm up
        assert table.num_rows
    pipe.send("ready")
    task = pipe.recv()
    pipe.send(sum(table.num_rows for table in reader.read(task)))


def _readers(url: str, rows: int) -> float:
    """Rows a second that several readers take together."""
    pipes, processes = [], []
    for _ in range(READERS):
        here, there = context.Pipe()
        processes.append(context.Process(target=_read_some, args=(there, url), daemon=True))
        pipes.append(here)
        processes[-1].start()
    try:
        for pipe in pipes:
            _said(pipe)
        tasks = _reader(url, "one", parts_min=str(READERS)).partitions()
        started = perf_counter()
        for pipe, task in zip(pipes, tasks, strict=True):
            pipe.send(task)
        found = sum(_said(pipe) for pipe in pipes)
        took_s = perf_counter() - started
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
    assert found == rows, f"{found:,} rows, not {rows:,}"
    return rows / took_s
