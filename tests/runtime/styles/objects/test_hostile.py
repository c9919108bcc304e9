"""What others send that they should not, and a network that parts: nothing dies, nothing hangs, nothing grows."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import NoObject, RemoteError
from pluribus.group.calls import called
from pluribus.objects.words import (
    ALL,
    KQML,
    OBJECT,
    ONE,
    Changed,
    Found,
    Invocation,
    Letter,
    Offer,
    Outcomes,
    Settled,
    Sought,
    Whereabouts,
)
from pluribus.runtime.bus import VIEWS
from tests.harness import eventually, on_a_loop
from tests.runtime.styles.objects.things import Thermometer, buses

ID = "id:" + "7" * 32
WORDS = [
    "some text",
    {"a": 1},
    b"\xff\x00",
    Letter(KQML, "roof", ONE, ID, b"garbage"),
    Letter(KQML, "roof", ALL, ID, b""),
    Letter(OBJECT, "roof", ONE, ID, b"\x92\x00\x91\x92\x00\x00", "q1"),
    Letter(77, "roof", ONE, ID, b"", "q1"),
    Letter(KQML, "nobody", ONE, "nobody", b"garbage", "", "q9"),
    Letter(KQML, "", 99, "", b""),
    Changed(["roof"] * 1_000),
    Found([ID]),
    Outcomes([(ID, 9, (0, b""))]),
    Invocation("omni", "Nothing", "", "all", called(0, "x", (), {})),
    Invocation("uni", "", ID, "first", called(0, "x", (), {})),
    Invocation("sideways", "", "", "some", called(0, "read", (), {})),
    Sought("roof"),
    Offer("queue", 1, 0, "process:1", "roof", b"garbage"),
    Settled("queue", 1 << 62),
    Whereabouts("roof"),
]


@on_a_loop
async def test_a_node_survives_any_word():
    async with buses() as (a, b):
        await a.directory.add(Thermometer("roof"), "roof")
        group = await b._post.group()
        for word in WORDS:
            await group.send(word)
            await group.send(word, to=a.me)
            await asyncio.gather(group.ask(word, timeout=0.05), return_exceptions=True)
        assert (await b.communicator.ask("roof", "(ask-one :content place)")).content == "roof"
        await eventually(lambda: a.communicator.stats()["malformed"] >= 6)
        assert len(a._post.replies) == 0 and a.communicator.stats()["running"] == 0


@on_a_loop
async def test_what_cannot_be_read_is_answered_with_an_error():
    async with buses() as (a, b):
        await a.directory.add(Thermometer("roof"), "roof")
        shadow = await b.directory.find("roof")
        post = b._post
        loop = asyncio.get_running_loop()
        for word, kind in (
            (Letter(KQML, shadow.id, ONE, post.itself.id, b"garbage", "mine"), "MalformedFrame"),
            (Letter(OBJECT, ID, ONE, post.itself.id, b"\x92\xc0\x90", "mine"), "NoObject"),
        ):
            told = loop.create_future()
            post.replies.begin(post.itself.id, "mine", a.me, told.set_result)
            await (await post.group()).send(word, to=a.me)
            answer = await asyncio.wait_for(told, 5)
            assert answer.performative == "error" and answer["kind"] == kind


def test_a_directory_that_is_cut_in_two_and_meets_again():
    async def story() -> None:
        async with pluribus.sim.world(members=4, seed=11, stack=VIEWS) as world:
            for number, bus in enumerate(world.buses):
                await bus.directory.add(Thermometer(str(number)), "thermometer")
            first, last = world.buses[0], world.buses[3]
            await (await first._post.group()).wait_for(4, timeout=30)
            assert len(await first.directory.find_all("thermometer", timeout=5)) == 4
            stuck = asyncio.ensure_future(last.communicator.ask("thermometer", "(ask-one :content never)", timeout=60))
            world.partition([0, 1], [2, 3])
            await asyncio.sleep(20)
            for bus in world.buses:
                found = await bus.directory.find_all("thermometer")
                assert len(found) == 2, "each side finds its own"
            await last.directory.add(Thermometer("new"), "new")
            with pytest.raises(NoObject):
                await first.directory.find("new", timeout=1)
            world.heal()
            assert (await first.directory.find("new", timeout=60)).member == last.me
            for bus in world.buses:
                await (await bus._post.group()).wait_for(4, timeout=60)
                assert len(await bus.directory.find_all("thermometer")) == 4
                answers = await bus.communicator.ask_all("thermometer", "(ask-one :content place)")
                assert sorted(str(answer.content) for answer in answers) == ["0", "1", "2", "3"]
            (ended,) = await asyncio.gather(stuck, return_exceptions=True)
            assert isinstance(ended, pluribus.PluribusError)
            world.validate()

    pluribus.sim.run(story())


@on_a_loop
async def test_an_object_that_is_asked_too_much_says_so(monkeypatch):
    monkeypatch.setattr("pluribus.objects.communicator.OBJECT_TASKS_MAX", 2)
    monkeypatch.setattr("pluribus.objects.communicator.OBJECT_WAITING_MAX", 3)
    async with buses() as (a, b):
        await a.directory.add(Thermometer(), "roof")
        shadow = await b.directory.find("roof")
        asking = [asyncio.ensure_future(shadow.ask("(ask-one :content never)", timeout=0.5)) for _ in range(8)]
        ended = await asyncio.gather(*asking, return_exceptions=True)
        refused = [error for error in ended if isinstance(error, RemoteError)]
        assert len(refused) == 3 and all(error.kind == "Overflow" for error in refused)
