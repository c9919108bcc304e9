"""The same machines without a disk: the host on the safe order of a group. Its state lives while the primary lives.

A row is one message of the group: the machine, the time, and the commands. Bodies stay in memory at every member as
long as a machine needs them, and are handed to joiners with the state (``saved.py``).

*Time.* No leader gives rows their time. Every member stamps its rows with the time of the latest row that it applied,
plus the time that its monotonic clock counted since. The latest stamp of all is the replicated time. So it never falls,
and only the eldest's wall clock moves it. The very first row carries its sender's wall clock.

*The eldest* member of the primary does what a leader does for keepers (``VolatileTending``): it proposes ticks, ends
leases, and has extents with little left written forward. Everything follows from the state and the view, so the next
eldest goes on where the last one died, and a proposal that two members make counts once.

*Leases.* Owners are members here: what a member holds is free when the member is not in the view any more.

*Code.* Members of one group have the same code. A member that comes to a machine that it cannot run leaves the group;
whoever uses the machine there is told which code is missing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar
from weakref import ref

import msgspec

from ...core.errors import Damaged, PluribusError
from ...core.ports import Clock, Timer
from ..keepers.timekeeping import Timekeeper
from ..log import Done
from ..safelog import SafeLog
from .forwarding import forwarding
from .host import HOST, Host
from .saved import Piece, SavedHead, SavedPart, SavedRows, StatePieces, pieces_of
from .space import LogExtents
from .words import Expire, Tick, Word, encode

LOOK_S = 0.5
"""How often leases and space are looked at."""
FIRSTS_MAX = 1 << 17
"""Rows whose first index is remembered for the callers that submitted them."""
EXPIRED_MAX = 1_024
"""Owners that one command ends."""
FORWARD = "forward"

log_ = logging.getLogger("pluribus")


class VolatileSpace(LogExtents):
    """Extents are shorter than on a disk, because they are in the memory of every member."""

    extent_bytes: ClassVar[int] = 32 << 10
    dead_bytes_max: ClassVar[int] = 8 << 20


class Row(msgspec.Struct, array_like=True, frozen=True):
    machine: int
    time_us: int
    commands: list[bytes]


Opening = Callable[[int, int, Sequence[bytes]], Any]
_row = msgspec.msgpack.Decoder(Row)
_encode = msgspec.msgpack.Encoder().encode


class VolatileLog:
    """``HostLog`` over a ``SafeLog``. Start the safe log when the host is made (``host`` set)."""

    applied_voters: Sequence[int] = ()
    """Nobody votes."""

    def __init__(self, log: SafeLog, clock: Clock, wall: Callable[[], float]) -> None:
        self.log = log
        self._clock = clock
        self._wall = wall
        self.on_commit: Callable[[int, Sequence[bytes]], None] = lambda first, commands: None
        self.row = -1
        self.machine = 0
        self.time_us = 0
        self._time_at = 0.0
        """When the replicated time last moved, by this member's monotonic clock."""
        self.halted = ""
        self.host: Host | None = None
        self._index = 0
        self._firsts: dict[int, int] = {}
        self._submitted = 0
        self._bodies: dict[int, tuple[int, list[bytes]]] = {}
        """By row, in their order: the machine, and the commands."""
        self._freed: set[range] = set()
        """Ranges of rows whose bodies were freed."""
        self._taken: ref[StatePieces] | None = None
        """The last state that was taken for a joiner; nothing when nobody fetches it any more."""
        self.malformed = 0
        log.on_commit = self._commit
        log.on_snapshot_in_pieces = self._snapshot
        log.on_restore = self._restore

    def halt(self, why: str) -> None:
        """A machine failed here: this member's copy is not to be trusted any more."""
        self.halted = why
        log_.error("the log %r is left: this member %s", self.log.name, why)
        self.log.on_failed()

    @property
    def now_us(self) -> int:
        """The time that a row submitted now is stamped with."""
        if not self.time_us:
            return int(self._wall() * 1e6)
        return self.time_us + int(max(self._clock.now() - self._time_at, 0.0) * 1e6)

    def submit_many(self, commands: Sequence[bytes], done: Done, machine: int = 0, time_us: int | None = None) -> None:
        """As a keeper's."""

        def placed(row: int, error: PluribusError | None) -> None:
            self._submitted -= 1
            first = self._firsts.pop(row, None) if error is None else -1
            done(-1 if first is None else first, error)

        stamped = Row(machine, self.now_us if time_us is None else time_us, list(commands))
        self.log.submit(_encode(stamped), placed)
        self._submitted += 1

    @property
    def awaits(self) -> bool:
        """Whether somebody here waits for what commands answer."""
        return self._submitted > 0

    def barrier(self, done: Done) -> None:
        self.log.barrier(done)

    # Bodies.

    def read_row(self, at: int) -> tuple[int, list[bytes]]:
        """As a keeper's."""
        found = self._bodies.get(at)
        if found is None:
            raise Damaged(f"row {at} of {self.log.name!r} is not kept any more")
        return found

    def row_at_hand(self, at: int) -> tuple[int, Sequence[bytes]] | None:
        """Like a keeper's; here every row that a machine needs is in memory."""
        return self._bodies.get(at, (HOST, ()))

    def fetch_rows(self, rows: Sequence[int], opened: Opening, done: Callable[[Sequence[Any]], None]) -> None:
        raise AssertionError("all rows are at hand")

    @property
    def kept_bytes(self) -> int:
        return sum(len(one) for _, commands in self._bodies.values() for one in commands)

    def free(self) -> None:
        """Forget bodies that no machine needs."""
        host, bodies = self.host, self._bodies
        assert host is not None
        self._free_front(host)
        first = host.space.first_row
        for rows in host.space.dead_rows(first, self.row + 1):
            if rows not in self._freed:
                self._freed.add(rows)
                for row in rows:
                    bodies.pop(row, None)
        self._freed = {rows for rows in self._freed if rows.start >= first}

    def _free_front(self, host: Host) -> None:
        first, bodies = host.space.first_row, self._bodies
        while bodies and (oldest := next(iter(bodies))) < first:
            del bodies[oldest]

    # Applying.

    def _commit(self, first: int, rows: Sequence[bytes]) -> None:
        host = self.host
        assert host is not None
        for row, data in enumerate(rows, first):
            try:
                held = _row.decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError):  # all others skip it, too
                self.malformed += 1
                continue
            if self.halted:
                return
            self.row, self.machine = row, held.machine
            if held.time_us > self.time_us:
                self.time_us, self._time_at = held.time_us, self._clock.now()
            self._firsts[row] = self._index
            self._index += len(held.commands)
            self._bodies[row] = (held.machine, held.commands)
            self.on_commit(self._firsts[row], held.commands)
        while len(self._firsts) > FIRSTS_MAX:
            del self._firsts[next(iter(self._firsts))]
        self._free_front(host)

    def _snapshot(self) -> Iterable[bytes]:
        host = self.host
        assert host is not None
        self._finish_taking()
        self.free()
        taken = StatePieces(host, SavedHead(self._index, self.row, self.time_us), self._bodies)
        self._taken = ref(taken)
        return taken

    def _finish_taking(self) -> None:
        taken = None if self._taken is None else self._taken()
        if taken is not None:
            taken.finish()

    def _restore(self, index: int, state: bytes) -> None:
        host = self.host
        assert host is not None
        self._finish_taking()
        pieces = pieces_of(state)
        saved = next(pieces, SavedHead(0, -1, 0))
        assert isinstance(saved, SavedHead)
        self._index, self.row = saved.index, saved.row
        self.time_us, self._time_at = saved.time_us, self._clock.now()
        self._bodies = {}
        self._firsts.clear()
        self._freed.clear()
        host.restore(saved.index, self._parts_among(pieces))

    def _parts_among(self, pieces: Iterator[Piece]) -> Iterator[tuple[str, bytes]]:
        """Keep the rows that come behind the parts."""
        for piece in pieces:
            if isinstance(piece, SavedPart):
                yield piece.name, piece.data
            elif isinstance(piece, SavedRows):
                self._bodies.update({row: (machine, commands) for row, machine, commands in piece.rows})

    def validate(self) -> None:
        """For tests."""
        assert list(self._bodies) == sorted(self._bodies)
        if self.host is not None and not self.halted:
            self.host.validate()


class VolatileTending:
    """What the eldest member of the primary does as time passes. ``members`` are those of the primary view, the eldest
    first; none outside of a primary."""

    def __init__(
        self,
        host: Host,
        log: VolatileLog,
        clock: Clock,
        wall: Callable[[], float],
        me: int,
        members: Callable[[], Sequence[int]],
    ) -> None:
        self._host = host
        self._log = log
        self._clock = clock
        self._wall = wall
        self._me = me
        self._members = members
        self._timer: Timer | None = None
        self._tick_timer: Timer | None = None
        self._search_timer: Timer | None = None
        self._keeps_time: Timekeeper | None = None
        """There only while this member is the eldest."""
        self._proposed: set[str] = set()
        """What was proposed and is not ordered yet."""
        self._forwarding = 0
        """Writings forward that are not ordered yet."""
        self._poor: deque[range] = deque()
        """Extents that are to be written forward, each once a round; a round begins with a look."""
        self._stopped = False
        self.forwarded_bytes = 0

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._timer, self._tick_timer, self._search_timer):
            if timer is not None:
                timer.cancel()

    def applied(self) -> None:
        """Commands were applied, or the state or the view is another one: something may be due earlier than before."""
        if not self._stopped and self.eldest:
            self._tick()
            self._search()

    def _search(self) -> None:
        """Machines that have something to look for, a slice at a time; what they find is ordered first."""
        idle = self._search_timer is None and "search" not in self._proposed
        if idle and any(hosted.machine.busy for hosted in self._host.machines.values()):
            self._search_timer = self._clock.call_later(0.0, self._chores)

    def _chores(self) -> None:
        self._search_timer = None
        if self._stopped or not self.eldest:
            return
        for number, hosted in list(self._host.machines.items()):
            found = hosted.machine.chores() if hosted.machine.busy else []
            if found:
                self._submit("search", number, found)
                if "search" not in self._proposed:  # it is tried again with the next look
                    return
        self._search()

    @property
    def eldest(self) -> bool:
        members = self._members()
        if not members or members[0] != self._me:
            self._keeps_time = None
            return False
        return True

    def _look(self) -> None:
        if self._stopped:
            return
        self._timer = self._clock.call_later(LOOK_S, self._look)
        if self._log.halted:
            return
        self._log.free()
        if self.eldest:
            self._tick()
            self._search()
            self._expire()
            if not self._poor and not self._host.space.bounded:
                self._poor.extend(self._host.space.poorest(self._log.row + 1))
            self._forward()

    def _now_us(self) -> int:
        """The time of the log, which approaches the wall clock of the eldest."""
        now = self._clock.now()
        if self._keeps_time is None:
            self._keeps_time = Timekeeper(self._log.now_us, now, self._wall)
        return max(self._keeps_time.now_us(now), self._log.time_us)

    def _tick(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        due_us = self._host.next_due_us()
        if due_us is None or "tick" in self._proposed:
            return
        now_us = self._now_us()
        if due_us <= now_us:
            self._propose("tick", Tick(self._host.due(now_us)), now_us)
        else:
            wait_s = min(max((due_us - now_us) / 1e6, 0.001), LOOK_S)
            self._tick_timer = self._clock.call_later(wait_s, self.applied)

    def _expire(self) -> None:
        """End the leases of owners that are not in the view."""
        members = set(self._members())
        for number, hosted in self._host.machines.items():
            gone = [owner for owner in hosted.machine.owners() if owner not in members][:EXPIRED_MAX]
            if gone:
                self._propose(f"expire {number}", Expire(number, gone))

    def _forward(self) -> None:
        """Have the live rest of the deadest extent written once more, and when that is done the next one's, until the
        memory is within its bound."""
        if self._forwarding or self._stopped or self._log.halted or not self.eldest:
            return
        if self._host.space.bounded:
            self._poor.clear()
        if self._poor:
            held = [row for row in self._poor.popleft() if self._log.row_at_hand(row) != (HOST, ())]
            for number, wanted in forwarding(self._host, held, self._log.read_row):
                self._forwarding += 1
                self.forwarded_bytes += sum(map(len, wanted))
                self._submit(FORWARD, number, wanted)
            if self._poor and not self._forwarding:
                self._clock.call_later(0.0, self._forward)

    def _propose(self, what: str, word: Word, time_us: int | None = None) -> None:
        if what not in self._proposed:
            self._submit(what, HOST, [encode(word)], time_us)

    def _submit(self, what: str, machine: int, commands: Sequence[bytes], time_us: int | None = None) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            self._proposed.discard(what)
            if error is None:
                self._host.take_outcomes(index, len(commands))
                if what in ("tick", "search"):
                    self.applied()
            elif what == "search":
                self._search_again(machine)
            if what == FORWARD:
                self._forwarding -= 1
                if error is None and not self._forwarding:
                    self._log.free()
                    self._clock.call_later(0.0, self._forward)

        self._proposed.add(what)
        try:
            self._log.submit_many(commands, done, machine, time_us)
        except PluribusError as error:  # it is tried again with the next look
            self._proposed.discard(what)
            self._forwarding -= what == FORWARD
            if what == "search":
                self._search_again(machine)
            log_.debug("%r was not told: %s", self._log.log.name, error)

    def _search_again(self, number: int) -> None:
        hosted = self._host.machines.get(number)
        if hosted is not None:
            hosted.machine.search_again()
