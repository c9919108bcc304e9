"""The simulated disk: what was fsynced survives a crash, what was not may vanish, tear, or flip.

A row is written with a checksum. ``append`` and ``put`` complete after the disk's latency, in the order of submission;
until then the data is in the machine's cache only. A crash keeps a prefix, chosen by chance, of what was under way, and
may tear the first row that it loses. A flipped bit strikes any row, old or new; reading it gives None where a row was,
never wrong bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

from ..core.errors import Unavailable
from .kernel import Kernel

Done = Callable[[Exception | None], None]
Gate = Callable[[Callable[[], None]], None]


def at_once(callback: Callable[[], None]) -> None:
    """The gate of a host that is never paused."""
    callback()


class SimStore:
    """The store port of one host; it outlives the host's incarnations. ``gate`` holds completions back while the host
    is paused."""

    def __init__(
        self, kernel: Kernel, random: Random, faults: Counter[str], latency_s: float = 0.005, gate: Gate = at_once
    ) -> None:
        self._kernel = kernel
        self._random = random
        self._faults = faults
        self._latency_s = latency_s
        self._gate = gate
        self._logs: dict[str, list[bytes]] = {}
        self._durable: dict[str, int] = {}
        self._keys: dict[str, bytes] = {}
        self._writing: list[tuple[str, bytes]] = []
        self._incarnation = 0
        self._idle_at = 0.0
        self.full = False
        """Set it to have every write answered with an error."""

    def append(self, log: str, rows: Sequence[bytes], done: Done) -> None:
        if self.full:
            self._faults["disk_full"] += 1
            self._complete(done, Unavailable(f"no room for log {log!r}: free some disk space"))
            return
        kept = self._logs.setdefault(log, [])
        kept.extend(_sealed(row) for row in rows)
        end = len(kept)

        def synced() -> None:
            self._durable[log] = max(self._durable.get(log, 0), end)

        self._complete(done, None, synced)

    def put(self, key: str, value: bytes, done: Done) -> None:
        if self.full:
            self._faults["disk_full"] += 1
            self._complete(done, Unavailable(f"no room for key {key!r}: free some disk space"))
            return
        entry = (key, _sealed(value))
        self._writing.append(entry)

        def synced() -> None:
            self._writing.remove(entry)
            self._keys[key] = entry[1]

        self._complete(done, None, synced)

    def read(self, log: str, start: int, stop: int) -> list[bytes | None]:
        return [_opened(row) for row in self._logs.get(log, [])[start:stop]]

    def get(self, key: str) -> bytes | None:
        for written, value in reversed(self._writing):
            if written == key:
                return _opened(value)
        sealed = self._keys.get(key)
        return None if sealed is None else _opened(sealed)

    def end(self, log: str) -> int:
        return len(self._logs.get(log, []))

    def crash(self) -> None:
        """The machine's cache is gone: keep what was synced and a prefix of the rest, its last row perhaps torn."""
        self._incarnation += 1
        random = self._random
        if self._writing:
            kept = random.randrange(len(self._writing) + 1)
            self._keys.update(self._writing[:kept])
            self._faults["unsynced_lost"] += kept < len(self._writing)
            self._writing.clear()
        for log, rows in self._logs.items():
            durable = self._durable.get(log, 0)
            keep = random.randrange(durable, len(rows) + 1)
            lost = rows[keep:]
            del rows[keep:]
            if lost:
                self._faults["unsynced_lost"] += 1
                if random.random() < 0.5 and len(lost[0]) > 1:
                    rows.append(lost[0][: random.randrange(1, len(lost[0]))])
                    self._faults["torn_write"] += 1
            self._durable[log] = min(len(rows), max(durable, keep))

    def flip(self) -> bool:
        """Flip one bit of one stored row; false if nothing is stored."""
        logs = [log for log, rows in sorted(self._logs.items()) if rows]
        if not logs:
            return False
        rows = self._logs[self._random.choice(logs)]
        at = self._random.randrange(len(rows))
        damaged = bytearray(rows[at])
        damaged[self._random.randrange(len(damaged))] ^= 1 << self._random.randrange(8)
        rows[at] = bytes(damaged)
        self._faults["bit_flip"] += 1
        return True

    def _complete(self, done: Done, error: Exception | None, synced: Callable[[], None] | None = None) -> None:
        incarnation = self._incarnation

        def complete() -> None:
            if incarnation != self._incarnation:
                return  # the host crashed in between: nothing was synced, and nobody is there to hear it
            if synced is not None:
                synced()
            self._gate(tell)

        def tell() -> None:
            if incarnation == self._incarnation:
                done(error)

        ready_at = self._kernel.now + self._latency_s * (0.5 + self._random.random())
        self._idle_at = max(self._idle_at, ready_at)
        self._kernel.at(self._idle_at, complete)


def _sealed(row: bytes) -> bytes:
    return crc32(row).to_bytes(4, "big") + row


def _opened(sealed: bytes) -> bytes | None:
    row = sealed[4:]
    return row if sealed[:4] == crc32(row).to_bytes(4, "big") else None
