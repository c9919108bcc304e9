"""Tables on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from ....tables.result import SqlTable

ROWS_MAX = 10_000
TIMEOUT_S = 30.0


class TablesFace:
    """SQL over queues and durable topics."""

    async def sql(
        self: Styled, statement: str, *, rows_max: int = ROWS_MAX, timeout: float = TIMEOUT_S, push_down: bool = True
    ) -> SqlTable:
        """The rows of any SELECT of SQLite. It runs over copies: no message is taken or changed.

        A table is a durable queue (``orders``), a queue in memory that is open here (``memory.orders``), or a durable
        topic (``topics."stocks/ibm"``, also with ``+`` and ``#``). Where possible, conditions are applied before
        messages are copied (``push_down=False``: never; for tests). ``BadInput`` if the statement is not a SELECT over
        such tables, ``TooLarge`` for more than ``rows_max`` rows, ``Refused`` when it takes longer than ``timeout``
        seconds.
        """
        from .tables import Tables

        return await self._style(Tables).select(statement, {}, rows_max, timeout, push_down)
