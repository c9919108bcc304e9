"""A member of a partitioned space: its worker, and its server if it keeps tuples.

Theory of operation
-------------------
Source: *Indirect Communication*, 6.5.2, figure 6.22, after the Linda kernel of York (Rowstron and Wood, 1996).

A hash of a tuple's number of fields and of one field, by default the first, picks its range; the members share out the
ranges (``server``). A *write* goes to the owner of the range. A *read* or *take* whose template gives that field goes
to one server; any other asks the servers one after another. A server that has no match keeps an *interest*; when a
match comes it is set aside for the interest that has waited longest, which is offered it.

*Claimed at one server at a time.* A take has at most one question or claim under way that could bring it a tuple. An
offer of another server waits until that one is answered. When the take has its tuple it withdraws all its interests,
and a tuple that was set aside for it elsewhere goes to the next.

*Once.* Servers remember the result of a request until its worker says that it is over, and this memory moves with the
range. So words may be repeated. A question that was answered with nothing is answered so again, whatever has come
meanwhile: its worker may have gone on. When an epoch begins while a take has a question under way, the take first asks
whether it was given something there (``recall``), and goes on only if not.

*Registrations* stand at every range in which they can match (``watches``). A listener asks all servers for events, with
what it has acknowledged at each range so far, and goes on with the first answer.

Promises: a tuple is taken once; requests that wait at a range are served in their order; with ``copies`` of each range
no tuple is lost while one of them lives, and losses are reported; no event is dropped in silence. A worker's operations
are executed in its order if it awaits each. Live while the roster stands still for a few round trips.

Bounded: ``REQUESTS_MAX`` requests under way; then ``Overflow`` (``check_room``). What a request under way brings about
is never refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...core.errors import Overflow
from ...core.ports import Random
from ..roster import Epoch
from ..templates import Template
from ..values import Item
from ..watching import Mark, Watched
from . import words
from .ranges import range_of, ranges_of
from .requests import ListenerMarks, PartitionRequest, PartitionResult
from .server import REPEAT_S, Server
from .words import RANGES, Name, Watching, Word

REQUESTS_MAX = 10_000
READ_AGAIN_S = 1.0
"""Seconds after which a waiting read asks again: an offer to a read is sent only once."""


class PartitionedMember:
    """``copies`` and ``key`` must be the same at all members. Words to send are in ``out``, as (member, word); results
    of requests in ``results``; lost ranges, with how many tuples each had, in ``lost``."""

    def __init__(self, me: int, worker: int, random: Random, copies: int = 1, key: int = 0) -> None:
        self.me = me
        self.worker = worker
        self.key = key
        self.random = random
        self.server = Server(me, copies, self._to)
        self.epoch: Epoch | None = None
        self.opening = 0
        """The epoch that the roster should open now; 0: none."""
        self.out: list[tuple[int, Word]] = []
        self.results: list[PartitionResult] = []
        self.lost: list[dict[int, int]] = []
        self._requests: dict[int, PartitionRequest] = {}
        self._next = 1
        self._withdrawing: dict[int, set[int]] = {}
        """Requests that are over, with the servers that were not told yet."""
        self._again_at = 0.0
        self._ready: dict[int, dict[int, int]] = {}
        self._heard: set[int] = set()
        self._lost_told = 0
        self._since = 0
        self._inside = False
        """True if this member is in the epoch, and somebody keeps tuples in it."""
        self._listener_marks = ListenerMarks()

    # Calls of the application.

    def check_room(self) -> None:
        """``Overflow`` if too many requests are under way. Ask before the first of several writes: the others may
        follow."""
        if len(self._requests) >= REQUESTS_MAX:
            raise Overflow(f"{REQUESTS_MAX:,} operations are under way: await some of them")

    def write(self, item: Item, lease_us: int, now: float) -> int:
        request = PartitionRequest(0, item=item, lease_us=lease_us, ranges=[range_of(item, self.key)])
        return self._begin(request, now)

    def read(self, template: Template, probe: bool, now: float) -> int:
        return self._seek(template, False, probe, now)

    def take(self, template: Template, probe: bool, now: float) -> int:
        return self._seek(template, True, probe, now)

    def replace(self, template: Template, probe: bool, item: Item, lease_us: int, now: float) -> int:
        """Take a match, and write ``item`` in its place: both, or neither."""
        return self._seek(template, True, probe, now, item, lease_us)

    def relet(self, name: Name, item: Item, lease_us: int, ends: bool, now: float) -> int:
        """Renew or end the lease of a tuple of this worker."""
        self.check_room()
        request = PartitionRequest(0, lease_us=lease_us, ranges=[range_of(item, self.key)], relets=name, ends=ends)
        return self._begin(request, now)

    def _seek(
        self,
        template: Template,
        takes: bool,
        probe: bool,
        now: float,
        written: Item | None = None,
        lease_us: int = 0,
    ) -> int:
        ranges = list(ranges_of(template, self.key))
        self.check_room()
        if len(ranges) > 1:  # requests of several members begin at different servers
            at = self.random.randrange(len(ranges))
            ranges = ranges[at:] + ranges[:at]
        request = PartitionRequest(0, template, takes, probe, lease_us=lease_us, ranges=ranges, left=list(ranges))
        request.written = written
        return self._begin(request, now)

    def tally(self, template: Template, most: int, now: float) -> int:
        """Count matches at all servers, and get the first ``most`` of each."""
        self.check_room()
        return self._begin(PartitionRequest(0, template, most=most, tallies={}, probe=True), now)

    def register(self, template: Template, lease_us: int, hand_back: bytes, now: float) -> int:
        """Make a registration, whose name is in the result: from then on no matching write is missed."""
        self.check_room()
        ranges = list(ranges_of(template, self.key))
        made = Watching(template, lease_us, hand_back, len(ranges) == RANGES)
        return self._begin(PartitionRequest(0, ranges=ranges, left=list(ranges), registers=made), now)

    def fetch(self, registration: Name, seen: Iterable[Mark], missed: int, probe: bool, now: float) -> int:
        """Acknowledge events, and wait for the next ones. Those that were ``missed`` are acknowledged with the events
        after them."""
        self.check_room()
        self._listener_marks.add(registration, seen)
        return self._begin(PartitionRequest(0, probe=probe, listens=registration, answers={}), now)

    def renew(self, registration: Name, lease_us: int, ends: bool, now: float) -> int:
        """Renew or end the lease of a registration."""
        return self._begin(PartitionRequest(0, lease_us=lease_us, renews=registration, ends=ends, answers={}), now)

    def _begin(self, request: PartitionRequest, now: float) -> int:
        request.number = self._next
        self._next += 1
        self._requests[request.number] = request
        self._go_on(request, now)
        return request.number

    def cancel(self, number: int, now: float) -> None:
        """The caller does not wait for a request any more. Its result comes all the same: nothing, or the tuple that it
        got."""
        request = self._requests.get(number)
        if request is not None and request.listens != (0, 0):
            self._finish(request, PartitionResult(number, watched=Watched()))
        if request is None or request.template is None:
            return
        request.cancelled = True
        if not request.takes or (request.word is None and not request.recalls):  # a read has nothing to lose
            self._finish(request, PartitionResult(number))

    @property
    def pending(self) -> int:
        """Writes that are not kept yet, and takes that were given up and may have got a tuple all the same."""
        return sum(one.item is not None or (one.takes and one.cancelled) for one in self._requests.values())

    # Requests.

    @property
    def opened(self) -> bool:
        """True if operations go on in this epoch."""
        return self._inside and self.epoch is not None and self.epoch.opened == self.epoch.number

    @property
    def _floor(self) -> int:
        first = next(iter(self._requests), self._next)  # they are in the order of their numbers
        return min([first, *self._withdrawing])

    def _owner(self, number: int) -> int:
        return self.server.placed[number][0]

    def _go_on(self, request: PartitionRequest, now: float) -> None:
        """Send the next word of a request, unless an answer is awaited."""
        if not self.opened or request.word is not None:
            return
        assert self.epoch is not None
        epoch = self.epoch.number
        if request.item is not None:
            at = request.ranges[0]
            request.first = request.first or epoch
            put = words.Put(
                epoch,
                self.worker,
                request.number,
                self._floor,
                at,
                request.item,
                request.lease_us,
                request.first,
            )
            self._ask(request, self._owner(at), put, [at], now)
        elif request.relets != (0, 0):
            at = request.ranges[0]
            relet = words.Relet(
                *(epoch, self.worker, request.number, self._floor, at, request.relets, request.lease_us, request.ends)
            )
            self._ask(request, self._owner(at), relet, [at], now)
        elif request.registers is not None:
            self._register(request, request.registers, now)
        elif request.renews != (0, 0) or request.listens != (0, 0):
            self._ask_all(request, now)
        elif request.most or (request.template is not None and not request.ranges):
            self._count(request, now)
        elif request.recalls:
            server = self._owner(request.asked[0])
            about = [at for at in request.asked if self._owner(at) == server]
            self._ask(request, server, self._seeking(request, about, True), request.asked, now)
        elif request.cancelled:
            self._finish(request, PartitionResult(request.number))
        elif request.left:
            server = self._owner(request.left[0])
            about = [at for at in request.left if self._owner(at) == server]
            self._ask(request, server, self._seeking(request, about, False), about, now)
        elif request.probe:
            self._finish(request, PartitionResult(request.number))
        else:
            self._claim_next(request, now)

    def _claim_next(self, request: PartitionRequest, now: float) -> None:
        request.again_at = now + READ_AGAIN_S
        if request.offers:
            assert self.epoch is not None
            server, at, name = request.offers.popleft()
            request.attempt += 1
            claim = words.Claim(self.epoch.number, self.worker, request.number, request.attempt, self._floor, at, name)
            claim = msgspec.structs.replace(claim, carried=self._carried(request))
            self._ask(request, server, claim, [at], now)

    def _seeking(self, request: PartitionRequest, about: list[int], recall: bool) -> words.Seek:
        assert self.epoch is not None and request.template is not None
        request.attempt += 1
        return words.Seek(
            self.epoch.number,
            self.worker,
            request.number,
            request.attempt,
            self._floor,
            about,
            request.template,
            request.takes,
            request.probe or request.cancelled,
            recall,
            self._carried(request),
        )

    def _carried(self, request: PartitionRequest) -> words.Carried | None:
        if request.written is None:
            return None
        assert self.epoch is not None
        request.first = request.first or self.epoch.number
        return words.Carried(request.written, request.lease_us, range_of(request.written, self.key), request.first)

    def _ask(self, request: PartitionRequest, to: int, word: Word, about: list[int], now: float) -> None:
        request.word, request.to, request.asked = word, to, about
        request.again_at = now + REPEAT_S
        self._to(to, word)

    def _count(self, request: PartitionRequest, now: float) -> None:
        assert self.epoch is not None and request.template is not None
        tally = words.Tally(self.epoch.number, request.number, request.template, request.most)
        request.again_at = now + REPEAT_S
        for member in self.epoch.holders:
            if member not in request.tallies:
                self._to(member, tally)

    # Registrations.

    def _register(self, request: PartitionRequest, made: Watching, now: float) -> None:
        assert self.epoch is not None
        request.again_at = now + REPEAT_S
        by_owner: dict[int, list[int]] = {}
        for at in request.left:
            by_owner.setdefault(self._owner(at), []).append(at)
        for owner, about in by_owner.items():
            asked = words.Register(self.epoch.number, self.worker, request.number, self._floor, about, made)
            self._to(owner, asked)

    def _stands(self, word: words.Stands, now: float) -> None:
        request = self._requests.get(word.number)
        if request is None or request.registers is None:
            return
        request.left = [at for at in request.left if at not in word.ranges]
        if word.full:
            self.renew((self.worker, request.number), 0, True, now)  # it may stand at other servers
            self._finish(request, PartitionResult(request.number, full=True))
        elif not request.left:
            self._finish(request, PartitionResult(request.number, (self.worker, request.number)))

    def _ask_all(self, request: PartitionRequest, now: float) -> None:
        """Ask the servers that have not answered."""
        assert self.epoch is not None
        waits = request.listens != (0, 0) and not request.probe
        request.again_at = now + (READ_AGAIN_S if waits else REPEAT_S)
        word: Word
        epoch, worker, number = self.epoch.number, self.worker, request.number
        if request.listens != (0, 0):
            seen = self._listener_marks.of(request.listens)
            word = words.Listen(epoch, worker, number, request.listens, seen, request.probe)
        else:
            word = words.Renew(epoch, worker, number, self._floor, request.renews, request.lease_us, request.ends)
        for member in self.epoch.holders:
            if waits or member not in request.answers:
                self._to(member, word)

    def _told(self, sender: int, word: words.Told) -> None:
        request = self._requests.get(word.number)
        if request is None or self.epoch is None or request.listens == (0, 0):
            return
        request.answers[sender] = word
        if request.probe or word.watched.ended:
            if not set(request.answers) >= set(self.epoch.holders):
                return
            told = [one for one in request.answers.values() if isinstance(one, words.Told)]
            told = [one for one in told if not one.watched.ended] or told
        else:
            told = [word]
        watched = self._listener_marks.told(request.listens, told)
        self._finish(request, PartitionResult(request.number, watched=watched))

    def _renewed(self, sender: int, word: words.Renewed) -> None:
        request = self._requests.get(word.number)
        if request is None or self.epoch is None or request.renews == (0, 0):
            return
        request.answers[sender] = word
        if set(request.answers) >= set(self.epoch.holders):
            done = any(one.done for one in request.answers.values() if isinstance(one, words.Renewed))
            self._finish(request, PartitionResult(request.number, done=done))

    # Answers.

    def _sought(self, sender: int, word: words.Sought, now: float) -> None:
        request = self._requests.get(word.number)
        if request is None or request.word is None or request.attempt != word.attempt or request.to != sender:
            return
        asked = request.word
        request.word = None
        if word.item is not None:
            self._finish(request, PartitionResult(request.number, word.name, word.item, lease_us=word.lease_us))
            return
        if isinstance(asked, words.Seek) and asked.recall:
            request.asked = [at for at in request.asked if at not in asked.ranges]
            request.recalls = bool(request.asked)
        elif isinstance(asked, words.Seek):
            request.interested = request.interested or not asked.probe
            request.left = [at for at in request.left if at not in asked.ranges]
            request.asked = []
        else:
            request.asked = []
        self._go_on(request, now)

    def _offered(self, sender: int, word: words.Offer, now: float) -> None:
        request = self._requests.get(word.number)
        if request is None:
            if word.number not in self._withdrawing and word.number < self._next:
                self._withdraw(word.number)
            return
        if not request.takes:
            self._finish(request, PartitionResult(request.number, word.name, word.item))
            return
        offer = (sender, word.range, word.name)
        if offer not in request.offers and not (
            isinstance(request.word, words.Claim) and request.word.name == word.name
        ):
            request.offers.append(offer)
        if not request.left:
            self._go_on(request, now)

    def _finish(self, request: PartitionRequest, result: PartitionResult) -> None:
        del self._requests[request.number]
        self.results.append(result)
        listened = request.listens != (0, 0) and not request.probe
        if listened or (request.template is not None and (request.interested or request.word is not None)):
            self._withdraw(request.number)

    def _withdraw(self, number: int) -> None:
        if self.epoch is not None:
            self._withdrawing[number] = set(self.epoch.holders)
            if self.opened:
                for member in self.epoch.holders:
                    self._to(member, words.Withdraw(self.epoch.number, self.worker, number))

    def _kept(self, number: int, unknown: bool) -> None:
        request = self._requests.get(number)
        if request is not None and request.item is not None:
            request.word = None
            self._finish(request, PartitionResult(number, (self.worker, number), request.item, unknown=unknown))

    def _let(self, number: int, done: bool) -> None:
        request = self._requests.get(number)
        if request is not None and request.relets != (0, 0):
            request.word = None
            self._finish(request, PartitionResult(number, done=done))

    def _tallied(self, sender: int, word: words.Tallied) -> None:
        request = self._requests.get(word.number)
        if request is None or self.epoch is None or request.ranges:
            return
        request.tallies[sender] = word
        if set(request.tallies) >= set(self.epoch.holders):
            del self._requests[request.number]
            found = request.tallies.values()
            items = [item for one in found for item in one.items]
            self.results.append(PartitionResult(request.number, count=sum(one.count for one in found), items=items))

    # Epochs.

    def enter(self, epoch: Epoch, now: float) -> None:
        """The roster has changed."""
        if self.epoch is not None and epoch.number <= self.epoch.number:
            if epoch.number == self.epoch.number and epoch.opened == epoch.number and not self.opened:
                self._open(epoch, now)
            return
        if not epoch.follows(self.epoch):
            self._give_up()
        elif self._inside and self.epoch is not None and epoch.opened == self.epoch.number and not self.opened:
            self.server.was_opened()
        for request in self._requests.values():  # the answer may be lost with the epoch that is over
            request.interested = request.interested or isinstance(request.word, words.Seek)
        self.epoch = epoch
        self._inside = self.me in epoch.members and bool(epoch.holders)
        self.opening = 0
        self._ready.clear()
        self._heard.clear()
        self._again_at = now + REPEAT_S
        for request in self._requests.values():
            request.offers.clear()
            request.tallies = {}
            request.answers = {}
            request.recalls = request.takes and bool(request.asked)
            request.word = None
        if self.me in epoch.members:
            since = next(entry.since for entry in epoch.entries if entry.member == self.me)
            if since != self._since:  # this member was struck off, and its interests are gone
                self._since = since
                for request in self._requests.values():
                    request.left = list(request.ranges) if request.item is None else []
            self.server.enter(epoch, now)

    def _give_up(self) -> None:
        """The space is lost; what this member still has of it is out of date."""
        self.lost.append({number: len(state.tuples) for number, state in self.server.states.items()})
        self.server.give_up()
        for request in [request for request in self._requests.values() if request.item is not None and request.first]:
            self._finish(request, PartitionResult(request.number, (self.worker, request.number), unknown=True))

    def _open(self, epoch: Epoch, now: float) -> None:
        self.epoch = epoch
        if self.me not in epoch.members:
            return
        self.server.open(epoch, now)
        for number in list(self._withdrawing):
            self._withdraw(number)
        for request in list(self._requests.values()):
            self._go_on(request, now)

    def _settle(self, now: float) -> None:
        """Tell the eldest when this member is ready; the eldest goes on when all are."""
        assert self.epoch is not None
        if self.opened or self.me not in self.epoch.members or not self.server.moving.ready:
            return
        self._to(self.epoch.members[0], words.Ready(self.epoch.number, self.server.moving.lost))

    def _all_ready(self) -> None:
        assert self.epoch is not None
        if self.opened or set(self._ready) < set(self.epoch.members):
            return
        lost = {number: count for one in self._ready.values() for number, count in one.items()}
        if lost and not self._heard >= set(self.epoch.members):
            for member in self.epoch.members:
                if member not in self._heard:
                    self._to(member, words.Lost(self.epoch.number, lost))
            return
        self.opening = self.epoch.number

    def _lost(self, sender: int, word: words.Lost) -> None:
        if self._lost_told < word.epoch:
            self._lost_told = word.epoch
            self.lost.append(dict(word.ranges))
            for request in self._requests.values():
                again = [at for at in request.ranges if at in word.ranges and at not in request.left]
                if request.item is None:
                    request.left += again
        self._to(sender, words.Heard(word.epoch))

    # Words and time.

    def heard(self, sender: int, word: Word, now: float) -> None:
        epoch = self.epoch
        if epoch is None or word.epoch != epoch.number or sender not in epoch.members or self.me not in epoch.members:
            return
        server = self.server
        match word:
            case words.Sought():
                self._sought(sender, word, now)
            case words.Offer():
                self._offered(sender, word, now)
            case words.Kept(_, number, unknown):
                self._kept(number, unknown)
            case words.Let(_, number, done):
                self._let(number, done)
            case words.Relet():
                server.relet(sender, word, now)
            case words.Paid():
                server.paid(word, now)
            case words.Withdrawn(_, number):
                waiting = self._withdrawing.get(number)
                if waiting is not None:
                    waiting.discard(sender)
                    if not waiting:
                        del self._withdrawing[number]
            case words.Tallied():
                self._tallied(sender, word)
            case words.Stands():
                self._stands(word, now)
            case words.Told():
                self._told(sender, word)
            case words.Renewed():
                self._renewed(sender, word)
            case words.Put():
                server.put(sender, word, now)
            case words.Seek():
                server.seek(sender, word, now)
            case words.Claim():
                server.claim(sender, word, now)
            case words.Withdraw():
                server.withdraw(sender, word, now)
            case words.Copy():
                server.copy(sender, word, now)
            case words.Register() | words.Renew() | words.Listen():
                server.registering(sender, word, now)
            case words.Copied():
                server.copied(sender, word)
            case words.Tally():
                server.tally(sender, word)
            case words.Ready(_, lost):
                self._ready[sender] = lost
                self._all_ready()
            case words.Lost():
                self._lost(sender, word)
            case words.Heard():
                self._heard.add(sender)
                self._all_ready()
            case _:
                server.moving.heard(sender, word, now)
                if server.moving.outdated:
                    self.lost.append(server.moving.outdated)
                    server.moving.outdated = {}
                self._settle(now)

    @property
    def due_at(self) -> float:
        asks = [one.again_at for one in self._requests.values() if self.opened and self._repeats(one)]
        return min([*asks, self.server.next_end, self._again_at])

    def _repeats(self, request: PartitionRequest) -> bool:
        waits = not request.takes and request.item is None  # reads ask again
        return request.word is not None or waits

    def tick(self, now: float) -> None:
        again = now >= self._again_at
        if again:
            self._again_at = now + REPEAT_S
        if self.epoch is None or self.me not in self.epoch.members:
            return
        self.server.tick(now, again)
        if again:
            self._settle(now)
            if self._ready:
                self._all_ready()
            if self.opened:
                for number, members in self._withdrawing.items():
                    for member in sorted(members):
                        self._to(member, words.Withdraw(self.epoch.number, self.worker, number))
        if self.opened:
            for request in list(self._requests.values()):
                if now >= request.again_at and self._repeats(request):
                    self._repeat(request, now)

    def _repeat(self, request: PartitionRequest, now: float) -> None:
        if request.word is not None:
            request.again_at = now + REPEAT_S
            self._to(request.to, request.word)
        elif request.template is None:
            self._go_on(request, now)
        elif request.ranges:
            request.left = list(request.ranges)
            self._go_on(request, now)
        else:
            self._count(request, now)

    def _to(self, member: int, word: Word) -> None:
        self.out.append((member, word))

    def stats(self) -> dict[str, Any]:
        return {
            "epoch": 0 if self.epoch is None else self.epoch.number,
            "requests": len(self._requests),
            "ranges": len(self.server.owned()) if self.opened else 0,
            "tuples": sum(len(self.server.states[one].tuples) for one in self.server.owned()) if self.opened else 0,
            "served": self.server.served,
        }

    def validate(self) -> None:
        """For tests."""
        self.server.validate()
        assert list(self._requests) == sorted(self._requests)
        for request in self._requests.values():
            assert request.word is None or request.asked
