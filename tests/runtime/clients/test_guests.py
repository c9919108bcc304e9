"""Guests: clients that are in groups, and what stands on groups, through a member that their own member runs."""

import asyncio
import time

import pytest

import pluribus
import pluribus.sync
from pluribus.cli import conversations as verbs
from pluribus.core.errors import BadInput, Closed, NoMembers, NoObject, RemoteError
from pluribus.slots.check import plan_of
from tests.harness import eventually, on_a_loop
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.conversations.test_conversations import shown, until
from tests.runtime.styles.conversations.test_group_manager import Console
from tests.runtime.styles.objects.test_handles import Lamp, RealLamp
from tests.runtime.styles.objects.things import Reading, Thermometer
from tests.slots.plans import FIGURE_2


@on_a_loop
async def test_a_client_is_in_a_group_as_a_guest():
    async with served("guests") as member, pluribus.connect(url_of(member), name="outside") as client:
        ours = await member.group("talk", order="total")
        group = await client.group("talk", order="total")
        await ours.wait_for(2)
        assert (await group.wait_for(2)).names[group.me] == "outside" and group.me in ours.view.members
        await ours.send("hello")
        sent = await group.send("good day")
        assert sent[0] == group.me
        assert [(await one.receive(10)).body for one in (ours, ours)] == ["hello", "good day"]
        heard = [await group.receive(10) for _ in range(2)]
        assert [message.body for message in heard] == ["hello", "good day"] and heard[1].id == sent
        await group.send("to you alone", to=ours.me)
        assert (await ours.receive(10)).body == "to you alone"

        async def answers(one):
            async for message in one:
                if message.asks:
                    await message.reply(f"{message.body}, {one.me}")

        tasks = [asyncio.create_task(answers(one)) for one in (ours, group)]
        for asking in (ours, group):
            found = await asking.ask("who is it?", replies="all", timeout=20)
            assert {answer.sender for answer in found} == {ours.me, group.me}
            assert all(answer.body == f"who is it?, {answer.sender}" for answer in found)
        for task in tasks:
            task.cancel()
        await group.close()
        with pytest.raises(Closed):
            await group.send("too late")
        await eventually(lambda: len(ours.view.members) == 1)


@on_a_loop
async def test_a_guest_goes_with_its_client():
    async with served("guests-gone") as member:
        ours = await member.group("talk")
        async with pluribus.connect(url_of(member)) as client:
            group = await client.group("talk")
            await ours.wait_for(2)
            client.line._writer.transport.abort()
            await eventually(lambda: len(ours.view.members) == 1)
            with pytest.raises(Closed, match="join them again"):
                await group.receive(10)
            again = await client.group("talk")
            await ours.wait_for(2)
            assert again.me != group.me
        await eventually(lambda: len(ours.view.members) == 1)


@on_a_loop
async def test_many_messages_reach_a_slow_client_and_none_is_lost():
    async with served("guests-slow") as member, pluribus.connect(url_of(member)) as client:
        ours = await member.group("numbers", own=False)
        group = await client.group("numbers", own=False)
        await ours.wait_for(2)
        sending = asyncio.create_task(ours.send_many(list(range(20_000))))
        got = []
        while len(got) < 20_000:
            got += [message.body for message in await group.receive_many(timeout=60)]
            await asyncio.sleep(0)
        await sending
        assert got == list(range(20_000))


@on_a_loop
async def test_objects_of_a_client_and_of_members_talk():
    async with served("guests-objects") as member, pluribus.connect(url_of(member), name="outside") as client:
        roof = await member.directory.add(Thermometer("roof", 31.5), "roof", "thermometer")
        shadow = await client.directory.find("roof")
        assert (await shadow.ask("(ask-one :content temperature)")).content == "31.5"
        assert await shadow.call("read", 1.0) == 32.5
        await shadow.send_object(Reading(3.0))
        await eventually(lambda: roof.local.heard)
        cellar = await client.directory.add(Thermometer("cellar", 12.0), "cellar", "thermometer")
        seen = await member.directory.find("cellar")
        assert (await seen.ask("(ask-one :content place)")).content == "cellar"
        assert await seen.call("read") == 12.0
        await member.communicator.broadcast("thermometer", "(tell :content frost)")
        for thing in (roof.local, cellar.local):
            await eventually(lambda thing=thing: any(getattr(one, "content", "") == "frost" for one in thing.heard))
        lamp = RealLamp("porch")
        await client.directory.add(lamp, "porch", exports=[Lamp])
        handle = member.omni(Lamp, results="first")
        assert await handle.shine(0.5) == "porch" and lamp.calls == [(0.5, "white")]
    with pytest.raises((NoObject, Closed)):
        await client.directory.find("roof")


def test_objects_without_await_from_a_client():
    with (
        pluribus.sync.connect("inproc://guests-sync", serve="127.0.0.1:0") as member,
        pluribus.sync.connect(url_of(member._real)) as client,
    ):
        member.directory.add(Thermometer("roof", 31.5), "roof")
        assert client.directory.find("roof").ask("(ask-one :content temperature)").content == "31.5"


@on_a_loop
async def test_what_guests_cannot_have_is_said_in_words():
    async with served("guests-refused") as member, pluribus.connect(url_of(member)) as client:
        with pytest.raises(BadInput, match="not offered by the stack"):
            await client.group("talk", order="alphabetical")
        for option in ({"state": object()}, {"key": b"k" * 32}, {"stalled": "exclude"}):
            with pytest.raises(BadInput, match=f"{next(iter(option))}= of a group is for members"):
                await client.group("talk", **option)
        group = await client.group("talk")
        with pytest.raises(BadInput, match="use wait='stable'"):
            await group.send("x", wait="stabel")
        with pytest.raises(BadInput, match="serve is for members"):
            group.serve(object())


class Scales:
    """What a member serves in a group."""

    def __init__(self, grams):
        self.grams = grams

    @pluribus.exposed
    def weigh(self, extra, times=1):
        if extra is None:
            raise LookupError("nothing on it")
        return Reading(self.grams + extra.degrees * times)


@on_a_loop
async def test_a_client_calls_the_objects_of_a_group():
    async with served("guests-calls") as member, pluribus.connect(url_of(member), name="outside") as client:
        await member.objects("scales", serve=Scales(5.0))
        scales = await client.objects("scales", Scales, timeout=20)
        assert await scales.weigh(Reading(1.0), times=2) == Reading(7.0)
        assert [one.body for one in await scales.all.weigh(Reading(1.0))] == [Reading(6.0)]
        with pytest.raises(RemoteError, match="nothing on it"):
            await scales.weigh(None)
        with pytest.raises(TypeError):
            await scales.weigh()
        group = await client.group("scales")
        assert [one.body for one in await group.call("weigh", Reading(0.0), timeout=20)] == [Reading(5.0)]
        with pytest.raises(NoMembers):
            await group.call("weigh", Reading(0.0), to=1, timeout=20)


@on_a_loop
async def test_a_handler_answers_for_a_client():
    async with served("guests-handlers") as member, pluribus.connect(url_of(member)) as client:
        ours, group = await member.group("talk", own=False), await client.group("talk", own=False)
        await ours.wait_for(2)

        async def answer(message):
            if message.body == "bad":
                raise KeyError(message.body)
            return (message.body, message.parent)

        handling = asyncio.create_task(group.handle(answer))
        before = await ours.send("no question")
        assert (await ours.ask("good", parent=before, timeout=20))[0].body == ["good", list(before)]
        assert (await ours.ask("bad", timeout=20))[0].error.kind == "KeyError"
        await group.close()
        await handling


@on_a_loop
async def test_many_are_sent_within_one_time_out():
    async with served("guests-many") as member, pluribus.connect(url_of(member)) as client:
        ours, group = await member.group("talk"), await client.group("talk", own=False)
        await ours.wait_for(2)
        sent = await group.send_many(["a", "b"], wait="stable", timeout=20, to=ours.me)
        assert [(await ours.receive(10)).id for _ in sent] == sent


@pytest.mark.parametrize("stack", ["best-effort", "views"])
@on_a_loop
async def test_a_client_occupies_a_slot_of_a_software_bus(stack):
    async with (
        served(f"guests-slots-{stack}", stack=stack) as member,
        await member.slots(plan_of(FIGURE_2)) as host,
        pluribus.connect(url_of(member)) as client,
    ):
        producer = await member.enroll("producer")
        consumer = await client.enroll("consumer2")
        await host.running(timeout=20)
        for number in range(5):
            await producer.send("green", number)
        got = []

        async def read():
            async for message in consumer.port("in"):
                got.append(message.body)

        task = asyncio.create_task(read())
        await eventually(lambda: got == list(range(5)))
        await consumer.drop_out()
        task.cancel()


@on_a_loop
async def test_a_client_that_was_late_goes_on_in_its_conversation():
    async with served("guests-late", name="ann") as ann, pluribus.connect(url_of(ann), name="bob") as bob:
        rooms = [await bus.conversation("travel") for bus in (ann, bob)]
        time.sleep(0.1)  # noqa: ASYNC251 - the whole process stands still, past the time of the client's first request
        for number in range(3):
            said = await rooms[1].send(f"number {number}")
            assert said[0] == rooms[1]._carrier.group.me, "others know it as a message of the guest"
        await until(lambda: len(rooms[0].history()) == 3, 30)
        assert rooms[0]._sync.forged == 0
        assert not any(task.done() for room in rooms for task in room._carrier._tasks)


@on_a_loop
async def test_a_client_goes_on_in_its_conversations_when_its_connection_is_back():
    async with served("guests-back", name="ann") as ann, pluribus.connect(url_of(ann), name="bob") as bob:
        rooms = [await bus.conversation("travel") for bus in (ann, bob)]
        lobby = await ann.conversations()
        delhi = await rooms[1].send("Did you visit Delhi?")
        await until(lambda: len(rooms[0].history()) == 1, 30)
        hers = await bob.conversations()
        await ann.conversation("chess")
        await until(lambda: [info.gid for info in hers.invited] == ["chess"], 30)
        hers.refuse("chess")
        before = rooms[1]._carrier.group.me
        for _ in range(2):
            bob.line._writer.transport.abort()
            await rooms[1].send("nobody hears this", parent=delhi)  # the others get it when she is back
            await rooms[0].send("Yes", parent=delhi)
            await until(lambda before=before: rooms[1]._carrier.group.me != before, 30)
            before = rooms[1]._carrier.group.me
        told = await rooms[1].send("here I am")
        assert told == (before, 0), "others know it as the first message of the guest that she is now"
        await until(lambda: len(rooms[0].history()) == len(rooms[1].history()) == 6, 60)
        assert shown(rooms[0]) == shown(rooms[1])
        await until(lambda: rooms[0].members == {"ann": True, "bob": True}, 30)
        assert not hers.invited, "what she refused is not reported again"
        await rooms[1].leave()
        await until(lambda: lobby.info("travel").members == ["ann"], 30)
        assert rooms[0]._sync.forged == rooms[1]._sync.forged == 0


@pytest.mark.parametrize("stack", ["adhoc", "views"])
@on_a_loop
async def test_a_client_talks_in_a_conversation(stack):
    async with (
        served(f"guests-rooms-{stack}", stack=stack, name="ann") as ann,
        pluribus.connect(url_of(ann), name="bob") as bob,
    ):
        rooms = [await bus.conversation("travel") for bus in (ann, bob)]
        delhi = await rooms[1].send("Did you visit Delhi?")
        await until(lambda: len(rooms[0].history()) == 1, 30)
        await rooms[0].send("Yes", parent=delhi)
        for room in rooms:
            await until(lambda room=room: shown(room) == [(0, "Did you visit Delhi?"), (1, "Yes")], 30)
            await until(lambda room=room: room.members == {"ann": True, "bob": True}, 30)


@on_a_loop
async def test_group_managers_and_the_verbs_work_through_a_door():
    async with (
        served("guests-manager", stack="adhoc", name="ann") as ann,
        pluribus.connect(url_of(ann), name="bob") as bob,
    ):
        here, there = Console(ann), Console(bob)
        for console in (here, there):
            await console.start()
        towns = await there.create_group("towns")
        await until(lambda: towns in [info.gid for info in here._lobby], 30)
        await here.join_group(towns)
        question = await there.send(towns, "Did you visit Delhi?")
        await until(lambda: here.messages.get(towns) == ["Did you visit Delhi?"], 30)
        await here.send(towns, "Yes", parent=question)
        await until(lambda: there.messages[towns][-1] == "Yes", 30)
        assert there.created == [towns] and here.groups == ["towns"]
        listed = await verbs._listed(url_of(ann), "adhoc", 1.0)
        rows = await verbs._read(url_of(ann), "adhoc", 1.0, towns)
        assert listed == [{"name": towns, "description": "towns", "members": ["ann", "bob"]}]
        assert [(row["depth"], row["by"], row["body"]) for row in rows] == [
            (0, "bob", "Did you visit Delhi?"),
            (1, "ann", "Yes"),
        ]
