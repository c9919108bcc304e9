"""Columns of queues and durable topics, copied into a database in pages. The loop reads the pages, threads unpack
them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ....core.errors import BadInput, PluribusError, TooLarge
from ....filters import Filter
from ....filters.packed import packed
from ....pubsub.durable.batch import StoredBatch
from ....queues import batch, words
from ....queues.columns import COLUMNS, NAMES_MAX
from ....queues.words import Outcome
from ....tables.database import Database
from ....tables.statement import TableRead
from ....wire.bodies import BYTES, Opaque, array_header, decode_bodies
from ...machines.line import MachineLine
from ..topics.durable import Durable

QUEUE_COLUMNS = (
    "number",
    "id",
    "body",
    "priority",
    "key",
    "sent",
    "age_s",
    "ttl",
    "delay",
    "deliveries",
    "state",
    "size",
    "reason",
    "correlation",
    "reply_to",
    "properties",
)
ON_DISK = {"id", "body", "sent", "correlation", "reply_to"}
"""Columns that can be read from the log only with the bodies."""
TOPIC_COLUMNS = ("offset", "topic", "body", "sent", "age_s", "sender", "properties")
COPIED_MAX = 1_000_000
"""Messages that one query copies, at most."""
COPIED_BYTES_MAX = 256 << 20
"""Bytes of bodies that one query copies, at most."""
STAR_COLUMNS_MAX = 1_000
BODIES = 256
"""Bodies that are read in one question."""
PIECES = 8
"""Pieces of long bodies that are read in one question."""
TRIES = 5

Apart = Callable[..., Awaitable[Any]]
"""Calls a function in a thread."""
_copied = msgspec.msgpack.Decoder(words.Copied).decode
_where = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, list[tuple[int, int]]]]).decode


class Copying:
    """The copies of one query."""

    def __init__(self, database: Database, apart: Apart, push_down: bool) -> None:
        self._database = database
        self._apart = apart
        self._push_down = push_down
        self.rows = 0
        self._bytes = 0

    # Queues.

    async def queue(self, line: MachineLine[Outcome], wanted: TableRead) -> None:
        columns = [one for one in wanted.base if one in COLUMNS and (one in wanted.used or one == "number")]
        by_name = bool(wanted.properties) or wanted.star
        if by_name and "properties" not in columns:
            columns.append("properties")
        disk = wanted.used & ON_DISK
        condition = wanted.condition if self._push_down else None
        selector = b"" if condition is None else packed(Filter(condition))
        names: dict[str, None] = {}
        start = end = now_us = 0
        while True:
            asked = words.Copy(start, end, now_us, selector, [*columns, "handle"], by_name or bool(selector))
            found = _copied(await line.inspect(words.encode(asked), timeout=None))
            *values, handles = found.columns
            self._count(len(handles))
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
            for at in range(0, len(rows), BODIES) if disk else ():
                await self._read(line, rows[at : at + BODIES], handles[at : at + BODIES], "body" in disk)
            if by_name:
                names.update(dict.fromkeys(found.names))
            await self._apart(self._insert, wanted, [row for row in rows if row], found.names)
            start, end, now_us = found.then, found.end, found.now_us
            if not start:
                break
        _check_names(wanted, names)

    async def _read(self, line: MachineLine[Outcome], rows: list[dict[str, Any]], handles: Any, bodies: bool) -> None:
        """Add the bodies on disk to rows; a row whose message is gone meanwhile becomes empty."""
        left = {row["number"]: (row, tuple(handle)) for row, handle in zip(rows, handles, strict=True)}
        for _ in range(TRIES):
            found = await line.bodies([handle for _, handle in left.values()], None)
            missing: list[int] = []
            long: list[dict[str, Any]] = []
            for (number, (row, _)), body in zip(left.items(), found, strict=True):
                if body is None:
                    missing.append(number)
                    continue
                self._weigh(len(body))
                pieces = await self._apart(_fill, row, body)
                if pieces and bodies:
                    long.append(row)
            for row in long:
                await self._read_long(line, row)
            if not missing:
                return
            stood = _where(await line.inspect(words.encode(words.Where(missing)), timeout=None))
            moved = {number: (row, place, piece) for number, row, place, piece, _ in stood}
            for number in missing:
                if number not in moved:
                    left[number][0].clear()
            left = {number: (left[number][0], handle) for number, handle in moved.items()}
            if not left:
                return
        for row, _ in left.values():
            row.clear()

    async def _read_long(self, line: MachineLine[Outcome], row: dict[str, Any]) -> None:
        for _ in range(TRIES):
            stood = _where(await line.inspect(words.encode(words.Where([row["number"]])), timeout=None))
            if not stood:
                row.clear()
                return
            whole: list[bytes | None] = []
            handles = [(at, place, 0) for at, place in stood[0][4]]
            for at in range(0, len(handles), PIECES):
                whole += await line.bodies(handles[at : at + PIECES], None)
            pieces = [one for one in whole if one is not None]
            if len(pieces) == len(handles):
                body = b"".join(pieces)
                self._weigh(len(body))
                row["body"] = await self._apart(_decoded, row.pop("kind"), body)
                return
        row.clear()

    # Topics.

    async def topic(self, durable: Durable, wanted: TableRead) -> None:
        pattern = wanted.name[1]
        known = await durable.topics(pattern)
        if not known:
            raise BadInput(f"there is no durable topic {pattern!r}: `pluribus topics list` shows those that are there")
        now = durable.wall()
        names: dict[str, None] = {}
        for topic in known:
            start = topic.first
            log = durable.log(topic.topic)
            while start < topic.end:
                found = await log.fetch(start, topic.end, bodies="body" in wanted.used)
                batches = [StoredBatch(data, offset).cut(start, topic.end) for offset, data in found.pieces]
                rows, seen = await self._apart(_events, batches, now, "body" in wanted.used)
                self._count(len(rows))
                self._weigh(sum(len(data) for _, data in found.pieces))
                names.update(dict.fromkeys(seen))
                await self._apart(self._insert, wanted, rows, seen)
                if found.next <= start:
                    break
                start = found.next
        _check_names(wanted, names)

    # Both.

    def _count(self, rows: int) -> None:
        self.rows += rows
        if self.rows > COPIED_MAX:
            raise TooLarge(
                f"the query needs more than {COPIED_MAX:,} messages: add a condition such as age_s < 60 to its WHERE"
            )

    def _weigh(self, size: int) -> None:
        self._bytes += size
        if self._bytes > COPIED_BYTES_MAX:
            raise TooLarge(
                f"the query needs bodies of more than {COPIED_BYTES_MAX:,} bytes: leave body out, or add a condition"
            )

    def _insert(self, wanted: TableRead, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
        """Insert rows; runs in a thread."""
        if wanted.star:
            for name in names:
                if len(wanted.columns) < STAR_COLUMNS_MAX and wanted.add(name):
                    self._database.widen(wanted.name, name)
        columns = wanted.columns
        made = []
        for row in rows:
            properties = row.get("properties") or {}
            if isinstance(properties, bytes):
                properties = batch.properties_of(properties)
            row["properties"] = msgspec.json.encode(properties).decode() if properties else None
            base = [_cell(row.get(name)) for name in wanted.base]
            made.append([*base, *(_cell(properties.get(name)) for name in columns[len(base) :])])
        self._database.insert(wanted.name, columns, made)


def _check_names(wanted: TableRead, names: dict[str, None]) -> None:
    """Refuse a property that no message has, if any message has properties: it is probably misspelt."""
    for name in wanted.properties:
        if names and name not in names and len(names) < NAMES_MAX:
            known = ", ".join(sorted(names)[:20])
            raise BadInput(
                f"no message of {wanted.name[1]!r} has a property {name!r}: there are {known}, and the columns "
                f"{', '.join(wanted.base)}; write properties ->> '{name}' for one that may be missing"
            )


def _fill(row: dict[str, Any], data: bytes) -> int:
    """Add the fields of a message that was sent alone; returns how many pieces its long body has."""
    head = batch.head_of(data)
    extra = batch.extra_of(data, head)
    row["sent"] = head.time_us / 1e6
    row["id"] = extra.ids[0] if extra.ids and extra.ids[0] else f"{head.session:x}-{head.first}"
    row["correlation"] = (extra.correlations[0] if extra.correlations else "") or None
    row["reply_to"] = (extra.replies[0] if extra.replies else "") or None
    pieces = extra.uploads[0][1] if extra.uploads else 0
    if pieces:
        row["kind"] = batch.kind_of(data, head)
    else:
        row["body"] = _decoded(batch.kind_of(data, head), bytes(batch.bodies_of(data, head)[0]))
    return pieces


def _decoded(kind: Any, body: bytes) -> Any:
    if kind == BYTES:
        return body
    try:
        return decode_bodies(kind, msgspec.Raw(array_header(1) + body), 1)[0]
    except PluribusError:  # not of the type that this program knows
        return Opaque(str(kind), body)


def _events(batches: Sequence[StoredBatch], now: float, bodies: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of batches, and the names of headers."""
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for one in batches:
        decoded: Sequence[Any] = [None] * len(one)
        if bodies:
            try:
                decoded = one.decoded()
            except PluribusError:  # of a type that this program has in another form
                decoded = one.plain()
        extra, topic = one.extra, one.topic
        times = (one.times / 1e6).tolist()
        for at, offset in enumerate(one.offsets.tolist()):
            headers = dict(extra.headers[at] or {}) if extra.headers else {}
            names.update(dict.fromkeys(headers))
            rows.append(
                {
                    "offset": offset,
                    "topic": topic,
                    "body": decoded[at],
                    "sent": times[at],
                    "age_s": max(now - times[at], 0.0),
                    "sender": int(extra.senders[at] if extra.senders else one.head.sender),
                    "properties": headers,
                }
            )
    return rows, list(names)


def _cell(value: Any) -> Any:
    """A value in a form that SQLite stores; a composite value becomes JSON."""
    if value is None or isinstance(value, str | bytes | float):
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else float(value)
    try:
        if isinstance(value, Opaque):
            value = msgspec.msgpack.decode(value.encoded)
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (msgspec.MsgspecError, TypeError, UnicodeError, ValueError):
        return None
