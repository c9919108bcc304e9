"""The store port on a real disk: a write is submitted, and completes later. One thread writes, so that the loop need
not wait for the disk.

Writes that were submitted while the thread was busy are committed together and share one fsync: the busier the bus, the
more rows an fsync. Completions arrive on the loop, in the order of submission. If several writes cannot be committed
together, each is tried alone, so that one bad write does not fail the others.

Waking a thread, which then wakes the loop, costs more than a quick commit. So a writer that is ``alone``, because no
other keeper waits for it, commits at the end of the loop's turn, as long as commits have been quick and nothing was
submitted while the disk was at work. Now and then the thread commits, to see whether that is still so; and always when
the store has to tidy up, which takes long and says nothing about other commits.

A program that receives and sends submits two writes, one shortly after the other: what it settles, and what it sends
next. The second just misses the commit of the first. So when a write came while another was under way, the next ones
wait for one turn of the loop more; if nothing joins them in ``PATIENCE`` commits, they do not wait any longer.

Reads of committed rows use a connection of their own and do not wait. Reads of other rows wait until these are
committed. Rows that are read without holding up the loop are read by another thread (``fetcher``).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter

from ...core.errors import Closed, Overflow
from ...core.limits import STORE_COMMIT_MAX, STORE_SUBMISSIONS_MAX
from ...core.ports import Append, Bounds, Change, Cut, Put, Repair, Replace, Restart, Trim
from ...store.backend import Backend
from .fetcher import Fetched, Fetcher, Work

Done = Callable[[Exception | None], None]
QUICK_S = 0.002
"""A commit that takes less may be made on the loop."""
CALM = 16
"""How many commits must have been quick, with nothing submitted meanwhile, before the loop commits itself."""
PROBED = 64
"""After so many commits on the loop the thread commits once."""
PATIENCE = 64
"""Commits that wait a turn more after a write has missed one."""
_REWRITES = (Cut, Trim, Restart, Repair, Replace)
_Work = tuple[Sequence[Change], Done]


class StoreWriter:
    """``core.ports.Store`` over a blocking backend. Reads see what was submitted before them."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self._backend = backend
        self._reader = backend.reader()
        self._loop = loop
        self._fetcher: Fetcher | None = None
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._using = threading.Lock()
        self._ended = threading.Condition()
        self._committed: dict[str, Bounds] = {}
        self._rewriting: Counter[str] = Counter()
        self._closed = False
        self.alone: Callable[[], bool] = lambda: False
        """True if no other keeper waits for this one while its disk works."""
        self._turn: list[_Work] = []
        """Writes that are committed when the loop's turn ends."""
        self._patience = 0
        """How many of the next commits wait a turn more."""
        self._calm = 0
        self._completed = 0
        """Submissions whose callers were told, counted by the loop; ``finished`` is counted by the thread."""
        self.commits = 0
        self.submissions = 0
        self.finished = 0
        """Submissions that are on disk, or have failed."""
        self.in_turn = 0
        """Commits that were made in a turn of the loop."""
        self._thread = threading.Thread(target=self._write, name="pluribus-store", daemon=True)
        self._thread.start()

    def write(self, changes: Sequence[Change], done: Done) -> None:
        self._check_open()
        if self.submissions - self.finished >= STORE_SUBMISSIONS_MAX:
            raise Overflow(f"{STORE_SUBMISSIONS_MAX} writes wait for the disk: wait for completions")
        if len(changes) != 1 or type(changes[0]) is not Append:  # mostly it is one append
            self._rewrites(changes, 1)
        first = self._completed == self.submissions
        self.submissions += 1
        if self._turn:
            self._turn.append((changes, done))
        elif first and ((self._patience and self.alone()) or self._may_commit()):
            self._turn.append((changes, done))
            self._loop.call_soon(self._turn_ended, bool(self._patience))
        else:
            if not first:
                self._patience = PATIENCE
            self._work.put((changes, done))

    def _may_commit(self) -> bool:
        """Whether the loop's turn may wait for the disk."""
        return self._calm >= CALM and self._backend.embedded and not self._backend.laden and self.alone()

    def append(self, log: str, rows: Sequence[bytes], done: Done) -> None:
        self.write((Append(log, tuple(rows)),), done)

    def put(self, key: str, value: bytes, done: Done) -> None:
        self.write((Put(key, value),), done)

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        known = self._committed.get(log)
        if self._reader is not None and known is not None and stop <= known.end and not self._rewriting[log]:
            self._check_open()
            return self._reader.read(log, max(start, known.start), stop)
        with self._drained():
            self._committed[log] = self._backend.bounds(log)
            return self._backend.read(log, start, stop)

    def fetch(self, log: str, positions: Sequence[int], work: Work, done: Fetched) -> None:
        """In the reader thread, which is started when it is first needed."""
        self._check_open()
        if self._fetcher is None:
            self._fetcher = Fetcher(self._backend, self._using, self._loop)
        self._fetcher.fetch(log, positions, work, done)

    def get(self, key: str) -> bytes | None:
        with self._drained():
            return self._backend.get(key)

    def bounds(self, log: str) -> Bounds:
        with self._drained():
            return self._backend.bounds(log)

    def end(self, log: str) -> int:
        return self.bounds(log).end

    def renew(self, changes: Sequence[Change]) -> str:
        """See ``Store.renew``. The loop waits for it: it is rare, and takes a few fsyncs."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        with self._drained():
            if self._reader is not None:
                self._reader.close()
            try:
                return self._backend.renew(changes)
            finally:
                self._committed = {}
                self._reader = self._backend.reader()

    def close(self) -> None:
        """Everything that was submitted is written first."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        self._work.put(None)
        self._thread.join()
        if self._fetcher is not None:
            self._fetcher.close()
        if self._reader is not None:
            self._reader.close()
        self._backend.close()

    @contextmanager
    def _drained(self) -> Iterator[None]:
        """The backend to oneself, after everything that was submitted."""
        self._check_open()
        self._hand_over()
        with self._ended:
            self._ended.wait_for(lambda: self.finished == self.submissions)
        with self._using:
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the store is closed: connect again")

    def _write(self) -> None:
        while True:
            batch = [self._work.get()]
            while len(batch) < STORE_COMMIT_MAX and not self._work.empty():
                batch.append(self._work.get())
            stop = None in batch
            works = [work for work in batch if work is not None]
            laden = self._backend.laden
            errors, seconds = self._timed(works)
            with self._ended:
                self.finished += len(works)
                self._ended.notify_all()
            calm = self._work.empty() and (laden or seconds < QUICK_S)
            if works:
                with suppress(RuntimeError):  # the loop was closed before its store; nobody waits any more
                    self._loop.call_soon_threadsafe(self._complete, works, errors, calm)
            if stop:
                return

    def _hand_over(self) -> None:
        """Let the thread commit what waits for the end of the turn."""
        works, self._turn = self._turn, []
        for work in works:
            self._work.put(work)

    def _turn_ended(self, waits: bool) -> None:
        if waits:
            self._loop.call_soon(self._turn_ended, False)
            return
        if self._patience:
            self._patience = PATIENCE if len(self._turn) > 1 else self._patience - 1
        if not self._may_commit():
            self._hand_over()
        works, self._turn = self._turn, []
        if works:
            errors, seconds = self._timed(works)
            self.finished += len(works)  # the thread has nothing to do, and this is the only caller that waits for it
            self.in_turn += 1
            self._complete(works, errors, seconds < QUICK_S)

    def _timed(self, works: list[_Work]) -> tuple[list[Exception | None], float]:
        started = perf_counter()
        with self._using:
            errors = self._commit(works)
        return errors, perf_counter() - started

    def _commit(self, works: list[_Work]) -> list[Exception | None]:
        """Commit together, or else one by one; returns the outcome of each."""
        error = self._committed_together(works)
        if error is None:
            return [None] * len(works)
        if len(works) == 1:
            return [error]
        return [self._committed_together([work]) for work in works]

    def _committed_together(self, works: list[_Work]) -> Exception | None:
        backend = self._backend
        try:
            for changes, _ in works:
                backend.write(changes)
            backend.commit()
        except Exception as error:  # noqa: BLE001 - whatever the disk says goes to those who wait for it
            with suppress(Exception):  # the first complaint is the one to tell
                backend.rollback()
            return error
        self.commits += 1
        try:
            for log in self._committed:
                self._committed[log] = backend.bounds(log)
        except Exception:  # noqa: BLE001 - it is committed all the same; the next reader asks anew
            self._committed = {}
        return None

    def _complete(self, works: list[_Work], errors: list[Exception | None], calm: bool) -> None:
        self._completed += len(works)
        self._calm = (CALM - 1 if self._calm >= CALM + PROBED else self._calm + 1) if calm else 0
        for (changes, done), error in zip(works, errors, strict=True):
            if len(changes) != 1 or type(changes[0]) is not Append:
                self._rewrites(changes, -1)
            try:
                done(error)
            except Exception as raised:  # noqa: BLE001 - one that raises must not keep the others from hearing
                self._loop.call_exception_handler({"message": "a store's completion failed", "exception": raised})

    def _rewrites(self, changes: Sequence[Change], by: int) -> None:
        """The writing thread reads logs that are not only appended to, until its work is done."""
        for change in changes:
            if isinstance(change, _REWRITES):
                self._rewriting[change.log] += by
