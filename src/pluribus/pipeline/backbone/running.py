"""A backbone at work: its standing queries, started together, stopped with care, resumed where they were.

``Backbone(spark, configuration).run()`` is the library's face; ``pluribus pipeline backbone`` the command's. The state
has a checkpoint for each query and the report; the same state goes on, another one begins. One process at a time runs a
backbone: on a local disk a lock sees to that.

Slowly changing tables are looked at every few seconds. When one has changed, and is not being written to, the queries
are stopped between micro-batches and started again, and read it anew.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput, Refused
from ...runtime.clients.log_client import LogClient
from ..files import HadoopFiles, files_of, local_path
from ..jobs import Job, of_this_thread
from ..sharing import check_shared
from ..status import FILE, Status
from . import answers
from .groups import Golds, Group
from .intake import Intake
from .parts import Configuration
from .report import FOLDER
from .tiers import Tiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 2.0
ARROW_BYTES = 32 << 20
"""How much goes to a Python worker at once, about."""
NOTE_S = 1.0
"""The status is written at most this often."""
Progress = Callable[[dict[str, Any]], object]
Look = tuple[str, int, int]
"""A file, its size, and when it was changed last."""


class Backbone:
    """``stop`` may be called from any thread, also before it runs."""

    def __init__(
        self,
        spark: SparkSession,
        configuration: Configuration,
        run: str = "",
        status: Status | None = None,
        begin: bool = False,
    ) -> None:
        """``begin``: with an empty state, though keepers remember another one of this name; all that topics still have
        is judged and published again. ``status`` is fed with the progress of all queries, and written beside the
        report where the state is a local folder: ``pluribus pipeline status STATE`` shows it."""
        if getattr(spark, "_jvm", None) is None:
            raise BadInput(
                "a backbone needs a driver of its own, and a Connect server has it elsewhere: use --master local[N], "
                "or a cluster's address"
            )
        # A row is a packed batch, so it may be large, and thousands of them would be more than Arrow takes at once.
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
        self._spark = spark
        self.configuration = configuration
        self.run_name = run or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"
        self._files = files_of(configuration.state, spark)
        self.intake = Intake(spark, configuration, self._files, self.run_name, begin)
        self.tiers = Tiers(spark, configuration)
        self._golds = Golds(self._files)
        self._groups: list[Group] = []
        self._status = status or Status()
        self._begin = begin
        self._noted_at = float("-inf")
        self._stopping = threading.Event()
        self._job: Job | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._job is not None:
            self._job.stop()

    def run(
        self, *, seconds: float | None = None, once: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Until ``stop`` is called or ``seconds`` are over; ``once``: what is there now, stage after stage. Returns
        the report of this run, of all runs (``total``), and what each query did."""
        with held(self.configuration.state):
            of_this_thread(self._spark)
            check_shared(self._spark, self.configuration.state, self.configuration.tables)
            self.intake.report.load()
            self._look_for_another_state()
            self._groups = self._golds.groups(self.configuration)
            self._golds.remember(self.configuration, self._groups)
            self.tiers.clean()
            began = monotonic()
            queries: dict[str, dict[str, Any]] = {}

            def tell(told: dict[str, Any]) -> None:
                self._note(NOTE_S)
                if progress is not None:
                    progress(told)

            try:
                if once:
                    # Golds run one after another: they share few cores.
                    for name, stage in self._stages().items():
                        self._add(queries, self._once({name: stage}, tell))
                    self.tiers.compact()
                else:
                    self._standing(None if seconds is None else began + seconds, queries, tell)
            finally:
                self._note()
        report = self.intake.report
        found = report.totals(self.run_name)
        return {
            "backbone": self.configuration.name,
            "run": self.run_name,
            **found,
            "total": report.totals(),
            "rules": dict(report.summary.rules),
            "seconds": round(monotonic() - began, 3),
            "queries": queries,
        }

    def _look_for_another_state(self) -> None:
        """An empty state, and yet clean or dead events: they were published by a run with another one, which may have
        been lost. What was counted there is not known here."""
        if self._begin or self._files.list(FOLDER):
            return
        configuration = self.configuration
        with LogClient(configuration.url) as keepers:
            found = [one for what in ("silver", "dead") for one in keepers.topics(f"{configuration.prefix(what)}#")]
        if any(one.end for one in found):
            raise BadInput(
                f"the state {configuration.state} is empty, and there are events of a backbone {configuration.name!r} "
                "on this bus: name its state, give this backbone another name and tables, or, with --begin, have all "
                "events judged and published again"
            )

    def _note(self, every_s: float = 0.0) -> None:
        """Write the status, where a local folder is there for it."""
        folder = local_path(self.configuration.state)
        if folder is not None and monotonic() - self._noted_at >= every_s:
            self._noted_at = monotonic()
            self._status.write(folder / FILE)

    def _stages(self) -> dict[str, Callable[[], Any]]:
        """The queries, not made, in the order in which each reads what those before it have written."""
        found: dict[str, Callable[[], Any]] = {"intake": self.intake.query}
        for group in self._groups:
            found[group.name] = partial(self._answers, group)
        return {**found, "tiers": self.tiers.query}

    def _answers(self, group: Group) -> Any:
        return answers.query(self._spark, self.configuration, group, self._begin)

    def _once(self, stage: dict[str, Callable[[], Any]], progress: Progress | None) -> dict[str, Any]:
        self._job = self._a_job(stage)
        if self._stopping.is_set():
            self._job.stop()
        found: dict[str, Any] = self._job.run(once=True, progress=progress)["queries"]
        return found

    def _a_job(self, queries: dict[str, Callable[[], Any]]) -> Job:
        checkpoint = self._files.under("checkpoint")
        name, status = self.configuration.name, self._status
        events = {"intake": self.intake.events, "tiers": self.tiers.events}
        return Job(self._spark, name, checkpoint, {}, lambda *_: queries, status, one_by_one=True, events=events)

    def _standing(self, until: float | None, queries: dict[str, Any], progress: Progress | None) -> None:
        compaction = self.tiers.compacting()
        try:
            while not self._stopping.is_set() and (until is None or monotonic() < until):
                self._job = self._a_job(self._stages())
                ended = threading.Event()
                # Looked at before they are read, so that no change is between.
                before = self._looks()
                watch = threading.Thread(target=self._watch_tables, args=(self._job, before, ended), daemon=True)
                watch.start()
                try:
                    left_s = None if until is None else max(until - monotonic(), 0.0)
                    self._add(queries, self._job.run(seconds=left_s, progress=progress)["queries"])
                finally:
                    ended.set()
                    watch.join()
        finally:
            self.tiers.stop()
            compaction.join()

    def _watch_tables(self, job: Job, before: list[Look], ended: threading.Event) -> None:
        """Ends the job when a table has changed and was not written to since the last look."""
        last = before
        while not ended.wait(LOOK_S):
            now = self._looks()
            if now != before and now == last:
                job.stop()
                return
            last = now

    def _looks(self) -> list[Look]:
        """Of slowly changing tables: every file with its size and the time of its last change."""
        found: list[Look] = []
        for place in [step.table for step in self.configuration.enrich if step.table]:
            path = local_path(place)
            if path is None:
                files = HadoopFiles(place, self._spark).list()
                found += [(f"{place}/{file.path}", file.size_bytes, file.changed_ms) for file in files]
            else:
                found += _of_disk(path)
        return found

    @staticmethod
    def _add(queries: dict[str, dict[str, Any]], more: dict[str, dict[str, Any]]) -> None:
        for name, metrics in more.items():
            mine = queries.setdefault(name, {"batches": 0, "rows": 0, "seconds": 0.0, "late": 0})
            for key in mine:
                mine[key] = round(mine[key] + metrics.get(key, 0), 3)


def _of_disk(path: Path) -> list[Look]:
    found = []
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        try:
            about = file.stat()
        except FileNotFoundError:
            continue
        found.append((str(file), about.st_size, about.st_mtime_ns))
    return found


@contextmanager
def held(state: str) -> Iterator[None]:
    """One process at a time."""
    folder = local_path(state)
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another process runs the backbone whose state is {state}: stop that one first") from None
        yield
