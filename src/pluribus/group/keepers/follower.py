"""A keeper that follows: it writes down what the leader sends, says what is on disk, and notices a silent leader.

Voters and learners follow alike; only a voter stands for election when it hears no leader. A keeper whose log is
damaged follows, too: what the leader sends puts it back together. It is whole when it has everything that the leader
could have counted on it for, which the leader tells as ``debt``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...core.errors import MalformedFrame
from ...core.ports import Timer
from .rows import head_of
from .seat import Seat
from .words import DAMAGED, LOST, Got, Held, Piece, Rows, base_of

TIMER_S = 0.001
"""Timers may fire this much early; nothing is gained by waiting for the rest."""

SNAPSHOT_BYTES_MAX = 1 << 30
"""It is put together in memory."""
PROGRESS_ROWS_MIN = 1_000
"""Of less nobody needs to be told."""

log_ = logging.getLogger("pluribus")


class Follower:
    """``stand`` is called when it is time to become a candidate."""

    name = "follower"

    def __init__(self, seat: Seat, stand: Callable[[], None]) -> None:
        self._seat = seat
        self._stand = stand
        self._matched = 0
        """Rows below it are the leader's, as far as this epoch showed."""
        self._serial = 0
        self._heard_at = float("-inf")
        self._pieces = bytearray()
        self._pieces_of = (0, 0)
        self._told = False
        self._tenths = 0
        """Of what a damaged keeper is to have again."""
        self._due_at = 0.0
        self._overdue = False
        """It was time to stand, and only the disk made it wait."""
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
        if ledger.meta.health == DAMAGED and word.debt:
            self._progress(word.debt)
            if word.debt <= self._upto():
                self._heal()
        seat.advance(min(word.commit, self._matched, ledger.end))
        if not word.rows or self._upto() >= self._matched or ledger.damaged:
            self._report(min(ledger.damaged) if ledger.damaged else None)

    def piece(self, sender: int, word: Piece) -> None:
        """Of a snapshot, because our log is too far behind the leader's, or because we lost our state."""
        self._heard()
        seat, ledger = self._seat, self._seat.ledger
        self._serial = max(self._serial, word.serial)
        ledger.try_again()
        ledger.set_aside()
        if ledger.failing or not self._has_room(word):
            return
        if self._pieces_of != (word.row, word.size):
            self._pieces_of = (word.row, word.size)
            self._pieces.clear()
        if word.offset == len(self._pieces):
            self._pieces += word.data
        if len(self._pieces) == word.size:
            whole, base = bytes(self._pieces), base_of(word.base)
            if ledger.meta.health == LOST or ledger.end < word.row or self._first_damaged() < base.row:
                snapshot = ledger.install(base, whole)
                self._matched = 0
                if snapshot.row > seat.applied_row:
                    seat.restore(snapshot)
        seat.send(seat.leader, Got(ledger.epoch, word.row, len(self._pieces), word.serial, ledger.meta.run))

    def _has_room(self, word: Piece) -> bool:
        fine = 0 < word.size <= SNAPSHOT_BYTES_MAX
        if not fine and not self._told:
            self._told = True
            asked = f"a snapshot of {word.size:,} bytes, of at most {SNAPSHOT_BYTES_MAX:,}"
            log_.error("the keeper of %r cannot follow: its leader has %s", self._seat.ledger.name, asked)
        return fine

    def durable(self) -> None:
        """More is on disk."""
        if self._seat.leader:
            self._report()
        elif self._overdue and self._may_stand:
            self._stand()

    def trouble(self) -> None:
        """The log failed or went bad: what was matched may be gone, and what is there instead may be older."""
        self._matched = 0

    def _progress(self, debt: int) -> None:
        """Tell people how far it is, ten times or less."""
        tenths = 10 * self._upto() // debt
        if tenths > self._tenths and debt >= PROGRESS_ROWS_MIN:
            log_.info("the keeper of %r has %d of %d rows again", self._seat.ledger.name, self._upto(), debt)
        self._tenths = tenths

    def _heal(self) -> None:
        """We have all that this leader ever counted on; damaged rows behind that are none of its."""
        ledger = self._seat.ledger
        if ledger.damaged:
            ledger.cut(self._first_damaged())
            self._matched = min(self._matched, ledger.end)
        ledger.heal()

    def _missing(self, word: Rows) -> int | None:
        """From where on the leader should send instead; None if its rows fit."""
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
        """Write down what is new, put back what is damaged, and give up what another leader wanted in its place."""
        ledger = self._seat.ledger
        try:
            epochs = [head_of(row).epoch for row in word.rows]
        except MalformedFrame as error:
            log_.error("the leader of %s sent %s", ledger.name, error)
            return False
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

    def _first_damaged(self) -> int:
        ledger = self._seat.ledger
        return min(ledger.damaged, default=ledger.end)

    def _upto(self) -> int:
        ledger = self._seat.ledger
        return min(self._matched, ledger.durable, self._first_damaged())

    def _report(self, want: int | None = None) -> None:
        seat, ledger = self._seat, self._seat.ledger
        meta = ledger.meta
        seat.send(seat.leader, Held(ledger.epoch, self._upto(), want, self._serial, meta.run, meta.health))

    def _heard(self) -> None:
        self._heard_at = self._seat.clock.now()
        self._due_at = self._heard_at + self._seat.later()
        self._overdue = False

    def _wait(self, delay_s: float) -> None:
        clock = self._seat.clock
        self._due_at = clock.now() + delay_s
        self._timer = clock.call_later(delay_s, self._look)

    def _look(self) -> None:
        """Whether the leader is silent for too long. The timer is set once and asked again, not set for every word."""
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
        return ledger.may_stand and ledger.promised == ledger.epoch
