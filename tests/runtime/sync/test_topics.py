"""Topics without ``await``."""

import threading

import pytest

import pluribus
from pluribus.core.errors import Closed
from tests.harness import new_bus


def test_publish_and_subscribe_without_await():
    with pluribus.sync.connect(new_bus()) as bus, bus.subscribe("stocks/#", where="price > 1") as events:
        bus.publish("stocks/ibm", {"price": 0})
        first = bus.publish("stocks/ibm", {"price": 2}, headers={"a": 1})
        bus.publish_many([("stocks/sap", {"price": number}) for number in range(3, 8)])
        event = events.receive(5)
        assert (event.id, event.topic, event.body, event.headers) == (first, "stocks/ibm", {"price": 2}, {"a": 1})
        assert [event.body["price"] for event, _ in zip(events, range(3), strict=False)] == [3, 4, 5]
        assert events.receive(5).body == {"price": 7}
        with pytest.raises(TimeoutError):
            events.receive(0.01)
        ender = threading.Timer(0.05, events.close)
        ender.start()
        assert list(events) == []
        ender.join()
        with pytest.raises(Closed):
            events.receive(1)


def test_call_backs_run_in_threads():
    got, done = [], threading.Event()

    def call(event):
        got.append(event.body)
        done.set()

    with pluribus.sync.connect(new_bus()) as bus, bus.subscribe("t", call=call):
        bus.publish_soon("t", "x")
        assert done.wait(10)
    assert got == ["x"]


def test_a_thread_waits_no_longer_than_it_was_told_though_another_one_reads():
    with pluribus.sync.connect(new_bus()) as bus, bus.subscribe("t") as events:
        got: list[object] = []
        reading = threading.Thread(target=lambda: got.append(events.receive(10).body))
        reading.start()
        while not events._reading.locked():
            reading.join(0.001)
        with pytest.raises(TimeoutError):
            events.receive(timeout=0.01)
        bus.publish("t", "for whoever waits")
        reading.join(10)
        assert got == ["for whoever waits"]


def test_whoever_takes_many_does_not_wait_for_another_reader():
    with pluribus.sync.connect(new_bus()) as bus, bus.subscribe("t") as events:
        receive = events.receive
        reading = threading.Thread(target=receive, args=(10,))

        def received(timeout: float | None) -> object:
            event = receive(timeout)
            reading.start()
            while not events._reading.locked():
                reading.join(0.001)
            return event

        bus.publish("t", 1)
        events.receive = received
        got: list[object] = []
        taking = threading.Thread(target=lambda: got.extend(events.receive_many(timeout=5)))
        taking.start()
        taking.join(2)
        assert [event.body for event in got] == [1]
        bus.publish("t", 2)
        reading.join(10)
        taking.join(10)


@pytest.fixture
def kept(tmp_path):
    with pluribus.sync.connect(new_bus(), store=tmp_path / "a.db") as bus:
        bus.publish_many([("t", number) for number in range(5)], durable=True, live=False)
        yield bus


def test_what_was_fetched_and_not_read_is_not_committed(kept):
    with kept.subscribe("t", durable="desk", start="earliest") as events:
        assert [events.receive(10).body for _ in range(2)] == [0, 1]
        assert len(events._fetched) == 3, "one crossing brings all that is there"
    with kept.subscribe("t", durable="desk") as events:
        assert [events.receive(10).body for _ in range(3)] == [2, 3, 4]


def test_an_event_whose_handling_fails_comes_again(kept):
    def failing():
        with kept.subscribe("t", durable="desk", start="earliest") as events:
            raise LookupError(events.receive(10).body)

    with pytest.raises(LookupError):
        failing()
    with kept.subscribe("t", durable="desk") as events:
        assert events.receive(10).body == 0


def test_only_what_was_read_is_committed_by_hand(kept):
    with kept.subscribe("t", durable="desk", start="earliest", commit="manual") as events:
        assert [events.receive(10).body for _ in range(2)] == [0, 1]
        events.commit()
        assert events.receive(10).body == 2, "it goes on where it was"
    with kept.subscribe("t", durable="desk", commit="manual") as events:
        event = events.receive(10)
        assert event.body == 2
        events.commit(event)
        assert events.offsets == {"t": 5}
    with kept.subscribe("t", durable="desk") as events:
        assert events.receive(10).body == 3


def test_a_consumer_group_without_await(kept):
    with kept.subscribe("t", durable="work", shared=True, start="earliest", commit="manual", tries=1) as events:
        first, second = events.receive(10), events.receive(10)
        events.commit(first)
        events.give_back(second, "cannot read it")
        assert [(one.offset, one.reason) for one in events.dead()] == [(second.offset, "cannot read it")]
        assert events.redrive() == 1 and events.standing().dead == []


def test_a_mailbox_without_await(kept):
    box = kept.mailbox("ann", topics="alarms/#")
    with box:
        kept.publish("alarms/fire", "cellar", durable=True, live=False)
        box.post("lunch?")
        got = sorted(box.receive(10).body for _ in range(2))
    assert got == ["cellar", "lunch?"]
    with kept.mailbox("ann", topics="alarms/#") as box:
        for _ in range(2):
            box.acknowledge(box.receive(10))
    with kept.mailbox("ann", topics="alarms/#") as box, pytest.raises(TimeoutError):
        box.receive(0.05)


def test_decorators_adverts_observed_objects_and_who_is_there():
    got, done = [], threading.Event()
    with pluribus.sync.connect(new_bus()) as bus:

        @bus.on("t")
        def handler(event):
            got.append((event.body, threading.current_thread() is threading.main_thread()))
            done.set()

        assert bus.wait_for_subscribers("t", 1) == 1
        bus.publish("t", "x")
        assert done.wait(10) and got == [("x", False)]
        bus.unsubscribe(handler.subscription)
        assert bus.wait_for_subscribers("t", 0) == 0

        bus.advertise("stocks/#", about="prices")
        assert [(one.pattern, one.about) for one in bus.topics("stocks/ibm")] == [("stocks/#", "prices")]
        bus.unadvertise("stocks/#")
        assert bus.topics() == [] and bus.me in bus.wait_for(1).members

        with bus.subscribe(object="ibm", property="price") as watched:
            ibm = bus.observed("ibm", price=99.0)
            ibm.price = 101.0
            ibm.set(price=102.0, volume=7)
            assert [watched.receive(10).body.value for _ in range(3)] == [99.0, 101.0, 102.0]
        assert ibm.price == 102.0 and ibm.properties() == {"price": 102.0, "volume": 7}
        with pytest.raises(AttributeError, match="no property"):
            _ = ibm.nonsense
