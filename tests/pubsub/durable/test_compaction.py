"""Topics that keep the last event of each key: what goes, what stays, and that the space comes back."""

import pytest

from pluribus.group.host import space
from pluribus.pubsub.durable import compaction
from pluribus.pubsub.durable.commands import AGAIN, DONE, Forget, Retain
from pluribus.pubsub.durable.compaction import Compaction, is_due
from tests.pubsub.durable.rows import MemoryRows, batch


def compacted(log, topic="t"):
    """A whole pass; how many events it left out."""
    one = Compaction(log.reading, topic, log.topics.topic(topic))
    while not one.done:
        wanted = one.step()
        if wanted is not None:
            one.answered(log.do(wanted)[0].status == DONE)
    log.trim()
    log.topics.validate()
    return one.dropped


def published(log, count, keys, start=0, size=100):
    for number in range(start, start + count):
        log.append(batch("t", 1, number + 1, [b"%d " % number + bytes(size)], time=number, keys=[f"k{number % keys}"]))


def numbers(log):
    end = log.topics.topic("t").end
    return [int(body.split()[0]) for _, body in log.events("t", log.topics.topic("t").first, end)]


def test_the_last_event_of_each_key_stays_and_keeps_its_offset(monkeypatch):
    monkeypatch.setattr(space.LogExtents, "extent_bytes", 4_096)
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    published(log, 500, 7)
    log.append(batch("t", 2, 1, [b"500 x", b"501 x"], keys=[None, "k0"]))
    assert compacted(log) == 494
    assert numbers(log) == [493, 494, 495, 496, 498, 499, 500, 501], "one without a key stays, and 497 was replaced"
    assert log.events("t", 0, 502)[0][0] == 493 and log.events("t", 497, 499)[0][0] == 498
    assert log.reading.offset_at("t", 10) == 493
    assert log.host.space.live < 4_000, "the space of the others came back"
    log.reopen()
    assert len(numbers(log)) == 8
    published(log, 7, 7, start=500)
    log.forward()
    log.trim()
    assert compacted(log) == 7
    assert numbers(log)[0] == 500 and len(numbers(log)) == 8


def test_space_stays_bounded_however_often_keys_are_published(monkeypatch):
    monkeypatch.setattr(space.LogExtents, "extent_bytes", 4_096)
    monkeypatch.setattr(compaction, "STRETCH_BYTES", 4_096)
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    for turn in range(20):
        published(log, 300, 30, start=turn * 300)
        compacted(log)
        assert len(numbers(log)) == 30
    topic = log.topics.topic("t")
    assert topic.kept_bytes < 30 * 400 and len(topic.spans) < 20 and len(topic.index) < 100
    assert log.host.space.live < 30 * 400


def test_a_pass_is_due_when_it_is_worth_its_work(monkeypatch):
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    topic = log.topics.topic("t")
    assert not is_due(topic)
    published(log, 10, 2)
    assert is_due(topic), "a small topic, as soon as anything came"
    compacted(log)
    assert not is_due(topic)
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)
    monkeypatch.setattr(compaction, "FRESH_BYTES_MIN", 1_000)
    published(log, 4, 2, start=10)
    assert not is_due(topic)
    published(log, 8, 2, start=14)
    assert is_due(topic)


def test_more_keys_than_are_noted_take_more_passes(monkeypatch):
    monkeypatch.setattr(compaction, "KEYS_MAX", 10)
    monkeypatch.setattr(compaction, "SLICE_BYTES", 1_000)
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    published(log, 200, 100)
    passes = 0
    while log.topics.topic("t").compacted < 200:
        compacted(log)
        passes += 1
    assert passes > 5 and numbers(log) == list(range(100, 200))


def test_a_stretch_that_was_written_elsewhere_meanwhile_is_left_to_the_next_pass(monkeypatch):
    monkeypatch.setattr(space.LogExtents, "extent_bytes", 1_000)
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    published(log, 40, 2)
    one = Compaction(log.reading, "t", log.topics.topic("t"))
    wanted = None
    while wanted is None:
        wanted = one.step()
    log.do(Forget("t", 30))
    log.forward()
    assert log.do(wanted)[0].status == AGAIN
    one.answered(False)
    while not one.done:
        wanted = one.step()
        assert wanted is None or log.do(wanted)[0].status == DONE
    assert numbers(log) == list(range(30, 40))
    compacted(log)
    assert numbers(log) == [38, 39]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_topic_may_stop_to_be_compacted(bounded):
    log = MemoryRows()
    log.do(Retain("t", keys=True))
    published(log, 20, 2)
    compacted(log)
    if not bounded:
        log.do(Retain("t"))
        assert not log.topics.keyed
    log.reopen()
    published(log, 20, 2, start=20)
    assert bool(log.topics.keyed) == bounded and len(numbers(log)) == 22
