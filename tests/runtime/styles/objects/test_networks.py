"""Virtual networks in both modes, on every engine; bridges between buses."""

import uuid

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.errors import BadInput, NoObject, Refused, RemoteError
from pluribus.objects import ObjectMessage, kqml
from tests.harness import eventually, on_a_loop
from tests.runtime.styles.objects.things import Reading, Thermometer, buses

ENGINES = ("inproc", "udp", "tcp", "multicast", "nats")


def url_of(engine: str, request) -> str:
    bus = f"objects-{uuid.uuid4().hex[:8]}"
    if engine in ("udp", "tcp"):
        return f"{engine}://127.0.0.1:{free_port()}/{bus}"
    if engine == "nats":
        return f"{request.getfixturevalue('nats_server')}/{bus}"
    return f"{engine}://{bus}"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_carries_messages_objects_calls_and_networks(engine: str, request):
    url = url_of(engine, request)

    async def story() -> None:
        async with buses(3, url) as (a, b, c):
            things = [Thermometer(name) for name in "bc"]
            for bus, thing in zip((b, c), things, strict=True):
                await bus.directory.add(thing, f"thermometer-{thing.place}")
            shadows = [await a.directory.find(f"thermometer-{place}") for place in "bc"]
            assert (await shadows[0].ask("(ask-one :content place)")).content == "b"
            assert (await shadows[1].ask("(ask-one :content reading)")).content == Reading(20.0, "c")
            assert await shadows[1].call("read", 1.0) == 21.0
            network = a.virtual_network("alarms")
            for shadow in shadows:
                await network.add(shadow)
            assert len(network) == 2 and all(shadow in network for shadow in shadows)
            assert len(await a.directory.find_all("alarms")) == 2, "both have the alias"
            await network.multicast("(tell :content one-by-one)")
            await eventually(lambda: all(thing.heard for thing in things))
            if a._engine.broadcasts:
                network.switch("multicast")
                await network.multicast("(tell :content at-once)")
                await eventually(lambda: all(len(thing.heard) == 2 for thing in things))
                assert things[0].heard[1].content == "at-once" and things[0].heard[1]["sender_unicast_address"]
                await a.communicator.multicast(kqml("broadcast", content=kqml("tell"), receiver="alarms"))
                await eventually(lambda: all(len(thing.heard) == 3 for thing in things))
            else:
                with pytest.raises(Refused, match="has no multicast"):
                    network.switch("multicast")
                with pytest.raises(Refused):
                    a.virtual_network("others", mode="multicast")
                with pytest.raises(Refused):
                    await a.communicator.multicast(kqml("broadcast", receiver="alarms"))
                assert network.mode == "unicast"

    on_a_loop(story)()


@on_a_loop
async def test_joining_leaving_and_objects_that_are_gone():
    async with buses(3) as (a, b, c):
        things = [Thermometer(name) for name in "bc"]
        shadows = [await bus.directory.add(thing) for bus, thing in zip((b, c), things, strict=True)]
        here = [await a.directory.find(shadow.id) for shadow in shadows]
        network = a.virtual_network("alarms")
        await network.add(here[0])
        await network.add(here[1])
        await network.delete(here[0])
        with pytest.raises(BadInput, match="delete what was added"):
            await network.delete(here[0])
        assert [shadow.id for shadow in await a.directory.find_all("alarms")] == [here[1].id]
        await network.add(here[0])
        await c.close()
        await eventually(lambda: len(a._post.members()) == 1)
        with pytest.raises(NoObject, match="are gone, and forgotten"):
            await network.multicast("(tell :content x)")
        await eventually(lambda: things[0].heard)
        assert len(network) == 1 and repr(network) == "<virtual network 'alarms' of 1 in unicast mode>"
        await network.multicast("(tell :content y)")
        with pytest.raises(NoObject):
            await network.add(here[1])
        assert len(network) == 1
        with pytest.raises(BadInput, match="'unicast'"):
            network.switch("anycast")


@on_a_loop
async def test_an_object_bridges_two_buses_on_different_engines():
    async with buses(2) as (a, b), buses(2, f"udp://127.0.0.1:{free_port()}/other") as (c, d):
        roof = Thermometer("roof", 31.5)
        await d.directory.add(roof, "thermometer")
        bridge = await a.bridge(c, "thermometer")
        shadow = await b.directory.find("thermometer")
        assert shadow == bridge
        assert (await shadow.ask("(ask-one :content place)")).content == "roof"
        assert (await shadow.ask("(ask-one :content reading)")).content == Reading(31.5, "roof")
        await shadow.send("(tell :content hello)")
        await shadow.send_object(Reading(1.0))
        await b.communicator.broadcast("thermometer", "(tell :content all)")
        await eventually(lambda: len(roof.heard) == 3)
        answers = await b.communicator.ask_all("thermometer", "(ask-one :content place)")
        assert [answer.content for answer in answers] == ["roof"]
        with pytest.raises(RemoteError, match="LookupError"):
            await shadow.ask("(ask-one :content wrong)")
        assert await shadow.call("read", 0.5) == 32.0 and await bridge.call("read", offset=1.0) == 32.5
        with pytest.raises(RemoteError, match=r"^LookupError: nothing here"):
            await shadow.call("fail")
        with pytest.raises(RemoteError, match=r"no method 'nothing' is exposed by .*Thermometer"):
            await shadow.call("nothing")


@on_a_loop
async def test_subscriptions_cross_a_bridge():
    async with buses(3) as (a, b, e), buses(2) as (c, d):
        roof = Thermometer("roof", 31.5)
        await d.directory.add(roof, "thermometer")
        bridge = await a.bridge(c, "thermometer")
        beyond = d._post.directory.resident(roof).subscribers
        async with b.communicator.subscribe("thermometer", "temperature") as updates:
            assert await d.communicator.notify(roof, "temperature", 32.0) == 1
            assert await d.communicator.notify(roof, "place", "cellar") == 0
            assert (await updates.receive(60)).content == "32.0"
        await eventually(lambda: not beyond)  # ended here, ended there
        # The process of a subscriber is gone: nothing of it is left.
        await e.communicator.subscribe("thermometer", "temperature").open()
        assert len(beyond) == 1
        await e.close()
        await eventually(lambda: not beyond and not bridge.local._subscriptions)
        # The object is gone: its subscribers are told.
        async with b.communicator.subscribe("thermometer", "temperature") as updates:
            await d.close()
            with pytest.raises(RemoteError, match="NoMembers"):
                await updates.receive(60)


@on_a_loop
async def test_bridges_that_lead_in_a_circle_end():
    async with buses(1) as (a,), buses(1) as (b,):
        await a.bridge(b, "nobody")
        await b.bridge(a, "nobody")
        with pytest.raises(RemoteError, match=r"^BadInput: a message to 'nobody' crossed 8 bridges"):
            await a.communicator.ask("nobody", "(ask-one)")
        with pytest.raises(RemoteError, match=r"^BadInput: a message to 'nobody' crossed 8 bridges"):
            await a.communicator.ask("nobody", ObjectMessage(Reading(1.0)))
        with pytest.raises(BadInput, match=r"^a message to 'nobody' crossed 8 bridges"):
            await (await a.directory.find("nobody")).call("read")
        with pytest.raises(RemoteError, match=r"^BadInput: a message to 'nobody' crossed 8 bridges"):
            await a.communicator.subscribe("nobody", "temperature").open()


@on_a_loop
async def test_a_call_counts_the_bridges_also_from_one_process_to_the_next():
    """The two bridges of this circle are in processes that know each other by the buses alone."""
    async with buses(2) as (a, b), buses(2) as (c, d):
        await a.bridge(c, "nobody")  # from the first bus to the second
        await d.bridge(b, "nobody")  # and back
        shadow = await b.directory.find("nobody")
        with pytest.raises(RemoteError, match=r"^BadInput: a message to 'nobody' crossed 8 bridges"):
            await shadow.call("read")
        with pytest.raises(RemoteError, match=r"^BadInput: a message to 'nobody' crossed 8 bridges"):
            await shadow.ask(ObjectMessage(Reading(1.0)))
