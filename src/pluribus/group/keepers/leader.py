"""A keeper that leads: it puts commands in rows, sends rows to everybody, and says what is committed.

Commands that wait are put into one row; while rows are on their way to its own disk, further commands gather for the
next. Followers are fed at the same time as the own disk, in a window each, without waiting for answers.

A row is committed when most voters have it on disk and it is of this leader's epoch; older rows are committed with it,
never by being counted themselves, because a later leader could still replace them. So an epoch begins with an empty
row.

A leader that most voters have not answered for a while steps down: it could not commit anything, and somebody else may
lead already. What it had written for others is then uncertain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ...core.errors import Overflow, PluribusError, Refused, Uncertain
from ...core.ports import Timer
from .rows import Voters, encode_commands, encode_epoch, encode_voters
from .seat import Seat
from .voting import refusal
from .words import LOST, WHOLE, Got, Held, Piece, Rows, stored

ROW_BYTES = 256 << 10
"""A row is closed when it holds so much; one submission may be larger."""
ROW_COMMANDS_MAX = 65_536
ROWS_UNDER_WAY = 2
"""Rows that may be on their way to the own disk: one is written while the next gathers."""
WINDOW_BYTES = 4 << 20
"""What one follower may not have answered yet."""
LEARNERS_MAX = 64
ADMIT_LAG_ROWS = 64
"""A learner that is so close to the end of the log may become a voter."""

Placed = Callable[[int, int, PluribusError | None], None]
"""``(index, row, error)``: committed and applied here, and the row behind the one that holds it."""


class Peer:
    """How far one other keeper is."""

    __slots__ = (
        "answered",
        "asked",
        "debt",
        "flight",
        "flight_bytes",
        "health",
        "heard_at",
        "match",
        "next",
        "rewound",
        "run",
        "sending",
    )

    def __init__(self, end: int, now: float) -> None:
        self.next = end
        self.match = 0
        self.flight: deque[tuple[int, int]] = deque()
        self.flight_bytes = 0
        self.health = WHOLE
        self.debt = 0
        self.run = -1
        self.answered = 0
        """The last of our words that it answered."""
        self.asked = -1
        """What it wanted last; asked for again without progress, it is sent with the next beat, not at once."""
        self.rewound = 0
        """The first of our words after we last went back; what was missed before is sent already."""
        self.heard_at = now
        self.sending: Sending | None = None

    def rewind(self, to: int) -> None:
        self.next = to
        self.flight.clear()
        self.flight_bytes = 0


class Sending:
    """A snapshot on its way to one keeper, a piece at a time."""

    __slots__ = ("base", "data", "offset", "row")

    def __init__(self, row: int, base: bytes, data: bytes) -> None:
        self.row = row
        self.base = base
        self.data = data
        self.offset = 0


class Leader:
    """``step_down`` is called when it must not lead any more."""

    name = "leader"
    hears_leader = True

    def __init__(self, seat: Seat, step_down: Callable[[str], None]) -> None:
        self._seat = seat
        self._ledger = seat.ledger
        self._step_down = step_down
        self._queue: deque[tuple[Sequence[bytes], int, Placed]] = deque()
        self._placed: deque[tuple[int, int, Placed]] = deque()
        self._reads: list[tuple[int, int, Placed]] = []
        self._admission: tuple[int, Placed, float] | None = None
        self._admission_serial = 0
        """The first of our words after that was asked: who answers it, or a later one, is there now."""
        self._asked_to_close = False
        self._asked_to_confirm = False
        self._serial = 0
        self._stopped = False
        now = seat.clock.now()
        self.peers = {keeper: Peer(seat.ledger.end, now) for keeper in seat.ledger.voters.keepers if keeper != seat.me}
        self._own = seat.ledger.end
        """The first row of this epoch."""
        self._timer: Timer | None = None

    def start(self) -> None:
        ledger = self._ledger
        index = ledger.next_index()
        if index is not None:
            ledger.append([encode_epoch(ledger.epoch, index)])
            self._beat()

    def stop(self) -> None:
        """What was not written down can be tried elsewhere; what was is uncertain."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        written, waiting = list(self._placed), [*self._queue, *self._reads]
        self._placed.clear()
        self._queue.clear()
        self._reads.clear()
        for _, _, placed in written:
            placed(-1, 0, Uncertain("the keepers changed their leader, and it may have been written or not: ask again"))
        for *_, placed in waiting:
            placed(-1, 0, Refused("this keeper does not lead any more"))
        if self._admission is not None:
            self._admission[1](-1, 0, Refused("this keeper does not lead any more"))

    # What is asked of a leader.

    def submit(self, commands: Sequence[bytes], size: int, placed: Placed) -> None:
        self._queue.append((commands, size, placed))
        if not self._asked_to_close:
            self._asked_to_close = True
            self._seat.clock.call_soon(self._close_rows)

    def read(self, placed: Placed) -> None:
        """Placed when it is certain that nobody else led before this call."""
        self._reads.append((self._serial + 1, max(self._seat.commit, self._own + 1), placed))
        if not self._asked_to_confirm:
            self._asked_to_confirm = True
            self._seat.clock.call_soon(self._confirm)

    def change(self, keeper: int, votes: bool, placed: Placed) -> None:
        """One voter more or less. A new one first catches up."""
        voters = self._ledger.voters
        if votes == (keeper in voters):
            placed(self._seat.applied, self._ledger.voters_row, None)
        elif not votes and len(voters.keepers) == 1:
            placed(-1, 0, Refused(f"keeper {keeper:x} is the only voter: add another before"))
        elif self._admission is not None:
            placed(-1, 0, Overflow("another keeper is being made a voter: wait for it"))
        else:
            self._admission = (keeper, placed, self._seat.clock.now() + self._seat.settings.submit_s)
            self._admission_serial = self._serial + 1
            self._admit()

    def hello(self, sender: int) -> None:
        """A keeper that hears nobody wants to follow."""
        if sender not in self.peers and len(self.peers) < LEARNERS_MAX + len(self._ledger.voters.keepers):
            self.peers[sender] = Peer(self._ledger.end, self._seat.clock.now())
        if sender in self.peers:
            self._send_rows(sender, self.peers[sender], [])

    # What followers answer.

    def held(self, sender: int, word: Held) -> None:
        peer = self.peers.get(sender)
        if peer is None or not self._fresh(peer, word.run, word.serial):
            return
        ledger = self._ledger
        if word.health != WHOLE and (peer.health == WHOLE or not peer.debt):
            peer.debt = ledger.end
            peer.match = 0
        peer.health = word.health
        if word.health == WHOLE:
            peer.debt = 0
        peer.match = max(peer.match, min(word.upto, ledger.end))
        peer.next = max(peer.next, peer.match)
        while peer.flight and peer.flight[0][0] <= peer.match:
            peer.flight_bytes -= peer.flight.popleft()[1]
        if word.health == LOST:
            self._send_snapshot(sender, peer)
        elif word.want is not None and word.serial >= peer.rewound:
            peer.rewound = self._serial + 1
            peer.rewind(min(max(word.want, peer.match if word.health == WHOLE else 0), ledger.end))
            again, peer.asked = peer.asked == word.want, word.want
            if again:
                return
        self._feed(sender, peer)
        self._advance()
        self._confirmed()
        self._admit()

    def got(self, sender: int, word: Got) -> None:
        peer = self.peers.get(sender)
        if peer is None or not self._fresh(peer, word.run, word.serial):
            return
        sending = peer.sending
        if sending is not None and sending.row == word.row:
            if word.offset >= len(sending.data):
                peer.sending = None
                peer.rewind(max(self._ledger.start, min(peer.next, sending.row)))
                self._send_rows(sender, peer, [])
            elif word.offset != sending.offset:
                sending.offset = word.offset
                self._send_piece(sender, sending)

    def durable(self) -> None:
        """More is on the own disk."""
        self._advance()
        self._close_rows()

    def trouble(self) -> None:
        self._step_down("its log failed" if self._ledger.failing else "its log is damaged")

    def applied(self) -> None:
        """Rows were applied: tell those who wait for them."""
        row = self._seat.applied_row
        placed = self._placed
        while placed and placed[0][0] <= row:
            end, index, tell = placed.popleft()
            tell(index, end, None)
        self._confirmed()

    # Rows.

    def _close_rows(self) -> None:
        """Put what waits into rows, as many as the disk may have under way."""
        self._asked_to_close = False
        ledger = self._ledger
        while self._queue and not self._stopped and not ledger.failing:
            if ledger.end - ledger.durable >= ROWS_UNDER_WAY:
                return
            first = ledger.next_index()
            if first is None:
                return
            commands: list[bytes] = []
            size, index = 0, first
            end = ledger.end + 1
            while self._queue and size < ROW_BYTES and len(commands) < ROW_COMMANDS_MAX:
                some, some_bytes, placed = self._queue.popleft()
                self._placed.append((end, index, placed))
                commands += some
                index += len(some)
                size += some_bytes
            row = encode_commands(ledger.epoch, first, commands)
            self._seat.encoded = (row, commands)
            ledger.append([row])
            self._feed_all()

    def _feed_all(self) -> None:
        for keeper, peer in self.peers.items():
            self._feed(keeper, peer)

    def _feed(self, keeper: int, peer: Peer) -> None:
        """Send what is new, as far as the window allows."""
        ledger = self._ledger
        while not self._stopped and peer.next < ledger.end and peer.flight_bytes < WINDOW_BYTES:
            if peer.sending is not None:
                return
            if peer.next < ledger.start:
                self._send_snapshot(keeper, peer)
                return
            rows = ledger.read(peer.next, ledger.end, self._seat.settings.words_bytes)
            if not rows:
                return
            size = sum(map(len, rows))
            self._send_rows(keeper, peer, rows)
            peer.next += len(rows)
            peer.flight.append((peer.next, size))
            peer.flight_bytes += size

    def _send_rows(self, keeper: int, peer: Peer, rows: list[bytes]) -> None:
        seat, ledger = self._seat, self._ledger
        if self._stopped:
            return
        self._serial += 1
        at = max(peer.next, ledger.start)
        before = ledger.epoch_at(at - 1)
        seat.send(keeper, Rows(ledger.epoch, at, before, rows, seat.commit, self._serial, peer.debt))

    def _send_snapshot(self, keeper: int, peer: Peer) -> None:
        ledger = self._ledger
        if peer.sending is None:
            if not ledger.snapshot.row:
                self._seat.take_snapshot()
            whole = ledger.saved()
            if whole is None:
                return
            peer.sending = Sending(ledger.snapshot.row, stored(ledger.base), whole)
            self._send_piece(keeper, peer.sending)

    def _send_piece(self, keeper: int, sending: Sending) -> None:
        if self._stopped:
            return
        self._serial += 1
        data = sending.data[sending.offset : sending.offset + self._seat.settings.words_bytes]
        size = len(sending.data)
        epoch = self._ledger.epoch
        piece = Piece(epoch, sending.row, sending.base, size, sending.offset, data, self._serial)
        self._seat.send(keeper, piece)

    def _advance(self) -> None:
        """Commit what most voters have on disk, if that is of this epoch."""
        ledger, voters = self._ledger, self._ledger.voters
        if len(voters.keepers) == 1:  # who keeps alone does this for every window of a publisher
            commit = self._held_by(voters.keepers[0])
        else:
            commit = sorted(map(self._held_by, voters.keepers), reverse=True)[voters.majority - 1]
        if commit > self._seat.commit and self._countable(commit):
            self._seat.advance(commit)
            if self._seat.me not in ledger.voters and commit >= ledger.voters_row:
                self._step_down("it is no voter any more")

    def _countable(self, commit: int) -> bool:
        return self._ledger.epoch_at(commit - 1) == self._ledger.epoch

    def _held_by(self, keeper: int) -> int:
        if keeper == self._seat.me:
            return self._ledger.durable
        peer = self.peers.get(keeper)
        return peer.match if peer is not None and peer.health == WHOLE else 0

    # Time.

    def _beat(self) -> None:
        """Say that we are here, and look whether most voters are."""
        if self._stopped:
            return
        seat, settings = self._seat, self._seat.settings
        self._timer = seat.clock.call_later(settings.heartbeat_s, self._beat)  # whatever becomes of this one
        now = seat.clock.now()
        voters = self._ledger.voters
        silent_s = 2 * settings.election_s
        if sum(map(self._near, voters.keepers)) < voters.majority:
            self._step_down("most voters are out of reach")
            return
        for keeper in [k for k, peer in self.peers.items() if k not in voters and now - peer.heard_at > 10 * silent_s]:
            del self.peers[keeper]
        for keeper, peer in list(self.peers.items()):
            peer.asked = -1
            serial = self._serial
            if peer.sending is not None:
                self._send_piece(keeper, peer.sending)
            else:
                self._feed(keeper, peer)
            if serial == self._serial:
                self._send_rows(keeper, peer, [])
        self._admit()
        seat.advance(seat.commit)  # what could not be read is tried again

    def _near(self, keeper: int) -> bool:
        """Whether it answered lately."""
        peer, seat = self.peers.get(keeper), self._seat
        late_at = seat.clock.now() - 2 * seat.settings.election_s
        return keeper == seat.me or (peer is not None and peer.heard_at > late_at)

    def _answers(self, keeper: int) -> bool:
        """Whether it has answered since a change of voters was asked for."""
        peer = self.peers.get(keeper)
        return keeper == self._seat.me or (peer is not None and peer.answered >= self._admission_serial)

    def _fresh(self, peer: Peer, run: int, serial: int) -> bool:
        """Whether an answer is of the keeper's present life; of an earlier one nothing counts any more."""
        if run < peer.run:
            return False
        if run > peer.run:
            peer.run = run
            peer.match = 0
            peer.health, peer.debt = WHOLE, 0
            peer.sending = None
            peer.answered = peer.rewound = 0
        peer.heard_at = self._seat.clock.now()
        peer.answered = max(peer.answered, serial)
        return True

    def _confirm(self) -> None:
        """Ask everybody whether we still lead."""
        self._asked_to_confirm = False
        if self._reads and not self._stopped:
            for keeper, peer in self.peers.items():
                self._send_rows(keeper, peer, [])
            self._confirmed()

    def _confirmed(self) -> None:
        """Answer the reads since whose call most voters answered, once what was committed then is applied."""
        if not self._reads:
            return
        seat, voters = self._seat, self._ledger.voters
        heard = sorted((self._heard_from(keeper) for keeper in voters.keepers), reverse=True)
        confirmed = heard[voters.majority - 1]
        rest: list[tuple[int, int, Placed]] = []
        ready: list[tuple[int, int, Placed]] = []
        for read in self._reads:
            (ready if read[0] <= confirmed and read[1] <= seat.applied_row else rest).append(read)
        self._reads = rest
        for _, row, tell in ready:
            tell(seat.applied, row, None)

    def _heard_from(self, keeper: int) -> int:
        if keeper == self._seat.me:
            return self._serial + 1
        peer = self.peers.get(keeper)
        return -1 if peer is None else peer.answered

    # Voters.

    def _admit(self) -> None:
        """Go on with a change of voters when that is safe: the one before is committed, and the newcomer is there."""
        if self._admission is None or self._stopped or self._ledger.failing:
            return
        keeper, placed, until = self._admission
        seat, ledger = self._seat, self._ledger
        voters = ledger.voters
        if seat.clock.now() > until:
            self._admission = None
            placed(-1, 0, Refused(self._late(keeper)))
            return
        if seat.commit < max(ledger.voters_row, self._own + 1):
            return
        why = refusal(voters, keeper, self._answers)
        if why:
            asked_at = until - seat.settings.submit_s
            if (
                keeper in voters and seat.clock.now() > asked_at + 2 * seat.settings.election_s
            ):  # nobody else will answer
                self._admission = None
                placed(-1, 0, Refused(f"keeper {keeper:x} keeps its vote: {why}"))
            return
        if keeper in voters:
            keepers = tuple(one for one in voters.keepers if one != keeper)
        else:
            peer = self.peers.get(keeper)
            if peer is None or peer.health != WHOLE or peer.match < ledger.end - ADMIT_LAG_ROWS:
                return
            if not self._answers(keeper):
                return
            keepers = (*voters.keepers, keeper)
        first = ledger.next_index()
        if first is None:
            return
        self._admission = None
        ledger.append([encode_voters(ledger.epoch, first, Voters(voters.version + 1, keepers))])
        self._placed.append((ledger.end, first, placed))
        self._feed_all()

    def _late(self, keeper: int) -> str:
        """Why a change of voters did not come about."""
        peer, ledger, seconds = self.peers.get(keeper), self._ledger, self._seat.settings.submit_s
        why = "" if keeper in ledger.voters else refusal(ledger.voters, keeper, self._answers)
        if peer is None or not self._answers(keeper):
            return f"keeper {keeper:x} does not answer: start it, with this store or a new one"
        if why:
            return f"keeper {keeper:x} does not get a vote: {why}"
        far = f"it has {peer.match:,} of {ledger.end:,} rows"
        return f"keeper {keeper:x} did not catch up in {seconds:g} s: {far}, ask again"
