"""Tables that are files: rows land in them batch by batch, each batch once, and whole partitions are replaced.

Theory of operation
-------------------
A table is a folder of Parquet files, ``topic=…/day=…/`` or ``day=…/``. Any program can read it. What makes it exact is
``_commits`` beside the files:

1. A batch is written to ``_staging``, where nobody looks (Spark passes over names with an underscore).
2. A *commit* is written down in one step: ``_commits/WRITER-NUMBER.pending``. It lists which staged files go where, and
   which files they replace. From here on the batch counts.
3. The files are moved, the replaced ones removed, and the commit is renamed to ``….json``.

A driver that is killed before step 2 leaves staged files, which the next one removes; after it, the next one (or any
exact reader) does step 3 again: a move whose source is gone was done. A batch with a number that was committed before
changes nothing. So every batch is there once, after any number of kills.

Numbers of batches mean something within one checkpoint of Spark, which a commit names by its *query*. A new checkpoint
counts from 0 again, and mostly reads everything again: its batches are new ones, and of their rows those are left out
that lie below the *place* of the writer when it began, which is how far it had come in each topic (``without``).

``snapshot`` lists the files that count, also between 2 and 3. A *fence* is a range of time that was computed again (a
backfill): rows of it that come later were counted there, and are left out by ``land``.

Folders that Spark's own file sink wrote, with ``_spark_metadata``, are *adopted* once: what the manifest names stays,
what it does not name goes, and the number of its last batch is kept.

Compaction is a commit like all others: many small files of a partition are read, written as one, and replaced.

One process at a time commits: on a local disk a lock sees to it; elsewhere it is up to you, who start them.
"""

from __future__ import annotations

import fcntl
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.errors import BadInput
from .files import Files, files_of, local_path
from .manifests import MANIFEST, manifest_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COMMITS, STAGING, FENCES = "_commits", "_staging", "_commits/fences"
WHOLE = "_SUCCESS"
"""Temporary names that Spark writes behind the last file."""
PENDING, DONE = ".pending", ".json"
KEPT_COMMITS = 4
"""Commits of each writer that are kept; the last one would be enough."""
ROWS_A_FILE = 2_000_000
COMPACTOR = "compact"
QUERY_ID = "sql.streaming.queryId"


class Commit(msgspec.Struct):
    writer: str
    number: int
    staging: str = ""
    moves: list[tuple[str, str]] = []
    removes: list[str] = []
    fence: tuple[int, int] | None = None
    """From and to, in microseconds since 1970."""
    place: dict[str, int] = {}
    """By topic: the offset that the writer has reached."""
    query: str = ""
    """Spark's id of the query that counts the batches; empty if the writer counts them itself."""
    batch: int = -1
    """The number of the batch in that query."""
    overlap: dict[str, int] = {}
    """The writer's place when the query began: rows below it are those of queries before."""

    def holds(self, query: str, number: int) -> bool:
        """True if a batch was committed with this one, or before."""
        if query and self.query:
            return query == self.query and number <= self.batch
        return number <= self.number

    def begun(self, query: str) -> dict[str, int]:
        """The overlap of a query that goes on behind this commit, or begins there."""
        return self.place if query and self.query and query != self.query else self.overlap


_encode = msgspec.json.Encoder().encode
_commit = msgspec.json.Decoder(Commit)
_fences = msgspec.json.Decoder(list[tuple[int, int]])


class Landing:
    """A table in a folder. Of this process; threads may share it."""

    def __init__(self, where: str, spark: Any = None, *, keys: Sequence[str] = ("day",), at: str = "time") -> None:
        self.files: Files = files_of(where, spark)
        self.keys = tuple(keys)
        self.at = at
        self._lock = threading.RLock()
        self._local = local_path(where)

    # Writing.

    def last(self, writer: str) -> int:
        """The number of the last batch of a writer; -1 if there is none."""
        return max((number for name, number, _ in self._written() if name == writer), default=-1)

    def latest(self, writer: str) -> Commit | None:
        """The last commit of a writer."""
        found = [(number, path) for name, number, path in self._written() if name == writer]
        return _commit.decode(self.files.read(max(found)[1])) if found else None

    def place(self, writer: str) -> dict[str, int]:
        """The offsets that a writer had reached with its last batch."""
        found = self.latest(writer)
        return {} if found is None else found.place

    def known(self, writer: str, query: str, firsts: Mapping[str, int]) -> dict[str, int]:
        """Of a batch with these first offsets: below which offsets of which topics its rows landed under another
        checkpoint."""
        last = self.latest(writer)
        begun = {} if last is None else last.begun(query)
        return {topic: begun[topic] for topic, first in firsts.items() if first < begun.get(topic, 0)}

    def land(
        self,
        writer: str,
        number: int,
        rows: DataFrame | None,
        *,
        removes: Sequence[str] = (),
        fence: tuple[int, int] | None = None,
        place: dict[str, int] | None = None,
        days: Sequence[str] = (),
        count: int | None = None,
        query: str = "",
    ) -> bool:
        """Rows of a batch, once; False if that number landed before, of the same ``query`` if one is named. ``rows``
        have the columns of the keys; ``count`` is how many they are, where that is known: then ``BadInput`` if fewer
        are found in a folder of this machine, because executors have written to disks of their own.

        False also if other commits were quicker: files that it ``removes`` are gone, or there are other ones on the
        ``days`` that it replaces as a whole.
        """
        with self._held():
            self.finish()
            last = self.latest(writer)
            if last is not None and last.holds(query, number):
                return False
            batch, before = number, Commit(writer, -1) if last is None else last
            if query:
                number = before.number + 1
            fences = self.fences() if fence is None and writer != COMPACTOR else []
        staging = f"{STAGING}/{writer}-{number}-{uuid.uuid4().hex[:8]}"
        if rows is not None:
            self._fenced(rows, fences).write.partitionBy(*self.keys).parquet(self.files.under(staging))
        with self._held():
            if rows is not None and not self.files.exists(f"{staging}/{WHOLE}"):
                raise OSError(f"{self.files.under(staging)} was removed before it landed: run it again")
            there = [found.path for found in self.files.list(staging) if found.path.endswith(".parquet")]
            if rows is not None and count is not None and not fences:
                self._all_here(there, count)
            moves = []
            for count, path in enumerate(there):
                folder = PurePosixPath(path).parent.relative_to(staging).as_posix()
                moves.append((path, f"{folder}/{writer}-{number:09d}-{count:04d}.parquet"))
            if removes or days:  # a look at all files, which may be many
                data = set(self._data())
                if not data.issuperset(removes) or set(on_days(data, days)) - set(removes):
                    self.files.remove(staging)
                    return False
            begun = before.begun(query)
            reached = {topic: max(end, begun.get(topic, 0)) for topic, end in (place or {}).items()}
            commit = Commit(writer, number, staging, moves, list(removes), fence, {**before.place, **reached})
            commit.query, commit.batch, commit.overlap = query, batch if query else -1, begun
            self._commit(commit)
        return True

    def _all_here(self, staged: Sequence[str], count: int) -> None:
        found = self._rows_in(staged)
        if found not in (None, count):
            raise BadInput(
                f"{found:,} of {count:,} rows that executors wrote to {self.files.root} are here: they have other "
                "disks than this process; name a folder that all of them share, or a URI such as s3a:// or hdfs://"
            )

    def _rows_in(self, paths: Sequence[str]) -> int | None:
        """By the footers of these files; None where this process does not read them itself."""
        if self._local is None:
            return None
        import pyarrow.parquet as parquet

        return sum(int(parquet.read_metadata(self._local / path).num_rows) for path in paths)

    def _fenced(self, rows: DataFrame, fences: Sequence[tuple[int, int]]) -> DataFrame:
        if not fences or self.at not in rows.columns:
            return rows
        from pyspark.sql import functions as F

        moment = F.unix_micros(F.col(self.at))
        for start, stop in fences:
            rows = rows.where((moment < start) | (moment >= stop))
        return rows

    def _commit(self, commit: Commit) -> None:
        name = f"{COMMITS}/{commit.writer}-{commit.number:012d}{PENDING}"
        self.files.write(name, _encode(commit))
        self._do(name, commit)

    def finish(self) -> None:
        """Do the moves of pending commits, and remove staged files of no commit."""
        with self._held():
            self._adopt()
            for name, commit in self._pending():
                self._do(name, commit)

    def clean(self, *writers: str) -> None:
        """Remove what a killed driver left of these writers. Only for the process that is these writers, before it
        writes: others may be at work."""
        with self._held():
            self.finish()
            for name in {found.path.split("/")[1] for found in self.files.list(STAGING)}:
                if name.partition("-")[0] in writers:
                    self.files.remove(f"{STAGING}/{name}")

    def _do(self, name: str, commit: Commit) -> None:
        for source, target in commit.moves:
            if self.files.exists(source):
                self.files.move(source, target)
        for path in commit.removes:
            self.files.remove(path)
        if commit.fence is not None:
            fences = [*(one for one in self.fences() if one != commit.fence), commit.fence]
            self.files.write(FENCES, _encode(fences))
        if commit.staging:
            self.files.remove(commit.staging)
        self.files.move(name, name.removesuffix(PENDING) + DONE)
        old = sorted(path for writer, _, path in self._written() if writer == commit.writer)[:-KEPT_COMMITS]
        for path in old:
            self.files.remove(path)

    def _written(self) -> Iterator[tuple[str, int, str]]:
        """Writer, number and name of each commit that is done or pending."""
        for found in self.files.list(COMMITS):
            stem, dot, suffix = found.path.removeprefix(f"{COMMITS}/").rpartition(".")
            writer, dash, number = stem.rpartition("-")
            if dot and dash and f".{suffix}" in (PENDING, DONE) and number.isdigit():
                yield writer, int(number), found.path

    def _pending(self) -> list[tuple[str, Commit]]:
        names = sorted(found.path for found in self.files.list(COMMITS) if found.path.endswith(PENDING))
        return [(name, _commit.decode(self.files.read(name))) for name in names]

    def _adopt(self) -> None:
        """A folder of Spark's file sink becomes one of ours."""
        if not self.files.exists(MANIFEST):
            return
        named = manifest_of(self.files)
        assert named is not None
        counted = {"/".join(path.parts[-1 - len(self.keys) :]) for path in named.files}
        loose = [path for path in self._data() if path not in counted]
        if named.last >= 0:
            self.files.write(f"{COMMITS}/archive-{named.last:012d}{DONE}", _encode(Commit("archive", named.last)))
        for path in loose:
            self.files.remove(path)
        self.files.remove(MANIFEST)

    # Reading.

    def fences(self) -> list[tuple[int, int]]:
        return _fences.decode(self.files.read(FENCES)) if self.files.exists(FENCES) else []

    def _data(self) -> list[str]:
        return [
            found.path
            for found in self.files.list()
            if found.path.endswith(".parquet") and not found.path.startswith(("_", "."))
        ]

    def snapshot(self) -> list[str]:
        """The files that count now, below the folder."""
        named = manifest_of(self.files)
        if named is not None:
            there = set(self._data())
            counted = {"/".join(path.parts[-1 - len(self.keys) :]) for path in named.files}
            missing = counted - there
            if missing:
                raise BadInput(
                    f"{self.files.root} lacks {min(missing)}, which its manifest names: copy the folder again, whole"
                )
            return sorted(counted)
        pending = [commit for _, commit in self._pending()]
        found = set(self._data())
        for commit in pending:
            for source, target in commit.moves:
                if target not in found:
                    found.add(source)
            found.difference_update(commit.removes)
        return sorted(found)

    def read(self, spark: SparkSession, schema: Any, files: Sequence[str] | None = None) -> DataFrame:
        """The rows that count, or those of some files. ``schema`` has the columns of the keys too, as strings."""
        with self._held():
            if not self.files.exists(MANIFEST):
                self.finish()  # then nothing that counts is in the staging area
            some = self.snapshot() if files is None else list(files)
        if not some:
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema).option("basePath", self.files.root)
        return reader.parquet(*(self.files.under(path) for path in some))

    # Compaction.

    def crowded(self, files_min: int, bytes_max: int) -> dict[str, list[str]]:
        """Partitions with so many small files or more: their folders, and the files."""
        sizes = {found.path: found.size_bytes for found in self.files.list()}
        held: dict[str, list[str]] = {}
        for path in self.snapshot():
            if sizes.get(path, bytes_max) < bytes_max and not path.startswith("_"):
                held.setdefault(path.rpartition("/")[0], []).append(path)
        return {folder: paths for folder, paths in held.items() if len(paths) >= files_min}

    def compact(
        self, spark: SparkSession, files_min: int, bytes_max: int, stopped: Callable[[], bool] | None = None
    ) -> int:
        """Put small files of each partition together; how many files are fewer."""
        self.finish()
        fewer = 0
        for paths in self.crowded(files_min, bytes_max).values():
            if stopped is not None and stopped():
                break
            reader = spark.read.option("basePath", self.files.root).option("mergeSchema", "true")
            rows = reader.parquet(*(self.files.under(path) for path in paths))
            for key in self.keys:
                rows = rows.withColumn(key, rows[key].cast("string"))
            order = [name for name in ("topic", "offset", self.at) if name in rows.columns]
            rows = rows.coalesce(1).sortWithinPartitions(*order) if order else rows.coalesce(1)
            if self.land(COMPACTOR, self.last(COMPACTOR) + 1, rows, removes=paths, count=self._rows_in(paths)):
                fewer += len(paths) - 1
        return fewer

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Nobody else commits meanwhile: no thread, and, on a local disk, no process."""
        with self._lock:
            if self._local is None or getattr(self, "_holding", False):
                yield
                return
            folder = Path(self._local) / COMMITS
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._holding = True
                try:
                    yield
                finally:
                    self._holding = False


def query_of(spark: SparkSession) -> str:
    """Inside ``foreachBatch``: Spark's id of the query, which is that of its checkpoint; empty if it is not known."""
    if getattr(spark, "_jsc", None) is None:  # through a Connect server
        return ""
    return str(spark.sparkContext.getLocalProperty(QUERY_ID) or "")


def without(rows: DataFrame, known: Mapping[str, int]) -> DataFrame:
    """Without rows of topics that stand before these offsets."""
    if not known:
        return rows
    from pyspark.sql import functions as F

    marks = rows.sparkSession.createDataFrame(list(known.items()), "known_topic string, known_offset long")
    beside = rows.join(F.broadcast(marks), F.col("topic") == F.col("known_topic"), "left")
    is_new = F.col("known_offset").isNull() | (F.col("offset") >= F.col("known_offset"))
    return beside.where(is_new).drop("known_topic", "known_offset")


def day_of(column: str) -> Column:
    """The day of a time, as partitions name it: that of UTC, whatever the zone of the session is."""
    from pyspark.sql import functions as F

    days = F.floor(F.unix_micros(F.col(column)) / F.lit(86_400_000_000)).cast("int")
    return F.date_from_unix_date(days).cast("string")


def on_days(paths: Iterable[str], days: Iterable[str]) -> list[str]:
    """The files that lie in the partitions of these days."""
    wanted = {f"day={day}" for day in days}
    return [path for path in paths if path.split("/")[-2:-1] and path.split("/")[-2] in wanted]


def days_between(start_us: int, stop_us: int) -> list[str]:
    """The days, as partitions name them, that a range of time touches."""
    from datetime import UTC, datetime, timedelta

    first = datetime.fromtimestamp(start_us / 1e6, UTC).date()
    last = datetime.fromtimestamp((stop_us - 1) / 1e6, UTC).date()
    return [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
