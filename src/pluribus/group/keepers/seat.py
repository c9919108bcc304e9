"""What all roles of one keeper share: its ledger and ports, what is committed, and the state machine that applies it.

Rows are applied once they are committed, in order, each once. Now and then the state machine's snapshot is kept, and
the rows that it stands for are forgotten, as far as the owner does not want to read them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from ...core.errors import MalformedFrame
from ...core.ports import Clock, Random
from .ledger import Ledger
from .rows import COMMANDS, commands_of, head_of
from .words import Carrier, Hello, Snapshot, Word, encode, snapshot_of

APPLY_BYTES = 1 << 20
"""Applied in one go; then others have a turn."""

log_ = logging.getLogger("pluribus")


class Settings(msgspec.Struct, frozen=True):
    """Times and sizes; all keepers of a log should have the same times."""

    heartbeat_s: float = 0.1
    election_s: float = 1.0
    """A leader that was not heard for so long, up to twice as long, is replaced."""
    submit_s: float = 10.0
    """A command that was not placed by then is given up, or is uncertain."""
    snapshot_bytes: int = 16 << 20
    """Rows that are applied between two snapshots."""
    words_bytes: int = 256 << 10
    """What one message to another keeper carries, about."""
    slack_rows: int = 1_024
    """Rows that are kept behind the snapshot, for keepers that are a little late."""


def ignore_commit(first: int, commands: Sequence[bytes]) -> None:
    """Of a log that nobody reads."""


def no_state() -> bytes:
    return b""


def ignore_state(index: int, state: bytes) -> None:
    """Of a log that nobody reads."""


class Seat:
    """``on_applied`` is called after rows were applied."""

    def __init__(self, ledger: Ledger, carrier: Carrier, clock: Clock, random: Random, settings: Settings) -> None:
        self.ledger = ledger
        self.carrier = carrier
        self.clock = clock
        self.random = random
        self.settings = settings
        self.me = ledger.meta.keeper
        self.leader = 0
        """Who leads in the current epoch; 0 if that is not known."""
        self.commit = 0
        self.applied_row = 0
        self.applied = 0
        self.restored_row = 0
        """What is below this was not applied here but came with a snapshot."""
        self.keep_from: int | None = None
        """The owner still reads commands from this index on."""
        self.keep_row: int | None = None
        """The same, as a row."""
        self.stopped = False
        self.on_commit: Callable[[int, Sequence[bytes]], None] = ignore_commit
        self.on_snapshot: Callable[[], bytes] = no_state
        self.on_restore: Callable[[int, bytes], None] = ignore_state
        self.on_applied: Callable[[], None] = lambda: None
        self.encoded: tuple[bytes, Sequence[bytes]] = (b"", ())
        """The row that a leader made last, and what it put into it: that need not be taken out again."""
        self._since_snapshot_bytes = 0
        self._state_bytes = 0
        self._applying = False

    @property
    def may_speak(self) -> bool:
        """Nobody hears of us before our name and our promise are on disk."""
        return self.ledger.promised == self.ledger.epoch and not self.stopped

    def send(self, to: int, word: Word) -> None:
        if self.may_speak:
            self.carrier.send(to, encode(self.ledger.meta.cluster, self.me, word))

    def hail(self, to: int) -> None:
        """Ask whoever leads to take us along. It promises nothing: also a keeper whose store is broken may say it."""
        if self.may_speak or (self.ledger.broken and not self.stopped):
            self.carrier.send(to, encode(self.ledger.meta.cluster, self.me, Hello(self.ledger.epoch)))

    def begin(self) -> None:
        """From the snapshot on disk."""
        if self.ledger.snapshot.row:
            whole = self.ledger.saved()
            if whole is not None:
                self.restore(snapshot_of(whole))
        self.ledger.needed = self.applied_row

    def restore(self, snapshot: Snapshot) -> None:
        self.commit = max(self.commit, snapshot.row)
        self.restored_row = snapshot.row
        self.applied_row, self.applied = snapshot.row, snapshot.index
        self.ledger.needed = self.applied_row
        self._since_snapshot_bytes = 0
        self._state_bytes = len(snapshot.state)
        self.on_restore(snapshot.index, snapshot.state)

    def advance(self, commit: int) -> None:
        """Rows below this are committed."""
        self.commit = max(self.commit, commit)
        if self.applied_row < self.commit:
            self.apply()

    def doubt(self) -> None:
        """The log is again what the disk has, and its end may be an older one: a leader must vouch for it again."""
        self.commit = self.applied_row

    def apply(self) -> None:
        if self._applying or self.stopped:
            return
        self._applying = True
        size = 0
        try:
            while self.applied_row < self.commit and size < APPLY_BYTES:
                rows = self.ledger.read(self.applied_row, self.commit, APPLY_BYTES)
                if not rows:
                    break
                for row in rows:
                    size += len(row)
                    self._apply_row(row)
        finally:
            self._applying = False
        self.commit = max(self.commit, self.applied_row)  # damage behind these rows may have cast doubt on the rest
        self.ledger.needed = self.applied_row
        self._since_snapshot_bytes += size
        if size:
            self._perhaps_snapshot()
            self.on_applied()
            if self.applied_row < self.commit:
                self.clock.call_soon(self.apply)

    def _apply_row(self, row: bytes) -> None:
        head = head_of(row)
        self.applied_row += 1
        if head.kind == COMMANDS:
            assert head.first == self.applied, f"commands {head.first} after {self.applied}"
            made, commands = self.encoded
            try:
                if made is not row:
                    commands = commands_of(row)
            except MalformedFrame:
                log_.exception("row %d of %s", self.applied_row - 1, self.ledger.name)
                raise
            self.applied = head.next
            self.on_commit(head.first, commands)

    def _perhaps_snapshot(self) -> None:
        """When enough was applied since the last: more than a few times what the state itself weighs."""
        if self._since_snapshot_bytes >= max(self.settings.snapshot_bytes, 4 * self._state_bytes):
            self.take_snapshot()

    def take_snapshot(self) -> None:
        ledger = self.ledger
        if ledger.failing or self.applied_row <= ledger.snapshot.row or self.applied_row > ledger.durable:
            return
        state = self.on_snapshot()
        self._since_snapshot_bytes, self._state_bytes = 0, len(state)
        voters = ledger.voters_at(self.applied_row)
        epoch = ledger.epoch_at(self.applied_row - 1)
        ledger.save(Snapshot(self.applied_row, epoch, self.applied, voters, state), self.trim)

    def trim(self) -> None:
        """Forget what the snapshot holds and nobody wants, some rows at a time."""
        ledger = self.ledger
        if self.stopped:
            return
        start = ledger.snapshot.row - self.settings.slack_rows
        if self.keep_from is not None:
            start = min(start, self.row_of(self.keep_from))
        if self.keep_row is not None:
            start = min(start, self.keep_row)
        if ledger.trim(start):
            self.clock.call_soon(self.trim)

    def row_of(self, index: int) -> int:
        """The row that holds a command, by bisection; the log's start or end if it is not in the log."""
        ledger = self.ledger
        low, high = ledger.start, min(self.applied_row, ledger.end)
        while low < high:
            middle = (low + high) // 2
            head = ledger.head_at(middle)
            if head is None:
                ledger.damage_found(middle)
                return ledger.start
            if head.next <= index:
                low = middle + 1
            else:
                high = middle
        return low

    def later(self) -> float:
        """A time to wait for a leader, different for everybody."""
        return self.settings.election_s * (1.0 + self.random.random())
