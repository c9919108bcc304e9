"""Opening something that takes some time, for all callers that ask for it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from ...core.errors import Unreachable


class Opening:
    """``async with`` for callers that wait until a group or a replica is open. If opening fails, or all callers give
    up, it is closed again, because no caller has it in hand to close it."""

    __slots__ = ("_close", "_waiting", "done")

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._waiting = 0
        self.done = False

    async def __aenter__(self) -> None:
        self._waiting += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting -= 1
        if error is None:
            self.done = True
        elif not (self._waiting and isinstance(error, asyncio.CancelledError | Unreachable)) and not self.done:
            await self._close()
