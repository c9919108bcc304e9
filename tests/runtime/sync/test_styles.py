"""Styles without ``await``: what is iterated, entered, or called back there, on the loop of a thread."""

import sys
import threading

import pytest

import pluribus
from pluribus import sync
from pluribus.core.errors import BadInput, Closed, RemoteError
from pluribus.objects import Kqml, handles
from pluribus.runtime.styles.slots.sync import SyncSlotMessage
from pluribus.slots.check import plan_of
from tests.harness import new_bus

WITHIN_S = 20.0
PLAN = "bus s slot a { out o asks q } slot b { in in answers q } a.o -> b.in a.q -> b.q"


def test_messages_of_a_queue_are_entered_or_iterated():
    with sync.connect(new_bus(), store=":memory:") as bus:
        orders = bus.queue("orders", lease=60.0)
        assert (orders.name, orders.durable, orders.closed) == ("orders", True, False)
        orders.send_many(["one", "two", "three"])
        with orders.messages(credit=1) as messages:
            first = next(iter(messages))
            assert (first.body, first.deliveries, first.settled) == ("one", 1, False)
        assert orders.stats().depth == 2, "leaving the block settled the message"

        def fails() -> None:
            with orders.messages(credit=1) as messages:
                for message in messages:
                    raise ZeroDivisionError(message.body)

        with pytest.raises(ZeroDivisionError, match="two"):
            fails()
        assert orders.arrived(timeout=WITHIN_S), "an error gave the message back"
        for message in orders.messages(credit=1):
            assert message.body == ("two" if message.deliveries == 2 else "three")
            if message.body == "two":
                break
        orders.pause()
        orders.configure(tries=5)
        assert orders.stats().state.settings.tries_max == 5
        orders.resume()


def test_a_slot_answers_in_the_thread_that_handles_its_port():
    with sync.connect(new_bus(), name="one") as bus:
        with bus.slots(plan_of(PLAN)) as host:
            assert host.name == "s" and host.map.plan.name == "s"
            one, two = bus.enroll("a"), bus.enroll("b")
            host.running(WITHIN_S)
            here: list[bool] = []

            def answer(message: SyncSlotMessage) -> object:
                here.append(threading.current_thread() is working)
                if message.body == "wrong":
                    raise LookupError("nothing here")
                return f"{message.body} from {message.source}"

            working = threading.Thread(target=two.port("q").handle, args=(answer,))
            working.start()
            assert one.ask("q", "hello", timeout=WITHIN_S) == "hello from a.q"
            with pytest.raises(RemoteError, match="LookupError: nothing here"):
                one.ask("q", "wrong", timeout=WITHIN_S)
            sent = one.send("o", 1, timeout=WITHIN_S)
            message = two.port("in").receive(WITHIN_S)
            assert (message.body, message.id, message.asks) == (1, sent.id, False)
            message.acknowledge()
            sent.delivered(WITHIN_S)
            assert sent.done and sent.acknowledged == sent.count == 1
            with one:
                pass
            assert one.state == "out"
            two.drop_out()
            working.join(WITHIN_S)
            assert here == [True, True] and not working.is_alive()
        assert host.closed


def test_the_tool_of_a_slot_is_started_and_waited_for():
    with sync.connect(new_bus(), name="one") as bus:
        program = f"{sys.executable} -c 'raise SystemExit(3)'"
        with bus.slots(plan_of(f'bus s slot a {{ in in program "{program}" }}')):
            manager = bus.communications()
            tool = manager.start("s", "a")
            assert tool.wait(WITHIN_S) == 3 and tool.returncode == 3
            assert [one.pid for one in manager.started] == [tool.pid]


class Meter:
    @handles("ask-one")
    def asked(self, message: Kqml) -> float:
        return 21.5


def test_what_reaches_the_objects_of_this_process_is_watched():
    with sync.connect(new_bus(), name="a") as bus:
        shadow = bus.directory.add(Meter(), "meter")
        assert shadow.id == bus.directory.find("meter").id and shadow.member == 0
        with bus.communicator.watch() as seen:
            shadow.ask("(ask-one :content degrees)")
            assert seen.receive(WITHIN_S).content == "degrees"
        with pytest.raises(Closed):
            seen.receive(0)
        network = bus.virtual_network("meters")
        network.add(shadow)
        assert shadow in network and len(network) == 1 and network.mode == "unicast"


def test_listeners_of_conversations_are_called_in_the_thread_of_the_bus():
    url = new_bus()
    with sync.connect(url, name="ann", stack="adhoc") as ann, sync.connect(url, name="bob", stack="adhoc") as bob:
        lobby = bob.conversations()
        invited, heard = threading.Event(), threading.Event()
        stop = lobby.on_invitations(lambda told: invited.set())
        room = ann.conversation("plans")
        assert invited.wait(WITHIN_S)
        stop()
        other = lobby.join("plans")
        refused: list[Exception] = []

        def listen(delivered: list) -> None:
            try:
                other.send("from the thread of the bus")
            except BadInput as error:
                refused.append(error)
            heard.set()

        other.on_messages(listen)
        room.send("hello")
        assert heard.wait(WITHIN_S)
        assert len(refused) == 1, "it may not keep the thread, and is told so"
        assert list(lobby.rooms) == ["plans"] and lobby.rooms["plans"].name == "plans"
        assert [entry.body for entry in other.history()] == ["hello"]


def test_durable_topics_doors_and_replicas():
    with sync.connect(new_bus(), store=":memory:", serve="127.0.0.1:0") as bus:
        bus.durable.publish("t", 1)
        with bus.durable.subscribe("t", name="desk", start="earliest") as events:
            assert events.receive(WITHIN_S).body == 1 and events.name == "desk"
        assert [known.topic for known in bus.durable.topics()] == ["t"]
        assert bus.log("t").topic == "t" and [event.body for event in bus.log("t").read().events()] == [1]
        with bus.mailbox("ann") as box:
            box.post("hello")
            assert box.address == "mailbox/ann" and box.receive(WITHIN_S).body == "hello"
        (door,) = bus.doors
        with sync.connect(f"client://127.0.0.1:{door.address[1]}/{bus.url.bus}") as client:
            assert client.log("t").offsets() == (0, 1) and door.served == 1
            with pytest.raises(TypeError, match="timout"):
                client.queue("q", timout=1)  # type: ignore[call-arg]
        door.close()
        assert bus.access.list().users == [] and len(bus.keepers.ls()) == 1


def test_the_names_of_pluribus_load_when_they_are_used():
    assert sync.MessageQueue.__name__ == "SyncMessageQueue"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sync.nonsense  # type: ignore[attr-defined]
    assert pluribus.sync is sync


def test_what_a_program_holds_says_what_it_is():
    with sync.connect("inproc://told", name="ann", store=":memory:", serve="127.0.0.1:0") as bus:
        assert repr(bus) == "<synchronous <Bus 'inproc://told', 'ann', members: 1>>"
        assert repr(bus.group("g")) == "<synchronous <group 'g', members: 1>>"
        queue = bus.queue("orders")
        assert repr(queue) == "<synchronous <durable queue 'orders'>>"
        assert repr(bus.queue("here", durable=False)) == "<synchronous <queue in memory 'here'>>"
        queue.close()
        assert repr(queue) == "<synchronous <durable queue 'orders', closed>>"
        assert repr(bus.conversation("plans")) == "<synchronous <conversation 'plans'>>"
        with bus.subscribe("t", durable="desk") as events:
            assert repr(events) == "<synchronous <durable subscription 'desk' to 't'>>"
        assert repr(bus.relay("open")) == "<synchronous <way to the open group 'open'>>"
        assert repr(bus.transformer("a", "b", "csv > json")) == "<synchronous <transformer from 'a' to 'b'>>"
        assert repr(bus.doors[0]).endswith(", 0 clients served>>")
