"""``df.write.format("pluribus")`` and ``writeStream``: rows become events of durable topics, each exactly once.

Theory of operation
-------------------
Tasks may run twice, and a whole micro-batch may: after a crash Spark does the
last one again. So rows that a task writes are not visible yet. A task *stages* its rows with the keepers, under an
attempt with a name of its own, and names it in its commit message. When all tasks of a batch are done, the driver
commits the batch with the attempts that Spark counted; the keepers make them visible at once and remember the number of
the last batch of this *writer*. A batch that is committed again, because the driver died between the keepers' commit
and Spark's, is known and changes nothing. Rows that are never committed (of a task that lost a race, of an executor
that died) are dropped when their lease is over.

``writer`` is the name under which keepers remember: the same for a query and its restarts, another for every query.
Numbers of micro-batches mean something only within one checkpoint, whose identity is Spark's id of the query. Tasks
learn it from their local properties and hand it on with their messages; a batch always has a task, and so a message.
Keepers refuse a second query under a writer's name, unless the option ``foreign`` is ``begin``.

**Several logs.** Where ``url`` names the keepers of several logs, a topic belongs to one of them: the one that its name
hashes to, among the logs in the order of the option. A task stages its rows with the keepers of each, and the driver
commits log after log. Each log makes its part of the batch visible at once and remembers the batch for itself; between
logs there is a moment in which some have it and others do not yet. A driver that dies in that moment does the batch
again: the logs that have it say so and change nothing, the others get it. That is exactly once as long as the repeated
batch has the same rows, as Spark promises for deterministic queries.

A write of a table is numbered by the option ``batch``, which makes it once across calls: ``foreachBatch`` that is done
again writes nothing. Without it, a named writer counts its writes itself. A write without a name is given one of its
own, and is then once, but not across calls.

Rows: a column that has a name and a type of the envelope is of the envelope: ``topic`` (or the option of that name),
``id``, ``sender``, ``time``, ``parent``, ``headers``; where it is null, or not there, the event gets its own.
``offset`` is left out, because the log gives it. The body is a column ``body`` of bytes or text, with its ``kind``
beside it if it is neither; or all other columns are the fields of a dictionary. So a table that was read can be written
as it is. A table with the one column ``packed`` is of packed batches, which name their topics and go out as they are.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, groupby, pairwise
from typing import Any, Protocol
from zlib import crc32

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from ..core.errors import BadInput, Unavailable
from ..core.ids import MessageId
from ..pubsub.durable.batch import head_of, pack, pack_columns, topic_of
from ..pubsub.durable.commands import Stage
from ..pubsub.durable.stages import KEEP_WRITER_S
from ..runtime.clients.log_client import LogClient
from ..wire.bodies import BYTES, DATA, TEXT, Kind
from .columns import PACKED, kind_of_name, told_fields
from .options import Settings

LEASE_S = 3_600.0
PART_ROWS = 16_384
PART_BYTES = 2 << 20
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells a task which micro-batch it is part of."""
QUERY_ID = "sql.streaming.queryId"
"""Where Spark tells a task of which query: the same as long as the checkpoint is."""
FOREIGN = ("fail", "begin")
_object = msgspec.msgpack.Decoder(msgspec.Raw).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged: its attempt, and how many parts it has with the keepers of each log, in the order of the
    URLs; and the query that it is a task of."""

    attempt: str
    parts: list[int]
    query: str = ""


class _Writing:
    """The common part of both writers. Made beside the driver; ``stage`` runs in executors."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        options = settings.given
        self._settings = settings
        self._logs = max(len(settings.urls), 1)
        self._topic = options.get("topic", "")
        self._lease_s = _seconds(options.get("lease", str(LEASE_S)))
        self.writer_name = options.get("writer", "")
        foreign = options.get("foreign", FOREIGN[0])
        if foreign not in FOREIGN:
            raise BadInput(f"option foreign={foreign!r} is none of {', '.join(FOREIGN)}: choose one of them")
        self._anew = foreign == "begin"
        self._keep_s = KEEP_WRITER_S
        # With a topic it would be a field like any other; without one, nothing else can be meant.
        self._packed = schema.names == [PACKED] and schema[PACKED].dataType == BinaryType() and not self._topic
        if self._packed:
            return
        self._whole = "body" in schema.names
        self._envelope = frozenset(name for name in schema.names if _of_envelope(name, schema[name].dataType))
        if not self._whole:
            self._envelope -= {"kind"}
        if not self._topic and "topic" not in self._envelope:
            raise BadInput("rows go to no topic: add a column 'topic' of strings, or .option('topic', ...)")
        self._fields = [name for name in schema.names if name not in self._envelope and name != "body"]
        if not self._whole and not self._fields:
            raise BadInput("rows have no body: add a column 'body', or columns that are its fields")
        if self._whole and self._fields:
            raise BadInput(
                f"rows have a column 'body', and the column {self._fields[0]!r} that is neither in it nor in the "
                "envelope: drop one of both"
            )

    def stage(self, batches: Iterator[Any], batch_id: int, query: str) -> Staged:
        staged = Staged(uuid.uuid4().hex, [0] * self._logs, query)
        with ExitStack() as stack:
            # A log that has the batch already was committed before: Spark did not hear of it and asks again.
            due: dict[int, LogClient] = {}
            for number in range(self._logs):
                keepers = stack.enter_context(self._settings.keepers(number))
                if keepers.last_batch(self.writer_name, query=query) < batch_id:
                    due[number] = keepers
            if len(due) == 1 == self._logs:
                due[0].do_in_turn(self._stages(batches, batch_id, staged, 0))
            elif due:
                for batch in batches:
                    for number, keepers in due.items():
                        keepers.do_in_turn(self._stages([batch], batch_id, staged, number))
        return staged

    def _stages(self, batches: Iterable[Any], batch_id: int, staged: Staged, log: int) -> Iterator[Stage]:
        """Rows of topics of one log; counts in ``staged`` what it gives."""
        lease_us = int(self._lease_s * 1e6)
        for packed in self._as_they_are(batches, log) if self._packed else self._made(batches, log):
            where = (self.writer_name, batch_id, staged.attempt, staged.parts[log])
            yield Stage(*where, _now_us(), lease_us, packed, staged.query, self._anew)
            staged.parts[log] += 1

    def _as_they_are(self, batches: Iterable[Any], log: int) -> Iterator[bytes]:
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                if packed is None:
                    raise BadInput("a row has no packed batch: leave such rows out")
                if self._logs == 1 or log_of(topic_of(packed, head_of(packed)).decode(), self._logs) == log:
                    yield packed

    def _made(self, batches: Iterable[Any], log: int) -> Iterator[bytes]:
        session, rows = uuid.uuid4().int >> 65 or 1, 0
        for some in (one for batch in batches for topic_rows in self._by_topic(batch, log) for one in _cut(topic_rows)):
            yield some.packed(session, rows + 1, _now_us())
            rows += some.count

    def _by_topic(self, batch: Any, log: int) -> Iterator[Bodies]:
        import numpy as np
        import pyarrow.compute as pc

        if self._topic:
            if log_of(self._topic, self._logs) == log:
                for bodies in self._encoded(batch):
                    yield bodies.cut(0, bodies.count, self._topic)
            return
        topics = batch.column(batch.schema.names.index("topic"))
        if topics.null_count:
            raise BadInput("a row has no topic: fill the column 'topic'")
        coded = topics if hasattr(topics, "indices") else pc.dictionary_encode(topics)
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        if len(names) > 1:
            # Rows of one topic stay in their order, those of different topics have none between them.
            order = np.argsort(codes, kind="stable")
            batch, codes = batch.take(order), codes[order]
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)] if len(codes) else [0]
        runs = [(names[codes[low]], low, high) for low, high in pairwise(starts)]
        wanted = [run for run in runs if log_of(run[0], self._logs) == log]
        if len(wanted) == len(runs):
            yield from _of_topics(self._encoded(batch), runs)
            return
        for name, low, high in wanted:
            for bodies in self._encoded(batch.slice(low, high - low)):
                yield bodies.cut(0, bodies.count, name)

    def _encoded(self, rows: Any) -> Iterator[Bodies]:
        """All rows, whatever their topics, in their order."""
        import pyarrow as pa

        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        given = Given.of({name: columns[name] for name in self._envelope})
        if not self._whole:
            values = [columns[name].to_pylist(maps_as_pydicts="strict") for name in self._fields]
            yield Listed("", DATA, list(map(_encode, map(_row(tuple(self._fields)), *values))), given)
            return
        column = columns["body"]
        if column.null_count:
            raise BadInput("a row has no body: leave such rows out")
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            if "kind" in columns and set(columns["kind"].to_pylist()) - {None, "text"}:
                raise BadInput("the column 'body' is of strings, and 'kind' says otherwise: drop the column 'kind'")
            yield Listed("", TEXT, list(map(_encode, column.to_pylist())), given)
        elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise BadInput(f"the column 'body' is of type {kind}: make it binary or string, or leave it out for fields")
        elif pa.types.is_binary(kind) and self._envelope <= {"topic", "offset"}:
            yield Columnar.of(column)
        else:
            yield from _by_kind(Listed("", BYTES, column.to_pylist(), given), columns.get("kind"))

    def publish(self, messages: Sequence[Any], batch_id: int) -> None:
        """Beside the driver: everything that the tasks of a batch staged becomes visible, log after log."""
        staged = [message for message in messages if isinstance(message, Staged)]
        for number in range(self._logs):
            attempts = [(one.attempt, one.parts[number]) for one in staged if one.parts[number]]
            with self._settings.keepers(number) as keepers:
                keepers.commit_batch(
                    self.writer_name, batch_id, attempts, query=_query(staged), anew=self._anew, keep=self._keep_s
                )

    def drop(self, messages: Sequence[Any], batch_id: int) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        try:
            for number in range(self._logs):
                with self._settings.keepers(number) as keepers:
                    keepers.abort_batch(self.writer_name, batch_id, query=_query(staged))
        except Unavailable:
            pass  # the lease will see to it


def log_of(topic: str, logs: int) -> int:
    """Which of several logs a topic is written to. It is part of what a deployment means: keep number and order of the
    logs, or what a topic gets from then on stands in another log."""
    return crc32(topic.encode()) % logs if logs > 1 else 0


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(settings, schema)
        if not self.writer_name:
            raise BadInput("a stream needs a name under which keepers remember it: .option('writer', NAME)")

    def write(self, iterator: Iterator[Any]) -> Staged:
        number = _told(BATCH_ID)
        if not number:
            raise BadInput("this task is of no micro-batch: write with df.writeStream.format('pluribus')")
        return self.stage(iterator, int(number), _told(QUERY_ID))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is dropped: the batch will be tried again under other attempts, and the lease ends these."""


class BatchWriter(_Writing, DataSourceArrowWriter):
    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(settings, schema)
        number = settings.given.get("batch", "")
        if number and not number.isdigit():
            raise BadInput(f"option batch={number!r} is no number: give that of the batch, 0 or more")
        if number and not self.writer_name:
            raise BadInput(f"option batch={number} is a number of no writer: name it with .option('writer', NAME)")
        self._numbered = bool(number)
        self._batch = int(number or 0)
        if not self.writer_name:
            self.writer_name, self._keep_s = f"batch-{uuid.uuid4().hex}", self._lease_s  # no task will use it again
        elif not number:
            for log in range(self._logs):
                with self._settings.keepers(log) as keepers:
                    self._batch = max(self._batch, keepers.last_batch(self.writer_name) + 1)

    def write(self, iterator: Iterator[Any]) -> Staged:
        # Who counts its writes itself has one count for all queries.
        return self.stage(iterator, self._batch, _told(QUERY_ID) if self._numbered else "")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.drop(messages, self._batch)


class Bodies(Protocol):
    """Bodies of one topic, or of rows whose topics are not told yet; to be cut into parts and packed."""

    @property
    def count(self) -> int: ...

    def fitting(self, low: int) -> int:
        """How many from ``low`` on make a part of a size that keepers like; one at least."""
        ...

    def cut(self, low: int, high: int, topic: str | None = None) -> Bodies:
        """Some of them; of another topic, if one is given."""
        ...

    def packed(self, session: int, first: int, now_us: int) -> bytes: ...


@dataclass(frozen=True)
class Given:
    """The envelopes of events, as rows give them. A column without any value is empty."""

    headers: Sequence[dict[str, Any] | None] = ()
    parents: Sequence[MessageId | None] = ()
    times: Sequence[int | None] = ()
    """Microseconds since 1970."""
    ids: Sequence[MessageId | None] = ()
    senders: Sequence[int | None] = ()

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Given:
        import pyarrow as pa

        headers, times = columns.get("headers"), columns.get("time")
        return cls(
            () if headers is None or _empty(headers) else _maps(headers),
            _pairs(columns.get("parent")),
            () if times is None else times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist(),
            _pairs(columns.get("id")),
            columns["sender"].to_pylist() if "sender" in columns else (),
        )

    def cut(self, low: int, high: int) -> Given:
        times, ids, senders = self.times[low:high], self.ids[low:high], self.senders[low:high]
        return Given(self.headers[low:high], self.parents[low:high], times, ids, senders)


@dataclass(frozen=True)
class Listed:
    """Bodies that were encoded one by one."""

    topic: str
    kind: Kind
    bodies: Sequence[bytes]
    given: Given

    @property
    def count(self) -> int:
        return len(self.bodies)

    def fitting(self, low: int) -> int:
        some = self.bodies[low : low + PART_ROWS]
        return max(sum(1 for size in accumulate(map(len, some)) if size <= PART_BYTES), 1)

    def cut(self, low: int, high: int, topic: str | None = None) -> Listed:
        bodies, given = self.bodies[low:high], self.given.cut(low, high)
        return Listed(self.topic if topic is None else topic, self.kind, bodies, given)

    def packed(self, session: int, first: int, now_us: int) -> bytes:
        given, count = self.given, self.count
        times = [now_us if time is None else time for time in given.times] or now_us
        senders = [sender or 0 for sender in given.senders] or [0]
        ids = [(session, first + place) if id is None else id for place, id in enumerate(given.ids)]
        if ids and ids[0][1] > 0 and ids == [(ids[0][0], ids[0][1] + place) for place in range(count)]:
            (session, first), ids = ids[0], []  # as they are in most copies: the head says it all
        several = senders if senders.count(senders[0]) != len(senders) else ()
        extra = (given.headers, given.parents, None, ids, several)
        return pack(self.topic, session, first, senders[0], self.kind, times, self.bodies, *extra)


@dataclass(frozen=True)
class Columnar:
    """Bytes as Arrow has them: ``ends``, one more than bodies, say where each lies in ``data``. Nobody looks at one."""

    topic: str
    ends: Any
    data: Any

    @classmethod
    def of(cls, column: Any) -> Columnar:
        import numpy as np

        _, ends, data = column.buffers()
        if data is None:  # all of them empty
            return cls("", np.zeros(len(column) + 1, "<i4"), memoryview(b""))
        return cls("", np.frombuffer(ends, "<i4", len(column) + 1, 4 * column.offset), memoryview(data))

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    def fitting(self, low: int) -> int:
        most = int(self.ends.searchsorted(self.ends[low] + PART_BYTES, "right")) - 1
        return max(min(most, low + PART_ROWS, self.count) - low, 1)

    def cut(self, low: int, high: int, topic: str | None = None) -> Columnar:
        return Columnar(self.topic if topic is None else topic, self.ends[low : high + 1], self.data)

    def packed(self, session: int, first: int, now_us: int) -> bytes:
        ends, bodies = self.ends - self.ends[0], self.data[int(self.ends[0]) : int(self.ends[-1])]
        return pack_columns(self.topic, session, first, 0, BYTES, now_us, ends.astype("<i4").tobytes(), bodies)


def _of_envelope(name: str, kind: DataType) -> bool:
    told = _envelope_types().get(name)
    if name == "headers":
        return isinstance(kind, MapType) and isinstance(kind.keyType, StringType)
    return told is not None and kind.simpleString() == told.simpleString()


@cache
def _envelope_types() -> dict[str, DataType]:
    return {name: kind for name, kind in told_fields().items() if name not in ("body", "reason")}


def _maps(column: Any) -> Sequence[dict[str, Any] | None]:
    return [one or None for one in column.to_pylist(maps_as_pydicts="strict")]


def _empty(column: Any) -> bool:
    """True if there is no such column, or no value in it."""
    return column is None or column.null_count == len(column)


def _pairs(column: Any) -> Sequence[MessageId | None]:
    """Of a column of sessions and numbers."""
    if _empty(column):
        return ()
    fields = zip(column.field("session").to_pylist(), column.field("number").to_pylist(), strict=True)
    there = column.is_valid().to_pylist()
    return [None if not is_one or None in pair else pair for pair, is_one in zip(fields, there, strict=True)]


def _by_kind(rows: Listed, kinds: Any) -> Iterator[Listed]:
    """Runs of rows whose bodies are encoded alike. What is said to be an object must be one: others decode it."""
    low = 0
    for name, run in groupby([None] * rows.count if kinds is None else kinds.to_pylist()):
        high = low + len(list(run))
        some = rows.cut(low, high)
        kind = BYTES if name is None else kind_of_name(name)
        if kind != BYTES:
            try:
                for body in some.bodies:
                    _object(body)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise BadInput(
                    f"a row of kind {name!r} has a body that is none ({error}): write it as kind 'bytes'"
                ) from None
        yield Listed(some.topic, kind, some.bodies, some.given)
        low = high


def _of_topics(encoded: Iterator[Bodies], runs: Sequence[tuple[str, int, int]]) -> Iterator[Bodies]:
    """What was encoded together, by topic. ``runs`` are the rows of each, one after another."""
    at = place = 0
    for bodies in encoded:
        end = at + bodies.count
        while place < len(runs) and runs[place][1] < end:
            name, low, high = runs[place]
            yield bodies.cut(max(low, at) - at, min(high, end) - at, name)
            if high > end:
                break
            place += 1
        at = end


def _cut(bodies: Bodies) -> Iterator[Bodies]:
    low = 0
    while low < bodies.count:
        high = low + bodies.fitting(low)
        yield bodies.cut(low, high)
        low = high


@cache
def _row(names: tuple[str, ...]) -> Callable[..., Any]:
    """Makes of the values of a row what is encoded as a dictionary of these names."""
    fields = [(f"f{number}", Any) for number in range(len(names))]
    renamed = {field: name for (field, _), name in zip(fields, names, strict=True)}
    row: Callable[..., Any] = msgspec.defstruct("Row", fields, rename=renamed, gc=False)
    return row


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise BadInput(f"option lease={text!r} is no time: give seconds, more than 0")
    return seconds


def _told(property: str) -> str:
    """What Spark tells a task of the query that it is part of; empty if it is part of none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty(property) or "") if context is not None else ""


def _query(staged: Sequence[Staged]) -> str:
    """All tasks of a batch are of one query."""
    return next((message.query for message in staged), "")


def _now_us() -> int:
    return int(time.time() * 1e6)
