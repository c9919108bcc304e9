"""What one keeper has on disk: who it is, what it promised, its log, its snapshot; and whether it can trust them.

All writes go through the store port: a write is submitted, and counts when its completion comes. ``end`` is the end of
the log in memory, ``durable`` the end of the part on disk. Completions come in order, so a write that was submitted
after a promise is durable only when the promise is.

A log goes bad in three ways, and each is noticed and remembered on disk before anything else is done:

- rows between start and end are damaged or missing: ``damaged`` lists them, and a leader's rows put them back;
- the store is not sure where the log ended: rows may be missing that nobody can name;
- the snapshot is gone, or the rows that should follow it: only a leader's snapshot helps (``LOST``).

A disk that refuses a write (it is full) leaves rows in memory that are not in the store. Then the ledger is ``failing``
until everything that is under way has ended and the store can be read, and goes on from what that has.

A store whose structure is broken refuses every write with ``Damaged``. The ledger is then ``broken``: the keeper says
nothing until it hears a leader, which has everything that was ever committed. Then the store is set aside, and a new
one begins with the keeper's identity and promises, as of a keeper that lost its state. A keeper that is the only voter
hears no leader; it stays as it is, for people to look at.

A store that cannot be read now, because its server is away, damages nothing: there are no rows until it can be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...core.errors import Damaged, MalformedFrame, PluribusError, Unavailable
from ...core.ports import Append, Bounds, Change, Cut, Delete, Put, Random, Repair, Replace, Restart, Store, Trim
from .rows import COMMANDS, VOTERS, RowHead, Voters, encode_voters, head_of, hollow_of, voters_of
from .words import (
    DAMAGED,
    LOST,
    WHOLE,
    Base,
    Meta,
    Part,
    Snapshot,
    base_of,
    digest_of,
    meta_of,
    snapshot_of,
    stored,
)

_encode = msgspec.msgpack.encode

CACHE_BYTES_MAX = 8 << 20
"""Rows kept in memory, so that the state machine, and followers that keep up, need no disk."""
SCAN_ROWS = 256
READ_ROWS_MAX = 64
TRIM_ROWS_MAX = 1_024
"""The most rows that one write forgets, so that retention does not hold up appends."""
HOLLOW_BYTES = 4 << 20
"""Bytes of rows that are made hollow at a time, so that other tasks have their turn."""
HOLLOW_ROWS_MAX = 256
EPOCHS_SKIPPED = 1 << 20
"""More than there can have been elections behind what a store still knows."""


def _head(row: bytes | None) -> RowHead | None:
    try:
        return None if row is None else head_of(row)
    except MalformedFrame:
        return None


class _Writing:
    """A write that is under way: what is durable, and promised, when it is done."""

    __slots__ = ("end", "epoch", "then")

    def __init__(self, end: int | None, epoch: int, then: Callable[[], None] | None) -> None:
        self.end = end
        self.epoch = epoch
        self.then = then


class Ledger:
    """``on_durable`` is told when more is on disk, ``on_trouble`` when the log failed or went bad under way."""

    def __init__(self, store: Store, name: str, random: Random, report: Callable[[str], None]) -> None:
        self._store = store
        self._report = report
        self.name = name
        self._log = f"{name}/log"
        self._cache: dict[int, bytes] = {}
        self._cache_bytes = 0
        self.cache_bytes_max = CACHE_BYTES_MAX
        self._writing: deque[_Writing] = deque()
        self._runs: list[tuple[int, int]] = []
        self._voters: list[tuple[int, Voters]] = []
        self.start = self.end = self.durable = 0
        self._last, self._behind = b"", 0
        """The row that was appended last (it may be gone since), and the index behind it."""
        self.snapshot, self.base = Snapshot(), Base()
        self._trimmable = 0
        """Rows below this are covered by the snapshot on disk, and can be forgotten."""
        self._expected: set[bytes] = set()
        """Digests of stored parts (or of parts being stored) that belong to no snapshot yet."""
        self.damaged: set[int] = set()
        self.hollowing = False
        """Whether rows are being made hollow: reading others meanwhile waits for the disk."""
        self.failing = False
        self.failures = 0
        """How often the log was read again from disk, because a write had failed: what was written last may be gone."""
        self.broken = ""
        """Why the store cannot be written any more, if its structure is damaged."""
        self._unreadable = False
        self._repaired = False
        """Whatever the store lacked when it was opened was put back since. The store itself says that it is not sure
        for as long as it is open."""
        self.needed = 0
        """Rows from here on are not applied yet, and stay in memory."""
        self.scars: set[int] = set()
        """Damaged rows that no other keeper can repair; all of them are older than the snapshot."""
        self.on_durable: Callable[[], None] = lambda: None
        self.on_trouble: Callable[[], None] = lambda: None
        self.promised = -1
        """The epoch that is promised on disk; -1 while a newer promise is being written."""
        self.leaving = False
        """This keeper leaves a log that was founded in vain, and that is not on disk yet."""
        self.meta = self._load_meta(random)
        sure = self._load_log()
        self._write_meta(run=self.meta.run + 1)
        if not sure and not self.fresh:
            self._skip_epochs()

    # Who and what.

    @property
    def epoch(self) -> int:
        return self.meta.epoch

    @property
    def fresh(self) -> bool:
        """True if this keeper belongs to no log yet."""
        return self.meta.cluster == 0 and not self.leaving

    @property
    def voters(self) -> Voters:
        """The voters as of the last row that changed them, committed or not."""
        return self._voters[-1][1]

    @property
    def voters_row(self) -> int:
        """The position behind the row that last changed the voters."""
        return self._voters[-1][0]

    def voters_at(self, row: int) -> Voters:
        """The voters as of the rows below this one."""
        return next(voters for since, voters in reversed(self._voters) if since <= row)

    @property
    def alone(self) -> bool:
        return self.voters.keepers == (self.meta.keeper,)

    @property
    def may_vote(self) -> bool:
        """False if the log is not whole: then it does not show what was committed. A keeper that is the only voter, and
        lacks no row that it could name, has nobody to ask, and may vote."""
        if self.meta.health == WHOLE:
            return True
        return self.alone and self.meta.health == DAMAGED and not self.damaged

    @property
    def may_stand(self) -> bool:
        """Whether this keeper may stand for election: a voter, or one that was removed by a row that is not committed.
        It may be the only keeper with that row, and then no other can be elected."""
        return self.may_vote and not self.failing and any(self.meta.keeper in voters for _, voters in self._voters)

    @property
    def last_epoch(self) -> int:
        return self.epoch_at(self.end - 1)

    # Promises.

    def promise(self, epoch: int, voted: int, then: Callable[[], None] | None = None) -> None:
        """Promise on disk never to act in an older epoch, and to vote for nobody else in this one; then call
        ``then``."""
        assert epoch > self.epoch or (epoch == self.epoch and self.meta.voted in (0, voted))
        self._write_meta(then, epoch=epoch, voted=voted)

    def try_again(self) -> None:
        """Try again to read a log that could not be read, and to write a promise that the disk refused."""
        self._recover()
        if self.leaving and not self._writing and not self.broken:
            self._write_leave()
        elif self.promised < self.epoch and not self._writing and not self.broken:
            self._write_meta()

    def set_aside(self) -> None:
        """A leader is there, so everything that was committed is elsewhere: give up a broken store, and begin another
        with our identity and promises. What we said of the old log counts no more, so this is a new run."""
        if not self.broken or self._writing or self.fresh or self.leaving:
            return
        meta = msgspec.structs.replace(self.meta, health=LOST, run=self.meta.run + 1, logged=True)
        try:
            where = self._store.renew(self._copies(meta))
        except PluribusError as error:
            if not self._unreadable:
                self._report(f"cannot set its store aside: {error}")
            self._unreadable = True
            return
        self._report(f"set its store aside as {where}; it gets everything from the others")
        self.meta, self.promised = meta, meta.epoch
        self.broken, self.failing, self._unreadable = "", False, False
        self._load_log()
        self.on_trouble()

    @property
    def complaint(self) -> str:
        """Why this keeper cannot vote or lead, in words for waiting callers; empty if it can."""
        nobody = ", and it is the only voter: see `pluribus keepers restore`" if self.alone else ""
        if self.broken:
            return f"{self.broken}{nobody}"
        if self.failing:
            return "its disk refuses what it writes: look at it"
        if self.may_vote:
            return ""
        rows = f" (rows {', '.join(map(str, sorted(self.damaged)[:5]))})" if self.damaged else ""
        return f"its log is {'gone' if self.meta.health == LOST else 'damaged'}{rows}{nobody}"

    def belong(self, cluster: int) -> None:
        assert self.fresh
        self._write_meta(cluster=cluster)

    def found(self, cluster: int, voters: Voters) -> None:
        """Write the first row of a new log, with its first voters."""
        assert self.fresh and not self.end
        row = self._added([encode_voters(0, 0, voters)])
        self._write_meta(None, row, cluster=cluster, logged=True, founders=voters.keepers)

    @property
    def in_vain(self) -> bool:
        """True if this keeper has nothing of its log but, perhaps, the founders' row. A leader is counted for rows of
        its own epoch only, so this keeper was not counted for anything that was acknowledged. A founder alone needs
        nobody: it has a log."""
        whole = self.meta.health == WHOLE and not self.failing and not self.leaving and not self._writing
        little = self.end <= 1 and not self.start and not self.snapshot.row and self.epoch_at(0) <= 0
        return whole and little and not self.fresh and not self.alone

    def leave(self) -> None:
        """Belong to no log again. The promises stay: what was promised in the log that is left holds, should this
        keeper ever come back to it."""
        assert self.in_vain
        self.leaving = True
        self.meta = msgspec.structs.replace(self.meta, cluster=0, logged=False, founders=(), run=self.meta.run + 1)
        self._cache.clear()
        self._cache_bytes = 0
        self._end_at(0)
        self._runs.clear()
        self._voters = [(0, self.snapshot.voters)]
        self._write_leave()

    def _write_leave(self) -> None:
        self._writing.append(_Writing(None, self.epoch, self._left))
        self._store.write([*self._copies(self.meta), Restart(self._log, 0)], self._written)

    def _left(self) -> None:
        self.leaving = False

    def force(self, cluster: int, epoch: int) -> None:
        """Go on as the only voter of another log with the same rows."""
        first = self.next_index()
        assert first is not None and epoch > self.epoch and self.meta.health == WHOLE and not self.failing
        row = encode_voters(epoch, first, Voters(self.voters.version + 1, (self.meta.keeper,)))
        self._write_meta(None, self._added([row]), cluster=cluster, epoch=epoch, voted=self.meta.keeper, logged=True)

    def adopt(self, cluster: int, epoch: int) -> None:
        """Belong to the log that was forced. This keeper does not vote before a leader of that log has repaired it, and
        what it said before counts no more."""
        health, run = max(self.meta.health, DAMAGED), self.meta.run + 1
        self._write_meta(cluster=cluster, epoch=max(epoch, self.epoch), voted=0, health=health, run=run)

    # Rows.

    def append(self, rows: Sequence[bytes]) -> None:
        """Append rows: in memory now, and on disk when ``durable`` has reached them."""
        assert not self.failing
        change = self._added(rows)
        if self.meta.logged:
            self._write([change])
        else:
            self._write_meta(None, change, logged=True)

    def cut(self, end: int) -> None:
        """Remove the rows from here on, which were never committed."""
        assert self.start <= end <= self.end and not self.failing
        for row in range(end, self.end):
            self._drop(row)
        self._end_at(end)
        while self._runs and self._runs[-1][0] >= end:
            self._runs.pop()
        while self._voters[-1][0] > end and len(self._voters) > 1:
            self._voters.pop()
        self.damaged = {row for row in self.damaged if row < end}
        self._write([Cut(self._log, end)])

    def repair(self, at: int, row: bytes) -> None:
        """Put back the leader's row in the place of a damaged one. If another row had been there, the rows behind it
        were never committed either; that shows when the next row does not follow."""
        self.damaged.discard(at)
        self._write([Repair(self._log, at, row)])
        head = head_of(row)
        behind = self.head_at(at + 1)
        if behind is not None and (behind.first != head.next or behind.epoch < head.epoch):
            self.cut(at + 1)

    def heal(self) -> None:
        """A leader has vouched for all rows: check the log again; from now on this keeper may vote."""
        durable, cache = self.durable, self._cache
        self._load_log()
        self.durable = min(durable, self.end)
        self._cache = {at: row for at, row in cache.items() if at < self.end}
        self._cache_bytes = sum(map(len, self._cache.values()))
        if not self.damaged and self.meta.health == DAMAGED:
            self._report("is whole again")
            self._write_meta(health=WHOLE)
            self._repaired = True

    def head_at(self, at: int) -> RowHead | None:
        """None if there is no whole row."""
        row = self._cache.get(at)
        if row is None:
            found = self._store.read(self._log, at, at + 1) if self.start <= at < self.end else []
            row = found[0] if found else None
        return _head(row)

    def epoch_at(self, at: int) -> int:
        """The epoch of a row, or of the row before the log's start; -1 if it is not known."""
        if at < self.start:
            return self.base.epoch if at == self.start - 1 else -1
        runs = self._runs
        if runs and runs[0][0] <= at < self.end and self.meta.health == WHOLE:
            if at >= runs[-1][0]:  # as it mostly is
                return runs[-1][1]
            return runs[bisect_right(runs, at, key=lambda run: run[0]) - 1][1]
        head = self.head_at(at)
        return -1 if head is None else head.epoch

    def next_index(self) -> int | None:
        """The index of the first command of the next row; None if the last row is damaged, which is reported."""
        if self.end == self.start:
            return self.base.index
        if self._cache.get(self.end - 1) is self._last:  # as it mostly is
            return self._behind
        head = self.head_at(self.end - 1)
        if head is None:
            self.damage_found(self.end - 1)
            head = self.head_at(self.end - 1)  # the founder puts the first row back
        return None if head is None else head.next

    def read(self, start: int, stop: int, bytes_max: int) -> list[bytes]:
        """Whole rows from ``start``, at least one if it is there, up to a damaged row, which is reported."""
        rows: list[bytes] = []
        size = 0
        at, stop = max(start, self.start), min(stop, self.end)
        while at < stop and size < bytes_max:
            row = self._cache.get(at)
            found: Sequence[bytes | None] = [row]
            if row is None:  # what is not durable is in memory; in the store there may be something older
                some = (bytes_max - size) * len(rows) // max(size, 1)  # as many as would fit, were they like the others
                last = at + min(max(some, 1), READ_ROWS_MAX)
                found = self._found(at, min(stop, last, max(self.durable, at + 1)))
            if not found:
                return rows
            for one in found:
                if one is None:
                    self.damage_found(at)
                    return rows
                rows.append(one)
                size += len(one)
                at += 1
                if size >= bytes_max:
                    break
        return rows

    def at_hand(self, at: int) -> bytes | None:
        """A row that is in memory."""
        return self._cache.get(at)

    def fetch(
        self,
        rows: Sequence[int],
        work: Callable[[Sequence[bytes | None]], Any],
        done: Callable[[Any, Exception | None], None],
    ) -> None:
        """Read rows of the store without holding up the loop. Missing rows are not reported as damage; ``read`` does
        that."""
        self._store.fetch(self._log, rows, work, done)

    def _found(self, start: int, stop: int) -> Sequence[bytes | None]:
        """In the store; nothing while it cannot be read, which is told once."""
        try:
            found = self._store.read(self._log, start, stop)
        except Unavailable as error:
            if not self._unreadable:
                self._report(f"cannot read: {error}")
            self._unreadable = True
            return []
        self._unreadable = False
        return found

    def damage_found(self, at: int) -> None:
        self._report(f"has a row {at} that is damaged or missing")
        if (row := self._founding_row(at)) is not None:
            self._cache[at] = row
            self._cache_bytes += len(row)
            return
        if self.alone and at < self.snapshot.row:
            self.scars.add(at)
            return
        self.damaged.add(at)
        self._worsen(DAMAGED)
        self.on_trouble()

    # Snapshots.

    def put_parts(self, parts: Sequence[tuple[Part, bytes]]) -> None:
        """Store parts of a snapshot that is being taken or received. They belong to the snapshot when it is kept
        (``save``, ``install``). Until then a list of them is stored, too. If the snapshot is not kept, because of a
        crash or because another one was quicker, they are removed with the next snapshot."""
        self._expected |= {part.digest for part, _ in parts}
        puts = [Put(self._part_key(part), data) for part, data in parts]
        self._write([Put(f"{self.name}/expected", _encode(sorted(self._expected))), *puts])

    def part(self, part: Part) -> bytes | None:
        """A part of a snapshot; None if it is missing or damaged here."""
        try:
            found = self._store.get(self._part_key(part))
        except Damaged:
            return None
        return found if found is not None and digest_of(found) == part.digest else None

    def save(self, snapshot: Snapshot, then: Callable[[], None]) -> None:
        """Keep a snapshot whose parts are all stored, in the place of the one before; call ``then`` when it is on disk.
        ``trim`` forgets the rows that it covers."""
        assert self.snapshot.row <= snapshot.row <= self.end and not self.failing

        def kept() -> None:
            self._trimmable = snapshot.row
            then()

        self._write([Put(f"{self.name}/snapshot", stored(snapshot)), *self._replaced(snapshot)], kept)
        while len(self._voters) > 1 and self._voters[1][0] <= snapshot.row:
            del self._voters[0]

    def _replaced(self, snapshot: Snapshot) -> list[Change]:
        """The parts to remove when this snapshot is kept: those of the last one alone, and those of abandoned ones."""
        stay = {part.digest for part in snapshot.parts}
        gone = ({part.digest for part in self.snapshot.parts} | self._expected) - stay
        self.snapshot, self._expected = snapshot, set()
        changes: list[Change] = [Delete(f"{self.name}/part/{digest.hex()}") for digest in sorted(gone)]
        return [*changes, Delete(f"{self.name}/expected")]

    def _part_key(self, part: Part) -> str:
        return f"{self.name}/part/{part.digest.hex()}"

    def hollow(self, rows: Sequence[int]) -> list[int]:
        """Free the commands of some of these rows, whose machines read them no more; which ones were done: none while
        others are ``hollowing``. Rows that the snapshot on disk does not stand for are left alone: they are applied
        again after a restart."""
        done: list[int] = []
        changes: list[Change] = []
        size = 0
        for at in rows:
            if self.hollowing or self.failing or size >= HOLLOW_BYTES or len(changes) >= HOLLOW_ROWS_MAX:
                break
            if not self.start <= at < min(self._trimmable, self.durable) or at in self.damaged:
                continue
            row = self._cache.get(at)
            found = [row] if row is not None else self._found(at, at + 1)
            if not found:  # the store cannot be read now: another time
                continue
            done.append(at)
            if found[0] is None:
                continue
            head = head_of(found[0])
            if head.kind == COMMANDS and not head.hollow:
                size += len(found[0])
                changes.append(Replace(self._log, at, hollow_of(found[0])))
                self._drop(at)
        if changes:
            self.hollowing = True
            self._write(changes, self._hollowed)
        return done

    def _hollowed(self) -> None:
        self.hollowing = False

    def trim(self, start: int) -> bool:
        """Forget some rows before ``start``, which the snapshot covers; true if there are more."""
        start, wanted = min(start, self.start + TRIM_ROWS_MAX, self._trimmable, self.durable), start
        if start <= self.start or self.failing:
            return False
        while (head := self.head_at(start - 1)) is None:
            self.damage_found(start - 1)
            start -= 1
            if start not in self.scars or start <= self.start:  # nobody will repair a scar: start before it
                return False
        self._start_at(Base(start, head.epoch, head.next))
        self._write([Trim(self._log, start), Put(f"{self.name}/base", stored(self.base))])
        return start < wanted

    def lost(self, why: str) -> None:
        self._report(f"lost its state: {why}")
        self._worsen(LOST)
        self.on_trouble()

    def install(self, base: Base, snapshot: Snapshot) -> None:
        """Take over a leader's snapshot whose parts are all stored. If our rows agree with it they stay, from the
        leader's base on; else the log starts anew at that base."""
        assert not self.failing
        changes: list[Change] = [Put(f"{self.name}/snapshot", stored(snapshot)), *self._replaced(snapshot)]
        fits = self.start <= snapshot.row <= self.end and self.epoch_at(snapshot.row - 1) == snapshot.epoch
        if not fits:
            changes += [Restart(self._log, base.row), Put(f"{self.name}/base", stored(base))]
            self._cache.clear()
            self._cache_bytes = 0
            self._end_at(base.row)
            self.start, self.durable = base.row, 0  # until all this is on disk, nothing is
            self.base = base
            self.damaged.clear()
            self._runs.clear()
        elif self.start < base.row:
            changes += [Trim(self._log, base.row), Put(f"{self.name}/base", stored(base))]
            self._start_at(base)
        later = [one for one in self._voters if one[0] > snapshot.row] if fits else []
        self._voters = [(snapshot.row, snapshot.voters), *later]
        health = DAMAGED if self.meta.health == LOST else self.meta.health
        self._trimmable = min(self._trimmable, base.row)  # this one is not on disk yet

        def kept() -> None:
            self._trimmable = snapshot.row

        self._write_meta(kept, *changes, health=health, logged=True)

    def validate(self) -> None:
        """For tests: what must hold between any two calls."""
        assert 0 <= self.start <= self.end and self.durable <= self.end
        assert self.base.row == self.start or self.meta.health != WHOLE
        assert self.promised <= self.epoch
        assert all(self.start <= row < self.end for row in self.damaged)
        assert self._runs == sorted(self._runs) and (not self._runs or self._runs[-1][0] < self.end)
        epochs = [epoch for _, epoch in self._runs]
        assert epochs == sorted(epochs) or self.meta.health != WHOLE

    # Inside.

    def _added(self, rows: Sequence[bytes]) -> Append:
        at = self.end
        for row in rows:
            head = head_of(row)
            if not self._runs or self._runs[-1][1] != head.epoch:
                self._runs.append((self.end, head.epoch))
            if head.kind == VOTERS:
                self._voters.append((self.end + 1, voters_of(row)))
            self._cache[self.end] = row
            self._cache_bytes += len(row)
            self._last, self._behind = row, head.next
            self.end += 1
        self._forget()
        return Append(self._log, rows, at)

    def _start_at(self, base: Base) -> None:
        for row in range(self.start, base.row):
            self._drop(row)
        self.start, self.base = base.row, base
        self.damaged = {row for row in self.damaged if row >= base.row}
        while len(self._runs) > 1 and self._runs[1][0] <= base.row:
            del self._runs[0]

    def _end_at(self, end: int) -> None:
        self.end, self.durable = end, min(self.durable, end)
        for writing in self._writing:
            if writing.end is not None:
                writing.end = min(writing.end, end)

    def _write_meta(self, then: Callable[[], None] | None = None, *also: Change, **changed: Any) -> None:
        self.meta = msgspec.structs.replace(self.meta, **changed)
        self._writing.append(_Writing(self.end if also else None, self.epoch, then))
        self._store.write([*self._copies(self.meta), *also], self._written)

    def _copies(self, meta: Meta) -> list[Change]:
        record = stored(meta)
        return [Put(f"{self.name}/meta/a", record), Put(f"{self.name}/meta/b", record)]

    def _write(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None:
        self._writing.append(_Writing(self.end, -1, then))
        self._store.write(changes, self._written)

    def _written(self, error: Exception | None) -> None:
        writing = self._writing.popleft()
        if error is not None:
            self._report(f"cannot write: {error}")
            if writing.epoch >= 0:
                self.promised = -1
            if isinstance(error, Damaged):
                self.broken = str(error)
            if (writing.end is not None or self.broken) and not self.failing:
                self.failing = True
                self.failures += 1
                self.on_trouble()
        else:
            self.promised = max(self.promised, writing.epoch)
            if writing.end is not None and not self.failing and writing.end > self.durable:
                self.durable = writing.end
                self._forget()
            if writing.then is not None:
                writing.then()
            self.on_durable()
        self._recover()

    def _recover(self) -> None:
        """Read a failed log again, when no write is under way any more."""
        if not self.failing or self._writing or self.broken:
            return
        try:
            self._load_log()
        except PluribusError as error:
            if not self._unreadable:
                self._report(f"cannot read: {error}")
            self._unreadable = True
            return
        self.failing = self._unreadable = False
        self.on_trouble()

    def _load_meta(self, random: Random) -> Meta:
        found: list[Meta] = []
        damaged: PluribusError | None = None
        for copy in "ab":
            try:
                value = self._store.get(f"{self.name}/meta/{copy}")
                if value is not None:
                    found.append(meta_of(value))
            except Damaged as error:
                damaged = error
        if found:  # it speaks when this life and its health are on disk, too
            return found[0]
        if damaged is not None:
            raise Damaged(f"who the keeper of {self.name!r} is cannot be read ({damaged}): give it a new store")
        return Meta(random.getrandbits(63) or 1)

    def _worsen(self, health: int) -> None:
        """Write down that the log is worse than it was. What was said of it while it was whole counts no more, nor does
        what a leader said that this keeper owes since an earlier damage: it is another run."""
        if health > self.meta.health:
            self._write_meta(health=health, run=self.meta.run + (self.meta.health == WHOLE))

    def _skip_epochs(self) -> None:
        """The store lost commits, perhaps with a promise in them. Take part in no epoch that it may have been about:
        the next leader is elected without this keeper, which is damaged, by voters that know of later ones."""
        self._write_meta(epoch=self.epoch + EPOCHS_SKIPPED, voted=0)

    def _load_log(self) -> bool:
        """What the store has, checked from the snapshot on; older rows are checked when they are read. Whether nothing
        is missing that it would not know of."""
        try:
            bounds = self._store.bounds(self._log)
        except Damaged as error:
            bounds, self.broken, self.failing = Bounds(sure=False), str(error), True
        self.start, self.end, self.durable = bounds.start, bounds.end, bounds.end
        self._cache, self._cache_bytes = {}, 0
        self.hollowing = False
        self._runs = []
        self.damaged = set()
        health = WHOLE if bounds.sure or self._repaired else DAMAGED
        self.snapshot = Snapshot()
        try:
            value = self._store.get(f"{self.name}/snapshot")
            if value is not None:
                self.snapshot = snapshot_of(value)
        except (Damaged, msgspec.MsgspecError, UnicodeDecodeError) as error:  # a log that was never trimmed needs none
            self._report(f"has no snapshot: {error}")
        self._trimmable = self.snapshot.row
        self._expected = self._load_expected()
        self.base = self._load_base()
        if self.start > self.snapshot.row or (self.meta.logged and not self.end and not self.snapshot.row):
            health = LOST
        if self.broken:
            health = LOST
        self._voters = [(self.snapshot.row, self.snapshot.voters)]
        hollow = self._scan()
        health = max(health, DAMAGED if self.damaged else WHOLE, LOST if hollow else WHOLE)
        if health > self.meta.health:
            words = {DAMAGED: f"rows {sorted(self.damaged)[:5]}", LOST: "its state"}[health]
            self._report(f"is damaged: {words}")
            self._worsen(health)
        return bounds.sure

    def _load_base(self) -> Base:
        try:
            value = self._store.get(f"{self.name}/base")
        except Damaged:  # too high an epoch refuses votes, too low a one would give wrong ones
            return Base(self.start, self.snapshot.epoch, self.snapshot.index)
        return Base() if value is None else base_of(value)

    def _load_expected(self) -> set[bytes]:
        try:
            value = self._store.get(f"{self.name}/expected")
        except Damaged:  # some space is lost, and nothing else
            return set()
        return set() if value is None else set(msgspec.msgpack.decode(value, type=list[bytes]))

    def _scan(self) -> bool:
        """Check the rows behind the snapshot; true if one of them is hollow, so that it cannot be applied again."""
        hollow = False
        at = min(max(self.start, self.snapshot.row), max(self.end - 1, self.start))
        while at < self.end:
            for row in self._store.read(self._log, at, min(at + SCAN_ROWS, self.end)):
                head = _head(row)
                if head is None and (first := self._founding_row(at)) is not None:
                    row, head = first, _head(first)
                if head is None or row is None:
                    self.damaged.add(at)
                else:
                    if not self._runs or self._runs[-1][1] != head.epoch:
                        self._runs.append((at, head.epoch))
                    hollow = hollow or (head.hollow and at >= self.snapshot.row)
                    if head.kind == VOTERS and at >= self.snapshot.row:
                        self._voters.append((at + 1, voters_of(row)))
                at += 1
        return hollow

    def _founding_row(self, at: int) -> bytes | None:
        """Put the first row back if this keeper wrote it as the founder of the log. Nobody else may have it yet: then
        no other keeper knows who votes, and none could be elected without this one."""
        if at != 0 or not self.meta.founders:
            return None
        row = encode_voters(0, 0, Voters(1, self.meta.founders))
        self._report("founded its log, and puts the first row back")
        self._write([Repair(self._log, at, row)])
        return row

    def _drop(self, at: int) -> None:
        row = self._cache.pop(at, None)
        if row is not None:
            self._cache_bytes -= len(row)

    def _forget(self) -> None:
        """Old rows leave memory when there are too many and nobody needs them."""
        while self._cache_bytes > self.cache_bytes_max and self._cache:
            oldest = next(iter(self._cache))
            if oldest >= self.durable or oldest >= self.needed:
                return
            self._drop(oldest)
