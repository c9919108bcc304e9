"""Promises of the page on conversations that are easily forgotten: orphans, bounds, slow readers, one store."""

import asyncio

import pytest

import pluribus
from pluribus.conversations import history as history_of
from pluribus.conversations.kept import TABLE
from pluribus.conversations.words import Entry, GroupInfo, Groups, Said, encode
from pluribus.core.errors import BadInput, Overflow, TooLarge
from pluribus.runtime.styles.conversations import room as room_of
from pluribus.runtime.styles.conversations.lobby import PREFIX
from tests.harness import new_bus, on_a_loop
from tests.runtime.styles.conversations.test_conversations import shown, until


@on_a_loop
async def test_an_answer_whose_question_does_not_come_is_delivered_alone_and_found_below_it_later(monkeypatch):
    monkeypatch.setattr(history_of, "PATIENCE_S", 0.3)
    monkeypatch.setattr(history_of, "LOOK_S", 0.05)
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = await ann.conversation("towns")
        group = await bob.group(PREFIX + "towns", order="semantic", own=False)
        await group.wait_for(2)
        deliveries = aiter(room.deliveries())
        me = int(group.me)
        question = Entry((me, 0), None, "bob", 1.0, "Did you visit Delhi?")
        answer = Entry((me, 1), (me, 0), "bob", 2.0, "Yes")
        coming = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        await group.send(encode(Said([answer])))
        found = await coming
        assert (found.entry.body, found.orphan) == ("Yes", True) and shown(room) == [(0, "Yes")]
        await group.send(encode(Said([question])))
        assert not (await anext(deliveries)).orphan
        assert shown(room) == [(0, "Did you visit Delhi?"), (1, "Yes")]


@on_a_loop
async def test_a_member_that_keeps_identities_knows_the_tree_and_gives_nothing_to_others(monkeypatch):
    monkeypatch.setattr(history_of, "PATIENCE_S", 1.0)
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        full, light = await ann.conversation("towns"), await bob.conversation("towns", identities_only=True)
        heard = []
        light.on_messages(lambda delivered: heard.extend(found.entry.body for found in delivered))
        question = await full.send("Did you visit Delhi?")
        await full.send("Yes", parent=question)
        await until(lambda: len(light.history()) == 2, 30)
        own = await light.send("I did not", parent=question)
        assert heard[:2] == ["Did you visit Delhi?", "Yes"]
        assert [entry.body for entry in light.history()] == [None, None, "I did not"]
        assert [depth for depth, _ in light.tree().walk()] == [0, 1, 1]
        await until(lambda: full.get(own) is not None, 30)
        await ann.close()
        async with pluribus.connect(url, name="cleo", stack="adhoc") as cleo:
            late = await cleo.conversation("towns")
            await until(lambda: len(late.history()) == 1, 30)  # an orphan: nobody has its question
            assert late.get(own).body == "I did not"


@on_a_loop
async def test_a_room_keeps_no_more_than_it_was_told_to():
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        few = await ann.conversation("few", messages_max=64)
        for number in range(100):
            last = await few.send(f"number {number}")
        assert len(few.history()) <= 64 and few.get(last).body == "number 99"
        short = await ann.conversation("short", bytes_max=10_000)
        for _ in range(100):
            await short.send("x" * 500)
        assert 0 < short.stats()["bytes"] <= 10_000


@on_a_loop
async def test_a_reader_that_is_too_slow_is_told(monkeypatch):
    monkeypatch.setattr(room_of, "UNREAD_MAX", 3)
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        room = await ann.conversation("towns")
        reading = aiter(room)
        first = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        await room.send("one")
        assert (await first).body == "one"
        for number in range(4):
            await room.send(str(number))
        for number in range(3):
            assert (await anext(reading)).body == str(number)
        with pytest.raises(Overflow, match=r"see room.history\(\)"):
            await anext(reading)
        assert len(room.history()) == 5


@on_a_loop
async def test_what_does_not_fit_the_network_and_a_second_store_are_refused(tmp_path):
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        room = await ann.conversation("towns", store=str(tmp_path / "ann.db"))
        with pytest.raises(TooLarge, match="too long for this network"):
            await room.send("\N{EURO SIGN}" * 32_768)
        sent = await room.send("short")
        assert sent[1] == 0, "the long one has used no number"
        assert await ann.conversation("chess", store=str(tmp_path / "ann.db"))
        with pytest.raises(BadInput, match="give store= first"):
            await ann.conversation("go", store=str(tmp_path / "other.db"))


@on_a_loop
async def test_the_longest_message_that_is_taken_reaches_who_comes_late():
    """An answer carries it in a word that is longer than the first one."""
    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="adhoc") as ann:
        room = await ann.conversation("towns")
        most = room._carrier.group.longest_bytes
        count = most // 3 - 100
        for spare in range(200):
            left = most - spare - 3 * count
            try:
                sent = await room.send("\N{EURO SIGN}" * count + "x" * left)
                break
            except TooLarge:
                pass
        await room._carrier.sent()
        async with pluribus.connect(url, name="bob", stack="adhoc") as bob:
            late = await bob.conversation("towns")
            await until(lambda: late.get(sent) is not None, 20)


@on_a_loop
async def test_who_would_not_be_heard_is_told(monkeypatch):
    """Each start of a process is a writer, and a room keeps messages of so many."""
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        here, there = [await bus.conversation("towns") for bus in (ann, bob)]
        await here.send("Did you visit Delhi?")
        await until(lambda: len(there.history()) == 1)
        monkeypatch.setattr(history_of, "WRITERS_MAX", 1)
        with pytest.raises(Overflow, match="go on in a new conversation"):
            await there.send("Yes")
        assert (await here.send("Nobody?"))[1] == 1
        monkeypatch.setattr(history_of, "WRITERS_MAX", 2)
        assert (await there.send("Yes"))[1] == 0, "what was refused has used no number"


@on_a_loop
async def test_the_list_of_conversations_is_written_once_at_a_time_and_again_after_an_error(caplog):
    writes = []

    class Disk:
        def put(self, key, value, done):
            assert key == TABLE
            writes.append((value, done))

    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as ann:
        lobby = await ann.conversations()
        lobby._store = Disk()
        for number in range(3):
            lobby._joining.heard(7, Groups([GroupInfo(f"room {number}", "", 1.0)]), 0.0)
            lobby._settled()
        assert len(writes) == 1 and b"room 2" not in writes[0][0]
        writes[0][1](None)
        assert len(writes) == 2 and b"room 2" in writes[1][0]
        writes[1][1](OSError("the disk is full"))
        assert len(writes) == 2 and "not on disk: the disk is full" in caplog.text
        lobby._joining.heard(7, Groups([GroupInfo("room 3", "", 1.0)]), 0.0)
        lobby._settled()
        assert len(writes) == 3
        writes[2][1](None)
        lobby._store = None


@on_a_loop
async def test_a_listener_that_fails_makes_nobody_deaf(caplog):
    def fail(*_) -> None:
        raise RuntimeError("of the program")

    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        lobby = await bob.conversations()
        lobby.on_invitations(fail)
        lobby.on_change(fail)
        here = await ann.conversation("towns")
        await until(lambda: [info.gid for info in lobby.invited] == ["towns"])
        there, heard = await lobby.join("towns"), []
        there.on_messages(fail)
        there.on_change(fail)
        there.on_messages(lambda delivered: heard.extend(found.entry.body for found in delivered))
        for text in ("Did you visit Delhi?", "Did you visit Chennai?"):
            await here.send(text)
            await until(lambda text=text: text in heard)
        await until(lambda: here.members == there.members == {"ann": True, "bob": True})
        assert caplog.text.count("RuntimeError: of the program") >= 4
