"""A person's rooms without a browser: what its screens are told, unread marks, rooms that it comes back to."""

import asyncio
import time

import pytest

import pluribus
from pluribus.console.chat.open_room import OpenRoom
from pluribus.console.chat.person import LISTED_MAX, Person
from pluribus.console.chat.words import Say, asked, identity, row, written
from pluribus.conversations.joining import GROUPS_MAX, TOLD_MAX
from pluribus.conversations.words import Entry, GroupInfo, Groups, Row
from pluribus.core.errors import BadInput
from tests.harness import new_bus, on_a_loop


class Noted:
    """A screen that remembers what it was told."""

    def __init__(self):
        self.said, self.marks, self.gone, self.lobbies, self.people = [], [], [], 0, 0

    def lobby_changed(self):
        self.lobbies += 1

    def people_changed(self, room):
        self.people += 1

    def messages(self, room, entries):
        self.said += [(room, entry.by, entry.body) for entry in entries]

    def read(self, room, ids):
        self.marks += ids

    def left(self, room):
        self.gone.append(room)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of another member
            await asyncio.sleep(0.01)


async def person(bus, store=None):
    found = Person(bus, await bus.conversations(store=store), time.time)
    await found.start()
    return found


@on_a_loop
async def test_what_screens_are_told():
    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as a,
        pluribus.connect(url, name="bob", stack="adhoc") as b,
    ):
        ann, bob = await person(a), await person(b)
        screen = Noted()
        stop = bob.watch(screen)
        await ann.create("garden", "what grows")
        with pytest.raises(BadInput, match="there is a room 'garden' already"):
            await ann.create("garden", "")
        await until(lambda: bob.lobby()["invitations"] != [])
        assert bob.lobby()["invitations"] == [{"name": "garden", "about": "what grows", "members": ["ann"], "count": 1}]
        bob.refuse("garden")
        assert bob.lobby()["invitations"] == [] and bob.lobby()["others"][0]["name"] == "garden"
        await bob.join("garden")
        await until(lambda: ann.room("garden").people()["members"] == [("ann", True), ("bob", True)])

        ann.room("garden").room.write()
        await until(lambda: bob.room("garden").people()["writing"] == ["ann"])
        question = await ann.say("garden", "Roses?", None)
        await until(lambda: screen.said == [("garden", "ann", "Roses?")])
        assert bob.room("garden").people()["writing"] == []
        assert bob.lobby()["rooms"] == [{"name": "garden", "unread": 1}]
        await bob.say("garden", "Yes", question)
        assert bob.room("garden").unread == 1, "what one says oneself is read"
        bob.mark_read("garden", [question, question, written((3, 4))])
        assert screen.marks == [question] and bob.room("garden").unread == 0
        before = screen.lobbies
        await bob.leave("garden")
        assert screen.gone == ["garden"] and screen.lobbies > before
        with pytest.raises(BadInput, match="not in the room"):
            await bob.say("garden", "still here?", None)
        await until(lambda: [name for name, _ in ann.room("garden").people()["members"]] == ["ann"])
        stop()
        ann.close()
        bob.close()


@on_a_loop
async def test_who_comes_back_is_in_its_rooms_and_sees_what_is_new(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="adhoc") as a:
        ann = await person(a)
        await ann.create("garden", "")
        for store, unread in ((None, 0), (tmp_path / "bob.db", 0), (tmp_path / "bob.db", 1), (None, 0)):
            async with pluribus.connect(url, name="bob", stack="adhoc") as b:
                bob = await person(b, store)
                await until(lambda bob=bob: "garden" in bob.rooms or bob.lobby()["invitations"])
                await bob.join("garden")
                count = len(ann.room("garden").room.history())
                await until(lambda bob=bob, count=count: len(bob.room("garden").room.history()) == count)
                assert bob.room("garden").unread == unread
                bob.close()
            await ann.say("garden", "said while bob was away", None)


@on_a_loop
async def test_a_flood_of_invitations_is_shown_in_part():
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as bus:
        ann = await person(bus)
        rows = [Row(f"m{number}", 1, True) for number in range(100)]
        for teller in range(20):
            groups = [GroupInfo(f"room {teller} {number}", "", 1.0, rows, 100) for number in range(TOLD_MAX)]
            ann._lobby._joining.heard(teller, Groups(groups), 0.0)
        ann._lobby._settled()
        shown = ann.lobby()
        assert len(shown["invitations"]) == LISTED_MAX and shown["more"] == GROUPS_MAX - LISTED_MAX
        assert shown["invitations"][0]["members"] == ["m0", "m1", "m10", "m11"]
        assert shown["invitations"][0]["count"] == 100
        ann.refuse("room 0 0")
        assert "room 0 0" not in [found["name"] for found in ann.lobby()["invitations"]]
        ann.close()


@on_a_loop
async def test_who_is_said_to_be_in_very_many_rooms_is_brought_back_to_some(monkeypatch):
    monkeypatch.setattr("pluribus.console.chat.person.COME_BACK_MAX", 3)
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as bus:
        ann = await person(bus)
        groups = [GroupInfo(f"room {number}", "", 1.0, [Row("ann", 1, True)], 1) for number in range(20)]
        ann._lobby._joining.heard(666, Groups(groups), 0.0)
        ann._lobby._settled()
        await until(lambda: len(ann.rooms) == 3)
        assert len(ann.lobby()["invitations"]) == 17, "the others may be joined by hand"
        await ann.join("room 19")
        assert len(ann.rooms) == 4
        ann.close()


@on_a_loop
async def test_the_latest_messages_come_with_what_they_answer():
    async with pluribus.connect(new_bus(), name="ann", stack="adhoc") as bus:
        room = await bus.conversation("long")
        for number in range(100):
            parent = {90: (7, 5), 5: (7, 2)}.get(number)
            room._history.add(Entry((7, number), parent, "bob", float(number), str(number)), 0.0)
        found = OpenRoom(room, "ann", 0.0, lambda name, entries: None, lambda name: None)
        rows, earlier = found.latest(20)
        assert {int(row[4]) for row in rows} == {2, 5, *range(80, 100)} and earlier == 78
        rows, earlier = found.latest(100)
        assert len(rows) == 100 and earlier == 0


def test_words_of_a_browser_are_checked():
    word = asked({"type": "say", "room": "x", "text": "hello", "parent": written((1 << 62, 7))})
    assert isinstance(word, Say) and identity(word.parent) == (1 << 62, 7)
    for wrong in (
        None,
        {},
        {"type": "nonsense"},
        {"type": "say", "room": 1},
        {"type": "read", "room": "x", "ids": ["1"]},
    ):
        with pytest.raises(BadInput, match="load the page again"):
            asked(wrong)
    assert row(Entry((1, 2), (3, 4), "ann", 5.0, "x"), True) == [written((1, 2)), written((3, 4)), "ann", 5.0, "x", 1]
