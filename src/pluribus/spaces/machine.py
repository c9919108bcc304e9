"""The replicated space: a state machine on a log. Its answers depend only on the commands before.

Theory of operation
-------------------
Source: *Indirect Communication*, 6.5.2, "Replication", the state machine approach: replicas start empty, execute the
same events in the same order, and react alike. So every operation is linearizable.

*Places of a tuple.* A tuple is in one place at a time:

==========  ====================================  =========================  ==================
place       because                               who sees it                leaves it by
==========  ====================================  =========================  ==================
``free``    it was written                        everybody                  take, lease
``locked``  transactions have read it             everybody; others than     their ends
                                                  them cannot take it
``hidden``  a transaction has taken it            nobody                     its end
``own``     a transaction has written it          that transaction           its end
``held``    it was handed to a take that waits    all that saw it before;    Finish, Expire
                                                  others cannot take it
==========  ====================================  =========================  ==================

*Waiting is state.* A take that finds no match stands in line (``demand``); the command that brings a match hands it
over to the take that has waited longest of those whose templates it matches. The taker is told, and *finishes*: only
then does its call return, and only then is the tuple gone: until then others read it, and ``take_if_exists`` waits for
the outcome. If the taker's owner falls silent first, the tuple comes back to its old place, and is handed to the next.
So a tuple that a dead worker was about to get is not lost, and no two workers get it.

Invariant: no free tuple matches a template in line with room for it; so no take is passed over.

*Leases* run from the tick after the command that asked for them, which comes at once: on the safe order of a group only
ticks carry a time. A tuple whose lease ended is not found, whether or not the tick that removes it has come.

*Events.* A registration (``notify``) keeps the tuples that matched, numbered, until they were dealt with
(``registrations``).

*Transactions.* ``Join`` makes a transaction known here, for the length of a lease. ``Commit`` is prepared and committed
together with other machines (``prepare``, ``commit``), or alone. Ended transactions are remembered, so that a late
command of theirs does not begin them anew.

Bounded: see the limits below; at each the command is refused, with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any, ClassVar

import msgspec

from ..core.errors import MalformedFrame
from ..group.host.bodies import Handle
from ..group.host.demand import Demands
from ..group.host.machine import TICK_THINGS_MAX, Effects, Ground, Machine, Refusal
from ..group.sessions import SessionEntry
from . import words
from .conditions import range_of
from .index import SHAPES_MAX, TupleIndex
from .kept import Filling, KeptTuple, SavedNumbers, SavedTransactions, SpaceEffects, SpaceTransaction, granted
from .lines import WaitingLines
from .registrations import EVENT, NOBODY, REGISTRATIONS_MAX, KeptRegistration, Registrations
from .templates import Template, check_template
from .values import TUPLE_BYTES_MAX, Item
from .words import FOR_EVER_US, Contents, Done, Ended, Leased, Nothing, Outcome, Refused, Taken, Written

TUPLES_MAX = 10_000_000
SPACE_BYTES_MAX = 4 << 30
TRANSACTIONS_MAX = 10_000
ENDED_MAX = 10_000
"""Ended transactions that are remembered."""

Allowed = Callable[[int], bool]


class SpaceMachine(Machine):
    """One space. Commands carry the identity of a call, and the host does each once."""

    kind: ClassVar[str] = "space"
    version: ClassVar[int] = 1
    identified: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.kept: dict[int, KeptTuple] = {}
        self.free = TupleIndex()
        self.locked = TupleIndex()
        self.hidden = TupleIndex()
        self.given = TupleIndex()
        """Tuples in the place ``held``, but for those that only the transaction sees that has written them."""
        self.own: dict[int, TupleIndex] = {}
        self.demands: Demands = Demands(self.parts)
        self.lines = WaitingLines(self.parts, self.demands)
        self.registrations = Registrations(self.parts, self.demands)
        self.transactions: dict[int, SpaceTransaction] = {}
        self._ended: dict[int, bool] = {}
        """Ended transactions, and whether they were committed."""
        self.size_bytes = 0
        self._next = 1
        self._filling = Filling()
        self._dues: list[tuple[int, int, int]] = []
        """When, of what (0 a tuple, 1 a registration, 2 a transaction), which. Not part of the state."""
        self._unstamped: dict[tuple[int, int], None] = {}
        """Tuples and others that got a lease since the last tick."""
        self.back: list[int] = []
        """Tuples that came back to the space since a test last looked. Not part of the state."""

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        """An event in full. Of a tuple nothing: the take to which it was handed finishes, and gets it then."""
        return (), self.registrations.told(thing) if thing >= EVENT else b""

    # Commands.

    def apply(self, row: int, place: int, command: bytes) -> SessionEntry:
        try:
            asked = words.command_of(command)
            outcome = self.do(asked)
        except MalformedFrame as error:
            outcome = Refused(str(error))
        return SessionEntry(True, words.encode(outcome))

    def do(self, command: words.Command) -> Outcome:
        match command:
            case words.Write():
                return self._write(command)
            case words.Take():
                return self._take(command)
            case words.Finish():
                return self._finish(command)
            case words.Release(consumer):
                if consumer not in self.lines.waiters:
                    return Ended("consumer")
                self._give_back(self._leave_line(consumer))
                return Done()
            case words.Renew(number, lease_us):
                return self._renew(number, lease_us)
            case words.Cancel(number):
                return self._cancel(number)
            case words.Notify():
                return self._notify(command)
            case words.Seen():
                return self._seen(command)
            case words.Forget(registration):
                return self._forget(registration)
            case words.Join(transaction, lease_us):
                return self._join(transaction, lease_us)
            case words.Commit(transaction):
                return self._end(transaction, True)
            case words.Abort(transaction):
                return self._end(transaction, False)
            case words.Prepare(transaction):
                found = self._acting(transaction)
                if found is None:
                    return Ended("transaction")
                self.parts.touch("transactions")
                found.prepared = True
                return Done()

    # Writing.

    def _write(self, command: words.Write) -> Outcome:
        if command.transaction and self._acting(command.transaction) is None:
            return Ended("transaction")
        refused = self._no_room(command.items)
        if refused is not None:
            return refused
        lease_us = granted(command.lease_us)
        numbers = [self._add(item, lease_us, command.transaction) for item in command.items]
        return Written(numbers, lease_us)

    def _no_room(self, items: Sequence[Item]) -> Refused | None:
        sizes = [item.size for item in items]
        if len(self.kept) + len(items) > TUPLES_MAX:
            return Refused(f"{TUPLES_MAX:,} tuples are in this space: take some, or use another space")
        if self.size_bytes + sum(sizes) > SPACE_BYTES_MAX:
            return Refused(f"{SPACE_BYTES_MAX:,} bytes are in this space: take some, or use another space")
        for item, size in zip(items, sizes, strict=True):
            if not item.fields or size > TUPLE_BYTES_MAX or (item.of and len(item.names) != len(item.fields)):
                return Refused(f"a tuple of {len(item.fields)} fields and {size:,} bytes cannot be kept")
            if not self.free.takes(item):
                return Refused(f"{SHAPES_MAX:,} combinations of types are in this space: use fewer")
        return None

    def _add(self, item: Item, lease_us: int, transaction: int) -> int:
        number, size = self._next, item.size
        self.parts.touch("numbers")
        self._next += 1
        kept = KeptTuple(number, item, self._filling.add(size, number), -lease_us, 0, 0, transaction)
        self._touch(kept)
        self.kept[number] = kept
        self.size_bytes += size
        if lease_us != FOR_EVER_US:
            self._unstamped[0, number] = None
        if transaction:
            self.parts.touch("transactions")
            self.transactions[transaction].wrote[number] = None
            self._tell(kept, False)
            if not self._hand_over(kept):
                self.own.setdefault(transaction, TupleIndex()).add(number, item)
        else:
            self._tell(kept, False)
            self._offer(kept)
        return number

    def _touch(self, kept: KeptTuple) -> None:
        self.parts.touch(f"t/{kept.part:08d}")

    def _offer(self, kept: KeptTuple) -> None:
        """A tuple is free: it goes to a waiting take, or stays."""
        if not self._hand_over(kept):
            self.free.add(kept.number, kept.item)

    def _hand_over(self, kept: KeptTuple) -> bool:
        """Hand a tuple to the take that has waited longest of those that may have it. If a transaction has read or
        written the tuple, only takes of that transaction may."""
        if not self.lines.waiters:
            return False
        best = self.lines.first_for(kept.item, kept.readers[0] if kept.readers else kept.written)
        if best is None:
            return False
        self._touch(kept)
        kept.held = best.number
        if not kept.written:
            self.given.add(kept.number, kept.item)
        self.demands.assign(best, kept.number, kept.item.size, 1)
        return True

    def _tell(self, kept: KeptTuple, again: bool) -> None:
        self.registrations.tell(kept.number, kept.item, kept.written, again)

    # Finding.

    def _alive(self, number: int) -> bool:
        until_us = self.kept[number].until_us
        return until_us <= 0 or until_us > self.ground.now_us

    def _find(self, template: Template, transaction: int, reads: bool) -> int | None:
        """The first match that may be read, or taken, in a transaction or outside of any."""
        alive = self._alive if self._dues else None
        if self._are_free(transaction, reads):
            return self.free.find(template, alive)
        places: list[tuple[TupleIndex, Allowed | None]] = [(self.free, alive)]
        if reads:
            places.append((self.locked, alive))
        elif transaction:
            places.append((self.locked, lambda number: self._alone(number, transaction)))
        if transaction in self.own:
            places.append((self.own[transaction], alive))
        best: tuple[Any, int] | None = None
        for index, allowed in places:
            number = index.find(template, allowed)
            if number is not None and (best is None or index.rank(template, number) < best):
                best = index.rank(template, number)
        return None if best is None else best[1]

    def _are_free(self, transaction: int, reads: bool) -> bool:
        """True if what may be read or taken can only be among the free tuples."""
        return not (len(self.locked) and (reads or transaction)) and transaction not in self.own

    def _alone(self, number: int, transaction: int) -> bool:
        return self._alive(number) and self.kept[number].readers == (transaction,)

    def _is_hidden(self, template: Template, transaction: int) -> bool:
        """True if there is a match that a transaction hides or locks, or that a take was handed which is not over."""
        if any(index.find(template, self._alive) is not None for index in (self.hidden, self.given)):
            return True
        return self.locked.find(template, lambda number: not self._alone(number, transaction)) is not None

    # Taking.

    def _take(self, command: words.Take) -> Outcome:
        transaction = command.transaction
        if transaction and self._acting(transaction) is None:
            return Ended("transaction")
        if command.keep and not transaction:
            return Refused("only a transaction locks what it reads: give it one, or ask with a question")
        check_template(command.template)
        refused = self._no_room(command.write) if command.write else None
        if refused is not None:
            return refused
        found = self._take_now(command)
        if found:
            lease_us = granted(command.lease_us)
            for item in command.write:
                self._add(item, lease_us, transaction)
            return self._taken(found)
        hidden = self._is_hidden(command.template, transaction)
        if not command.wait or command.keep or (command.if_exists and not hidden):
            return Nothing(hidden)
        return self.lines.join(command)

    def _take_now(self, command: words.Take) -> list[KeptTuple]:
        """Take what is there, or lock it."""
        found: list[KeptTuple] = []
        for number in self._matches(command):
            found.append(self.kept[number])
            if command.keep:
                self._lock(found[-1], command.transaction)
            else:
                self._remove_for(found[-1], command.transaction)
        return found

    def _matches(self, command: words.Take) -> Iterator[int]:
        """The tuples to take or to lock. The caller does that with each before it asks for the next."""
        template, transaction, most = command.template, command.transaction, 1 if command.keep else command.most
        ranged = template.where and range_of(template.where) is not None
        if most > 1 and not ranged and self._are_free(transaction, False):  # all at once
            yield from self.free.page(template, -1, most, self._alive if self._dues else None)
            return
        for _ in range(most):
            number = self._find(template, transaction, command.keep)
            if number is None:
                return
            yield number

    def _taken(self, found: Sequence[KeptTuple]) -> Taken:
        left_us: list[int] = []
        if any(kept.until_us for kept in found):
            now_us = self.ground.now_us
            left_us = [max(kept.until_us - now_us, 1) if kept.until_us > 0 else -kept.until_us for kept in found]
        return Taken([kept.number for kept in found], [kept.item for kept in found], left_us)

    def _remove_for(self, kept: KeptTuple, transaction: int) -> None:
        """Take a tuple that is in an index, for good or in a transaction."""
        self._unindex(kept)
        if not transaction or kept.written == transaction:
            if kept.written:
                self.parts.touch("transactions")
                self.transactions[transaction].wrote.pop(kept.number, None)
            self._drop(kept)
            return
        self._hide(kept, transaction)

    def _hide(self, kept: KeptTuple, transaction: int) -> None:
        self._touch(kept)
        self.parts.touch("transactions")
        acting = self.transactions[transaction]
        acting.took[kept.number] = None
        acting.read.pop(kept.number, None)
        kept.readers = ()
        kept.taken = transaction
        self.hidden.add(kept.number, kept.item)

    def _lock(self, kept: KeptTuple, transaction: int) -> None:
        if kept.written == transaction or transaction in kept.readers:
            return
        self._touch(kept)
        self.parts.touch("transactions")
        if not kept.readers:
            self.free.remove(kept.number)
            self.locked.add(kept.number, kept.item)
        kept.readers = tuple(sorted([*kept.readers, transaction]))
        self.transactions[transaction].read[kept.number] = None

    def _unindex(self, kept: KeptTuple) -> None:
        """Remove a tuple from the index in which it is."""
        if kept.taken:
            self.hidden.remove(kept.number)
        elif kept.readers:
            self.locked.remove(kept.number)
        elif kept.written:
            own = self.own[kept.written]
            own.remove(kept.number)
            if not len(own):
                del self.own[kept.written]
        else:
            self.free.remove(kept.number)

    def _drop(self, kept: KeptTuple) -> None:
        """Remove a tuple that is in no index any more."""
        self._touch(kept)
        self.parts.touch("numbers")
        del self.kept[kept.number]
        self._unstamped.pop((0, kept.number), None)
        size = kept.item.size
        self.size_bytes -= size
        if self._filling.remove(kept, size):
            self.parts.gone(f"t/{kept.part:08d}")

    # The line of waiting takes.

    def _leave_line(self, consumer: int) -> list[KeptTuple]:
        """A waiting take is over; returns the tuples that it was handed, oldest first."""
        held = [self.kept[number] for number in self.lines.leave(consumer)]
        for kept in held:
            self._touch(kept)
            kept.held = 0
            if not kept.written:
                self.given.remove(kept.number)
        return held

    def _finish(self, command: words.Finish) -> Outcome:
        if command.consumer not in self.lines.waiters:
            return Ended("consumer")
        refused = self._no_room(command.write) if command.write else None
        if refused is not None:  # nobody asks again for this take
            self._give_back(self._leave_line(command.consumer))
            return refused
        transaction = self.lines.line(command.consumer).transaction
        found = self._leave_line(command.consumer)
        if not found:
            return Nothing()
        for kept in found:
            if transaction and kept.written != transaction:
                self._hide(kept, transaction)
            else:
                if transaction:
                    self.parts.touch("transactions")
                    self.transactions[transaction].wrote.pop(kept.number, None)
                self._drop(kept)
        lease_us = granted(command.lease_us)
        for item in command.write:
            self._add(item, lease_us, transaction)
        self._release_if_exists()
        return self._taken(found)

    def _give_back(self, found: Iterable[KeptTuple]) -> None:
        """Put tuples back to where they were before they were handed over."""
        for kept in found:
            self.back.append(kept.number)
            self._due_again(kept)
            if not self._alive(kept.number):
                self._expired(kept)
            elif kept.written or kept.readers:
                if not self._hand_over(kept):
                    self._reindex(kept)
            else:
                self._tell(kept, True)
                self._offer(kept)
        self._release_if_exists()

    # Leases.

    def _due_again(self, kept: KeptTuple) -> None:
        """A tuple whose lease ended while it was being taken is back."""
        if kept.until_us > 0:
            heappush(self._dues, (kept.until_us, 0, kept.number))

    def _renew(self, number: int, lease_us: int) -> Outcome:
        kept = self.kept.get(number)
        if kept is None or not self._alive(number):
            return Ended("lease")
        self._touch(kept)
        lease_us = granted(lease_us)
        kept.until_us = -lease_us
        if lease_us != FOR_EVER_US:
            self._unstamped[0, number] = None
        return Leased(lease_us)

    def _cancel(self, number: int) -> Outcome:
        kept = self.kept.get(number)
        if kept is None or not self._alive(number) or kept.held or kept.taken:  # a take is in progress
            return Ended("lease")
        self._unindex(kept)
        self._expired(kept)
        self._release_if_exists()
        return Done()

    def _expired(self, kept: KeptTuple) -> None:
        """The lease of a tuple is over; the tuple is in no index any more."""
        for transaction in (kept.written, kept.taken, *kept.readers):
            acting = self.transactions.get(transaction)
            if acting is not None:
                self.parts.touch("transactions")
                for table in (acting.wrote, acting.took, acting.read):
                    table.pop(kept.number, None)
        self._drop(kept)

    # Events.

    def _notify(self, command: words.Notify) -> Outcome:
        if command.transaction and self._acting(command.transaction) is None:
            return Ended("transaction")
        check_template(command.template)
        found = self.registrations.known.get(command.registration)
        if found is not None:
            return Leased(command.lease_us, found.sequence, found.epoch)
        if command.registration in self.demands.consumers:
            return Refused(f"the number {command.registration} is taken: draw another")
        lease_us = granted(command.lease_us)
        if not self.registrations.add(command, lease_us):
            return Refused(f"{REGISTRATIONS_MAX:,} registrations are in this space: cancel some")
        if lease_us != FOR_EVER_US:
            self._unstamped[1, command.registration] = None
        return Leased(lease_us, 0, self.registrations.known[command.registration].epoch)

    def _seen(self, command: words.Seen) -> Outcome:
        found = self.registrations.known.get(command.registration)
        if found is None or 0 < found.until_us <= self.ground.now_us:
            return Ended("registration")
        self.registrations.seen(found, command.sequence)
        if not command.lease_us:
            return Leased(0, found.sequence)
        lease_us = granted(command.lease_us)
        found.until_us = -lease_us
        self._unstamped[1, found.number] = None
        return Leased(lease_us, found.sequence)

    def _forget(self, number: int) -> Outcome:
        self._unstamped.pop((1, number), None)
        return Done() if self.registrations.remove(number) else Ended("registration")

    # Transactions.

    def _acting(self, transaction: int) -> SpaceTransaction | None:
        found = self.transactions.get(transaction)
        if found is None or (not found.prepared and 0 < found.until_us <= self.ground.now_us):
            return None
        return found

    def _join(self, transaction: int, lease_us: int) -> Outcome:
        if transaction in self._ended or not transaction or lease_us == FOR_EVER_US:
            return Ended("transaction")
        found = self.transactions.get(transaction)
        if found is not None and self._acting(transaction) is None:
            return Ended("transaction")
        lease_us = granted(lease_us)
        self.parts.touch("transactions")
        if found is None:
            if len(self.transactions) >= TRANSACTIONS_MAX:
                return Refused(f"{TRANSACTIONS_MAX:,} transactions act in this space: end some")
            self.transactions[transaction] = SpaceTransaction(transaction, -lease_us, wrote={}, took={}, read={})
        else:
            found.until_us = -lease_us
        self._unstamped[2, transaction] = None
        return Leased(lease_us)

    def _end(self, transaction: int, commits: bool) -> Outcome:
        if transaction in self._ended:
            return Done() if self._ended[transaction] == commits else Ended("transaction")
        if commits and self._acting(transaction) is None:
            return Ended("transaction")
        if transaction not in self.transactions:
            return Done()
        self._finish_transaction(transaction, commits)
        return Done()

    def _finish_transaction(self, transaction: int, commits: bool) -> None:
        self.parts.touch("transactions")
        acting = self.transactions[transaction]
        for consumer in self.lines.of_transaction(transaction):
            waiting = self._leave_line(consumer)  # what it was handed and did not finish comes back first
            self._give_back(waiting)
        for number in self.registrations.of_transaction(transaction):
            self._forget(number)
        del self.transactions[transaction]
        self._unstamped.pop((2, transaction), None)
        self._ended[transaction] = commits
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        visible: list[KeptTuple] = []
        alone: list[KeptTuple] = []
        """Tuples that only one transaction locks now: it may take them."""
        for number in sorted({*acting.wrote, *acting.took, *acting.read}):
            kept = self.kept[number]
            self._touch(kept)
            if number in acting.read:
                kept.readers = tuple(one for one in kept.readers if one != transaction)
                if not kept.readers:
                    self.locked.remove(number)
                    visible.append(kept)
                elif len(kept.readers) == 1:
                    alone.append(kept)
                continue
            self._unindex(kept)
            if (number in acting.wrote) == commits:
                kept.written = kept.taken = 0
                visible.append(kept)
            else:
                self._drop(kept)
        for kept in visible:
            self._due_again(kept)
            if not self._alive(kept.number):
                self._drop(kept)
                continue
            if kept.number not in acting.read:
                self._tell(kept, kept.number in acting.took)
            self._offer(kept)
        for kept in alone:
            if self._alive(kept.number) and self._hand_over(kept):
                self.locked.remove(kept.number)
        self._release_if_exists()

    def _release_if_exists(self) -> None:
        """End the takes that waited for hidden tuples only, if none of these is left."""
        for consumer in self.lines.if_exists():
            line = self.lines.line(consumer)
            if not self.demands.consumers[consumer].held and not self._is_hidden(line.template, line.transaction):
                self._leave_line(consumer)

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        """Prepare commits, and writes and takes that do not wait, to be done together with other machines."""
        results: list[Any] = []
        effects = SpaceEffects(results, [], [], [], [], [])
        items: list[Item] = []
        taken: set[int] = set()
        for data in commands:
            try:
                command = words.command_of(data)
                outcome = self._prepared(command, effects, items, taken)
            except MalformedFrame as error:
                return Refusal(str(error))
            if isinstance(outcome, Refusal):
                return outcome
            results.append(words.encode(outcome))
        refused = self._no_room(items)
        return effects if refused is None else Refusal(refused.reason)

    def _prepared(
        self, command: words.Command, effects: SpaceEffects, items: list[Item], taken: set[int]
    ) -> Outcome | Refusal:
        if isinstance(command, words.Commit):
            if self._acting(command.transaction) is None or command.transaction in effects.commits:
                return Refusal("the transaction has ended here: begin another")
            effects.commits.append(command.transaction)
            return Done()
        if isinstance(command, words.Prepare):
            if self._acting(command.transaction) is None:
                return Refusal("the transaction has ended here: begin another")
            effects.prepares.append(command.transaction)
            return Done()
        if isinstance(command, words.Abort):
            effects.aborts.append(command.transaction)
            return Done()
        if isinstance(command, words.Write) and not command.transaction:
            first = self._next + len(items)
            items += command.items
            effects.writes.append(command)
            return Written(list(range(first, first + len(command.items))), granted(command.lease_us))
        if isinstance(command, words.Take) and not (command.transaction or command.wait or command.keep):
            check_template(command.template)
            found: list[KeptTuple] = []
            while len(found) < command.most:
                number = self.free.find(command.template, lambda one: one not in taken and self._alive(one))
                if number is None:
                    break
                taken.add(number)
                found.append(self.kept[number])
            if not found:
                return Refusal("no tuple matches what the transaction takes")
            effects.takes += [kept.number for kept in found]
            return self._taken(found)
        return Refusal("only commits, writes, and takes that do not wait are done together with other machines")

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, SpaceEffects)
        for number in effects.takes:
            self._remove_for(self.kept[number], 0)
        for command in effects.writes:
            lease_us = granted(command.lease_us)
            for item in command.items:
                self._add(item, lease_us, 0)
        for transaction in effects.commits:
            self._finish_transaction(transaction, True)
        for transaction in effects.prepares:
            self.parts.touch("transactions")
            self.transactions[transaction].prepared = True
        for transaction in effects.aborts:
            self._end(transaction, False)

    # Questions.

    def query(self, question: bytes) -> bytes:
        """The answer to a question, which changes nothing."""
        try:
            return words.encode(self.answer(words.question_of(question)))
        except MalformedFrame as error:
            return words.encode(Refused(str(error)))

    def answer(self, question: words.Question) -> Outcome:
        match question:
            case words.Find() | words.Count() if question.transaction and self._acting(question.transaction) is None:
                return Ended("transaction")
            case words.Find(template, most, after, transaction):
                check_template(template)
                return self._found(template, most, after, transaction)
            case words.Count(template, transaction):
                check_template(template)
                return Done(self._count(template, transaction))
            case words.Events(registration, after):
                return self.registrations.events(registration, after, self.ground.now_us)
            case words.Look():
                return Contents(
                    len(self.kept),
                    self.size_bytes,
                    len(self.lines.waiters),
                    len(self.registrations.known),
                    len(self.transactions),
                )

    def _seen_by(self, transaction: int) -> list[TupleIndex]:
        seen = [self.free, self.locked, self.given]
        return [*seen, self.own[transaction]] if transaction in self.own else seen

    def _count(self, template: Template, transaction: int) -> int:
        places = self._seen_by(transaction)
        if self._dues and self._dues[0][0] <= self.ground.now_us:  # some may have ended that no tick has removed yet
            return sum(1 for index in places for number in index.matches(template) if self._alive(number))
        total = sum(index.count(template) for index in places if index is not self.given)
        return total + sum(map(self._alive, self.given.matches(template)))

    def _found(self, template: Template, most: int, after: int, transaction: int) -> Outcome:
        if most == 1 and after < 0:
            number = self._find(template, transaction, True)
            number = self.given.find(template, self._alive) if number is None else number
            if number is None:
                return Nothing(self._is_hidden(template, transaction))
            return Taken([number], [self.free.items.get(number) or self.kept[number].item])
        pages = [index.page(template, after, most, self._alive) for index in self._seen_by(transaction)]
        numbers = sorted(chain(*pages))[:most]
        return Taken(numbers, [self.kept[number].item for number in numbers])

    # Time.

    def due_us(self) -> int | None:
        if self._unstamped:
            return self.ground.now_us
        while self._dues and not self._is_due(*self._dues[0]):
            heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def _is_due(self, until_us: int, what: int, which: int) -> bool:
        """True if its lease still ends at this time."""
        if what == 0:
            kept = self.kept.get(which)
            # A tuple that is being taken stays until that is decided.
            return kept is not None and kept.until_us == until_us and not (kept.held or kept.taken)
        if what == 1:
            registration = self.registrations.known.get(which)
            return registration is not None and registration.until_us == until_us
        acting = self.transactions.get(which)
        return acting is not None and acting.until_us == until_us and not acting.prepared

    def tick(self) -> None:
        now_us = self.ground.now_us
        stamped, self._unstamped = self._unstamped, {}
        for what, which in stamped:
            self._stamp(what, which, now_us)
        for _ in range(TICK_THINGS_MAX):
            while self._dues and not self._is_due(*self._dues[0]):
                heappop(self._dues)
            if not self._dues or self._dues[0][0] > now_us:
                return
            _, what, which = heappop(self._dues)
            if what == 0:
                kept = self.kept[which]
                self._unindex(kept)
                self._expired(kept)
                self._release_if_exists()
            elif what == 1:
                self._forget(which)
            else:
                self._finish_transaction(which, False)

    def _stamp(self, what: int, which: int, now_us: int) -> None:
        """Start a lease."""
        found: KeptTuple | KeptRegistration | SpaceTransaction | None
        if what == 0:
            found = self.kept.get(which)
            if isinstance(found, KeptTuple):
                self._touch(found)
        elif what == 1:
            found = self.registrations.known.get(which)
            self.registrations.touch(which)
        else:
            found = self.transactions.get(which)
            self.parts.touch("transactions")
        if found is not None and found.until_us < 0:
            found.until_us = max(now_us - found.until_us, 1)
            heappush(self._dues, (found.until_us, what, which))

    def owners(self) -> Iterable[int]:
        return [owner for owner in self.demands.owners() if owner != NOBODY]

    def lease_us(self, owner: int) -> int | None:
        return None if owner == NOBODY else self.demands.lease_us(owner)

    def expire(self, owners: Sequence[int]) -> None:
        gone = {*owners} - {NOBODY}
        for consumer in sorted(one for one, found in self.demands.consumers.items() if found.owner in gone):
            self._give_back(self._leave_line(consumer))

    # Snapshots.

    def part_names(self) -> list[str]:
        names = ["numbers", "transactions"]
        names += self.lines.part_names()
        names += self.registrations.part_names()
        names += [f"t/{part:08d}" for part in sorted(self._filling.filled)]
        return [*names, *self.demands.part_names()]

    def encode_part(self, name: str) -> bytes:
        table, _, which = name.partition("/")
        if table == "numbers":
            return words.encode(
                (self._next, self.lines.next_tag, self.registrations.next_event, *self._filling.saved())
            )
        if table == "transactions":
            acting = [self.transactions[number] for number in sorted(self.transactions)]
            return words.encode(([one.saved() for one in acting], list(self._ended.items())))
        if table == "waiters":
            return self.lines.encode_part(name)
        if table == "registrations":
            return self.registrations.encode_part(name)
        if table == "t":
            return words.encode(self._of_part(int(which)))
        return self.demands.encode_part(name)

    def _of_part(self, part: int) -> list[KeptTuple]:
        return [self.kept[number] for number in sorted(self._filling.members[part])]

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        kept: list[KeptTuple] = []
        for name, data in parts:
            table = name.partition("/")[0]
            if table == "numbers":
                numbers = msgspec.msgpack.decode(data, type=SavedNumbers)
                self._next, self.lines.next_tag, self.registrations.next_event, part, filled = numbers
                self._filling.restore(part, filled)
            elif table == "transactions":
                acting, ended = msgspec.msgpack.decode(data, type=SavedTransactions)
                for number, until_us, prepared, wrote, took, read in acting:
                    self.transactions[number] = SpaceTransaction(
                        number, until_us, prepared, dict.fromkeys(wrote), dict.fromkeys(took), dict.fromkeys(read)
                    )
                self._ended = dict(ended)
            elif table == "waiters":
                self.lines.restore_part(data)
            elif table == "registrations":
                self.registrations.restore_part(data)
            elif table == "t":
                kept += msgspec.msgpack.decode(data, type=list[KeptTuple])
            else:
                self.demands.restore_part(name, data)
        self.demands.restored()
        for one in sorted(kept, key=lambda one: one.number):
            self.kept[one.number] = one
            self._filling.members.setdefault(one.part, set()).add(one.number)
            self.size_bytes += one.item.size
            self._reindex(one)
        self._restamp()

    def _reindex(self, kept: KeptTuple) -> None:
        if kept.held:
            if not kept.written:
                self.given.add(kept.number, kept.item)
        elif kept.taken:
            self.hidden.add(kept.number, kept.item)
        elif kept.readers:
            self.locked.add(kept.number, kept.item)
        elif kept.written:
            self.own.setdefault(kept.written, TupleIndex()).add(kept.number, kept.item)
        else:
            self.free.add(kept.number, kept.item)

    def _restamp(self) -> None:
        tables: tuple[tuple[int, dict[int, Any]], ...] = (
            (0, self.kept),
            (1, self.registrations.known),
            (2, self.transactions),
        )
        for what, table in tables:
            for number, found in table.items():
                if found.until_us < 0:
                    self._unstamped[what, number] = None
                elif found.until_us > 0:
                    heappush(self._dues, (found.until_us, what, number))

    def validate(self) -> None:
        """For tests."""
        self.demands.validate()
        for index in (self.free, self.locked, self.hidden, self.given, *self.own.values()):
            index.validate()
        held = {number: one.number for one in self.demands.consumers.values() for number in one.held if number < EVENT}
        for number, kept in self.kept.items():
            places = [number in self.free, number in self.locked, number in self.hidden, number in held]
            places.append(any(number in own for own in self.own.values()))
            assert sum(places) == 1, f"tuple {number} is in {sum(places)} places"
            assert kept.held == held.get(number, 0)
            assert (number in self.given) == (number in held and not kept.written)
        assert {*self.lines.waiters, *self.registrations.known} == set(self.demands.consumers)
        assert self.size_bytes == sum(kept.item.size for kept in self.kept.values())
        for waiter in self.lines.waiters.values():
            line = self.lines.line(waiter.consumer)
            if self.demands.consumers[waiter.consumer].has_room:
                for number, item in self.free.items.items():
                    passed = line.template.matches(item) and self._alive(number)
                    assert not passed, f"tuple {number} is free, and {waiter.consumer} waits for it"
