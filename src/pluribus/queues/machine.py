"""A queue as a machine on the log host. Source: chapter on indirect communication, section 6.4, message queues.

Theory of operation
-------------------
*A message* is sent once (its sender numbers its batches; keepers take them in order, each once), waits, is handed to
one consumer, and is settled: acknowledged, given back, or rejected. Bodies stay in the log; here are handles.

*Order.* Of the messages that are ready the highest priority comes first, and within a priority the one that was sent
first. A message that comes back takes its old place. Messages of one key are handed out in the order of sending,
whatever their priorities, and one at a time: the next one when the one before is settled.

*Demand* (``group/host/demand.py``). Consumers say how much they have room for; whoever waits longest is served next.
When several wait and many messages come at once, they are shared out evenly. A consumer with a selector is in the same
line; what it wants of messages that become ready is decided at once, and what it wants of those that have been there is
found by a search outside of ``apply`` (``finder.py``), whose finds a command brings and ``apply`` checks.

*Coming back.* A message whose consumer dies comes back at once; one that is given back waits for a while, which doubles
each time. One that was handed out ``tries_max`` times becomes a dead letter. Dead letters stay in the queue, aside,
with the reason, until they are redriven or purged.

*Time* is that of the log. Delays, expiry and leases of messages are looked at by ``tick`` (``times.py``).

Promises: at most one assignment of a message is valid. What is acknowledged never comes again. What was sent is ready,
held, waiting for its time or its key, a dead letter, or was settled, purged or expired: never nothing of these. A
consumer that waits and has room gets a message that it wants if one is ready.
Bounded: every table has a limit; at the limit a command is refused, with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ..core.errors import BadInput, MalformedFrame
from ..group.host.demand import UNLIMITED, Consumer, Demands, Held
from ..group.host.machine import TICK_THINGS_MAX, Effects, Ground, Machine, Refusal
from . import words
from .batch import EVEN, Extra, Head, checked, ends_of, extra_of, head_of, is_batch
from .finder import Finder
from .forwarding import moves, pieces_of
from .keys import Lines
from .looking import looked, stats_of, where
from .segments import COLUMNS_MAX, PART_BITS, RUN_MAX, RUN_MIN, THIN_MIN, Segment, Segments, bits_of, mask_of, ones_at
from .selectors import Selectors, seen_of
from .times import Times, bucket_of
from .window import IDS_MAX, Window
from .words import (
    AGAIN,
    BURY,
    DONE,
    ENDED,
    FULL,
    NEXT,
    PRIORITIES,
    PRIORITY,
    REFUSE,
    REFUSED,
    Outcome,
    Settings,
)

ANY, SOME = 0, 1
"""Tags of consumers: of those who take any message, and of those with a selector."""
MESSAGES_MAX = 1 << 28
"""Messages in one queue."""
PURGE_MAX = 10_000
SCAN_NOW = 256
"""Messages that are looked at for a selector within a command; where more are ready it is a search outside."""
UPLOADS_MAX = 1_024
UPLOAD_PIECES_MAX = 256
UPLOAD_US = 600_000_000
"""How long pieces of a long body wait for their message."""

_encode = msgspec.msgpack.encode


class _Totals(msgspec.Struct, array_like=True):
    """Numbers that are part of the state."""

    next: int = 0
    """The number of the message that comes next."""
    deaths: int = 0
    sent: int = 0
    settled: int = 0
    redelivered: int = 0
    expired: int = 0
    duplicates: int = 0
    paused: bool = False
    exclusive: int = -1
    """The consumer that has the queue for itself."""
    settings: Settings | None = None


class _Upload(msgspec.Struct, array_like=True):
    """Pieces of a long body whose message was not sent yet."""

    until_us: int
    pieces: list[tuple[int, int, int]]
    """Row, place, charge."""


class _Step(msgspec.Struct):
    row: int
    place: int
    data: bytes
    command: words.Settle | None
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

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.totals = _Totals()
        self.segments = Segments()
        self.times = Times(self._is_real)
        self.lines = Lines()
        self.window = Window()
        self.demands = Demands(self.parts)
        self.selectors = Selectors()
        self.finder = Finder(self)
        self.until: dict[int, int] = {}
        """Of messages that are held for a limited time: until when."""
        self.dead: dict[int, None] = {}
        """Dead letters, the oldest first."""
        self.uploads: dict[int, _Upload] = {}
        self.count = self.size = self.delayed = self.held = 0
        """Messages that are no dead letters, their bytes, and how many of them are delayed, or held."""
        self._timed = 0
        """Messages with a time of any kind, about."""
        self._fresh: list[int] = []
        """Messages that became ready in this command, while consumers with a selector wait."""

    @property
    def settings(self) -> Settings:
        return self.totals.settings or Settings()

    # Commands.

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
        """What came of it, and how many bytes of the command are kept."""
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
                return self._purge(command), 0
            case words.Redrive():
                return self._redrive(command), 0
            case words.Pause():
                return self._pause(command.paused), 0
            case words.Stage():
                return self._stage(row, place, command, size)
            case words.Move():
                return self._move(row, place, command, size)
            case words.Restage():
                return self._restage(row, place, command, size)

    def _configure(self, command: words.Configure) -> Outcome:
        if self.totals.settings is not None and not command.anew:
            if self.totals.settings == command.settings:
                return Outcome(AGAIN)
            return Outcome(
                REFUSED,
                0,
                f"the queue was made with other settings, {_differences(self.totals.settings, command.settings)}: open "
                "it without settings, or change them with configure()",
            )
        if command.settings.policy not in (words.WAIT, REFUSE, BURY):
            return Outcome(REFUSED, 0, f"there is no policy {command.settings.policy!r}: wait, refuse or dead")
        self.totals.settings = command.settings
        return Outcome(DONE)

    # Sending.

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
        refusal = self._refusal(head, command)
        if refusal is not None:
            return refusal, 0
        first = self.totals.next
        kept = self._take(row, place, command, head)
        streams.record(head.session, head.last, first.to_bytes(8, "little"))
        self._make_room()
        return Outcome(DONE, first), kept

    def _refusal(self, head: Head, command: bytes, count: int = 0, size: int = 0) -> Outcome | None:
        """Why a batch cannot be taken; ``count`` and ``size`` are taken before it by the same transaction."""
        settings = self.settings
        count, size = self.count + count + head.count, self.size + size + len(command)
        if count > MESSAGES_MAX:
            return Outcome(FULL, 0, f"{MESSAGES_MAX:,} messages are in the queue, more than it can hold")
        over_count = settings.count_max and count > settings.count_max
        over_bytes = settings.bytes_max and size > settings.bytes_max and self.count
        if settings.policy != BURY and (over_count or over_bytes):
            limit = f"{settings.count_max:,} messages" if over_count else f"{settings.bytes_max:,} bytes"
            if over_count and head.count > settings.count_max:
                return Outcome(REFUSED, 0, f"{head.count:,} messages at once, and the queue holds {limit}: send fewer")
            status = REFUSED if settings.policy == REFUSE else FULL
            return Outcome(status, 0, f"the queue holds {limit}, its limit: receive some, or raise the limit")
        if head.extra_bytes:
            extra = extra_of(command, head)
            if extra.ids and len(self.window) + head.count > IDS_MAX:
                return Outcome(FULL, 0, f"{IDS_MAX:,} identities are remembered: make the window shorter")
            for upload, pieces in extra.uploads:
                held = self.uploads.get(upload)
                if upload and (held is None or len(held.pieces) != pieces):
                    return Outcome(REFUSED, 0, "pieces of a long body are not there any more: send it again")
        return None

    def _take(self, row: int, place: int, command: bytes, head: Head) -> int:
        """Number the messages of a batch, and put each where it belongs; how many bytes of it are kept."""
        self.totals.sent += head.count
        if not head.extra_bytes and head.count >= RUN_MIN and head.flags & EVEN:
            self._take_run(row, place, len(command), head)
            return len(command)
        return self._take_columns(row, place, command, head)

    def _take_run(self, row: int, place: int, size: int, head: Head) -> None:
        each, rest = divmod(size, head.count)
        for start in range(0, head.count, RUN_MAX):
            count = min(RUN_MAX, head.count - start)
            segment = Segment(self.totals.next, False)
            self.parts.touch(segment.part)
            segment.count = count
            segment.live = mask_of(0, count)
            segment.row, segment.place, segment.piece, segment.size = row, place, start, each
            segment.at_us = self.ground.now_us
            segment.rest = rest if start + count == head.count else 0
            self.segments.add(segment)
            self.totals.next += count
            self.count += count
            self.size += count * each
            self.segments.make_ready(segment, segment.live, PRIORITY)
            if self.selectors.waiting:
                self._fresh += range(segment.first, segment.first + count)

    def _take_columns(self, row: int, place: int, command: bytes, head: Head) -> int:
        extra = extra_of(command, head)
        ends = ends_of(command, head)
        overhead, rest = divmod(len(command) - head.bodies_bytes, head.count)
        kept = 0
        for number in range(head.count):
            if extra.ids and extra.ids[number] and not self._is_new(extra.ids[number]):
                self.totals.duplicates += 1
                continue
            size = ends[number + 1] - ends[number] + overhead + (rest if not number else 0)
            kept += size
            priority = extra.priorities[number] if extra.priorities else PRIORITY
            segment = self._columns()
            self.parts.touch(segment.part)
            at = segment.append(row, place, number, size, self.ground.now_us, priority)
            self.totals.next += 1
            self.count += 1
            self.size += size
            if head.extra_bytes:
                self._describe(segment, at, extra, number)
            else:
                self._become_ready(segment, at)
        return kept

    def _columns(self) -> Segment:
        """The segment that takes the next message."""
        last = self.segments.last()
        if (
            last is None
            or not last.columns
            or last.count >= COLUMNS_MAX
            or last.numbers is not None
            or last.first + last.count != self.totals.next
        ):
            last = Segment(self.totals.next, True)
            self.parts.touch(last.part)
            self.segments.add(last)
        return last

    def _is_new(self, identity: str) -> bool:
        now_us, window_us = self.ground.now_us, self.settings.window_us
        if not window_us:
            return True
        if identity in self.window:
            if self.window.known(identity, now_us):
                return False
            self.parts.touch(self.window.part_of(identity))
            self.window.renew(identity, now_us + window_us)
            return True
        self.parts.touch(self.window.part())
        self.window.add(identity, now_us + window_us)
        return True

    def _describe(self, segment: Segment, at: int, extra: Extra, number: int) -> None:
        """What a message has besides its body."""
        now_us, thing = self.ground.now_us, segment.thing_at(at)
        if extra.keys and extra.keys[number]:
            segment.more().keys[at] = extra.keys[number]
        if extra.properties and extra.properties[number]:
            segment.more().properties[at] = extra.properties[number]
        if extra.uploads and extra.uploads[number][0]:
            self.parts.touch("uploads")
            upload = self.uploads.pop(extra.uploads[number][0])
            segment.more().pieces[at] = upload.pieces
            self.size += sum(charge for _, _, charge in upload.pieces)
        if extra.ttls_us and extra.ttls_us[number]:
            segment.set_expiry(at, now_us + extra.ttls_us[number])
            self._look_later(thing, now_us + extra.ttls_us[number])
        if extra.delays_us and extra.delays_us[number]:
            segment.set_due(at, now_us + extra.delays_us[number])
            self.delayed += 1
            self._look_later(thing, now_us + extra.delays_us[number])
        else:
            self._enter(segment, at)

    def _look_later(self, thing: int, time_us: int) -> None:
        self._timed += 1
        self.times.add(thing, time_us)

    def _stage(self, row: int, place: int, command: words.Stage, size: int) -> tuple[Outcome, int]:
        upload = self.uploads.get(command.upload)
        known = 0 if upload is None else len(upload.pieces)
        if command.piece < known:
            return Outcome(AGAIN, known), 0
        if command.piece > known:
            return Outcome(NEXT, known, f"piece {known} of this body is next, not {command.piece}"), 0
        if upload is None and len(self.uploads) >= UPLOADS_MAX:
            return Outcome(FULL, 0, f"{UPLOADS_MAX:,} long bodies are on their way to this queue: wait for some"), 0
        if known >= UPLOAD_PIECES_MAX:
            return Outcome(REFUSED, 0, f"a body of more than {UPLOAD_PIECES_MAX} pieces: send it in parts"), 0
        self.parts.touch("uploads")
        if upload is None:
            upload = self.uploads[command.upload] = _Upload(0, [])
        upload.pieces.append((row, place, size))
        upload.until_us = self.ground.now_us + UPLOAD_US
        return Outcome(DONE, known + 1), size

    # From state to state. The part of the segment was touched before.

    def _enter(self, segment: Segment, at: int) -> None:
        """A message that is there from now on: it joins the line of its key, if it has one."""
        key = segment.key_of(at)
        if key:
            before = self.lines.first(key)
            self.lines.add(key, segment.thing_at(at))
            self._first_of(key, before)
        else:
            self._become_ready(segment, at)

    def _first_of(self, key: str, before: int) -> None:
        """The line of a key changed: who is its first that may be handed out, and was not?"""
        first = self.lines.first(key)
        if first == before:
            return
        if before >= 0:
            found = self.segments.find(before)
            if found is not None and self.segments.is_ready(*found):
                segment, at = found
                self.segments.unready(segment, 1 << at, segment.priority_of(at))
        if first >= 0:
            found = self.segments.find(first)
            assert found is not None
            self._become_ready(*found)

    def _become_ready(self, segment: Segment, at: int) -> None:
        self.segments.make_ready(segment, 1 << at, segment.priority_of(at))
        if self.selectors.waiting:
            self._fresh.append(segment.thing_at(at))

    def _leave_key(self, segment: Segment, at: int) -> None:
        """A message is not in the line of its key any more."""
        key = segment.key_of(at)
        if key:
            before = self.lines.first(key)
            thing = segment.thing_at(at)
            self.lines.remove(key, thing)
            self._first_of(key, -1 if before == thing else before)

    def _unready(self, segment: Segment, at: int) -> None:
        if self.segments.is_ready(segment, at):
            self.segments.unready(segment, 1 << at, segment.priority_of(at))

    def _gone(self, segment: Segment, at: int) -> None:
        """A message is needed no more. It is not held, not ready, in no line."""
        row, _, _ = segment.handle(at)
        size = segment.size_of(at)
        if segment.extra is not None:
            for table in segment.extra.tables()[:-1]:
                table.pop(at, None)
            for piece_row, _, charge in segment.extra.pieces.pop(at, ()):
                self.ground.release(piece_row, charge)
                self.size -= charge
        if segment.due is not None:
            segment.due[at] = 0
        if segment.expiry is not None and segment.expiry[at]:
            segment.expiry[at] = 0
        self._forget(segment, 1 << at, row, size)

    def _forget(self, segment: Segment, mask: int, row: int, size: int) -> None:
        """Messages of one row that charge so much together."""
        segment.live &= ~mask
        count = mask.bit_count()
        self.count -= count
        self.size -= size
        if not segment.live:
            size += segment.rest
            segment.rest = 0
        self.ground.release(row, size)
        if not segment.live:
            if self.segments.remove(segment):
                self.parts.gone(segment.part)
        elif segment.count >= THIN_MIN and segment.columns and segment.live.bit_count() * 8 < segment.count:
            if self.segments.last() is not segment:
                segment.thin()

    def _delay(self, segment: Segment, at: int, until_us: int) -> None:
        segment.set_due(at, until_us)
        self.delayed += 1
        self._look_later(segment.thing_at(at), until_us)

    def _back(self, thing: int, delivery: int, counts: bool, wait_us: int) -> None:
        """A message that was held is nobody's again. One that was tried too often becomes a dead letter."""
        found = self.segments.find(thing)
        assert found is not None, f"message {thing} was held and is not there"
        segment, at = found
        self.parts.touch(segment.part)
        segment.held &= ~(1 << at)
        self.held -= 1
        self._unlease(thing)
        tries = delivery if counts else delivery - 1
        if tries:
            segment.more().tries[at] = tries
        elif segment.extra is not None:
            segment.extra.tries.pop(at, None)
        if counts:
            self.totals.redelivered += 1
        if counts and self.settings.tries_max and tries >= self.settings.tries_max:
            self._bury(segment, at, f"given back {tries} times")
        elif wait_us:
            self._delay(segment, at, self.ground.now_us + wait_us)  # it still blocks its key
        else:
            self._again(segment, at)

    def _again(self, segment: Segment, at: int) -> None:
        """A message that was held, or waited for its next try, may be handed out."""
        key = segment.key_of(at)
        if key:
            self.lines.free(key, segment.thing_at(at))
            self._first_of(key, -1)
        else:
            self._become_ready(segment, at)

    def _backoff_us(self, delivery: int) -> int:
        settings = self.settings
        return min(settings.backoff_us << min(delivery - 1, 40), settings.backoff_us_max)

    def _bury(self, segment: Segment, at: int, reason: str) -> None:
        """A message that is not held becomes a dead letter."""
        thing = segment.thing_at(at)
        self._unready(segment, at)
        self._leave_key(segment, at)
        if segment.due_of(at):
            segment.set_due(at, 0)
            self.delayed -= 1
        if segment.expiry_of(at):
            segment.set_expiry(at, 0)
        segment.dead |= 1 << at
        segment.more().reasons[at] = (self.totals.deaths, self.ground.now_us, reason)
        self.totals.deaths += 1
        self.dead[thing] = None
        self.count -= 1  # dead letters have a limit of their own
        self.size -= self._charge(segment, at)
        while len(self.dead) > max(self.settings.dead_max, 1):
            self._exhume(next(iter(self.dead)))

    def _charge(self, segment: Segment, at: int) -> int:
        pieces = () if segment.extra is None else segment.extra.pieces.get(at, ())
        return segment.size_of(at) + sum(charge for _, _, charge in pieces)

    def _exhume(self, thing: int) -> None:
        """A dead letter goes for good."""
        found = self.segments.find(thing)
        assert found is not None
        segment, at = found
        self.parts.touch(segment.part)
        del self.dead[thing]
        segment.dead &= ~(1 << at)
        self.count += 1
        self.size += self._charge(segment, at)
        self._gone(segment, at)

    def _make_room(self) -> None:
        """Of a queue over its limit, the oldest that are ready become dead letters."""
        settings = self.settings
        if settings.policy != BURY:
            return
        while self.segments.ready_count and (
            (settings.count_max and self.count > settings.count_max)
            or (settings.bytes_max and self.size > settings.bytes_max and self.count > 1)
        ):
            found = self._oldest_ready()
            if found is None:
                return
            self.parts.touch(found[0].part)
            self._bury(*found, "the queue was full")

    def _oldest_ready(self) -> tuple[Segment, int] | None:
        for segment in self.segments:
            bits = 0
            for priority in range(PRIORITIES):
                bits |= self.segments.ready_bits(segment, priority)
            if bits:
                return segment, (bits & -bits).bit_length() - 1
        return None

    # Consumers.

    def _attach(self, command: words.Attach) -> Outcome:
        totals, consumers = self.totals, self.demands.consumers
        others = len(consumers) - (command.consumer in consumers)
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
        consumer.tag = SOME if command.selector else ANY
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
        if number in self.selectors:
            self.parts.touch("selectors")
            self.selectors.remove(number)
        if self.totals.exclusive == number:
            self.totals.exclusive = -1

    def _come_back(self, held: Mapping[int, Held], counts: bool) -> None:
        for thing in sorted(held):
            self._back(thing, held[thing].delivery, counts, 0)

    def owners(self) -> Iterable[int]:
        return self.demands.owners()

    def lease_us(self, owner: int) -> int | None:
        return self.demands.owners().get(owner)

    def expire(self, owners: Sequence[int]) -> None:
        self.parts.touch("totals")
        for number, held in self.demands.expire(owners).items():
            self._left(number)
            self._come_back(held, True)
        self._hand_out()

    def _settle(self, command: words.Settle) -> Outcome:
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch:
            return Outcome(ENDED, 0, "this consumer is not attached any more: attach again")
        lost = self._acknowledge(consumer, command.acked)
        for thing, verb, wait_us, reason in command.others:
            if not self._settle_one(consumer, thing, verb, wait_us, reason):
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
        held = _held(consumer) if command.serial and not command.want else []
        return Outcome(DONE, 0, "", held, lost)

    def _acknowledge(self, consumer: Consumer, acked: Sequence[tuple[int, int]]) -> list[int]:
        """Those of them that the consumer does not hold."""
        lost: list[int] = []
        for first, count in acked:
            things = self.demands.settle_many(consumer.number, consumer.epoch, first, count)
            if len(things) != count:
                held = set(things)
                lost += [thing for thing in range(first, first + min(count, 1 << 16)) if thing not in held]
            self._done(things)
        return lost

    def _done(self, things: Sequence[int]) -> None:
        """Messages that were held and are settled, in order."""
        self.totals.settled += len(things)
        self.held -= len(things)
        at, end = 0, len(things)
        while at < end:
            found = self.segments.find(things[at])
            assert found is not None
            segment, place = found
            self.parts.touch(segment.part)
            if segment.columns or segment.extra is not None or segment.due is not None:
                segment.held &= ~(1 << place)
                self._unlease(things[at])
                self._leave_key(segment, place)
                self._gone(segment, place)
                at += 1
                continue
            count = 1
            while at + count < end and things[at + count] == things[at] + count and place + count < segment.count:
                count += 1
            mask = mask_of(place, count)
            segment.held &= ~mask
            if self.until:
                for thing in things[at : at + count]:
                    self._unlease(thing)
            self._forget(segment, mask, segment.row, count * segment.size)
            at += count

    def _settle_one(self, consumer: Consumer, thing: int, verb: int, wait_us: int, reason: str) -> bool:
        if verb == words.EXTEND:
            if thing not in consumer.held:
                return False
            self.parts.touch("until")
            self.until[thing] = self.ground.now_us + wait_us
            self._look_later(thing, self.until[thing])
            return True
        held = self.demands.settle(consumer.number, consumer.epoch, thing)
        if held is None:
            return False
        if verb == words.REJECT:
            found = self.segments.find(thing)
            assert found is not None
            segment, at = found
            self.parts.touch(segment.part)
            segment.held &= ~(1 << at)
            self.held -= 1
            self._unlease(thing)
            segment.more().tries[at] = held.delivery
            self._bury(segment, at, reason or "rejected")
        elif verb == words.RELEASE:
            self._back(thing, held.delivery, False, 0)
        else:
            self._back(thing, held.delivery, True, self._backoff_us(held.delivery) if verb == words.BACK else wait_us)
        return True

    # Handing out.

    def _look_at_room(self, consumer: Consumer) -> None:
        """A consumer with a selector waits from now on, or does not any more."""
        if consumer.number not in self.selectors:
            return
        if not consumer.turn:
            self.selectors.rests(consumer.number)
            return
        if self.selectors.waits(consumer.number):
            self._look_for(consumer)

    def _look_for(self, consumer: Consumer) -> None:
        """A consumer with a selector begins to wait: what is there for it?"""
        if self.totals.paused or not consumer.turn:
            return
        if self.segments.ready_count <= SCAN_NOW:
            self._scan(consumer)
        else:
            self.selectors.search(consumer.number)

    def _scan(self, consumer: Consumer) -> None:
        """Give a consumer with a selector what it wants of a short queue."""
        wanted = self.selectors.predicate(consumer.number)
        for priority in range(PRIORITIES - 1, -1, -1):
            if not self.segments.ready[priority]:
                continue
            for segment, at in list(self.segments.ready_in_order(priority)):
                if not consumer.turn:
                    return
                if self.segments.is_ready(segment, at) and wanted(seen_of(segment, at)):
                    self._assign(consumer, segment, at)

    def _offer(self, command: words.Offer) -> Outcome:
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch or command.consumer not in self.selectors:
            return Outcome(ENDED)
        wanted = self.selectors.predicate(command.consumer)
        given = 0
        for thing in command.things:
            found = self.segments.find(thing)
            if self.totals.paused or not consumer.turn:
                break
            if found is not None and self.segments.is_ready(*found) and wanted(seen_of(*found)):
                self._assign(consumer, *found)
                given += 1
        return Outcome(DONE, given)

    def _assign(self, consumer: Consumer, segment: Segment, at: int) -> None:
        """One message to one consumer, which waits."""
        thing = segment.thing_at(at)
        self.parts.touch(segment.part)
        self.segments.unready(segment, 1 << at, segment.priority_of(at))
        segment.held |= 1 << at
        self.held += 1
        key = segment.key_of(at)
        if key:
            self.lines.block(key, thing)
        self._lease(thing, 1)
        self.demands.assign(consumer, thing, segment.size_of(at), segment.tries_of(at) + 1)
        if consumer.number in self.selectors and not consumer.turn:
            self.selectors.rests(consumer.number)

    def _lease(self, first: int, count: int) -> None:
        lease_us = self.settings.lease_us
        if lease_us:
            self.parts.touch("until")
            for thing in range(first, first + count):
                self.until[thing] = self.ground.now_us + lease_us
                self._look_later(thing, self.until[thing])

    def _unlease(self, thing: int) -> None:
        if thing in self.until:
            self.parts.touch("until")
            del self.until[thing]

    def _hand_out(self) -> None:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            if not self.totals.paused and self.selectors.waiting:
                self._match(fresh)
        if self.totals.paused:
            return
        demands, segments = self.demands, self.segments
        while (consumer := demands.next(ANY)) is not None:
            found = segments.first_ready()
            if found is None:
                return
            segment, at, priority = found
            if segment.columns or segment.extra is not None:
                self._assign(consumer, segment, at)
                continue
            waiting = demands.waiting_count(ANY)
            share = -(-segments.ready[priority] // waiting)
            count = ones_at(segment.ready, at, min(consumer.room_for(segment.size), share))
            mask = mask_of(at, count)
            self.parts.touch(segment.part)
            segments.unready(segment, mask, priority)
            segment.held |= mask
            self.held += count
            thing = segment.thing_at(at)
            self._lease(thing, count)
            demands.assign_many(consumer, thing, count, segment.size, 1)

    def _match(self, fresh: Sequence[int]) -> None:
        """Messages that became ready, and consumers with a selector that wait: each message to whoever of all that want
        it waits longest."""
        segments, demands = self.segments, self.demands
        there = [found for thing in fresh if (found := segments.find(thing)) is not None]
        order = sorted(there, key=lambda one: (-one[0].priority_of(one[1]), one[0].thing_at(one[1])))
        for (segment, at), numbers in zip(order, self.selectors.match([seen_of(*one) for one in order]), strict=True):
            if not numbers or not segments.is_ready(segment, at):
                continue
            waiting = [one for number in numbers if (one := demands.consumers[number]).turn]
            anybody = demands.next(ANY)
            if anybody is not None:
                waiting.append(anybody)
            if waiting:
                self._assign(min(waiting, key=lambda one: one.turn), segment, at)

    # For people.

    def _pause(self, paused: bool) -> Outcome:
        self.totals.paused = paused
        for number in [] if paused else self.selectors.waiting_consumers():
            self._look_for(self.demands.consumers[number])
        return Outcome(DONE)

    def _purge(self, command: words.Purge) -> Outcome:
        """Remove some messages; dead letters, or those that nobody holds."""
        if command.things:
            found = [one for thing in command.things if (one := self.segments.find(thing)) is not None]
        else:
            found = []
            for segment in self.segments.since(command.start):
                wanted = segment.dead if command.dead else segment.live & ~segment.dead & ~segment.held
                for at in bits_of(wanted):
                    if command.start <= segment.thing_at(at) < command.before:
                        found.append((segment, at))
                if len(found) >= PURGE_MAX or segment.first >= command.before:
                    break
        things = [segment.thing_at(at) for segment, at in found[:PURGE_MAX]]
        count = 0
        for thing in things:
            there = self.segments.find(thing)
            if there is None or there[0].held >> there[1] & 1:
                continue
            count += 1
            self.parts.touch(there[0].part)
            self._remove(*there)
        then = things[-1] + 1 if len(found) >= PURGE_MAX and not command.things else 0
        return Outcome(DONE, count, "", [], [], then)

    def _remove(self, segment: Segment, at: int) -> None:
        """A message that nobody holds goes, whatever its state is."""
        thing = segment.thing_at(at)
        if segment.dead >> at & 1:
            self._exhume(thing)
            return
        self._unready(segment, at)
        self._leave_key(segment, at)
        if segment.due_of(at):
            segment.set_due(at, 0)
            self.delayed -= 1
        self._gone(segment, at)

    def _redrive(self, command: words.Redrive) -> Outcome:
        things = command.things or list(self.dead)[: min(command.count, PURGE_MAX)]
        count = 0
        for thing in things:
            found = self.segments.find(thing)
            if found is None or thing not in self.dead:
                continue
            segment, at = found
            self.parts.touch(segment.part)
            del self.dead[thing]
            segment.dead &= ~(1 << at)
            segment.more().reasons.pop(at, None)
            segment.more().tries.pop(at, None)
            self.count += 1
            self.size += self._charge(segment, at)
            count += 1
            self._enter(segment, at)
        return Outcome(DONE, count)

    # Space.

    def _move(self, row: int, place: int, command: words.Move, size: int) -> tuple[Outcome, int]:
        head = head_of(command.packed)
        if head.count != len(command.things):
            return Outcome(REFUSED, 0, "a move of other messages than it names"), 0
        ends = ends_of(command.packed, head)
        overhead, rest = divmod(size - head.bodies_bytes, head.count)
        kept = 0
        for number, thing in enumerate(command.things):
            found = self.segments.find(thing)
            if found is None or found[0].handle(found[1])[0] != command.row:
                continue
            segment, at = found
            self.parts.touch(segment.part)
            self.size += 0 if segment.columns else segment.make_columns()
            old, new = segment.size_of(at), ends[number + 1] - ends[number] + overhead + (rest if not number else 0)
            self.ground.release(command.row, old)
            segment.row[at], segment.place[at], segment.piece[at], segment.size[at] = row, place, number, new
            kept += new
            if not segment.dead >> at & 1:
                self.size += new - old
        return Outcome(DONE if kept else AGAIN), kept

    def _restage(self, row: int, place: int, command: words.Restage, size: int) -> tuple[Outcome, int]:
        held = self.uploads.get(command.upload) if command.upload else None
        pieces: list[tuple[int, int, int]] = [] if held is None else held.pieces
        found = None if command.upload else self.segments.find(command.thing)
        if found is not None and found[0].extra is not None:
            pieces = found[0].extra.pieces.get(found[1], [])
        if command.piece >= len(pieces) or pieces[command.piece][0] != command.row:
            return Outcome(AGAIN), 0
        self.parts.touch("uploads" if found is None else found[0].part)
        _, _, old = pieces[command.piece]
        pieces[command.piece] = (row, place, size)
        self.ground.release(command.row, old)
        if found is not None and not found[0].dead >> found[1] & 1:
            self.size += size - old
        return Outcome(DONE), size

    def forward(self, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
        return moves(self, rows, loose)

    @staticmethod
    def pieces(command: bytes) -> Sequence[bytes]:
        return pieces_of(command)

    # Transactions.

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        """A transaction sends, and acknowledges what it received."""
        due: dict[int, int] = {}
        acked: set[int] = set()
        steps: list[_Step] = []
        results: list[Outcome] = []
        count = size = 0
        for place, data in zip(places, commands, strict=True):
            try:
                command = None if is_batch(data) else words.command_of(data)
                if command is None:
                    head = checked(data)
                    wanted = due.get(head.session, self.ground.streams.next(head.session))
                    if head.first != wanted:
                        return Refusal(f"sequence {wanted} of this sender is next, not {head.first}")
                    due[head.session] = head.last + 1
                    refusal = self._refusal(head, data, count, size)
                    if refusal is not None:
                        return Refusal(refusal.reason)
                    count, size = count + head.count, size + len(data)
                    results.append(Outcome(DONE, self.totals.next + count - head.count))
                    steps.append(_Step(row, place, data, None))
                    continue
            except MalformedFrame as error:
                return Refusal(str(error))
            if not isinstance(command, words.Settle) or command.others or command.serial:
                return Refusal("a transaction sends messages and acknowledges them: do the rest outside of it")
            consumer = self.demands.consumers.get(command.consumer)
            things = [thing for first, many in command.acked for thing in range(first, first + many)]
            if consumer is None or consumer.epoch != command.epoch or not consumer.held.keys() >= set(things):
                return Refusal("a message of the transaction is not held any more: its lease ended")
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
                self._settle(step.command)
                self.ground.release(step.row, len(step.data))
            else:
                head = head_of(step.data)
                first = self.totals.next
                kept = self._take(step.row, step.place, step.data, head)
                self.ground.streams.record(head.session, head.last, first.to_bytes(8, "little"))
                if kept < len(step.data):
                    self.ground.release(step.row, len(step.data) - kept)
        self._make_room()
        self._hand_out()

    # Time.

    def _is_real(self, thing: int, bucket: int) -> bool:
        """Whether a time of this message is in this bucket."""
        if bucket_of(self.until.get(thing, -1)) == bucket:
            return True
        found = self.segments.find(thing)
        if found is None:
            return False
        segment, at = found
        return bucket in (bucket_of(segment.due_of(at) or -1), bucket_of(segment.expiry_of(at) or -1))

    def due_us(self) -> int | None:
        times = [self.times.next_us(), self.window.next_us()]
        times += [upload.until_us for upload in self.uploads.values()]
        return min((time for time in times if time is not None), default=None)

    def tick(self) -> None:
        now_us = self.ground.now_us
        self.parts.touch("totals")
        done = 0
        while done < TICK_THINGS_MAX and (taken := self.times.take(now_us)) is not None:
            bucket, things = taken
            some, rest = things[: TICK_THINGS_MAX - done], things[TICK_THINGS_MAX - done :]
            for thing in some:
                self._look_at(thing, now_us, bucket)
            done += len(some)
            if rest:
                self.times.put_back(bucket, rest)
        for part in self.window.over(now_us, 4):
            self.parts.touch(part)
            self.window.forget(part)
            self.parts.gone(part)
        for number in [number for number, upload in self.uploads.items() if upload.until_us <= now_us]:
            self.parts.touch("uploads")
            for row, _, charge in self.uploads.pop(number).pieces:
                self.ground.release(row, charge)
        self._timed = min(self._timed, self.times.entries)
        self.times.tidy(self.delayed + len(self.until) + self.count)
        self._hand_out()

    def _look_at(self, thing: int, now_us: int, bucket: int) -> None:
        """A time of this message has come."""
        found = self.segments.find(thing)
        assert found is not None
        segment, at = found
        self.parts.touch(segment.part)
        until_us = self.until.get(thing, 0)
        if until_us and bucket_of(until_us) == bucket:
            self._end_lease(thing)
            found = self.segments.find(thing)
            if found is None:
                return
            segment, at = found
        if segment.held >> at & 1:
            return
        expiry_us, due_us = segment.expiry_of(at), segment.due_of(at)
        if expiry_us and bucket_of(expiry_us) == bucket and not segment.dead >> at & 1:
            self.totals.expired += 1
            if self.settings.bury_expired:
                self._bury(segment, at, "expired")
            else:
                self._remove(segment, at)
        elif due_us and bucket_of(due_us) == bucket:
            segment.set_due(at, 0)
            self.delayed -= 1
            if segment.tries_of(at) and segment.key_of(at):
                self._again(segment, at)
            else:
                self._enter(segment, at)

    def _end_lease(self, thing: int) -> None:
        """A message was held for too long."""
        self.parts.touch("until")
        for consumer in self.demands.consumers.values():
            if thing in consumer.held:
                held = self.demands.settle(consumer.number, consumer.epoch, thing)
                assert held is not None
                self._back(thing, held.delivery, True, 0)
                self._look_at_room(consumer)
                return

    # What is done outside of commands.

    def chores(self) -> list[bytes]:
        return self.finder.chores()

    @property
    def busy(self) -> bool:
        return bool(self.selectors.unsearched) and not self.finder.idle

    def ask(self, question: bytes) -> Any:
        """What somebody wants to know, without changing anything."""
        asked = words.question_of(question)
        if isinstance(asked, words.Look):
            return looked(self, asked)
        if isinstance(asked, words.Where):
            return where(self, asked.things)
        return stats_of(self)

    # Snapshots.

    def part_names(self) -> list[str]:
        few = ["selectors"] * bool(len(self.selectors)) + ["until"] * bool(self.until)
        few += ["uploads"] * bool(self.uploads)
        return ["totals", *few, *self.demands.part_names(), *self.window.part_names(), *sorted(self.segments.parts)]

    def encode_part(self, name: str) -> bytes:
        kind, _, number = name.partition("/")
        if kind == "m":
            return _encode([one.saved() for one in self._of_part(name, int(number, 16))])
        if kind == "ids":
            return self.window.encode_part(name)
        if kind == "demand":
            return self.demands.encode_part(name)
        if kind == "selectors":
            return _encode(self.selectors.saved())
        if kind == "until":
            return _encode(sorted(self.until.items()))
        if kind == "uploads":
            return _encode(sorted(self.uploads.items()))
        return _encode((self.totals, self.window.next))

    def _of_part(self, name: str, number: int) -> list[Segment]:
        found: list[Segment] = []
        for segment in self.segments.since(number << PART_BITS):
            if segment.part == name:
                found.append(segment)
            elif segment.part > name:
                break
        return found

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        decode = msgspec.msgpack.decode
        saved: list[Any] = []
        for name, data in parts:
            kind = name.partition("/")[0]
            if kind == "m":
                saved += decode(data)
            elif kind == "ids":
                self.window.restore_part(name, data)
            elif kind == "demand":
                self.demands.restore_part(name, data)
            elif kind == "selectors":
                self.selectors.restore(decode(data, type=list[tuple[int, bytes]]))
            elif kind == "until":
                self.until = dict(decode(data, type=list[tuple[int, int]]))
            elif kind == "uploads":
                self.uploads = dict(decode(data, type=list[tuple[int, _Upload]]))
            else:
                self.totals, self.window.next = decode(data, type=tuple[_Totals, int])
        for one in sorted(saved, key=lambda one: one[0]):
            self.segments.add(Segment.restored(one))
        self.demands.restored()
        self._follow()

    def _follow(self) -> None:
        """What follows from the state: what is ready, lines, counts, times."""
        deaths: list[tuple[int, int]] = []
        for segment in self.segments:
            self._follow_segment(segment, deaths)
        self.dead = dict.fromkeys(thing for _, thing in sorted(deaths))
        for key in self._keys():
            first = self.lines.first(key)
            if first >= 0:
                found = self.segments.find(first)
                assert found is not None
                self.segments.make_ready(found[0], 1 << found[1], found[0].priority_of(found[1]))
        for thing, until_us in self.until.items():
            self._look_later(thing, until_us)
        for consumer in self.demands.consumers.values():
            if consumer.turn and consumer.number in self.selectors:
                self.selectors.waits(consumer.number)
                self.selectors.search(consumer.number)

    def _keys(self) -> list[str]:
        found: dict[str, None] = {}
        for segment in self.segments:
            if segment.extra is not None:
                found.update(dict.fromkeys(segment.extra.keys.values()))
        return list(found)

    def _follow_segment(self, segment: Segment, deaths: list[tuple[int, int]]) -> None:
        usual = segment.live & ~segment.dead
        self.count += usual.bit_count()
        self.held += segment.held.bit_count()
        ready = usual & ~segment.held
        if segment.columns:
            self.size += sum(segment.size[at] for at in bits_of(usual))
        else:
            self.size += usual.bit_count() * segment.size
        if segment.extra is not None:
            for at, (serial, _, _) in segment.extra.reasons.items():
                deaths.append((serial, segment.thing_at(at)))
            for at, pieces in segment.extra.pieces.items():
                if usual >> at & 1:
                    self.size += sum(charge for _, _, charge in pieces)
            for at, key in segment.extra.keys.items():
                if usual >> at & 1:
                    ready &= ~(1 << at)
                    self._follow_key(segment, at, key)
        for column in (segment.due, segment.expiry):
            for at, time_us in enumerate(column or ()):
                if time_us and segment.live >> at & 1:
                    self._look_later(segment.thing_at(at), time_us)
                    if column is segment.due:
                        self.delayed += 1
                        ready &= ~(1 << at)
        if segment.columns:
            for at in bits_of(ready):
                self.segments.make_ready(segment, 1 << at, segment.priority_of(at))
        elif ready:
            self.segments.make_ready(segment, ready, segment.priority)

    def _follow_key(self, segment: Segment, at: int, key: str) -> None:
        waits = bool(segment.due_of(at))
        if waits and not segment.tries_of(at):
            return  # sent with a delay: it has not joined the line yet
        thing = segment.thing_at(at)
        self.lines.add(key, thing)
        if waits or segment.held >> at & 1:
            self.lines.block(key, thing)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        self.segments.validate()
        self.demands.validate()
        self.window.validate()
        held: dict[int, int] = {}
        for consumer in self.demands.consumers.values():
            held.update(dict.fromkeys(consumer.held, consumer.number))
        keys: dict[str, int] = {}
        counts = [0, 0, 0, 0]
        for segment in self.segments:
            counts[0] += (segment.live & ~segment.dead).bit_count()
            counts[1] += segment.held.bit_count()
            counts[3] += segment.dead.bit_count()
            for at in bits_of(segment.live):
                thing = segment.thing_at(at)
                assert bool(segment.held >> at & 1) == (thing in held), f"message {thing}"
                counts[2] += bool(segment.due_of(at))
                assert bool(segment.dead >> at & 1) == (thing in self.dead)
                key = segment.key_of(at)
                if key and segment.held >> at & 1:
                    assert key not in keys, f"key {key!r} is at two consumers"
                    keys[key] = thing
                free = not (segment.held | segment.dead) >> at & 1 and not segment.due_of(at)
                first = not key or self.lines.first(key) == thing
                assert self.segments.is_ready(segment, at) == (free and first), f"message {thing}"
        assert counts == [self.count, self.held, self.delayed, len(self.dead)], counts
        assert set(self.until) <= set(held)
        if not self.totals.paused and self.segments.ready_count:
            assert self.demands.next(ANY) is None, "somebody waits, and a message is ready"


def _held(consumer: Consumer) -> list[tuple[int, int]]:
    return [(thing, held.delivery) for thing, held in consumer.held.items()]


def _differences(old: Settings, new: Settings) -> str:
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in old.__struct_fields__)
    return ", ".join(f"{name}={before!r} and not {after!r}" for name, before, after in pairs if before != after)


__all__ = ["UNLIMITED", "Queue"]
