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
