"""The part of ``match_recognize`` that runs in Spark's Python workers: lists of columns in, columns of answers out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..patterns import Match, Matcher, Problem, parse
from ..patterns.events import Key, Rows
from ..patterns.references import Row

_MAKE: dict[str, Any] = {"bigint": int, "double": float, "string": str, "boolean": bool}
Values = tuple[Any, ...]


class _TableRows(Rows):
    """Rows of a table: the values in the order of ORDER BY, PARTITION BY and columns, and the whole row as a text."""

    def row(self, event: Any) -> tuple[Key, Row]:
        return self.of_values(event[:-1], event[-1])


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

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.fields)

    def matcher(self, lateness_s: float | None, problems: list[Problem]) -> Matcher:
        pattern = parse(self.text)
        return Matcher(pattern, lateness_s=lateness_s, on_problem=problems.append, rows=_TableRows(pattern))

    def table(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Sorted rows of some partitions: a partition is finished when the next begins. Runs once in each task."""
        problems: list[Problem] = []
        matcher = self.matcher(0.0, problems)
        first, end = self.order, self.order + self.keys
        last: Any = None
        for batch in batches:
            rows = self.rows([column.to_pylist() for column in batch.columns])
            found: list[Match] = []
            begun = 0
            for number, row in enumerate(rows):
                key = row[first:end]
                if key != last:
                    found += matcher.feed(rows[begun:number])
                    found += matcher.finish()
                    matcher.watermark, last, begun = -math.inf, key, number
            found += matcher.feed(rows[begun:])
            yield from self.batch(found, problems)
        yield from self.batch(matcher.finish(), problems)

    def stream(self, key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        """One bucket of a micro-batch, or its time-out. Runs for each bucket that has rows or whose time has come."""
        problems: list[Problem] = []
        matcher = self.matcher(None, problems)
        if state.exists:
            matcher.restore(bytes(state.get[0]))
        found: list[Match] = []
        for frame in () if state.hasTimedOut else frames:
            names = [name for name in frame.columns if name == "event" or name[0] == "v"]
            found += matcher.feed(self.rows([frame[name].tolist() for name in names]))
        watermark_ms = state.getCurrentWatermarkMs()
        found += matcher.advance(watermark_ms / 1_000)
        if len(matcher):
            state.update((matcher.state(),))
            due = matcher.due()
            if due is not None:
                state.setTimeoutTimestamp(max(math.floor(due * 1_000), watermark_ms + 1))
        elif state.exists:
            state.remove()
        yield from self.frame(found, problems)

    # --- rows in, answers out ---------------------------------------------------------------------------------------

    def rows(self, columns: list[list[Any]]) -> list[Values]:
        for place, whole in enumerate(self.whole):
            if whole:
                columns[place] = [None if value is None else int(value) for value in columns[place]]
        for place in range(self.order, self.order + self.keys):
            # pandas has NaN for null, and no two of them are one partition.
            columns[place] = [value if value == value else None for value in columns[place]]
        return list(zip(*columns, strict=True))

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
