"""Durable topics as a machine on the log host.

The log holds the events. The state holds only what is needed to find them, and is small: for each topic its bounds, a
sparse index and the places of its bytes; for each durable subscription its offsets; and the parts that writers have
staged. A snapshot costs about the same for a thousand events and for ten million. The host's table of streams knows
which publisher has published what.

**Promises.** Events of a topic have offsets 0, 1, 2, …, the same at every keeper and for ever. A batch that its
publisher sends again is there once, and gets the offset of the first time. Events of one publisher and topic stand in
the order in which it published them: a batch whose predecessor is missing is refused. What a writer commits becomes
visible at one offset after another, with nothing between, or not at all.

A batch that was refused, or was there before, still stands in the log. ``passed_over`` remembers these few, so that a
reader that goes from row to row skips them.

**Space.** Events that retention removes are released, extent by extent (``spans``). Events that stay while their
neighbours go are written again by ``Move``, and keep their offsets. Of a topic that keeps the
last event of each key (``compaction``), stretches are written again by ``Compact``, without those that were replaced:
then not every offset has an event.

The result of a command depends only on the commands before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

import msgspec

from ..._speed.packing import outline_plain
from ...core.errors import MalformedFrame
from ...core.limits import DURABLE_TOPICS_MAX
from ...group.host.machine import Effects, Ground, Machine, Refusal
from ...group.host.words import ONCE
from . import commands
from .batch import checked, head_of, is_batch, latest_of, outline_of, topic_of
from .commands import AGAIN, DONE, REFUSED, Outcome
from .index import Moved, TopicIndex
from .spans import ALONE, Spans
from .stages import FOR_EVER_US, StagedPart, Stages
from .subscriptions import Bounds, Subscriptions

PLACE_BITS = 20
"""A command in the log is named by its row, and below that its place in it."""
INNER = 1 << 17
"""The place of a batch inside a ``Move``: its number in there plus one, times this, plus the command's."""
BLOCK = 64
"""Topics that share a part of the snapshot, as long as their indices are short."""
LONG_ENTRIES = 512
"""A topic with a longer index has a part of its own."""
SHARDS = 64
LOOK_US = 1_000_000
"""Retention by size, and what fell due, is looked at so often at most."""
FORGET_MAX = 1_000
"""Topics from which one tick removes."""
PASSED_MAX = 4_096
"""Then places of which the rows are gone are removed from ``passed_over``."""


class Topic:
    """One topic: its bounds, and where its events are."""

    __slots__ = (
        "age_us",
        "compacted",
        "compacted_size",
        "end",
        "first",
        "index",
        "keyed",
        "latest",
        "number",
        "part",
        "size",
        "size_bytes",
        "spans",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.part = f"t/{number // BLOCK:05d}"
        """Of the snapshot."""
        self.first = 0
        self.end = 0
        self.latest = 0
        """The latest time of any event so far."""
        self.size = 0
        """Bytes of all events that ever were."""
        self.age_us = 0
        self.size_bytes = 0
        self.keyed = False
        """Whether it keeps only the last event of each key."""
        self.compacted = 0
        """Below this offset that was done."""
        self.compacted_size = 0
        """The bytes of all events that ever were below it."""
        self.index = TopicIndex()
        self.spans = Spans()

    @property
    def bounds(self) -> Bounds:
        return (self.first, self.end)

    @property
    def kept_bytes(self) -> int:
        """About: whole spans are counted."""
        if self.keyed:
            return self.spans.size
        return self.size - (self.index.sizes[0] if len(self.index) else self.size)

    @property
    def fresh_bytes(self) -> int:
        """About: bytes of the events that came since it was compacted."""
        return max(self.size - self.compacted_size, 0)

    def outdated(self, now_us: int) -> int:
        """The offset below which events need not be kept, rounded down to an entry of the index."""
        index, before = self.index, self.first
        for at in range(1, len(index)):
            old = self.age_us and index.times[at] < now_us - self.age_us
            if not (old or (self.size_bytes and self.size - index.sizes[at] >= self.size_bytes)):
                break
            before = max(before, index.offsets[at])
        if self.age_us and self.end and self.latest < now_us - self.age_us:
            before = self.end
        return before

    def due_us(self) -> int:
        """When the oldest events are too old; ``FOR_EVER_US`` if never."""
        if not self.age_us or self.first == self.end:
            return FOR_EVER_US
        return (self.index.times[1] if len(self.index) > 1 else self.latest) + self.age_us + 1

    @property
    def long(self) -> bool:
        return len(self.index) > LONG_ENTRIES or len(self.spans) > LONG_ENTRIES


class _Bounds(Mapping[str, Bounds]):
    """Topics by name, as subscriptions see them."""

    def __init__(self, topics: dict[bytes, Topic]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> Bounds:
        return self._topics[name.encode()].bounds

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class _Appends(Effects):
    """The batches of a transaction: row, place, command."""

    batches: list[tuple[int, int, bytes]]


class TopicsMachine(Machine):
    """The state. ``apply`` is handed each command once, with its place in the log."""

    kind: ClassVar[str] = "topics"
    version: ClassVar[int] = 1
    retains: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.topics: dict[bytes, Topic] = {}
        self._names: list[bytes] = []
        """By number."""
        self.streams = self.ground.streams
        self.subscriptions = Subscriptions()
        self.stages = Stages()
        self.passed_over: set[int] = set()
        self.keyed: dict[bytes, Topic] = {}
        """Topics that keep only the last event of each key, by name."""
        self.bounds: Mapping[str, Bounds] = _Bounds(self.topics)
        self.log_bytes = 0
        self._due_us = FOR_EVER_US
        self._looked_us = 0

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name.encode())

    def _topic_made(self, name: bytes) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(len(self._names))
            self._names.append(name)
            self.parts.touch(topic.part)
        return topic

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        self.parts.touch("numbers")
        self.log_bytes += len(command)
        try:
            if is_batch(command):
                outcome = self._append(row, place, command)
                if outcome.status != DONE:
                    self._pass_over(row, place, len(command))
                return outcome
            asked = commands.command_of(command)
        except MalformedFrame as error:
            self._pass_over(row, place, len(command))
            return Outcome(REFUSED, 0, str(error))
        kept = False
        if isinstance(asked, commands.Stage):
            outcome = self._stage(row, place, asked, len(command))
            kept = outcome.status == DONE
        elif isinstance(asked, commands.Move):
            outcome = self._move(row, place, asked, len(command))
            kept = outcome.status == DONE
        elif isinstance(asked, commands.Restage):
            outcome = self._restage(row, place, asked, len(command))
            kept = outcome.status == DONE
        elif isinstance(asked, commands.Compact):
            outcome = self._compact(row, place, asked, len(command))
            kept = outcome.status == DONE and bool(asked.rows)
        else:
            outcome = self._do(asked)
        if not kept:
            self.ground.release(row, len(command))
        return outcome

    def _pass_over(self, row: int, place: int, size: int) -> None:
        self.parts.touch("passed")
        self.passed_over.add(row << PLACE_BITS | place)
        self.ground.release(row, size)
        if len(self.passed_over) >= PASSED_MAX and len(self.passed_over) % 1_024 == 0:
            first = min((topic.spans.first_row() for topic in self.topics.values() if len(topic.spans)), default=row)
            self.passed_over = {at for at in self.passed_over if at >> PLACE_BITS >= first}

    def _append(self, row: int, place: int, command: bytes) -> Outcome:
        session, first, last, events, name, latest = outline_plain(command) or outline_of(command)
        streams = self.streams
        due = streams.next(session)
        if first != due:
            return self._not_next(session, first, last, due)
        topic = self.topics.get(name)
        if topic is None:
            if len(self.topics) >= DURABLE_TOPICS_MAX:
                return Outcome(REFUSED, due, f"{DURABLE_TOPICS_MAX:,} durable topics are there: use one of them")
            topic = self._topic_made(name)
        self.parts.touch(topic.part)
        offset = topic.end
        topic.index.add(offset, row, place, topic.latest, topic.size, latest, self.log_bytes)
        topic.spans.add(offset + events, row, place, len(command), self.ground.extent())
        self._extend(topic, events, len(command), latest)
        streams.record(session, last, offset.to_bytes(8, "little"))
        return Outcome(DONE, offset)

    def _not_next(self, session: int, first: int, last: int, due: int) -> Outcome:
        """The outcome of a batch that is not the next one: it was done before, or an earlier one is missing."""
        if last >= due:
            return Outcome(REFUSED, due, f"sequence {due} of this publisher is next, not {first}")
        known = self.streams.earlier(session, last)
        found = known.result if known is not None else b""
        return Outcome(AGAIN, int.from_bytes(found, "little") if found else -1)

    def _extend(self, topic: Topic, events: int, size: int, latest: int) -> None:
        topic.end += events
        topic.size += size
        topic.latest = max(topic.latest, latest)
        if topic.long and topic.part.startswith("t"):
            topic.part = f"T/{topic.number:06d}"
            self.parts.touch(topic.part)
        if topic.age_us or topic.size_bytes:
            due_us = topic.due_us() if not topic.size_bytes or topic.kept_bytes <= topic.size_bytes else 0
            self._due_us = min(self._due_us, due_us)

    def _do(self, command: commands.Command) -> Outcome:
        if isinstance(command, commands.Commit):
            self._touch_subscription(command.name)
            return self.subscriptions.commit(command, self.bounds)
        if isinstance(command, commands.Attach):
            self._touch_subscription(command.name)
            return self.subscriptions.attach(command, self.bounds)
        if isinstance(command, commands.Detach):
            self._touch_subscription(command.name)
            return self.subscriptions.detach(command)
        if isinstance(command, commands.Publish):
            return self._publish(command)
        if isinstance(command, commands.Drop):
            self.parts.touch("stages")
            outcome, gone = self.stages.drop(command)
            self._release(gone)
            return outcome
        if isinstance(command, commands.Retain):
            return self._retain(command)
        assert isinstance(command, commands.Forget)
        return self._forget(command.topic, command.before)

    def _touch_subscription(self, name: str) -> None:
        self.parts.touch(f"subscriptions/{crc32(name.encode()) % SHARDS:02d}")

    def _stage(self, row: int, place: int, command: commands.Stage, size: int) -> Outcome:
        head = head_of(command.packed)
        name, latest = topic_of(command.packed, head), latest_of(command.packed, head)
        if name not in self.topics and len(self.topics) >= DURABLE_TOPICS_MAX:
            return Outcome(REFUSED, 0, f"{DURABLE_TOPICS_MAX:,} durable topics are there: use one of them")
        self.parts.touch("stages")
        part = StagedPart(row, place, head.events, len(command.packed), latest, name, size)
        outcome = self.stages.stage(command, part)
        self._due_us = min(self._due_us, self.stages.due_us())
        return outcome

    def _publish(self, command: commands.Publish) -> Outcome:
        self.parts.touch("stages")
        outcome, parts, gone = self.stages.publish(command)
        self._release(gone)
        for part in parts:
            topic = self._topic_made(part.topic)
            self.parts.touch(topic.part)
            topic.index.graft(topic.end, part.row, part.place, topic.latest, topic.size)
            topic.spans.add(topic.end + part.events, part.row, part.place, part.held, ALONE)
            self._extend(topic, part.events, part.size, part.latest)
        self._due_us = min(self._due_us, self.stages.due_us())
        return outcome

    def _release(self, parts: Iterable[StagedPart]) -> None:
        for part in parts:
            self.ground.release(part.row, part.held)

    def _retain(self, command: commands.Retain) -> Outcome:
        topic = self._topic_made(command.topic.encode())
        self.parts.touch(topic.part)
        topic.age_us, topic.size_bytes = command.age_us, command.size_bytes
        self._due_us = 0
        if topic.keyed != command.keys:
            self.parts.touch("keyed")
            topic.keyed, topic.compacted, topic.compacted_size = command.keys, 0, 0
            if command.keys:
                self.keyed[command.topic.encode()] = topic
            else:
                del self.keyed[command.topic.encode()]
        return Outcome(DONE)

    def _forget(self, name: str, before: int) -> Outcome:
        topic = self.topic(name)
        if topic is None:
            return Outcome(REFUSED, 0, f"there is no durable topic {name!r}")
        if before <= topic.first:
            return Outcome(AGAIN, topic.first)
        self.parts.touch(topic.part)
        topic.first = min(before, topic.end)
        if topic.first == topic.end:
            stretch = topic.index.stretch
            topic.index = TopicIndex()
            topic.index.stretch = stretch
        else:
            topic.index.forget(topic.first)
        for span in topic.spans.forget(topic.first):
            self.ground.release(span.row, span.size)
        if len(topic.spans):
            span = topic.spans[0]
            topic.index.anchor(span.start, span.row, span.place)
        return Outcome(DONE, topic.first)

    # Moving what stays.

    def _move(self, row: int, place: int, command: commands.Move, size: int) -> Outcome:
        topic = self.topics.get(command.topic)
        at = -1 if topic is None else topic.spans.find(command.end, command.row)
        if topic is None or at < 0:
            return Outcome(AGAIN)
        span = topic.spans[at]
        moved: list[Moved] = []
        offset = span.start
        for number, packed in enumerate(command.batches):
            head = head_of(packed)
            moved.append(Moved(offset, row, (number + 1) * INNER + place, latest_of(packed, head), len(packed)))
            offset += head.events
        if offset != span.end:
            return Outcome(REFUSED, 0, f"a move of {offset - span.start} events in place of {span.end - span.start}")
        self.parts.touch(topic.part)
        behind = None
        if at + 1 < len(topic.spans):
            following = topic.spans[at + 1]
            behind = (following.row, following.place)
        topic.index.move(span.start, span.end, moved, behind, (topic.latest, topic.size))
        topic.spans.move(at, row, place, size)
        self.ground.release(span.row, span.size)
        return Outcome(DONE, span.start)

    def _compact(self, row: int, place: int, command: commands.Compact, size: int) -> Outcome:
        topic = self.keyed.get(command.topic)
        if topic is None:
            return Outcome(AGAIN)
        if command.rows:
            at = topic.spans.first_of(command.start, command.end, command.rows)
            offsets = [offset for offset, _ in command.batches]
            if at < 0:
                return Outcome(AGAIN)
            if offsets[:1] != [command.start] or offsets != sorted(set(offsets)) or offsets[-1] >= command.end:
                return Outcome(REFUSED, 0, f"batches from other offsets than {command.start} to {command.end}")
            self.parts.touch(topic.part)
            moved = [
                Moved(offset, row, (number + 1) * INNER + place, _latest_in(packed), len(packed))
                for number, (offset, packed) in enumerate(command.batches)
            ]
            gone = [topic.spans[number] for number in range(at, at + len(command.rows))]
            behind = None
            if at + len(gone) < len(topic.spans):
                following = topic.spans[at + len(gone)]
                behind = (following.row, following.place)
            topic.index.move(command.start, command.end, moved, behind, (topic.latest, topic.size))
            topic.spans.merge(at, len(gone), row, place, size)
            for span in gone:
                self.ground.release(span.row, span.size)
        if command.upto:
            self.parts.touch("keyed")
            if command.upto > topic.compacted:
                topic.compacted, topic.compacted_size = min(command.upto, topic.end), command.size
        return Outcome(DONE, topic.compacted)

    def _restage(self, row: int, place: int, command: commands.Restage, size: int) -> Outcome:
        self.parts.touch("stages")
        part = self.stages.move(command.writer, command.batch, command.attempt, command.part, command.row)
        if part is None:
            return Outcome(AGAIN)
        self.ground.release(part.row, part.held)
        part.row, part.place, part.held = row, place, size
        return Outcome(DONE)

    def forward(self, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
        """Moves of every span, and of every staged part, that stands in these rows of one extent."""
        held = rows
        within = {*rows, *(row for row, _ in loose)}
        names = {topic_of(one, head_of(one)) for some in rows.values() for one in some if is_batch(one)}
        names |= {topic_of(one, head_of(one)) for one in loose.values() if is_batch(one)}
        names |= self._names_elsewhere(rows)
        wanted: list[commands.Command] = []
        for name in sorted(names):
            topic = self.topics.get(name)
            for span in topic.spans.within(within) if topic is not None else ():
                compact = _compact_at(held.get(span.row, ()), span.place)
                if compact is not None:
                    bounds = {"start": span.start, "end": span.end, "rows": [span.row], "upto": 0}
                    wanted.append(msgspec.structs.replace(compact, **bounds))
                    continue
                alone = loose.get((span.row, span.place))
                events = span.end - span.start
                batches = [alone] if alone is not None else self._batches(name, span.row, span.place, events, held)
                if batches:
                    wanted.append(commands.Move(name, span.end, span.row, batches))
        for (writer, batch, attempt), number, part in self.stages.parts_within(within):
            packed = _packed_at(held.get(part.row, ()), part.place)
            if packed is not None:
                wanted.append(commands.Restage(writer, batch, attempt, number, part.row, packed))
        return [commands.encode(command) for command in wanted]

    def _names_elsewhere(self, rows: Mapping[int, Sequence[bytes]]) -> set[bytes]:
        """Topics of batches that were staged or moved to these rows."""
        names: set[bytes] = set()
        for some in rows.values():
            for one in some:
                if not is_batch(one):
                    try:
                        command = commands.command_of(one)
                    except MalformedFrame:
                        continue
                    if isinstance(command, (commands.Move, commands.Compact)):
                        names.add(command.topic)
                    elif isinstance(command, (commands.Stage, commands.Restage)):
                        names.add(topic_of(command.packed, head_of(command.packed)))
        return names

    def _batches(
        self, name: bytes, row: int, place: int, events: int, held: Mapping[int, Sequence[bytes]]
    ) -> list[bytes]:
        """The batches of a span, in order; none if they are not all there."""
        first = held.get(row, ())
        if place < len(first) and not is_batch(first[place]):
            command = commands.command_of(first[place])
            if isinstance(command, commands.Move):
                return command.batches
            packed = _packed_at(first, place)
            return [] if packed is None else [packed]
        found: list[bytes] = []
        for position in sorted(held):
            for at, one in enumerate(held[position]):
                if events <= 0 or (position, at) < (row, place) or not is_batch(one):
                    continue
                head = head_of(one)
                if topic_of(one, head) == name and position << PLACE_BITS | at not in self.passed_over:
                    found.append(one)
                    events -= head.events
        return found if events == 0 else []

    # Transactions.

    def prepare(self, row: int, places: Sequence[int], held: Sequence[bytes]) -> Refusal | Effects:
        """Batches of publishers can be part of a transaction, and nothing else."""
        due: dict[int, int] = {}
        ends: dict[bytes, int] = {}
        results: list[Outcome] = []
        batches: list[tuple[int, int, bytes]] = []
        for place, command in zip(places, held, strict=True):
            if not is_batch(command):
                return Refusal("only events are published in a transaction: do the rest outside of it")
            try:
                checked(command)
                session, first, last, events, name, _ = outline_of(command)
            except MalformedFrame as error:
                return Refusal(str(error))
            if session < ONCE:
                if first != due.get(session, self.streams.next(session)):
                    return Refusal(f"sequence {due.get(session, self.streams.next(session))} of this publisher is next")
                due[session] = last + 1
            if name not in self.topics and len(self.topics) + len(ends) >= DURABLE_TOPICS_MAX:
                return Refusal(f"{DURABLE_TOPICS_MAX:,} durable topics are there: use one of them")
            topic = self.topics.get(name)
            offset = ends.get(name, 0 if topic is None else topic.end)
            ends[name] = offset + events
            results.append(Outcome(DONE, offset))
            batches.append((row, place, command))
        return _Appends(results, batches)

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Appends)
        for row, place, command in effects.batches:
            session, _, last, events, name, latest = outline_of(command)
            topic = self._topic_made(name)
            self.parts.touch(topic.part)
            offset = topic.end
            topic.index.graft(offset, row, place, topic.latest, topic.size)
            topic.spans.add(offset + events, row, place, len(command), ALONE)
            self._extend(topic, events, len(command), latest)
            if session < ONCE:
                self.streams.record(session, last, offset.to_bytes(8, "little"))

    # Time.

    def due_us(self) -> int | None:
        if self._due_us >= FOR_EVER_US:
            return None
        return max(self._due_us, self._looked_us + LOOK_US)

    def tick(self) -> None:
        """Retention, and the end of leases."""
        now_us = self._looked_us = self.ground.now_us
        self._due_us = FOR_EVER_US
        forgot = 0
        for name, topic in self.topics.items():
            if not (topic.age_us or topic.size_bytes) or topic.end == topic.first:
                continue
            before = topic.outdated(now_us)
            if before > topic.first:
                if forgot >= FORGET_MAX:
                    self._due_us = 0
                    break
                forgot += 1
                self._forget(name.decode(), before)
            self._due_us = min(self._due_us, topic.due_us())
        if self.stages.due_us() <= now_us:
            self.parts.touch("stages")
            self._release(self.stages.drop(commands.Drop(now_us))[1])
        self._due_us = min(self._due_us, self.stages.due_us())

    # Snapshots.

    def part_names(self) -> list[str]:
        topics = sorted({topic.part for topic in self.topics.values()})
        used = {crc32(name.encode()) % SHARDS for name in self.subscriptions.known}
        shards = [f"subscriptions/{shard:02d}" for shard in sorted(used)]
        few = ["keyed"] * bool(self.keyed) + ["passed"] * bool(self.passed_over)
        return ["numbers", *few, "stages", *shards, *topics]

    def encode_part(self, name: str) -> bytes:
        if name == "numbers":
            return commands.encode((self.log_bytes, self._due_us, self._looked_us))
        if name == "passed":
            return commands.encode(sorted(self.passed_over))
        if name == "keyed":
            kept = ((topic.number, topic.compacted, topic.compacted_size) for topic in self.keyed.values())
            return commands.encode(sorted(kept))
        if name == "stages":
            return commands.encode(self.stages.saved())
        kind, _, number = name.partition("/")
        if kind == "subscriptions":
            shard = int(number)
            known = self.subscriptions.known.items()
            return commands.encode([one for one in known if crc32(one[0].encode()) % SHARDS == shard])
        first = int(number) * (BLOCK if kind == "t" else 1)
        names = self._names[first : first + (BLOCK if kind == "t" else 1)]
        return commands.encode([self._saved(one) for one in names if self.topics[one].part == name])

    def _saved(self, name: bytes) -> Any:
        topic = self.topics[name]
        bounds = (topic.first, topic.end, topic.latest, topic.size, topic.age_us, topic.size_bytes)
        return (name, topic.number, *bounds, topic.index.saved(), topic.spans.saved())

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        numbers: dict[int, bytes] = {}
        known: list[Any] = []
        keyed: list[tuple[int, int, int]] = []
        for part, data in parts:
            if part == "numbers":
                self.log_bytes, self._due_us, self._looked_us = msgspec.msgpack.decode(data, type=tuple[int, int, int])
            elif part == "passed":
                self.passed_over = set(msgspec.msgpack.decode(data, type=list[int]))
            elif part == "keyed":
                keyed = msgspec.msgpack.decode(data, type=list[tuple[int, int, int]])
            elif part == "stages":
                self.stages.restore(msgspec.msgpack.decode(data))
            elif part.startswith("subscriptions/"):
                known += msgspec.msgpack.decode(data)
            else:
                for name, number, first, end, latest, size, age_us, size_bytes, index, spans in msgspec.msgpack.decode(
                    data, type=list[_SavedTopic]
                ):
                    topic = self.topics[name] = Topic(number)
                    numbers[number] = name
                    topic.part = part
                    topic.first, topic.end, topic.latest, topic.size = first, end, latest, size
                    topic.age_us, topic.size_bytes = age_us, size_bytes
                    topic.index, topic.spans = TopicIndex.restored(index), Spans.restored(spans)
        self.subscriptions.restore(known)
        self._names = [numbers[number] for number in range(len(numbers))]
        ordered = {name: self.topics[name] for name in self._names}
        self.topics.clear()
        self.topics.update(ordered)
        for number, compacted, size in keyed:
            topic = self.keyed[numbers[number]] = self.topics[numbers[number]]
            topic.keyed, topic.compacted, topic.compacted_size = True, compacted, size

    def validate(self) -> None:
        """For tests."""
        for topic in self.topics.values():
            assert 0 <= topic.first <= topic.end
            assert not len(topic.index) or topic.index.offsets[0] <= topic.first
            assert len(topic.index) or topic.first == topic.end
            assert not len(topic.spans) or topic.spans[len(topic.spans) - 1].end == topic.end
            topic.index.validate()
            topic.spans.validate()
            assert topic.keyed == (topic in self.keyed.values()) and topic.compacted <= topic.end


def _latest_in(packed: bytes) -> int:
    return latest_of(packed, head_of(packed)) if packed else 0


def _compact_at(held: Sequence[bytes], place: int) -> commands.Compact | None:
    """A command that wrote a compacted stretch, if this is one."""
    if place >= len(held) or is_batch(held[place]):
        return None
    command = commands.command_of(held[place])
    return command if isinstance(command, commands.Compact) else None


def _packed_at(held: Sequence[bytes], place: int) -> bytes | None:
    """The batch of a command that staged it."""
    if place >= len(held):
        return None
    command = commands.command_of(held[place])
    return command.packed if isinstance(command, (commands.Stage, commands.Restage)) else None


_SavedIndex = tuple[list[bytes], int, int, bool]
_SavedSpans = tuple[list[bytes], int, int]
_SavedTopic = tuple[bytes, int, int, int, int, int, int, int, _SavedIndex, _SavedSpans]
