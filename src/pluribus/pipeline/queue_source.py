"""``spark.read.format("pluribus").option("queue", NAME)`` looks at a queue; ``readStream`` takes from it.

A micro-batch of a stream is a prepared transaction that received its messages (``docs/transactions.md``): it is kept
through any crash, and no other consumer gets its messages, until it is decided. Its number is made of the option
``reader``, the queue, and the number of the micro-batch, so every planning or replay of that batch finds the same
messages.

========================  ==========================================================================================
what Spark does           what happens on the bus
========================  ==========================================================================================
plans a micro-batch       messages are received and the transaction is prepared; if it was before, nothing
reads it, once or again   the messages that are kept for the transaction are read where they are in the log
asks for the next one     the batch before is in Spark's own log of commits: its transaction is committed
========================  ==========================================================================================

A driver that dies between planning and writing its offset plans the same batch again. A new checkpoint under the name
of a reader begins with the batch that is open, if there is one.

Planning and settling run beside the driver, ``read`` in executors; each opens a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..core.errors import BadInput, TransactionEnded
from .columns import arrow_schema

ROWS = 1_000
"""Messages of a micro-batch, unless ``rows`` says otherwise."""
ROWS_MAX = 10_000
AT_ONCE = 64
ROWS_A_BATCH = 1_000
NUMBER_BITS = 28
"""Of the number of a micro-batch in that of its transaction; the bits above are those of its reader."""
READER_BITS = 34
TIMEOUT_S = 120.0
"""Of a transaction until it is prepared."""

T = TypeVar("T")


def message_fields() -> StructType:
    return StructType(
        [
            StructField("queue", StringType()),
            StructField("number", LongType()),
            StructField("id", StringType()),
            StructField("key", StringType()),
            StructField("priority", IntegerType()),
            StructField("deliveries", IntegerType()),
            StructField("properties", MapType(StringType(), StringType())),
            StructField("sent", TimestampType()),
            StructField("state", StringType()),
            StructField("reason", StringType()),
        ]
    )


class Messages(InputPartition):
    """Of one queue: these, or all that are there."""

    def __init__(self, things: Sequence[int] | None = None) -> None:
        self.things = things


class _Reading:
    """What batches and streams have in common. Picklable."""

    def __init__(self, url: str, queue: str, where: str, schema: StructType, dead: bool = False) -> None:
        self._url = url
        self._queue = queue
        self._where = where or None
        self._schema = schema
        self._dead = dead

    def _on_bus(self, work: Callable[[Any, Any], Awaitable[T]]) -> T:
        from ..runtime.bus import connect

        async def done() -> T:
            async with connect(self._url, name="spark") as bus:
                return await work(bus, await bus.queue(self._queue))

        return asyncio.run(done())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: rows as Arrow record batches."""
        import pyarrow as pa

        assert isinstance(partition, Messages)

        async def found(_: Any, queue: Any) -> list[dict[str, Any]]:
            if partition.things is not None:
                return [self._row(one) for one in await queue.kept(partition.things)]
            return [self._row(one) async for one in queue.browse(self._where, dead=self._dead)]

        rows = self._on_bus(found)
        wanted = arrow_schema(self._schema)
        for at in range(0, len(rows), ROWS_A_BATCH):
            yield pa.RecordBatch.from_pylist(rows[at : at + ROWS_A_BATCH], schema=wanted)

    def _row(self, message: Any) -> dict[str, Any]:
        plain = msgspec.to_builtins(message.body, builtin_types=(bytes,))
        found = {
            "queue": self._queue,
            "number": message.number,
            "id": message.id,
            "key": message.key,
            "priority": message.priority,
            "deliveries": message.deliveries,
            "properties": [(name, _text(value)) for name, value in message.properties.items()],
            "sent": datetime.fromtimestamp(message.sent, UTC),
            "state": getattr(message, "state", "held"),
            "reason": getattr(message, "reason", ""),
            "body": _text(plain).encode() if not isinstance(plain, bytes) else plain,
        }
        fields = plain if isinstance(plain, dict) else {}
        return {name: found[name] if name in found else fields.get(name) for name in self._schema.names}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


class QueueReader(_Reading, DataSourceReader):
    """Reads without taking messages. One task reads the whole queue."""

    def partitions(self) -> Sequence[InputPartition]:
        return [Messages()]


class QueueStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver, one for as long as the query runs."""

    def __init__(
        self, url: str, queue: str, where: str, schema: StructType, reader: str, rows: int | None = None
    ) -> None:
        super().__init__(url, queue, where, schema)
        if not reader:
            raise BadInput("option 'reader' is missing: name the query that takes from the queue, one name a query")
        if rows is not None and rows > ROWS_MAX:
            raise BadInput(f"option rows={rows}: a micro-batch takes at most {ROWS_MAX:,} messages of a queue")
        self._reader = reader
        self._rows = rows or ROWS
        self._left: int | None = None
        """With the trigger ``availableNow``: messages that were there when it began."""

    def initialOffset(self) -> dict[str, int]:
        async def asked(bus: Any, _: Any) -> dict[str, int]:
            numbers = await open_batches(bus, self._queue, self._reader)
            return {"batch": numbers[0] - 1 if numbers else secrets.randbits(NUMBER_BITS - 1)}

        return self._on_bus(asked)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Settle the finished batch, and take the next one."""
        rows = self._rows if isinstance(limit, ReadAllAvailable) else min(getattr(limit, "max_rows", ROWS), ROWS_MAX)

        async def planned(bus: Any, queue: Any) -> dict[str, int]:
            await self._settled(bus, start["batch"])
            number = start["batch"] + 1
            id = transaction_id(self._queue, self._reader, number)
            state = await bus.transaction_state(id)
            if state == "prepared":
                return {"batch": number}
            if state in ("committed", "aborted"):
                raise TransactionEnded(
                    f"batch {number} of the reader {self._reader!r} is {state}: this checkpoint is older than what was "
                    "done; go on with the newest one, or begin one under another name of a reader"
                )
            most = rows if self._left is None else min(rows, self._left)
            taken = await self._take(bus, queue, id, most)
            if self._left is not None:
                self._left -= taken
            return {"batch": number} if taken else start

        return self._on_bus(planned)

    async def _take(self, bus: Any, queue: Any, id: int, most: int) -> int:
        """Receive messages in the transaction of that number, and prepare it."""
        tx = bus.transaction(timeout=TIMEOUT_S)
        tx.id = id
        taken = 0
        async with tx:
            while taken < most:
                wanted = min(AT_ONCE, most - taken)
                found = await asyncio.gather(*(tx.receive(queue, self._where, timeout=0) for _ in range(wanted)))
                taken += sum(one is not None for one in found)
                if any(one is None for one in found):
                    break
            if taken:
                await tx.prepare()
            else:
                await tx.leave()
        return taken

    async def _settled(self, bus: Any, number: int) -> None:
        id = transaction_id(self._queue, self._reader, number)
        if await bus.transaction_state(id) in ("prepared", "aborted"):
            await bus.resolve_transaction(id, commit=True)

    def prepareForTriggerAvailableNow(self) -> None:
        async def counted(_: Any, queue: Any) -> int:
            return int((await queue.stats()).state.ready)

        self._left = self._on_bus(counted)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        id = transaction_id(self._queue, self._reader, end["batch"])

        async def asked(bus: Any, queue: Any) -> list[int]:
            held: list[int] = await queue.held_by(id)
            if not held and await bus.transaction_state(id) != "committed":
                raise TransactionEnded(
                    f"batch {end['batch']} of the reader {self._reader!r} was given back, and its messages may have "
                    "gone to others: begin with a new checkpoint"
                )
            return held

        return [Messages(self._on_bus(asked))]

    def commit(self, end: dict[str, int]) -> None:
        self._on_bus(lambda bus, _: self._settled(bus, end["batch"]))

    def stop(self) -> None:
        """Nothing is open between calls."""


def transaction_id(queue: str, reader: str, number: int) -> int:
    return _prefix(queue, reader) << NUMBER_BITS | number % (1 << NUMBER_BITS)


def _prefix(queue: str, reader: str) -> int:
    digest = blake2b(f"{queue}\0{reader}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (1 << READER_BITS) or 1


async def open_batches(bus: Any, queue: str, reader: str) -> list[int]:
    """Numbers of the micro-batches that a reader has taken and not settled."""
    found = await bus.transactions(prepared=True)
    prefix = _prefix(queue, reader)
    return sorted(one.id % (1 << NUMBER_BITS) for one in found if one.id >> NUMBER_BITS == prefix)
