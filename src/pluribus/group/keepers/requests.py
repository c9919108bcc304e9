"""Requests of one keeper's application to the leader, now or the next one: place commands, read freshly, change voters.

If the leader is in this process a request is a call; else it travels, under a ticket. A request that the leader
certainly did not write waits for the next leader, in its order. A request that the leader may have written when it was
lost is uncertain, and fails at once: a caller that must not act twice asks again with the same identity (see ``once``).
No request waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from ...core.errors import NotPrimary, Overflow, PluribusError, Refused, TooLarge, Uncertain
from ...core.limits import FRAME_BYTES_MAX
from ...core.ports import Timer
from ..log import Done
from .leader import Leader
from .seat import Seat
from .words import Failed, Placed, Read, ReadAt, Submit, Vote

REQUESTS_MAX = 65_536
REQUESTS_BYTES_MAX = 64 << 20
SUBMISSION_BYTES_MAX = FRAME_BYTES_MAX
OVERHEAD_BYTES = 64
TICKET_BITS = 40
"""Bits of a ticket that count within one run of the process."""


class Request:
    """``commands`` to be placed; or a fresh read; or a change of voters."""

    __slots__ = ("commands", "done", "machine", "number", "size", "until", "vote")

    def __init__(
        self,
        number: int,
        commands: Sequence[bytes] | None,
        vote: tuple[int, bool] | None,
        done: Done,
        until: float,
        machine: int,
    ) -> None:
        self.number = number
        self.commands = commands
        self.vote = vote
        self.done = done
        self.until = until
        self.machine = machine
        self.size = OVERHEAD_BYTES + (sum(map(len, commands)) if commands is not None else 0)


class Requests:
    """The owner calls ``leads`` when the leader changes, and hands over the leader's answers."""

    def __init__(self, seat: Seat, leading: Callable[[], Leader | None]) -> None:
        self._seat = seat
        self._leading = leading
        self._tickets = count(seat.ledger.meta.run << TICKET_BITS)
        """A ticket is never used again, neither by a later run nor for a second attempt, so that an answer that comes
        late or twice is not taken for another one."""
        self._waiting: deque[Request] = deque()
        self._away: dict[int, Request] = {}
        self._placed: list[tuple[int, int, Request]] = []
        self._bytes = 0
        self._count = 0
        self._floor: int | None = None
        """Commands that are under way have rows from this one on."""
        self._timer: Timer | None = None

    def add(
        self, commands: Sequence[bytes] | None, vote: tuple[int, bool] | None, done: Done, machine: int = 0
    ) -> None:
        """Add a request: ``commands`` to be placed, or a ``vote`` to be changed; with neither, a fresh read."""
        seat = self._seat
        until = seat.clock.now() + seat.settings.submit_s
        request = Request(next(self._tickets), commands, vote, done, until, machine)
        if request.size > SUBMISSION_BYTES_MAX:
            raise TooLarge(f"commands of {request.size:,} bytes together: the limit is {SUBMISSION_BYTES_MAX:,}")
        if self._count >= REQUESTS_MAX or self._bytes + request.size > REQUESTS_BYTES_MAX:
            raise Overflow(f"{self._count:,} requests of {self._bytes:,} bytes wait for the keepers: wait for them")
        self._count += 1
        self._bytes += request.size
        if self._timer is None:
            self._timer = seat.clock.call_later(seat.settings.submit_s / 4, self._look)
        if self._waiting:
            self._waiting.append(request)
        else:
            self._ask(request)

    def awaits(self, row: int) -> bool:
        """Whether a caller here may wait for the results of this row's commands. Not if the row is older than all
        submissions under way, as rows are that are applied again when a keeper is opened."""
        return self._count > 0 and self._floor is not None and row >= self._floor

    def leads(self) -> None:
        """There is a leader, perhaps a new one: requests to the last leader are uncertain, the others are sent now."""
        self._give_up_away("the keepers changed their leader, and it may have been written or not: ask again")
        self.ask()

    def ask(self) -> None:
        """Send the waiting requests to the present leader."""
        waiting = self._waiting
        while waiting and self._may_ask():
            self._ask(waiting.popleft())

    def placed(self, sender: int, word: Placed) -> None:
        request = self._away.pop(word.ticket, None)
        if request is not None:
            self._wait_for(word.row, word.index, request)

    def read_at(self, sender: int, word: ReadAt) -> None:
        request = self._away.pop(word.ticket, None)
        if request is not None:
            self._wait_for(word.row, -1, request)

    def failed(self, sender: int, word: Failed) -> None:
        request = self._away.pop(word.ticket, None)
        if request is None:
            return
        if not word.certain:
            self._end(request, -1, Uncertain(word.reason))
        elif request.vote is not None:
            self._end(request, -1, Refused(word.reason))
        else:
            self._put_back(request)

    def applied(self) -> None:
        """Rows were applied here: complete the requests that waited for them."""
        if self._placed:
            row = self._seat.applied_row
            ready = [one for one in self._placed if one[0] <= row]
            self._placed = [one for one in self._placed if one[0] > row]
            for place, index, request in ready:
                if index < 0:
                    self._end(request, self._seat.applied, None)
                elif place > self._seat.restored_row or request.commands is None:  # who votes has no result here
                    self._end(request, index, None)
                else:
                    self._end(request, -1, Uncertain("it was done, but what it did came with a snapshot: ask again"))

    def stop(self, error: PluribusError) -> None:
        """Fail all requests."""
        if self._timer is not None:
            self._timer.cancel()
        self._give_up_away(f"{error}; it may have been written or not")
        while self._waiting:
            self._end(self._waiting.popleft(), -1, error)
        placed, self._placed = self._placed, []
        for _, index, request in placed:
            uncertain = Uncertain(f"{error}; it was written, but not applied here")
            self._end(request, -1, error if index < 0 else uncertain)

    # Inside.

    def _ask(self, request: Request) -> None:
        leader, seat = self._leading(), self._seat
        if request.commands is not None:  # who does not lead may lose the rows that are not committed
            floor = seat.ledger.end if leader is not None else seat.commit
            self._floor = floor if self._floor is None else min(floor, self._floor)
        if leader is not None:
            self._ask_here(leader, request)
        elif self._may_ask():
            ticket = next(self._tickets)
            self._away[ticket] = request
            if request.commands is not None:
                seat.send(seat.leader, Submit(ticket, list(request.commands), request.machine))
            elif request.vote is not None:
                seat.send(seat.leader, Vote(ticket, *request.vote))
            else:
                seat.send(seat.leader, Read(ticket))
        else:
            self._put_back(request)

    def _may_ask(self) -> bool:
        return self._leading() is not None or (self._seat.leader != 0 and self._seat.may_speak)

    def _ask_here(self, leader: Leader, request: Request) -> None:
        def placed(index: int, row: int, error: PluribusError | None) -> None:
            if error is None or isinstance(error, Uncertain) or request.vote is not None:
                self._end(request, index, error)
            else:
                self._put_back(request)

        if request.commands is not None:
            leader.submit(request.commands, request.size, placed, request.machine)
        elif request.vote is not None:
            leader.change(*request.vote, placed)
        else:
            leader.read(placed)

    def _put_back(self, request: Request) -> None:
        """Let a request wait again, in the order of numbers, so that commands do not overtake each other."""
        at = len(self._waiting)
        while at and self._waiting[at - 1].number > request.number:
            at -= 1
        self._waiting.insert(at, request)

    def _wait_for(self, row: int, index: int, request: Request) -> None:
        self._placed.append((row, index, request))
        self.applied()

    def _end(self, request: Request, index: int, error: PluribusError | None) -> None:
        self._count -= 1
        self._bytes -= request.size
        if not self._count:
            self._floor = None
        request.done(index, error)

    def _give_up_away(self, reason: str) -> None:
        away, self._away = self._away, {}
        for request in away.values():
            if request.commands is None and request.vote is None:
                self._put_back(request)  # a read is read again
            else:
                self._end(request, -1, Uncertain(reason))

    def _why(self, late_s: str) -> str:
        """The error for a request that was not done in time, with what this keeper knows of the reason."""
        ledger = self._seat.ledger
        complaint = ledger.complaint
        if complaint and ledger.alone:
            return f"the only keeper of {ledger.name!r} cannot go on: {complaint}"
        own = f"; and this one cannot vote: {complaint}" if complaint else ""
        return f"most keepers of {ledger.name!r} did not answer {late_s}{own}"

    def _look(self) -> None:
        """Fail requests that have waited too long."""
        self._timer = None
        seat = self._seat
        now = seat.clock.now()
        late_s = f"in {seat.settings.submit_s:g} s"
        while self._waiting and self._waiting[0].until <= now:
            request = self._waiting.popleft()
            self._end(request, -1, NotPrimary(self._why(late_s)))
        for ticket in [ticket for ticket, request in self._away.items() if request.until <= now]:
            request = self._away.pop(ticket)
            self._end(request, -1, Uncertain(f"no answer {late_s}, it may have been written or not: ask again"))
        late = [one for one in self._placed if one[2].until <= now]
        self._placed = [one for one in self._placed if one[2].until > now]
        for _, _, request in late:
            self._end(request, -1, Uncertain(f"written, but not applied here {late_s}: ask again"))
        if self._count and not seat.stopped:
            self._timer = seat.clock.call_later(seat.settings.submit_s / 4, self._look)
