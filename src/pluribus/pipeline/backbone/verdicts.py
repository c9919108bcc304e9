"""The verdict on each event, found in executors, once for every event that was read.

An event is the first of these that holds:

    dead        its body does not have the fields of its table (rule ``body``)
    late        its time is before the watermark: the newest good time of its table so far, less ``late``
    dropped     a rule with ``otherwise = "drop"`` is not true for it
    dead        a rule with ``otherwise = "aside"`` is not true for it
    good        otherwise; or *duplicate*, which is found later (``intake.py``), as it takes all events of a batch

A rule with ``otherwise = "fail"`` that is not true fails the micro-batch: nothing of it counts until the rule or the
event's producer is changed. *Lost* is something else than late: events that were removed before they were read. They
cannot be judged; they are counted by their missing offsets.

The watermark stands still while a micro-batch is judged, and it is written down with the batch before. So a batch that
is done again is judged as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...core.errors import BadInput
from ...pubsub.durable.batch import StoredBatch
from ..columns import arrow_schema
from ..decoding import body_fields, plainly
from ..tables import Shape, envelope
from .parts import BODY, Silver, condition, kinds_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

GOOD, DEAD, DROPPED, LATE, DUPLICATE = "good", "dead", "dropped", "late", "duplicate"
VERDICTS = (GOOD, DEAD, DROPPED, LATE, DUPLICATE)
NEVER_US = -(1 << 62)
_key = msgspec.msgpack.Encoder().encode


def judged_fields(read: StructType) -> StructType:
    """The columns behind the verdicts: those that were read, and these."""
    from pyspark.sql.types import BinaryType, StringType, StructType

    found = StructType([*read.fields])
    for name in ("verdict", "rule", "reason"):
        found = found.add(name, StringType())
    return found.add("key", BinaryType())


class Judge(NamedTuple):
    """Travels to executors. Rows have ``table`` beside the envelope, ``kind`` and ``body``."""

    tables: tuple[Silver, ...]
    watermarks_us: Mapping[str, int]
    schema: StructType
    now_s: float
    """``NOW()`` in rules. One moment for the whole micro-batch, because a task that is done again judges as before."""

    def judged(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        told = arrow_schema(self.schema)
        benches: dict[str, Bench] = {}
        for batch in batches:
            tables = batch.column(batch.schema.names.index("table"))
            for name in pc.unique(tables).to_pylist():
                some = batch if len(tables) == pc.sum(pc.equal(tables, name)).as_py() else None
                some = batch.filter(pc.equal(tables, name)) if some is None else some
                if name not in benches:
                    silver = next(one for one in self.tables if one.name == name)
                    benches[name] = Bench(silver, self.watermarks_us.get(name, NEVER_US), self.now_s)
                columns = dict(zip(some.schema.names, some.columns, strict=True))
                columns.update(benches[name].judge(columns, some.num_rows))
                yield pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in told], schema=told)


Broken = dict[int, tuple[str, str]]
"""By place: the rule that an event breaks, and why."""


class Judged(NamedTuple):
    """What was found of some events, one after another."""

    offsets: Any
    times_us: Any
    verdicts: list[str]
    broken: Broken
    keys: list[bytes | None] | None
    """None if no event is a duplicate of another."""


class Bench:
    """The rules of one table, compiled."""

    def __init__(self, silver: Silver, watermark_us: int, now_s: float) -> None:
        fields = body_fields(silver.fields, silver.type)
        self._silver = silver
        self._watermark_us = watermark_us
        self._shape = Shape(fields, fields.names, "aside")
        kinds = kinds_of(silver)
        conditions = [condition(rule.where, kinds) for rule in silver.rules]
        self._rules = [one.predicate(now=lambda: now_s) for one in conditions]
        self._asked = [list(dict.fromkeys(path[0] for path in one.fields)) for one in conditions]
        wanted = {name for names in self._asked for name in names}
        self._wanted = [name for name in kinds if name in wanted]
        self._levels = {name: level for name, level in silver.levels.items() if name in wanted | {*silver.unique}}

    def judge(self, columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """Of rows: columns beside theirs."""
        import pyarrow as pa

        decoded, reasons = self._shape.decoded(columns["body"].to_pylist(), plainly(columns["kind"]))
        known = {**columns, **decoded}
        verdicts, broken = self._judged(known, rows, reasons)
        rules: list[str | None] = [None] * rows
        why: list[str | None] = [None] * rows
        for place, (rule, reason) in broken.items():
            rules[place] = rule
            why[place] = reason
        keys = [None] * rows if not self._silver.unique else self._keys(known, verdicts)
        found = {"verdict": pa.array(verdicts), "rule": pa.array(rules, pa.string())}
        return {**found, "reason": pa.array(why, pa.string()), "key": pa.array(keys, pa.binary())}

    def judge_packed(self, batches: Sequence[StoredBatch]) -> Judged:
        """Of packed batches, whose events come one after another."""
        decoded, reasons = self._shape.fields_of(batches)
        unique = self._silver.unique
        wanted = {"topic", "offset", "time", *self._wanted, *unique}
        known = {**envelope(batches, [*wanted]), **decoded}
        rows = len(known["time"])
        verdicts, broken = self._judged(known, rows, reasons)
        keys = self._keys(known, verdicts) if unique else None
        return Judged(known["offset"].to_numpy(), _us_of(known["time"]), verdicts, broken, keys)

    def _judged(self, known: dict[str, Any], rows: int, reasons: Sequence[str | None]) -> tuple[list[str], Broken]:
        """The verdicts, and the rule and reason of each event that is dead or dropped. Adds levels to the columns."""
        known.update(self._of_levels(known["topic"]))
        verdicts = [GOOD] * rows
        broken: Broken = {}
        for place, reason in enumerate(reasons):
            if reason is not None:
                verdicts[place], broken[place] = DEAD, (BODY, reason)
        if self._watermark_us != NEVER_US:
            self._find_late(_us_of(known["time"]), verdicts)
        self._hold_to_rules(known, rows, verdicts, broken)
        return verdicts, broken

    def _of_levels(self, topics: Any) -> dict[str, Any]:
        import pyarrow as pa

        if not self._levels:
            return {}
        split: dict[str, list[str]] = {}
        names = topics.to_pylist()
        for name in set(names):
            split[name] = name.split("/")
        return {
            column: pa.array([_level(split[name], level) for name in names], pa.string())
            for column, level in self._levels.items()
        }

    def _find_late(self, times_us: Any, verdicts: list[str]) -> None:
        import numpy as np

        for place in np.flatnonzero(times_us < self._watermark_us).tolist():
            if verdicts[place] == GOOD:
                verdicts[place] = LATE

    def _hold_to_rules(self, known: Mapping[str, Any], rows: int, verdicts: list[str], broken: Broken) -> None:
        if not self._rules:
            return
        values = [known[name].to_pylist() for name in self._wanted]
        events = [dict(zip(self._wanted, row, strict=True)) for row in zip(*values, strict=True)] or [{}] * rows
        for rule, holds, asked in zip(self._silver.rules, self._rules, self._asked, strict=True):
            wrong = [place for place, event in enumerate(events) if not holds(event) and verdicts[place] == GOOD]
            for place in wrong:
                if rule.otherwise == "fail":
                    self._fail(rule.name, rule.where, known, place, _said(events[place], asked))
                verdicts[place] = DROPPED if rule.otherwise == "drop" else DEAD
                broken[place] = (rule.name, f"{rule.where} is not true of {_said(events[place], asked)}")

    def _fail(self, rule: str, where: str, known: Mapping[str, Any], place: int, said: str) -> None:
        topic, offset = known["topic"][place].as_py(), known["offset"][place].as_py()
        raise BadInput(
            f"event {offset} of {topic!r} breaks the rule {rule!r} ({where}): {said}; correct its producer, or "
            "say otherwise = 'aside' in the rule"
        )

    def _keys(self, known: Mapping[str, Any], verdicts: Sequence[str]) -> list[bytes | None]:
        """What is the same in duplicates; None for events that are out already."""
        columns: list[list[Any]] = []
        for name in self._silver.unique:
            column = known[name]
            if name == "id":
                columns += [column.field(0).to_pylist(), column.field(1).to_pylist()]
            else:
                columns.append(column.to_pylist())
        encoded = map(_key, zip(*columns, strict=True))
        return [key if verdict == GOOD else None for key, verdict in zip(encoded, verdicts, strict=True)]


def _us_of(times: Any) -> Any:
    """Of an Arrow column, as numpy has them."""
    import pyarrow as pa

    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()


def _level(levels: Sequence[str], number: int) -> str | None:
    return levels[number - 1] if number <= len(levels) else None


def _said(event: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {event[name]!r}" for name in names)[:300]
