"""A keeper that stands for election: first on trial, then in earnest.

A trial binds nobody and raises no epoch, so a keeper that was cut off does not depose a leader when it comes back. Only
if most voters would vote for it, it promises a new epoch, on disk, and asks for their promises.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.ports import Timer
from .seat import Seat
from .words import Answer, Ask


class Candidate:
    """``elected`` when most voters are for it, ``give_up`` when they did not answer in time."""

    name = "candidate"

    def __init__(self, seat: Seat, elected: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._seat = seat
        self._elected = elected
        self._give_up = give_up
        self._trial = True
        self._epoch = seat.ledger.epoch + 1
        self._granted: set[int] = {seat.me}
        self._stopped = False
        self._until = seat.clock.now() + seat.later()
        self._timer: Timer | None = None

    hears_leader = False

    def start(self) -> None:
        self._count()
        self._ask()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def answer(self, sender: int, word: Answer) -> None:
        seat = self._seat
        if word.granted and word.epoch == self._epoch and word.trial == self._trial and sender in seat.ledger.voters:
            self._granted.add(sender)
            self._count()

    def durable(self) -> None:
        """Nothing waits for rows."""

    def trouble(self) -> None:
        """Its log failed or went bad, so it gives up."""
        self._give_up()

    def _count(self) -> None:
        voters = self._seat.ledger.voters
        if self._stopped or len(self._granted & set(voters.keepers)) < voters.majority:
            return
        if self._trial:
            self._trial = False
            self._granted = set()
            self._seat.ledger.promise(self._epoch, self._seat.me, self._promised)
        else:
            self._elected()

    def _promised(self) -> None:
        """Its own vote is on disk and counts."""
        if not self._stopped and self._seat.ledger.epoch == self._epoch:
            self._granted.add(self._seat.me)
            self._count()
            self._ask()

    def _ask(self) -> None:
        """Ask the voters, repeatedly, because words get lost."""
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        seat, ledger = self._seat, self._seat.ledger
        if seat.clock.now() >= self._until:
            self._give_up()
            return
        ask = Ask(self._epoch, ledger.last_epoch, ledger.end, self._trial)
        for voter in ledger.voters.keepers:
            if voter != seat.me and voter not in self._granted and (self._trial or seat.me in self._granted):
                seat.send(voter, ask)
        self._timer = seat.clock.call_later(seat.settings.heartbeat_s * 2, self._ask)
