"""Packed batches as Arrow tables, in executors: no event is touched by Python unless its fields are wanted.

Batches come as publishers packed them, a few events each or thousands. As many as make a good table are put together,
of one topic or of many, column by column: times, offsets and identities with numpy, bodies without a copy where there
is only one batch. Where batches are many and small, what costs a call of numpy for each is done for all at once.
Where fields of bodies are wanted, all bodies are decoded in one call, into objects that have just these fields; only if
that fails are they looked at one by one, to tell the poison from the others.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from ..core.errors import BadInput
from ..pubsub.durable.batch import EVEN, EXTRA, ONE_TIME, PLACES, StoredBatch, StoredExtra, latest_of, pack
from ..runtime.clients.log_client import Range
from ..wire.bodies import BYTES, DATA, array_header
from .columns import PACKED, arrow_schema, name_of_kind
from .heaps import Heap, Piece

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_decode = msgspec.msgpack.Decoder().decode
NOTHING = StoredExtra()


class Shape:
    """How events become rows: the columns, and the treatment of poison. Travels to executors."""

    def __init__(self, schema: StructType, fields: Sequence[str], poison: str) -> None:
        self.fields = tuple(fields)
        self.poison = poison
        self.names = tuple(schema.names)
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _MADE}

    @property
    def needs_bodies(self) -> bool:
        return bool(self.fields) or "body" in self.names

    def may_be_nan(self, field: str) -> bool:
        from pyspark.sql.types import DoubleType, FloatType

        return isinstance(self._schema[field].dataType, DoubleType | FloatType)

    @cached_property
    def _arrow(self) -> Any:
        return arrow_schema(self._schema)

    @cached_property
    def _row_decode(self) -> Callable[[bytes], list[Any]]:
        """Decodes an array of bodies into objects with the wanted fields alone; None where one is not there."""
        return self._decoder([hint_of(self._schema[name].dataType) for name in self.fields])

    @cached_property
    def _patient_decode(self) -> Callable[[bytes], list[Any]]:
        """The same, for whole numbers that were published as ``1.0``."""
        hints = [hint_of(self._schema[name].dataType) for name in self.fields]
        return self._decoder([int | float | None if hint == WHOLE else hint for hint in hints])

    def _decoder(self, hints: Sequence[Any]) -> Callable[[bytes], list[Any]]:
        fields = [(f"f{number}", hint, None) for number, hint in enumerate(hints)]
        names = {f"f{number}": name for number, name in enumerate(self.fields)}
        row = msgspec.defstruct("Row", fields, rename=names, gc=False)
        return msgspec.msgpack.Decoder(list[row]).decode  # type: ignore[valid-type]

    def table(self, batches: Sequence[StoredBatch]) -> Any:
        """Packed batches as an Arrow record batch of these columns; None if poison was all there was."""
        columns = envelope(batches, self.names)
        if self.needs_bodies:
            columns["body"] = bodies(batches)
        return self._record(columns, batches, None)

    def table_of_many(self, ranges: Sequence[Range], pieces: Sequence[Piece]) -> Any:
        """The same of pieces as an answer for many topics has them."""
        heap = Heap.of(ranges, pieces)
        if heap is None:
            return self.table([StoredBatch(packed, at).cut(*ranges[number][1:]) for number, at, packed in pieces])
        columns = envelope_of_heap(heap, self.names)
        if self.needs_bodies:
            columns["body"] = bodies_of_heap(heap)
        return self._record(columns, (), heap)

    def _record(self, columns: dict[str, Any], batches: Sequence[StoredBatch], heap: Heap | None) -> Any:
        """The bodies are those of the heap, if there is one, else of the batches."""
        import pyarrow as pa
        import pyarrow.compute as pc

        good: Any = None
        if self.fields:
            decoded, reasons = self._decoded(batches, heap)
            columns.update(decoded)
            columns["reason"] = (
                pa.array(reasons, pa.string()) if reasons else pa.nulls(len(columns["body"]), pa.string())
            )
            good = pc.is_null(columns["reason"]) if reasons else None
            if self.poison == "aside" and "body" in self.names:
                columns["body"] = pc.if_else(
                    pc.is_null(columns["reason"]), pa.scalar(None, pa.binary()), columns["body"]
                )
        elif "reason" in self.names:
            count = heap.count if heap is not None else sum(len(batch) for batch in batches)
            columns["reason"] = pa.nulls(count, pa.string())
        found = pa.RecordBatch.from_arrays([columns[name] for name in self.names], schema=self._arrow)
        if self.poison == "skip" and good is not None:
            found = found.filter(good)
        return found if found.num_rows else None

    def decoded(self, bodies: Sequence[bytes], plain: bool) -> tuple[dict[str, Any], list[str | None]]:
        """The columns of the fields of these bodies, and the reason of each that does not fit; no reasons if all do.
        ``plain``: some were published as bytes, so that nobody knows whether each is one object."""
        packed = pack("decoded", 1, 1, 0, BYTES if plain else DATA, 0, bodies)
        return self._decoded([StoredBatch(packed, 0)], None)

    def _columns(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Of rows that have the fields as attributes. Raises what Arrow raises if a value is none of its column."""
        import pyarrow as pa

        return {
            name: pa.array(
                list(map(attrgetter(f"f{number}"), rows)), self._arrow.field(name).type
            )  # a list is what Arrow is quick at
            for number, name in enumerate(self.fields)
        }

    def fields_of(self, batches: Sequence[StoredBatch]) -> tuple[dict[str, Any], list[str | None]]:
        """As ``decoded``, of the events of packed batches."""
        return self._decoded(batches, None)

    def _decoded(self, batches: Sequence[StoredBatch], heap: Heap | None) -> tuple[dict[str, Any], list[str | None]]:
        """The columns of the fields, and the reason of each event that has none; no reasons if all have them."""
        kinds = {heap.kind} if heap is not None else {batch.kind for batch in batches}
        if BYTES not in kinds:  # of bytes nobody knows whether each is one object
            if heap is not None:
                together = array_header(heap.count) + heap.data
            else:
                count = sum(len(batch) for batch in batches)
                together = b"".join([array_header(count), *(batch.bodies for batch in batches)])
            try:
                return self._columns(self._row_decode(together)), []
            except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
                pass
        return self._one_by_one(batches if heap is None else heap.batches())

    def _one_by_one(self, batches: Sequence[StoredBatch]) -> tuple[dict[str, Any], list[str | None]]:
        none, rows = msgspec.msgpack.encode({}), []
        reasons: list[str | None] = []
        for batch in batches:
            data, ends = batch.bodies, batch.ends.tolist()
            for place, offset in enumerate(batch.offsets.tolist()):
                body = data[ends[place] : ends[place + 1]]
                reason = self._reason(body)
                if reason is not None and self.poison == "fail":
                    raise BadInput(
                        f"event {offset} of {batch.topic!r} is poison, {reason}: "
                        "set it aside with option poison='aside'"
                    )
                rows += self._patient_decode(array_header(1) + (body if reason is None else none))
                reasons.append(reason)
        return self._columns(rows), reasons

    def _reason(self, body: memoryview) -> str | None:
        """The reason why a body is poison; None if it is not."""
        try:
            value = _decode(body)
            if type(value) is not dict:
                return f"its body is of type {type(value).__name__} and has no fields"
            (row,) = rows = self._patient_decode(array_header(1) + body)
            if any(type(value) is float and hint == WHOLE and value % 1 for value, hint in self._told(row)):
                raise ValueError  # Arrow would cut off what is behind the point
            self._columns(rows)
        except msgspec.ValidationError:
            return f"its fields are not {self._said()}"
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return f"its body does not decode: {error}"
        except (TypeError, ValueError, OverflowError):
            return f"its fields are not {self._said()}"
        return None

    def _told(self, row: Any) -> list[tuple[Any, Any]]:
        """The values of a row, with what their columns decode."""
        kinds = [self._schema[name].dataType for name in self.fields]
        return [(getattr(row, f"f{number}"), hint_of(kind)) for number, kind in enumerate(kinds)]

    def _said(self) -> str:
        return ", ".join(f"{name} {self._schema[name].dataType.simpleString()}" for name in self.fields)


class PackedShape(Shape):
    """Packed batches as rows, one each: nobody looks into them."""

    def __init__(self, schema: StructType, given: StructType) -> None:
        super().__init__(schema, (), "fail")
        if given.names != schema.names:
            raise BadInput(f"a table of packed batches has the columns {', '.join(schema.names)}: leave out .schema()")

    @property
    def needs_bodies(self) -> bool:
        return True

    def table(self, batches: Sequence[StoredBatch]) -> Any:
        return self._rows([(one.topic, one.offset, one.data) for one in batches])

    def table_of_many(self, ranges: Sequence[Range], pieces: Sequence[Piece]) -> Any:
        rows = []
        for number, at, packed in pieces:
            topic, start, stop = ranges[number]
            batch = StoredBatch(packed, at).cut(start, stop)
            rows.append((topic, batch.offset, batch.data))
        return self._rows(rows)

    def _rows(self, rows: Sequence[tuple[str, int, bytes]]) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), self._arrow, strict=True)],
            schema=self._arrow,
        )


def unpacked(rows: Any) -> list[StoredBatch]:
    """The batches of an Arrow record batch that has such rows."""
    offsets, packed = (rows.column(rows.schema.names.index(name)).to_pylist() for name in ("offset", PACKED))
    return [StoredBatch(data, offset) for offset, data in zip(offsets, packed, strict=True)]


_MADE = ("_row_decode", "_patient_decode", "_arrow")
WHOLE = int | None


def hint_of(kind: DataType) -> Any:
    """What a decoder has to know of a column's type; ``Any`` if Arrow makes the right thing of what it decodes to.

    Dates and decimals travel as text, whole numbers must be told from others, and times may travel as text too.
    """
    from pyspark.sql import types as T

    if isinstance(kind, T.IntegralType):
        return WHOLE
    plain = {
        T.DateType: datetime.date | int | None,
        T.TimestampType: datetime.datetime | int | None,
        T.TimestampNTZType: datetime.datetime | int | None,
        T.DecimalType: decimal.Decimal | int | None,
    }
    if type(kind) in plain:
        return plain[type(kind)]
    if isinstance(kind, T.ArrayType):
        inner = hint_of(kind.elementType)
        return Any if inner is Any else list[inner] | None  # type: ignore[valid-type]
    if isinstance(kind, T.MapType):
        key = str if isinstance(kind.keyType, T.StringType) else hint_of(kind.keyType)
        inner = hint_of(kind.valueType)
        return Any if key in (str, Any) and inner is Any else dict[key, inner] | None  # type: ignore[valid-type]
    if isinstance(kind, T.StructType):
        hints = {field.name: hint_of(field.dataType) for field in kind.fields}
        if any(hint is not Any for hint in hints.values()):
            return TypedDict("Inner", hints, total=False) | None  # type: ignore[operator]
    return Any


def envelope(batches: Sequence[StoredBatch], names: Sequence[str]) -> dict[str, Any]:
    """The columns of the envelope that are wanted, from the packed columns themselves."""
    import numpy as np
    import pyarrow as pa

    heads, wanted = [batch.head for batch in batches], set(names)
    counts = [head.events for head in heads]
    plain = len(batches) > 1 and not any(head.flags & (PLACES | EXTRA) for head in heads)
    each = np.array(counts, "i8")
    found: dict[str, Any] = {}
    if "topic" in wanted:
        found["topic"] = _told([batch.topic for batch in batches], each)
    if "kind" in wanted:
        found["kind"] = _told([name_of_kind(batch.kind) for batch in batches], each)
    if plain and wanted & {"offset", "id"}:
        within = np.arange(int(each.sum()), dtype="i8") - np.repeat(np.cumsum(each) - each, each)
    if "offset" in wanted and plain:
        found["offset"] = pa.array(within + np.repeat(np.array([batch.offset for batch in batches], "i8"), each))
    elif "offset" in wanted:
        found["offset"] = pa.array(_joined([batch.offsets for batch in batches]))
    copies = [batch.extra if head.extra_bytes else NOTHING for batch, head in zip(batches, heads, strict=True)]
    if "id" in wanted:
        if plain:
            sessions = np.repeat(np.array([head.session for head in heads], "i8"), each)
            numbers = within + np.repeat(np.array([head.first for head in heads], "i8"), each)
        else:
            pairs = [_ids(batch, extra.ids) for batch, extra in zip(batches, copies, strict=True)]
            sessions, numbers = (_joined([pair[place] for pair in pairs]) for place in (0, 1))
        found["id"] = pa.StructArray.from_arrays([pa.array(sessions), pa.array(numbers)], ["session", "number"])
    if "sender" in wanted:
        if plain:
            senders = np.repeat(np.array([head.sender for head in heads], "i8"), each)
        else:
            senders = _joined(
                [
                    np.array(extra.senders, "i8") if extra.senders else np.full(head.events, head.sender, "i8")
                    for head, extra in zip(heads, copies, strict=True)
                ]
            )
        found["sender"] = pa.array(senders)
    if "time" in wanted:
        if plain and all(head.flags & ONE_TIME for head in heads):
            latest = [latest_of(batch.data, head) for batch, head in zip(batches, heads, strict=True)]
            times = np.repeat(np.array(latest, "<i8"), each)
        else:
            times = _joined([batch.times for batch in batches])
        found["time"] = pa.array(times).view(pa.timestamp("us", "UTC"))
    if wanted & {"parent", "headers"}:
        found["parent"], found["headers"] = _rare(batches)
    return found


def envelope_of_heap(heap: Heap, names: Sequence[str]) -> dict[str, Any]:
    """The same of many small batches."""
    import pyarrow as pa

    wanted = set(names)
    found: dict[str, Any] = {}
    if "topic" in wanted:
        found["topic"] = heap.topics
    if "kind" in wanted:
        found["kind"] = heap.kinds
    if "offset" in wanted:
        found["offset"] = pa.array(heap.offsets)
    if "id" in wanted:
        found["id"] = pa.StructArray.from_arrays(
            [pa.array(heap.sessions), pa.array(heap.numbers)], ["session", "number"]
        )
    if "sender" in wanted:
        found["sender"] = pa.array(heap.senders)
    if "time" in wanted:
        found["time"] = pa.array(heap.times).view(pa.timestamp("us", "UTC"))
    if wanted & {"parent", "headers"}:
        found["parent"], found["headers"] = _none(heap.count)
    return found


def bodies_of_heap(heap: Heap) -> Any:
    import pyarrow as pa

    return pa.BinaryArray.from_buffers(
        pa.binary(), heap.count, [None, pa.py_buffer(heap.ends), pa.py_buffer(heap.data)]
    )


def _told(texts: list[str], counts: Any) -> Any:
    """One text for each batch, as often as it has events."""
    import numpy as np
    import pyarrow as pa

    known: dict[str, int] = {}
    places = [known.setdefault(text, len(known)) for text in texts]
    if len(known) == 1:
        return pa.repeat(pa.scalar(texts[0]), int(counts.sum()))
    numbers = np.repeat(np.array(places, "i4"), counts)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(list(known), pa.string())).dictionary_decode()


def _ids(batch: StoredBatch, copied: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Sessions and numbers; of copies, those that they came with."""
    import numpy as np

    if copied:
        pairs = np.array(copied, "i8")
        return pairs[:, 0].copy(), pairs[:, 1].copy()
    return np.full(len(batch), batch.head.session, "i8"), batch.sequences


def _rare(batches: Sequence[StoredBatch]) -> tuple[Any, Any]:
    """What few events have."""
    import pyarrow as pa

    if not any(batch.head.extra_bytes for batch in batches):
        return _none(sum(len(batch) for batch in batches))
    parents: list[Any] = []
    headers: list[Any] = []
    for batch in batches:
        extra, none = batch.extra, [None] * len(batch)
        parents += [p and {"session": p[0], "number": p[1]} for p in extra.parents] or none
        headers += [h and [(key, str(value)) for key, value in h.items()] for h in extra.headers] or none
    return pa.array(parents, _pair()), pa.array(headers, _mapped())


def _none(count: int) -> tuple[Any, Any]:
    """Columns for events without parents and headers."""
    import pyarrow as pa

    return pa.nulls(count, _pair()), pa.nulls(count, _mapped())


def _pair() -> Any:
    import pyarrow as pa

    return pa.struct([("session", pa.int64()), ("number", pa.int64())])


def _mapped() -> Any:
    import pyarrow as pa

    return pa.map_(pa.string(), pa.string())


def bodies(batches: Sequence[StoredBatch]) -> Any:
    """All bodies: the packed ends are the offsets of an Arrow binary array."""
    import numpy as np
    import pyarrow as pa

    if len(batches) == 1:
        ends, data, count = batches[0].ends, pa.py_buffer(batches[0].bodies), len(batches[0])
    elif all(batch.head.flags & EVEN for batch in batches):
        each = np.array([batch.head.events for batch in batches], "i8")
        sizes = np.array([batch.head.bodies_bytes for batch in batches], "i8") // each
        ends = np.concatenate([np.zeros(1, "i4"), np.cumsum(np.repeat(sizes, each))]).astype("i4")
        data = pa.py_buffer(b"".join([batch.bodies for batch in batches]))
        count = len(ends) - 1
    else:
        before = np.cumsum([0, *(batch.head.bodies_bytes for batch in batches)])
        shifted = [batch.ends[1:] + shift for batch, shift in zip(batches, before, strict=False)]
        ends = np.concatenate([np.zeros(1, "i4"), *shifted]).astype("i4")
        data = pa.py_buffer(b"".join([batch.bodies for batch in batches]))
        count = len(ends) - 1
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), data])


def _joined(columns: list[Any]) -> Any:
    import numpy as np

    return columns[0] if len(columns) == 1 else np.concatenate(columns)
