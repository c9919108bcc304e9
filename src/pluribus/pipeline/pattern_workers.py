"""The part of ``match_recognize`` that runs in Spark's Python workers: lists of columns in, columns of answers out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby, repeat
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from ..core.errors import BadInput
from ..patterns import Match, Matcher, Problem, parse
from ..patterns.events import order_value
from ..patterns.references import Row

LAYOUT = -1
"""The bucket without rows, which keeps the layout of the stream's state."""
VERSION = 2
"""Of the layout."""
SLOT_MS = 1_000
"""Time-outs of a bucket are kept by slots of this length: one is looked at when the watermark has passed its slot."""
CERTAIN = "certain"
"""The column of answers that carries event time."""
_MAKE: dict[str, Any] = {"bigint": int, "double": float, "string": str, "boolean": bool, "timestamp": float}
Values = tuple[Any, ...]
Placed = tuple[Values, Row, Values]
"""A partition, a row, and the values that it was made of."""


def first_of_all() -> Any:
    """A function of Spark that is true for the first of several rows of a task; Spark has none for streams."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def first(column: Any) -> Any:
        return pa.array([place == 0 for place in range(len(column))], pa.bool_())

    first.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return arrow_udf(first, "boolean")  # type: ignore[call-overload]  # its type is in the annotations


class Crew(NamedTuple):
    """The parameters that travel to the workers."""

    text: str
    order: int
    """How many columns belong to ORDER BY."""
    keys: int
    """How many columns belong to PARTITION BY."""
    whole: tuple[bool, ...]
    """For each column: true if it is a whole number that travels as a text."""
    fields: tuple[tuple[str, str], ...]
    """Names and types of what comes back: keys, measures, the whole row, the problem; and perhaps when it was certain,
    in seconds."""
    lateness_s: float = 0.0
    buckets: int = 0
    """The number of buckets of a stream."""

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.fields)

    def matcher(self, lateness_s: float | None, problems: list[Problem]) -> Matcher:
        return Matcher(parse(self.text), lateness_s=lateness_s, on_problem=problems.append, numbered=False)

    def table(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Sorted rows of some partitions: a partition is finished when the next begins. Runs once in each task."""
        problems: list[Problem] = []
        matcher = self.matcher(0.0, problems)
        last: Any = None
        for batch in batches:
            rows, _ = self.rows([column.to_pylist() for column in batch.columns], problems)
            found: list[Match] = []
            for key, those in groupby(rows, itemgetter(0)):
                if key != last:
                    found += matcher.finish()
                    matcher.watermark, last = -math.inf, key
                found += matcher.feed_rows(those)
            yield from self.batch(found, problems)
        yield from self.batch(matcher.finish(), problems)

    # --- rows in, answers out ---------------------------------------------------------------------------------------

    def rows(self, columns: list[list[Any]], problems: list[Problem]) -> tuple[Iterator[Placed], float]:
        """Partition, row and values of each row of a table, and the newest time. All at once, column by column."""
        import numpy as np

        for place, whole in enumerate(self.whole):
            if whole:
                columns[place] = [None if value is None else int(value) for value in columns[place]]
        first, end = self.order, self.order + self.keys
        for place in range(first, end):
            # pandas has NaN for null, and no two of them are one partition.
            columns[place] = [value if value == value else None for value in columns[place]]
        times = np.array(columns[0], dtype=float)
        there = np.isfinite(times)
        if not there.all():
            for values in compress(zip(*columns, strict=True), (~there).tolist()):
                reason = f"its time is {values[0]!r}: ORDER BY needs a number or a time"
                problems.append(Problem("misfit", reason, values, values[first:end]))
            columns = [list(compress(column, there.tolist())) for column in columns]
        ties: Iterable[Any] = repeat(None)
        if first > 1:
            ties = [list(map(order_value, several)) for several in zip(*columns[1:first], strict=True)]
        keys: Iterable[Values] = zip(*columns[first:end], strict=True) if self.keys else repeat(())
        rows = zip(columns[0], ties, columns[-1], *columns[end:-1], strict=False)
        newest = float(times[there].max()) if len(columns[0]) else -math.inf
        return zip(keys, rows, zip(*columns, strict=True), strict=False), newest

    def answers(self, found: Sequence[Match], problems: list[Problem], reached: float) -> list[list[Any]]:
        """The columns of what comes back; ``problems`` are taken. An answer is certain at the time of the last row of
        its match, but not before ``reached``: that is when others can know of it, and what follows in the query may
        count on nothing older."""
        timed = self.fields[-1][0] == CERTAIN
        rows: list[list[Any]] = [
            [*match.partition.values(), *match.measures.values(), match.event, None] for match in found
        ]
        times = [max(match.last, reached) for match in found]
        measures = len(self.fields) - self.keys - 2 - timed
        for problem in problems:
            key = problem.partition or (None,) * self.keys
            event = None if problem.event is None else problem.event[-1]
            about = "" if problem.event is None else f" (event {problem.event[: len(self.whole)]})"
            rows.append([*key, *(None,) * measures, event, f"{problem.kind}: {problem.reason}{about}"])
            times.append(reached)
        problems.clear()
        if timed:
            rows = [[*row, time] for row, time in zip(rows, times, strict=True)]
        columns: list[list[Any]] = (
            [[] for _ in self.fields] if not rows else [list(each) for each in zip(*rows, strict=True)]
        )
        return [
            [None if value is None else _MAKE[kind](value) for value in column]
            for column, (_, kind) in zip(columns, self.fields, strict=True)
        ]

    def batch(self, found: Sequence[Match], problems: list[Problem]) -> Iterator[Any]:
        import pyarrow as pa

        if found or problems:
            types = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
            columns = self.answers(found, problems, 0.0)
            arrays = [
                pa.array(_micros(values), pa.timestamp("us", "UTC"))
                if kind == "timestamp"
                else pa.array(values, types[kind])
                for values, (_, kind) in zip(columns, self.fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self.fields])

    def frame(self, found: Sequence[Match], problems: list[Problem], reached: float) -> Iterator[Any]:
        import pandas as pd

        if found or problems:
            columns = self.answers(found, problems, reached)
            yield pd.DataFrame(
                {
                    name: pd.to_datetime(_micros(each), unit="us", utc=True)
                    if kind == "timestamp"
                    else pd.Series(each, dtype=object)
                    for (name, kind), each in zip(self.fields, columns, strict=True)
                }
            )


def _micros(seconds: Sequence[float]) -> list[int]:
    return [round(value * 1_000_000) for value in seconds]


class PatternProcessor(StatefulProcessor):
    """Runs in executors: one call for each bucket of a micro-batch that has rows, and one for each slot of time-outs
    that the watermark has passed.

    State, in RocksDB, by bucket: what is remembered of a partition is one entry of a map, read and written only when a
    row or a time-out touches it. So a micro-batch costs what it touches, however many partitions there are. ``due`` has
    the partitions of each slot of time-outs. ``reached`` is the watermark of the bucket.

    Spark's watermark is that of the rows before this micro-batch. The rows of the bucket itself tell more: what is
    older than the newest of them by more than the lateness would be late in the next micro-batch, so what waits for it
    need not wait until then.
    """

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._states = handle.getMapState("states", "partition binary", "state binary, slot bigint")
        self._due = handle.getMapState("due", "slot bigint", "partitions binary")
        self._bucket = handle.getValueState("bucket", "layout string, reached double")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Any]:
        if key[0] == LAYOUT:
            self._check_layout(rows)
            return
        crew, problems = self.crew, list[Problem]()
        placed: list[Placed] = []
        newest = -math.inf
        for frame in rows:
            columns = [frame[name].tolist() for name in frame.columns if name[0] == "v"]
            # Whole rows travel only where they are asked for.
            columns.append(frame["event"].tolist() if "event" in frame else [None] * len(frame))
            some, latest = crew.rows(columns, problems)
            placed += some
            newest = max(newest, latest)
        watermark = timerValues.getCurrentWatermarkInMs() / 1_000
        matcher = crew.matcher(None, problems)
        touched = self._loaded(matcher, dict.fromkeys(partition for partition, _, _ in placed))
        found = matcher.feed_rows(placed)
        # Before the first micro-batch has ended, Spark's watermark is 0 and says nothing.
        reached = max(watermark or -math.inf, newest - crew.lateness_s)
        found += matcher.advance(reached)
        self._bucket.update(("", matcher.watermark if math.isfinite(matcher.watermark) else None))
        self._saved(matcher, touched, timerValues.getCurrentWatermarkInMs())
        yield from crew.frame(found, problems, watermark)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        slot = expiredTimerInfo.getExpiryTimeInMs()
        entry = self._due.getValue((slot,))
        if entry is None:
            return
        self._due.removeKey((slot,))
        problems: list[Problem] = []
        matcher = self.crew.matcher(None, problems)
        partitions = [tuple(each) for each in msgspec.msgpack.decode(bytes(entry[0]))]
        touched = {
            partition: old
            for partition, old in self._loaded(matcher, partitions).items()
            if old is not None and old >= slot
        }
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        found = matcher.advance(watermark_ms / 1_000)
        self._saved(matcher, dict.fromkeys(touched, 0), watermark_ms)
        yield from self.crew.frame(found, problems, watermark_ms / 1_000)

    def _loaded(self, matcher: Matcher, partitions: Iterable[Values]) -> dict[Values, int | None]:
        """Have the matcher remember what is known of these partitions; the slot of each, None for new ones."""
        found: dict[Values, int | None] = {}
        for partition in partitions:
            try:
                entry = self._states.getValue((_coded(partition),))
            except TypeError:
                continue  # it cannot be told from others, which the matcher says
            found[partition] = None if entry is None else int(entry[1])
            if entry is not None:
                matcher.take(partition, bytes(entry[0]))
        known = self._bucket.get()
        matcher.watermark = -math.inf if known is None or known[1] is None else known[1]
        return found

    def _saved(self, matcher: Matcher, touched: Mapping[Values, int | None], watermark_ms: int) -> None:
        """``touched``: with the slot in which each partition is looked at, 0 for none, None for a partition that was
        not known before."""
        slots: dict[int, list[Values]] = {}
        left = dict(touched)
        for partition, state, due in matcher.parts():
            before = left.pop(partition, None) or 0
            slot = before
            if due < math.inf:
                wanted = max(math.floor(due * 1_000), watermark_ms) // SLOT_MS * SLOT_MS + SLOT_MS
                if not before or wanted < before:  # a later one is found out when the earlier one is looked at
                    slot = wanted
                    slots.setdefault(slot, []).append(partition)
            self._states.updateValue((_coded(partition),), (state, slot))
        for partition, known in left.items():
            if known is not None:
                self._states.removeKey((_coded(partition),))
        for slot, partitions in slots.items():
            entry = self._due.getValue((slot,))
            if entry is None:
                self._handle.registerTimer(slot)
            others = [] if entry is None else msgspec.msgpack.decode(bytes(entry[0]))
            self._due.updateValue((slot,), (msgspec.msgpack.encode([*others, *partitions]),))

    def _check_layout(self, rows: Any) -> None:
        """State of a stream lies in its bucket, and is that of its pattern: with another number of buckets nobody would
        find it, and another pattern could not go on with it. The first rows after a restart tell, and their micro-batch
        fails; nothing of it is lost."""
        for _ in rows:
            pass  # they are in other buckets too
        now = f"{VERSION}:{self.crew.buckets}:{crc32(self.crew.text.encode()):08x}"
        known = self._bucket.get()
        if known is None:
            self._bucket.update((now, None))
        elif known[0] != now:
            _, before, _ = str(known[0]).split(":")
            if before == str(self.crew.buckets):
                raise BadInput(
                    "this checkpoint was made with another pattern, and what it holds was begun with that one: go on "
                    "with that pattern, or begin with a new checkpoint"
                )
            raise BadInput(
                f"this checkpoint was made with buckets={before}, and buckets={self.crew.buckets} would not find what "
                f"it holds: give match_recognize(..., buckets={before}), or begin with a new checkpoint"
            )


def _coded(partition: Values) -> bytes:
    return msgspec.msgpack.encode(partition)
