"""Moves messages from the table of an outbox to their queues, each once.

Theory of operation
-------------------
Messages for one queue are a *lane*. A lane is moved in batches, which are numbered from 1. How far a lane is, its
*place*, is kept twice: in the table ``lanes``, and as a tuple ``(tag, batch)`` in a durable space of the bus.

1. *Mark.* One transaction of the database deletes the rows of the last batch, gives the next rows the next number, and
   writes that number into ``lanes``.
2. *Send.* One transaction of the bus sends these rows to their queue, takes the tuple with the number before, and
   writes the tuple with the number of the batch.
3. Again from 1.

After a crash the two numbers say what happened. They are equal: the batch is in the queue, and its rows are deleted.
The number in the database is one ahead: the batch is not in the queue, and the very same rows are sent. So a message is
neither lost nor sent twice, whatever the time between, and whatever the queue remembers of identities.

*One at a time.* The session with the database holds an advisory lock from before it reads until it ends, so whatever it
changes, it changes while no other forwarder can. A forwarder that lost its session without noticing may still be about
to send: its transaction needs the tuple with the number before, which is there once. For that nobody may write a tuple
that another has written: a lane gets a new random tag each time before its first tuple is written, and keeps it from
its first batch on.

Lanes do not wait for each other: a queue that is full holds up its own messages alone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, MissingExtra, PluribusError
from ..runtime.styles.queues.options import message_of
from .tables import SCHEMA, checked_schema

if TYPE_CHECKING:
    import psycopg

    from ..runtime.bus import Bus
    from ..runtime.clients.bus import ClientBus

log_ = logging.getLogger("pluribus")

SPACE = "pluribus.outbox"
"""The durable space with the places of all outboxes."""
BATCH_ROWS_MAX = 1_000
BATCH_BYTES_MAX = 1 << 20
"""A longer body is a batch of its own."""
HOLD_S = 15.0
"""The time of one transaction of the bus: after a crash another forwarder waits so long at most."""
LOOK_S = 5.0
"""How often the table is looked at although nobody said that something came."""
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0

Row = tuple[str, dict[str, Any], bytes]
"""Id, options, body."""


class Forwarder:
    """Of one outbox. ``dsn`` is what psycopg takes; ``bus`` a member or a client of a bus with keepers.

    ``anew`` begins with a bus that has never seen this outbox, although another has: a batch that was under way goes to
    the new one too.
    """

    def __init__(
        self, bus: Bus | ClientBus, dsn: str, *, schema: str = SCHEMA, hold: float = HOLD_S, anew: bool = False
    ) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("psycopg is not installed: pip install 'pluribus[postgres]'") from None
        if not hold > 0:
            raise BadInput(f"hold={hold!r}: give seconds above 0")
        self._psycopg = psycopg
        self._bus = bus
        self._dsn = dsn
        self._schema = checked_schema(schema)
        self._hold_s = hold
        self._anew = anew
        self._places: dict[str, tuple[str, int]] = {}
        """By queue, as far as it is certain: tag and place of the lane on the bus."""
        self.forwarded = 0
        """Messages that this forwarder has moved."""

    async def run(self, *, once: bool = False) -> int:
        """Move messages as they come, until cancelled; with ``once`` those that are there. Waits while another
        forwarder is at work. Whatever fails is tried again, and logged; with ``once`` it is raised."""
        pause_s = PAUSE_S
        while True:
            before = self.forwarded
            try:
                await self._session(once)
                return self.forwarded
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
                if once:
                    raise PluribusError(f"the outbox {self._schema} cannot be read: {error}") from None
                log_.warning("the outbox %s cannot be read, and is tried again: %s", self._schema, error)
            pause_s = PAUSE_S if self.forwarded > before else min(2 * pause_s, PAUSE_S_MAX)
            await asyncio.sleep(pause_s)

    async def _session(self, once: bool) -> None:
        """One session with the database: from its lock on, it is the only one that forwards."""
        self._places.clear()
        db = await self._psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True, connect_timeout=10, keepalives_idle=5, keepalives_interval=2, keepalives_count=3
        )
        async with db:
            await db.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"pluribus.outbox {self._schema}",))
            await db.execute(f"LISTEN {self._schema}")
            await self._reached("locked")
            while True:
                failed = await self._round(db)
                if once:
                    if failed is not None:
                        raise failed
                    return
                await _notified(db, LOOK_S if failed is None else PAUSE_S)

    async def _round(self, db: psycopg.AsyncConnection[Any]) -> PluribusError | TimeoutError | None:
        """All lanes, until nothing is left in the table but what could not be sent; why the first could not."""
        stuck: dict[str, PluribusError | TimeoutError] = {}
        while True:
            found = await db.execute(f"SELECT DISTINCT queue FROM {self._schema}.messages ORDER BY queue")  # noqa: S608 - checked
            names = [name for (name,) in await found.fetchall() if name not in stuck]
            if not names:
                return next(iter(stuck.values()), None)
            for name in names:
                try:
                    await self._step(db, name)
                except (PluribusError, TimeoutError) as error:
                    self._places.pop(name, None)
                    stuck[name] = error
                    log_.warning("messages for the queue %r wait in the outbox %s: %s", name, self._schema, error)

    async def _step(self, db: psycopg.AsyncConnection[Any], name: str) -> None:
        """One batch of one lane."""
        tag, place = self._places.get(name) or await self._find(db, name)
        async with db.transaction():
            marked = await self._marked(db, name)
            if marked == place:
                await db.execute(
                    f"DELETE FROM {self._schema}.messages WHERE queue = %s AND batch <= %s",  # noqa: S608
                    (name, place),
                )
                chosen = await self._chosen(db, name)
                if chosen:
                    await db.execute(
                        f"UPDATE {self._schema}.messages SET batch = %s WHERE number = ANY(%s)",  # noqa: S608
                        (place + 1, chosen),
                    )
                    await db.execute(
                        f"UPDATE {self._schema}.lanes SET batch = %s WHERE queue = %s",  # noqa: S608
                        (place + 1, name),
                    )
        await self._reached("marked")
        rows = await (
            await db.execute(
                f"SELECT id, options, body FROM {self._schema}.messages "  # noqa: S608
                "WHERE queue = %s AND batch = %s ORDER BY number",
                (name, place + 1),
            )
        ).fetchall()
        if rows:
            self._places.pop(name, None)
            await self._send(name, tag, place, rows)
            self._places[name] = (tag, place + 1)
            self.forwarded += len(rows)
        await self._reached("sent")

    async def _find(self, db: psycopg.AsyncConnection[Any], name: str) -> tuple[str, int]:
        """How far the lane is, as the bus has it; a lane that has not begun is named, and its first tuple written."""
        found = await db.execute(f"SELECT tag, batch FROM {self._schema}.lanes WHERE queue = %s", (name,))  # noqa: S608
        lane = await found.fetchone()
        space = await self._bus.space(SPACE, durable=True)
        if lane is not None and lane[1]:
            tag, marked = lane
            seen = await space.read_if_exists((tag, int), timeout=2 * self._hold_s + 10)
            if seen is not None:
                place = int(seen[1])
                if place not in (marked, marked - 1):
                    raise PluribusError(
                        f"the outbox {self._schema} is at batch {marked} for the queue {name!r}, and the bus at "
                        f"{place}: the database or the bus was set back; forward with anew, and look for messages twice"
                    )
                return tag, place
            if not self._anew:
                raise PluribusError(
                    f"the outbox {self._schema} has forwarded to the queue {name!r} of another bus: forward to that "
                    "one, or begin with this one with anew"
                )
        tag = uuid.uuid4().hex
        async with db.transaction():
            await db.execute(
                f"INSERT INTO {self._schema}.lanes (queue, tag) VALUES (%s, %s) "  # noqa: S608
                "ON CONFLICT (queue) DO UPDATE SET tag = excluded.tag, batch = 0",
                (name, tag),
            )
            await db.execute(f"UPDATE {self._schema}.messages SET batch = NULL WHERE queue = %s", (name,))  # noqa: S608
        await self._reached("named")
        await space.write((tag, 0))
        await self._reached("begun")
        return tag, 0

    async def _marked(self, db: psycopg.AsyncConnection[Any], name: str) -> int:
        found = await db.execute(f"SELECT batch FROM {self._schema}.lanes WHERE queue = %s", (name,))  # noqa: S608
        lane = await found.fetchone()
        assert lane is not None
        return int(lane[0])

    async def _chosen(self, db: psycopg.AsyncConnection[Any], name: str) -> list[int]:
        """The rows of the next batch."""
        found = await db.execute(
            f"SELECT number, octet_length(body) FROM {self._schema}.messages "  # noqa: S608
            "WHERE queue = %s AND batch IS NULL ORDER BY number LIMIT %s",
            (name, BATCH_ROWS_MAX),
        )
        chosen: list[int] = []
        size = 0
        for number, body_bytes in await found.fetchall():
            size += body_bytes
            if chosen and size > BATCH_BYTES_MAX:
                break
            chosen.append(number)
        return chosen

    async def _send(self, name: str, tag: str, place: int, rows: Sequence[Row]) -> None:
        """The batch behind ``place``: into the queue, and the place along with it, in one transaction of the bus."""
        queue = await self._bus.queue(name)
        space = await self._bus.space(SPACE, durable=True)
        async with self._bus.transaction(timeout=self._hold_s) as tx:
            for id, options, body in rows:
                given = (options.get("ttl"), options.get("delay"), options.get("properties"))
                texts = (options.get("key", ""), id, options.get("correlation", ""), options.get("reply_to", ""))
                message = message_of(options["kind"], bytes(body), options["priority"], *given, *texts)
                await tx.pass_on(queue, message)
            await tx.take(space, (tag, place), timeout=self._hold_s)
            await tx.write(space, (tag, place + 1))
            await self._reached("gathered")

    async def _reached(self, step: str) -> None:
        """A step is done. Nothing happens here; tests kill a process at each."""


async def _notified(db: psycopg.AsyncConnection[Any], timeout: float) -> None:
    """Returns when somebody has sent, or after ``timeout`` seconds."""
    async for _ in db.notifies(timeout=timeout, stop_after=1):
        pass
