"""The part of streaming patterns that runs in executors, without Spark: against a matcher of one process."""

import math
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

import pandas as pd
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.streaming.tws_tester import _InMemoryStatefulProcessorHandle

from pluribus.core.errors import BadInput
from pluribus.patterns import Matcher
from pluribus.pipeline.pattern_workers import CERTAIN, LAYOUT, PatternProcessor
from pluribus.pipeline.patterns import _Plan
from tests.patterns.strategies import streams, texts
from tests.patterns.test_matcher import pattern_of
from tests.pipeline.prices import plain_row as plain

SCHEMA = T.StructType().add("i", T.LongType()).add("t", T.DoubleType()).add("k", T.StringType())
SCHEMA = SCHEMA.add("x", T.LongType()).add("s", T.StringType())
END = {"i": 0, "t": 1e6, "k": "end", "x": None, "s": None}


class Executors:
    """As Spark drives a processor: buckets with rows, then timers that the watermark has passed; then it moves."""

    def __init__(self, text, lateness_s=0.0, buckets=3, event_time=""):
        self.plan = _Plan(SimpleNamespace(schema=SCHEMA, columns=SCHEMA.names), pattern_of(text), event_time)
        self.lateness_s, self.buckets = lateness_s, buckets
        self.handle = _InMemoryStatefulProcessorHandle("EventTime")
        self.watermark_ms, self.newest = 0, -math.inf
        self.restart()

    def restart(self, buckets=None, text=None):
        crew = self.plan.crew(self.lateness_s)
        crew = crew._replace(buckets=buckets or self.buckets, text=text or crew.text)
        self.crew = crew
        self.processor = PatternProcessor(crew)
        self.processor.init(self.handle)

    def frame(self, events):
        rows = []
        for event in events:
            values = []
            for column in self.plan.sources:
                value = event[column.path[0]]
                values.append(str(value) if column.whole and value is not None else value)
            rows.append(values)
        columns = {f"v{number}": [row[number] for row in rows] for number in range(len(self.plan.sources))}
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        return frame.assign(event=pd.Series([None] * len(events), dtype=object))

    def batch(self, events):
        """The rows that come out of one micro-batch, and of the empty one that follows it."""
        buckets = {}
        for event in events:
            keys = [event[column.path[0]] for column in self.plan.keys]
            buckets.setdefault(crc32(repr(keys).encode()) % self.crew.buckets, []).append(event)
        found = []
        self.handle.setWatermark(self.watermark_ms)
        times = TimerValues(-1, self.watermark_ms)
        for bucket, some in [(LAYOUT, events[:1]), *sorted(buckets.items())]:
            if some:
                self.handle.setGroupingKey((bucket,))
                half = len(some) // 2
                frames = [self.frame(part) for part in (some[:half], some[half:]) if part]
                found += self.processor.handleInputRows((bucket,), iter(frames), times)
        self.newest = max([self.newest, *(event["t"] for event in events)])
        self.watermark_ms = max(self.watermark_ms, int((self.newest - self.lateness_s) * 1_000))
        return self.rows(found + self.timers())

    def timers(self):
        found = []
        self.handle.setWatermark(self.watermark_ms)
        times = TimerValues(-1, self.watermark_ms)
        timers = self.handle._timers
        for key in list(timers.getAllKeysWithTimers()):
            for expiry in [one for one in timers.listTimers(key) if one <= self.watermark_ms]:
                self.handle.setGroupingKey(key)
                found += self.processor.handleExpiredTimer(key, times, ExpiredTimerInfo(expiry))
                self.handle.deleteTimer(expiry)
        return found

    def rows(self, frames):
        return [tuple(row) for frame in frames for row in frame.itertuples(index=False)]


def shown(rows):
    """Keys, measures and the problem, as they leave a worker."""
    return sorted((tuple(map(plain, (*row[:-2], row[-1]))) for row in rows), key=repr)


def expected_of(matches):
    return sorted(
        (tuple(map(plain, (*match.partition.values(), *match.measures.values(), None))) for match in matches), key=repr
    )


@st.composite
def many_streams(draw):
    parts = draw(st.lists(streams(size_max=20), min_size=2, max_size=5))
    events = [{**event, "k": f"{event['k']}{number}"} for number, part in enumerate(parts) for event in part]
    return sorted(events, key=lambda event: event["t"])


@settings(max_examples=60, deadline=None)
@given(texts(), many_streams(), st.data())
def test_buckets_find_what_one_matcher_finds(text, events, data):
    """In micro-batches, each event late by up to four seconds, with restarts between them."""
    if "ALL ROWS" in text:
        return  # whole rows travel as Spark's JSON, which is tried with Spark itself
    delays = data.draw(st.lists(st.integers(0, 4), min_size=len(events), max_size=len(events)))
    order = sorted(range(len(events)), key=lambda number: events[number]["t"] + delays[number])
    arriving = [events[number] for number in order]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    batches = [arriving[low:high] for low, high in zip([0, *cuts], [*cuts, len(arriving)], strict=True)]
    matcher = Matcher(pattern_of(text), lateness_s=5)
    expected = [match for batch in [*batches, [END]] for match in matcher.feed(batch)]
    assert not matcher.problems
    executors = Executors(text, 5.0)
    found = []
    for batch in [*batches, [END]]:
        if batch:
            found += executors.batch(batch)
            if data.draw(st.booleans()):
                executors.restart()
    assert shown(found) == expected_of(expected)


RISING = """
    PARTITION BY k ORDER BY t, i
    MEASURES FIRST(t) AS began, LAST(x) AS x, COUNT(*) AS n
    PATTERN (A UP{2,}) WITHIN INTERVAL '10' SECOND DEFINE UP AS x > PREV(x)
"""


def event(time, x, k="p", i=0):
    return {"i": i, "t": float(time), "k": k, "x": x, "s": None}


def test_only_partitions_that_are_touched_are_read_and_written():
    executors = Executors(RISING, buckets=1)
    executors.batch([event(1, 1, k=f"k{number}") for number in range(1_000)])
    states = executors.processor._states
    reads, writes = [], []
    get, update = states.getValue, states.updateValue
    states.getValue = lambda key: (reads.append(key), get(key))[1]
    states.updateValue = lambda key, value: (writes.append(key), update(key, value))[1]
    executors.batch([event(2, 2, k=f"k{number}") for number in range(10)])
    assert (len(reads), len(writes)) == (10, 10)


def test_what_is_over_is_forgotten():
    text = "PARTITION BY k ORDER BY t PATTERN (A B) WITHIN INTERVAL '10' SECOND DEFINE B AS x > A.x"
    executors = Executors(text)
    executors.batch([event(1, 1, k=f"k{number}") for number in range(50)])
    executors.batch([END])
    kept = [key for bucket in executors.processor._states.state.values() for key in bucket]
    assert len(kept) == 1, "the end itself"
    assert sum(len(slots) for slots in executors.processor._due.state.values()) <= 1


def test_matches_carry_the_time_at_which_they_are_certain():
    executors = Executors(RISING, event_time="at")
    assert executors.crew.fields[-1] == (CERTAIN, "timestamp")
    assert executors.batch([event(1, 1), event(2, 2), event(3, 5)]) == []
    (row,) = executors.batch([event(50, 0, k="other")])
    assert row[:4] == ("p", 1.0, 5, 3)
    assert row[-1].timestamp() == 50.0, "Spark's watermark had passed its last row, of 3 s, before it was found"


def test_another_layout_is_refused():
    executors = Executors(RISING)
    executors.batch([event(1, 1)])
    executors.restart()
    executors.batch([event(2, 2)])
    executors.restart(buckets=7)
    with pytest.raises(BadInput, match=r"made with buckets=3, and buckets=7 would not find .*buckets=3"):
        executors.batch([event(3, 5)])
    executors.restart(text=RISING.replace("{2,}", "{3,}"))
    with pytest.raises(BadInput, match="made with another pattern"):
        executors.batch([event(3, 5)])
