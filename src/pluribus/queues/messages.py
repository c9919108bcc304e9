"""The messages of a queue, and how each goes from state to state. ``machine.py`` decides which consumer gets which.

::

    sent ──► delayed ──► ready ──► held ──► gone
                │  ▲        │        │
                │  └─ back ─┼────────┤      given back: after a while, or at once
                │           ▼        ▼
                └──────► dead letter ──► gone, or ready once more

A message with a key is ready when it is the first of its key and no other of the key is held, or waits for its next
try. ``segments.py`` keeps the states; here are the transitions between them, and their effects: on the times at which a
message is due, on the line of its key, on the bytes of the log that can be freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..group.host.machine import Ground
from ..group.host.parts import Parts
from . import words
from .batch import EVEN, BatchExtra, QueueBatchHead, checked, ends_of, extra_of, head_of
from .keys import KeyLines
from .segments import COLUMNS_MAX, PART_BITS, RUN_MAX, RUN_MIN, THIN_MIN, Segment, Segments, bits_of, mask_of
from .times import Times, bucket_of, is_over
from .window import IDS_MAX, Window
from .words import (
    AGAIN,
    BURY,
    DONE,
    FULL,
    NEXT,
    NOT_TRANSFORMED,
    PRIORITIES,
    PRIORITY,
    REFUSE,
    REFUSED,
    UNLIKE,
    Outcome,
    Settings,
)

MESSAGES_MAX = 1 << 28
"""Messages in one queue."""
PURGE_MAX = 10_000
UPLOADS_MAX = 1_024
UPLOAD_PIECES_MAX = 256
UPLOAD_US = 600_000_000
"""Time for which pieces of a long body wait for their message."""


class Totals(msgspec.Struct, array_like=True):
    """Numbers that are part of the state."""

    next: int = 0
    """The number of the next message."""
    deaths: int = 0
    sent: int = 0
    settled: int = 0
    redelivered: int = 0
    expired: int = 0
    duplicates: int = 0
    paused: bool = False
    exclusive: int = -1
    """The consumer that has exclusive use of the queue."""
    settings: Settings | None = None
    changes: int = 0
    """How often the queue was paused, resumed or configured."""


class Upload(msgspec.Struct, array_like=True):
    """Pieces of a long body whose message was not sent yet."""

    until_us: int
    pieces: list[tuple[int, int, int]]
    """Row, place, charge."""


class MessageTable:
    """``parts`` are those of the machine; ``watched`` is true while a consumer wants to know which messages become
    ready."""

    def __init__(self, ground: Ground, parts: Parts, watched: Callable[[], int]) -> None:
        self._ground = ground
        self._parts = parts
        self._watched = watched
        self.totals = Totals()
        self.segments = Segments()
        self.times = Times(self._is_real)
        self.lines = KeyLines()
        self.window = Window()
        self.until: dict[int, int] = {}
        """By message that is held for a limited time: the end of that time."""
        self.dead: dict[int, None] = {}
        """Dead letters, the oldest first."""
        self.uploads: dict[int, Upload] = {}
        self.count = self.size = self.delayed = self.held = 0
        """Messages that are not dead letters, their bytes, and how many of them are delayed, or held."""
        self.fresh: list[int] = []
        """Messages that became ready in this command, while somebody watches."""

    @property
    def settings(self) -> Settings:
        return self.totals.settings or Settings()

    def refusal(
        self, head: QueueBatchHead, command: bytes, count: int = 0, size: int = 0, promised: bool = False
    ) -> Outcome | None:
        """The reason why a batch cannot be accepted. ``count`` and ``size`` are accepted before it by the same
        transaction, which may have been ``promised`` room."""
        settings = self.settings
        extra = extra_of(command, head) if head.extra_bytes else None
        if settings.transform != ("" if extra is None else extra.transformed) and not promised:
            return Outcome(UNLIKE, 0, settings.transform)
        count, size = self.count + count + head.count, self.size + size + len(command)
        if count > MESSAGES_MAX:
            return Outcome(FULL, 0, f"{MESSAGES_MAX:,} messages are in the queue, more than it can hold")
        over_count = settings.count_max and count > settings.count_max
        over_bytes = settings.bytes_max and size > settings.bytes_max and self.count
        if settings.policy != BURY and (over_count or over_bytes) and not promised:
            limit = f"{settings.count_max:,} messages" if over_count else f"{settings.bytes_max:,} bytes"
            if over_count and head.count > settings.count_max:
                return Outcome(REFUSED, 0, f"{head.count:,} messages at once, and the queue holds {limit}: send fewer")
            status = REFUSED if settings.policy == REFUSE else FULL
            return Outcome(status, 0, f"the queue holds {limit}, its limit: receive some, or raise the limit")
        if extra is not None:
            if extra.ids and len(self.window) + head.count > IDS_MAX:
                return Outcome(FULL, 0, f"{IDS_MAX:,} identities are remembered: make the window shorter")
            for upload, pieces in extra.uploads:
                held = self.uploads.get(upload)
                if upload and (held is None or len(held.pieces) != pieces):
                    return Outcome(REFUSED, 0, "pieces of a long body are not there any more: send it again")
        return None

    def take(self, row: int, place: int, command: bytes, head: QueueBatchHead) -> int:
        """Number the messages of a batch, and give each its state; returns how many bytes of the batch are kept."""
        self.totals.sent += head.count
        if not head.extra_bytes and head.count >= RUN_MIN and head.flags & EVEN:
            self._take_run(row, place, len(command), head)
            return len(command)
        return self._take_columns(row, place, command, head)

    def _take_run(self, row: int, place: int, size: int, head: QueueBatchHead) -> None:
        each, rest = divmod(size, head.count)
        for start in range(0, head.count, RUN_MAX):
            count = min(RUN_MAX, head.count - start)
            segment = Segment(self.totals.next, False)
            self._parts.touch(segment.part)
            segment.count = count
            segment.live = mask_of(0, count)
            segment.row, segment.place, segment.piece, segment.size = row, place, start, each
            segment.at_us = self._ground.now_us
            segment.rest = rest if start + count == head.count else 0
            self.segments.add(segment)
            self.totals.next += count
            self.count += count
            self.size += count * each
            self.segments.make_ready(segment, segment.live, PRIORITY)
            if self._watched():
                self.fresh += range(segment.first, segment.first + count)

    def _take_columns(self, row: int, place: int, command: bytes, head: QueueBatchHead) -> int:
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
            self._parts.touch(segment.part)
            at = segment.append(row, place, number, size, self._ground.now_us, priority)
            self.totals.next += 1
            self.count += 1
            self.size += size
            if head.extra_bytes:
                self._describe(segment, at, extra, number)
            else:
                self._become_ready(segment, at)
        return kept

    def _columns(self) -> Segment:
        """The segment for the next message."""
        last = self.segments.last()
        if (
            last is None
            or not last.columns
            or last.count >= COLUMNS_MAX
            or last.numbers is not None
            or last.first + last.count != self.totals.next
        ):
            last = Segment(self.totals.next, True)
            self._parts.touch(last.part)
            self.segments.add(last)
        return last

    def _is_new(self, identity: str) -> bool:
        now_us, window_us = self._ground.now_us, self.settings.window_us
        if not window_us:
            return True
        if identity in self.window:
            if self.window.known(identity, now_us):
                return False
            self._parts.touch(self.window.part_of(identity))
            self.window.renew(identity, now_us + window_us)
            return True
        self._parts.touch(self.window.part())
        self.window.add(identity, now_us + window_us)
        return True

    def _describe(self, segment: Segment, at: int, extra: BatchExtra, number: int) -> None:
        """The fields of a message besides its body."""
        now_us, thing = self._ground.now_us, segment.thing_at(at)
        if extra.keys and extra.keys[number]:
            segment.more().keys[at] = extra.keys[number]
        if extra.properties and extra.properties[number]:
            segment.more().properties[at] = extra.properties[number]
        if extra.uploads and extra.uploads[number][0]:
            self._parts.touch("uploads")
            upload = self.uploads.pop(extra.uploads[number][0])
            segment.more().pieces[at] = upload.pieces
            self.size += sum(charge for _, _, charge in upload.pieces)
        if extra.failures and extra.failures[number]:
            self.bury(segment, at, NOT_TRANSFORMED + extra.failures[number])
            return
        if extra.ttls_us and extra.ttls_us[number]:
            segment.set_expiry(at, now_us + extra.ttls_us[number])
            self.look_later(thing, now_us + extra.ttls_us[number])
        if extra.delays_us and extra.delays_us[number]:
            segment.set_due(at, now_us + extra.delays_us[number])
            self.delayed += 1
            self.look_later(thing, now_us + extra.delays_us[number])
        else:
            self.enter(segment, at)

    def look_later(self, thing: int, time_us: int) -> None:
        self.times.add(thing, time_us)

    def stage(self, row: int, place: int, command: words.Stage, size: int) -> tuple[Outcome, int]:
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
        self._parts.touch("uploads")
        if upload is None:
            upload = self.uploads[command.upload] = Upload(0, [])
        upload.pieces.append((row, place, size))
        upload.until_us = self._ground.now_us + UPLOAD_US
        return Outcome(DONE, known + 1), size

    def enter(self, segment: Segment, at: int) -> None:
        """A new message: it joins the line of its key, if it has one."""
        key = segment.key_of(at)
        if key:
            before = self.lines.first(key)
            self.lines.add(key, segment.thing_at(at))
            self._first_of(key, before)
        else:
            self._become_ready(segment, at)

    def _first_of(self, key: str, before: int) -> None:
        """The line of a key changed: returns its first message if that may be delivered now and could not before."""
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
        if self._watched():
            self.fresh.append(segment.thing_at(at))

    def _leave_key(self, segment: Segment, at: int) -> None:
        """Remove a message from the line of its key."""
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
        """Remove a message for good. It is not held, not ready, in no line."""
        row, _, _ = segment.handle(at)
        size = segment.size_of(at)
        if segment.extra is not None:
            for table in segment.extra.tables()[:-1]:
                table.pop(at, None)
            for piece_row, _, charge in segment.extra.pieces.pop(at, ()):
                self._ground.release(piece_row, charge)
                self.size -= charge
        if segment.due is not None:
            segment.due[at] = 0
        if segment.expiry is not None and segment.expiry[at]:
            segment.expiry[at] = 0
        self._forget(segment, 1 << at, row, size)

    def _forget(self, segment: Segment, mask: int, row: int, size: int) -> None:
        """Remove messages of one row that charge this many bytes together."""
        segment.live &= ~mask
        count = mask.bit_count()
        self.count -= count
        self.size -= size
        if not segment.live:
            size += segment.rest
            segment.rest = 0
        self._ground.release(row, size)
        if not segment.live:
            if self.segments.remove(segment):
                self._parts.gone(segment.part)
        elif segment.sparse and segment.count >= THIN_MIN and self.segments.last() is not segment:
            segment.thin()

    def _delay(self, segment: Segment, at: int, until_us: int) -> None:
        segment.set_due(at, until_us)
        self.delayed += 1
        self.look_later(segment.thing_at(at), until_us)

    def back(self, thing: int, delivery: int, counts: bool, wait_us: int) -> None:
        """A held message comes back. A message that was tried too often becomes a dead letter."""
        found = self.segments.find(thing)
        assert found is not None, f"message {thing} was held and is not there"
        segment, at = found
        self._parts.touch(segment.part)
        segment.held &= ~(1 << at)
        self.held -= 1
        self.unlease(thing)
        tries = delivery if counts else delivery - 1
        if tries:
            segment.more().tries[at] = tries
        elif segment.extra is not None:
            segment.extra.tries.pop(at, None)
        if counts:
            self.totals.redelivered += 1
        expiry_us = segment.expiry_of(at)
        if expiry_us and is_over(expiry_us, self._ground.now_us):
            self.outlived(segment, at)
            return
        if expiry_us:
            self.look_later(thing, expiry_us)  # its time was not looked at while it was held
        if counts and self.settings.tries_max and tries >= self.settings.tries_max:
            self.bury(segment, at, f"given back {tries} times")
        elif wait_us:
            self._delay(segment, at, self._ground.now_us + wait_us)  # the message still blocks its key
        else:
            self.again(segment, at)

    def again(self, segment: Segment, at: int) -> None:
        """A message that was held, or waited for its next try, may be delivered."""
        key = segment.key_of(at)
        if key:
            self.lines.free(key, segment.thing_at(at))
            self._first_of(key, -1)
        else:
            self._become_ready(segment, at)

    def outlived(self, segment: Segment, at: int) -> None:
        """The time of a message that no consumer holds is over."""
        self.totals.expired += 1
        if self.settings.bury_expired:
            self.bury(segment, at, "expired")
        else:
            self.remove(segment, at)

    def backoff_us(self, delivery: int) -> int:
        settings = self.settings
        return min(settings.backoff_us << min(delivery - 1, 40), settings.backoff_us_max)

    def bury(self, segment: Segment, at: int, reason: str) -> None:
        """A message that no consumer holds becomes a dead letter."""
        thing = segment.thing_at(at)
        self._unready(segment, at)
        self._leave_key(segment, at)
        if segment.due_of(at):
            segment.set_due(at, 0)
            self.delayed -= 1
        if segment.expiry_of(at):
            segment.set_expiry(at, 0)
        segment.dead |= 1 << at
        segment.more().reasons[at] = (self.totals.deaths, self._ground.now_us, reason)
        self.totals.deaths += 1
        self.dead[thing] = None
        self.count -= 1  # dead letters have a limit of their own
        self.size -= self.charge(segment, at)
        while len(self.dead) > max(self.settings.dead_max, 1):
            self._exhume(next(iter(self.dead)))

    def charge(self, segment: Segment, at: int) -> int:
        """The bytes that a message charges, those of a long body included."""
        if segment.extra is None or not segment.extra.pieces:
            return segment.size_of(at)
        return segment.size_of(at) + sum(charge for _, _, charge in segment.extra.pieces.get(at, ()))

    def _exhume(self, thing: int) -> None:
        """Remove a dead letter for good."""
        found = self.segments.find(thing)
        assert found is not None
        segment, at = found
        self._parts.touch(segment.part)
        del self.dead[thing]
        segment.dead &= ~(1 << at)
        self.count += 1
        self.size += self.charge(segment, at)
        self._gone(segment, at)

    def make_room(self) -> None:
        """In a queue over its limit, the oldest ready messages become dead letters."""
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
            self._parts.touch(found[0].part)
            self.bury(*found, "the queue was full")

    def _oldest_ready(self) -> tuple[Segment, int] | None:
        for segment in self.segments:
            bits = 0
            for priority in range(PRIORITIES):
                bits |= self.segments.ready_bits(segment, priority)
            if bits:
                return segment, (bits & -bits).bit_length() - 1
        return None

    def done(self, things: Sequence[int]) -> None:
        """Held messages are settled, in order."""
        self.totals.settled += len(things)
        self.held -= len(things)
        at, end = 0, len(things)
        while at < end:
            found = self.segments.find(things[at])
            assert found is not None
            segment, place = found
            self._parts.touch(segment.part)
            if segment.columns or segment.extra is not None or segment.due is not None:
                segment.held &= ~(1 << place)
                self.unlease(things[at])
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
                    self.unlease(thing)
            self._forget(segment, mask, segment.row, count * segment.size)
            at += count

    def lease(self, first: int, count: int) -> None:
        lease_us = self.settings.lease_us
        if lease_us:
            self._parts.touch("until")
            for thing in range(first, first + count):
                self.until[thing] = self._ground.now_us + lease_us
                self.look_later(thing, self.until[thing])

    def unlease(self, thing: int) -> None:
        if thing in self.until:
            self._parts.touch("until")
            del self.until[thing]

    def purge(self, command: words.Purge) -> Outcome:
        """Remove some messages: dead letters, or messages that no consumer holds."""
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
            self._parts.touch(there[0].part)
            self.remove(*there)
        then = things[-1] + 1 if len(found) >= PURGE_MAX and not command.things else 0
        return Outcome(DONE, count, "", [], [], then)

    def remove(self, segment: Segment, at: int) -> None:
        """Remove a message that no consumer holds, whatever its state is."""
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

    def redrive(self, command: words.Redrive) -> Outcome:
        things = command.things or list(self.dead)[: min(command.count, PURGE_MAX)]
        count = 0
        for thing in things:
            found = self.segments.find(thing)
            if found is None or thing not in self.dead:
                continue
            reason = found[0].more().reasons.get(found[1], (0, 0, ""))[2]
            if self.settings.transform and reason.startswith(NOT_TRANSFORMED):
                continue  # with the body as it was sent; ``remake`` brings the transformed one
            self._relive(*found)
            count += 1
        return Outcome(DONE, count)

    def _relive(self, segment: Segment, at: int) -> None:
        """A dead letter becomes a message again, with no tries counted."""
        self._parts.touch(segment.part)
        del self.dead[segment.thing_at(at)]
        segment.dead &= ~(1 << at)
        segment.more().reasons.pop(at, None)
        segment.more().tries.pop(at, None)
        self.count += 1
        self.size += self.charge(segment, at)
        self.enter(segment, at)

    def remake(self, row: int, place: int, command: words.Remake, size: int) -> tuple[Outcome, int]:
        """Dead letters become messages again, with other bodies."""
        head = checked(command.packed)
        extra = extra_of(command.packed, head)
        if head.count != len(command.things) or extra.failures or extra.uploads:
            return Outcome(REFUSED, 0, "other messages than it names, or some that are not transformed"), 0
        if extra.transformed != self.settings.transform:
            return Outcome(UNLIKE, 0, self.settings.transform), 0
        ends = ends_of(command.packed, head)
        overhead, rest = divmod(size - head.bodies_bytes, head.count)
        kept = count = 0
        for number, thing in enumerate(command.things):
            found = self.segments.find(thing)
            if found is None or thing not in self.dead:
                continue
            segment, at = found
            if not segment.columns:
                self.size += segment.make_columns()
            self._parts.touch(segment.part)
            self._ground.release(segment.handle(at)[0], segment.size_of(at))
            for piece_row, _, charge in segment.more().pieces.pop(at, ()):
                self._ground.release(piece_row, charge)
            new = ends[number + 1] - ends[number] + overhead + (rest if not number else 0)
            segment.row[at], segment.place[at], segment.piece[at], segment.size[at] = row, place, number, new
            kept += new
            count += 1
            self._relive(segment, at)
        return Outcome(DONE if count else AGAIN, count), kept

    def move(self, row: int, place: int, command: words.Move, size: int) -> tuple[Outcome, int]:
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
            self._parts.touch(segment.part)
            self.size += 0 if segment.columns else segment.make_columns()
            old, new = segment.size_of(at), ends[number + 1] - ends[number] + overhead + (rest if not number else 0)
            self._ground.release(command.row, old)
            segment.row[at], segment.place[at], segment.piece[at], segment.size[at] = row, place, number, new
            kept += new
            if not segment.dead >> at & 1:
                self.size += new - old
        return Outcome(DONE if kept else AGAIN), kept

    def restage(self, row: int, place: int, command: words.Restage, size: int) -> tuple[Outcome, int]:
        held = self.uploads.get(command.upload) if command.upload else None
        pieces: list[tuple[int, int, int]] = [] if held is None else held.pieces
        found = None if command.upload else self.segments.find(command.thing)
        if found is not None and found[0].extra is not None:
            pieces = found[0].extra.pieces.get(found[1], [])
        if command.piece >= len(pieces) or pieces[command.piece][0] != command.row:
            return Outcome(AGAIN), 0
        self._parts.touch("uploads" if found is None else found[0].part)
        _, _, old = pieces[command.piece]
        pieces[command.piece] = (row, place, size)
        self._ground.release(command.row, old)
        if found is not None and not found[0].dead >> found[1] & 1:
            self.size += size - old
        return Outcome(DONE), size

    def _is_real(self, thing: int, bucket: int) -> bool:
        """True if a time of this message is in this bucket."""
        if bucket_of(self.until.get(thing, -1)) == bucket:
            return True
        found = self.segments.find(thing)
        if found is None:
            return False
        segment, at = found
        if bucket_of(segment.due_of(at) or -1) == bucket:
            return True
        return bucket_of(segment.expiry_of(at) or -1) == bucket and not segment.held >> at & 1

    def follow(self) -> None:
        """Compute the part that follows from the state: ready messages, lines, counts, times."""
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
            self.look_later(thing, until_us)

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
                    self.look_later(segment.thing_at(at), time_us)
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

    def of_part(self, name: str, number: int) -> list[Segment]:
        found: list[Segment] = []
        for segment in self.segments.since(number << PART_BITS):
            if segment.part == name:
                found.append(segment)
            elif segment.part > name:
                break
        return found

    def due_us(self) -> int | None:
        """The next time at which ``tick`` has something to do."""
        times = [self.times.next_us(), self.window.next_us()]
        times += [upload.until_us for upload in self.uploads.values()]
        return min((time for time in times if time is not None), default=None)

    def forget_old(self) -> None:
        """Forget identities whose window is over, and pieces of bodies whose message was not sent."""
        now_us = self._ground.now_us
        for part in self.window.over(now_us, 4):
            self._parts.touch(part)
            self.window.forget(part)
            self._parts.gone(part)
        for number in [number for number, upload in self.uploads.items() if upload.until_us <= now_us]:
            self._parts.touch("uploads")
            for row, _, charge in self.uploads.pop(number).pieces:
                self._ground.release(row, charge)
        self.times.tidy(self.delayed + len(self.until) + self.count)

    def validate(self, held: set[int]) -> None:
        """Assert the invariants, given what consumers hold; for tests."""
        self.segments.validate()
        self.window.validate()
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
        assert set(self.until) <= held
