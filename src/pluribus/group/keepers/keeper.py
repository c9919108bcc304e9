"""One keeper: a member with a disk. Together they keep one log of commands that survives them all.

It is a replicated log in the way of Raft (Ongaro and Ousterhout, 2014) and viewstamped replication (Liskov and Cowling,
2012), with batches for entries, and with keepers that know when their disk went bad.

**Promises.** Commands that were reported as committed are on the disks of most voters, survive all crashes of keepers,
and are handed to every keeper in one order, once in each run of its process. After all were stopped, any majority goes
on. At most one keeper leads in an epoch. A keeper whose log is damaged, shortened or gone neither votes nor counts
until a leader has repaired it.

**Assumptions.** Words may be lost, doubled, late and out of order, but are not invented. What a disk reported as
written was written. The disk may damage it later; the store's checksums notice that, and it happens on fewer than half
of the voters at a time. For progress: most voters are up and whole, and hear each other within the time of an election.

**States.** Follower (voters and learners), candidate, leader: a file each. A *fresh* keeper belongs to no log yet; the
first keeper that speaks to it, or ``found``, gives it one. ``Ledger`` is the log on disk, ``Seat`` the part that is
applied.

**Why it is safe.** A vote and its epoch are on disk before they are told. Each voter gives one vote an epoch, and none
to a log that ends before its own. So a leader has every row that most voters had on disk. Only rows of the leader's own
epoch are committed by counting. Voters change one at a time, so any two majorities share a voter.

**Why it is live.** Elections are tried first, so that no leader is deposed in vain; their times differ at random; every
word that matters is repeated, and every answer says what its sender has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...core.errors import BadInput, Closed, Damaged, MalformedFrame, PluribusError, Refused, Uncertain
from ...core.ports import Clock, Random, Store
from ..log import Done
from . import words
from .candidate import Candidate
from .follower import Follower
from .founding import gives_way
from .leader import Leader
from .ledger import Ledger
from .requests import Requests
from .rows import COMMANDS, Voters, commands_for, commands_of, head_of
from .seat import Seat, Settings
from .words import Alive, Answer, Ask, Courier, Differs, Digest, Failed, Got, Held, Hello, Offer, Piece, Rows, Word

log_ = logging.getLogger("pluribus")
READ_BYTES = 256 << 10
AT_HAND_BYTES_MAX = 1 << 20
"""Longer rows are decoded by the reader thread."""
Opened = TypeVar("Opened")


class Keeper:
    """A ``LogPort`` over a store and a carrier of words. Set the call-backs, then ``start``; give ``receive`` the words
    that the carrier brings."""

    def __init__(
        self,
        name: str,
        store: Store,
        carrier: Courier,
        clock: Clock,
        random: Random,
        settings: Settings | None = None,
        report: Callable[[str], None] = log_.warning,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self._tell = report
        self.ledger = Ledger(store, name, random, self._report)
        self.seat = Seat(self.ledger, carrier, clock, random, settings or Settings())
        self.seat.wall = wall
        self.id = self.ledger.meta.keeper
        self.requests = Requests(self.seat, self._leading)
        self.role: Follower | Candidate | Leader | None = None
        self.malformed = 0
        self.differed = 0
        """How often the state differed from that of most keepers, and was loaded anew."""
        self.strangers = 0
        """Words from keepers of another log with the same name."""
        self.elections = 0
        self.on_role: Callable[[str, int], None] = lambda role, epoch: None
        """Told the name of each new role, and its epoch."""
        self.ledger.on_durable = self._durable
        self.ledger.on_trouble = self._trouble
        self.seat.on_applied = self._applied
        self.seat.on_saved = self._saved
        self.on_alive: Callable[[int, list[tuple[int, int]]], None] = lambda keeper, owners: None
        """Told, while this keeper leads, which owners of leases another keeper has heard of."""

    # The log port.

    @property
    def on_commit(self) -> Callable[[int, Sequence[bytes]], None]:
        return self.seat.on_commit

    @on_commit.setter
    def on_commit(self, callback: Callable[[int, Sequence[bytes]], None]) -> None:
        self.seat.on_commit = callback

    @property
    def on_snapshot(self) -> Callable[[], bytes]:
        return self.seat.on_snapshot

    @on_snapshot.setter
    def on_snapshot(self, callback: Callable[[], bytes]) -> None:
        self.seat.on_snapshot = callback

    @property
    def on_restore(self) -> Callable[[int, bytes], None]:
        return self.seat.on_restore

    @on_restore.setter
    def on_restore(self, callback: Callable[[int, bytes], None]) -> None:
        self.seat.on_restore = callback

    @property
    def applied(self) -> int:
        return self.seat.applied

    def submit(self, command: bytes, done: Done) -> None:
        self.submit_many([command], done)

    def submit_many(self, commands: Sequence[bytes], done: Done, machine: int = 0) -> None:
        """Commands of one submission are for one machine, and stand in one row."""
        self._check_open()
        self.requests.add(commands, None, done, machine)

    def barrier(self, done: Done) -> None:
        self._check_open()
        self.requests.add(None, None, done)

    # Reading again what was committed.

    def keep_from(self, index: int | None) -> None:
        """Keep commands from this index on, even if a snapshot covers them; None: keep none. It is not stored: call it
        before ``start``, and again as time passes. Earlier commands are forgotten soon."""
        self.seat.keep_from = index
        if self.role is not None:
            self.seat.trim()

    @property
    def first(self) -> int:
        """The first command that can still be read."""
        return self.ledger.base.index

    def read(self, index: int) -> tuple[int, list[bytes]]:
        """The commands of the batch with this index, and the index of the first of them; none at the end of what is
        applied here. ``BadInput`` if they were forgotten, ``Damaged`` if they must be repaired first."""
        if index < self.first:
            raise BadInput(f"command {index} is not kept any more: the first that is, is {self.first}")
        row = self.seat.row_of(index)
        while row < self.seat.applied_row:
            rows = self.ledger.read(row, row + 1, READ_BYTES)
            if not rows:
                raise Damaged(f"command {index} of {self.name!r} is damaged here: ask another keeper")
            head = head_of(rows[0])
            if head.hollow and head.next > index:
                raise BadInput(f"command {index} is not kept any more: nobody reads it")
            if head.kind == COMMANDS and head.next > index:
                return head.first, commands_of(rows[0])
            row += 1
        return self.seat.applied, []

    @property
    def row(self) -> int:
        """The position of the row whose commands ``on_commit`` is being given; the same at every keeper."""
        return self.seat.applied_row - 1

    @property
    def machine(self) -> int:
        """The machine of the commands that ``on_commit`` is being given."""
        return self.seat.machine

    @property
    def time_us(self) -> int:
        """The replicated time, in microseconds since 1970: that of the latest row that was applied."""
        return self.seat.time_us

    @property
    def awaits(self) -> bool:
        """Whether a caller here may wait for the results of the commands that ``on_commit`` is being given."""
        return self.requests.awaits(self.row)

    @property
    def leader_time_us(self) -> int:
        """While this keeper leads: the time that the next row will carry. Cheap to call."""
        return self.role.time_us if isinstance(self.role, Leader) else self.seat.time_us

    def alive(self, owners: Sequence[tuple[int, int]]) -> None:
        """Tell the leader that these owners of leases are there: number of the machine, number of the owner. The word
        may be lost, so call this again and again."""
        if self.leads:
            self.on_alive(self.id, list(owners))
        elif self.seat.leader and owners:
            self.seat.send(self.seat.leader, Alive(list(owners)))

    def hollow(self, rows: Sequence[int]) -> list[int]:
        """Free the space of rows that their machines read no more, some at a time; returns the rows that were done.
        Rows that are not below the snapshot on disk stay as they are."""
        return self.ledger.hollow(rows)

    def halt(self, why: str) -> None:
        """Apply nothing more, because the code of a machine is missing here. This keeper still stores, acknowledges and
        votes; it does not lead."""
        self.seat.halted = why
        self._report(f"{why}; it stores and votes, and neither serves nor leads")
        if self.leads:
            self._step_down(why)

    def keep_rows(self, start: int) -> None:
        """Like ``keep_from``, by row: keep rows from this one on."""
        self.seat.keep_row = start

    def read_row(self, at: int) -> tuple[int, list[bytes]]:
        """The machine and the commands of one row. Raises as ``read_rows`` does."""
        if at < self.ledger.start:
            raise Damaged(f"row {at} of {self.name!r} is not kept here: the first is {self.ledger.start}")
        rows = self.ledger.read(at, min(at + 1, self.seat.applied_row), 1)
        if not rows:
            raise Damaged(f"row {at} of {self.name!r} cannot be read here now: ask another keeper")
        return head_of(rows[0]).machine, commands_for(rows[0])

    def read_rows(self, start: int, bytes_max: int, machine: int | None = None) -> list[tuple[int, list[bytes]]]:
        """Rows of commands from a position on, each with its own, about ``bytes_max`` and at least one; none at the end
        of what is applied here. Rows of other machines than this one have none. Raises as ``read`` does."""
        if start < self.ledger.start:
            raise Damaged(f"row {start} of {self.name!r} is not kept here: the first is {self.ledger.start}")
        rows = self.ledger.read(start, self.seat.applied_row, bytes_max)
        if not rows and start < self.seat.applied_row:
            raise Damaged(f"row {start} of {self.name!r} cannot be read here now: ask another keeper")
        return [(at, commands_for(row, machine)) for at, row in enumerate(rows, start)]

    def row_at_hand(self, at: int) -> tuple[int, list[bytes]] | None:
        """The machine and the commands of a row in memory; no commands if it is not kept any more. None: the row must
        be read, or is so long that decoding it would hold up the loop."""
        ledger = self.ledger
        if at < ledger.start or at in ledger.scars:
            return 0, []
        row = ledger.at_hand(at)
        if row is None or at >= self.seat.applied_row or (len(row) > AT_HAND_BYTES_MAX and at < ledger.durable):
            return None
        return head_of(row).machine, commands_for(row)

    def fetch_rows(
        self,
        rows: Sequence[int],
        opened: Callable[[int, int, Sequence[bytes]], Opened],
        done: Callable[[Sequence[Opened | PluribusError]], None],
    ) -> None:
        """Read and decode rows without holding up the loop: ``opened(row, machine, commands)``, a pure function, is
        called in the reader thread. Later ``done`` gets each result, or the reason why the row cannot be read here."""

        def work(found: Sequence[bytes | None]) -> list[Opened | None]:
            return [
                None if row is None else opened(at, head_of(row).machine, commands_for(row))
                for at, row in zip(rows, found, strict=True)
            ]

        def fetched(found: list[Opened | None], error: Exception | None) -> None:
            whole = found if error is None else [None] * len(rows)
            done([one if one is not None else self._opened(at, opened) for at, one in zip(rows, whole, strict=True)])

        self.ledger.fetch(rows, work, fetched)

    def _opened(self, at: int, opened: Callable[[int, int, Sequence[bytes]], Opened]) -> Opened | PluribusError:
        """Handle a row that the reader did not find: it was forgotten, is not on disk yet, or is damaged."""
        if at < self.ledger.start:
            return opened(at, 0, ())
        try:
            return opened(at, *self.read_row(at))
        except PluribusError as error:
            return error if at not in self.ledger.scars else opened(at, 0, ())

    # Life.

    def start(self) -> None:
        """Restore the snapshot, and look for the others."""
        self.seat.begin()
        self._follow(0)

    def stop(self) -> None:
        """Stop as a crash would; but callers that wait get an error."""
        if not self.seat.stopped:
            self.seat.stopped = True
            if self.role is not None:
                self.role.stop()
            self.requests.stop(Closed(f"the keeper of {self.name!r} was stopped"))

    def found(self, keepers: Sequence[int]) -> None:
        """Begin a new log with these first voters. Call it once, at one of them, when none of them has a log yet."""
        if not self.ledger.fresh:
            raise BadInput(f"keeper {self.id:x} has a log already: its voters are in its voters list")
        if self.id not in keepers or len(set(keepers)) != len(keepers):
            raise BadInput(f"founders {[f'{one:x}' for one in keepers]} must hold {self.id:x}, and each of them once")
        self.ledger.found(self.seat.random.getrandbits(63) or 1, Voters(1, tuple(keepers)))
        self._follow(0)

    def set_voter(self, keeper: int, votes: bool, done: Done) -> None:
        """Let a keeper vote, or not any more; a new voter must follow the leader already."""
        self._check_open()
        self.requests.add(None, (keeper, votes), done)

    def force(self, cluster: int, epoch: int) -> None:
        """Become the only voter of another log, with the same rows and a new number: the last resort (see
        ``voting``)."""
        self._check_open()
        ledger = self.ledger
        if self.role is None or self.role.hears_leader:
            raise Refused(f"keeper {self.id:x} hears a leader, so most voters are there: use remove or replace")
        if ledger.fresh or ledger.meta.health != words.WHOLE or ledger.failing or ledger.next_index() is None:
            raise Refused(f"keeper {self.id:x} cannot go on alone: {ledger.complaint or 'it belongs to no log'}")
        self._report(
            f"is FORCED to go on as the only voter, from row {ledger.end}; the voters were "
            f"{', '.join(f'{one:x}' for one in self.voters)}, and what only they had is given up"
        )
        ledger.force(cluster, max(epoch, ledger.epoch + 1))
        self._follow(0)

    def adopt(self, old: int, cluster: int, epoch: int, end: int) -> None:
        """Follow a log that was forced; its rows below ``end`` are those of this keeper's log."""
        self._check_open()
        meta = self.ledger.meta
        if meta.cluster == cluster:
            return
        if meta.cluster != old:
            raise Refused(f"keeper {self.id:x} belongs to another log: give it a new store")
        if self.seat.commit > end:
            raise Refused(
                f"keeper {self.id:x} has done {self.seat.commit:,} rows, and the one that was forced has {end:,}: "
                "give it a new store"
            )
        self._report("follows a log that was FORCED: what only voters that are gone had is given up")
        self.ledger.adopt(cluster, epoch)
        self._follow(0)

    @property
    def voters(self) -> tuple[int, ...]:
        return self.ledger.voters.keepers

    @property
    def applied_voters(self) -> tuple[int, ...]:
        """The voters as of the rows that are applied here: the same at every keeper that has applied as many."""
        return self.ledger.voters_at(self.seat.applied_row).keepers

    @property
    def leads(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def whole(self) -> bool:
        return self.ledger.meta.health == words.WHOLE

    def stats(self) -> dict[str, Any]:
        ledger, seat = self.ledger, self.seat
        return {
            "keeper": f"{self.id:x}",
            "role": self.role.name if self.role is not None else "",
            "votes": self.id in ledger.voters,
            "whole": self.whole,
            "epoch": ledger.epoch,
            "leader": f"{seat.leader:x}" if seat.leader else "",
            "voters": [f"{one:x}" for one in ledger.voters.keepers],
            "rows": ledger.end - ledger.start,
            "committed": seat.commit,
            "applied": seat.applied,
            "elections": self.elections,
            "damaged": len(ledger.damaged) + len(ledger.scars),
            "malformed": self.malformed,
            "strangers": self.strangers,
            "differed": self.differed,
            "halted": seat.halted,
            "snapshot_row": ledger.snapshot.row,
            "snapshot_bytes": ledger.snapshot.size,
        }

    def validate(self) -> None:
        """For tests."""
        self.ledger.validate()
        assert self.seat.applied_row <= self.seat.commit
        assert not self.leads or self.seat.leader == self.id

    # Words.

    def receive(self, data: bytes) -> None:
        """What the carrier brought from another keeper."""
        if self.seat.stopped:
            return
        try:
            envelope = words.decode(data)
        except MalformedFrame as error:
            self.malformed += 1
            if self.malformed == 1:
                self._report(f"heard {error}")
            return
        cluster, mine = envelope.cluster, self.ledger.meta.cluster
        word, sender = envelope.word, envelope.keeper
        if cluster != mine and not (cluster == 0 and isinstance(word, Hello)):
            if not self.ledger.fresh:
                self._stranger(sender, cluster, word)
                return
            if isinstance(word, (Rows, Offer, Piece, Ask)):
                self.ledger.belong(cluster)
        self._heard(sender, word)

    def _heard(self, sender: int, word: Word) -> None:
        if isinstance(word, (Rows, Offer, Piece)):
            self._from_leader(sender, word)
        elif isinstance(word, (Held, Got)):
            if word.epoch > self.ledger.epoch:
                self._new_epoch(word.epoch)
            elif isinstance(self.role, Leader) and word.epoch == self.ledger.epoch:
                if isinstance(word, Held):
                    self.role.held(sender, word)
                else:
                    self.role.got(sender, word)
        elif isinstance(word, Ask):
            self._asked(sender, word)
        elif isinstance(word, Answer):
            if word.epoch > self.ledger.epoch and not word.granted:
                self._new_epoch(word.epoch)
            elif isinstance(self.role, Candidate):
                self.role.answer(sender, word)
        elif isinstance(word, Hello):
            if isinstance(self.role, Leader):
                self.role.hello(sender)
        elif isinstance(word, words.Placed):
            self.requests.placed(sender, word)
        elif isinstance(word, Failed):
            self.requests.failed(sender, word)
        elif isinstance(word, words.ReadAt):
            self.requests.read_at(sender, word)
        elif isinstance(word, Digest):
            if isinstance(self.role, Leader) and word.epoch == self.ledger.epoch:
                self.role.digest(sender, word)
        elif isinstance(word, Differs):
            self._told_to_differ(sender, word)
        elif isinstance(word, Alive):
            if self.leads:
                self.on_alive(sender, word.owners)
        else:
            self._requested(sender, word)

    def _from_leader(self, sender: int, word: Rows | Offer | Piece) -> None:
        if word.epoch < self.ledger.epoch:
            if not self.ledger.alone:  # else a store that broke with a later promise would keep us silent for ever
                self.ledger.set_aside()
            self.seat.send(sender, Held(self.ledger.epoch, 0, None, 0, 0, words.WHOLE))
            return
        if word.epoch > self.ledger.epoch:
            self.ledger.promise(word.epoch, 0)
            self._follow(sender)
        elif not isinstance(self.role, Follower) or self.seat.leader != sender:
            assert not isinstance(self.role, Leader), f"two leaders in epoch {word.epoch}: {self.id:x} and {sender:x}"
            self._follow(sender)
        assert isinstance(self.role, Follower)
        if isinstance(word, Rows):
            self.role.rows(sender, word)
        elif isinstance(word, Offer):
            self.role.offer(sender, word)
        else:
            self.role.piece(sender, word)

    def _asked(self, sender: int, ask: Ask) -> None:
        """A candidate asks for our vote. A whole keeper gives one an epoch, to a log that does not end before its
        own."""
        ledger, seat = self.ledger, self.seat
        recent = (ask.last_epoch, ask.end) >= (ledger.last_epoch, ledger.end)
        if ask.trial:
            hears = self.role is not None and self.role.hears_leader
            granted = ledger.may_vote and recent and ask.epoch > ledger.epoch and not hears
            seat.send(sender, Answer(ask.epoch if granted else ledger.epoch, granted, True))
            return
        if ask.epoch < ledger.epoch:
            seat.send(sender, Answer(ledger.epoch, False, False))
            return
        free = ask.epoch > ledger.epoch or ledger.meta.voted in (0, sender)
        granted = ledger.may_vote and recent and free and not ledger.failing
        answer = Answer(ask.epoch, granted, False)
        if granted:
            ledger.promise(ask.epoch, sender, lambda: self._tell_vote(sender, answer))
            self._follow(0)
        elif ask.epoch > ledger.epoch:
            self._new_epoch(ask.epoch)

    def _tell_vote(self, sender: int, answer: Answer) -> None:
        """Our vote is on disk: tell it, unless we have promised something later since."""
        if answer.epoch == self.ledger.epoch:
            self.seat.send(sender, answer)

    def _requested(self, sender: int, word: words.Submit | words.Read | words.Vote) -> None:
        """A request of a keeper that believes that this one leads."""
        ticket, seat = word.ticket, self.seat

        def placed(index: int, row: int, error: Exception | None) -> None:
            if error is None:
                read = isinstance(word, words.Read)
                seat.send(sender, words.ReadAt(ticket, row) if read else words.Placed(ticket, index, row))
            else:
                seat.send(sender, Failed(ticket, not isinstance(error, Uncertain), str(error)))

        if not isinstance(self.role, Leader):
            placed(-1, 0, Refused("this keeper does not lead"))
        elif isinstance(word, words.Submit):
            self.role.submit(word.commands, sum(map(len, word.commands)), placed, word.machine)
        elif isinstance(word, words.Read):
            self.role.read(placed)
        else:
            self.role.change(word.keeper, word.votes, placed)

    def _saved(self, snapshot: words.Snapshot) -> None:
        """At a mark: tell the leader the digest of our state there, so that states can be compared."""
        if isinstance(self.role, Leader):
            self.role.digest(self.id, Digest(self.ledger.epoch, snapshot.row, snapshot.digest))
        elif self.seat.leader:
            self.seat.send(self.seat.leader, Digest(self.ledger.epoch, snapshot.row, snapshot.digest))

    def _told_to_differ(self, sender: int, word: Differs) -> None:
        """Most keepers have another state: this one loads it anew, with the leader's next words."""
        if word.epoch == self.ledger.epoch and sender == self.seat.leader and self.whole:
            self.differed += 1
            self.seat.astray = True
            self.ledger.lost(f"most keepers had another state than this one before row {word.row}")

    def _stranger(self, sender: int, cluster: int, word: Word) -> None:
        if gives_way(self.seat, self.role, cluster, word):
            self._report(f"gives up its log, which nobody leads: {sender:x} has another one")
            self.ledger.leave()
            self._follow(0)
            return
        if isinstance(word, Hello) and isinstance(self.role, Leader):
            self.role.hello(sender)  # it may have been founded in vain
        self.strangers += 1
        if self.strangers == 1:
            self._report(f"hears {sender:x}, a keeper of another log of this name: give one of them another name")

    def _report(self, what: str) -> None:
        """Log something that a person should know."""
        self._tell(f"the keeper of {self.name!r} {what}")

    # Roles.

    def _new_epoch(self, epoch: int) -> None:
        self.ledger.promise(epoch, 0)
        self._follow(0)

    def _follow(self, leader: int) -> None:
        self._become(Follower(self.seat, self._stand), leader)
        if leader:
            self.requests.leads()

    def _stand(self) -> None:
        candidate = Candidate(self.seat, self._lead, lambda: self._follow(0))
        self._become(candidate, 0)
        self.elections += 1
        candidate.start()

    def _lead(self) -> None:
        leader = Leader(self.seat, self._step_down)
        self._become(leader, self.id)
        leader.start()
        self.requests.leads()

    def _step_down(self, why: str) -> None:
        self._report(f"leads no more: {why}")
        self._follow(0)

    def _become(self, role: Follower | Candidate | Leader, leader: int) -> None:
        old, self.role = self.role, role
        self.seat.leader = leader
        self.on_role(role.name, self.ledger.epoch)
        if old is not None:
            old.stop()

    def _leading(self) -> Leader | None:
        return self.role if isinstance(self.role, Leader) else None

    # Stimuli of the ledger and the state machine.

    def _durable(self) -> None:
        self.seat.go_on()
        if self.role is not None:
            self.role.durable()
        self.requests.ask()

    def _trouble(self) -> None:
        self.seat.doubt()
        if self.role is not None:
            self.role.trouble()

    def _applied(self) -> None:
        if isinstance(self.role, Leader):
            self.role.applied()
        self.requests.applied()

    def _check_open(self) -> None:
        if self.seat.stopped:
            raise Closed(f"the keeper of {self.name!r} was stopped: start another")
