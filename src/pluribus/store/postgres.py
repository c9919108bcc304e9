"""A store on a PostgreSQL server, for sites that run one with backups already.

One row of the table ``fence`` says which process may write: its epoch, and how many commits it made. Every transaction
counts itself there under the epoch of its process, or fails. A process takes over by raising the epoch, which waits for
a commit that is under way, so a commit of the old one is either there before the takeover or never (a paused process
wakes up to ``Fenced``). So that two processes do not take over from each other all the time, the active one holds an
advisory lock as long as its session lives, and the others stand by.

The count also says, after a lost connection, whether the last commit was done.

Statements gather and travel together, so that a commit is one round trip. psycopg is loaded when it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, Fenced, MissingExtra, Unavailable
from ..core.ports import Bounds
from .backend import Reader
from .tables import MAJOR, MINOR, VERSION, Stored, Tables

if TYPE_CHECKING:
    import psycopg

log_ = logging.getLogger("pluribus")

_FENCED_STATE = "PB001"
_SCHEMA = """
CREATE TABLE version (number integer NOT NULL);
INSERT INTO version VALUES ({version});
CREATE TABLE fence (one boolean PRIMARY KEY CHECK (one), epoch bigint NOT NULL, commits bigint NOT NULL);
INSERT INTO fence VALUES (true, 0, 0);
CREATE TABLE logs (id integer PRIMARY KEY, log text NOT NULL UNIQUE, start bigint NOT NULL, stop bigint NOT NULL,
    sum bigint NOT NULL);
CREATE TABLE rows (log integer NOT NULL, position bigint NOT NULL, sum bigint NOT NULL, row bytea NOT NULL,
    PRIMARY KEY (log, position));
ALTER TABLE rows ALTER COLUMN row SET STORAGE EXTERNAL;
CREATE TABLE keys (key text PRIMARY KEY, sum bigint NOT NULL, value bytea NOT NULL);
ALTER TABLE keys ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE FUNCTION count_commit(mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE fence SET commits = commits + 1 WHERE epoch = mine;
    IF NOT FOUND THEN RAISE EXCEPTION 'fenced' USING ERRCODE = '{fenced}'; END IF;
END $$;
"""


class PostgresBackend(Tables):
    """``dsn`` as psycopg takes it; each keeper that is a voter of its own has its own ``schema``."""

    embedded = False

    def __init__(self, dsn: str, schema: str = "pluribus") -> None:
        super().__init__()
        if not schema.isidentifier() or not schema.isascii() or len(schema) > 60:
            raise BadInput(f"{schema!r} is no name for a schema: use up to 60 letters, digits and underscores")
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("psycopg is not installed: pip install 'pluribus[postgres]'") from None
        self._psycopg = psycopg
        self._dsn = dsn
        self._schema = schema
        self._gathered: list[tuple[str, tuple[Any, ...]]] = []
        self._epoch = self._commits = 0
        self._db: psycopg.Connection[Any] | None = None
        try:
            with self._told("be opened"):
                self._connect()
                self._prepare()
                self._take_over()
        except Unavailable:
            self.close()
            raise

    def bounds(self, log: str) -> Bounds:
        with self._told("be read"):
            return super().bounds(log)

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        with self._told("be read"):
            return super().read(log, start, stop)

    def get(self, key: str) -> bytes | None:
        with self._told("be read"):
            return super().get(key)

    def write(self, changes: Sequence[Any]) -> None:
        with self._told("be written"):
            super().write(changes)

    def commit(self) -> None:
        with self._told("be written"):
            super().commit()

    def renew(self, changes: Sequence[Any]) -> str:
        raise Unavailable(f"{self} is damaged, and a server's tables are not set aside: give this keeper a new schema")

    def reader(self) -> Reader | None:
        return None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def __repr__(self) -> str:
        return f"the schema {self._schema} of {self._connection_name()}"

    # The connection, and the right to write.

    def _connect(self) -> None:
        """A session that waits for the disk at every commit, and that the server ends soon after this process is
        gone."""
        db = self._psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=10, keepalives_idle=5, keepalives_interval=2, keepalives_count=3
        )
        self._db = db
        for setting in ("tcp_keepalives_idle = 5", "tcp_keepalives_interval = 2", "tcp_keepalives_count = 3"):
            db.execute(f"SET {setting}")
        db.execute("SET synchronous_commit = on")
        db.execute(f"SET search_path = {self._schema}")

    def _prepare(self) -> None:
        db = self._live()
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"pluribus make {self._schema}",))
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            there = "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s"
            tables = _one(db.execute(there, (self._schema,)))[0]
            if not tables:
                db.execute(_SCHEMA.format(version=VERSION, fenced=_FENCED_STATE).encode())
            elif db.execute("SELECT to_regclass('fence')").fetchone() == (None,):
                raise Unavailable(f"{self} belongs to another program: name another schema")
        version = _one(db.execute("SELECT number FROM version"))[0]
        if version // 1_000 != MAJOR:
            raise Unavailable(
                f"{self} is a store of version {version // 1_000}.{version % 1_000}, this release writes "
                f"{MAJOR}.{MINOR}: use a release of the same major version"
            )
        if _one(db.execute("SHOW fsync"))[0] != "on":
            log_.warning("%s acknowledges what is not on disk: its server runs with fsync = off", self)

    def _take_over(self) -> None:
        db = self._live()
        held = _one(db.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (f"pluribus write {self._schema}",)))[0]
        if not held:
            raise Fenced(f"{self} has an active keeper in another process: wait until that one is gone")
        raised = "UPDATE fence SET epoch = epoch + 1 RETURNING epoch, commits"
        self._epoch, self._commits = _one(db.execute(raised))

    def _reconnect(self) -> None:
        """Reconnect after a lost connection: no other process may have written in between."""
        self.close()
        try:
            self._connect()
            self._go_on()
        except BaseException:
            self.close()  # without the lock it must not write, and does not know the count
            raise

    def _go_on(self) -> None:
        """Go on with the lock held. The server may not have noticed yet that the last session was lost, and while that
        session lives, its commit may still come."""
        db = self._live()
        held = _one(db.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (f"pluribus write {self._schema}",)))[0]
        epoch, commits = _one(db.execute("SELECT epoch, commits FROM fence"))
        if epoch != self._epoch:
            raise Fenced(f"{self} was taken over by another process (epoch {epoch}): this one must not write any more")
        if not held:
            raise Unavailable(f"{self} has a session that was lost and has not ended: try again in a few seconds")
        self._known.clear()
        self._commits = commits

    def _live(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed:
            raise Unavailable(f"{self} is not connected")
        return self._db

    # Transactions: gathered, sent together.

    def _begin(self) -> None:
        if self._db is None or self._db.closed or self._db.broken:
            self._reconnect()
        self._gathered = [("BEGIN", ()), ("SELECT count_commit(%s)", (self._epoch,))]

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            db = self._live()
            with db.pipeline():
                for statement, arguments in gathered:
                    db.execute(statement, arguments)

    def _commit(self) -> None:
        expected = self._commits + 1
        self._gathered.append(("COMMIT", ()))
        try:
            self._flush()
        except self._psycopg.OperationalError:
            if not self._live_or_lost():
                self._reconnect()  # raises the error that keeps us from knowing
                if self._commits == expected:
                    return
            raise
        self._commits = expected

    def _live_or_lost(self) -> bool:
        return self._db is not None and not self._db.closed and not self._db.broken

    def _rollback(self) -> None:
        self._gathered.clear()
        if self._live_or_lost():
            with suppress(self._psycopg.Error):
                self._live().execute("ROLLBACK")

    def _insert(self, number: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
        statement = "INSERT INTO rows SELECT %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])"
        if rows:
            at, sums, content = zip(*rows, strict=True)
            self._gathered.append((statement, (number, list(at), list(sums), list(content))))

    def _remove(self, number: int, start: int, stop: int) -> None:
        statement = "DELETE FROM rows WHERE log = %s AND position >= %s AND position < %s"
        self._gathered.append((statement, (number, start, stop)))

    def _put(self, key: str, checksum: int, value: bytes) -> None:
        statement = "INSERT INTO keys VALUES (%s, %s, %s) ON CONFLICT (key) DO UPDATE SET sum = %s, value = %s"
        self._gathered.append((statement, (key, checksum, value, checksum, value)))

    def _delete(self, key: str) -> None:
        self._gathered.append(("DELETE FROM keys WHERE key = %s", (key,)))

    def _save(self, number: int, log: str, start: int, stop: int, checksum: int) -> None:
        statement = "UPDATE logs SET start = %s, stop = %s, sum = %s WHERE id = %s"
        self._gathered.append((statement, (start, stop, checksum, number)))

    def _new(self, log: str, checksum: int) -> int:
        statement = "SELECT greatest((SELECT max(id) FROM logs), (SELECT max(log) FROM rows), 0) + 1"
        number = int(self._asked(statement, ())[0][0])
        self._gathered.append(("INSERT INTO logs VALUES (%s, %s, 0, 0, %s)", (number, log, checksum)))
        self._flush()
        return number

    # Questions: they see the changes that were gathered before them.

    def _asked(self, statement: str, arguments: tuple[Any, ...]) -> list[Any]:
        if not self._open and not self._live_or_lost():
            self._reconnect()
        self._flush()
        return self._live().execute(statement, arguments, binary=True).fetchall()

    def _select(self, number: int, start: int, stop: int) -> Iterable[Stored]:
        statement = "SELECT position, sum, row FROM rows WHERE log = %s AND position >= %s AND position < %s"
        return self._asked(statement, (number, start, stop))

    def _value(self, key: str) -> tuple[int, object] | None:
        found = self._asked("SELECT sum, value FROM keys WHERE key = %s", (key,))
        return found[0] if found else None

    def _load(self, log: str) -> tuple[int, int, int, int] | None:
        found = self._asked("SELECT id, start, stop, sum FROM logs WHERE log = %s", (log,))
        return found[0] if found else None

    def _span(self, number: int) -> tuple[int | None, int | None]:
        first, last = self._asked("SELECT min(position), max(position) FROM rows WHERE log = %s", (number,))[0]
        return first, last

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """The server's error as one sentence of ours."""
        try:
            yield
        except self._psycopg.Error as error:
            if getattr(error, "sqlstate", None) == _FENCED_STATE:
                raise Fenced(f"{self} was taken over by another process: this one must not write any more") from None
            words = " ".join(str(error).split())
            raise Unavailable(f"{self} cannot {what} ({words}): look at the server and its log") from None

    def _connection_name(self) -> str:
        """The address of the server, without its password."""
        told = self._psycopg.conninfo.conninfo_to_dict(self._dsn)
        return f"{told.get('host', 'local')}:{told.get('port', 5432)}/{told.get('dbname', '')}"


def _one(cursor: Any) -> Any:
    return cursor.fetchone()
