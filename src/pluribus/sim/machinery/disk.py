"""The simulated disk: synced writes survive a crash, other writes may vanish or tear; surviving data may be damaged
later.

A write is in the machine's cache until its completion, which comes after the disk's latency, in the order of
submission. A crash keeps some of the writes that were under way, the first ones, and may catch the next one half
written; the store finds that out by its checksums and drops it, as the journal of a database does. So a write is there
whole or not at all. Bits flip and tails get lost in what was acknowledged long ago. Reading gives None where a row was
damaged, and ``get`` raises; wrong bytes are never read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ...core.errors import Damaged, PluribusError, Unavailable
from ...core.ports import Append, Bounds, Change, Put, Repair, Replace
from ...store.backend import value_sum
from ...store.memory import MemoryBackend, Undo
from .kernel import Kernel

COMMITS_KEPT = 8
"""How many of the last commits can be lost with the end of the journal."""
Done = Callable[[Exception | None], None]
Gate = Callable[[Callable[[], None]], None]


def at_once(callback: Callable[[], None]) -> None:
    """The gate of a host that is never paused."""
    callback()


def _size_of(change: Change) -> int:
    match change:
        case Append():
            return sum(map(len, change.rows))
        case Repair() | Replace():
            return len(change.row)
        case Put():
            return len(change.value)
    return 0


class SimStore:
    """The store port of one host; it outlives the host's incarnations. ``gate`` holds completions back while the host
    is paused."""

    def __init__(
        self, kernel: Kernel, random: Random, faults: Counter[str], latency_s: float = 0.005, gate: Gate = at_once
    ) -> None:
        self._kernel = kernel
        self._random = random
        self._faults = faults
        self.latency_s = latency_s
        self._gate = gate
        self._platter = MemoryBackend()
        self._cached: deque[list[Undo]] = deque()
        self._synced: deque[list[Undo]] = deque(maxlen=COMMITS_KEPT)
        """How to undo the last commits."""
        self._lacks_commits = False
        self._incarnation = 0
        self._idle_at = 0.0
        self.writes = self.written_bytes = 0
        """The synchronised writes so far, and the bytes of rows and values in them."""
        self.full = False
        """Set it to have every write answered with an error."""
        self.broken = False
        """The structure of its file is damaged: no write succeeds until it is set aside."""

    def write(self, changes: Sequence[Change], done: Done) -> None:
        if self.full:
            self._faults["disk_full"] += 1
            self._complete(done, Unavailable("no room on the disk: free some space"))
            return
        if self.broken:
            self._complete(done, Damaged("the structure of the store is damaged: other keepers put it back"))
            return
        undo: list[Undo] = []
        try:
            for change in changes:
                undo.append(self._platter.apply(change))
        except PluribusError as error:
            for take_back in reversed(undo):
                take_back()
            self._complete(done, error)
            return
        self._cached.append(undo)
        self.writes += 1
        self.written_bytes += sum(map(_size_of, changes))
        self._complete(done, None)

    def append(self, log: str, rows: Sequence[bytes], done: Done) -> None:
        self.write([Append(log, rows)], done)

    def put(self, key: str, value: bytes, done: Done) -> None:
        self.write([Put(key, value)], done)

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        return self._platter.read(log, start, stop)

    def fetch(
        self,
        log: str,
        positions: Sequence[int],
        work: Callable[[Sequence[bytes | None]], Any],
        done: Callable[[Any, Exception | None], None],
    ) -> None:
        """The reader thread is virtual time: rows are read when the disk's latency is over."""
        incarnation, wanted = self._incarnation, list(positions)

        def tell() -> None:
            if incarnation == self._incarnation:
                rows = [(self._platter.read(log, at, at + 1) or [None])[0] for at in wanted]
                done(work(rows), None)

        self._kernel.at(self._kernel.now + self.latency_s * (0.5 + self._random.random()), lambda: self._gate(tell))

    def get(self, key: str) -> bytes | None:
        return self._platter.get(key)

    def bounds(self, log: str) -> Bounds:
        return self._platter.bounds(log)

    def end(self, log: str) -> int:
        return self._platter.bounds(log).end

    def renew(self, changes: Sequence[Change]) -> str:
        if self.full:
            raise Unavailable("no room on the disk: free some space")
        assert not self._cached, "writes are under way"
        self._platter = MemoryBackend()
        self._synced.clear()
        self._platter.write(changes)
        self._platter.commit()
        self.broken = False
        return "another file"

    def shatter(self) -> None:
        """The file's structure goes bad: many rows are not found any more, and nothing can be written."""
        for kept in self._platter.logs.values():
            kept.rows[:] = [None if self._random.random() < 0.5 else row for row in kept.rows]
        self.broken = True
        self._faults["broken_store"] += 1

    def crash(self) -> None:
        """The machine's cache is gone: keep what was synced and the first part of the rest."""
        self._incarnation += 1
        if not self._lacks_commits:  # it was written to since, so its mark is right again
            for kept in self._platter.logs.values():
                kept.sure = True
        if not self._cached:
            return
        keep = self._random.randrange(len(self._cached) + 1)
        if keep < len(self._cached):
            self._faults["unsynced_lost"] += 1
            self._faults["torn_write"] += self._random.random() < 0.5  # half of it was on the platter, to no effect
        while len(self._cached) > keep:
            for take_back in reversed(self._cached.pop()):
                take_back()
        self._synced.extend(self._cached)
        self._cached.clear()

    def lose_commits(self) -> bool:
        """Of a machine that is down: the end of the journal is gone with the commits in it, and the store knows that
        some are missing. False if there are few."""
        if len(self._synced) < COMMITS_KEPT or self.broken:
            return False
        for _ in range(self._random.randrange(1, COMMITS_KEPT)):
            for take_back in reversed(self._synced.pop()):
                take_back()
        for kept in self._platter.logs.values():
            kept.sure = False
        self._lacks_commits = True
        self._faults["lost_commits"] += 1
        return True

    def flip(self) -> bool:
        """Flip one bit of one stored row or value; false if nothing is stored."""
        random, platter = self._random, self._platter
        logs = [log for log, kept in sorted(platter.logs.items()) if any(kept.rows)]
        if not logs and not platter.keys:
            return False
        if logs and (random.random() < 0.8 or not platter.keys):
            rows = platter.logs[random.choice(logs)].rows
            at = random.choice([at for at, row in enumerate(rows) if row is not None])
            rows[at] = self._flipped(rows[at] or (0, b""))
        else:
            key = random.choice(sorted(platter.keys))
            platter.keys[key] = self._flipped(platter.keys[key])
        self._faults["bit_flip"] += 1
        return True

    def lose_tail(self) -> bool:
        """The last rows of one log are gone, and the log still knows where it ended; false if nothing is stored."""
        logs = [log for log, kept in sorted(self._platter.logs.items()) if any(kept.rows)]
        if not logs:
            return False
        rows = self._platter.logs[self._random.choice(logs)].rows
        count = self._random.randrange(1, min(len(rows), 8) + 1)
        rows[-count:] = [None] * count
        self._faults["lost_tail"] += 1
        return True

    @property
    def idle_at(self) -> float:
        """When all that was written so far is synced, if the machine does not crash before."""
        return self._idle_at

    def damage(self) -> int:
        """How many records differ from what was written; for tests that must not damage too much."""
        platter = self._platter
        rows = sum(platter.read(log, kept.start, 1 << 60).count(None) for log, kept in platter.logs.items())
        return (
            self.broken
            + self._lacks_commits
            + rows
            + sum(value_sum(key, value) != checksum for key, (checksum, value) in platter.keys.items())
        )

    def _flipped(self, sealed: tuple[int, bytes]) -> tuple[int, bytes]:
        checksum, row = sealed
        bit = self._random.randrange(32 + 8 * len(row))
        if bit < 32:
            return checksum ^ (1 << bit), row
        damaged = bytearray(row)
        damaged[(bit - 32) // 8] ^= 1 << (bit % 8)
        return checksum, bytes(damaged)

    def _complete(self, done: Done, error: Exception | None) -> None:
        incarnation = self._incarnation

        def complete() -> None:
            if incarnation != self._incarnation:
                return  # the host crashed in between: nothing was synced, and nobody is there to hear it
            if error is None:
                self._synced.append(self._cached.popleft())
                self._lacks_commits = False
            self._gate(tell)

        def tell() -> None:
            if incarnation == self._incarnation:
                done(error)

        ready_at = self._kernel.now + self.latency_s * (0.5 + self._random.random())
        self._idle_at = max(self._idle_at, ready_at)
        self._kernel.at(self._idle_at, complete)
