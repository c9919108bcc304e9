"""``df.write.format("pluribus")`` and ``writeStream``: rows become events of durable topics, each exactly once.

Theory of operation
-------------------
Tasks may run twice, and a whole micro-batch may: after a crash Spark does the last one again. So nothing that a task
writes is visible. A task *stages* its rows with the keepers, under an attempt with a name of its own, and names it in
its commit message. When all tasks of a batch are done, the driver commits the batch with the attempts that Spark
counted; the keepers make them visible at once and remember the number of the last batch of this *writer*. A batch that
is committed again, because the driver died between the keepers' commit and Spark's, is known and changes nothing.
What nobody commits (a task that lost a race, an executor that died) goes when its lease is over.

``writer`` is the name under which keepers remember: the same for a query and its restarts, another for every query. A
batch write without one is given a name of its own, and is then once, but not across calls.

Rows: ``topic`` (or the option of that name), and the body: a column ``body`` of bytes or text, or all other columns as
the fields of a dictionary. ``headers`` is a map.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..core.errors import BadInput, Unavailable
from ..pubsub.durable.batch import pack
from ..runtime.reader import LogReader
from ..wire.bodies import BYTES, DATA, TEXT, Kind

LEASE_S = 3_600.0
PART_ROWS = 8_192
PART_BYTES = 1 << 20
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells a task which micro-batch it is part of."""
_ENVELOPE = ("topic", "headers", "kind", "body", "offset", "id", "sender", "time", "parent", "reason")
_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged: its attempt, and how many parts it has."""

    attempt: str
    parts: int
    rows: int


class _Writing:
    """What both writers share. Made beside the driver; ``stage`` runs in executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._url = options.get("url", "")
        self._topic = options.get("topic", "")
        self._lease_s = float(options.get("lease", LEASE_S))
        self.writer_name = options.get("writer", "")
        names = schema.names
        if not self._topic and "topic" not in names:
            raise BadInput("rows go to no topic: add a column 'topic', or .option('topic', ...)")
        self._fields = [name for name in names if name not in _ENVELOPE]
        if "body" not in names and not self._fields:
            raise BadInput("rows have no body: add a column 'body', or columns that are its fields")
        self._whole = "body" in names

    def stage(self, batches: Iterator[Any], batch_id: int) -> Staged:
        attempt = uuid.uuid4().hex
        session = uuid.uuid4().int >> 65 or 1
        parts = rows = 0
        with LogReader(self._url) as keepers:
            if keepers.last_batch(self.writer_name) >= batch_id:
                return Staged("", 0, 0)  # committed before: Spark did not hear of it and asks again
            for packed, count in self._packed(batches, session):
                keepers.stage(self.writer_name, batch_id, attempt, parts, packed, self._lease_s)
                parts += 1
                rows += count
        return Staged(attempt, parts, rows)

    def _packed(self, batches: Iterator[Any], session: int) -> Iterator[tuple[bytes, int]]:
        """Rows by topic, in parts of a size that keepers like."""
        first = 1
        for batch in batches:
            for topic, kind, bodies, headers in self._events(batch):
                for low, high in _cuts(bodies):
                    some = bodies[low:high]
                    times = [_now_us()] * len(some)
                    yield pack(topic, session, first, 0, kind, times, some, headers[low:high]), len(some)
                    first += len(some)

    def _events(self, batch: Any) -> Iterator[tuple[str, Kind, Sequence[bytes], Sequence[dict[str, Any] | None]]]:
        import pyarrow.compute as pc

        names = batch.schema.names
        kind, encoder = self._encoder(batch)
        headers = batch.column(names.index("headers")).to_pylist() if "headers" in names else []
        headers = [dict(one) if one else None for one in headers]
        if self._topic:
            yield self._topic, kind, encoder(batch), headers
            return
        topics = batch.column(names.index("topic"))
        if topics.null_count:
            raise BadInput("a row has no topic: fill the column 'topic'")
        # Rows of one topic stay in their order, those of different topics have none between them.
        for topic in pc.unique(topics).to_pylist():
            which = pc.equal(topics, topic)
            some = [one for one, wanted in zip(headers, which.to_pylist(), strict=True) if wanted] if headers else []
            yield topic, kind, encoder(batch.filter(which)), some

    def _encoder(self, batch: Any) -> tuple[Kind, Callable[[Any], Sequence[bytes]]]:
        import pyarrow as pa

        if not self._whole:
            fields = self._fields
            return DATA, lambda rows: [_encode(row) for row in rows.select(fields).to_pylist()]
        kind = batch.schema.field("body").type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return TEXT, lambda rows: [_encode(text) for text in _bodies(rows)]
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return BYTES, _bodies
        raise BadInput(f"the column 'body' is of type {kind}: make it binary or string, or leave it out for fields")

    def publish(self, messages: Sequence[Any], batch_id: int) -> None:
        """Beside the driver: everything that the tasks of a batch staged becomes visible."""
        staged = [message for message in messages if isinstance(message, Staged) and message.parts]
        with LogReader(self._url) as keepers:
            keepers.commit_batch(self.writer_name, batch_id, [(one.attempt, one.parts) for one in staged])

    def drop(self, batch_id: int) -> None:
        try:
            with LogReader(self._url) as keepers:
                keepers.abort_batch(self.writer_name, batch_id)
        except Unavailable:
            pass  # the lease will see to it


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        if not self.writer_name:
            raise BadInput("a stream needs a name under which keepers remember it: .option('writer', NAME)")

    def write(self, iterator: Iterator[Any]) -> Staged:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.getLocalProperty(BATCH_ID) if context is not None else None
        if number is None:
            raise BadInput("this task is of no micro-batch: write with df.writeStream.format('pluribus')")
        return self.stage(iterator, int(number))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is dropped: the batch will be tried again under other attempts, and the lease ends these."""


class BatchWriter(_Writing, DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        named = bool(self.writer_name)
        self.writer_name = self.writer_name or f"batch-{uuid.uuid4().hex}"
        self._batch = 0
        if named:
            with LogReader(self._url) as keepers:
                self._batch = keepers.last_batch(self.writer_name) + 1

    def write(self, iterator: Iterator[Any]) -> Staged:
        return self.stage(iterator, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.drop(self._batch)


def _bodies(rows: Any) -> list[Any]:
    column = rows.column(rows.schema.names.index("body"))
    if column.null_count:
        raise BadInput("a row has no body: leave such rows out")
    found: list[Any] = column.to_pylist()
    return found


def _cuts(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    low = size = 0
    for at, body in enumerate(bodies):
        if at > low and (at - low >= PART_ROWS or size + len(body) > PART_BYTES):
            yield low, at
            low, size = at, 0
        size += len(body)
    if low < len(bodies):
        yield low, len(bodies)


def _now_us() -> int:
    return int(time.time() * 1e6)
