"""One pass over a topic that keeps only the last event of each key: what is to be written once more, without the rest.

Theory of operation
-------------------
*First* the events that came since the pass before are read, and the last offset of each key is noted. *Then* the topic
is gone through from its beginning, a stretch at a time. An event stays if it has no key, if its key did not come again,
or if it is the last one of its key. Where anything goes, or where little is left beside little, the stretch is written
once more by ``Compact``, and the bytes that it had are free. At the end the machine is told how far the pass came.

Events keep their offsets, so there are gaps. A reader at an offset that is gone is given the next event that is there.

*Nothing can go wrong by it.* A pass looks at what is committed. An event goes only if a later one of its key stands
behind it, which stays, because topics lose events from their beginning only. A stretch that was written elsewhere
meanwhile, or got longer, is refused by the machine; the pass ends before it, and the next one comes to it. So a pass
may be broken off at any time, be done twice, or by two keepers at once.

Bounded: ``KEYS_MAX`` keys a pass; with more, it takes fewer of the new events, and the next pass takes the others.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from ..event import KEY
from .batch import StoredBatch
from .commands import Compact
from .machine import Topic
from .reading import Reading

KEYS_MAX = 1_000_000
SLICE_BYTES = 256 << 10
"""What is read in one step to note keys."""
STRETCH_BYTES = 256 << 10
"""A stretch with so much left is long enough."""
STRETCH_BYTES_MAX = 1 << 20
"""What a stretch may have had before."""
FRESH_BYTES_MIN = 256 << 10
SMALL_BYTES = 1 << 20
"""A topic with less than this is compacted as soon as anything came."""


def is_due(topic: Topic) -> bool:
    """Whether a pass is worth its work: what came is as much as all that was kept before."""
    fresh = topic.fresh_bytes
    if topic.compacted >= topic.end or topic.first == topic.end:
        return False
    kept = topic.kept_bytes
    return kept <= SMALL_BYTES or fresh >= max(kept - fresh, FRESH_BYTES_MIN)


class Compaction:
    """``step`` until it is ``done``. A command that it gives is ordered, then ``answered``, before the next step."""

    def __init__(self, reading: Reading, name: str, topic: Topic) -> None:
        self._reading = reading
        self.name = name
        self.topic = topic
        self._last: dict[bytes, int] = {}
        """By the digest of a key: the offset of its last event."""
        self._begun = self._noted = max(topic.compacted, topic.first)
        self._end = self._stop = topic.end
        """Up to where keys are noted, and would be if there were room for all."""
        self._size, self._fresh = topic.size, topic.fresh_bytes
        self._at: int | None = None
        """Where the next stretch begins; None while keys are noted."""
        self.done = False
        self.dropped = 0
        """Events that were left out so far."""

    def step(self) -> Compact | None:
        """A slice of the work; what is to be ordered, if anything is."""
        if self._noted < self._end:
            self._note()
            return None
        if self._at is None:
            spans = self.topic.spans
            self._at = spans[0].start if len(spans) else self._end
        if self._at < self._end:
            return self._stretch(self._at)
        self.done = True
        left = (self._stop - self._end) / max(self._stop - self._begun, 1)
        return Compact(
            self.name.encode(), self._end, self._end, [], [], self._end, self._size - int(left * self._fresh)
        )

    def answered(self, written: bool) -> None:
        """A stretch was written, or it is not as it was: then the pass ends before it."""
        if not written and not self.done:
            assert self._at is not None
            self._end = self._at = self._before

    _before = 0

    def _note(self) -> None:
        pieces, upto = self._reading.read(self.name, self._noted, self._end, SLICE_BYTES)
        for offset, packed in pieces:
            for at, key in _keys_of(StoredBatch(packed, offset).cut(self._noted, self._end)):
                if key is not None:
                    self._last[key] = at
        self._noted = upto
        if len(self._last) >= KEYS_MAX:
            self._end = upto

    def _stretch(self, start: int) -> Compact | None:
        """From this span on, as many as make one stretch."""
        spans = self.topic.spans
        number = spans.at(start)
        if number >= len(spans) or spans[number].start != start:  # retention took it, or another pass was here
            self._at = self._end
            if number < len(spans):
                self._at = spans[number].start if spans[number].start > start else spans[number].end
            return None
        rows: list[int] = []
        batches: list[tuple[int, bytes]] = []
        before = left = gone = 0
        end = start
        while number < len(spans) and spans[number].start < self._end and left < STRETCH_BYTES:
            span = spans[number]
            if rows and before + span.size > STRETCH_BYTES_MAX:
                break
            for offset, kept, dropped in self._kept(span.start, span.end):
                gone += dropped
                if kept:
                    batches.append((offset, kept))
                    left += len(kept)
            before += span.size
            rows.append(span.row)
            end = span.end
            number += 1
        self._before, self._at = start, end
        if not gone and len(rows) == 1:
            return None
        if not batches or batches[0][0] > start:
            batches.insert(0, (start, b""))
        self.dropped += gone
        return Compact(self.name.encode(), start, end, rows, batches)

    def _kept(self, start: int, stop: int) -> list[tuple[int, bytes, int]]:
        """Of each batch of a span: its offset, what is left of it, and how many events are not."""
        found: list[tuple[int, bytes, int]] = []
        at = max(start, self.topic.first)
        while at < stop:
            pieces, behind = self._reading.read(self.name, at, stop, SLICE_BYTES)
            for offset, packed in pieces:
                batch = StoredBatch(packed, offset).cut(at, stop)
                keys = _keys_of(batch)
                which = [
                    place for place, (one, key) in enumerate(keys) if key is None or self._last.get(key, one) <= one
                ]
                kept = batch if len(which) == len(batch) else batch.chosen(which) if which else None
                found.append((offset, b"" if kept is None else kept.data, len(batch) - len(which)))
            at = behind
        return found


def _keys_of(batch: StoredBatch) -> list[tuple[int, bytes | None]]:
    """Of each event: its offset, and the digest of its key."""
    headers, offsets = batch.extra.headers, batch.offsets.tolist()
    if not headers:
        return [(offset, None) for offset in offsets]
    return [
        (offset, None if one is None or KEY not in one else digest(one[KEY]))
        for offset, one in zip(offsets, headers, strict=True)
    ]


def digest(key: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(key), digest_size=16).digest()
