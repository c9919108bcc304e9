"""A keeper that follows: it writes down what the leader sends, says what is on disk, and notices a silent leader.

Voters and learners follow alike; only a voter stands for election when it hears no leader. A keeper with a damaged log
follows, too: the leader's rows repair it. It is whole when it has all rows that a leader may ever have counted it for;
the leader tells their end as ``debt``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ...core.errors import MalformedFrame
from ...core.ports import Timer
from .rows import head_of
from .seat import Seat
from .words import DAMAGED, LOST, Got, Held, Offer, Piece, Rows, Snapshot, base_of, digest_of, snapshot_of

TIMER_S = 0.001
"""Timers may fire so much early; then the timer is not set again for the rest."""

PART_BYTES_MAX = 64 << 20
"""The largest part of a snapshot, which is put together in memory."""
PROGRESS_ROWS_MIN = 1_000
"""Progress is logged only if so many rows are to be had again."""

log_ = logging.getLogger("pluribus")


class Incoming:
    """A leader's snapshot on its way: parts are stored as they come; it is taken over when all are there."""

    def __init__(self, snapshot: Snapshot, base: bytes, missing: list[int]) -> None:
        self.snapshot = snapshot
        self.base = base
        self.missing = missing
        """Numbers of the parts that are not here, the next one last."""
        self.pieces = bytearray()

    @property
    def place(self) -> tuple[int, int]:
        """The part and the offset that come next; behind the last part when all are there."""
        return (self.missing[-1], len(self.pieces)) if self.missing else (len(self.snapshot.parts), 0)


class Follower:
    """``stand`` is called when it is time to become a candidate."""

    name = "follower"

    def __init__(self, seat: Seat, stand: Callable[[], None]) -> None:
        self._seat = seat
        self._stand = stand
        self._matched = 0
        """Rows below this are known, in this epoch, to be the same as the leader's."""
        self._serial = 0
        self._heard_at = float("-inf")
        self._incoming: Incoming | None = None
        self._told = False
        self._tenths = 0
        """Tenths of its rows that a damaged keeper has again."""
        self._lacks = False
        """The leader freed rows that this keeper has not applied: it needs the leader's snapshot."""
        self._due_at = 0.0
        self._overdue = False
        """It was time to stand for election, but the disk was not ready."""
        self._timer: Timer | None = None
        self._wait(0.0 if seat.ledger.alone and seat.ledger.may_vote else seat.later())

    @property
    def hears_leader(self) -> bool:
        return self._seat.clock.now() - self._heard_at < self._seat.settings.election_s

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rows(self, sender: int, word: Rows) -> None:
        """From the leader of this epoch."""
        self._heard()
        seat, ledger = self._seat, self._seat.ledger
        self._serial = max(self._serial, word.serial)
        ledger.try_again()
        ledger.set_aside()
        if ledger.failing:
            return
        if ledger.meta.health == LOST:
            self._report()
            return
        want = self._missing(word)
        if want is not None:
            self._report(want)
            return
        if word.rows and not self._take(word):
            return
        self._matched = max(self._matched, word.at + len(word.rows))
        if ledger.meta.health == DAMAGED and word.debt and word.run == ledger.meta.run:
            self._progress(word.debt)
            if word.debt <= self._upto():
                self._heal()
        seat.advance(min(word.commit, self._matched, ledger.end))
        if not word.rows or self._upto() >= self._matched or ledger.damaged:
            self._report(min(ledger.damaged) if ledger.damaged else None)

    def offer(self, sender: int, word: Offer) -> None:
        """The leader offers a snapshot, because our log is too far behind, or because we lost our state."""
        self._heard()
        ledger = self._seat.ledger
        self._serial = max(self._serial, word.serial)
        ledger.try_again()
        ledger.set_aside()
        if ledger.failing:
            return
        if self._incoming is None or self._incoming.snapshot.row != word.row:
            try:
                snapshot = snapshot_of(word.manifest)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                log_.error("the leader of %s sent a snapshot that is none: %s", ledger.name, error)
                return
            if not self._has_room(snapshot):
                return
            self._incoming = Incoming(snapshot, word.base, self._missing_parts(snapshot))
        self._got(word.serial)

    def piece(self, sender: int, word: Piece) -> None:
        self._heard()
        ledger = self._seat.ledger
        self._serial = max(self._serial, word.serial)
        ledger.try_again()
        incoming = self._incoming
        if ledger.failing or incoming is None or incoming.snapshot.row != word.row:
            return
        if incoming.missing and (word.part, word.offset) == incoming.place:
            incoming.pieces += word.data
            part = incoming.snapshot.parts[word.part]
            if len(incoming.pieces) >= part.size:
                data = bytes(incoming.pieces)
                incoming.pieces.clear()
                if digest_of(data) == part.digest:
                    ledger.put_parts([(part, data)])
                    incoming.missing.pop()
        self._got(word.serial)

    def _got(self, serial: int) -> None:
        """Ask for the next piece; when there is none, take over the snapshot."""
        seat, ledger, incoming = self._seat, self._seat.ledger, self._incoming
        assert incoming is not None
        snapshot = incoming.snapshot
        if not incoming.missing:  # a disk may have gone bad since some were stored
            incoming.missing = self._missing_parts(snapshot)
        part, offset = incoming.place
        if not incoming.missing:
            base = base_of(incoming.base)
            behind = ledger.end < snapshot.row or self._first_damaged() < base.row
            if ledger.meta.health == LOST or self._lacks or behind:
                ledger.install(base, snapshot)
                self._matched, self._lacks = 0, False
                seat.installed(snapshot)
            self._incoming = None
        seat.send(seat.leader, Got(ledger.epoch, snapshot.row, part, offset, serial, ledger.meta.run, seat.installs))

    def _missing_parts(self, snapshot: Snapshot) -> list[int]:
        """The numbers of parts that are not on this disk, or damaged there; the first comes last."""
        ledger = self._seat.ledger
        return [number for number, part in enumerate(snapshot.parts) if ledger.part(part) is None][::-1]

    def _has_room(self, snapshot: Snapshot) -> bool:
        longest = max((part.size for part in snapshot.parts), default=0)
        fine = longest <= PART_BYTES_MAX
        if not fine and not self._told:
            self._told = True
            asked = f"a snapshot with a part of {longest:,} bytes, of at most {PART_BYTES_MAX:,}"
            log_.error("the keeper of %r cannot follow: its leader has %s", self._seat.ledger.name, asked)
        return fine

    def durable(self) -> None:
        """More rows are on disk: acknowledge them."""
        if self._seat.leader:
            self._report()
        elif self._overdue and self._may_stand:
            self._stand()

    def trouble(self) -> None:
        """The log failed or went bad: rows that matched the leader's may be gone, or replaced by older ones."""
        self._matched = 0

    def _progress(self, debt: int) -> None:
        """Log the progress, ten times at most."""
        tenths = 10 * self._upto() // debt
        if tenths > self._tenths and debt >= PROGRESS_ROWS_MIN:
            log_.info("the keeper of %r has %d of %d rows again", self._seat.ledger.name, self._upto(), debt)
        self._tenths = tenths

    def _heal(self) -> None:
        """We have all rows that this leader ever counted us for; damaged rows behind them do not matter to it."""
        ledger = self._seat.ledger
        if ledger.damaged:
            ledger.cut(self._first_damaged())
            self._matched = min(self._matched, ledger.end)
        ledger.heal()

    def _missing(self, word: Rows) -> int | None:
        """The row from which the leader should send instead; None if its rows fit."""
        ledger = self._seat.ledger
        at = word.at
        if self._first_damaged() < min(at, ledger.end):
            return self._first_damaged()
        if at > ledger.end:
            return ledger.end
        if at <= ledger.start:
            return None
        epoch = ledger.epoch_at(at - 1)
        if epoch == word.before:
            return None
        if epoch < 0:
            ledger.damage_found(at - 1)
            return at - 1
        first = at - 1
        while first > max(ledger.start, self._seat.commit) and ledger.epoch_at(first - 1) == epoch:
            first -= 1
        return first

    def _take(self, word: Rows) -> bool:
        """Write new rows, put back damaged ones, and cut off rows of another leader that are in their place."""
        ledger = self._seat.ledger
        try:
            heads = [head_of(row) for row in word.rows]
        except MalformedFrame as error:
            log_.error("the leader of %s sent %s", ledger.name, error)
            return False
        if any(head.hollow and word.at + place >= self._needs_from for place, head in enumerate(heads)):
            self._lacks = True
            self._report()
            return False
        epochs = [head.epoch for head in heads]
        for place, row in enumerate(word.rows):
            at = word.at + place
            if at < ledger.start:
                continue
            epoch = ledger.epoch_at(at) if at < ledger.end else -1
            if at < ledger.end and (epoch < 0 or at in ledger.damaged):
                ledger.repair(at, row)
            elif epoch != epochs[place]:
                if at < ledger.end:
                    assert at >= self._seat.commit or ledger.failures, f"row {at} is committed, and there is another"
                    ledger.cut(at)
                    self._matched = min(self._matched, at)
                ledger.append(word.rows[place:])
                break
        return True

    @property
    def _needs_from(self) -> int:
        """Rows from here on are applied again after a restart, so a hollow row is of no use there."""
        return self._seat.ledger.snapshot.row

    def _first_damaged(self) -> int:
        ledger = self._seat.ledger
        return min(ledger.damaged, default=ledger.end)

    def _upto(self) -> int:
        ledger = self._seat.ledger
        return min(self._matched, ledger.durable, self._first_damaged())

    def _report(self, want: int | None = None) -> None:
        seat, ledger = self._seat, self._seat.ledger
        meta = ledger.meta
        seat.send(
            seat.leader,
            Held(ledger.epoch, self._upto(), want, self._serial, meta.run, meta.health, self._lacks, seat.installs),
        )

    def _heard(self) -> None:
        self._heard_at = self._seat.clock.now()
        self._due_at = self._heard_at + self._seat.later()
        self._overdue = False

    def _wait(self, delay_s: float) -> None:
        clock = self._seat.clock
        self._due_at = clock.now() + delay_s
        self._timer = clock.call_later(delay_s, self._look)

    def _look(self) -> None:
        """Check whether the leader is silent for too long. The timer is checked when it fires, not set for every
        word."""
        seat, ledger = self._seat, self._seat.ledger
        now = seat.clock.now()
        if now < self._due_at - TIMER_S:
            self._timer = seat.clock.call_later(self._due_at - now, self._look)
            return
        ledger.try_again()
        seat.leader = 0
        for other in seat.carrier.others():  # also as a voter: perhaps we are none any more and did not hear of it
            seat.hail(other)
        if self._may_stand:
            self._stand()
        else:
            self._overdue = True
            self._wait(seat.later())

    @property
    def _may_stand(self) -> bool:
        ledger = self._seat.ledger
        return ledger.may_stand and ledger.promised == ledger.epoch and not self._seat.halted
