"""A queue as a machine on the log host. Source: chapter on indirect communication, section 6.4, message queues.

Theory of operation
-------------------
*A message* is sent once (its sender numbers its batches; keepers accept them in
order, each once), waits, is delivered to one consumer, and is settled: acknowledged, given back, or rejected. Bodies
stay in the log; here are handles.

*Order.* Of the messages that are ready the highest priority comes first, and within a priority the one that was sent
first. A message that comes back takes its old place. Messages of one key are delivered in the order of sending,
whatever their priorities, and one at a time: the next one when the one before is settled.

*Demand* (``group/host/demand.py``). Consumers say how much they have room for; the consumer that waits longest is
served next. When several wait and many messages come at once, these are divided evenly. A consumer with a selector is
in the same line. Messages that become ready are matched with its selector at once. Messages that were there before are
found by a search outside of ``apply`` (``finder.py``); a command brings the messages found, and ``apply`` checks them.

*Coming back.* A message whose consumer dies comes back at once; a message that is given back waits for a while, which
doubles each time. A message that was delivered ``tries_max`` times becomes a dead letter. Dead letters stay in the
queue, aside, with the reason, until they are redriven or purged.

*Time* is that of the log. ``tick`` deals with delays, expiry and leases of messages (``times.py``).

Promises: at most one assignment of a message is valid. An acknowledged message is never delivered again. Every message
that was sent is ready, held, waiting for its time or its key, a dead letter, or was settled, purged or expired. A
consumer that waits and has room gets a message that it wants if one is ready. Bounded: every table has a limit; at the
limit a command is refused, with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, ClassVar

import msgspec

from ..core.errors import BadInput, MalformedFrame
from ..group.host.bodies import Handle
from ..group.host.demand import Consumer, Demands, Held
from ..group.host.machine import TICK_THINGS_MAX, Effects, Ground, Machine, Refusal
from ..group.host.words import ONCE
from . import words
from .batch import checked, head_of, is_batch
from .columns import copied
from .finder import Finder
from .forwarding import moves, pieces_of, slice_piece
from .keeping import NOBODY, keep, resolve
from .looking import looked, stats_of, where
from .messages import MessageTable, Totals, Upload
from .segments import Segment, mask_of, ones_at
from .selectors import Selectors, seen_of
from .times import bucket_of
from .words import AGAIN, BURY, DONE, ENDED, NEXT, PRIORITIES, REFUSE, REFUSED, Outcome, Settings

ANY, SOME = 0, 1
"""Tags of consumers: of consumers that take any message, and of consumers with a selector."""
SCAN_NOW = 256
"""Messages that are looked at for a selector within a command; if more are ready, a search outside does it."""

LATE = "a message of the transaction is not held any more: its lease ended"

TIGHT_BYTES = 64 << 10
"""A consumer with a selector and less credit than this may have been passed over for messages that were too long."""

_encode = msgspec.msgpack.encode
_PLACE = Struct("<I")
"""Of a message in the batch that came with it, or before it."""


class _Step(msgspec.Struct):
    row: int
    place: int
    data: bytes
    command: words.Settle | words.Keep | words.Resolve | None
    """None: it is a batch."""


class _Steps(Effects):
    steps: list[_Step]


class Queue(Machine):
    """The state of one queue."""

    kind: ClassVar[str] = "queue"
    version: ClassVar[int] = 1
    retains: ClassVar[bool] = True
    transactional: ClassVar[bool] = True
    bodied: ClassVar[bool] = True
    scan_now: ClassVar[int] = SCAN_NOW
    demands: Demands

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.demands = Demands(self.parts)
        self.selectors = Selectors()
        self.messages = MessageTable(self.ground, self.parts, lambda: self.selectors.waiting)
        self.finder = Finder(self)
        self.answers: dict[int, tuple[int, list[int]]] = {}
        """By consumer: the number of its last settlement, and the messages that it did not hold any more."""

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        self.parts.touch("totals")
        try:
            if is_batch(command):
                outcome, kept = self._send(row, place, command)
            else:
                outcome, kept = self._do(row, place, words.command_of(command), len(command))
        except MalformedFrame as error:
            outcome, kept = Outcome(REFUSED, 0, str(error)), 0
        if kept < len(command):
            self.ground.release(row, len(command) - kept)
        self._hand_out()
        return outcome

    def _do(self, row: int, place: int, command: words.Command, size: int) -> tuple[Outcome, int]:
        """The outcome, and how many bytes of the command are kept."""
        match command:
            case words.Settle():
                return self._settle(command), 0
            case words.Attach():
                return self._attach(command), 0
            case words.Detach():
                return self._detach(command.consumer), 0
            case words.Offer():
                return self._offer(command), 0
            case words.Configure():
                return self._configure(command), 0
            case words.Purge():
                return self.messages.purge(command), 0
            case words.Redrive():
                return self.messages.redrive(command), 0
            case words.Pause():
                return self._pause(command), 0
            case words.Stage():
                return self.messages.stage(row, place, command, size)
            case words.Move():
                return self.messages.move(row, place, command, size)
            case words.Restage():
                return self.messages.restage(row, place, command, size)
            case words.Remake():
                return self.messages.remake(row, place, command, size)
            case words.Keep() | words.Resolve():
                return Outcome(REFUSED, 0, "only transactions keep messages, and resolve what they kept"), 0

    def _configure(self, command: words.Configure) -> Outcome:
        totals = self.messages.totals
        known = totals.settings
        if known is not None and not command.anew:
            if known == command.settings:
                return Outcome(AGAIN)
            return Outcome(
                REFUSED,
                0,
                f"the queue was made with other settings, {_differences(known, command.settings)}: open it without "
                "settings, or change them with configure()",
            )
        if command.settings.policy not in (words.WAIT, REFUSE, BURY):
            return Outcome(REFUSED, 0, f"there is no policy {command.settings.policy!r}: wait, refuse or dead")
        if command.anew:
            if known == command.settings:
                return Outcome(AGAIN)
            if command.changes != totals.changes:
                return Outcome(NEXT, totals.changes)
            totals.changes += 1
        totals.settings = command.settings
        return Outcome(DONE)

    def _send(self, row: int, place: int, command: bytes) -> tuple[Outcome, int]:
        head = checked(command)
        streams = self.ground.streams
        due = streams.next(head.session)
        if head.first != due:
            if head.last >= due:
                return Outcome(NEXT, due, f"sequence {due} of this sender is next, not {head.first}"), 0
            known = streams.earlier(head.session, head.last)
            found = known.result if known is not None else b""
            return Outcome(AGAIN, int.from_bytes(found, "little") if found else -1), 0
        refusal = self.messages.refusal(head, command)
        if refusal is not None:
            return refusal, 0
        first = self.messages.totals.next
        kept = self.messages.take(row, place, command, head)
        streams.record(head.session, head.last, first.to_bytes(8, "little"))
        self.messages.make_room()
        return Outcome(DONE, first), kept

    def _attach(self, command: words.Attach) -> Outcome:
        totals, consumers = self.messages.totals, self.demands.consumers
        others = len(consumers) - (command.consumer in consumers) - self.demands.count_of(NOBODY)
        if others and (command.exclusive or totals.exclusive not in (-1, command.consumer)):
            who = "others receive from it" if command.exclusive else "one consumer has it for itself"
            return Outcome(REFUSED, 0, f"the queue cannot be used so, because {who}: wait until they are gone")
        known = self.selectors.packed(command.consumer)
        if command.selector and command.selector != known:
            try:
                self.selectors.add(-1, command.selector)  # whether it can be one
                self.selectors.remove(-1)
            except BadInput as error:
                return Outcome(REFUSED, 0, str(error))
        consumer = self.demands.attach(
            command.consumer, command.owner, max(command.lease_us, 1), SOME if command.selector else ANY
        )
        if consumer is None:
            return Outcome(REFUSED, 0, "too many consumers are at this queue: close some")
        self.parts.touch("selectors")
        self.selectors.remove(command.consumer)
        if command.selector:
            self.selectors.add(command.consumer, command.selector)
        totals.exclusive = command.consumer if command.exclusive else -1 if not others else totals.exclusive
        return Outcome(DONE, consumer.epoch, "", _held(consumer))

    def _detach(self, number: int) -> Outcome:
        if number not in self.demands.consumers:
            return Outcome(AGAIN)
        held = self.demands.detach(number)
        self._left(number)
        self._come_back(held, False)
        return Outcome(DONE, len(held))

    def _left(self, number: int) -> None:
        if number in self.answers:
            self.parts.touch("answers")
            del self.answers[number]
        if number in self.selectors:
            self.parts.touch("selectors")
            self.selectors.remove(number)
        if self.messages.totals.exclusive == number:
            self.messages.totals.exclusive = -1

    def _come_back(self, held: Mapping[int, Held], counts: bool) -> None:
        for thing in sorted(held):
            self.messages.back(thing, held[thing].delivery, counts, 0)

    def owners(self) -> Iterable[int]:
        return [owner for owner in self.demands.owners() if owner != NOBODY]

    def lease_us(self, owner: int) -> int | None:
        return None if owner == NOBODY else self.demands.lease_us(owner)

    def expire(self, owners: Sequence[int]) -> None:
        self.parts.touch("totals")
        for number, held in self.demands.expire([one for one in owners if one != NOBODY]).items():
            self._left(number)
            self._come_back(held, True)
        self._hand_out()

    def _settle(self, command: words.Settle) -> Outcome:
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch:
            return Outcome(ENDED, 0, "this consumer is not attached any more: attach again")
        known = self.answers.get(command.consumer)
        if command.number and known is not None and command.number <= known[0]:
            held = _held(consumer) if command.serial and not command.want else []
            return Outcome(AGAIN, 0, "", held, list(known[1]) if command.number == known[0] else [])
        tight = consumer.held_bytes + TIGHT_BYTES > consumer.bytes_max
        count = len(command.acked)
        lost = self._acknowledge(consumer, command.acked, command.deliveries)
        for at, (thing, verb, wait_us, reason) in enumerate(command.others, count):
            late = at < len(command.deliveries) and self._is_late(consumer, thing, command.deliveries[at])
            if late or not self._settle_one(consumer, thing, verb, wait_us, reason):
                lost.append(thing)
        if command.serial:
            self.demands.demand(
                consumer.number,
                consumer.epoch,
                command.serial,
                command.things_max,
                command.bytes_max,
                command.want,
            )
        self._look_at_room(consumer)
        if consumer.number in self.selectors and (tight or not consumer.held):
            self._look_for(consumer)  # for messages that were too long for its credit
        if command.number:
            self.parts.touch("answers")
            self.answers[command.consumer] = (command.number, lost)
        held = _held(consumer) if command.serial and not command.want else []
        return Outcome(DONE, 0, "", held, lost)

    def _acknowledge(
        self, consumer: Consumer, acked: Sequence[tuple[int, int]], deliveries: Sequence[int]
    ) -> list[int]:
        """Those of these messages that the consumer does not hold, or holds in another delivery."""
        lost: list[int] = []
        for at, (first, count) in enumerate(acked):
            delivery = deliveries[at] if at < len(deliveries) else 0
            things = self.demands.settle_many(consumer.number, consumer.epoch, first, count, delivery)
            if len(things) != count:
                held = set(things)
                lost += [thing for thing in range(first, first + min(count, 1 << 16)) if thing not in held]
            self.messages.done(things)
        return lost

    def _is_late(self, consumer: Consumer, thing: int, delivery: int) -> bool:
        held = consumer.held.get(thing)
        return held is None or held.delivery != delivery

    def _settle_one(self, consumer: Consumer, thing: int, verb: int, wait_us: int, reason: str) -> bool:
        if verb == words.EXTEND:
            if thing not in consumer.held:
                return False
            self.parts.touch("until")
            self.messages.until[thing] = self.ground.now_us + wait_us
            self.messages.look_later(thing, self.messages.until[thing])
            return True
        held = self.demands.settle(consumer.number, consumer.epoch, thing)
        if held is None:
            return False
        if verb == words.REJECT:
            found = self.messages.segments.find(thing)
            assert found is not None
            segment, at = found
            self.parts.touch(segment.part)
            segment.held &= ~(1 << at)
            self.messages.held -= 1
            self.messages.unlease(thing)
            segment.more().tries[at] = held.delivery
            self.messages.bury(segment, at, reason or "rejected")
        elif verb == words.RELEASE:
            self.messages.back(thing, held.delivery, False, 0)
        else:
            self.messages.back(
                thing, held.delivery, True, self.messages.backoff_us(held.delivery) if verb == words.BACK else wait_us
            )
        return True

    def _look_at_room(self, consumer: Consumer) -> None:
        """A consumer with a selector begins or ends to wait."""
        if consumer.number not in self.selectors:
            return
        if not consumer.turn:
            self.selectors.rests(consumer.number)
            return
        if self.selectors.waits(consumer.number):
            self._look_for(consumer)

    def _look_for(self, consumer: Consumer) -> None:
        """A consumer with a selector begins to wait: look for messages that it wants."""
        if self.messages.totals.paused or not consumer.turn:
            return
        if self.messages.segments.ready_count <= self.scan_now:
            self._scan(consumer)
        else:
            self.selectors.search(consumer.number)

    def _scan(self, consumer: Consumer) -> None:
        """Give a consumer with a selector the messages of a short queue that it wants."""
        wanted = self.selectors.predicate(consumer.number)
        for priority in range(PRIORITIES - 1, -1, -1):
            if not self.messages.segments.ready[priority]:
                continue
            for segment, at in list(self.messages.segments.ready_in_order(priority)):
                if not consumer.turn:
                    return
                fits = consumer.fits(self.messages.charge(segment, at))
                if fits and self.messages.segments.is_ready(segment, at) and wanted(seen_of(segment, at)):
                    self._assign(consumer, segment, at)

    def _offer(self, command: words.Offer) -> Outcome:
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch or command.consumer not in self.selectors:
            return Outcome(ENDED)
        wanted = self.selectors.predicate(command.consumer)
        given = 0
        for thing in command.things:
            found = self.messages.segments.find(thing)
            if self.messages.totals.paused or not consumer.turn:
                break
            if found is None or not consumer.fits(self.messages.charge(*found)):
                continue
            if self.messages.segments.is_ready(*found) and wanted(seen_of(*found)):
                self._assign(consumer, *found)
                given += 1
        return Outcome(DONE, given)

    def _assign(self, consumer: Consumer, segment: Segment, at: int) -> None:
        """Assign one message to one consumer, which waits."""
        thing = segment.thing_at(at)
        self.parts.touch(segment.part)
        self.messages.segments.unready(segment, 1 << at, segment.priority_of(at))
        segment.held |= 1 << at
        self.messages.held += 1
        key = segment.key_of(at)
        if key:
            self.messages.lines.block(key, thing)
        self.messages.lease(thing, 1)
        self.demands.assign(consumer, thing, self.messages.charge(segment, at), segment.tries_of(at) + 1)
        if consumer.number in self.selectors and not consumer.turn:
            self.selectors.rests(consumer.number)

    def _hand_out(self) -> None:
        if self.messages.fresh:
            fresh, self.messages.fresh = self.messages.fresh, []
            if not self.messages.totals.paused and self.selectors.waiting:
                self._match(fresh)
        if not self.messages.totals.paused:
            self._serve()

    def _serve(self, before: tuple[int, int] | None = None) -> None:
        """Assign ready messages, in order, to consumers that take any message. ``before``: only messages ahead of this
        one, given by its priority and number."""
        demands, segments = self.demands, self.messages.segments
        while demands.waiting_count(ANY):
            found = segments.first_ready()
            if found is None:
                return
            segment, at, priority = found
            if before is not None and (-priority, segment.thing_at(at)) >= (-before[0], before[1]):
                return
            size = self.messages.charge(segment, at)
            consumer = demands.next(ANY, size=size)
            if consumer is None:  # the message is too long for all of them now, and none overtakes it
                return
            if segment.columns or segment.extra is not None:
                self._assign(consumer, segment, at)
                continue
            share = -(-segments.ready[priority] // demands.waiting_count(ANY))
            thing = segment.thing_at(at)
            most = min(consumer.room_for(size), share)
            if before is not None and priority == before[0]:
                most = min(most, before[1] - thing)
            count = ones_at(segment.ready, at, most)
            mask = mask_of(at, count)
            self.parts.touch(segment.part)
            segments.unready(segment, mask, priority)
            segment.held |= mask
            self.messages.held += count
            self.messages.lease(thing, count)
            demands.assign_many(consumer, thing, count, size, 1)

    def _match(self, fresh: Sequence[int]) -> None:
        """Match messages that became ready with waiting consumers that have a selector: each message goes to the one
        that has waited longest of all that want it."""
        segments, demands = self.messages.segments, self.demands
        there = [found for thing in fresh if (found := segments.find(thing)) is not None]
        order = sorted(there, key=lambda one: (-one[0].priority_of(one[1]), one[0].thing_at(one[1])))
        for (segment, at), numbers in zip(order, self.selectors.match([seen_of(*one) for one in order]), strict=True):
            if not numbers or not segments.is_ready(segment, at):
                continue
            if demands.waiting_count(ANY):  # nobody who takes any message is given this one before those ahead of it
                self._serve((segment.priority_of(at), segment.thing_at(at)))
            size = self.messages.charge(segment, at)
            waiting = [one for number in numbers if (one := demands.consumers[number]).turn and one.fits(size)]
            anybody = demands.next(ANY, size=size)
            if anybody is not None:
                waiting.append(anybody)
            if waiting:
                self._assign(min(waiting, key=lambda one: one.turn), segment, at)

    def _pause(self, command: words.Pause) -> Outcome:
        totals = self.messages.totals
        if command.paused == totals.paused:
            return Outcome(AGAIN)
        if command.changes != totals.changes:
            return Outcome(NEXT, totals.changes)
        totals.changes += 1
        totals.paused = command.paused
        for number in [] if command.paused else self.selectors.waiting_consumers():
            self._look_for(self.demands.consumers[number])
        return Outcome(DONE)

    def forward(self, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
        return moves(self, rows, loose)

    @staticmethod
    def pieces(command: bytes) -> Sequence[bytes]:
        return pieces_of(command)

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        """A transaction sends, and acknowledges what it received."""
        due: dict[int, int] = {}
        acked: set[int] = set()
        steps: list[_Step] = []
        results: list[Outcome] = []
        count = size = 0
        promised = False
        for place, data in zip(places, commands, strict=True):
            try:
                command = None if is_batch(data) else words.command_of(data)
                if command is None:
                    head = checked(data)
                    if head.session < ONCE:
                        wanted = due.get(head.session, self.ground.streams.next(head.session))
                        if head.first != wanted:
                            return Refusal(f"sequence {wanted} of this sender is next, not {head.first}")
                        due[head.session] = head.last + 1
                    refusal = self.messages.refusal(head, data, count, size, promised)
                    if refusal is not None:
                        unlike = words.TRANSFORMS if refusal.status == words.UNLIKE else ""
                        return Refusal(unlike + refusal.reason)
                    count, size = count + head.count, size + len(data)
                    results.append(Outcome(DONE, self.messages.totals.next + count - head.count))
                    steps.append(_Step(row, place, data, None))
                    continue
            except MalformedFrame as error:
                return Refusal(str(error))
            if isinstance(command, words.Resolve):
                promised = True
                results.append(Outcome(DONE))
                steps.append(_Step(row, place, data, command))
                continue
            settles = isinstance(command, words.Settle) and not (command.others or command.serial)
            if not isinstance(command, words.Keep) and not settles:
                return Refusal("a transaction sends messages and acknowledges them: do the rest outside of it")
            assert isinstance(command, words.Settle | words.Keep)
            consumer = self.demands.consumers.get(command.consumer)
            things = [thing for first, many in command.acked for thing in range(first, first + many)]
            if consumer is None or consumer.epoch != command.epoch or not consumer.held.keys() >= set(things):
                return Refusal(LATE)
            for (first, many), delivery in zip(command.acked, command.deliveries, strict=False):
                if any(self._is_late(consumer, thing, delivery) for thing in range(first, first + many)):
                    return Refusal(LATE)
            if acked & set(things) or len(set(things)) != len(things):
                return Refusal("a message is acknowledged twice in the transaction")
            acked |= set(things)
            results.append(Outcome(DONE))
            steps.append(_Step(row, place, data, command))
        return _Steps(results, steps)

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Steps)
        self.parts.touch("totals")
        for step in effects.steps:
            if step.command is not None:
                if isinstance(step.command, words.Settle):
                    self._settle(step.command)
                elif isinstance(step.command, words.Keep):
                    keep(self, step.command)
                else:
                    resolve(self, step.command)
                self.ground.release(step.row, len(step.data))
            else:
                head = head_of(step.data)
                first = self.messages.totals.next
                kept = self.messages.take(step.row, step.place, step.data, head)
                if head.session < ONCE:
                    self.ground.streams.record(head.session, head.last, first.to_bytes(8, "little"))
                if kept < len(step.data):
                    self.ground.release(step.row, len(step.data) - kept)
        self.messages.make_room()
        self._hand_out()

    # Time.

    def due_us(self) -> int | None:
        return self.messages.due_us()

    def tick(self) -> None:
        now_us, times = self.ground.now_us, self.messages.times
        self.parts.touch("totals")
        done = 0
        while done < TICK_THINGS_MAX and (taken := times.take(now_us)) is not None:
            bucket, things = taken
            some, rest = things[: TICK_THINGS_MAX - done], things[TICK_THINGS_MAX - done :]
            for thing in some:
                self._look_at(thing, bucket)
            done += len(some)
            if rest:
                times.put_back(bucket, rest)
        self.messages.forget_old()
        self._hand_out()

    def _look_at(self, thing: int, bucket: int) -> None:
        """A time of this message has come."""
        found = self.messages.segments.find(thing)
        assert found is not None
        segment, at = found
        self.parts.touch(segment.part)
        until_us = self.messages.until.get(thing, 0)
        if until_us and bucket_of(until_us) == bucket:
            self._end_lease(thing)
            found = self.messages.segments.find(thing)
            if found is None:
                return
            segment, at = found
        if segment.held >> at & 1:
            return
        expiry_us, due_us = segment.expiry_of(at), segment.due_of(at)
        if expiry_us and bucket_of(expiry_us) == bucket and not segment.dead >> at & 1:
            self.messages.outlived(segment, at)
        elif due_us and bucket_of(due_us) == bucket:
            segment.set_due(at, 0)
            self.messages.delayed -= 1
            if segment.tries_of(at) and segment.key_of(at):
                self.messages.again(segment, at)
            else:
                self.messages.enter(segment, at)

    def _end_lease(self, thing: int) -> None:
        """A message was held for too long."""
        self.parts.touch("until")
        for consumer in self.demands.consumers.values():
            if thing in consumer.held:
                held = self.demands.settle(consumer.number, consumer.epoch, thing)
                assert held is not None
                self.messages.back(thing, held.delivery, True, 0)
                self._look_at_room(consumer)
                return

    def chores(self) -> list[bytes]:
        return self.finder.chores()

    def search_again(self) -> None:
        self.finder.begin_anew()

    @property
    def busy(self) -> bool:
        return bool(self.selectors.unsearched) and not self.finder.idle

    # Questions.

    def gauges(self) -> dict[str, int]:
        messages = self.messages
        return {
            "depth": messages.count,
            "held": messages.held,
            "dead": len(messages.dead),
            "consumers": len(self.demands.consumers),
            "sent": messages.totals.sent,
            "settled": messages.totals.settled,
        }

    def query(self, question: bytes) -> bytes:
        return _encode(self.ask(question))

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        """The message as a batch of one, then the pieces of its body, if that is a long one."""
        found = self.messages.segments.find(thing)
        if found is None:
            return (), b""
        segment, at = found
        pieces = () if segment.extra is None else segment.extra.pieces.get(at, ())
        return [segment.handle(at), *((row, place, 0) for row, place, _ in pieces)], b""

    def told_many(self, things: Sequence[int]) -> Sequence[tuple[Sequence[Handle], bytes]]:
        """Consecutive messages of a run come as one batch, with the first of them; each of them has its place in the
        batch."""
        found: list[tuple[Sequence[Handle], bytes]] = []
        at = 0
        while at < len(things):
            there = self.messages.segments.find(things[at])
            count = 1
            if there is not None and not there[0].columns:
                most = min(there[0].count - there[1], len(things) - at)
                while count < most and things[at + count] == things[at] + count:
                    count += 1
            if there is None or count == 1:
                found.append(self.told(things[at]))
            else:
                row, place, piece = there[0].handle(there[1])
                found.append(([(row, place, slice_piece(piece, count))], _PLACE.pack(0)))
                found += [((), _PLACE.pack(number)) for number in range(1, count)]
            at += count
        return found

    def ask(self, question: bytes) -> Any:
        """The answer to a question, not encoded."""
        asked = words.question_of(question)
        if isinstance(asked, words.Look):
            return looked(self, asked)
        if isinstance(asked, words.Where):
            return where(self, asked.things)
        if isinstance(asked, words.Held):
            consumer = self.demands.consumers.get(asked.consumer)
            return [] if consumer is None else sorted(consumer.held)
        if isinstance(asked, words.Copy):
            return copied(self, asked)
        return stats_of(self)

    def part_names(self) -> list[str]:
        few = (
            ["answers"] * bool(self.answers)
            + ["selectors"] * bool(len(self.selectors))
            + ["until"] * bool(self.messages.until)
        )
        few += ["uploads"] * bool(self.messages.uploads)
        return [
            "totals",
            *few,
            *self.demands.part_names(),
            *self.messages.window.part_names(),
            *sorted(self.messages.segments.parts),
        ]

    def encode_part(self, name: str) -> bytes:
        kind, _, number = name.partition("/")
        if kind == "m":
            return _encode([one.saved() for one in self.messages.of_part(name, int(number, 16))])
        if kind == "ids":
            return self.messages.window.encode_part(name)
        if kind == "demand":
            return self.demands.encode_part(name)
        if kind == "selectors":
            return _encode(self.selectors.saved())
        if kind == "answers":
            return _encode(sorted(self.answers.items()))
        if kind == "until":
            return _encode(sorted(self.messages.until.items()))
        if kind == "uploads":
            return _encode(sorted(self.messages.uploads.items()))
        return _encode((self.messages.totals, self.messages.window.next))

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        decode = msgspec.msgpack.decode
        saved: list[Any] = []
        for name, data in parts:
            kind = name.partition("/")[0]
            if kind == "m":
                saved += decode(data)
            elif kind == "ids":
                self.messages.window.restore_part(name, data)
            elif kind == "demand":
                self.demands.restore_part(name, data)
            elif kind == "selectors":
                self.selectors.restore(decode(data, type=list[tuple[int, bytes]]))
            elif kind == "answers":
                self.answers = dict(decode(data, type=list[tuple[int, tuple[int, list[int]]]]))
            elif kind == "until":
                self.messages.until = dict(decode(data, type=list[tuple[int, int]]))
            elif kind == "uploads":
                self.messages.uploads = dict(decode(data, type=list[tuple[int, Upload]]))
            else:
                self.messages.totals, self.messages.window.next = decode(data, type=tuple[Totals, int])
        for one in sorted(saved, key=lambda one: one[0]):
            self.messages.segments.add(Segment.restored(one))
        self.demands.restored()
        self.messages.follow()
        for consumer in self.demands.consumers.values():
            if consumer.turn and consumer.number in self.selectors:
                self.selectors.waits(consumer.number)
                self.selectors.search(consumer.number)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        self.demands.validate()
        self.messages.validate({thing for one in self.demands.consumers.values() for thing in one.held})
        first = self.messages.segments.first_ready()
        if first is not None and not self.messages.totals.paused:
            size = self.messages.charge(first[0], first[1])
            assert self.demands.next(ANY, size=size) is None, "somebody waits, and a message is ready"


def _held(consumer: Consumer) -> list[tuple[int, int]]:
    return [(thing, held.delivery) for thing, held in consumer.held.items()]


def _differences(old: Settings, new: Settings) -> str:
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in old.__struct_fields__)
    return ", ".join(f"{name}={before!r} and not {after!r}" for name, before, after in pairs if before != after)
