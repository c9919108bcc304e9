"""Systems that keep published events, measured beside durable topics: each with its usual Python client.

Each is configured to have an event on disk before it acknowledges it, as far as possible; ``settings`` has the
settings. ``depth`` events are under way at a time, with the client's usual means.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, sleep

from ...core.errors import BadInput, Unavailable
from ..ports import free_port

SYSTEM = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/postgresql/15/bin")
"""Folders of servers that are often not on the PATH. RabbitMQ's own comes first, because its programs in ``/usr/sbin``
change the user."""
FOLDERS = os.pathsep.join((*SYSTEM, os.environ.get("PATH", "")))
START_S = 60.0
WARM_WINDOWS = 5

Work = Callable[[], None]
"""Publishes ``depth`` events, and returns when all of them are acknowledged."""


def timed(work: Work, depth: int, seconds: float) -> float:
    """Events a second, after a short warm-up."""
    for _ in range(WARM_WINDOWS):
        work()
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        work()
        count += depth
    return count / (perf_counter() - since)


def program(name: str) -> str:
    found = shutil.which(name, path=FOLDERS)
    if found is None:
        raise Unavailable(f"{name} is not installed: get it from your distribution, or put it on the PATH")
    return found


def client(name: str) -> None:
    if find_spec(name) is None:
        raise Unavailable(f"the client {name} is not installed: pip install 'pluribus[peers]'")


@contextmanager
def folder(user: str | None = None) -> Iterator[Path]:
    """A folder on the disk that is measured, that of the current folder."""
    found = Path(tempfile.mkdtemp(prefix="pluribus-bench-"))
    if user is not None:
        shutil.chown(found, user)
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


@contextmanager
def server(
    command: list[str],
    port: int,
    user: str | None = None,
    ready: Callable[[], bool] = lambda: True,
    environment: dict[str, str] | None = None,
) -> Iterator[None]:
    """A server; it is ready when its port is open."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, user=user, env=environment)
    try:
        until = perf_counter() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                if ready():
                    break
            except OSError:
                pass
            if process.poll() is not None or perf_counter() > until:
                raise Unavailable(f"{command[0]} did not start at port {port}: run it by hand to see why")
            sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def sqlite(size: int, depth: int, seconds: float) -> float:
    with folder() as place:
        db = sqlite3.connect(place / "plain.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, time REAL, body BLOB)")
        rows = [(0.0, bytes(size))] * depth

        def work() -> None:
            db.execute("BEGIN")
            db.executemany("INSERT INTO events (time, body) VALUES (?, ?)", rows)
            db.execute("COMMIT")

        try:
            return timed(work, depth, seconds)
        finally:
            db.close()


def postgresql(size: int, depth: int, seconds: float) -> float:
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
            db.execute("CREATE TABLE events (id BIGSERIAL PRIMARY KEY, time FLOAT, body BYTEA)")
            rows = [(0.0, bytes(size))] * depth

            def work() -> None:
                with db.transaction(), db.cursor() as cursor:
                    cursor.executemany("INSERT INTO events (time, body) VALUES (%s, %s)", rows)

            return timed(work, depth, seconds)


def redis(size: int, depth: int, seconds: float) -> float:
    client("redis")
    import redis as client_of

    with folder() as place:
        port = free_port()
        options = [
            "--port",
            str(port),
            "--dir",
            str(place),
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
        ]
        with server([program("redis-server"), *options], port):
            connection = client_of.Redis(port=port)
            body = bytes(size)

            def work() -> None:
                pipeline = connection.pipeline(transaction=False)
                for _ in range(depth):
                    pipeline.xadd("events", {"body": body})
                pipeline.execute()

            try:
                return timed(work, depth, seconds)
            finally:
                connection.close()


def jetstream(size: int, depth: int, seconds: float) -> float:
    client("nats")
    with folder() as place:
        port = free_port()
        for sync in ("sync_interval: always", ""):
            config = place / "server.conf"
            config.write_text(f'port: {port}\nhost: 127.0.0.1\njetstream {{ store_dir: "{place}/js"\n {sync} }}\n')
            try:
                with server([program("nats-server"), "-c", str(config)], port):
                    SETTINGS["jetstream"] = (
                        sync or "this server knows no sync_interval: acknowledged before it is on disk"
                    )
                    return asyncio.run(_jetstream(port, size, depth, seconds))
            except Unavailable:
                if not sync:
                    raise
    raise AssertionError("unreachable")


async def _jetstream(port: int, size: int, depth: int, seconds: float) -> float:
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name="events", subjects=["events"])
    body = bytes(size)

    async def work() -> None:
        await asyncio.gather(*[stream.publish("events", body) for _ in range(depth)])

    for _ in range(WARM_WINDOWS):
        await work()
    count, since = 0, perf_counter()
    while perf_counter() - since < seconds:
        await work()
        count += depth
    rate = count / (perf_counter() - since)
    await connection.close()
    return rate


def rabbitmq(size: int, depth: int, seconds: float) -> float:
    from .rabbit import rabbitmq as measured

    return measured(size, depth, seconds)


KEPT: dict[str, Callable[[int, int, float], float]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "redis": redis,
    "jetstream": jetstream,
    "rabbitmq": rabbitmq,
}
SETTINGS = {
    "sqlite": "one table, WAL, synchronous FULL, a transaction for every window",
    "postgresql": "one table, defaults (fsync on), a pipelined executemany in a transaction for every window",
    "redis": "a stream, appendfsync always, a pipeline for every window",
    "jetstream": "a file stream, sync_interval always, a window of publish calls",
    "rabbitmq": "a durable queue, persistent messages with confirms, a window of publish calls",
}


def kept_names(wanted: str) -> list[str]:
    """The systems that a text names, separated by commas; ``all`` is every system."""
    if wanted == "all":
        return list(KEPT)
    for word in filter(None, wanted.split(",")):
        if word not in KEPT:
            raise BadInput(f"there is no peer {word!r} that keeps events: use all, or some of {', '.join(KEPT)}")
    return [word for word in wanted.split(",") if word]
