"""The same machines without a disk: the host on the safe order of a group. It lives while the primary lives.

A row is one message of the group: the machine, the time, and its commands. Bodies stay in memory, here at every member,
as long as a machine needs them, and are handed to joiners with the state.

*Time.* Rows carry none. The eldest member of the primary proposes ticks, which do: the time of a tick is its
proposer's, and never falls. *Leases.* A member's demands end with its view: whoever sees it leave proposes ``Expire``,
and the first of these counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...core.errors import Damaged, PluribusError
from ...core.ports import Clock, Timer
from ..log import Done
from ..safelog import SafeLog
from .host import HOST, Host
from .words import Expire, Tick, encode

LOOK_S = 0.5
FIRSTS_MAX = 1 << 17
"""Rows of which it is remembered where their commands begin, for those who submitted them."""

log_ = logging.getLogger("pluribus")


class Row(msgspec.Struct, array_like=True, frozen=True):
    machine: int
    commands: list[bytes]


class Saved(msgspec.Struct, array_like=True):
    """The state on its way to a joiner."""

    index: int
    row: int
    time_us: int
    parts: list[tuple[str, bytes]]
    bodies: dict[int, tuple[int, list[bytes]]]


Opening = Callable[[int, int, Sequence[bytes]], Any]
_row = msgspec.msgpack.Decoder(Row)
_saved = msgspec.msgpack.Decoder(Saved)


class VolatileLog:
    """``HostLog`` over a ``SafeLog``. ``start`` the safe log when the host is made."""

    applied_voters: Sequence[int] = ()
    """Nobody votes: whoever is in the group has the code, or could not have joined it."""

    def __init__(self, log: SafeLog) -> None:
        self.log = log
        self.on_commit: Callable[[int, Sequence[bytes]], None] = lambda first, commands: None
        self.row = -1
        self.machine = 0
        self.time_us = 0
        self.halted = ""
        self.host: Host | None = None
        self._index = 0
        self._firsts: dict[int, int] = {}
        self._bodies: dict[int, tuple[int, list[bytes]]] = {}
        """By row: the machine, and the commands."""
        self.malformed = 0
        log.on_commit = self._commit
        log.on_snapshot = self._snapshot
        log.on_restore = self._restore

    def halt(self, why: str) -> None:
        """A machine failed here: this member's copy is not to be trusted any more."""
        self.halted = why
        log_.error("the log %r is left: this member %s", self.log.name, why)
        self.log.on_failed()

    def submit_many(self, commands: Sequence[bytes], done: Done, machine: int = 0) -> None:
        def placed(row: int, error: PluribusError | None) -> None:
            first = self._firsts.pop(row, None) if error is None else -1
            done(-1 if first is None else first, error)

        self.log.submit(msgspec.msgpack.encode(Row(machine, list(commands))), placed)

    def barrier(self, done: Done) -> None:
        self.log.barrier(done)

    def read_row(self, at: int) -> tuple[int, list[bytes]]:
        """As a keeper's."""
        found = self._bodies.get(at)
        if found is None:
            raise Damaged(f"row {at} of {self.log.name!r} is not kept any more")
        return found

    def row_at_hand(self, at: int) -> tuple[int, Sequence[bytes]] | None:
        """Every row is: here bodies are in memory as long as a machine needs them."""
        return self._bodies.get(at, (HOST, ()))

    def fetch_rows(self, rows: Sequence[int], opened: Opening, done: Callable[[Sequence[Any]], None]) -> None:
        raise AssertionError("all rows are at hand")

    @property
    def kept_bytes(self) -> int:
        return sum(len(one) for _, commands in self._bodies.values() for one in commands)

    def _commit(self, first: int, rows: Sequence[bytes]) -> None:
        host = self.host
        assert host is not None
        for row, data in enumerate(rows, first):
            try:
                held = _row.decode(data)
            except msgspec.MsgspecError:  # all others skip it, too
                self.malformed += 1
                continue
            if self.halted:
                return
            self.row, self.machine = row, held.machine
            if held.machine == HOST:
                self._tell_time(held.commands)
            self._firsts[row] = self._index
            self._index += len(held.commands)
            self._bodies[row] = (held.machine, held.commands)
            self.on_commit(self._firsts[row], held.commands)
        while len(self._firsts) > FIRSTS_MAX:
            del self._firsts[next(iter(self._firsts))]
        self._forget(host)

    def _tell_time(self, commands: Sequence[bytes]) -> None:
        for command in commands:
            try:
                tick = msgspec.msgpack.decode(command, type=Tick)
            except msgspec.MsgspecError:
                continue
            self.time_us = max(self.time_us, tick.time_us)

    def _forget(self, host: Host) -> None:
        """Bodies of extents of which nothing is needed."""
        first = host.space.first_row
        gone = [row for row in self._bodies if row < first]
        for rows in host.space.dead_rows(first, self.row + 1):
            gone += [row for row in rows if row in self._bodies]
        for row in gone:
            del self._bodies[row]

    def _snapshot(self) -> bytes:
        host = self.host
        assert host is not None
        names, _ = host.freeze()
        parts = [(name, host.whole_part(name)) for name in names]
        host.thaw(False)
        return msgspec.msgpack.encode(Saved(self._index, self.row, self.time_us, parts, self._bodies))

    def _restore(self, index: int, state: bytes) -> None:
        host = self.host
        assert host is not None
        saved = _saved.decode(state) if state else Saved(0, -1, 0, [], {})
        self._index, self.row, self.time_us = saved.index, saved.row, saved.time_us
        self._bodies = saved.bodies
        self._firsts.clear()
        host.restore(saved.index, saved.parts)


class VolatileTending:
    """What the eldest member of the primary does as time goes by. ``eldest`` says whether this one is it."""

    def __init__(
        self, host: Host, log: VolatileLog, clock: Clock, wall: Callable[[], float], eldest: Callable[[], bool]
    ) -> None:
        self._host = host
        self._log = log
        self._clock = clock
        self._wall = wall
        self._eldest = eldest
        self._timer: Timer | None = None
        self._ticking = False
        self._stopped = False
        self.look()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Propose what is due, and look again when the next thing is."""
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_s = LOOK_S
        due_us = self._host.next_due_us()
        if due_us is not None and self._eldest() and not self._ticking:
            now_us = max(int(self._wall() * 1e6), self._log.time_us)
            if due_us <= now_us:
                self._propose(Tick(self._host.due(now_us), now_us))
            else:
                wait_s = min(max((due_us - now_us) / 1e6, 0.001), LOOK_S)
        self._timer = self._clock.call_later(wait_s, self.look)

    def gone(self, machine: int, owners: Sequence[int]) -> None:
        """These members left the view: what they held is free. Everybody says it, and it is done once."""
        held = set(self._host.machines[machine].machine.owners())
        left = [owner for owner in owners if owner in held]
        if left and not self._stopped:
            self._submit(Expire(machine, left))

    def _propose(self, tick: Tick) -> None:
        self._ticking = True

        def done(index: int, error: PluribusError | None) -> None:
            self._ticking = False
            if error is None:
                self._host.take_outcomes(index, 1)
                self.look()

        try:
            self._log.submit_many([encode(tick)], done, HOST)
        except PluribusError:
            self._ticking = False

    def _submit(self, word: Expire) -> None:
        def done(index: int, error: PluribusError | None) -> None:
            if error is None:
                self._host.take_outcomes(index, 1)

        try:
            self._log.submit_many([encode(word)], done, HOST)
        except PluribusError as error:
            log_.warning("%r could not be told whose leases ended: %s", self._log.log.name, error)
