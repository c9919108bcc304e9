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
