"""The stores there are, and how a test opens one: a new one is a line in ``OPENERS``."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from zlib import crc32

from pluribus.core.errors import Fenced
from pluribus.store.backend import Backend
from pluribus.store.memory import MemoryBackend
from pluribus.store.postgres import PostgresBackend
from pluribus.store.sqlite import SqliteBackend

LOCKED_S_MAX = 20.0
_in_memory: dict[Path, MemoryBackend] = {}


def memory(folder: Path, dsn: str) -> Backend:
    """Opened again, it is the same one, without what was not committed."""
    return _in_memory.setdefault(folder, MemoryBackend())


def sqlite(folder: Path, dsn: str) -> Backend:
    return SqliteBackend(folder / "store.db")


def postgres(folder: Path, dsn: str) -> Backend:
    """A server takes a moment to notice that a session was closed, and the session has its lock until then."""
    until = monotonic() + LOCKED_S_MAX
    while True:
        try:
            return PostgresBackend(dsn, schema=schema_of(folder))
        except Fenced:
            if monotonic() > until:
                raise


def schema_of(folder: Path) -> str:
    return f"test_{crc32(str(folder).encode()):08x}"


def drop_schema(folder: Path, dsn: str) -> None:
    import psycopg

    with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {schema_of(folder)} CASCADE".encode())


Opener = Callable[[Path, str], Backend]
OPENERS: dict[str, Opener] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}
