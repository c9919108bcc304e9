"""A keeper that leads: it puts commands in rows, sends rows to everybody, and says what is committed.

Waiting commands are put into rows, one row for each machine that has some; these rows are one write. While they are
written to the leader's own disk, further commands gather for the next write. Machines take turns by bytes, so that one
with much to write does not hold up the others (``turns``). Rows are sent to followers at the same time as to the own
disk, in a window for each follower, without waiting for answers. Every row carries the leader's time (``timekeeping``).

A row is committed when most voters have it on disk and it is of this leader's epoch. Older rows are committed together
with it, and never by counting alone, because a later leader could still replace them. So an epoch begins with an empty
row.

A leader that most voters have not answered for a while steps down: it could not commit anything, and another keeper may
lead already. Commands that it had written for others are then uncertain.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from ...core.errors import Overflow, PluribusError, Refused, Uncertain
from ...core.ports import Timer
from .rows import Voters, encode_commands, encode_epoch, encode_mark, encode_voters
from .seat import Seat
from .timekeeping import Timekeeper
from .turns import Turns
from .voting import refusal
from .words import LOST, WHOLE, Differs, Digest, Got, Held, Offer, Piece, Rows, Snapshot, stored

WRITES_UNDER_WAY = 2
"""Writes to the own disk that may be under way: one is written while the next gathers."""
WINDOW_BYTES = 4 << 20
"""The most bytes sent to one follower and not answered yet."""
LEARNERS_MAX = 64
ADMIT_LAG_ROWS = 64
"""A learner that lacks at most so many rows may become a voter."""

Placed = Callable[[int, int, PluribusError | None], None]
"""``(index, row, error)``: the command is committed and applied here; ``row`` is the position behind its row."""


class Peer:
    """What the leader knows of one other keeper."""

    __slots__ = (
        "answered",
        "asked",
        "debt",
        "flight",
        "flight_bytes",
        "health",
        "heard_at",
        "installs",
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
        self.installs = 0
        self.answered = 0
        """The serial number of our last word that it answered."""
        self.asked = -1
        """The row that it asked for last. If it asks again without progress, the row is sent with the next beat."""
        self.rewound = 0
        """The serial number of our first word since we last sent old rows again; earlier losses are dealt with."""
        self.heard_at = now
        self.sending: Sending | None = None

    def rewind(self, to: int) -> None:
        self.next = to
        self.flight.clear()
        self.flight_bytes = 0


class Sending:
    """A snapshot on its way to one keeper: first the list of its parts, then the parts that the keeper asks for."""

    __slots__ = ("base", "beaten", "data", "offered", "offset", "part", "snapshot")

    def __init__(self, snapshot: Snapshot, base: bytes) -> None:
        self.snapshot = snapshot
        self.base = base
        self.offered = False
        """Whether the keeper answered the offer."""
        self.part = self.offset = 0
        self.beaten = (-1, -1)
        """Which piece was next at the last beat."""
        self.data: bytes | None = None
        """Of the part that is being sent."""


class Leader:
    """``step_down`` is called when this keeper must not lead any more."""

    name = "leader"
    hears_leader = True

    def __init__(self, seat: Seat, step_down: Callable[[str], None]) -> None:
        self._seat = seat
        self._ledger = seat.ledger
        self._step_down = step_down
        self._turns = Turns()
        self._writes: deque[int] = deque()
        """For each write under way, the end of the log behind it."""
        self._time = Timekeeper(self._latest_us(), seat.clock.now(), seat.wall)
        self._digests: tuple[int, dict[int, bytes]] = (0, {})
        """The row of the last mark, and the digests of keepers' states there."""
        self._marked = seat.marked_row
        self._placed: deque[tuple[int, int, Placed]] = deque()
        self._reads: list[tuple[int, int, Placed]] = []
        self._admission: tuple[int, Placed, float] | None = None
        self._admission_serial = 0
        """The serial number of our first word after a change was asked for: a keeper that answers it is there now."""
        self._asked_to_close = False
        self._asked_to_confirm = False
        self._serial = 0
        self._stopped = False
        now = seat.clock.now()
        self.peers = {keeper: Peer(seat.ledger.end, now) for keeper in seat.ledger.voters.keepers if keeper != seat.me}
        self._own = seat.ledger.end
        """The first row of this epoch."""
        self._timer: Timer | None = None

    def _latest_us(self) -> int:
        """The latest time in the log, of rows that are not applied here yet, too. It never falls from row to row, so
        the last one that has a time tells."""
        for at in range(self._ledger.end - 1, self._seat.applied_row - 1, -1):
            head = self._ledger.head_at(at)
            if head is not None and head.time_us:
                return max(self._seat.time_us, head.time_us)
        return self._seat.time_us

    def start(self) -> None:
        ledger = self._ledger
        index = ledger.next_index()
        if index is not None:
            ledger.append([encode_epoch(ledger.epoch, index)])
            self._beat()

    def stop(self) -> None:
        """End all requests: those that were not written can be tried elsewhere, the others are uncertain."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        written = list(self._placed)
        waiting = [*self._turns.clear(), *(placed for _, _, placed in self._reads)]
        self._placed.clear()
        self._reads.clear()
        self._seat.encoded.clear()
        for _, _, placed in written:
            placed(-1, 0, Uncertain("the keepers changed their leader, and it may have been written or not: ask again"))
        for placed in waiting:
            placed(-1, 0, Refused("this keeper does not lead any more"))
        if self._admission is not None:
            self._admission[1](-1, 0, Refused("this keeper does not lead any more"))

    # What is asked of a leader.

    def submit(self, commands: Sequence[bytes], size: int, placed: Placed, machine: int = 0) -> None:
        self._turns.add(machine, commands, size, placed)
        if not self._asked_to_close:
            self._asked_to_close = True
            self._seat.clock.call_soon(self._close_rows)

    def read(self, placed: Placed) -> None:
        """Call ``placed`` when it is certain that no other keeper led when this was called."""
        self._reads.append((self._serial + 1, max(self._seat.commit, self._own + 1), placed))
        if not self._asked_to_confirm:
            self._asked_to_confirm = True
            self._seat.clock.call_soon(self._confirm)

    def change(self, keeper: int, votes: bool, placed: Placed) -> None:
        """Add or remove one voter. A new voter first catches up."""
        voters = self._ledger.voters
        if votes == (keeper in voters):
            self._placed.append((self._ledger.voters_row, self._seat.applied, placed))
            self.applied()  # at once, if the row that says so is committed
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
        if peer is None or not self._fresh(peer, word.run, word.serial, word.installs):
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
        if word.health == LOST or word.lacks:
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
        if peer is None or not self._fresh(peer, word.run, word.serial, word.installs):
            return
        sending = peer.sending
        if sending is None or sending.snapshot.row != word.row:
            return
        if word.part >= len(sending.snapshot.parts):
            peer.sending = None
            peer.rewind(max(self._ledger.start, min(peer.next, word.row)))
            self._send_rows(sender, peer, [])
        elif not sending.offered or (word.part, word.offset) != (sending.part, sending.offset):
            if word.part != sending.part:
                sending.data = None
            sending.offered, sending.part, sending.offset = True, word.part, word.offset
            self._send_piece(sender, peer, sending)

    def digest(self, sender: int, word: Digest) -> None:
        """What a keeper's state is at a mark. A voter that differs from most voters has to load the state anew."""
        row, told = self._digests
        if word.row < row or (sender != self._seat.me and sender not in self.peers):
            return
        if word.row > row:
            told = {}
            self._digests = (word.row, told)
        told[sender] = word.digest
        voters = self._ledger.voters
        counts = Counter(digest for keeper, digest in told.items() if keeper in voters)
        agreed, most = counts.most_common(1)[0] if counts else (b"", 0)
        if most >= voters.majority:
            for keeper in [keeper for keeper, digest in told.items() if digest != agreed]:
                del told[keeper]
                self._differs(keeper, word.row)

    def _differs(self, keeper: int, row: int) -> None:
        if keeper == self._seat.me:
            self._seat.astray = True
            self._ledger.lost(f"most keepers had another state than this one before row {row}")
        else:
            self._seat.send(keeper, Differs(self._ledger.epoch, row))

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
        """Put waiting commands into rows, as many writes as may be under way."""
        self._asked_to_close = False
        ledger, writes, turns = self._ledger, self._writes, self._turns
        while writes and writes[0] <= ledger.durable:
            writes.popleft()
        while (turns or self._wants_mark()) and not self._stopped and not ledger.failing:
            if len(writes) >= WRITES_UNDER_WAY:
                return
            index = ledger.next_index()
            if index is None:
                return
            rows: list[bytes] = []
            time_us = self._time.now_us(self._seat.clock.now())
            for machine, taken in turns.next():
                commands: list[bytes] = []
                first, end = index, ledger.end + len(rows) + 1
                for some, placed in taken:
                    self._placed.append((end, index, placed))
                    commands += some
                    index += len(some)
                row = encode_commands(ledger.epoch, first, commands, machine, time_us)
                self._seat.encoded[end - 1] = (row, commands)
                rows.append(row)
            if self._wants_mark():
                self._marked = ledger.end + len(rows) + 1
                rows.append(encode_mark(ledger.epoch, index, time_us))
            ledger.append(rows)
            writes.append(ledger.end)
            self._feed_all()

    def _wants_mark(self) -> bool:
        """Whether it is time for all to take a snapshot, and the last mark is applied."""
        return self._seat.wants_mark and self._seat.applied_row >= self._marked

    @property
    def turns(self) -> Mapping[int, int]:
        """Bytes that were written for each machine."""
        return self._turns.turns

    @property
    def time_us(self) -> int:
        """The time that the next row will carry, or a little less."""
        return self._time.now_us(self._seat.clock.now())

    def _feed_all(self) -> None:
        for keeper, peer in self.peers.items():
            self._feed(keeper, peer)

    def _feed(self, keeper: int, peer: Peer) -> None:
        """Send new rows, as far as the window allows."""
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
        seat.send(keeper, Rows(ledger.epoch, at, before, rows, seat.commit, self._serial, peer.debt, peer.run))

    def _send_snapshot(self, keeper: int, peer: Peer) -> None:
        ledger = self._ledger
        if peer.sending is None:
            if not ledger.snapshot.row:
                self._seat.take_snapshot()  # it is sent with a later beat
                return
            peer.sending = Sending(ledger.snapshot, stored(ledger.base))
            self._send_piece(keeper, peer, peer.sending)

    def _send_piece(self, keeper: int, peer: Peer, sending: Sending) -> None:
        """Send the list of the snapshot's parts until the keeper has answered it, then the piece that it asks for."""
        if self._stopped:
            return
        ledger, snapshot = self._ledger, sending.snapshot
        if sending.offered and sending.data is None:
            sending.data = ledger.part(snapshot.parts[sending.part])
            if sending.data is None:  # there is a later snapshot, or this part is damaged
                peer.sending = None
                if snapshot.row == ledger.snapshot.row:
                    ledger.lost(f"the part {snapshot.parts[sending.part].name!r} of its snapshot is damaged")
                return
        self._serial += 1
        if not sending.offered or sending.data is None:
            offer = Offer(ledger.epoch, snapshot.row, sending.base, stored(snapshot), self._serial)
            self._seat.send(keeper, offer)
            return
        data = sending.data[sending.offset : sending.offset + self._seat.settings.words_bytes]
        piece = Piece(ledger.epoch, snapshot.row, sending.part, sending.offset, data, self._serial)
        self._seat.send(keeper, piece)

    def _advance(self) -> None:
        """Commit the rows that most voters have on disk, if the last of them is of this epoch."""
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
        """Send a beat to all, and check whether most voters still answer."""
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
            if (sending := peer.sending) is not None:
                place = (sending.part, sending.offset)
                if place == sending.beaten:  # it may have forgotten the offer: it stood for leader in between
                    sending.offered = False
                sending.beaten = place
                self._send_piece(keeper, peer, sending)
            else:
                self._feed(keeper, peer)
            if serial == self._serial:
                self._send_rows(keeper, peer, [])
        self._admit()
        seat.advance(seat.commit)  # what could not be read is tried again
        if self._wants_mark():
            self._close_rows()

    def _near(self, keeper: int) -> bool:
        """Whether a keeper answered lately."""
        peer, seat = self.peers.get(keeper), self._seat
        late_at = seat.clock.now() - 2 * seat.settings.election_s
        return keeper == seat.me or (peer is not None and peer.heard_at > late_at)

    def _answers(self, keeper: int) -> bool:
        """Whether a keeper has answered since a change of voters was asked for."""
        peer = self.peers.get(keeper)
        return keeper == self._seat.me or (peer is not None and peer.answered >= self._admission_serial)

    def _fresh(self, peer: Peer, run: int, serial: int, installs: int) -> bool:
        """Whether an answer counts: it must be of the keeper's present run, and of the time after it last took over a
        snapshot, because rows that the snapshot covers may be gone from its log."""
        if (run, installs) < (peer.run, peer.installs):
            return False
        if run == peer.run and installs > peer.installs:
            peer.installs = installs
            peer.match = 0
        if run > peer.run:
            peer.run, peer.installs = run, installs
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
        """Answer reads: most voters have answered since the read was asked for, and what was committed then is
        applied."""
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
        """Make a change of voters when that is safe: the last change is committed, and the new voter has caught up."""
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
        """The reason why a change of voters did not happen in time."""
        peer, ledger, seconds = self.peers.get(keeper), self._ledger, self._seat.settings.submit_s
        why = "" if keeper in ledger.voters else refusal(ledger.voters, keeper, self._answers)
        if peer is None or not self._answers(keeper):
            return f"keeper {keeper:x} does not answer: start it, with this store or a new one"
        if why:
            return f"keeper {keeper:x} does not get a vote: {why}"
        far = f"it has {peer.match:,} of {ledger.end:,} rows"
        return f"keeper {keeper:x} did not catch up in {seconds:g} s: {far}, ask again"
