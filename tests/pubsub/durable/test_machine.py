"""Durable topics as a state machine: single promises by example, all of them against a list of events."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.core.errors import BadInput
from pluribus.group.host import space
from pluribus.group.host.words import Together, encode
from pluribus.pubsub.durable import index
from pluribus.pubsub.durable.batch import StoredBatch
from pluribus.pubsub.durable.commands import (
    AGAIN,
    DONE,
    EARLIEST,
    LATEST,
    REFUSED,
    Attach,
    Commit,
    Detach,
    Drop,
    Forget,
    Publish,
    Retain,
    Stage,
)
from pluribus.pubsub.durable.compaction import Compaction
from pluribus.pubsub.durable.stages import Stages
from pluribus.pubsub.durable.sweep import Sweep
from tests.pubsub.durable.rows import MemoryRows, batch


def test_a_batch_that_is_sent_again_is_there_once():
    log = MemoryRows()
    first, second = batch("t", 1, 1, [b"a", b"b"]), batch("t", 1, 3, [b"c"])
    assert [found.number for found in log.append(first, second)] == [0, 2]
    again = log.append(second, first)
    assert [(found.status, found.number) for found in again] == [(AGAIN, 2), (AGAIN, 0)]
    log.append(batch("t", 2, 1, [b"d"]))
    assert log.events("t", 0, 10) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_a_batch_whose_predecessor_is_missing_is_refused():
    log = MemoryRows()
    (outcome,) = log.append(batch("t", 1, 2, [b"b"]))
    assert (
        outcome.status == REFUSED and outcome.number == 1 and "sequence 1 of this publisher is next" in outcome.reason
    )
    assert log.events("t", 0, 10) == []
    log.append(batch("t", 1, 1, [b"a"]), batch("t", 1, 2, [b"b"]))
    assert log.events("t", 0, 10) == [(0, b"a"), (1, b"b")]


def test_offsets_that_retention_removed_are_named():
    log = MemoryRows()
    for number in range(10):
        log.append(batch("t", 1, number + 1, [b"%d" % number], time=number))
    log.do(Forget("t", 4))
    with pytest.raises(BadInput, match="offset 3 of 't' was removed by retention: the first that is kept is 4"):
        log.reading.read("t", 3, 10, 1_000)
    with pytest.raises(BadInput, match="beyond its end 10"):
        log.reading.read("t", 11, 20, 1_000)
    with pytest.raises(BadInput, match="no durable topic 'u'"):
        log.reading.read("u", 1, 20, 1_000)
    assert log.events("t", 4, 10) == [(number, b"%d" % number) for number in range(4, 10)]


def test_retention_by_age_and_by_size(monkeypatch):
    monkeypatch.setattr(index, "SPAN_EVENTS", 1)
    log = MemoryRows()
    for number in range(10):
        log.append(batch("t", 1, number + 1, [b"%d" % number * 100], time=number * 1_000_000))
    log.do(Retain("t", age_us=4_000_000))
    assert log.topics.due_us() is not None
    log.tick(9_500_000)
    assert log.topics.topic("t").bounds == (6, 10)
    size = log.topics.topic("t").kept_bytes
    log.do(Retain("t", size_bytes=size // 2))
    log.tick(9_500_000)
    assert log.topics.topic("t").bounds == (8, 10) and log.topics.topic("t").kept_bytes == size // 2
    assert log.topics.due_us() is None, "nothing gets too old, and nothing is too much"
    log.do(Retain("t", age_us=1))
    assert log.topics.due_us() <= log.time_us + 1_000_000
    log.tick(1 << 50)
    assert log.topics.topic("t").bounds == (10, 10)
    log.append(batch("t", 1, 11, [b"new"], time=1 << 50))
    assert log.host.space.live == len(log.rows[-1][0]), "all the rest is free"
    assert log.events("t", 10, 11) == [(10, b"new")]


def test_offsets_by_time():
    log = MemoryRows()
    for number in range(3_000):
        log.append(batch("t", 1, number + 1, [b""], time=number * 10))
    assert [log.reading.offset_at("t", time) for time in (-5, 0, 1, 15_000, 29_990, 29_991)] == [
        0,
        0,
        1,
        1_500,
        2_999,
        3_000,
    ]
    assert log.reading.offset_at("u", 5) == 0


def test_a_consumer_that_was_replaced_commits_nothing():
    log = MemoryRows()
    log.append(batch("a/x", 1, 1, [b"1", b"2", b"3"]), batch("b/x", 2, 1, [b"4"]))
    (first,) = log.do(Attach("desk", 11, ["a/+"], EARLIEST))
    assert (first.status, first.number, first.offsets) == (DONE, 1, {"a/x": 0})
    assert log.do(Commit("desk", 1, {"a/x": 2}))[0].status == DONE
    (second,) = log.do(Attach("desk", 12, ["a/+"], EARLIEST))
    assert (second.number, second.offsets) == (2, {"a/x": 2})
    assert log.do(Attach("desk", 12, ["a/+"], EARLIEST))[0].number == 2
    late = log.do(Commit("desk", 1, {"a/x": 3}))[0]
    assert late.status == REFUSED and "another consumer took over" in late.reason
    log.do(Commit("desk", 2, {"a/x": 1}))
    assert log.topics.subscriptions.known["desk"].offsets == {"a/x": 2}
    log.reopen()
    assert log.topics.subscriptions.known["desk"].offsets == {"a/x": 2}
    assert [log.do(Detach("desk"))[0].status for _ in range(2)] == [DONE, AGAIN]
    assert log.do(Attach("desk", 13, ["#"], LATEST))[0].offsets == {"a/x": 3, "b/x": 1}


def test_what_a_writer_commits_is_visible_at_once_and_once():
    log = MemoryRows()
    log.append(batch("t", 1, 1, [b"before"]))
    log.do(
        Stage("q", 0, "task-0", 0, 5, 100, batch("t", 21, 1, [b"a", b"b"])),
        Stage("q", 0, "task-1", 0, 5, 100, batch("t", 22, 1, [b"c"])),
        Stage("q", 0, "task-1-again", 0, 5, 100, batch("t", 23, 1, [b"c"])),
        Stage("q", 0, "task-0", 1, 5, 100, batch("t", 21, 3, [b"d"])),
    )
    assert log.do(Stage("q", 0, "task-0", 1, 5, 100, batch("t", 21, 3, [b"d"])))[0].status == AGAIN
    assert log.do(Stage("q", 0, "task-0", 3, 5, 100, batch("t", 21, 4, [b"e"])))[0].status == REFUSED
    log.append(batch("t", 1, 2, [b"between"]))
    assert log.events("t", 0, 9) == [(0, b"before"), (1, b"between")]
    missing = log.do(Publish("q", 0, [("task-0", 3)]))[0]
    assert missing.status == REFUSED and "has 2 parts and not 3" in missing.reason
    assert log.do(Publish("q", 0, [("task-0", 2), ("task-1", 1)]))[0].status == DONE
    log.append(batch("t", 1, 3, [b"after"]))
    wanted = list(enumerate([b"before", b"between", b"a", b"b", b"d", b"c", b"after"]))
    assert log.events("t", 0, 9) == wanted
    again = log.do(
        Publish("q", 0, [("task-0", 2), ("task-1", 1)]), Stage("q", 0, "x", 0, 5, 100, batch("t", 9, 1, [b"e"]))
    )
    assert [found.status for found in again] == [AGAIN, AGAIN] and log.topics.stages.last("q") == 0
    log.reopen()
    assert log.events("t", 0, 9) == wanted and len(log.topics.stages) == 0


def test_what_nobody_commits_goes_with_its_lease():
    log = MemoryRows()
    log.do(Stage("q", 0, "task", 0, 5, 100, batch("t", 1, 1, [b"a"])))
    assert log.host.space.live and log.topics.due_us() >= 105
    log.tick(104)
    assert len(log.topics.stages) == 1
    log.tick(105)
    assert len(log.topics.stages) == 0 and log.host.space.live == 0
    assert log.do(Publish("q", 0, [("task", 1)]))[0].status == REFUSED


def written(writer, query, number, *, anew=False, at=0, keep=0):
    """Stage and commit one event as a writer; what came of the commit."""
    packed = batch("t", 1_000 + number, 1, [b"%s %d" % (query.encode(), number)])
    return (
        Stage(writer, number, "task", 0, 5, 1 << 40, packed, query, anew),
        Publish(writer, number, [("task", 1)], query, anew, at, keep),
    )


def test_a_writer_belongs_to_one_query():
    """A new checkpoint counts its batches from 0 again: they are not those that were committed under the name."""
    log = MemoryRows()
    log.do(*written("w", "one", 0), *written("w", "one", 1))
    assert [found.status for found in log.do(*written("w", "one", 1))] == [AGAIN, AGAIN]
    staged, published = log.do(*written("w", "two", 0))
    assert staged.status == published.status == REFUSED
    for word in ("another query, which committed batch 1", "checkpoint of that query", "foreign='begin'"):
        assert word in staged.reason and word in published.reason
    assert log.do(Publish("w", 7, [], "two"))[0].status == REFUSED  # nothing to stage is no excuse
    log.reopen()
    assert [found.status for found in log.do(*written("w", "two", 0, anew=True))] == [DONE, DONE]
    for query, last in (("one", 1), ("two", 0)):  # each has a memory of its own from now on
        assert log.topics.stages.last("w", query) == last
        assert [found.status for found in log.do(*written("w", query, last))] == [AGAIN, AGAIN]
        assert [found.status for found in log.do(*written("w", query, last + 1))] == [DONE, DONE]
    assert [body for _, body in log.events("t", 0, 9)] == [b"one 0", b"one 1", b"two 0", b"one 2", b"two 1"]


def test_what_one_query_stages_another_neither_publishes_nor_drops():
    log = MemoryRows()
    stages = [written("w", query, 0)[0] for query in ("one", "two")]
    other = Stage("w", 0, "other", 0, 5, 1 << 40, stages[1].packed, "two")
    log.do(stages[0], other)
    assert log.do(Publish("w", 0, [("other", 1)], "one"))[0].status == REFUSED
    log.do(Drop(0, "w", 0, "two"))
    assert len(log.topics.stages) == 1
    log.do(other, Publish("w", 0, [("task", 1)], "one"))
    assert len(log.topics.stages) == 1 and log.do(Publish("w", 0, [("other", 1)], "two", True))[0].status == DONE


def test_idle_writers_are_forgotten():
    """By the time that comes with commands; a writer that goes on is remembered on."""
    log = MemoryRows()
    log.do(*written("idle", "q", 0, at=10, keep=100), *written("busy", "q", 0, at=20, keep=100))
    log.do(*written("api", "", 0), *written("busy", "q", 1, at=90, keep=100))
    log.tick(109)
    assert log.topics.stages.last("idle", "q") == 0
    log.tick(110)
    assert [log.topics.stages.last(name, "q") for name in ("idle", "busy")] == [-1, 1]
    log.reopen()
    log.tick(189)
    assert log.topics.stages.last("busy", "q") == 1
    log.tick(190)
    assert log.topics.stages.last("api") == 0 and log.topics.stages.remembered == 1


def test_one_writer_more_than_are_remembered_is_refused_until_some_are_forgotten(monkeypatch):
    monkeypatch.setattr("pluribus.pubsub.durable.stages.WRITERS_MAX", 3)
    log = MemoryRows()
    for number in range(3):
        log.do(*written(f"w{number}", "q", 0, at=10 + number, keep=100))
    assert "3 writers are known" in log.do(*written("one more", "q", 0, at=20, keep=100))[1].reason
    assert log.do(*written("w0", "q", 1, at=20, keep=100))[1].status == DONE
    log.tick(111)
    assert log.do(*written("one more", "q", 0, at=120, keep=100))[1].status == DONE


def test_a_writer_without_a_query_goes_on_with_one():
    stages = Stages()
    stages.restore(([], [("w", 4)]))
    assert stages.last("w") == 4
    assert stages.publish(Publish("w", 4, [], "new checkpoint"))[0].status == REFUSED
    assert stages.publish(Publish("w", 5, [], "the old one"))[0].status == DONE
    assert stages.publish(Publish("w", 6, [], "another one"))[0].status == REFUSED


def test_a_sweep_tells_what_is_gone_and_what_was_never_there():
    log = MemoryRows()
    for number in range(10):
        log.append(batch("t", 1, number + 1, [b"%d" % number]))
    log.do(Forget("t", 4))
    sweep = Sweep(log.reading, [("t", 3, 10), ("u", 0, 5), ("v", 2, 2)])
    assert (sweep.gone, sweep.short, sweep.done) == ([(0, 4)], [(1, 0)], True)
    sweep = Sweep(log.reading, [("t", 4, 12)])
    assert sweep.short == [(0, 10)] and len(sweep.step(1 << 20)) == 6 and sweep.done and sweep.left == []
    assert Sweep(log.reading, [("t", 15, 20)]).short == [(0, 15)]


def test_a_command_that_cannot_be_read_is_refused_and_changes_nothing():
    log = MemoryRows()
    log.append(batch("t", 1, 1, [b"a"]))
    outcomes = log.append(b"\xc1nonsense", b"", b"\x93\x01\x02", batch("t", 1, 2, [b"b"]))
    assert [found.status for found in outcomes] == [REFUSED, REFUSED, REFUSED, DONE]
    assert log.events("t", 0, 9) == [(0, b"a"), (1, b"b")]


TOPICS = ("a", "b", "a/c")
SPANS = ((1, 1 << 40, 1 << 16), (3, 200, 6), (1_024, 1 << 40, 1 << 16))
"""Dense, thinned and sparse indices must find the same."""


def key_of(body):
    """What its number leaves over when it is divided by four; those that leave 3 over have no key."""
    return None if int(body) % 4 == 3 else str(int(body) % 4)


class AgainstAList(RuleBasedStateMachine):
    """Publishers, writers, retention, trimming and reopening, beside plain lists."""

    def __init__(self):
        super().__init__()
        self.log = MemoryRows()
        self.lists = {topic: [] for topic in TOPICS}
        self.firsts = dict.fromkeys(TOPICS, 0)
        self.sequences = {}
        self.sent = []
        self.staged = {}
        self.number = 0
        self.patched = pytest.MonkeyPatch()

    @initialize(spans=st.sampled_from(SPANS), extent=st.sampled_from((1, 300, 2_000)))
    def choose_spans(self, spans, extent):
        for name, value in zip(("SPAN_EVENTS", "SPAN_BYTES", "ENTRIES_MAX"), spans, strict=True):
            self.patched.setattr(index, name, value)
        self.patched.setattr(space.LogExtents, "extent_bytes", extent)

    def wanted(self, topic, start, stop):
        """What is to be read there: events that a later one of their key replaced are None."""
        found = list(enumerate(self.lists[topic]))[start:stop]
        return [(offset, body) for offset, body in found if body is not None]

    def bodies(self, count):
        self.number += count
        return [b"%d" % number for number in range(self.number - count, self.number)]

    @rule(topic=st.sampled_from(TOPICS), publisher=st.integers(0, 2), counts=st.lists(st.integers(1, 5), max_size=4))
    def publish(self, topic, publisher, counts):
        session = 10 * publisher + TOPICS.index(topic) + 1
        row = []
        for count in counts:
            bodies = self.bodies(count)
            first = self.sequences.get(session, 0) + 1
            self.sequences[session] = first + count - 1
            self.lists[topic] += bodies
            row.append(batch(topic, session, first, bodies, time=self.number, keys=map(key_of, bodies)))
        self.sent += row
        assert all(found.status == DONE for found in self.log.append(*row))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def publish_again(self, data):
        (outcome,) = self.log.append(data.draw(st.sampled_from(self.sent[-20:])))
        assert outcome.status == AGAIN

    @rule(topic=st.sampled_from(TOPICS), gap=st.integers(2, 5))
    def publish_with_a_gap(self, topic, gap):
        session = TOPICS.index(topic) + 1
        (outcome,) = self.log.append(batch(topic, session, self.sequences.get(session, 0) + gap, [b"never"]))
        assert outcome.status == REFUSED

    @rule(topic=st.sampled_from(TOPICS), attempt=st.sampled_from("xy"), count=st.integers(1, 4))
    def stage(self, topic, attempt, count):
        bodies = self.bodies(count)
        parts = self.staged.setdefault(attempt, [])
        number = self.log.topics.stages.last("w") + 1
        packed = batch(topic, 1_000 + self.number, 1, bodies, time=self.number, keys=map(key_of, bodies))
        assert self.log.do(Stage("w", number, attempt, len(parts), 0, 1 << 40, packed))[0].status == DONE
        parts.append((topic, bodies))

    @precondition(lambda self: self.staged)
    @rule(data=st.data())
    def commit(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.staged)), unique=True, min_size=1))
        number = self.log.topics.stages.last("w") + 1
        wanted = [(attempt, len(self.staged[attempt])) for attempt in chosen]
        assert [found.status for found in self.log.do(*[Publish("w", number, wanted)] * 2)] == [DONE, AGAIN]
        for attempt in chosen:
            for topic, bodies in self.staged[attempt]:
                self.lists[topic] += bodies
        self.staged = {}

    @rule(topic=st.sampled_from(TOPICS), share=st.floats(0, 1))
    def forget(self, topic, share):
        first, end = self.firsts[topic], len(self.lists[topic])
        before = first + int((end - first) * share)
        if self.log.do(Forget(topic, before))[0].status == DONE:
            self.firsts[topic] = before
            self.log.trim()

    @rule(topic=st.sampled_from(TOPICS), steps=st.integers(1, 40))
    def compact(self, topic, steps):
        """A pass, which may be broken off at any step."""
        self.log.do(Retain(topic, keys=True))
        held, first = self.lists[topic], self.firsts[topic]
        one = Compaction(self.log.reading, topic, self.log.topics.topic(topic))
        while not one.done and steps:
            steps -= 1
            wanted = one.step()
            if wanted is not None:
                (outcome,) = self.log.do(wanted)
                one.answered(outcome.status == DONE)
                assert outcome.status == DONE
        if one.done:
            end = len(held)
            last = {key_of(body): offset for offset, body in enumerate(held) if body is not None}
            for offset in range(first, end):
                key = None if held[offset] is None else key_of(held[offset])
                if key is not None and last[key] != offset:
                    held[offset] = None
        else:  # what was written so far lacks what was replaced, and what was not yet has it
            there = dict(self.log.events(topic, first, len(held)))
            for offset in range(first, len(held)):
                if held[offset] is not None and offset not in there:
                    key = key_of(held[offset])
                    assert key is not None and any(body and key_of(body) == key for body in held[offset + 1 :])
                    held[offset] = None
        self.log.trim()

    @rule()
    def reopen(self):
        self.log.reopen()

    @rule()
    def write_forward(self):
        """What is needed is written once more, and where it stood is free."""
        stop = self.log.host.space.last_extent if self.log.rows else 0
        self.log.forward()
        self.log.trim()
        assert not any(self.log.rows[self.log.start : stop]), "all that was needed of these rows stands elsewhere"

    @rule(topic=st.sampled_from(TOPICS), other=st.sampled_from(TOPICS), counts=st.tuples(*[st.integers(1, 3)] * 2))
    def publish_together(self, topic, other, counts):
        """In a transaction: all of it, or nothing."""
        batches = []
        for name, count in zip((topic, other), counts, strict=True):
            session = 500 + TOPICS.index(name)
            bodies = self.bodies(count)
            first = self.sequences.get(session, 0) + 1
            self.sequences[session] = first + count - 1
            self.lists[name] += bodies
            batches.append(batch(name, session, first, bodies, time=self.number, keys=map(key_of, bodies)))
        self.number += 1
        transaction = Together(77, self.number, 0, [(1, batches)])
        (refused,) = self.log.append(
            encode(msgspec.structs.replace(transaction, sequence=0, parts=[(1, [*batches, b"no batch"])])), machine=0
        )
        assert refused.status == REFUSED and "only events" in refused.reason
        done, again = self.log.append(encode(transaction), encode(transaction), machine=0)
        assert (done.status, again.status) == (DONE, AGAIN)
        assert [found.number for found in done.results[0]] == [found[1] for found in again.results[0]]

    @rule(topic=st.sampled_from(TOPICS), data=st.data())
    def read(self, topic, data):
        first, end = self.firsts[topic], len(self.lists[topic])
        start = data.draw(st.integers(first, end))
        stop = data.draw(st.integers(start, end + 2))
        found = self.log.events(topic, start, stop, data.draw(st.sampled_from((1, 100, 1 << 20))))
        assert found == self.wanted(topic, start, stop)

    @rule(data=st.data(), step=st.sampled_from((1, 60, 1 << 20)), again=st.booleans())
    def sweep(self, data, step, again):
        """Ranges of all topics in one pass; or in several, each going on where the one before ended."""
        wanted, expected = [], {}
        for topic in data.draw(st.permutations(TOPICS)):
            first, end = self.firsts[topic], len(self.lists[topic])
            start = data.draw(st.integers(first, end))
            wanted.append((topic, start, data.draw(st.integers(start, end))))
            expected[topic] = self.wanted(*wanted[-1])
        found = {topic: [] for topic in TOPICS}
        reading = self.log.reading
        while wanted:
            sweep = Sweep(reading, wanted)
            assert not sweep.gone and not sweep.short
            while not sweep.done:
                for number, offset, packed in sweep.step(step):
                    topic, start, stop = wanted[number]
                    batch = StoredBatch(packed, offset).cut(start, stop)
                    found[topic] += zip(batch.offsets.tolist(), batch.decoded(), strict=True)
                if again:
                    break
            wanted = [(wanted[number][0], at, wanted[number][2]) for number, at in sweep.left]
        assert found == expected

    @invariant()
    def holds(self):
        self.log.topics.validate()

    def teardown(self):
        self.patched.undo()
        for topic in TOPICS:
            first, end = self.firsts[topic], len(self.lists[topic])
            assert self.log.events(topic, first, end) == self.wanted(topic, first, end)


AgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)


class TestAgainstAList(AgainstAList.TestCase):
    pass


def test_what_is_written_forward_at_the_end_of_a_topic_counts_once():
    """The last span is moved after some of it was removed: sizes go on rising with what follows."""
    state = AgainstAList()
    try:
        state.choose_spans(spans=SPANS[0], extent=1)
        state.publish(topic="a", publisher=0, counts=[1, 1, 1])
        state.forget(topic="a", share=0.75)
        state.write_forward()
        state.publish_together(topic="a", other="a", counts=(1, 1))
        state.holds()
    finally:
        state.teardown()
