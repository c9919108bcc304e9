"""SQLite in memory: copied columns, and one SELECT over them. Used by one thread at a time; ``stop`` by any.

What may be done is decided by SQLite's authorizer: while the statement is prepared and run it may select, read and call
functions, and nothing else. A progress handler ends it when its time is over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import BadInput, TooLarge

SCHEMAS = ("queues", "memory", "topics")
"""Where tables are: durable queues, queues in memory, durable topics. A name without a schema is looked for in this
order."""
STEPS = 10_000
"""Instructions of SQLite between two looks at the clock."""
VALUE_BYTES_MAX = 128 << 20
STATEMENT_BYTES_MAX = 65_536
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
FORBIDDEN = ("load_extension", "fts3_tokenizer")

Name = tuple[str, str]
"""A schema, and a table in it."""


class Database:
    """``late`` says whether the time is over; it is asked in the thread that runs the statement."""

    def __init__(self, late: Callable[[], bool]) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._late = late
        self._stopped = False
        for schema in SCHEMAS:
            self._db.execute(f"ATTACH ':memory:' AS {schema}")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        self._db.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, STATEMENT_BYTES_MAX)
        self._db.set_progress_handler(self._progress, STEPS)

    def create(self, name: Name, columns: Sequence[str], key: Sequence[str]) -> None:
        """A table, in the place of one of that name; rows are told apart by ``key``, which is among the columns."""
        schema, table = name
        self._db.execute(f"DROP TABLE IF EXISTS {schema}.{quoted(table)}")
        made = [f"{quoted(one)} INTEGER PRIMARY KEY" if [one] == list(key) else quoted(one) for one in columns]
        if len(key) > 1:
            made.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        rest = " WITHOUT ROWID" if len(key) > 1 else ""
        self._db.execute(f"CREATE TABLE {schema}.{quoted(table)} ({', '.join(made)}){rest}")

    def widen(self, name: Name, column: str) -> None:
        """One more column, null so far."""
        schema, table = name
        self._db.execute(f"ALTER TABLE {schema}.{quoted(table)} ADD COLUMN {quoted(column)}")

    def insert(self, name: Name, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        schema, table = name
        places = ", ".join("?" * len(columns))
        names = ", ".join(map(quoted, columns))
        self._db.execute("BEGIN")
        try:
            self._db.executemany(f"INSERT INTO {schema}.{quoted(table)} ({names}) VALUES ({places})", rows)  # noqa: S608 - names are quoted
        finally:
            self._db.execute("COMMIT")

    def reads(self, statement: str) -> set[tuple[str, str, str]]:
        """Schema, table and column of everything that a statement reads. Raises ``sqlite3.Error`` as SQLite says it,
        ``BadInput`` for what is no SELECT."""
        found: set[tuple[str, str, str]] = set()
        self._guarded(statement, "EXPLAIN ", found).close()
        return found

    def select(self, statement: str, rows_max: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of columns, and rows."""
        try:
            cursor = self._guarded(statement, "", set())
            columns = [one[0] for one in cursor.description or ()]
            rows = cursor.fetchmany(rows_max + 1)
        except sqlite3.Error as error:
            if self._stopped or self._late():
                raise TimeoutError from None
            raise BadInput(f"{error}: {_remedy(error)}") from None
        if len(rows) > rows_max:
            raise TooLarge(f"more than {rows_max:,} rows: add a LIMIT or a condition, or give rows_max=")
        return columns, rows

    def _guarded(self, statement: str, before: str, found: set[tuple[str, str, str]]) -> sqlite3.Cursor:
        refused: list[int] = []

        def allowed(action: int, first: str | None, second: str | None, schema: str | None, inside: str | None) -> int:
            if action == sqlite3.SQLITE_READ and schema in SCHEMAS and first is not None:
                found.add((schema, first, second or ""))
            fine = action in ALLOWED and not (action == sqlite3.SQLITE_FUNCTION and second in FORBIDDEN)
            if action == sqlite3.SQLITE_UPDATE and (first or "").startswith("sqlite_"):
                fine = True  # how SQLite declares its own table functions, such as json_each
            if not fine:
                refused.append(action)
            return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

        self._db.set_authorizer(allowed)
        try:
            return self._db.execute(before + statement)
        except sqlite3.Error as error:
            if refused:
                raise BadInput(
                    "only a SELECT can be asked for: queues are read, and changed by send and receive"
                ) from None
            if isinstance(error, sqlite3.ProgrammingError):
                raise BadInput(f"{error} Ask one SELECT at a time") from None
            raise
        finally:
            self._db.set_authorizer(None)

    def _progress(self) -> int:
        return int(self._stopped or self._late())

    def stop(self) -> None:
        """End what runs, soon."""
        self._stopped = True
        self._db.interrupt()

    def close(self) -> None:
        self._db.close()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _remedy(error: sqlite3.Error) -> str:
    told = str(error)
    if "memory" in told or "too big" in told:
        return "ask for less at a time"
    return "correct the statement; docs/queues.md has the columns"


def complaint(error: sqlite3.Error) -> BadInput:
    return BadInput(f"{error}: {_remedy(error)}")
