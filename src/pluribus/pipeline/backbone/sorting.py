"""Raw events sorted in executors, by packed batches: judged, tallied, and copied as clean or dead ones.

A micro-batch of the intake is a table with a row for each packed batch. No row is made for an event: verdicts are
bytes beside the batch, counts are added up where the verdicts are found, and copies are cut from the columns of the
batch (``pubsub/durable/copies.py``). Only keys, by which duplicates are told, are handed to Spark one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...pubsub.durable.batch import StoredBatch
from ...pubsub.durable.copies import EVENTS_MOST, Opened, Stretch, copies, runs
from ...wire.bodies import BYTES, Kind
from ..columns import PACKED, arrow_schema, name_of_kind, packed_fields
from ..tables import unpacked
from .parts import BODY, Silver
from .verdicts import DEAD, DUPLICATE, GOOD, NEVER_US, VERDICTS, Bench, Judged

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EVENTS_A_LOOK = 10_000
"""Events that are judged together, about."""
BYTES_A_YIELD = 4 << 20
DAY_US = 86_400_000_000
CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}
Again = Mapping[str, Sequence[int]]
"""The offsets of duplicates, by topic."""
Tally = tuple[str, str, str, str, str | None, int, int, int, int]
TALLY = ("table", "topic", "day", "verdict", "rule", "rows", "least", "most", "newest")
"""Events of a topic with the same day, verdict and rule: how many, their least and greatest offset, the latest time."""

_encode = msgspec.msgpack.Encoder().encode
_broken = msgspec.msgpack.Decoder(dict[int, tuple[str, str]])
_tallies = msgspec.msgpack.Decoder(list[Tally])


def sorted_fields() -> StructType:
    """A packed batch, the verdict on each event (one byte each), the rules that were broken, and, of good events with a
    key, keys, offsets and times; or, in rows of their own, tallies."""
    from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType

    found = StructType([*packed_fields().fields]).add("table", StringType())
    found = found.add("verdicts", BinaryType()).add("broken", BinaryType())
    found = found.add("keys", ArrayType(BinaryType()))
    return found.add("offsets", ArrayType(LongType())).add("times", ArrayType(LongType())).add("tallies", BinaryType())


class Sorter(NamedTuple):
    """Judges packed batches. Rows have ``table`` beside them."""

    tables: tuple[Silver, ...]
    watermarks_us: Mapping[str, int]
    now_s: float
    """``NOW()`` in rules. One moment for the whole micro-batch, because a task that is done again judges as before."""

    def sort(self, batches: Iterator[Any]) -> Iterator[Any]:
        held: dict[str, list[StoredBatch]] = {}
        counts: dict[str, int] = {}
        benches: dict[str, Bench] = {}
        tallies: list[Tally] = []
        for rows in batches:
            tables = rows.column(rows.schema.names.index("table")).to_pylist()
            for table, batch in zip(tables, unpacked(rows), strict=True):
                held.setdefault(table, []).append(batch)
                counts[table] = counts.get(table, 0) + len(batch)
                if counts[table] >= EVENTS_A_LOOK:
                    yield self._sorted(benches, table, held.pop(table), tallies)
                    counts[table] = 0
        for table, some in held.items():
            yield self._sorted(benches, table, some, tallies)
        if tallies:
            yield _rows([{"tallies": _encode(tallies)}], sorted_fields())

    def _sorted(self, benches: dict[str, Bench], table: str, batches: list[StoredBatch], tallies: list[Tally]) -> Any:
        import numpy as np

        if table not in benches:
            silver = next(one for one in self.tables if one.name == table)
            benches[table] = Bench(silver, self.watermarks_us.get(table, NEVER_US), self.now_s)
        judged = benches[table].judge_packed(batches)
        codes = np.fromiter(map(CODES.__getitem__, judged.verdicts), "u1", len(judged.verdicts))
        rules = {place: rule for place, (rule, _) in judged.broken.items()}
        tallies += tallied(table, batches, judged.offsets, judged.times_us, codes, rules)
        bounds = [*accumulate(map(len, batches), initial=0)]
        broken = _parted(judged.broken, bounds)
        found = []
        for number, (batch, (low, high)) in enumerate(zip(batches, pairwise(bounds), strict=True)):
            row = {"topic": batch.topic, "offset": batch.offset, PACKED: batch.data, "table": table}
            row["verdicts"] = codes[low:high].tobytes()
            row["broken"] = _encode(broken[number]) if number in broken else None
            if judged.keys is not None:
                row |= _keyed(judged, low, high)
            found.append(row)
        return _rows(found, sorted_fields())


def _parted(broken: Mapping[int, tuple[str, str]], bounds: Sequence[int]) -> dict[int, dict[int, tuple[str, str]]]:
    """By batch, with places within it."""
    from bisect import bisect_right

    found: dict[int, dict[int, tuple[str, str]]] = {}
    for place, told in broken.items():
        number = bisect_right(bounds, place) - 1
        found.setdefault(number, {})[place - bounds[number]] = told
    return found


def _keyed(judged: Judged, low: int, high: int) -> dict[str, Any]:
    import numpy as np

    assert judged.keys is not None
    keys = judged.keys[low:high]
    good = np.fromiter((key is not None for key in keys), bool, high - low)
    return {
        "keys": [key for key in keys if key is not None],
        "offsets": judged.offsets[low:high][good],
        "times": judged.times_us[low:high][good],
    }


def _rows(rows: Sequence[Mapping[str, Any]], schema: StructType) -> Any:
    import pyarrow as pa

    told = arrow_schema(schema)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in told]
    return pa.RecordBatch.from_arrays(columns, schema=told)


def tallied(
    table: str, batches: Sequence[StoredBatch], offsets: Any, times_us: Any, codes: Any, rules: Mapping[int, str]
) -> list[Tally]:
    """Events of packed batches, one after another, counted. ``rules`` by place."""
    import numpy as np

    topics: dict[str, int] = {}
    numbers = [topics.setdefault(batch.topic, len(topics)) for batch in batches]
    names: dict[str, int] = {}
    of_rule = np.zeros(len(codes), "i8")
    for place, rule in rules.items():
        of_rule[place] = names.setdefault(rule, len(names) + 1)
    days = times_us // DAY_US
    first = int(days.min())
    spread = int(days.max()) - first + 1
    key = np.repeat(np.array(numbers, "i8"), [len(batch) for batch in batches])
    key = ((key * spread + (days - first)) * len(CODES) + codes) * (len(names) + 1) + of_rule
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
    counts = np.diff(np.append(starts, len(key))).tolist()
    least = np.minimum.reduceat(offsets[order], starts).tolist()
    most = np.maximum.reduceat(offsets[order], starts).tolist()
    newest = np.maximum.reduceat(times_us[order], starts).tolist()
    listed, ruled = [*topics], [None, *names]
    found: list[Tally] = []
    for number, value in enumerate(key[order[starts]].tolist()):
        value, rule = divmod(value, len(names) + 1)
        value, code = divmod(value, len(CODES))
        topic, day = divmod(value, spread)
        told = (table, listed[topic], str(np.datetime64(first + day, "D")), VERDICTS[code], ruled[rule])
        found.append((*told, counts[number], least[number], most[number], newest[number]))
    return found


def counted(told: Sequence[bytes]) -> list[dict[str, Any]]:
    """Tallies of tasks, beside the driver."""
    return [dict(zip(TALLY, one, strict=True)) for some in told for one in _tallies.decode(some)]


class _Sorted(NamedTuple):
    """A row of ``sorted_fields``, where duplicates are known."""

    table: str
    batch: StoredBatch
    codes: Any
    broken: dict[int, tuple[str, str]]


def _of_rows(rows: Any, again: Again) -> Iterator[_Sorted]:
    import numpy as np

    names = rows.schema.names
    tables, verdicts, broken = (rows.column(names.index(name)).to_pylist() for name in ("table", "verdicts", "broken"))
    for table, batch, codes, wrong in zip(tables, unpacked(rows), verdicts, broken, strict=True):
        found = np.frombuffer(codes, "u1")
        if offsets := again.get(batch.topic):
            found = np.where(np.isin(batch.offsets, offsets), np.uint8(CODES[DUPLICATE]), found)
        yield _Sorted(table, batch, found, _broken.decode(wrong) if wrong else {})


class Tallier(NamedTuple):
    """Counts again, when duplicates are known."""

    again: Again

    def tally(self, batches: Iterator[Any]) -> Iterator[Any]:
        tallies: list[Tally] = []
        for rows in batches:
            for table, batch, codes, broken in _of_rows(rows, self.again):
                rules = {place: rule for place, (rule, _) in broken.items()}
                tallies += tallied(table, [batch], batch.offsets, batch.times, codes, rules)
        if tallies:
            yield _rows([{"tallies": _encode(tallies)}], tally_fields())


def tally_fields() -> StructType:
    from pyspark.sql.types import BinaryType, StructType

    return StructType().add("tallies", BinaryType())


def copy_fields() -> StructType:
    from pyspark.sql.types import BinaryType, StructType

    return StructType().add(PACKED, BinaryType())


class Copier(NamedTuple):
    """Copies good events to topics behind ``clean``, and dead ones, with table, rule and reason in their headers, to
    topics behind ``dead``."""

    clean: str
    dead: str
    again: Again

    def copy(self, batches: Iterator[Any]) -> Iterator[Any]:
        held: dict[str, list[Stretch]] = {}
        counts: dict[str, int] = {}
        made: list[bytes] = []
        for rows in batches:
            for one in _of_rows(rows, self.again):
                topic = one.batch.topic
                for target, some in (
                    (self.clean + topic, runs(one.batch, one.codes == CODES[GOOD])),
                    (self.dead + topic, _dead(one)),
                ):
                    for run in some:
                        held.setdefault(target, []).append(run)
                        counts[target] = counts.get(target, 0) + run.events
                    if counts.get(target, 0) >= EVENTS_MOST:
                        made += copies(target, held.pop(target))
                        counts[target] = 0
                        if sum(map(len, made)) >= BYTES_A_YIELD:
                            yield _rows([{PACKED: copy} for copy in made], copy_fields())
                            made = []
        for target, waiting in held.items():
            made += copies(target, waiting)
        if made:
            yield _rows([{PACKED: copy} for copy in made], copy_fields())


def _dead(one: _Sorted) -> Iterator[Stretch]:
    """A run for each: there are few, and each has headers of its own."""
    import numpy as np

    places = np.flatnonzero(one.codes == CODES[DEAD]).tolist()
    if not places:
        return
    opened, offsets = Opened(one.batch), one.batch.offsets.tolist()
    kind = name_of_kind(opened.kind)
    for place in places:
        rule, reason = one.broken[place]
        told = {"table": one.table, "rule": rule, "reason": reason, "offset": str(offsets[place]), "kind": kind}
        headers = opened.extra.headers[place] if opened.extra.headers else None
        # An event that is sent round again may come back with headers of these names.
        others = {name: str(value) for name, value in (headers or {}).items() if name not in told}
        # A body that does not decode cannot be written as anything but bytes.
        as_told: Kind | None = BYTES if rule == BODY else None
        yield Stretch(opened, place, place + 1, ({**others, **told},), as_told)
