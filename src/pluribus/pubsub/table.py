"""All subscriptions of one member: which of them want which events of a batch?

Topics come first: the trie is asked once for each concrete topic and kind of body, and the answer is remembered until a
subscription comes or goes. Subscriptions without a condition are handed whole parts of a batch, still encoded. For the
others the bodies are decoded, once for all of them. A few conditions are checked one by one; many are in an index
(``filters.index``), which checks all events of a part at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import MalformedFrame, TooLarge
from ..core.limits import SUBSCRIPTIONS_MAX, TOPICS_CACHED_MAX, TOPICS_PER_BATCH_MAX
from ..wire.bodies import Kind
from .backlog import Backlog, Hold
from .batch import Arrived, Batch, Section
from .event import Event
from .interest import Interest, Now
from .trie import Trie

if TYPE_CHECKING:  # numpy: loaded when there are many conditions
    from ..filters.index import Index

INDEX_FROM = 24
"""With so many conditions an index is quicker than asking them one by one."""


class Reader(Protocol):
    """A subscription, as the table sees it."""

    interest: Interest
    backlog: Backlog

    def arrived(self) -> None:
        """Called when there are events in the backlog."""

    def hand_over(self, batch: Batch) -> bool:
        """Give the only event of a batch to a program that waits for it. False if none does: put it in the backlog."""

    def __hash__(self) -> int: ...


class Hits:
    """The subscriptions that want events of one topic and one kind."""

    __slots__ = ("checked", "plain")

    def __init__(self, plain: tuple[Reader, ...], checked: tuple[Reader, ...]) -> None:
        self.plain = plain
        self.checked = checked


NOBODY = Hits((), ())


class Table:
    def __init__(self, now: Now | None = None) -> None:
        self._trie: Trie[Reader] = Trie()
        self._known: dict[tuple[str, Kind], Hits] = {}
        self._same: dict[tuple[tuple[Reader, ...], tuple[Reader, ...]], Hits] = {}
        """Topics that the same readers want have the same hits."""
        self._now = now
        self._index: Index | None = None
        self._conditions = 0
        self.malformed = 0

    def __len__(self) -> int:
        return len(self._trie)

    def add(self, reader: Reader) -> None:
        if len(self._trie) >= SUBSCRIPTIONS_MAX:
            raise TooLarge(f"{SUBSCRIPTIONS_MAX:,} subscriptions are there already: close some, or use wider patterns")
        self._trie.add(reader.interest.pattern, reader)
        self._forget()
        if _indexable(reader):
            self._conditions += 1
            if self._index is not None:
                self._index_add(reader)

    def remove(self, reader: Reader) -> None:
        self._trie.remove(reader.interest.pattern, reader)
        self._forget()
        if _indexable(reader):
            self._conditions -= 1
            if self._index is not None:
                self._index.remove(id(reader))

    def changed(self, reader: Reader, before: bool) -> None:
        """A reader has another condition; ``before``: whether the old one was of the index."""
        if not before or reader.interest.plain:
            self._forget()  # it had no condition, or has none now, and topics are remembered with those who have none
        if before and self._index is not None:
            self._index.remove(id(reader))
        self._conditions += _indexable(reader) - before
        if _indexable(reader) and self._index is not None:
            self._index_add(reader)

    def of(self, topic: str, kind: Kind) -> Hits:
        hits = self._known.get((topic, kind))
        if hits is None:
            if len(self._known) >= TOPICS_CACHED_MAX:
                self._forget()
            hits = self._known[(topic, kind)] = self._look_up(topic, kind)
        return hits

    def _look_up(self, topic: str, kind: Kind) -> Hits:
        plain: list[Reader] = []
        checked: list[Reader] = []
        for reader in self._trie.match(topic):
            takes = reader.interest.takes(kind) if reader.interest.translate is None else None
            if takes is not False:
                (plain if takes and reader.interest.plain else checked).append(reader)
        if not plain and not checked:
            return NOBODY
        both = (tuple(plain), tuple(checked))
        return self._same.setdefault(both, Hits(*both))

    def _forget(self) -> None:
        self._known.clear()
        self._same.clear()

    def spread(self, arrived: Arrived, hold: Hold | None = None) -> None:
        """Put the events of a batch into the backlogs of the subscriptions that want them."""
        batch = arrived.batch
        (part, *more), topic = batch.parts, batch.parts[0].of
        if not more and isinstance(topic, int):  # the usual batch: one topic, and mostly one event
            hits = self.of(batch.topics[topic], part.kind)
            if not hits.checked:
                section = Section(arrived, part, 0)
                for reader in hits.plain:
                    reader.backlog.put(section, None, hold)
                    reader.arrived()
                return
        touched: dict[Reader, None] = {}
        for section in arrived.sections():
            try:
                self._spread_section(section, hold, touched)
            except MalformedFrame:
                self.malformed += section.part.count
        for reader in touched:
            reader.arrived()

    def _spread_section(self, section: Section, hold: Hold | None, touched: dict[Reader, None]) -> None:
        part = section.part
        if isinstance(part.of, int):
            self._give(self.of(section.topics[part.of], part.kind), section, None, hold, touched)
            return
        by_place = {place: self.of(section.topics[place], part.kind) for place in set(part.of)}
        first = by_place[part.of[0]]
        if all(hits is first for hits in by_place.values()):
            self._give(first, section, None, hold, touched)
            return
        places: dict[Reader, bytearray] = {}
        for place, hits in by_place.items():
            for reader in (*hits.plain, *hits.checked):
                places.setdefault(reader, bytearray(TOPICS_PER_BATCH_MAX))[place] = 1
        checked = {reader for hits in by_place.values() for reader in hits.checked}
        for reader, wanted in places.items():
            if reader not in checked:
                reader.backlog.put(section, part.of.translate(wanted), hold)
                touched[reader] = None
        if checked:
            self._check(checked, section, {r: part.of.translate(w) for r, w in places.items()}, hold, touched)

    def _give(
        self, hits: Hits, section: Section, some: bytes | None, hold: Hold | None, touched: dict[Reader, None]
    ) -> None:
        for reader in hits.plain:
            reader.backlog.put(section, some, hold)
            touched[reader] = None
        if hits.checked:
            self._check(hits.checked, section, {}, hold, touched)

    def _check(
        self,
        readers: Iterable[Reader],
        section: Section,
        some: dict[Reader, bytes],
        hold: Hold | None,
        touched: dict[Reader, None],
    ) -> None:
        """Ask the conditions. ``some`` says which events are under the topics of a reader, if not all."""
        one_by_one = list(readers)
        if self._conditions >= INDEX_FROM:
            indexed = {id(reader): reader for reader in one_by_one if _indexable(reader)}
            if len(indexed) >= INDEX_FROM:
                one_by_one = [reader for reader in one_by_one if not _indexable(reader)]
                self._ask_index(indexed, section, some, hold, touched)
        for reader in one_by_one:
            wanted = some.get(reader)
            chosen = reader.interest.chosen(section.events() if wanted is None else section.picked(wanted))
            if chosen:
                reader.backlog.put_events(chosen, hold)
                touched[reader] = None

    def _ask_index(
        self,
        indexed: dict[int, Reader],
        section: Section,
        some: dict[Reader, bytes],
        hold: Hold | None,
        touched: dict[Reader, None],
    ) -> None:
        events = section.events()
        found: dict[int, list[Event[Any]]] = {}
        for place, (event, keys) in enumerate(
            zip(events, self._indexed().match([event.body for event in events]), strict=True)
        ):
            for key in keys:
                reader = indexed.get(key)  # type: ignore[call-overload]
                if reader is not None and (reader not in some or some[reader][place]):
                    found.setdefault(id(reader), []).append(event)
        for key, chosen in found.items():
            reader = indexed[key]
            if reader.interest.type is not None:
                chosen = [event for event in chosen if isinstance(event.body, reader.interest.type)]
            if chosen:
                reader.backlog.put_events(chosen, hold)
                touched[reader] = None

    def _indexed(self) -> Index:
        if self._index is None:
            from ..filters.index import Index

            self._index = Index(now=self._now)
            for reader in self.readers():
                if _indexable(reader):
                    self._index_add(reader)
        return self._index

    def readers(self) -> Iterable[Reader]:
        return self._trie.keys()

    def _index_add(self, reader: Reader) -> None:
        assert self._index is not None and reader.interest.filter is not None
        self._index.add(id(reader), reader.interest.filter)

    def validate(self) -> None:
        self._trie.validate()
        readers = list(self.readers())
        assert self._conditions == sum(map(_indexable, readers))
        assert self._index is None or len(self._index) == self._conditions
        for reader in readers:
            reader.backlog.validate()


def _indexable(reader: Reader) -> bool:
    return reader.interest.filter is not None and reader.interest.by_body
