"""The group manager: calls and call-backs of chapter 8, with overlapping groups; and the same without ``await``."""

import asyncio
import json
import threading

import pytest

import pluribus
from pluribus.core.errors import BadInput
from tests.harness import new_bus, on_a_loop
from tests.runtime.styles.conversations.test_conversations import until


class Console(pluribus.GroupManager):
    def __init__(self, bus, **options) -> None:
        super().__init__(bus, **options)
        self.messages: dict[str, list[str]] = {}
        self.groups: list[str] = []
        self.created: list[str] = []
        self.ids: dict[str, tuple[int, int]] = {}

    def on_messages(self, gid, messages) -> None:
        self.messages.setdefault(gid, []).extend(message.body for message in messages)
        self.ids |= {message.body: message.id for message in messages}

    def on_new_groups(self, groups) -> None:
        self.groups += [group.description for group in groups]
        raise RuntimeError("a call-back that fails is logged")

    def on_group_created(self, gid) -> None:
        self.created.append(gid)


@on_a_loop
async def test_four_members_in_groups_that_overlap():
    url = new_bus()
    buses = [await pluribus.connect(url, name=name, stack="adhoc") for name in "ABCD"]
    try:
        a, b, c, d = consoles = [Console(bus) for bus in buses]
        for console in consoles:
            await console.start()
        towns = await c.create_group("towns")
        chess = await a.create_group("chess")
        assert c.created == [towns] and a.created == [chess] and towns != chess
        for console, group in ((a, towns), (b, towns), (d, towns), (b, chess)):
            await until(lambda console=console, group=group: group in [info.gid for info in console._lobby])
            await console.join_group(group)
        await until(lambda: set(d.groups) == {"towns", "chess"})
        d.reject_group(chess)
        await c.send(towns, "Did you visit Delhi?")
        await c.send(towns, "Did you visit Chennai?")
        for console in (a, b):
            await until(lambda console=console: len(console.messages.get(towns, [])) == 2)
        await a.send(towns, "No", parent=a.ids["Did you visit Chennai?"])
        await b.send(towns, "Yes", parent=b.ids["Did you visit Delhi?"])
        await b.send(chess, "a game?")
        tree = [(0, "Did you visit Delhi?"), (1, "Yes"), (0, "Did you visit Chennai?"), (1, "No")]
        for console in consoles:
            room = console._lobby.rooms[towns]
            await until(lambda room=room: [(depth, one.body) for depth, one in room.tree().walk()] == tree)
            heard = console.messages[towns]
            assert heard.index("Yes") > heard.index("Did you visit Delhi?")
        await until(lambda: a.messages[chess] == ["a game?"])
        assert chess not in d.messages
        with pytest.raises(BadInput, match="not in the group"):
            await d.send(chess, "me too")
        d.groups.clear()
        d.advertise()
        await until(lambda: d.groups == ["chess"])
        await b.leave_group(chess)
        await until(lambda: a._lobby.rooms[chess].members == {"A": True})
    finally:
        for bus in buses:
            await bus.close()


@on_a_loop
async def test_a_program_that_starts_again_is_in_its_groups_and_hears_what_it_missed(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="A", stack="adhoc") as bus:
        a = Console(bus)
        await a.start()
        towns = await a.create_group("towns")
        async with pluribus.connect(url, name="B", stack="adhoc") as other:
            b = Console(other, store=tmp_path / "b.db")
            await b.start()
            await until(lambda: towns in [info.gid for info in b._lobby])
            await b.join_group(towns)
            question = await a.send(towns, "Delhi?")
            await until(lambda: b.messages.get(towns) == ["Delhi?"])
        await a.send(towns, "Chennai?")
        async with pluribus.connect(url, name="B", stack="adhoc") as other:
            b = Console(other, store=tmp_path / "b.db")
            await b.start()
            await until(lambda: b.messages.get(towns) == ["Delhi?", "Chennai?"])
            await b.send(towns, "Yes", parent=question)
            await until(lambda: a.messages[towns][-1] == "Yes")
            assert b.groups == [], "it is in it, and not invited"


@on_a_loop
async def test_who_joins_twice_is_given_each_message_once():
    async with pluribus.connect(new_bus(), name="A", stack="adhoc") as bus:
        a = Console(bus)
        await a.start()
        towns = await a.create_group("towns")
        await a.join_group(towns)
        await a.send(towns, "Delhi?")
        assert a.messages[towns] == ["Delhi?"]
        await a.leave_group(towns)
        await a.join_group(towns)
        await a.send(towns, "Chennai?")
        assert a.messages[towns][-1] == "Chennai?" and a.messages[towns].count("Chennai?") == 1


@on_a_loop
async def test_it_is_started_before_it_is_used():
    async with pluribus.connect(new_bus(), name="A", stack="adhoc") as bus:
        with pytest.raises(BadInput, match=r"await manager.start\(\) first"):
            Console(bus).advertise()


def test_without_await():
    url = new_bus()
    with (
        pluribus.sync.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.sync.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = ann.conversation("notes", description="ours")
        lobby = bob.conversations()
        invitation = next(lobby.invitations())
        assert (invitation.gid, invitation.description) == ("notes", "ours")
        other = lobby.join("notes")
        heard: list[str] = []

        def read() -> None:
            for message in other:
                heard.append(message.body)
                if len(heard) == 2:
                    return

        reading = threading.Thread(target=read)
        reading.start()
        sent = []
        while reading.is_alive() and len(sent) < 500:  # the thread begins to listen when it does
            sent.append(room.send(f"message {len(sent)}"))
            reading.join(0.02)
        reading.join(5)
        assert len(heard) == 2
        assert [info.gid for info in lobby] == ["notes"] and room.members["bob"] is True
        with pytest.raises(TypeError, match="identity_only"):
            ann.conversation("more", identity_only=True)
        plans = ann.conversation("plans", identities_only=True, messages_max=10)
        plans.send("seen by who looks")
        while "plans" not in [info.gid for info in lobby]:
            reading.join(0.02)
        looking = lobby.look("plans")
        while not looking.history():
            reading.join(0.02)
        with pytest.raises(BadInput, match="opened to be read"):
            looking.send("not in it")


class Answering(pluribus.sync.GroupManager):
    """Joins every group and answers every question, from its call-backs."""

    def __init__(self, bus, **options) -> None:
        super().__init__(bus, **options)
        self.heard: list[tuple[str, str]] = []
        self.created: list[str] = []
        self.answered = threading.Event()

    def on_messages(self, gid, messages) -> None:
        for message in messages:
            self.heard.append((message.by, message.body))
            if message.parent is None and message.by != self.bus.name:
                self.send(gid, f"Yes, {message.by}", parent=message.id)
            elif message.by != self.bus.name:
                self.answered.set()

    def on_new_groups(self, groups) -> None:
        for group in groups:
            self.join_group(group.gid)

    def on_group_created(self, gid) -> None:
        self.created.append(gid)
        raise RuntimeError("a call-back that fails is logged")


def test_call_backs_without_await_may_call_the_manager():
    url = new_bus()
    with (
        pluribus.sync.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.sync.connect(url, name="bob", stack="adhoc") as bob,
    ):
        a, b = Answering(ann), Answering(bob)
        with pytest.raises(BadInput, match=r"await manager.start\(\) first"):
            a.advertise()
        a.start()
        b.start()
        towns = a.create_group("towns")
        a.send(towns, "Did you visit Delhi?")
        assert a.answered.wait(20)
        assert a.heard == [("ann", "Did you visit Delhi?"), ("bob", "Yes, ann")] and a.created == [towns]
        assert bob.conversations().joined == [towns]
        b.leave_group(towns)
        with pytest.raises(BadInput, match="not in the group"):
            b.send(towns, "again")
        calling = [thread for thread in threading.enumerate() if thread.name == "pluribus-group-manager"]
        assert len(calling) == 2
    for thread in calling:
        thread.join(20)
        assert not thread.is_alive(), "it ends with the bus"


def test_a_program_that_is_far_behind_is_told_so_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr("pluribus.runtime.styles.conversations.sync.CALLS_MAX", 2)
    with pluribus.sync.connect(new_bus(), name="ann", stack="adhoc") as ann:
        free, busy = threading.Event(), threading.Event()

        class Slow(Answering):
            def on_group_created(self, gid) -> None:
                busy.set()
                free.wait(20)

        slow = Slow(ann)
        slow.start()
        group = slow.create_group("towns")
        assert busy.wait(20)
        for number in range(5):
            slow.send(group, f"number {number}")
        free.set()
        assert [record.getMessage() for record in caplog.records if "call-backs behind" in record.getMessage()]
        assert len(ann.conversation(group).history()) == 5


@on_a_loop
async def test_a_terminal():
    from pluribus.cli.chat import Terminal

    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = await bob.conversation("lounge")
        await room.send("who \x1b[31mis there?")
        lobby = await ann.conversations()
        shown: list[str] = []

        async def lines():
            await until(lambda: any("is there?" in line for line in shown))
            for line in ("/re 0 I am", "hello", "/re 99 x", "/nothing", "/help", "/who", "/rooms", "/tree"):
                yield line
            await until(lambda: len(room.history()) == 3)
            for line in ("/join chess", "/leave", "", "/quit", "never"):
                yield line

        await Terminal(lobby, shown.append).talk("lounge", lines())
        assert "[0] bob: who  [31mis there?" in shown, "nothing is taken for a command of the terminal"
        assert "  [1] ann: I am" in shown and "[1 to 0] ann: I am" in shown
        assert "! /re 99 x answers nothing: write /re N text, with the number of a message" in shown
        assert any(line.startswith("! /nothing is no command") for line in shown)
        assert "-- you left; /join NAME goes to another one" in shown
        assert [entry.body for entry in room.history()].count("never") == 0


@on_a_loop
async def test_a_terminal_that_cannot_go_elsewhere_hears_on_and_prints_documents():
    from pluribus.cli.chat import Terminal

    url = new_bus()
    async with (
        pluribus.connect(url, name="ann", stack="adhoc") as ann,
        pluribus.connect(url, name="bob", stack="adhoc") as bob,
    ):
        room = await bob.conversation("lounge")
        lobby = await ann.conversations()
        shown: list[str] = []

        async def lines():
            yield "/join " + "x" * 200
            await room.send("still heard?")
            await until(lambda: any("still heard?" in line for line in shown))
            yield "/rooms"

        await Terminal(lobby, shown.append, json=True).talk("lounge", lines())
        found = [json.loads(line) for line in shown]
        assert [one["body"] for one in found if "body" in one] == ["still heard?"]
        notes = [one["note"] for one in found if "note" in one]
        assert len(notes) == len(found) - 1 and any("is not a name" in note for note in notes)


@on_a_loop
async def test_the_verbs_look_and_join_nothing():
    from pluribus.cli import conversations as verbs

    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="adhoc") as ann:
        room = await ann.conversation("lounge", description="for all")
        first = await room.send("one")
        await room.send("two", parent=first)
        listed, rows = await asyncio.gather(verbs._listed(url, "adhoc", 1.0), verbs._read(url, "adhoc", 1.0, "lounge"))
        assert listed == [{"name": "lounge", "description": "for all", "members": ["ann"]}]
        assert [(row["depth"], row["body"]) for row in rows] == [(0, "one"), (1, "two")]
        assert room.members == {"ann": True}
        with pytest.raises(BadInput, match="nobody knows a conversation 'other'"):
            await verbs._read(url, "adhoc", 0.2, "other")
