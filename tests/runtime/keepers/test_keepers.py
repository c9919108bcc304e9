"""Looking after keepers in Python: how they stand, voters added, removed and replaced, backups, the last resort."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import pluribus
from pluribus.core.errors import BadInput, Damaged, NotPrimary, Refused, Unavailable, Uncertain
from pluribus.group.keepers import Settings
from pluribus.pubsub.durable.requests import Find
from pluribus.runtime.keepers import roll
from pluribus.runtime.keepers.backups import back_up, restore
from pluribus.runtime.styles.topics import publisher
from pluribus.store.sqlite import SqliteBackend
from tests.group.keepers.test_files import flip_a_rowid
from tests.harness import eventually, new_bus, on_a_loop


async def three(stack, url, folder, names="abc"):
    """Three voters; the buses by name."""
    buses = {}
    for name in names:
        bus = pluribus.connect(url, name=name, store=folder / f"{name}.db", votes=True)
        buses[name] = await stack.enter_async_context(bus)
    await eventually(lambda: all(len(bus.keeping.keeper.keeper.voters) == len(names) for bus in buses.values()))
    return buses


def id_of(bus):
    return f"{bus.keeping.keeper.keeper.id:x}"


@on_a_loop
async def test_a_lost_keeper_is_replaced_and_a_dead_one_is_shown_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(roll, "ROLL_S", 0.3)
    url = new_bus()
    async with AsyncExitStack() as stack:
        buses = await three(stack, url, tmp_path)
        await buses["a"].publish("t", 1, durable=True)
        found = await buses["b"].keepers.ls()
        assert {one.member for one in found} == set("abc") and all(one.here and one.votes for one in found)
        assert [one.role for one in found] == ["leader", "follower", "follower"]
        lost = id_of(buses["c"])
        await buses["c"].close()
        new = await stack.enter_async_context(pluribus.connect(url, name="d", store=tmp_path / "d.db"))
        reader = await stack.enter_async_context(pluribus.connect(url, name="looker"))
        absent = next(one for one in await reader.keepers.ls() if not one.here)
        assert (absent.keeper, absent.votes) == (lost, True)
        await reader.keepers.replace(lost[:6], "d")
        found = await reader.keepers.ls()
        assert {one.member for one in found if one.votes} == set("abd") and all(one.here for one in found)
        await new.publish("t", 2, durable=True)
        with pytest.raises(BadInput, match="nobody is keeper"):
            await reader.keepers.remove(lost)
        with pytest.raises(BadInput, match="cannot replace itself"):
            await reader.keepers.replace("d", "d")
        await stack.enter_async_context(pluribus.connect(url, name="e", store=tmp_path / "e.db"))
        with pytest.raises(Refused, match="has no vote"):
            await reader.keepers.replace("e", "a")


@on_a_loop
async def test_who_was_removed_does_not_ask_again(tmp_path):
    url = new_bus()
    async with AsyncExitStack() as stack:
        buses = await three(stack, url, tmp_path)
        await buses["a"].keepers.remove("c")
        await eventually(lambda: len(buses["c"].keeping.keeper.keeper.voters) == 2)
        await asyncio.sleep(0.5)
        assert len(buses["a"].keeping.keeper.keeper.voters) == 2
        await buses["a"].keepers.add("c")
        assert len(buses["a"].keeping.keeper.keeper.voters) == 3


@on_a_loop
async def test_a_client_looks_after_keepers_too_but_backs_up_nothing(tmp_path):
    url = new_bus()
    name = url.partition("://")[2]
    served = pluribus.connect(url, name="a", store=tmp_path / "a.db", serve="127.0.0.1:0")
    async with served as bus, pluribus.connect(url, name="b", store=tmp_path / "b.db") as other:
        host, port = bus.doors[0].address
        async with pluribus.connect(f"client://{host}:{port}/{name}") as client:
            await client.publish("t", 1, durable=True)
            await eventually(lambda: other.keeping.keeper.counted)
            await client.keepers.add("b")
            assert sorted(one.member for one in await client.keepers.ls() if one.votes) == ["a", "b"]
            await client.keepers.remove("b")
            with pytest.raises(BadInput, match="back up where the keeper is"):
                await client.keepers.backup(tmp_path / "x")
            with pytest.raises(Refused, match="leads, so most voters are there"):
                await client.keepers.force()


@on_a_loop
async def test_most_voters_are_gone_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr(roll, "ROLL_S", 0.3)
    url = new_bus()
    async with AsyncExitStack() as stack:
        buses = await three(stack, url, tmp_path, "abcde")
        for number in range(20):
            await buses["a"].publish("t", number, durable=True)
        await asyncio.gather(*(buses[name].close() for name in "cde"))
        survivors = [buses[name] for name in "ab"]
        await eventually(lambda: not any(bus.keeping.keeper.keeper.role.hears_leader for bus in survivors))
        forced = await buses["b"].keepers.force()
        assert len(forced.follow) == 1 and forced.refused == []
        await buses["b"].publish("t", 20, durable=True)
        assert await buses["a"].log("t").offsets() == (0, 21)
        await eventually(lambda: all(len(bus.keeping.keeper.keeper.voters) == 2 for bus in survivors))


@on_a_loop
async def test_a_backup_of_a_running_keeper_is_restored_as_a_new_one(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="a", store=tmp_path / "a.db") as bus:
        await bus.publish_many([("t", number) for number in range(50)], durable=True)
        made = await bus.keepers.backup(tmp_path / "copy")
        assert made.keeper == id_of(bus) and made.end >= 2
        with pytest.raises(Unavailable, match="is there already"):
            await bus.keepers.backup(tmp_path / "copy")
        await bus.publish("t", 50, durable=True)
        with pytest.raises(Unavailable, match="is a backup"):
            SqliteBackend(tmp_path / "copy")
        restored = await asyncio.to_thread(restore, str(tmp_path / "copy"), str(tmp_path / "b.db"))
        assert restored.keeper != made.keeper and (restored.missing, restored.given_up) == (0, 0)
        async with pluribus.connect(url, name="b", store=tmp_path / "b.db") as other:
            assert id_of(other) == restored.keeper
            await eventually(lambda: other.keeping.keeper.counted)
            await eventually(lambda: other.keeping.keeper.keeper.applied == bus.keeping.keeper.keeper.applied)
            assert (await other.log("t").read(0)).next == 51
            assert [one.votes for one in await other.keepers.ls()] == [True, False]


@on_a_loop
async def test_when_everybody_is_gone_a_restored_backup_is_forced_to_go_on(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "a.db") as bus:
        await bus.publish_many([("t", number) for number in range(50)], durable=True)
        await bus.keepers.backup(tmp_path / "copy")
    await asyncio.to_thread(restore, str(tmp_path / "copy"), str(tmp_path / "b.db"))
    async with pluribus.connect(new_bus(), store=tmp_path / "b.db", votes=True) as bus:
        (standing,) = [one for one in await bus.keepers.ls() if one.here]
        assert (standing.votes, standing.leader, standing.health) == (False, "", "whole")
        forced = await bus.keepers.force()
        assert forced.keeper == id_of(bus)
        await bus.publish("t", 50, durable=True)
        assert await bus.log("t").offsets() == (0, 51)


def damaged_store(folder):
    path = folder / "lone.db"
    with pluribus.sync.connect(new_bus(), store=path) as bus:
        for number in range(200):
            bus.publish("t", number, durable=True)
    return path


def test_what_can_be_read_of_a_broken_store_is_taken_over(tmp_path):
    path = damaged_store(tmp_path)
    flip_a_rowid(path, 150)
    made = restore(str(path), str(tmp_path / "new.db"))
    assert 140 <= made.end < 200 and made.given_up >= 40 and made.missing == 0
    with pytest.raises(BadInput, match="is there already"):
        restore(str(path), str(tmp_path / "new.db"))
    with pluribus.sync.connect(new_bus(), store=tmp_path / "new.db") as bus:
        bus.keepers.force()
        first, end = bus.log("t").offsets()
        assert first == 0 and end >= 140
        assert [event.body for event in bus.log("t").read(0).events()] == list(range(end))


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda folder: back_up(str(folder / "nothing"), str(folder / "to")), "there is no store"),
        (lambda folder: back_up("postgresql://x", str(folder / "to")), "use its own backup"),
        (lambda folder: restore(str(folder / "nothing"), str(folder / "to")), "there is no file"),
        (lambda folder: restore(__file__, str(folder / "to")), "cannot be read"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, call, part):
    with pytest.raises((BadInput, Unavailable, Damaged), match=part):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


@on_a_loop
async def test_a_client_of_a_damaged_keeper_is_told_why(tmp_path, monkeypatch):
    monkeypatch.setattr(publisher, "GIVE_UP_S", 1.0)
    path = await asyncio.to_thread(damaged_store, tmp_path)
    flip_a_rowid(path, 150)
    url = new_bus()
    name = url.partition("://")[2]
    async with pluribus.connect(url, store=path, serve="127.0.0.1:0") as bus:
        bus.keeping.keeper.keeper.seat.settings = Settings(submit_s=0.5)
        host, port = bus.doors[0].address
        async with pluribus.connect(f"client://{host}:{port}/{name}") as client:
            with pytest.raises(Uncertain, match="the only keeper of 'keepers' cannot go on: its log is damaged"):
                await client.publish("t", 1, durable=True)
            with pytest.raises(NotPrimary, match="`pluribus keepers restore`"):
                await client.durable.ask(Find("#"), 0.0)
