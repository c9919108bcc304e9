"""All subscriptions of a member, beside asking each of them for each event; and what waits for a slow one."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pluribus
from pluribus.core.errors import BadFilter, BadInput, BadTopic, Gap, Overflow
from pluribus.core.limits import BACKLOG_EVENTS_MAX
from pluribus.pubsub.backlog import CHOICES, SHORT, Backlog, Hold
from pluribus.pubsub.batch import PLAIN, Arrived, EventExtra, Gathering
from pluribus.pubsub.interest import Interest
from pluribus.pubsub.table import INDEX_FROM, Table
from pluribus.pubsub.topics import matches
from pluribus.wire.bodies import BYTES, encode_body
from tests.harness import only


class Quote(msgspec.Struct, frozen=True):
    symbol: str
    price: float


class Trade(Quote, frozen=True):
    volume: int


pluribus.register(Quote, "tests.pubsub.Quote")
pluribus.register(Trade, "tests.pubsub.Trade")


class Reader:
    def __init__(self, interest, limit=10_000, slow="tell"):
        self.interest = interest
        self.backlog = Backlog(limit, slow)
        self.told = 0

    def arrived(self):
        self.told += 1

    def all(self):
        found = []
        while self.backlog:
            found += self.backlog.take()
        return found


def batch_of(events):
    gathering = Gathering(9, 60_000)
    for topic, body, headers in events:
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        gathering.add(topic, kind, encoded, 5.0, EventExtra(headers) if headers else PLAIN, None, type(body))
    return Arrived(only(gathering.close()))


prices = st.integers(0, 5).map(float)
symbols = st.sampled_from(["ibm", "sap"])
bodies = (
    st.builds(Quote, symbols, prices)
    | st.builds(Trade, symbols, prices, st.integers(0, 3))
    | st.fixed_dictionaries({"symbol": symbols, "price": prices})
    | st.just(b"bytes")
    | st.just("text")
)
events = st.lists(
    st.tuples(st.sampled_from(["a", "a/b", "a/c", "d"]), bodies, st.sampled_from([{}, {"region": "eu"}])),
    min_size=1,
    max_size=20,
)
conditions = st.sampled_from(
    [
        None,
        "price > 2",
        "symbol = 'ibm'",
        "symbol = 'sap' AND price BETWEEN 1 AND 3",
        "volume >= 2",
        "headers.region = 'eu'",
        "topic = 'a/b' OR price = 1",
    ]
)
interests = st.builds(
    Interest,
    st.sampled_from(["a", "a/+", "a/#", "#", "+/b", "d"]),
    conditions,
    st.sampled_from([None, bytes, str, dict, object]),
) | st.builds(
    Interest, st.sampled_from(["a/#", "+"]), st.sampled_from([None, "price > 2"]), st.sampled_from([Quote, Trade])
)


def wanted(interest, event):
    """The dumbest way: one event, one subscription."""
    if not matches(interest.pattern, event.topic):
        return False
    if interest.type is not None and not isinstance(event.body, interest.type):
        return False
    return interest.holds is None or interest.holds(event)


@given(st.lists(interests, max_size=8), st.lists(events, min_size=1, max_size=3), st.data())
def test_everybody_gets_what_it_asked_for_in_order(asked, batches, data):
    table, readers = Table(), [Reader(interest) for interest in asked]
    for reader in readers:
        table.add(reader)
    expected = {reader: [] for reader in readers}
    for published in batches:
        batch = batch_of(published)
        table.spread(batch)
        for reader, found in expected.items():
            found += [e for section in batch.sections() for e in section.events() if wanted(reader.interest, e)]
        if len(expected) > 1 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(expected, key=id)))
            table.remove(gone)
            assert gone.all() == expected.pop(gone)
    table.validate()
    for reader, found in expected.items():
        assert reader.all() == found
        assert bool(found) == bool(reader.told)


@settings(max_examples=20)
@given(events, st.data())
def test_many_conditions_are_asked_by_the_index_with_the_same_answers(published, data):
    table = Table()
    readers = [Reader(data.draw(interests)) for _ in range(3 * INDEX_FROM)]
    for reader in readers[: 2 * INDEX_FROM]:
        table.add(reader)
    table.spread(batch_of(published))
    for reader in readers[2 * INDEX_FROM :]:
        table.add(reader)
    for reader in readers[:5]:
        table.remove(reader)
        reader.all()
    table.spread(batch_of(published))
    table.validate()
    every = [event for section in batch_of(published).sections() for event in section.events()]
    for place, reader in enumerate(readers[5:], 5):
        once = [event for event in every if wanted(reader.interest, event)]
        assert reader.all() == (once if place >= 2 * INDEX_FROM else once * 2)


def test_a_condition_may_change():
    table, readers = Table(), [Reader(Interest("a", f"price > {n}")) for n in range(2 * INDEX_FROM)]
    for reader in readers:
        table.add(reader)
    table.spread(batch_of([("a", {"price": 1}, {})]))
    moved = readers[0]
    assert len(moved.all()) == 1
    moved.interest.set_where("price < 1")
    table.changed(moved, before=True)
    table.spread(batch_of([("a", {"price": 1}, {})]))
    assert moved.all() == [] and len(readers[-1].all()) == 0
    table.validate()


def test_who_asked_for_everything_may_ask_for_less():
    table, reader = Table(), Reader(Interest("a"))
    table.add(reader)
    table.spread(batch_of([("a", Quote("ibm", 1.0), {})]))
    reader.interest.set_where("price > 2")
    table.changed(reader, before=False)
    table.spread(batch_of([("a", Quote("ibm", 1.5), {}), ("a", Quote("ibm", 3.0), {})]))
    assert [event.body.price for event in reader.all()] == [1.0, 3.0]
    table.validate()


def test_what_cannot_be_asked_for_is_refused():
    for wrong in (lambda: Interest("a//b"), lambda: Interest("a", "price >"), lambda: Interest("a", type="Quote")):
        with pytest.raises((BadTopic, BadFilter, BadInput)):
            wrong()
    with pytest.raises(BadFilter, match="prise"):
        Interest("a", "prise > 2", Quote)
    assert Interest("a", "headers.region = 'eu'", Quote).filter is not None


def test_a_field_of_the_body_comes_before_one_of_the_event():
    table, reader = Table(), Reader(Interest("a", "time < 1"))
    table.add(reader)
    table.spread(batch_of([("a", {"time": 0}, {}), ("a", {"time": 9}, {}), ("a", {}, {})]))
    assert [event.body for event in reader.all()] == [{"time": 0}]


def part_of(count, first=0):
    return next(iter(batch_of([("a", b"%d" % (first + n), {}) for n in range(count)]).sections()))


def numbers(events):
    return [int(event.body) for event in events]


class Order(msgspec.Struct, frozen=True):
    time: float | None = None


pluribus.register(Order, "tests.pubsub.Order")


def test_a_field_of_the_body_that_is_null_is_the_bodys():
    reader, typed = Reader(Interest("a", "time IS NULL")), Reader(Interest("a", "time > 1", type=Order))
    table = Table()
    table.add(reader)
    table.add(typed)
    table.spread(batch_of([("a", body, {}) for body in ({"time": None}, {"time": 3}, {}, Order(), Order(2.0))]))
    assert [event.body for event in reader.all()] == [{"time": None}, Order()]
    assert [event.body for event in typed.all()] == [Order(2.0)]


def test_who_wants_to_be_told_is_told_how_much_is_missing():
    backlog = Backlog(10, "tell")
    for first in range(0, 40, 8):
        backlog.put(part_of(8, first))
    assert numbers(backlog.take()) == list(range(8))
    with pytest.raises(Gap) as gap:
        backlog.take()
    assert gap.value.missed == backlog.missed == 32
    backlog.put(part_of(2, 40))
    assert numbers(backlog.take()) == [40, 41]
    assert not backlog


def test_short_runs_are_taken_together_as_far_as_nothing_is_missing():
    one, other = Backlog(10, "tell"), Backlog(100, "wait")
    for first in (0, 4, 8):
        section = part_of(4, first)
        one.put(section)
        other.put(section)
    assert numbers(one.take_some()) == list(range(8)), "the gap is behind them"
    with pytest.raises(Gap):
        one.take_some()
    assert one.take_some() == [] and not one
    damaged = part_of(2, 90)
    damaged.part.kind, damaged.part.bodies = 99, msgspec.Raw(b"\x90")
    other.put(damaged)
    other.put(part_of(SHORT, 12))
    other.put(part_of(1, 12 + SHORT))
    assert numbers(other.take_some()) == list(range(12 + SHORT)), "each list is as it was, whoever took it before"
    assert other.malformed == 2 and other.waiting == 1
    assert numbers(other.take_some()) == [12 + SHORT]


def test_who_wants_a_buffer_has_one():
    backlog = Backlog(10, "buffer")
    for first in range(0, 400, 8):
        backlog.put(part_of(8, first))
    assert backlog.waiting == 400 and backlog.missed == 0
    assert backlog.limit == BACKLOG_EVENTS_MAX


def test_who_wants_to_be_disconnected_gets_what_waits_and_then_the_end():
    backlog = Backlog(10, "disconnect")
    for first in range(0, 40, 8):
        backlog.put(part_of(8, first))
    assert numbers(backlog.take()) == list(range(8))
    with pytest.raises(Overflow, match="subscribe again"):
        backlog.take()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20), st.booleans())
def test_a_sample_is_in_order_and_within_bounds(sizes, limit, picked):
    backlog, first = Backlog(limit, "sample"), 0
    for size in sizes:
        section = part_of(size, first)
        if picked:
            backlog.put_events(section.events())
        else:
            backlog.put(section)
        backlog.validate()
        first += size
    found = []
    while backlog:
        found += numbers(backlog.take())
    assert found == sorted(set(found)) and len(found) <= limit
    assert len(found) + backlog.missed == first


def test_who_wants_a_sample_is_told_where_it_was_cut_off():
    backlog = Backlog(2, "sample")
    section = only(batch_of([("a", b"x", {})] * 2).sections())
    backlog.put(section)
    backlog.lost()
    backlog.put(section)
    backlog.validate()
    assert len(backlog.take()) == 1
    with pytest.raises(Gap):
        backlog.take()
    assert len(backlog.take()) == 1 and not backlog


def test_a_frame_is_held_until_everybody_who_waits_has_it():
    released = []
    hold = Hold(lambda: released.append(True))
    waiting, told, late = Backlog(10, "wait"), Backlog(10, "tell"), Backlog(10, "wait")
    for backlog in (waiting, told, late):
        backlog.put(part_of(3), None, hold)
    hold.let_go()
    waiting.take()
    assert not released
    assert late.give_up() == 3
    assert released == [True]
    with pytest.raises(Gap):
        late.take()
    assert numbers(told.take()) == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": BACKLOG_EVENTS_MAX + 1}, {"limit": 5, "slow": "hurry"}])
def test_choices_that_are_none_are_refused(wrong):
    with pytest.raises(BadInput):
        Backlog(**wrong)
    assert "wait" in CHOICES
