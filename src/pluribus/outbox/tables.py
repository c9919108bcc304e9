"""The tables of an outbox, and what programs do with them inside their own transactions of psycopg.

=============  =====================================================================================================
``messages``   what was sent and is not in its queue yet; ``batch`` is the number that the forwarder gave it
``lanes``      one row for each queue: ``tag``, its name on the bus, and the number of the last batch that was marked
``handled``    the messages whose effect is in this database
=============  =====================================================================================================

Nothing here commits: the caller's transaction does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput
from ..core.ids import checked_name
from ..queues.words import PRIORITY
from ..runtime.styles.queues.options import message_of
from ..wire.bodies import encode_body

if TYPE_CHECKING:
    import psycopg

    from ..runtime.styles.queues.message import QueueMessage

SCHEMA = "pluribus_outbox"
NAME_CHARS_MAX = 60
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.messages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, id text NOT NULL,
    options jsonb NOT NULL, body bytea NOT NULL, batch bigint, at timestamptz NOT NULL DEFAULT now());
CREATE INDEX IF NOT EXISTS messages_by_queue ON {schema}.messages (queue, number);
CREATE TABLE IF NOT EXISTS {schema}.lanes (
    queue text PRIMARY KEY, tag text NOT NULL, batch bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS {schema}.handled (
    consumer text NOT NULL, id text NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, id));
CREATE INDEX IF NOT EXISTS handled_by_time ON {schema}.handled (at);
"""
_SEND = "INSERT INTO {schema}.messages (queue, id, options, body) VALUES (%s, %s, %s, %s)"
_NOTIFY = "SELECT pg_notify(%s, '')"
_FIRST = "INSERT INTO {schema}.handled (consumer, id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_FORGET = "DELETE FROM {schema}.handled WHERE at < now() - make_interval(secs => %s)"


def create(db: psycopg.Connection[Any], *, schema: str = SCHEMA) -> None:
    """Make the tables of an outbox, where they are missing."""
    db.execute(_TABLES.format(schema=checked_schema(schema)))


def send(
    db: psycopg.Connection[Any],
    queue: str,
    body: Any,
    *,
    priority: int = PRIORITY,
    ttl: float | None = None,
    delay: float | None = None,
    properties: Mapping[str, Any] | None = None,
    key: str = "",
    id: str = "",
    correlation: str = "",
    reply_to: str = "",
    schema: str = SCHEMA,
) -> str:
    """Send a message to a queue if the transaction of ``db`` is committed; returns its ``id``.

    Options are those of ``MessageQueue.send``; ``ttl`` and ``delay`` count from the moment in which the message is in
    its queue. ``BadInput`` for what a queue would not take.
    """
    row = _row(queue, body, priority, ttl, delay, properties, key, id, correlation, reply_to)
    db.execute(_SEND.format(schema=checked_schema(schema)), row)
    db.execute(_NOTIFY, (schema,))
    return str(row[1])


async def send_async(
    db: psycopg.AsyncConnection[Any],
    queue: str,
    body: Any,
    *,
    priority: int = PRIORITY,
    ttl: float | None = None,
    delay: float | None = None,
    properties: Mapping[str, Any] | None = None,
    key: str = "",
    id: str = "",
    correlation: str = "",
    reply_to: str = "",
    schema: str = SCHEMA,
) -> str:
    """``send`` on an asynchronous connection."""
    row = _row(queue, body, priority, ttl, delay, properties, key, id, correlation, reply_to)
    await db.execute(_SEND.format(schema=checked_schema(schema)), row)
    await db.execute(_NOTIFY, (schema,))
    return str(row[1])


def first(db: psycopg.Connection[Any], message: QueueMessage[Any], consumer: str, *, schema: str = SCHEMA) -> bool:
    """Whether a message was not handled before under the name ``consumer``. From the commit of this transaction on it
    was. If another transaction handles the message right now, this waits for its end."""
    done = db.execute(_FIRST.format(schema=checked_schema(schema)), (_consumer(consumer), message.id))
    return done.rowcount == 1


async def first_async(
    db: psycopg.AsyncConnection[Any], message: QueueMessage[Any], consumer: str, *, schema: str = SCHEMA
) -> bool:
    """``first`` on an asynchronous connection."""
    done = await db.execute(_FIRST.format(schema=checked_schema(schema)), (_consumer(consumer), message.id))
    return done.rowcount == 1


def forget(db: psycopg.Connection[Any], seconds: float, *, schema: str = SCHEMA) -> int:
    """Forget messages that were handled so many seconds ago; how many. None of them may come again: choose longer than
    a consumer can be away between its commit and its acknowledgement."""
    if not seconds > 0:
        raise BadInput(f"{seconds!r} s: give seconds above 0, such as 30 * 86_400")
    return db.execute(_FORGET.format(schema=checked_schema(schema)), (float(seconds),)).rowcount


def waiting(db: psycopg.Connection[Any], *, schema: str = SCHEMA) -> list[dict[str, Any]]:
    """For each queue: how many messages are not known to be in it, and the age of the oldest in seconds."""
    found = db.execute(
        "SELECT queue, count(*), extract(epoch FROM now() - min(at))::float8 "  # noqa: S608 - checked
        f"FROM {checked_schema(schema)}.messages GROUP BY queue ORDER BY queue"
    )
    return [{"queue": queue, "messages": count, "oldest_s": age} for queue, count, age in found.fetchall()]


def checked_schema(schema: str) -> str:
    """A name that needs no quotes: it is written into statements."""
    if not schema.isidentifier() or not schema.isascii() or schema != schema.lower() or len(schema) > NAME_CHARS_MAX:
        raise BadInput(
            f"{schema!r} is no name for a schema: use up to {NAME_CHARS_MAX} small letters, digits and underscores"
        )
    return schema


def _consumer(name: str) -> str:
    return checked_name(name, "the consumer")


def _row(
    queue: str,
    body: Any,
    priority: int,
    ttl: float | None,
    delay: float | None,
    properties: Mapping[str, Any] | None,
    key: str,
    id: str,
    correlation: str,
    reply_to: str,
) -> tuple[str, str, str, bytes]:
    """Queue, id, options and body. Everything is checked now, where the caller can still do something about it."""
    checked_name(queue, "the queue")
    kind, encoded = encode_body(body)
    id = id or uuid.uuid4().hex
    message_of(kind, encoded, priority, ttl, delay, properties, key, id, correlation, reply_to)
    options = {
        "kind": kind,
        "priority": priority,
        "ttl": ttl,
        "delay": delay,
        "properties": dict(properties or {}),
        "key": key,
        "correlation": correlation,
        "reply_to": reply_to,
    }
    return (
        queue,
        id,
        json.dumps({name: value for name, value in options.items() if value not in (None, "", {})}),
        encoded,
    )
