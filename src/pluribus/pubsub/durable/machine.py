"""Durable topics as a state machine over the keepers' log.

The log is the truth and holds the events; the state is what is needed to find them again, and is small: for each topic
its bounds and a sparse index, for each publisher the last sequence, for each durable subscription its offsets, and what
writers have staged. A snapshot of it costs the same for a thousand events and for ten million.

**Promises.** Events of a topic have offsets 0, 1, 2, …, the same at every keeper and for ever. A batch that its
publisher sends again is there once, and gets the offset of the first time. Events of one publisher and topic stand in
the order in which it published them: a batch whose predecessor is missing is refused. What a writer commits becomes
visible at one offset after another, with nothing between, or not at all.

A batch that was refused, or was there before, still stands in the log. ``passed_over`` remembers these few, so that a
reader who goes from row to row knows what does not count.

What a command did depends on the commands before it and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...core.errors import MalformedFrame
from ...core.limits import DURABLE_SESSIONS_MAX, DURABLE_TOPICS_MAX
from ...core.packing import outline_plain
from ...group.once import OrderedSessions
from . import commands
from .batch import head_of, is_batch, latest_of, outline_of, topic_of
from .commands import AGAIN, DONE, REFUSED, Outcome
from .index import Index
from .stages import Part, Stages
from .subscriptions import Bounds, Subscriptions

RESULTS_MAX = 64
"""Batches of one publisher whose offsets are remembered: as many may be under way."""
PLACE_BITS = 20
"""A command in the log is named by its row, and below that its place in it."""


class Topic:
    """One topic: its bounds, and where its events are."""

    __slots__ = ("age_us", "end", "first", "index", "latest", "size", "size_bytes")

    def __init__(self) -> None:
        self.first = 0
        self.end = 0
        self.latest = 0
        """The latest time of any event so far."""
        self.size = 0
        """Bytes of all events that ever were."""
        self.age_us = 0
        self.size_bytes = 0
        self.index = Index()

    @property
    def bounds(self) -> Bounds:
        return (self.first, self.end)

    @property
    def kept_bytes(self) -> int:
        """About: whole spans are counted."""
        return self.size - (self.index.sizes[0] if len(self.index) else self.size)

    def outdated(self, now_us: int) -> int:
        """Below which offset nothing must be kept any more, to the next entry of the index."""
        index, before = self.index, self.first
        for at in range(1, len(index)):
            old = self.age_us and index.times[at] < now_us - self.age_us
            if not (old or (self.size_bytes and self.size - index.sizes[at] >= self.size_bytes)):
                break
            before = max(before, index.offsets[at])
        if self.age_us and self.end and self.latest < now_us - self.age_us:
            before = self.end
        return before


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


class Topics:
    """The state. ``apply`` is handed each command once, with its place in the log."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.topics: dict[bytes, Topic] = {}
        self.sessions = OrderedSessions(DURABLE_SESSIONS_MAX, RESULTS_MAX)
        self.subscriptions = Subscriptions()
        self.stages = Stages()
        self.passed_over: set[int] = set()
        self.bounds: Mapping[str, Bounds] = _Bounds(self.topics)
        self.log_bytes = 0

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name.encode())

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        self.log_bytes += len(command)
        try:
            if is_batch(command):
                outcome = self._append(row, place, command)
                if outcome.status != DONE:
                    self.passed_over.add(row << PLACE_BITS | place)
                return outcome
            return self._do(row, place, commands.command_of(command))
        except MalformedFrame as error:
            if is_batch(command):
                self.passed_over.add(row << PLACE_BITS | place)
            return Outcome(REFUSED, 0, str(error))

    def _append(self, row: int, place: int, command: bytes) -> Outcome:
        session, first, last, events, name, latest = outline_plain(command) or outline_of(command)
        sessions = self.sessions
        due = sessions.next(session)
        if first != due:
            return self._not_next(session, first, last, due)
        topic = self.topics.get(name)
        if topic is None:
            if len(self.topics) >= DURABLE_TOPICS_MAX:
                return Outcome(REFUSED, due, f"{DURABLE_TOPICS_MAX:,} durable topics are there: use one of them")
            topic = self.topics[name] = Topic()
        offset = topic.end
        topic.index.add(offset, row, place, topic.latest, topic.size, latest, self.log_bytes)
        self._extend(topic, events, len(command), latest)
        sessions.record(session, last, offset.to_bytes(8, "little"))
        return Outcome(DONE, offset)

    def _not_next(self, session: int, first: int, last: int, due: int) -> Outcome:
        """It was done before, or something before it is missing."""
        if last >= due:
            return Outcome(REFUSED, due, f"sequence {due} of this publisher is next, not {first}")
        known = self.sessions.earlier(session, last)
        found = known.result if known is not None else b""
        return Outcome(AGAIN, int.from_bytes(found, "little") if found else -1)

    @staticmethod
    def _extend(topic: Topic, events: int, size: int, latest: int) -> None:
        topic.end += events
        topic.size += size
        topic.latest = max(topic.latest, latest)

    def _do(self, row: int, place: int, command: commands.Command) -> Outcome:
        if isinstance(command, commands.Commit):
            return self.subscriptions.commit(command, self.bounds)
        if isinstance(command, commands.Attach):
            return self.subscriptions.attach(command, self.bounds)
        if isinstance(command, commands.Detach):
            return self.subscriptions.detach(command)
        if isinstance(command, commands.Stage):
            head = head_of(command.packed)
            name, latest = topic_of(command.packed, head), latest_of(command.packed, head)
            if name not in self.topics and len(self.topics) >= DURABLE_TOPICS_MAX:
                return Outcome(REFUSED, 0, f"{DURABLE_TOPICS_MAX:,} durable topics are there: use one of them")
            return self.stages.stage(command, Part(row, place, head.events, len(command.packed), latest, name))
        if isinstance(command, commands.Publish):
            return self._publish(command)
        if isinstance(command, commands.Drop):
            return self.stages.drop(command)
        if isinstance(command, commands.Retain):
            return self._retain(command)
        return self._forget(command)

    def _publish(self, command: commands.Publish) -> Outcome:
        outcome, parts = self.stages.publish(command)
        for part in parts:
            topic = self.topics.setdefault(part.topic, Topic())
            topic.index.graft(topic.end, part.row, part.place, topic.latest, topic.size)
            self._extend(topic, part.events, part.size, part.latest)
        return outcome

    def _retain(self, command: commands.Retain) -> Outcome:
        topic = self.topics.setdefault(command.topic.encode(), Topic())
        topic.age_us, topic.size_bytes = command.age_us, command.size_bytes
        return Outcome(DONE)

    def _forget(self, command: commands.Forget) -> Outcome:
        topic = self.topic(command.topic)
        if topic is None:
            return Outcome(REFUSED, 0, f"there is no durable topic {command.topic!r}")
        if command.before <= topic.first:
            return Outcome(AGAIN, topic.first)
        topic.first = min(command.before, topic.end)
        if topic.first == topic.end:
            stretch = topic.index.stretch
            topic.index = Index()
            topic.index.stretch = stretch
        else:
            topic.index.forget(topic.first)
        return Outcome(DONE, topic.first)

    # What the owner of the log asks.

    def first_row(self) -> int | None:
        """Rows below it hold nothing that is read again; None if no row does. It looks at every topic."""
        rows = [topic.index.first_row() for topic in self.topics.values() if len(topic.index)]
        staged = self.stages.first_row()
        first = min([*rows, staged] if staged is not None else rows, default=None)
        if self.passed_over:
            self.passed_over = {at for at in self.passed_over if first is not None and at >> PLACE_BITS >= first}
        return first

    def due(self, now_us: int) -> list[commands.Command]:
        """What a leader has to order as time goes by: retention, and the end of leases."""
        wanted: list[commands.Command] = []
        for name, topic in self.topics.items():
            if (topic.age_us or topic.size_bytes) and topic.end > topic.first:
                before = topic.outdated(now_us)
                if before > topic.first:
                    wanted.append(commands.Forget(name.decode(), before))
        if self.stages.overdue(now_us):
            wanted.append(commands.Drop(now_us))
        return wanted

    def snapshot(self) -> bytes:
        topics = [
            (name, t.first, t.end, t.latest, t.size, t.age_us, t.size_bytes, t.index.saved())
            for name, t in self.topics.items()
        ]
        parts = (self.subscriptions.saved(), self.stages.saved(), sorted(self.passed_over), self.log_bytes)
        return commands.encode((topics, self.sessions.snapshot(), *parts))

    def restore(self, state: bytes) -> None:
        self._clear()
        if not state:
            return
        topics, sessions, subscriptions, stages, passed, self.log_bytes = msgspec.msgpack.decode(state, type=_Saved)
        for name, first, end, latest, size, age_us, size_bytes, index in topics:
            topic = self.topics[name] = Topic()
            topic.first, topic.end, topic.latest, topic.size = first, end, latest, size
            topic.age_us, topic.size_bytes = age_us, size_bytes
            topic.index = Index.restored(index)
        self.sessions.restore(sessions)
        self.subscriptions.restore(subscriptions)
        self.stages.restore(stages)
        self.passed_over = set(passed)

    def validate(self) -> None:
        """For tests."""
        for topic in self.topics.values():
            assert 0 <= topic.first <= topic.end
            assert not len(topic.index) or topic.index.offsets[0] <= topic.first
            assert len(topic.index) or topic.first == topic.end
            topic.index.validate()


_SavedIndex = tuple[list[bytes], int, int, bool]
_SavedTopic = tuple[bytes, int, int, int, int, int, int, _SavedIndex]
_Saved = tuple[list[_SavedTopic], bytes, Any, Any, list[int], int]
