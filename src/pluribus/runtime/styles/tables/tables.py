"""Queries over the queues and durable topics of one bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from ....core.errors import BadInput, Refused
from ....queues.words import Outcome
from ....tables.database import Database
from ....tables.result import SqlTable
from ....tables.statement import Statement, TableRead
from ...machines.line import MachineLine
from ..queues.queue import MessageQueue, Queues
from ..style import Style
from .copying import QUEUE_COLUMNS, TOPIC_COLUMNS, Copying

T = TypeVar("T")
ROWS_MAX_MAX = 1_000_000
TIMEOUT_S_MAX = 3_600.0
COLUMNS = {"queues": QUEUE_COLUMNS, "memory": QUEUE_COLUMNS, "topics": TOPIC_COLUMNS}


class Tables(Style):
    """Queries. Nothing stays open: a query is over when it is answered."""

    on_clients: ClassVar[str] = "pluribus.runtime.styles.tables.tables:Tables"

    async def select(
        self, text: str, own: Mapping[str, MessageQueue], rows_max: int, timeout: float, push_down: bool
    ) -> SqlTable:
        """The rows of a SELECT. ``own`` are queues that the statement may name without a schema."""
        if not 0 < rows_max <= ROWS_MAX_MAX:
            raise BadInput(f"rows_max={rows_max!r}: give 1 to {ROWS_MAX_MAX:,}")
        if not 0 < timeout <= TIMEOUT_S_MAX:
            raise BadInput(f"timeout={timeout!r}: give seconds, from 0 to {TIMEOUT_S_MAX:,.0f}")
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        database = Database(lambda: loop.time() > until)
        try:
            async with asyncio.timeout_at(until):
                return await self._selected(database, text, own, rows_max, push_down)
        except TimeoutError:
            raise Refused(
                f"the query was not answered in {timeout:g} s: give it more conditions, or a longer timeout="
            ) from None
        finally:
            database.close()

    async def _selected(
        self, database: Database, text: str, own: Mapping[str, MessageQueue], rows_max: int, push_down: bool
    ) -> SqlTable:
        async def apart(work: Callable[..., T], *given: Any) -> T:
            task = asyncio.ensure_future(asyncio.to_thread(work, *given))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                database.stop()
                await asyncio.wait([task])
                raise

        schemas = {name: "queues" if queue.durable else "memory" for name, queue in own.items()}

        def read() -> Statement:
            statement = Statement(text, schemas, COLUMNS)
            statement.prepare(database)
            return statement

        statement = await apart(read)
        copying = Copying(database, apart, push_down)
        for wanted in statement.tables.values():
            if wanted.name[0] == "topics":
                await copying.topic(self.bus.durable, wanted)
            else:
                await copying.queue(await self._line(wanted), wanted)
        columns, rows = await apart(database.select, statement.text, rows_max)
        return SqlTable(columns, rows, copying.rows)

    async def _line(self, wanted: TableRead) -> MachineLine[Outcome]:
        """The line to a queue that exists: a query makes none."""
        schema, name = wanted.name
        queues: Queues = self.bus._style(Queues)
        found = queues.opened(name, schema == "queues")
        if found is not None:
            return found
        if schema == "memory":
            raise BadInput(f"no queue {name!r} in memory is open here: open it with bus.queue({name!r}, durable=False)")
        line: MachineLine[Outcome] = MachineLine(f"queue.{name}", self.bus.durable, Outcome, True)
        try:
            await line.inspect(b"")
        except BadInput:
            raise BadInput(
                f'there is no queue {name!r}: queues in memory are memory.NAME, durable topics topics."NAME"'
            ) from None
        return line
