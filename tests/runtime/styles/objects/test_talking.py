"""Objects on a bus: found, written to, asked; here without the network, elsewhere through it."""

import asyncio
import logging

import pytest

import pluribus
from pluribus.core.errors import AnswersLate, BadBody, BadKqml, Gap, NoMembers, NoObject, RemoteError, Sorry
from pluribus.objects import KEEP, LATER, Kqml, ObjectMessage, Word, handles, kqml
from pluribus.objects.graphs import encode_graph
from pluribus.runtime.styles.objects import post as post_of
from tests.harness import eventually, on_a_loop
from tests.runtime.styles.objects.things import Reading, Thermometer, buses


@on_a_loop
async def test_an_object_is_found_and_asked_from_elsewhere():
    async with buses() as (a, b):
        roof = await a.directory.add(Thermometer("roof", 31.5), "thermometer", "roof")
        shadow = await b.directory.find("thermometer")
        assert shadow == roof and shadow.local is None and isinstance(roof.local, Thermometer)
        answer = await shadow.ask("(ask-one :content temperature)")
        assert answer.performative == "tell" and answer.content == "31.5" and answer["in-reply-to"]
        assert (await b.communicator.ask("roof", kqml("ask-one", content="temperature"))).content == "31.5"
        assert (await b.communicator.ask(roof.id, "(ask-one :content place)")).content == "roof"
        await shadow.send(kqml("tell", content="hello"))
        thermometer = roof.local
        (heard,) = await eventually(lambda: thermometer.heard)
        assert heard.content == "hello" and heard["receiver"] == roof.id and heard["sender"].startswith("id:")


@on_a_loop
async def test_a_message_to_an_object_of_the_same_process_never_touches_the_network():
    async with buses() as (a, b):
        await b.directory.add(Thermometer("cellar"), "thermometer")
        shadow = await a.directory.add(Thermometer("roof"), "roof")

        async def forbidden(*args, **named):
            raise AssertionError("the network was used")

        for name in ("_post", "group", "ask_all", "ask_one"):
            setattr(a._post, name, forbidden)
        before = a.communicator.stats()["sent"]
        for _ in range(50):
            await shadow.send(kqml("tell", content="x"))
            assert (await shadow.ask("(ask-one :content temperature)")).content == "20.0"
            await shadow.send_object(Reading(3.0))
            assert await shadow.call("read") == 20.0
        assert len(shadow.local.heard) == 100 and a.communicator.stats()["sent"] == before
        assert shadow.local.heard[1].body.degrees == 3.0


@on_a_loop
async def test_one_of_an_alias_in_turn_and_all_of_it():
    async with buses(3) as (a, b, c):
        things = [Thermometer(str(number)) for number in range(4)]
        for bus, thing in zip((a, a, b, c), things, strict=True):
            await bus.directory.add(thing, "thermometer")
        for _ in range(8):
            await b.communicator.send("thermometer", kqml("tell", content="one"))
        await eventually(lambda: sum(len(thing.heard) for thing in things) == 8)
        assert [len(thing.heard) for thing in things] == [2, 2, 2, 2]
        await b.communicator.send("thermometer", "(broadcast :content (tell :content all))")
        await eventually(lambda: all(len(thing.heard) == 3 for thing in things))
        assert all(thing.heard[-1].content == "all" for thing in things)
        assert all(thing.heard[-1]["sender_unicast_address"] for thing in things)
        places = await c.communicator.ask_all("thermometer", "(ask-one :content place)")
        assert sorted(answer.content for answer in places) == ["0", "1", "2", "3"]
        assert len(await c.directory.find_all("thermometer")) == 4


@on_a_loop
async def test_a_broadcast_to_the_shadow_of_an_alias_reaches_all():
    async with buses(2) as (a, b):
        things = [Thermometer(str(number)) for number in range(3)]
        for bus, thing in zip((a, b, b), things, strict=True):
            await bus.directory.add(thing, "thermometer")
        await a.directory.shadow("thermometer").send("(broadcast :content (tell :content x))")
        await a.communicator.send(a.directory.shadow("thermometer"), "(broadcast :content (tell :content y))")
        await eventually(lambda: all(len(thing.heard) == 2 for thing in things))


@on_a_loop
async def test_a_multicast_can_be_answered():
    async with buses() as (a, b):
        got: list[Kqml] = []

        class Asker:
            @handles("tell", quick=True)
            def told(self, message: Kqml) -> None:
                got.append(message)

        asker = await a.directory.add(Asker())
        await b.directory.add(Thermometer("cellar", 9.0), "thermometer")
        message = kqml("ask-one", content="temperature", reply_with=Word("mine"))
        await a.communicator.broadcast(
            "thermometer", kqml("broadcast", content=message, reply_with=Word("mine")), sender=asker
        )
        await eventually(lambda: got)
        assert got[0].content == "9.0" and got[0]["in-reply-to"] == "mine"


@on_a_loop
async def test_object_messages_travel_and_answer_kqml():
    async with buses() as (a, b):
        shadow = await a.directory.add(Thermometer("roof", 31.5), "roof")
        answer = await b.communicator.ask("roof", "(ask-one :content reading)")
        assert isinstance(answer, ObjectMessage) and answer.content == Reading(31.5, "roof")
        loop = Reading(1.0)
        loop.of.append(loop)
        answer = await (await b.directory.find("roof")).ask(ObjectMessage(loop))
        assert answer.content == "thanks"
        arrived = shadow.local.heard[0].body
        assert arrived.of[0] is arrived and arrived is not loop
        mine = await b.directory.add(Thermometer("desk"))
        await a.communicator.send_object(mine, Reading(2.0), in_reply_to="q-of-mine")
        await eventually(lambda: mine.local.heard)
        assert mine.local.heard[0].in_reply_to == "q-of-mine"


@on_a_loop
async def test_a_type_that_is_not_registered_is_said_by_name():
    async with buses() as (a, b):
        await a.directory.add(Thermometer(), "roof")
        shadow = await b.directory.find("roof")
        with pytest.raises(BadBody, match="cannot travel"):
            await shadow.ask(ObjectMessage(object()))
        good = encode_graph(Reading(1.0)).replace(b"Reading", b"Nothing")
        real = post_of.letter_of
        try:
            post_of.letter_of = lambda message, receiver, how: pluribus.runtime.styles.objects.letters.Letter(
                1, receiver, how, message.sender, good, message.reply_with, message.in_reply_to
            )
            asking = asyncio.ensure_future(shadow.ask(ObjectMessage(Reading(1.0)), timeout=5))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            post_of.letter_of = real
        with pytest.raises(RemoteError, match="'Nothing' is not registered"):
            await asking


@on_a_loop
async def test_what_goes_wrong_is_said_and_nothing_hangs():
    async with buses() as (a, b):
        roof = await a.directory.add(Thermometer(), "roof")
        shadow = await b.directory.find("roof")
        with pytest.raises(RemoteError, match="LookupError: nothing here"):
            await shadow.ask("(ask-one :content wrong)")
        with pytest.raises(RemoteError, match="LookupError"):
            await roof.ask("(ask-one :content wrong)")
        with pytest.raises(Sorry):
            await shadow.ask("(ask-one :content unheard)")
        with pytest.raises(RemoteError, match="handles no 'evaluate'"):
            await shadow.ask("(evaluate)")
        with pytest.raises(AnswersLate, match="did not answer in"):
            await shadow.ask("(ask-one :content never)", timeout=0.05)
        with pytest.raises(BadKqml, match="line 1"):
            await shadow.ask("(ask-one :content")
        for name in ("nobody", "id:" + "0" * 32):
            with pytest.raises(NoObject, match="no object on this bus has the"):
                await b.directory.find(name, timeout=0.05)
        with pytest.raises(NoObject):
            await b.communicator.send("id:" + "0" * 32, "(tell)", sender=roof)
        await a.directory.remove(roof)
        with pytest.raises((NoObject, RemoteError), match=r"find it again|no object"):
            await shadow.ask("(ask-one :content temperature)", timeout=3)
        assert len(b._post.replies) == 0


@on_a_loop
async def test_who_asks_a_process_that_goes_away_is_told():
    async with buses() as (a, b):
        await a.directory.add(Thermometer(), "roof")
        shadow = await b.directory.find("roof")
        asking = asyncio.ensure_future(shadow.ask("(ask-one :content never)", timeout=20))
        await eventually(lambda: a._post.communicator.running)
        await a.close()
        with pytest.raises(NoMembers, match="is gone"):
            await asking
        with pytest.raises(NoObject):
            await shadow.send("(tell)")


@on_a_loop
async def test_an_alias_whose_objects_move_is_found_again():
    async with buses(3) as (a, b, c):
        first = await a.directory.add(Thermometer("a"), "thermometer")
        assert (await c.communicator.ask("thermometer", "(ask-one :content place)")).content == "a"
        await b.directory.add(Thermometer("b"), "thermometer")
        await eventually(lambda: "thermometer" not in c._post.places._known)
        await a.directory.delete_alias("thermometer", first)
        await eventually(lambda: "thermometer" not in c._post.places._known)
        for _ in range(4):
            assert (await c.communicator.ask("thermometer", "(ask-one :content place)")).content == "b"
        waiting = asyncio.ensure_future(c.directory.find("lamp", timeout=10))
        await asyncio.sleep(0.01)
        await b.directory.add(Thermometer("lamp"), "lamp")
        assert (await waiting).member == b.me


@on_a_loop
async def test_a_slow_handler_holds_up_nobody_and_is_reported(caplog, monkeypatch):
    monkeypatch.setattr(post_of, "SLOW_S", 0.05)
    monkeypatch.setattr("pluribus.objects.communicator.SLOW_S", 0.05)
    async with buses() as (a, b):
        roof = await a.directory.add(Thermometer(), "roof")
        other = await a.directory.add(Thermometer("other"), "other")
        stuck = [asyncio.ensure_future(roof.ask("(ask-one :content never)", timeout=None)) for _ in range(70)]
        await eventually(lambda: a._post.communicator.running == 64)
        with caplog.at_level(logging.WARNING):
            assert (await b.communicator.ask("other", "(ask-one :content place)")).content == "other"
            assert (await other.ask("(ask-one :content place)")).content == "other"
            await eventually(lambda: a.communicator.stats()["slow"] == 64)
        assert "takes longer than 0.05 s" in caplog.text
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        assert len(a._post.replies) == 0


@on_a_loop
async def test_preemptive_objects_on_a_bus():
    class Guard:
        def __init__(self) -> None:
            self.gives = None
            self.seen: list = []

        async def say(self, message):
            self.seen.append(message)
            return self.gives

    async with buses() as (a, b):
        thermometer, guard = Thermometer("roof"), Guard()
        roof = await a.directory.add(thermometer, "roof")
        await a.directory.add(guard)
        a.directory.preempt(roof, guard, "before")
        assert (await b.communicator.ask("roof", "(ask-one :content place)")).content == "roof"
        guard.gives = kqml("ask-one", content="temperature")
        assert (await b.communicator.ask("roof", "(ask-one :content place)")).content == "20.0"
        guard.gives = KEEP
        with pytest.raises(Sorry):
            await b.communicator.ask("roof", "(ask-one :content place)")
        a.directory.preempt(thermometer, guard)
        guard.gives = "instead"
        assert (await b.communicator.ask("roof", "(ask-one :content place)")).content == "instead"
        assert len(guard.seen) == 4
        a.directory.preempt(thermometer, None)
        assert (await b.communicator.ask("roof", "(ask-one :content place)")).content == "roof"


@on_a_loop
async def test_an_object_that_answers_later_by_itself():
    class Slowly:
        @handles("ask-one")
        async def asked(self, message: Kqml):
            task = asyncio.ensure_future(self.answer(message))
            self.task = task
            return LATER

        async def answer(self, message: Kqml) -> None:
            await asyncio.sleep(0.01)
            reply = kqml("tell", content="at last", in_reply_to=message["reply-with"])
            await self.bus.communicator.send(message["sender"], reply, sender=self)

    async with buses() as (a, b):
        slowly = Slowly()
        slowly.bus = a
        await a.directory.add(slowly, "slowly")
        assert (await b.communicator.ask("slowly", "(ask-one)")).content == "at last"
        assert (await a.communicator.ask("slowly", "(ask-one)")).content == "at last"


@on_a_loop
async def test_subscribers_are_told_of_changes(monkeypatch):
    async with buses(3) as (a, b, c):
        roof = await a.directory.add(Thermometer(), "roof")
        async with (
            b.communicator.subscribe("roof", "temperature") as there,
            a.communicator.subscribe(roof, kqml("ask-one", content="temperature")) as here,
            c.communicator.subscribe("roof", "humidity") as other,
        ):
            assert await a.communicator.notify(roof, "temperature", 21) == 2
            assert (await there.receive(5)).content == "21" == (await here.receive(5)).content
            assert await a.communicator.notify(roof, "humidity", "dry") == 1
            assert (await other.receive(5)).content == "dry"
            monkeypatch.setattr("pluribus.runtime.styles.objects.communicator.UPDATES_WAITING_MAX", 2)
            for number in range(4):
                await a.communicator.notify(roof, "temperature", number)
            with pytest.raises(Gap, match="2 messages were given up"):
                await here.receive(5)
            assert (await here.receive(5)).content == "2"
            await c.close()
            await eventually(lambda: len(a._post.directory.resident(roof.id).subscribers) == 2)
        await eventually(lambda: not a._post.directory.resident(roof.id).subscribers)


@on_a_loop
async def test_watching_and_listing():
    async with buses() as (a, b):
        await a.directory.add(Thermometer(), "roof", "thermometer")
        with a.communicator.watch() as seen:
            await b.communicator.ask("roof", "(ask-one :content place)")
            assert (await seen.receive(5)).content == "place"
        listed = await b.directory.list()
        assert [(one.type, one.aliases, one.member) for one in listed] == [
            ("Thermometer", ["roof", "thermometer"], "m0")
        ]
        assert a.directory.here()[0].id == listed[0].id and b.directory.here() == []
