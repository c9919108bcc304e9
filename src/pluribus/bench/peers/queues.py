"""Systems with queues, measured beside ours: messages are sent, are on disk, are received and acknowledged.

``depth`` messages are under way at a time: a window of them is sent and confirmed, then received and acknowledged.
``QUEUE_SETTINGS`` has the settings.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sqlite3
import subprocess
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ...core.errors import BadInput, Unavailable
from ..ports import free_port
from .kept import WARM_WINDOWS, client, folder, program, server, timed


def sqlite(size: int, depth: int, seconds: float) -> float:
    """A plain table: one transaction inserts a window of messages, another one removes it."""
    with folder() as place:
        db = sqlite3.connect(place / "plain.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, time REAL, body BLOB)")
        rows = [(0.0, bytes(size))] * depth

        def work() -> None:
            db.execute("BEGIN")
            db.executemany("INSERT INTO queue (time, body) VALUES (?, ?)", rows)
            db.execute("COMMIT")
            found = db.execute("SELECT id, body FROM queue ORDER BY id LIMIT ?", (depth,)).fetchall()
            db.execute("BEGIN")
            db.executemany("DELETE FROM queue WHERE id = ?", [(number,) for number, _ in found])
            db.execute("COMMIT")

        try:
            return timed(work, depth, seconds)
        finally:
            db.close()


def postgresql(size: int, depth: int, seconds: float) -> float:
    """A table, and DELETE of what SELECT … FOR UPDATE SKIP LOCKED found."""
    client("psycopg")
    import psycopg

    root = os.name == "posix" and os.geteuid() == 0
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = ("postgres" if "postgres" in names else "nobody") if root else None
    with folder(user) as place:
        data, port = place / "data", free_port()
        initdb = [program("initdb"), "-D", str(data), "-U", "bench", "-A", "trust"]
        subprocess.run(initdb, stdout=subprocess.DEVNULL, check=True, user=user, cwd=place)
        command = [program("postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", str(place)]
        where = f"postgresql://bench@127.0.0.1:{port}/postgres"

        def ready() -> bool:
            try:
                psycopg.connect(where).close()
            except psycopg.OperationalError:
                return False
            return True

        with server(command, port, user, ready), psycopg.connect(where, autocommit=True) as db:
            db.execute("CREATE TABLE queue (id BIGSERIAL PRIMARY KEY, body BYTEA)")
            rows = [(bytes(size),)] * depth
            take = (
                "DELETE FROM queue WHERE id IN (SELECT id FROM queue ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
                "RETURNING id, body"
            )

            def work() -> None:
                with db.transaction(), db.cursor() as cursor:
                    cursor.executemany("INSERT INTO queue (body) VALUES (%s)", rows)
                with db.transaction():
                    db.execute(take, (depth,)).fetchall()

            return timed(work, depth, seconds)


def redis(size: int, depth: int, seconds: float) -> float:
    """A stream with a consumer group: XADD, XREADGROUP, XACK and XDEL."""
    client("redis")
    import redis as client_of

    with folder() as place:
        port = free_port()
        options = ["--port", str(port), "--dir", str(place), "--appendonly", "yes", "--appendfsync", "always"]
        with server([program("redis-server"), *options, "--save", ""], port):
            connection: Any = client_of.Redis(port=port)
            connection.xgroup_create("queue", "workers", id="0", mkstream=True)
            body = bytes(size)

            def work() -> None:
                pipeline = connection.pipeline(transaction=False)
                for _ in range(depth):
                    pipeline.xadd("queue", {"body": body})
                pipeline.execute()
                ((_, found),) = connection.xreadgroup("workers", "one", {"queue": ">"}, count=depth)
                ids = [number for number, _ in found]
                pipeline = connection.pipeline(transaction=False)
                pipeline.xack("queue", "workers", *ids)
                pipeline.xdel("queue", *ids)
                pipeline.execute()

            try:
                return timed(work, depth, seconds)
            finally:
                connection.close()


def jetstream(size: int, depth: int, seconds: float) -> float:
    """A work-queue stream with a durable pull consumer."""
    client("nats")
    with folder() as place:
        port = free_port()
        for sync in ("sync_interval: always", ""):
            config = place / "server.conf"
            config.write_text(f'port: {port}\nhost: 127.0.0.1\njetstream {{ store_dir: "{place}/js"\n {sync} }}\n')
            try:
                with server([program("nats-server"), "-c", str(config)], port):
                    QUEUE_SETTINGS["jetstream"] = (
                        sync or "this server knows no sync_interval: acknowledged before it is on disk"
                    )
                    return asyncio.run(_jetstream(port, size, depth, seconds))
            except Unavailable:
                if not sync:
                    raise
    raise AssertionError("unreachable")


async def _jetstream(port: int, size: int, depth: int, seconds: float) -> float:
    import nats
    from nats.js.api import RetentionPolicy

    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name="queue", subjects=["queue"], retention=RetentionPolicy.WORK_QUEUE)
    consumer = await stream.pull_subscribe("queue", durable="workers")
    body = bytes(size)

    async def work() -> None:
        await asyncio.gather(*[stream.publish("queue", body) for _ in range(depth)])
        left = depth
        while left:
            found = await consumer.fetch(left, timeout=30)
            await asyncio.gather(*[message.ack_sync() for message in found])
            left -= len(found)

    rate = await timed_async(work, depth, seconds)
    await connection.close()
    return rate


async def timed_async(work: Callable[[], Any], depth: int, seconds: float) -> float:
    for _ in range(WARM_WINDOWS):
        await work()
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        await work()
        count += depth
    return count / (perf_counter() - since)


def rabbitmq(size: int, depth: int, seconds: float) -> float:
    from .rabbit import queued

    return queued(size, depth, seconds)


QUEUES: dict[str, Callable[[int, int, float], float]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "redis": redis,
    "jetstream": jetstream,
    "rabbitmq": rabbitmq,
}
QUEUE_SETTINGS = {
    "sqlite": "one table, WAL, synchronous FULL, a transaction in and one out for every window",
    "postgresql": "one table, defaults (fsync on), executemany in, FOR UPDATE SKIP LOCKED and DELETE out",
    "redis": "a stream with a group, appendfsync always, XADD, XREADGROUP, XACK and XDEL, pipelined",
    "jetstream": "a work queue on file, sync_interval always, a pull consumer, every message acknowledged",
    "rabbitmq": "a durable queue, persistent messages, confirms, prefetch of two windows, multiple acknowledgements",
}


def queue_names(wanted: str) -> list[str]:
    """The systems that a text names, separated by commas; ``all`` is every system."""
    if wanted == "all":
        return list(QUEUES)
    for word in filter(None, wanted.split(",")):
        if word not in QUEUES:
            raise BadInput(f"there is no peer {word!r} with queues: use all, or some of {', '.join(QUEUES)}")
    return [word for word in wanted.split(",") if word]
