"""A member of a space of the kind *views*: its worker, its replica if it has one, and its part in changes of the epoch.

Theory of operation
-------------------
Source: *Indirect Communication*, 6.5.2, figure 6.21, after Xu and Liskov (1989). Exercise 6.20.

*write*: the operation gets the next number of its worker, the call returns at once, and the operation is sent to all
replicas of the epoch until all have acknowledged it. *read*: all replicas are asked until the first has answered; a
replica of one's own answers at once. *take*, phase 1: all replicas are asked for the lock on the template's tuple set,
and answer with the tuples that match; when all have granted it and some tuple is in all answers, one of these is chosen
at random, and the call returns. Phase 2: the removal is an operation like a write; a replica that executes it frees the
lock.

*The two constraints.* A replica executes the operations of a worker in their order, and answers a question of a worker
when it has executed that worker's operations from before. A worker sends no write while a take of its own from before
is not finished at all replicas.

*Epochs.* The roster (``roster``) numbers them. When one begins, every member reports its state to the eldest; the
eldest merges the states of the replicas of the latest epoch, executes removals that are still under way, and tells each
member how to get to the merged state (``Install``). When all have done that, the roster opens the epoch; no member acts
in it before. Locks end with their epoch.

*Merging.* A tuple stays if some replica has it, unless a replica is without it that has executed its writer's
operations so far: that replica has removed it.

Promises: no two workers take the same tuple, unless one is told that its take is *void*: it was cut off or has crashed
between the phases, and no replica that is left had heard of it. A write is kept once all replicas have acknowledged it
(``pending`` is 0), and while one of them lives. Live while the roster stands still for a few round trips: of several
takers that hold locks, only one can have most of them, the others give theirs back; ``replica`` says why no taker
starves.

Bounded: ``REQUESTS_MAX`` requests and ``OPS_MAX`` operations under way; then ``Overflow`` (``check_room``). Operations
that a request under way brings about are never refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Any

import msgspec

from ...core.errors import Overflow
from ...core.ports import Random
from ..index import Wishes
from ..roster import Epoch
from ..templates import ANY_ITEM, Template, exactly
from ..values import Item
from ..watching import REGISTRATIONS_MAX, Watched
from . import words
from .merging import NAMES_MAX, PATIENCE_S_MAX, WORD_BYTES_MAX, Merge, Travelling, first_of
from .replica import Holder, TupleReplica
from .words import Name, Op, Word

REPEAT_S = 0.3
"""Seconds after which a word that was not answered is sent again."""
BACK_OFF_S = 0.05
BACK_OFF_S_MAX = 1.0
REQUESTS_MAX = 10_000
OPS_MAX = 100_000
OPS_SENT = 256
"""Operations in one word."""


class ViewRequest(msgspec.Struct):
    """A read or a take that is under way."""

    number: int
    template: Template
    takes: bool
    probe: bool
    after: int
    """The worker's last operation before it."""
    attempt: int = 0
    retry_at: float = 0.0
    locking: bool = False
    locked: dict[int, dict[Name, tuple[Item, int]]] = {}
    """By replica: the matches there, and the rest of the lease of each."""
    written: Item | None = None
    """The tuple that a take writes in place of the one taken."""
    lease_us: int = 0
    only: Name = (0, 0)
    """The tuple whose lease is renewed, or ends: it is taken, and written again or not."""
    denied: set[int] = set()
    answered: set[int] = set()
    listens: Name = (0, 0)
    """The registration whose events are asked for."""


class ViewResult(msgspec.Struct, frozen=True):
    """The result of a request. ``name`` names the tuple; no item: there was no match."""

    request: int
    name: Name = (0, 0)
    item: Item | None = None
    written: int = 0
    """The operation that has written the replacing tuple."""
    lease_us: int = 0
    """The rest of the lease of a taken tuple; 0: it had no end."""
    watched: Watched | None = None
    """Events of a registration."""
    full: bool = False
    """Never true: ``register`` says at once that there are too many registrations."""


class ViewsMember:
    """``holds``: it has a replica. Words to send are in ``out``, as (member, word); results of requests in ``results``;
    takes that became void in ``void``."""

    def __init__(self, me: int, worker: int, holds: bool, random: Random) -> None:
        self.me = me
        self.worker = worker
        self.random = random
        self.replica = TupleReplica() if holds else None
        self.epoch: Epoch | None = None
        self.installed = False
        """True if the tuples of this epoch are here."""
        self.opening = 0
        """The epoch that the roster should open now; 0: none."""
        self.out: list[tuple[int, Word]] = []
        self.results: list[ViewResult] = []
        self.void: list[Item] = []
        self._removing: dict[Name, Item] = {}
        """Tuples taken by takes that are not finished."""
        self.lost = 0
        """How often the space was lost with all its replicas."""
        self._outdated = False
        """True if it has given up the tuples of an earlier roster, and has none of this one yet."""
        self._merge: Merge | None = None
        self._report_at = 0.0
        self._patience_s = REPEAT_S
        """Seconds after which the report of this epoch is repeated; they double."""
        self._coming: list[Travelling] = []
        """Tuples of this epoch that came before it is installed."""
        self._ops: dict[int, tuple[Op, int]] = {}
        """Operations that are not at all replicas, with the epoch in which they were decided."""
        self._next_op = 1
        self._sent = 0
        """The last operation that was sent to a replica."""
        self._pushed = 0
        """The last operation that was sent to the replicas of this epoch."""
        self._had_holders = True
        """True if there may have been tuples in the last opened epoch."""
        self._has_holders = True
        """The same of the epoch that was installed."""
        self._acks: dict[int, int] = {}
        self._requests: dict[int, ViewRequest] = {}
        self._next_request = 1
        self._unlocking: dict[tuple[int, int], tuple[set[int], bool]] = {}
        """By request and attempt: the replicas that have not said that the lock is free."""
        self._repeat_at = 0.0
        self._asks: dict[Holder, tuple[int, words.Ask]] = {}
        """Reads that wait here."""
        self._stirs: dict[Holder, int] = {}
        """Takes that wait here for a match to come."""
        self._templates: dict[Holder, Template] = {}
        """Takes that waited here most recently."""
        self._wishes: Wishes[tuple[bool, int, int]] = Wishes()
        self._confirms: dict[int, int] = {}
        """By operation about a registration: the request whose result comes when all replicas have executed it."""
        self._listens: dict[Holder, tuple[int, words.Listen]] = {}
        """Listeners that wait here for events."""

    # Calls of the application.

    @property
    def pending(self) -> int:
        """Operations that are not at all replicas yet."""
        return len(self._ops)

    @property
    def last(self) -> int:
        """The last operation of this worker."""
        return self._next_op - 1

    def has_executed(self, number: int) -> bool:
        """True if the own replica has the tuples of an epoch that is open, and has executed this operation of this
        worker."""
        return self.replica is not None and self.opened and self.replica.marks.get(self.worker, 0) >= number

    def check_room(self) -> None:
        """``Overflow`` if too many operations are under way. Ask before the first of several writes: the others may
        follow."""
        if len(self._ops) >= OPS_MAX:
            raise Overflow(f"{OPS_MAX:,} operations of this worker are not at all replicas yet: await flush()")

    def write(self, item: Item, lease_us: int, now: float) -> Name:
        number = self._op(Op(self._next_op, item, lease_us), now)
        return (self.worker, number)

    def _op(self, op: Op, now: float) -> int:
        self._next_op += 1
        self._ops[op.number] = (op, self.epoch.number if self.epoch is not None else 0)
        if len(self._ops) <= OPS_SENT:  # else it waits for those before it
            self._send_ops(now)
        return op.number

    def read(self, template: Template, probe: bool, now: float) -> int:
        """``probe``: do not wait for a match."""
        return self._begin(ViewRequest(0, template, False, probe, self._next_op - 1), now)

    def take(self, template: Template, probe: bool, now: float) -> int:
        return self._begin(ViewRequest(0, template, True, probe, self._next_op - 1, locked={}), now)

    def replace(self, template: Template, probe: bool, item: Item, lease_us: int, now: float) -> int:
        """Take a match, and write ``item`` in its place: one operation at every replica."""
        request = ViewRequest(0, template, True, probe, self._next_op - 1, locked={}, written=item, lease_us=lease_us)
        return self._begin(request, now)

    def relet(self, name: Name, item: Item, lease_us: int, ends: bool, now: float) -> int:
        """Renew or end the lease of a tuple: under the lock, so that no other worker takes it meanwhile."""
        template = exactly(item)
        request = ViewRequest(0, template, True, True, self._next_op - 1, locked={}, lease_us=lease_us, only=name)
        request.written = None if ends else item
        return self._begin(request, now)

    def register(self, template: Template, lease_us: int, hand_back: bytes, now: float) -> int:
        """Make a registration, whose name is in the result: from then on no matching write is missed."""
        self.check_room()
        if self.replica is not None and len(self.replica.listeners.known) >= REGISTRATIONS_MAX:
            raise Overflow(f"{REGISTRATIONS_MAX:,} registrations are in this space: cancel some")
        return self._confirmed(Op(self._next_op, listening=words.Listening(template, lease_us, hand_back)), now)

    def fetch(self, registration: Name, seen: Sequence[Name], missed: int, probe: bool, now: float) -> int:
        """Acknowledge events, and wait for the next ones."""
        if seen or missed:
            self.check_room()
            self._op(Op(self._next_op, heard=words.Heard(registration, list(seen), missed)), now)
        return self._begin(ViewRequest(0, ANY_ITEM, False, probe, self._next_op - 1, listens=registration), now)

    def renew(self, registration: Name, lease_us: int, ends: bool, now: float) -> int:
        """Renew or end the lease of a registration."""
        heard = words.Heard(registration, [], 0, not ends, lease_us, ends)
        return self._confirmed(Op(self._next_op, heard=heard), now)

    def _confirmed(self, op: Op, now: float) -> int:
        request = self._next_request
        self._next_request += 1
        self._confirms[op.number] = request
        self._op(op, now)
        return request

    def _begin(self, request: ViewRequest, now: float) -> int:
        if len(self._requests) >= REQUESTS_MAX:
            raise Overflow(f"{REQUESTS_MAX:,} reads and takes are under way: await some of them")
        request.number = self._next_request
        self._next_request += 1
        request.denied, request.answered = set(), set()
        self._requests[request.number] = request
        self._start(request, now)
        return request.number

    def cancel(self, number: int) -> bool:
        """The caller does not wait for a request any more. False if its result comes all the same: an operation about a
        registration is not taken back."""
        request = self._requests.pop(number, None)
        if request is not None:
            self._over(request)
        return number not in self._confirms.values()

    def _over(self, request: ViewRequest) -> None:
        if request.locking and request.takes:
            self._unlock(request, False)
        elif self.epoch is not None:
            self._to_holders(words.Forget(self.epoch.number, self.worker, request.number))

    # Requests of this worker.

    def _start(self, request: ViewRequest, now: float) -> None:
        if self.epoch is None or not self.opened or not self.epoch.holders:
            return
        epoch = self.epoch.number
        request.retry_at = now + REPEAT_S
        if request.listens != (0, 0):
            asked = self.me if self.me in self.epoch.holders else self.epoch.holders[0]
            listen = words.Listen(epoch, self.worker, request.number, request.listens, request.after, request.probe)
            self._to(asked, listen)
            return
        if not request.takes:
            if self.me in self.epoch.holders and self._own_answer(request):  # not if it is about to leave
                return
            ask = words.Ask(epoch, self.worker, request.number, request.template, request.after, request.probe)
            for member in self.epoch.holders:
                if member not in request.answered:
                    self._to(member, ask)
            return
        request.attempt += 1
        request.locking = True
        request.locked, request.denied = {}, set()
        self._ask_locks(request, False, now)

    def _own_answer(self, request: ViewRequest) -> bool:
        """The answer of this member's own replica, if it has executed the earlier operations of this worker."""
        assert self.replica is not None and self.epoch is not None
        if self.replica.marks.get(self.worker, 0) < request.after:
            return False
        found = self.replica.find(request.template)
        if found is None:
            return False
        self._finish(request, ViewResult(request.number, *found))
        return True

    def _ask_locks(self, request: ViewRequest, most: bool, now: float) -> None:
        assert self.epoch is not None
        asked = words.Lock(
            self.epoch.number,
            self.worker,
            request.number,
            request.template,
            request.after,
            request.attempt,
            most,
            request.only,
        )
        for member in self.epoch.holders:
            if member not in request.locked and self._requests.get(request.number) is request and request.locking:
                self._to(member, asked)

    def _finish(self, request: ViewRequest, result: ViewResult) -> None:
        if self._requests.pop(request.number, None) is None:
            return
        self.results.append(result)
        if not request.takes and result.watched is None and self.epoch is not None:
            self._to_holders(words.Forget(self.epoch.number, self.worker, request.number))

    def _answer(self, sender: int, word: words.Answer) -> None:
        request = self._requests.get(word.request)
        if request is None or request.takes:
            return
        if word.item is not None:
            self._finish(request, ViewResult(request.number, word.name, word.item))
            return
        request.answered.add(sender)
        assert self.epoch is not None
        if request.probe and request.answered >= set(self.epoch.holders):
            self._finish(request, ViewResult(request.number))

    def _granted(self, sender: int, word: words.Locked, now: float) -> None:
        request = self._requests.get(word.request)
        if request is None or not request.locking or request.attempt != word.attempt:
            return
        request.denied.discard(sender)
        request.locked[sender] = {name: (item, lease_us) for name, item, lease_us in word.matches}
        self._decide(request, now)

    def _refused(self, sender: int, word: words.Denied, now: float) -> None:
        request = self._requests.get(word.request)
        if request is not None and request.locking and request.attempt == word.attempt:
            if sender not in request.locked:
                request.denied.add(sender)
            self._decide(request, now)

    def _decide(self, request: ViewRequest, now: float) -> None:
        """Phase 1 ends when all replicas have granted the lock, or most have not."""
        assert self.epoch is not None
        count = len(self.epoch.holders)
        if len(request.locked) == count:
            self._choose(request, now)
        elif len(request.locked) + len(request.denied) == count:
            if 2 * len(request.locked) > count:  # nobody else can have most: keep them, and ask the rest again
                request.retry_at = now + BACK_OFF_S * (1 + self.random.random())
            else:
                self._give_back(request, now)

    def _choose(self, request: ViewRequest, now: float) -> None:
        common = self._common(list(request.locked.values()))
        if common:
            name = self.random.choice(common)
            item, lease_us = next(iter(request.locked.values()))[name]
            request.locking = False
            del self._requests[request.number]
            written = 0 if request.written is None else self._next_op
            self.results.append(ViewResult(request.number, name, item, written, lease_us))
            if request.only == (0, 0):
                self._removing[name] = item
            again = request.only != (0, 0)
            self._op(Op(self._next_op, request.written, request.lease_us, name, request.number, again), now)
        elif request.probe:
            del self._requests[request.number]
            self._unlock(request, False)
            self.results.append(ViewResult(request.number))
        else:
            self._unlock(request, True)
            request.retry_at = now + BACK_OFF_S_MAX * (1 + self.random.random())

    def _common(self, answers: Sequence[dict[Name, tuple[Item, int]]]) -> list[Name]:
        """The tuples that are in all answers."""
        return sorted(set(answers[0]).intersection(*answers[1:]))

    def _give_back(self, request: ViewRequest, now: float) -> None:
        self._unlock(request, False)
        longest = min(BACK_OFF_S * 2 ** min(request.attempt, 6), BACK_OFF_S_MAX)
        request.retry_at = now + longest * self.random.random()

    def _unlock(self, request: ViewRequest, waits: bool) -> None:
        assert self.epoch is not None
        request.locking = False
        self._unlocking[request.number, request.attempt] = (set(self.epoch.holders), waits)
        self._to_holders(
            words.Unlock(self.epoch.number, self.worker, request.number, request.attempt, waits),
        )

    def _stirred(self, number: int, now: float) -> None:
        request = self._requests.get(number)
        if request is not None and request.takes and not request.locking:
            self._start(request, now)

    # Operations of this worker.

    def _sendable(self) -> list[Op]:
        """Operations that may be sent, in order: up to the first write behind a take of this worker that is not
        finished."""
        found: list[Op] = []
        removing = False
        size = 0
        for op, _ in self._ops.values():
            size += 0 if op.item is None else op.item.size
            if (op.item is not None and removing) or (found and size > WORD_BYTES_MAX):
                break
            removing = removing or op.name != (0, 0)
            found.append(op)
            if len(found) >= OPS_SENT:
                break
        return found

    def _send_ops(self, now: float, again: bool = False) -> None:
        """Send the operations that were not sent in this epoch; ``again``: those, too, that were not acknowledged."""
        if self.epoch is None or not self.opened:
            return
        ops = self._sendable()
        for member in self.epoch.holders:
            known = self._acks.get(member, 0) if again else self._pushed
            left = [op for op in ops if op.number > known]
            if left:
                self._sent = max(self._sent, left[-1].number)
                self._to(member, words.Do(self.epoch.number, self.worker, left))
        if ops:
            self._pushed = max(self._pushed, ops[-1].number)

    def _did(self, sender: int, number: int, now: float) -> None:
        assert self.epoch is not None
        if number <= self._acks.get(sender, 0):
            return
        self._acks[sender] = number
        everywhere = min((self._acks.get(member, 0) for member in self.epoch.holders), default=0)
        done = list(takewhile(lambda one: one <= everywhere, self._ops))
        for number in done:
            op, _ = self._ops.pop(number)
            self._removing.pop(op.name, None)
            if number in self._confirms:
                self.results.append(ViewResult(self._confirms.pop(number), (self.worker, number)))
        if done and self._ops and self._pushed - everywhere <= OPS_SENT // 2:  # many in one word
            self._send_ops(now)

    # The replica.

    def _serve(self, sender: int, word: Word, now: float) -> None:
        replica = self.replica
        assert replica is not None and self.epoch is not None
        replica.expire(now)
        epoch = self.epoch.number
        match word:
            case words.Do(_, worker, ops):
                for op in ops:
                    if not replica.execute(worker, op, now):
                        break
                    if op.item is not None:
                        self._arrived(op.item, now)
                self._to(sender, words.Did(epoch, worker, replica.marks.get(worker, 0)))
                self._answer_asks(worker, now)
                self._tell_listeners(worker, now)
            case words.Ask(_, worker, request):
                self._listen(False, (worker, request), word.template)
                self._asks[worker, request] = (sender, word)
                self._try_ask((worker, request), now)
            case words.Listen(_, worker, request):
                self._listens[worker, request] = (sender, word)
                self._try_listen((worker, request), now)
            case words.Lock():
                self._try_lock(sender, word, now)
            case words.Unlock(_, worker, request, attempt, waits):
                replica.unlock((worker, request), attempt)
                if waits and (worker, request) in self._templates:
                    self._stirs[worker, request] = sender
                    self._listen(True, (worker, request), self._templates[worker, request])
                    if replica.find(self._templates[worker, request]) is not None:
                        self._stir((worker, request), now)
                self._to(sender, words.Unlocked(epoch, request, attempt))
            case words.Forget(_, worker, request):
                self._forget((worker, request))
            case _:
                pass

    def _try_lock(self, sender: int, word: words.Lock, now: float) -> None:
        replica = self.replica
        assert replica is not None and self.epoch is not None
        holder, template, attempt = (word.worker, word.request), word.template, word.attempt
        after, most = word.after, word.most
        if replica.marks.get(holder[0], 0) < after:
            return  # the worker will ask again, when its earlier operations are executed
        self._templates[holder] = template
        while len(self._templates) > REQUESTS_MAX:
            del self._templates[next(iter(self._templates))]
        granted = replica.lock(holder, template, attempt, most, now)
        epoch = self.epoch.number
        if granted:
            self._to(sender, words.Locked(epoch, holder[1], attempt, replica.matches(template, word.only, now)))
        elif granted is not None:
            self._to(sender, words.Denied(epoch, holder[1], attempt))

    def _listen(self, takes: bool, holder: Holder, template: Template) -> None:
        if (takes, *holder) not in self._wishes and len(self._wishes) < REQUESTS_MAX:
            self._wishes.add((takes, *holder), template)

    def _arrived(self, item: Item, now: float) -> None:
        """A tuple was written: tell requests that wait for it."""
        for takes, worker, request in list(self._wishes.of(item)):
            if takes:
                self._stir((worker, request), now)
            else:
                self._try_ask((worker, request), now)

    def _stir(self, holder: Holder, now: float) -> None:
        assert self.epoch is not None
        member = self._stirs.pop(holder, None)
        self._wishes.remove((True, *holder))
        if member is not None:
            self._to(member, words.Stir(self.epoch.number, holder[1]))

    def _answer_asks(self, worker: int, now: float) -> None:
        for holder in [holder for holder in self._asks if holder[0] == worker]:
            self._try_ask(holder, now)

    def _try_ask(self, holder: Holder, now: float) -> None:
        if holder not in self._asks:
            return
        sender, ask = self._asks[holder]
        assert self.replica is not None
        if self.replica.marks.get(ask.worker, 0) < ask.after:
            return
        found = self.replica.find(ask.template)
        if found is not None:
            self._to(sender, words.Answer(ask.epoch, ask.request, *found))
        elif ask.probe:
            self._to(sender, words.Answer(ask.epoch, ask.request))

    def _tell_listeners(self, worker: int, now: float) -> None:
        """Answer listeners who waited for operations of this worker, or for events that have come."""
        assert self.replica is not None
        fresh = self.replica.listeners.fresh
        for holder, (_, listen) in list(self._listens.items()):
            if holder[0] == worker or listen.registration in fresh:
                self._try_listen(holder, now)
        fresh.clear()

    def _try_listen(self, holder: Holder, now: float) -> None:
        sender, listen = self._listens[holder]
        assert self.replica is not None
        if self.replica.marks.get(listen.worker, 0) < listen.after:
            return
        watched = self.replica.listeners.told(listen.registration, now)
        if watched.events or watched.missed or watched.ended or listen.probe:
            del self._listens[holder]
            self._to(sender, words.Told(listen.epoch, listen.request, watched))

    def _forget(self, holder: Holder) -> None:
        self._listens.pop(holder, None)
        self._asks.pop(holder, None)
        self._stirs.pop(holder, None)
        self._templates.pop(holder, None)
        self._wishes.remove((False, *holder))
        self._wishes.remove((True, *holder))

    # Epochs.

    def enter(self, epoch: Epoch, now: float) -> None:
        """The roster has changed."""
        if self.epoch is not None and epoch.number <= self.epoch.number:
            if epoch.number == self.epoch.number and epoch.opened == epoch.number and not self.opened:
                self.epoch = epoch
                self._open(now)
            return
        outdated = not epoch.follows(self.epoch)
        if outdated:
            self._give_up(self._sent)
            if self.replica is not None:
                self.replica = TupleReplica()
        self._outdated = outdated or (self._outdated and not self.installed)
        self.epoch = epoch
        self.installed = False
        self.opening = 0
        self._patience_s = REPEAT_S
        self._coming = []
        self._acks.clear()
        self._pushed = 0
        self._unlocking.clear()
        self._asks.clear()
        self._listens.clear()
        self._stirs.clear()
        self._templates.clear()
        self._wishes = Wishes()
        for request in self._requests.values():
            request.locking = False
            request.locked, request.denied, request.answered = {}, set(), set()
        self._merge = None
        if self.me not in epoch.members:
            return  # this member has to enter again
        if self.me == epoch.members[0]:
            self._merge = Merge(epoch)
        self._report(now)

    def _report(self, now: float) -> None:
        assert self.epoch is not None
        replica = self.replica
        removing = [(op.number, op.name, decided) for op, decided in self._ops.values() if op.name != (0, 0)]
        replacing = {
            op.number: (op.item, op.lease_us)
            for op, _ in self._ops.values()
            if op.name != (0, 0) and op.item is not None
        }
        has = replica is not None and replica.epoch >= 0
        report = words.Report(
            self.epoch.number,
            self.worker,
            replica.epoch if has and replica is not None else -1,
            len(replica.tuples) if has and replica is not None else 0,
            list(islice(replica.tuples, NAMES_MAX)) if has and replica is not None else [],
            dict(replica.marks) if has and replica is not None else {},
            {worker: sorted(some) for worker, some in replica.ahead.items()} if has and replica is not None else {},
            removing,
            next(iter(self._ops), self._next_op),
            self._sent,
            replacing,
            [number for number, (op, _) in self._ops.items() if op.again],
            replica.listeners.saved(now) if has and replica is not None else [],
        )
        self._report_at = now + self._patience_s
        self._patience_s = min(2 * self._patience_s, PATIENCE_S_MAX)
        self._repeat_at = now + REPEAT_S
        self._to(self.epoch.members[0], report)

    def _merging(self, sender: int, word: Word, now: float) -> None:
        merge = self._merge
        if merge is None:
            return
        match word:
            case words.Report():
                merge.reported(sender, word)
            case words.Names(_, at, names):
                merge.told(sender, at, names)
            case words.Here(_, tuples):
                merge.got(sender, tuples)
            case words.Got(_, count):
                merge.has(sender, count)
            case words.Installed():
                merge.installed.add(sender)
            case _:
                pass
        self._push(now)

    def _push(self, now: float) -> None:
        """Send the words of the eldest that are still due in this epoch."""
        if self._merge is None:
            return
        for member, word in self._merge.words(now):
            self._to(member, word)
        if self._merge.done and not self.opened:
            assert self.epoch is not None
            self.opening = self.epoch.number

    def _arrived_more(self, sender: int, word: words.More) -> None:
        """Tuples for this epoch, before it is installed."""
        if not self.installed and word.at == len(self._coming):
            self._coming += word.add
        self._to(sender, words.Got(word.epoch, len(self._coming)))

    def _tell_names(self, sender: int, word: words.Tell) -> None:
        if self.replica is not None:
            names = list(islice(self.replica.tuples, word.at, word.at + NAMES_MAX))
            self._to(sender, words.Names(word.epoch, word.at, names))

    def _install(self, sender: int, word: words.Install, now: float) -> None:
        if not self.installed:
            assert self.epoch is not None
            replica = self.replica
            if word.at != len(self._coming):
                return
            add, self._coming = [*self._coming, *word.add], []
            if replica is not None and self.me in (*self.epoch.holders, *word.leaving):
                replica.install(word.epoch, word.drop, add, word.marks, word.ahead, word.listeners, now)
            elif replica is not None:  # it is about to leave: what lacks here from now on was not removed by anybody
                self.replica = TupleReplica()
            self.installed = True
            self.void += [self._removing.pop(name) for name in word.void if name in self._removing]
            for number, (op, decided) in self._ops.items():
                if op.name in word.void:  # the replacing tuple is not written, either
                    self._ops[number] = (Op(number, None, 0, op.name, op.request), decided)
            if word.lost:
                self._give_up(word.marks.get(self.worker, 0))
                self._had_holders = False
            self._has_holders = bool(self.epoch.holders or word.leaving)
            self._outdated = False
            self._open(now)
        self._to(sender, words.Installed(word.epoch))

    def _give_up(self, last: int) -> None:
        """The space is lost; what this member still has of it is out of date, and so are its operations up to ``last``.
        Later ones belong to the new space."""
        self.lost += self._had_holders and not self._outdated
        for number in [number for number in self._ops if number <= last]:
            del self._ops[number]
            if number in self._confirms:
                self.results.append(ViewResult(self._confirms.pop(number)))
        self._removing.clear()

    @property
    def opened(self) -> bool:
        """True if operations go on in this epoch."""
        return self.epoch is not None and self.installed and self.epoch.opened == self.epoch.number

    def _open(self, now: float) -> None:
        if self.opened and self.epoch is not None:
            self._had_holders = self._has_holders
            for request in list(self._requests.values()):
                self._start(request, now)
            self._send_ops(now)

    # Words and time.

    def heard(self, sender: int, word: Word, now: float) -> None:
        epoch = self.epoch
        if epoch is None or word.epoch != epoch.number or sender not in epoch.members:
            return
        match word:
            case words.Install():
                self._install(sender, word, now)
            case words.Report() | words.Names() | words.Here() | words.Got() | words.Installed():
                self._merging(sender, word, now)
            case words.Tell():
                self._tell_names(sender, word)
            case words.More():
                self._arrived_more(sender, word)
            case words.Want(_, names):
                if self.replica is not None:
                    tuples = self.replica.tuples
                    held = first_of(self.replica.travelling(name, now) for name in names if name in tuples)
                    self._to(sender, words.Here(epoch.number, held))
            case words.Did(_, worker, number):
                if worker == self.worker and self.opened:
                    self._did(sender, number, now)
            case words.Answer():
                self._answer(sender, word)
            case words.Told(_, request, watched):
                asked = self._requests.get(request)
                if asked is not None:
                    self._finish(asked, ViewResult(request, watched=watched))
            case words.Locked():
                self._granted(sender, word, now)
            case words.Denied():
                self._refused(sender, word, now)
            case words.Unlocked(_, request, attempt):
                waiting = self._unlocking.get((request, attempt))
                if waiting is not None:
                    waiting[0].discard(sender)
                    if not waiting[0]:
                        del self._unlocking[request, attempt]
            case words.Stir(_, request):
                self._stirred(request, now)
            case _:
                if self.replica is not None and self.opened:
                    self._serve(sender, word, now)

    @property
    def due_at(self) -> float:
        retries = min((one.retry_at for one in self._requests.values()), default=float("inf"))
        ends = self.replica.next_end if self.replica is not None and self._may_expire else float("inf")
        busy = not self.opened or self._ops or self._unlocking or self._merge is not None
        return min(retries, ends, self._repeat_at if busy else float("inf"))

    @property
    def _may_expire(self) -> bool:
        """True if expired tuples may be removed. The tuples that were reported for an epoch are kept until the epoch is
        installed: the eldest may still ask for them."""
        return self.epoch is None or self.installed or self.me not in self.epoch.members

    def tick(self, now: float) -> None:
        """Repeat words that were not answered."""
        if self.replica is not None and self._may_expire:
            self.replica.expire(now)
        if self.epoch is None or self.me not in self.epoch.members:
            self._repeat_at = now + REPEAT_S
            for request in self._requests.values():
                request.retry_at = max(request.retry_at, now + REPEAT_S)
            return
        if now >= self._repeat_at:
            self._repeat_at = now + REPEAT_S
            if not self.installed and now >= self._report_at:
                self._report(now)
            self._push(now)
            self._send_ops(now, again=True)
            for (number, attempt), (members, waits) in list(self._unlocking.items()):
                for member in sorted(members):
                    self._to(member, words.Unlock(self.epoch.number, self.worker, number, attempt, waits))
        for request in list(self._requests.values()):
            if now >= request.retry_at:
                self._retry(request, now)

    def _retry(self, request: ViewRequest, now: float) -> None:
        assert self.epoch is not None
        request.retry_at = now + REPEAT_S
        if request.takes and request.locking:
            most = 2 * len(request.locked) > len(self.epoch.holders)
            request.denied.clear()
            self._ask_locks(request, most, now)
        else:
            self._start(request, now)

    def _to_holders(self, word: Word) -> None:
        assert self.epoch is not None
        for member in self.epoch.holders:
            self.out.append((member, word))

    def _to(self, member: int, word: Word) -> None:
        self.out.append((member, word))

    def stats(self) -> dict[str, Any]:
        return {
            "epoch": 0 if self.epoch is None else self.epoch.number,
            "pending": len(self._ops),
            "requests": len(self._requests),
            "tuples": 0 if self.replica is None else len(self.replica.tuples),
            "lost": self.lost,
        }

    def validate(self) -> None:
        """For tests."""
        if self.replica is not None:
            self.replica.validate()
        assert list(self._ops) == sorted(self._ops)
        assert len(self._requests) <= REQUESTS_MAX
