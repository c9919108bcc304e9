"""What all roles of one keeper share: its ledger and ports, the end of the committed rows, and the state machine.

Committed rows are applied in order, each once. Now and then a snapshot of the state is kept, and the rows that it
covers are forgotten, unless the owner wants to read them again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ...core.errors import Damaged, MalformedFrame
from ...core.limits import TURN_S_MAX
from ...core.ports import Clock, Random
from ..log import PART_BYTES, PlainState, StateInParts
from .ledger import Ledger
from .rows import COMMANDS, MARK, commands_of, head_of
from .words import Courier, Hello, Part, Snapshot, Word, digest_of, encode

APPLY_BYTES = 1 << 20
"""Rows applied at a time, if that takes no longer than a turn of the loop; then other tasks have their turn."""

REPLAY_BYTES_MAX = 48 << 20
REPLAY_COMMANDS_MAX = 200_000
"""The most commands that a keeper applies again when it is opened; a snapshot is taken before there are more."""

log_ = logging.getLogger("pluribus")


class Settings(msgspec.Struct, frozen=True):
    """Times and sizes; all keepers of a log should have the same times."""

    heartbeat_s: float = 0.1
    election_s: float = 1.0
    """A leader that is not heard for one to two times this long is replaced."""
    submit_s: float = 10.0
    """A command that is not placed within this time fails, or is uncertain."""
    snapshot_bytes: int = 16 << 20
    """Bytes of rows that are applied between two snapshots."""
    words_bytes: int = 256 << 10
    """About how much one message to another keeper carries."""
    slack_rows: int = 1_024
    """Rows that are kept behind the snapshot, for keepers that are a little late."""
    turn_bytes: int = PART_BYTES
    """Parts of a snapshot that are made in one turn of the loop."""


def ignore_commit(first: int, commands: Sequence[bytes]) -> None:
    """Of a log that nobody reads."""


def no_state() -> bytes:
    return b""


def ignore_state(index: int, state: bytes) -> None:
    """Of a log that nobody reads."""


class Taking:
    """A snapshot that is being taken, a few parts a turn. ``marked``: all keepers take one at this row."""

    __slots__ = ("due", "marked", "names", "parts", "saving", "snapshot", "written_bytes")

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str], due: Sequence[str], known: Sequence[Part], marked: bool
    ) -> None:
        self.snapshot = snapshot
        self.names = names
        self.due = deque(due)
        self.parts = {part.name: part for part in known}
        self.marked = marked
        self.saving = False
        self.written_bytes = 0


class Seat:
    """``on_applied`` is called after rows were applied."""

    def __init__(self, ledger: Ledger, carrier: Courier, clock: Clock, random: Random, settings: Settings) -> None:
        self.ledger = ledger
        self.carrier = carrier
        self.clock = clock
        self.random = random
        self.settings = settings
        self.me = ledger.meta.keeper
        self.wall: Callable[[], float] | None = None
        """Seconds since 1970, for the time that a leader gives its rows."""
        self.leader = 0
        """The leader of the current epoch; 0 if it is not known."""
        self.commit = 0
        self.applied_row = 0
        self.applied = 0
        self.restored_row = 0
        """Rows below this were not applied here; their state came with a snapshot."""
        self.keep_from: int | None = None
        """The owner still reads commands from this index on."""
        self.keep_row: int | None = None
        """The outcome as a row."""
        self.stopped = False
        self.on_commit: Callable[[int, Sequence[bytes]], None] = ignore_commit
        self.on_snapshot: Callable[[], bytes] = no_state
        self.on_restore: Callable[[int, bytes], None] = ignore_state
        self.state: StateInParts = PlainState(
            lambda: self.on_snapshot(), lambda index, state: self.on_restore(index, state)
        )
        """The state in parts; the owner may set its own in place of ``on_snapshot`` and ``on_restore``."""
        self.on_applied: Callable[[], None] = lambda: None
        self.on_saved: Callable[[Snapshot], None] = lambda snapshot: None
        """A snapshot that all keepers take at this row is on disk."""
        self.machine = 0
        """The machine of the row that ``on_commit`` is being given."""
        self.time_us = 0
        """The replicated time: the latest of all rows that were applied."""
        self.halted = ""
        """Why nothing more is applied: the code of a machine is missing here. Such a keeper neither leads nor
        serves."""
        self.installs = 0
        """Snapshots of leaders that were taken over in this run."""
        self.astray = False
        """This keeper's state differs from that of most keepers: it is replaced, however far it is."""
        self.encoded: dict[int, tuple[bytes, Sequence[bytes]]] = {}
        """Rows that this leader made, with their commands, so that these need not be decoded again."""
        self.marked_row = 0
        """Behind the last mark."""
        self._since_bytes = self._since_commands = 0
        """Applied since the last mark."""
        self._mark_after(0)
        self.kept_at: float | None = None
        """When the last snapshot was kept."""
        self._taking: Taking | None = None
        self._distrusts = False
        """The snapshot on disk is not the one that the state counts its changes from."""
        self._applying = False
        self._ahead: deque[bytes] = deque()
        """Rows that were read and are to be applied next, from ``_ahead_at`` on."""
        self._ahead_at = 0

    @property
    def may_speak(self) -> bool:
        """True when our identity and our promise are on disk; before that we send nothing."""
        return self.ledger.promised == self.ledger.epoch and not self.stopped

    def send(self, to: int, word: Word) -> None:
        if self.may_speak:
            self.carrier.send(to, encode(self.ledger.meta.cluster, self.me, word))

    def hail(self, to: int) -> None:
        """Ask the leader to send us rows. It promises nothing, so a keeper whose store is broken may say it, too."""
        if self.may_speak or (self.ledger.broken and not self.stopped):
            self.carrier.send(to, encode(self.ledger.meta.cluster, self.me, Hello(self.ledger.epoch)))

    def begin(self) -> None:
        """From the snapshot on disk."""
        if self.ledger.snapshot.row:
            self.restore(self.ledger.snapshot)
        self.ledger.needed = self.applied_row

    def restore(self, snapshot: Snapshot) -> None:
        """Take the state of a snapshot whose parts are on disk. If one is damaged, the state is lost."""
        self._abandon()
        self._ahead.clear()
        try:
            self.state.restore(snapshot.index, self._parts(snapshot))
        except Damaged as error:
            self.state.restore(0, ())
            self.ledger.lost(str(error))
            return
        self.astray = False
        self.commit = max(self.commit, snapshot.row)
        self.restored_row = snapshot.row
        self.applied_row, self.applied = snapshot.row, snapshot.index
        self.time_us = max(self.time_us, snapshot.time_us)
        self.ledger.needed = self.applied_row
        self._distrusts = False
        self._since_bytes = self._since_commands = 0

    def _parts(self, snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
        for part in snapshot.parts:
            data = self.ledger.part(part)
            if data is None:
                raise Damaged(f"the part {part.name!r} of its snapshot is damaged or missing")
            yield part.name, data

    def advance(self, commit: int) -> None:
        """Rows below this are committed."""
        self.commit = max(self.commit, commit)
        if self.applied_row < self.commit:
            self.apply()

    def doubt(self) -> None:
        """The log was read again from disk, and may end earlier than before: a leader must vouch for it again."""
        self.commit = self.applied_row
        self._ahead.clear()
        self._abandon()

    def apply(self) -> None:
        if self._applying or self.stopped or self.halted:
            return
        self._applying = True
        size = 0
        until = self.clock.now() + TURN_S_MAX
        try:
            while self.applied_row < self.commit and size < APPLY_BYTES and not self.halted:
                row = self._next_row()
                if row is None:
                    break
                size += len(row)
                if not self._apply_row(row) or self.clock.now() > until:
                    break
        finally:
            self._applying = False
        self.commit = max(self.commit, self.applied_row)  # damage behind these rows may have cast doubt on the rest
        self.ledger.needed = self.applied_row
        self._since_bytes += size
        if size:
            self.on_applied()
            if self.applied_row < self.commit:
                self.clock.call_soon(self.apply)

    def _next_row(self) -> bytes | None:
        """The next row to be applied; None if it cannot be read here now."""
        at = self.applied_row
        if at != self._ahead_at or not self._ahead:
            self._ahead = deque(self.ledger.read(at, self.commit, APPLY_BYTES))
        if not self._ahead:
            return None
        self._ahead_at = at + 1
        return self._ahead.popleft()

    def _apply_row(self, row: bytes) -> bool:
        """Whether the next one may be applied."""
        head = head_of(row)
        made = self.encoded.pop(self.applied_row, None)
        self.applied_row += 1
        if head.time_us > self.time_us:
            self.time_us = head.time_us
        if head.kind == COMMANDS:
            assert head.first == self.applied, f"commands {head.first} after {self.applied}"
            try:
                commands = made[1] if made is not None and made[0] is row else commands_of(row)
            except MalformedFrame:
                log_.exception("row %d of %s", self.applied_row - 1, self.ledger.name)
                raise
            self.applied = head.next
            self.machine = head.machine
            self._since_commands += head.size
            self.on_commit(head.first, commands)
        elif head.kind == MARK:
            self.marked_row = self.applied_row
            self._since_bytes = self._since_commands = 0
            self.take_snapshot(marked=True)
        return not self.halted

    # Snapshots.

    @property
    def wants_mark(self) -> bool:
        """True if enough was applied since the last mark: several times what the last snapshot had to write."""
        return self._since_bytes >= self._mark_bytes or self._since_commands >= REPLAY_COMMANDS_MAX

    def _mark_after(self, written_bytes: int) -> None:
        """The next mark is due after several times what the last snapshot wrote."""
        self._mark_bytes = min(max(self.settings.snapshot_bytes, 4 * written_bytes), REPLAY_BYTES_MAX)

    def take_snapshot(self, marked: bool = False) -> None:
        """Begin a snapshot, unless one is under way, which then goes on."""
        ledger = self.ledger
        if ledger.failing or self.halted or self._taking is not None or self.applied_row <= ledger.snapshot.row:
            return
        known = set() if self._distrusts else {part.name for part in ledger.snapshot.parts}
        names, due = self.state.freeze(known)
        voters = ledger.voters_at(self.applied_row)
        epoch = ledger.epoch_at(self.applied_row - 1)
        snapshot = Snapshot(self.applied_row, epoch, self.applied, voters, self.time_us)
        self._taking = Taking(snapshot, names, due, ledger.snapshot.parts, marked)
        self.go_on()

    def go_on(self) -> None:
        """Go on with a snapshot: encode some parts, or keep it when all are there."""
        taking, ledger = self._taking, self.ledger
        if taking is None or self.stopped:
            return
        if ledger.failing:
            self._abandon()
            return
        made: list[tuple[Part, bytes]] = []
        size = 0
        while taking.due and size < self.settings.turn_bytes:
            name = taking.due.popleft()
            data = self.state.part(name)
            part = Part(name, digest_of(data), len(data))
            size += len(data)
            if taking.parts.get(name) != part:
                made.append((part, data))
            taking.parts[name] = part
        if made:
            taking.written_bytes += sum(part.size for part, _ in made)
            ledger.put_parts(made)
        if taking.due:
            self.clock.call_soon(self.go_on)
        elif taking.snapshot.row <= ledger.durable:  # else when it is: a snapshot is never ahead of its log
            self._keep(taking)

    def _keep(self, taking: Taking) -> None:
        ledger = self.ledger
        parts = tuple(taking.parts[name] for name in taking.names)
        snapshot = msgspec.structs.replace(taking.snapshot, parts=parts)
        if taking.saving or snapshot.row <= ledger.snapshot.row:  # a leader's came meanwhile
            if not taking.saving:
                self._abandon()
            return
        taking.saving = True

        def kept() -> None:
            if self._taking is taking:
                self._taking = None
                self._distrusts = False
                self.state.thaw(True)
            self._mark_after(taking.written_bytes)
            self.kept_at = self.clock.now()
            self.trim()
            if taking.marked:
                self.on_saved(snapshot)

        ledger.save(snapshot, kept)

    def installed(self, snapshot: Snapshot) -> None:
        """A leader's snapshot has replaced our own: take its state, unless this keeper has applied more already."""
        self.installs += 1
        if snapshot.row > self.applied_row or self.astray:
            self.restore(snapshot)
        else:
            self._abandon()
            self._distrusts = True

    def _abandon(self) -> None:
        if self._taking is not None:
            self._taking = None
            self.state.thaw(False)

    def trim(self) -> None:
        """Forget rows that the snapshot covers and nobody wants to read, some at a time."""
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
