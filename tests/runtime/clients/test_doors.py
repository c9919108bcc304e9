"""Doors for clients: what strangers, slow readers and long events may cost a member, and what they may not."""

import asyncio
import dataclasses

import pytest

import pluribus
from pluribus.core.errors import Gap, TooLarge
from pluribus.core.limits import CLIENT_GREETING_BYTES_MAX
from pluribus.core.secret import Secret
from pluribus.runtime.clients import doorman
from pluribus.runtime.clients import socket_line as socketline
from pluribus.wire import door
from tests.runtime.clients.test_client import SECRET, served, url_of

FRAME_BYTES_MAX = 100_000


def test_a_client_that_does_not_read_keeps_no_member_from_closing(monkeypatch):
    monkeypatch.setattr(doorman, "CLOSE_S", 0.2)

    async def scenario():
        member = await served("frozen")
        async with pluribus.connect(url_of(member)) as client, client.subscribe("t"):
            connection = client.line._writer.transport
            connection.pause_reading()
            (there,) = member.doors[0]._clients
            while not there._writer.transport.get_write_buffer_size():
                await member.publish("t", bytes(50_000))
                await asyncio.sleep(0)
            await asyncio.wait_for(member.close(), 5)
            connection.resume_reading()

    asyncio.run(scenario())


def test_a_member_that_does_not_read_keeps_no_client_from_closing(monkeypatch):
    monkeypatch.setattr(socketline, "CLOSE_S", 0.2)

    async def scenario():
        async with served("deaf") as member:
            client = await pluribus.connect(url_of(member))
            (there,) = member.doors[0]._clients
            there._writer.transport.pause_reading()
            while client.line._writer.transport.get_write_buffer_size() < 1 << 20:
                client.line._writer.write(door.frame(bytes(1 << 20)))
                await asyncio.sleep(0)
            await asyncio.wait_for(client.close(), 5)

    asyncio.run(scenario())


def test_live_events_that_are_together_too_long_for_a_frame_come_in_several(monkeypatch):
    monkeypatch.setattr(door, "CLIENT_FRAME_BYTES_MAX", FRAME_BYTES_MAX)

    async def scenario():
        async with (
            served("long", secret=SECRET) as member,
            pluribus.connect(url_of(member), secret=SECRET) as client,
            client.subscribe("t") as events,
        ):
            await member.publish_many([("t", bytes(1_000)) for _ in range(500)])
            await member.publish("t", bytes(2 * FRAME_BYTES_MAX))
            await member.publish("t", "the last")
            for _ in range(500):
                assert (await events.receive(5)).body == bytes(1_000)
            with pytest.raises(Gap) as gap:
                await events.receive(5)
            assert gap.value.missed == 1
            assert (await events.receive(5)).body == "the last"

    asyncio.run(scenario())


@dataclasses.dataclass
class Share:
    of: int

    def __post_init__(self):
        assert self.of or not picky


picky = False
pluribus.register(Share)


def test_an_event_that_a_client_cannot_make_anything_of_does_not_break_its_connection():
    async def scenario():
        async with (
            served("picky") as member,
            pluribus.connect(url_of(member)) as client,
            client.subscribe("t") as events,
        ):
            heard = client.line.heard["topics"]

            def hear(word):
                global picky
                picky = True
                heard(word)
                picky = False

            client.line.heard["topics"] = hear
            await member.publish_many([("t", Share(1)), ("t", Share(0)), ("t", Share(2))])
            assert [(await events.receive(5)).body.of for _ in range(2)] == [1, 2]
            assert client.stats()["client"] == {"connections": 1, "subscriptions": 1, "malformed": 1}

    asyncio.run(scenario())


def test_an_answer_that_is_too_long_for_a_frame_is_refused_in_words(tmp_path, monkeypatch):
    async def scenario():
        async with (
            served("longer", secret=SECRET, store=tmp_path / "a.db") as member,
            pluribus.connect(url_of(member), secret=SECRET) as client,
        ):
            await member.publish("t", bytes(FRAME_BYTES_MAX), durable=True)
            monkeypatch.setattr(door, "CLIENT_FRAME_BYTES_MAX", FRAME_BYTES_MAX)
            with pytest.raises(TooLarge, match="ask for less"):
                await asyncio.wait_for(client.log("t").read(), 5)
            assert await client.log("t").offsets() == (0, 1), "the same connection goes on"

    asyncio.run(scenario())


def test_what_is_too_long_does_not_count_as_sent(monkeypatch):
    monkeypatch.setattr(door, "CLIENT_FRAME_BYTES_MAX", FRAME_BYTES_MAX)
    client = door.ClientSide("bus", "client", Secret(SECRET), bytes(16))
    member = door.MemberSide("bus", 1, Secret(SECRET), bytes(16))
    member.proven(client.welcomed(member.greeted(client.hello)[0]))
    with pytest.raises(TooLarge):
        client.seal.seal(bytes(FRAME_BYTES_MAX))
    longest = bytes(FRAME_BYTES_MAX - door.SEAL_BYTES)
    sealed = client.seal.seal(longest)
    assert door.length_of(door.frame(sealed)[: door.LENGTH_BYTES]) == FRAME_BYTES_MAX
    assert member.seal.open(sealed) == longest


def test_a_stranger_may_not_say_much():
    async def scenario():
        async with served("strangers") as member:
            reader, writer = await asyncio.open_connection(*member.doors[0].address)
            writer.write((CLIENT_GREETING_BYTES_MAX + 1).to_bytes(door.LENGTH_BYTES, "little"))
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    asyncio.run(scenario())
