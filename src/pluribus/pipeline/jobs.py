"""Jobs: a file of Python whose standing queries run on any engine, are watched, stopped with care and resumed.

A job is a file with a function ``job(spark, options)``. It returns its queries: a dictionary of names and
``DataStreamWriter``s that are not started, as ``df.writeStream...`` makes them; a single one; or, from a job that is
done when it returns, a dictionary of numbers. The runner gives every query its name and a checkpoint of its own below
``checkpoint``; started again with the same folder, a query goes on where it ended.

The same file runs in this process (``local[N]``), on a standalone cluster and through a Connect server, because nothing
here asks which it is: progress is read from the queries themselves.
"""

from __future__ import annotations

import ast
import logging
import re
import runpy
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import BadInput, JobFailed
from .session import last_words, logging_nothing
from .status import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_S, BEGIN_LOOK_S = 0.2, 0.05
STOP_S = 30.0
"""Seconds for which a stop waits for the micro-batch under way."""

OURS = "pluribus.core.errors."
CAUSE = re.compile(r"(?:: |Caused by: )?(?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception): (.+)")
"""A line of Python or Java that names an exception, and its message."""

NO_WORKER = "Python worker failed to connect back"
"""Spark waits ten seconds, which nobody can change, until a process that it started for a stream calls it."""
STARTS_MAX = 6
"""How often a query is started that ended for want of such a process, and did no micro-batch meanwhile; each goes on
where the one before ended."""
BEGIN_S = 30.0
"""How long the next query waits for the one before, for its sources or its first micro-batch."""

POOL = "spark.scheduler.pool"
TASKS_S = 10.0
"""How long a stop waits for tasks that were interrupted."""

Progress = Callable[[dict[str, Any]], object]


def check_job(path: Path) -> None:
    """Report a file that cannot be a job before Spark is started. The file is read, and not run."""
    if not path.is_file():
        raise BadInput(f"there is no job {path}: name a file of Python with a function job(spark, options)")
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes(), str(path))))
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"the job {path} is not Python ({error}): mend that line") from None
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    if not names & {"job", "*"}:
        raise BadInput(f"{path} has no function job(spark, options): write one that returns its queries")


class Job:
    """Standing queries of one job file, or of a ``function`` like its own. ``stop`` may be called from any thread, also
    before they run."""

    def __init__(
        self,
        spark: SparkSession,
        path: str | Path,
        checkpoint: str | Path,
        options: Mapping[str, str],
        function: Callable[..., Any] | None = None,
        status: Status | None = None,
        one_by_one: bool = False,
        events: Mapping[str, Callable[[int], int]] | None = None,
    ) -> None:
        """``checkpoint`` is a folder, or a URI that Spark's Hadoop client takes. ``status`` is fed with progress.

        Queries start in their order: sources that all begin at once wait for each other. ``one_by_one``: each is made
        and started when the one before has done its first micro-batch, which is the slowest, or has nothing to do.
        ``events`` says, of queries whose rows are not events, how many of these a micro-batch had.
        """
        self._spark = spark
        self._path = Path(path)
        self._function = function
        self._checkpoint = str(checkpoint)
        self._status = status
        self._one_by_one = one_by_one
        self._events = events or {}
        self._options = dict(options)
        self._stopping = threading.Event()
        self._seen: dict[str, int] = {}
        self.queries: dict[str, Any] = {}
        self.metrics: dict[str, dict[str, Any]] = {}

    def stop(self) -> None:
        self._stopping.set()

    def run(
        self, *, seconds: float | None = None, once: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Until all queries end, ``seconds`` are over or ``stop`` is called; ``once``: what is there now, and no more.

        Returns what each query did. An error of a query is raised when the others are stopped. ``JobFailed`` with its
        last words if Java has died.
        """
        from py4j.protocol import Py4JNetworkError

        try:
            return self._run(seconds, once, progress)
        except (Py4JNetworkError, ConnectionError) as error:
            said = last_words() or str(error)
            raise JobFailed(f"Spark's Java has died: {said}; run it again with the same checkpoint to resume") from None

    def _run(self, seconds: float | None, once: bool, progress: Progress | None) -> dict[str, Any]:
        from pyspark.errors import PySparkException

        of_this_thread(self._spark)
        try:
            answer = (self._function or self._load())(self._spark, self._options)
        except PySparkException as refused:
            raise JobFailed(f"the job {self._path.name} cannot be planned: {_words(refused)}") from None
        writers = answer if isinstance(answer, Mapping) else {self._path.stem: answer}
        if not all(hasattr(writer, "start") or callable(writer) for writer in writers.values()):
            return {"job": self._path.name, "answer": dict(writers) if isinstance(answer, Mapping) else answer}
        until = None if seconds is None else monotonic() + seconds
        try:
            self._watch(until, progress or (lambda _: None), writers, once)
        finally:
            self._end(progress or (lambda _: None))
        if self._status is not None:
            for name, query in self.queries.items():
                error = query.exception()
                self._status.end(name, "" if error is None else _words(error))
        failed = {name: query.exception() for name, query in self.queries.items() if query.exception() is not None}
        for name, error in failed.items():
            raise _failure(name, error)
        return {"job": self._path.name, "queries": self.metrics}

    def _load(self) -> Callable[..., Any]:
        check_job(self._path)
        function = runpy.run_path(str(self._path)).get("job")
        if not callable(function):
            raise BadInput(f"{self._path} has no function job(spark, options): write one that returns its queries")
        return function  # type: ignore[no-any-return]

    def _start(self, name: str, writer: Any, once: bool) -> None:
        from pyspark.errors import PySparkException

        try:
            writer = writer if hasattr(writer, "start") else writer()
        except PySparkException as refused:
            raise JobFailed(f"the query {name!r} cannot be planned: {_words(refused)}") from None
        writer = writer.queryName(name).option("checkpointLocation", below(self._checkpoint, name))
        self.metrics.setdefault(name, {"batches": 0, "rows": 0, "batch": -1, "seconds": 0.0})
        try:
            with _pool(self._spark, name):
                self.queries[name] = (writer.trigger(availableNow=True) if once else writer).start()
        except PySparkException as error:
            raise JobFailed(f"the query {name!r} cannot be started: {_words(error)}") from None

    def _begun(self, name: str) -> bool:
        """True if the next query may start: this one has its sources, or has done its first micro-batch."""
        query = self.queries[name]
        if not query.isActive:
            return True
        told = query.status
        if told.get("message", "").startswith("Initializing"):
            return False
        idle = not told.get("isDataAvailable") and not told.get("isTriggerActive")
        return not self._one_by_one or idle or name in self._seen

    def _watch(self, until: float | None, progress: Progress, writers: Mapping[str, Any], once: bool) -> None:
        waiting = list(writers)
        starts = dict.fromkeys(writers, 1)
        batches = dict.fromkeys(writers, -1)
        last, patience = "", 0.0
        while not self._stopping.is_set():
            if waiting and (not last or monotonic() > patience or self._begun(last)):
                last, patience = waiting.pop(0), monotonic() + BEGIN_S
                self._start(last, writers[last], once)
            self._look(progress)
            for name, query in self.queries.items():
                if self._seen.get(name, -1) > batches[name]:
                    batches[name], starts[name] = self._seen[name], 1
                if not query.isActive and NO_WORKER in str(query.exception() or "") and starts[name] < STARTS_MAX:
                    starts[name] += 1
                    log.warning("%s of the query %r; it is started again", NO_WORKER, name)
                    self._start(name, writers[name], once)
            if not waiting and not any(query.isActive for query in self.queries.values()):
                return
            if until is not None and monotonic() > until:
                return
            if any(not query.isActive and query.exception() is not None for query in self.queries.values()):
                return
            self._stopping.wait(BEGIN_LOOK_S if waiting else LOOK_S)

    def _look(self, progress: Progress) -> None:
        """Report every micro-batch since the last look, and add it up."""
        for name, query in self.queries.items():
            for told in map(dict, query.recentProgress):
                batch = int(told["batchId"])
                if name in self._events and told["sources"]:
                    told["sources"] = [{**told["sources"][0], "numInputRows": self._events[name](batch)}]
                if self._status is not None:
                    self._status.feed(name, told)
                rows = sum(source["numInputRows"] for source in told["sources"])  # the sum that Connect leaves out
                if batch <= self._seen.get(name, -1) or not rows:
                    continue
                self._seen[name] = batch
                metrics = self.metrics[name]
                took_s = told["durationMs"].get("triggerExecution", 0) / 1000
                metrics["batches"] += 1
                metrics["rows"] += rows
                metrics["batch"] = batch
                metrics["seconds"] = round(metrics["seconds"] + took_s, 3)
                late = sum(state.get("numRowsDroppedByWatermark", 0) for state in told["stateOperators"])
                metrics["late"] = metrics.get("late", 0) + late
                progress({"query": name, "batch": batch, "rows": rows, "seconds": took_s, "late": late})

    def _end(self, progress: Progress) -> None:
        """Let each query finish the micro-batch that it is in; then stop it."""
        until = monotonic() + STOP_S
        for query in self.queries.values():
            under_way = _batch_of(query)
            while query.isActive and query.status.get("isTriggerActive") and monotonic() < until:
                if query.status.get("message", "").startswith(("Getting", "Waiting", "No new")):
                    break  # it looks for data, and has none in its hands
                if _batch_of(query) != under_way:
                    break  # that one is done, and the next has just begun
                threading.Event().wait(0.02)
        self._look(progress)  # a stopped query tells no more through a Connect server
        # A query that has begun its next micro-batch already is interrupted in it, and does it again when resumed.
        with logging_nothing():
            for query in self.queries.values():
                if query.isActive:
                    query.stop()
            self._tasks_ended()

    def _tasks_ended(self) -> None:
        """Tasks that were interrupted end a moment after their query, and Java tells of each."""
        context = getattr(self._spark, "_jsc", None)  # none through a Connect server
        until = monotonic() + TASKS_S
        while context is not None and monotonic() < until:
            executors = context.sc().statusTracker().getExecutorInfos()
            if not any(executor.numRunningTasks() for executor in executors):
                return
            threading.Event().wait(0.02)


def of_this_thread(spark: SparkSession) -> None:
    """Spark finds data sources of Python in the session of the thread that starts a query, which another thread than
    the one that opened the session does not have."""
    java: Any = spark
    if getattr(java, "_jvm", None) is not None:  # none through a Connect server
        java._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(java._jsparkSession)


@contextmanager
def _pool(spark: SparkSession, name: str) -> Iterator[None]:
    """A query that starts meanwhile has its tasks in a pool of its own."""
    if getattr(spark, "_jsc", None) is None:  # through a Connect server
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(POOL)
    context.setLocalProperty(POOL, name)
    try:
        yield
    finally:
        context.setLocalProperty(POOL, before)  # type: ignore[arg-type]


def below(place: str, name: str) -> str:
    """A folder in a folder. A URI (``s3a://bucket/x``, ``hdfs:///x``, ``file:/x``) stays one; a path becomes absolute,
    because Spark may run elsewhere."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", place):
        return f"{place.rstrip('/')}/{name}"
    return str((Path(place) / name).absolute())


def _batch_of(query: Any) -> int:
    """The last micro-batch that was done."""
    told = query.lastProgress
    return -1 if told is None else int(told["batchId"])


def _failure(name: str, error: Any) -> JobFailed:
    return JobFailed(f"the query {name!r} failed: {_words(error)}; run it again with the same checkpoint to resume")


def _words(error: Any) -> str:
    """What an error of Spark says, in one line. What one of our parts raised stands below Spark's words about it; the
    cause of other errors, such as a disk that is full, stands below all that came of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    ours = next((line for line in lines if line.startswith(OURS)), None)
    if ours is not None:
        return (ours.removeprefix(OURS).partition(": ")[2] or ours)[:500]
    causes = [found[1] for line in lines[1:] if (found := CAUSE.fullmatch(line))]
    first = lines[0][:300]
    return first if not causes or causes[-1] in first else f"{first}: {causes[-1]}"[:500]


class Stoppable(Protocol):
    def stop(self) -> None: ...


@contextmanager
def stopped_by_signals(job: Stoppable) -> Iterator[None]:
    """Meanwhile Ctrl-C and a polite kill end the job as ``stop`` does; a second one ends it at once."""

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
