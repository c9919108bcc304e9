"""The store port on a real disk: submit now, hear later. One thread writes, so that the loop never waits for a disk.

Whatever was submitted while the thread was busy is written together and shares one synchronisation: the busier the
bus, the more rows an fsync. Completions arrive on the loop, in the order of submission.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..core.errors import Closed, Overflow
from ..core.limits import STORE_COMMIT_MAX, STORE_SUBMISSIONS_MAX
from ..store.backend import Backend

Done = Callable[[Exception | None], None]
_Work = tuple[Callable[[], None], Done]


class StoreWriter:
    """``core.ports.Store`` over a blocking backend. Reads see what was submitted before them."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self._backend = backend
        self._loop = loop
        self._work: queue.Queue[_Work | None] = queue.Queue(STORE_SUBMISSIONS_MAX)
        self._using = threading.Lock()
        self._closed = False
        self.commits = 0
        self.submissions = 0
        self._thread = threading.Thread(target=self._write, name="pluribus-store", daemon=True)
        self._thread.start()

    def append(self, log: str, rows: Sequence[bytes], done: Done) -> None:
        kept = list(rows)
        self._submit(lambda: self._backend.append(log, kept), done)

    def put(self, key: str, value: bytes, done: Done) -> None:
        self._submit(lambda: self._backend.put(key, value), done)

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        with self._drained():
            return self._backend.read(log, start, stop)

    def get(self, key: str) -> bytes | None:
        with self._drained():
            return self._backend.get(key)

    def end(self, log: str) -> int:
        with self._drained():
            return self._backend.end(log)

    def close(self) -> None:
        """Everything that was submitted is written first."""
        if self._closed:
            return
        self._closed = True
        self._work.put(None)
        self._thread.join()
        self._backend.close()

    @contextmanager
    def _drained(self) -> Iterator[None]:
        """The backend to oneself, after everything that was submitted."""
        self._check_open()
        self._work.join()
        with self._using:
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the store is closed: connect again")

    def _submit(self, work: Callable[[], None], done: Done) -> None:
        self._check_open()
        try:
            self._work.put_nowait((work, done))
        except queue.Full:
            raise Overflow(f"{STORE_SUBMISSIONS_MAX} writes wait for the disk: wait for completions") from None
        self.submissions += 1

    def _write(self) -> None:
        while True:
            batch = [self._work.get()]
            while len(batch) < STORE_COMMIT_MAX and not self._work.empty():
                batch.append(self._work.get())
            stop = None in batch
            works = [work for work in batch if work is not None]
            error = self._commit(works)
            for _ in batch:
                self._work.task_done()
            if works:
                with suppress(RuntimeError):  # the loop was closed before its store; nobody waits any more
                    self._loop.call_soon_threadsafe(self._complete, [done for _, done in works], error)
            if stop:
                return

    def _commit(self, works: list[_Work]) -> Exception | None:
        with self._using:
            try:
                for work, _ in works:
                    work()
                self._backend.commit()
            except Exception as error:  # noqa: BLE001 - whatever the disk says goes to those who wait for it
                with suppress(Exception):  # the first complaint is the one to tell
                    self._backend.rollback()
                return error
            self.commits += 1
            return None

    def _complete(self, dones: list[Done], error: Exception | None) -> None:
        for done in dones:
            self._loop.call_soon(done, error)  # one that raises must not keep the others from hearing
