"""The part of ``match_recognize`` that runs in Spark's Python workers: lists of columns in, columns of answers out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, groupby, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from ..core.errors import BadInput
from ..patterns import Match, Matcher, Problem, parse
from ..patterns.events import order_value
from ..patterns.references import Row

LAYOUT = -1
"""The bucket that holds no rows, but how many buckets there are."""
_MAKE: dict[str, Any] = {"bigint": int, "double": float, "string": str, "boolean": bool}
Values = tuple[Any, ...]
Placed = tuple[Values, Row, Values]
"""A partition, a row, and the values that it was made of."""


def first_of_all() -> Any:
    """A function of Spark that is true for the first of several rows of a task; there is none for streams."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def first(column: Any) -> Any:
        return pa.array([place == 0 for place in range(len(column))], pa.bool_())

    first.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return arrow_udf(first, "boolean")  # type: ignore[call-overload]  # its type is in the annotations


class Crew(NamedTuple):
    """What travels to the workers."""

    text: str
    order: int
    """How many columns are of ORDER BY."""
    keys: int
    """How many are of PARTITION BY."""
    whole: tuple[bool, ...]
    """For each column, whether it is a whole number that travels as a text."""
    fields: tuple[tuple[str, str], ...]
    """Names and types of what comes back: keys, measures, the whole row, the problem."""
    lateness_s: float = 0.0
    buckets: int = 0
    """Into how many a stream is divided."""

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

    def stream(self, key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        """One bucket of a micro-batch, or its time-out. Runs for each bucket that has rows or whose time has come.

        Spark's watermark is that of the rows before this micro-batch. The rows of the bucket itself tell more: what is
        older than the newest of them by more than the lateness would be late in the next micro-batch, so what waits
        for it need not wait until then.
        """
        if key[0] == LAYOUT:
            self.check_layout(frames, state)
            return
        problems: list[Problem] = []
        matcher = self.matcher(None, problems)
        if state.exists:
            matcher.restore(bytes(state.get[0]))
        found: list[Match] = []
        watermark_ms = state.getCurrentWatermarkMs()
        reached = watermark_ms / 1_000
        for frame in () if state.hasTimedOut else frames:
            columns = [frame[name].tolist() for name in frame.columns if name[0] == "v"]
            # Whole rows travel only where they are asked for.
            columns.append(frame["event"].tolist() if "event" in frame else [None] * len(frame))
            rows, newest = self.rows(columns, problems)
            found += matcher.feed_rows(rows)
            reached = max(reached, newest - self.lateness_s)
        found += matcher.advance(reached)
        if len(matcher):
            state.update((matcher.state(),))
            due = matcher.due()
            if due is not None:
                state.setTimeoutTimestamp(max(math.floor(due * 1_000), watermark_ms + 1))
        elif state.exists:
            state.remove()
        yield from self.frame(found, problems)

    def check_layout(self, frames: Iterator[Any], state: Any) -> None:
        """State of a stream lies in its bucket: with another number of buckets, nobody would find it. The first rows
        after a restart tell, and their micro-batch fails; nothing of it is lost."""
        for _ in frames:
            pass  # their rows are in other buckets too
        now = self.buckets.to_bytes(4, "little")
        if not state.exists:
            state.update((now,))
        elif bytes(state.get[0]) != now:
            before = int.from_bytes(bytes(state.get[0]), "little")
            raise BadInput(
                f"this checkpoint was made with buckets={before}, and buckets={self.buckets} would not find what it "
                f"holds: give match_recognize(..., buckets={before}), or begin with a new checkpoint"
            )

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

    def answers(self, found: Sequence[Match], problems: list[Problem]) -> list[list[Any]]:
        """The columns of what comes back; ``problems`` are taken."""
        rows: list[list[Any]] = [
            [*match.partition.values(), *match.measures.values(), match.event, None] for match in found
        ]
        measures = len(self.fields) - self.keys - 2
        for problem in problems:
            key = problem.partition or (None,) * self.keys
            event = None if problem.event is None else problem.event[-1]
            about = "" if problem.event is None else f" (event {problem.event[: len(self.whole)]})"
            rows.append([*key, *(None,) * measures, event, f"{problem.kind}: {problem.reason}{about}"])
        problems.clear()
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
            arrays = [
                pa.array(values, types[kind])
                for values, (_, kind) in zip(self.answers(found, problems), self.fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self.fields])

    def frame(self, found: Sequence[Match], problems: list[Problem]) -> Iterator[Any]:
        import pandas as pd

        if found or problems:
            columns = self.answers(found, problems)
            names = [name for name, _ in self.fields]
            yield pd.DataFrame({name: pd.Series(each, dtype=object) for name, each in zip(names, columns, strict=True)})
