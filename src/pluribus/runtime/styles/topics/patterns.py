"""Row patterns on a subscription: ``async with bus.matches("stocks/#", pattern) as found: async for match in found``.

The fields of a pattern are those of a filter of the subscription: the body's, and of the envelope ``topic``,
``sender``, ``time`` and ``headers.NAME`` where the body has none of that name. Events are matched in the batches in
which they come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ....core.errors import Closed
from ....filters.events import has_field, read_path
from ....filters.tree import Path
from ....patterns import Match, Matcher, Pattern, Problem, parse
from ....patterns.events import Key, Rows
from ....patterns.references import Row

ENVELOPE = frozenset({"topic", "sender", "time", "headers"})


class EventRows(Rows):
    """Rows of events of a bus."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern)
        self._of_bodies: dict[type, Callable[[Any], tuple[Any, ...]] | None] = {}

    def row(self, event: Any) -> tuple[Key, Row]:
        body = event.body
        kind = body.__class__
        if kind not in self._of_bodies:
            self._of_bodies[kind] = self.quick_reader(kind)
        read = self._of_bodies[kind]
        try:
            values = read(body) if read is not None else self._read_slowly(event)
        except (KeyError, AttributeError):
            values = self._read_slowly(event)
        return self.of_values(values, event if self._whole else None)

    def _read_slowly(self, event: Any) -> tuple[Any, ...]:
        return tuple(_value(event, path) for path in self._paths)


def _value(event: Any, path: Path) -> Any:
    if path[0] in ENVELOPE and not has_field(event.body, path[0]):
        return read_path(getattr(event, path[0]), path[1:])
    return read_path(event.body, path)


class Matches:
    """Made by ``bus.matches``. It begins and ends like the subscription that it reads."""

    def __init__(
        self,
        subscribe: Callable[[], Any],
        pattern: Pattern | str,
        wall: Callable[[], float],
        *,
        lateness_s: float = 0.0,
        tick_s: float | None = None,
        on_problem: Callable[[Problem], None] | None = None,
    ) -> None:
        pattern = parse(pattern) if isinstance(pattern, str) else pattern
        self.matcher = Matcher(pattern, lateness_s=lateness_s, on_problem=on_problem, rows=EventRows(pattern))
        self.subscription = subscribe()
        self._wall = wall
        self._tick_s = tick_s
        self._found: deque[Match] = deque()

    @property
    def problems(self) -> deque[Problem]:
        """Events that found no place, the last of them."""
        return self.matcher.problems

    @property
    def closed(self) -> bool:
        return bool(self.subscription.closed)

    async def receive(self, timeout: float | None = None) -> Match:
        """The next match; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none."""
        async with asyncio.timeout(timeout):
            while not self._found:
                await self._look()
            return self._found.popleft()

    async def _look(self) -> None:
        """Wait for events, or for so long without any that the clock's time counts."""
        try:
            events = await self.subscription.receive_many(timeout=self._tick_s)
        except TimeoutError:
            self._found.extend(self.matcher.advance(self._wall()))
        else:
            self._found.extend(self.matcher.feed(events))

    def __aiter__(self) -> Matches:
        return self

    async def __anext__(self) -> Match:
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    async def open(self) -> Matches:
        await self.subscription.open()
        return self

    async def close(self) -> None:
        await self.subscription.close()

    def __repr__(self) -> str:
        return f"<matches in {self.subscription!r}>"

    async def __aenter__(self) -> Matches:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
