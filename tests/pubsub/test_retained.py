"""Last values: the table is bounded, and topics that were emptied make room for others."""

import msgspec
import pytest

from pluribus.core.errors import TooLarge
from pluribus.pubsub import retained
from pluribus.pubsub.batch import Arrived, Batch, EventExtra, Part
from pluribus.pubsub.retained import Retained
from pluribus.wire.bodies import BYTES


def published(topic: str, body: bytes, at: float) -> Arrived:
    part = Part(BYTES, 1, 0, msgspec.Raw(msgspec.msgpack.encode([body])), {0: EventExtra(retain=True)})
    return Arrived(Batch(1, int(at), at, [topic], [part]))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Retained:
    monkeypatch.setattr(retained, "RETAINED_MAX", 3)
    table = Retained()
    for at, topic in enumerate("abc"):
        table.take(published(topic, b"value", at))
    return table


def test_a_full_table_takes_no_other_topic(table: Retained):
    with pytest.raises(TooLarge, match="publish empty ones"):
        table.check("d")
    table.check("a")
    table.take(published("d", b"value", 5))
    assert table.topics() == ["a", "b", "c"] and table.refused == 1


def test_topics_that_were_emptied_make_room_for_others(table: Retained):
    table.take(published("b", b"", 5))
    table.check("d")
    table.take(published("d", b"value", 6))
    assert table.topics() == ["a", "c", "d"] and len(table) == 3 and not table.refused
    with pytest.raises(TooLarge):
        table.check("e")


def test_a_topic_that_was_emptied_is_remembered_while_there_is_room(table: Retained):
    table.take(published("b", b"", 5))
    table.take(published("b", b"older", 4))
    assert table.topics() == ["a", "c"]
    table.take(published("b", b"later", 6))
    assert table.topics() == ["a", "b", "c"]
    with pytest.raises(TooLarge):
        table.check("d")
