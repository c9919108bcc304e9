"""The reader thread of a store: it reads and decodes rows, so that the loop does not wait for the disk.

If a store can be read from two threads, the reader has a connection of its own and waits for no writer; otherwise
reader and writer take turns. Answers come on the loop, in the order of the questions.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from ...core.errors import Overflow
from ...store.backend import Backend

Work = Callable[[Sequence[bytes | None]], Any]
Fetched = Callable[[Any, Exception | None], None]
FETCHES_MAX = 4_096
"""The most questions that may wait for the thread."""
_Asked = tuple[str, Sequence[int], Work, Fetched]


class Fetcher:
    """Started when it is made. ``using`` is held while anybody uses the backend itself."""

    def __init__(self, backend: Backend, using: threading.Lock, loop: asyncio.AbstractEventLoop) -> None:
        self._backend = backend
        self._using = using
        self._loop = loop
        self._reader = backend.reader()
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread = threading.Thread(target=self._run, name="pluribus-reader", daemon=True)
        self._thread.start()

    def fetch(self, log: str, positions: Sequence[int], work: Work, done: Fetched) -> None:
        if self._waiting >= FETCHES_MAX:
            raise Overflow(f"{FETCHES_MAX:,} questions wait for the disk: wait for answers")
        self._waiting += 1
        self._asked.put((log, tuple(positions), work, done))

    def close(self) -> None:
        """What was asked before is answered."""
        self._asked.put(None)
        self._thread.join()
        if self._reader is not None:
            self._reader.close()

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            log, positions, work, done = asked
            result, error = None, None
            try:
                result = work(self._read(log, positions))
            except Exception as raised:  # noqa: BLE001 - whatever the disk says goes to those who wait for it
                error = raised
            with suppress(RuntimeError):  # the loop was closed before its store; nobody waits any more
                self._loop.call_soon_threadsafe(self._answer, done, result, error)

    def _answer(self, done: Fetched, result: Any, error: Exception | None) -> None:
        self._waiting -= 1
        done(result, error)

    def _read(self, log: str, positions: Sequence[int]) -> list[bytes | None]:
        rows: list[bytes | None] = []
        for _, together in groupby(enumerate(positions), lambda one: one[1] - one[0]):
            run = [at for _, at in together]
            rows += self._run_of(log, run[0], run[-1] + 1)
        return rows

    def _run_of(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        """Rows that follow each other, each of them in its place."""
        if self._reader is not None:
            return self._reader.read(log, start, stop)
        with self._using:
            return [(self._backend.read(log, at, at + 1) or [None])[0] for at in range(start, stop)]
