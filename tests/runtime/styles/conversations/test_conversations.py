"""Conversations on a bus: the face, invitations, members, a store that survives, and what is refused."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed
from tests.harness import new_bus, on_a_loop


async def until(condition, timeout: float = 10.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - of another member
            await asyncio.sleep(0.01)


def shown(room) -> list[tuple[int, str]]:
    return [(depth, entry.body) for depth, entry in room.tree().walk()]


@pytest.mark.parametrize("stack", ["adhoc", "views"])
@on_a_loop
async def test_the_story_of_two_towns_and_a_member_that_comes_late(stack):
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack=stack) as ann,
        pluribus.connect(url, name="bob", stack=stack) as bob,
    ):
        rooms = [await bus.conversation("travel", description="where we were") for bus in (ann, bob)]
        delhi = await rooms[0].send("Did you visit Delhi?")
        chennai = await rooms[0].send("Did you visit Chennai?")
        await until(lambda: len(rooms[1].history()) == 2)
        await rooms[1].send("No", parent=chennai)
        await rooms[1].send("Yes", parent=delhi)
        async with pluribus.connect(url, name="cid", stack=stack) as cid:
            lobby = await cid.conversations()
            async for info in lobby.invitations():
                assert (info.gid, info.description) == ("travel", "where we were")
                break
            late = await lobby.join("travel")
            tree = [(0, "Did you visit Delhi?"), (1, "Yes"), (0, "Did you visit Chennai?"), (1, "No")]
            await until(lambda: shown(late) == tree)
            await until(lambda: shown(rooms[0]) == tree)
            await until(lambda: late.members == {"ann": True, "bob": True, "cid": True})
            heard = []

            async def read() -> None:
                async for message in rooms[0]:
                    heard.append((message.by, message.body, message.parent))
                    return

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            await late.send("I did", parent=delhi)
            await reading
            assert heard == [("cid", "I did", delhi)]
            await late.leave()
            assert late.closed and lobby.joined == []
            await until(lambda: rooms[0].members == {"ann": True, "bob": True})
        cid.validate()
        ann.validate()


@on_a_loop
async def test_a_history_survives_its_process(tmp_path):
    store = tmp_path / "ann.db"
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        room = await ann.conversation("notes", description="mine", store=store)
        first = await room.send("one")
        await room.send("two", parent=first)
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        lobby = await ann.conversations(store=store)
        assert lobby.joined == ["notes"] and lobby.info("notes").description == "mine"
        room = await lobby.room("notes")
        assert shown(room) == [(0, "one"), (1, "two")]
        await room.send("three", parent=first)
        assert [entry.body for entry in room.history()] == ["one", "two", "three"]
        with pytest.raises(BadInput, match="are kept in"):
            await ann.conversations(store=tmp_path / "other.db")


@on_a_loop
async def test_what_cannot_be_is_refused_with_a_sentence():
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        room = await ann.conversation("x")
        with pytest.raises(BadInput, match="no message"):
            await room.send("hello", parent=(1, 2))
        with pytest.raises(BadInput, match="is text, not bytes"):
            await room.send(b"hello")
        with pytest.raises(BadInput, match="too long"):
            await room.send("x" * 40_000)
        with pytest.raises(BadInput, match="too long"):
            await ann.conversation("y" * 120)
        with pytest.raises(BadInput, match="half a character at 2"):
            await room.send("ab\ud800")
        with pytest.raises(BadInput, match="half a character"):
            await ann.conversation("y", description="\udfff")
        with pytest.raises(BadInput, match="a description is text, not int"):
            await ann.conversation("y", description=7)
        for parent in ((1,), "first", 7):
            with pytest.raises(BadInput, match="is not the identity of a message"):
                await room.send("hello", parent=parent)
        with pytest.raises(BadInput, match=r"is open here with messages_max=.*identities_only=False"):
            await ann.conversation("x", identities_only=True)
        assert await ann.conversation("x") is room
        assert (await room.send("what was refused has used no number"))[1] == 0
        with pytest.raises(BadInput, match="keep nothing"):
            await ann.conversation("z", messages_max=0)
        await room.close()
        with pytest.raises(Closed, match="open it again"):
            await room.send("hello")
    async with pluribus.connect(new_bus(), name="ann", stack="best-effort") as ann:
        with pytest.raises(BadInput, match="'adhoc' or 'views'"):
            await ann.conversation("x")


@on_a_loop
async def test_who_looks_says_nothing_and_may_join_then():
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = await ann.conversation("x")
        await room.send("hello")
        lobby = await bob.conversations()
        await until(lambda: [info.gid for info in lobby] == ["x"])
        looking = await lobby.look("x")
        await until(lambda: len(looking.history()) == 1)
        with pytest.raises(BadInput, match="was opened to be read: join it"):
            await looking.send("not in it")
        with pytest.raises(BadInput, match="was opened to be read"):
            looking.write()
        assert room.members == {"ann": True} and lobby.joined == []
        joined = await bob.conversation("x")
        assert looking.closed and lobby.joined == ["x"]
        await joined.send("in it")
        await until(lambda: len(room.history()) == 2 and room.members == {"ann": True, "bob": True})


@on_a_loop
async def test_frames_of_anybody_do_not_disturb_a_room():
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="eve", stack="adhoc") as eve,
    ):
        room = await ann.conversation("x")
        forged = await eve.group("conversation/x", order="semantic", own=False)
        await forged.wait_for(2)
        for body in (b"", b"\xc1", "text", {"a": 1}, b"\x93\x01\x02\x03"):
            await forged.send(body)
        await until(lambda: room.stats()["malformed"] == 5)
        await room.send("still here")
        ann.validate()


@on_a_loop
async def test_who_opens_a_room_again_numbers_its_messages_and_requests_on():
    """Others take a request with an old number for one that comes late, and do not answer it."""
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = await ann.conversation("x")
        other = await bob.conversation("x")
        first = await room.send("one")
        await until(lambda: len(other.history()) == 1)
        await until(lambda: room.stats()["requests"] > 0)
        asked = room._sync.number
        await room.close()
        await other.send("two", parent=first)
        room = await ann.conversation("x")
        assert room._sync.number >= asked
        await until(lambda: [entry.body for entry in room.history()] == ["one", "two"])
        assert (await room.send("three"))[1] == 1


@pytest.mark.parametrize("stack", ["adhoc", "views"])
@on_a_loop
async def test_who_is_writing_and_who_watches(stack):
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack=stack) as ann,
        pluribus.connect(url, name="bob", stack=stack) as bob,
    ):
        here, there = [await bus.conversation("x") for bus in (ann, bob)]
        seen = []
        stop = here.on_change(lambda: seen.append((dict(here.members), here.writing)))
        await until(lambda: here.members == there.members == {"ann": True, "bob": True})
        there.write()
        await until(lambda: here.writing == ["bob"] and ({"ann": True, "bob": True}, ["bob"]) in seen)
        there.write(going=False)
        await until(lambda: here.writing == [])
        there.write()
        await until(lambda: here.writing == ["bob"])
        await there.send("done")
        await until(lambda: here.writing == [] and len(here.history()) == 1)
        stop()
        count = len(seen)
        there.write()
        await until(lambda: here.writing == ["bob"])
        assert len(seen) == count
        lobby, changes = await ann.conversations(), []
        lobby.on_change(lambda: changes.append(sorted(info.gid for info in lobby)))
        await bob.conversation("y")
        await until(lambda: ["x", "y"] in changes)
        assert [info.gid for info in lobby.invited] == ["y"]
        await there.close()
        with pytest.raises(Closed):
            there.write()
        await until(lambda: here.members == {"ann": True, "bob": False} and here.writing == [])
