"""JavaSpaces: entries in transactions, leases, and listeners that go on after a break."""

import asyncio

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, LeaseEnded, TransactionEnded
from pluribus.javaspaces import FOREVER, JavaSpace
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.clients.test_client import served, url_of

WAIT_MS = 60_000


@pluribus.register
class JavaAccount(msgspec.Struct):
    owner: str | None = None
    balance: int | None = None


@pluribus.register
class JavaSavings(JavaAccount):
    rate: int | None = None


@on_a_loop
async def test_what_a_transaction_takes_is_hidden_and_comes_back(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "a.db") as bus:
        space = await JavaSpace.find(bus, "accounts", durable=True)
        await space.write(JavaSavings("Ann", 10, 3), None, FOREVER)
        txn = bus.transaction()

        async def fails():
            async with txn:
                assert await space.take(JavaAccount("Ann"), txn, WAIT_MS) == JavaSavings("Ann", 10, 3)
                assert await space.read_if_exists(JavaAccount(), None, 0) is None
                await space.write(JavaAccount("Bob", 1), txn, FOREVER)
                assert await space.read(JavaAccount("Bob"), txn, WAIT_MS) == JavaAccount("Bob", 1)
                assert await space.read_if_exists(JavaAccount("Bob"), None, 0) is None
                waiting.append(asyncio.ensure_future(space.take_if_exists(JavaAccount("Ann"), None, WAIT_MS)))
                await eventually(lambda: space.space.stats()["waiting"] == 1)
                raise ZeroDivisionError

        waiting = []
        with pytest.raises(ZeroDivisionError):
            await fails()
        assert await waiting[0] == JavaSavings("Ann", 10, 3)
        assert await space.read_if_exists(JavaAccount("Bob"), None, 0) is None
        with pytest.raises(TransactionEnded):
            await space.write(JavaAccount("Eve", 1), txn, FOREVER)


@on_a_loop
async def test_what_a_transaction_reads_others_cannot_take_until_its_end(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "a.db") as bus:
        space = await JavaSpace.find(bus, "accounts", durable=True)
        await space.write(JavaAccount("Ann", 10), None, FOREVER)
        async with bus.transaction() as txn:
            assert await space.read(JavaAccount("Ann"), txn, WAIT_MS) == JavaAccount("Ann", 10)
            assert await space.read(JavaAccount("Ann"), None, WAIT_MS) == JavaAccount("Ann", 10)
            assert await space.take_if_exists(JavaAccount("Ann"), None, 0) is None
            waiting = asyncio.ensure_future(space.take(JavaAccount("Ann"), None, FOREVER))
            await eventually(lambda: space.space.stats()["waiting"] == 1)
        assert await waiting == JavaAccount("Ann", 10)


@on_a_loop
async def test_processes_join_and_the_commit_is_one_with_queues_and_topics(tmp_path):
    name = f"java-{tmp_path.name}"
    async with served(name, store=tmp_path / "a.db") as bus, pluribus.connect(url_of(bus)) as other:
        mine = await JavaSpace.find(bus, "accounts", durable=True)
        theirs = await JavaSpace.find(other, "accounts", durable=True)
        queue = await bus.queue("told")
        await mine.write(JavaAccount("Ann", 10), None, FOREVER)
        async with bus.transaction() as txn:
            taken = await mine.take(JavaAccount("Ann"), txn, WAIT_MS)
            async with other.transaction(join=txn.id) as joined:
                await theirs.write(JavaAccount("Bob", taken.balance), joined, FOREVER)
                assert await theirs.read(JavaAccount("Bob"), joined, WAIT_MS) == JavaAccount("Bob", 10)
            assert await mine.read(JavaAccount("Bob"), txn, WAIT_MS) == JavaAccount("Bob", 10)
            await txn.send(queue, "moved")
            await txn.publish("accounts/moved", 10)
            assert await mine.read_if_exists(JavaAccount("Bob"), None, 0) is None
        assert await theirs.take(JavaAccount("Bob"), None, WAIT_MS) == JavaAccount("Bob", 10)
        assert await mine.read_if_exists(JavaAccount("Ann"), None, 0) is None
        assert [one.body async for one in queue.browse()] == ["moved"]
        assert [one.body for one in (await bus.log("accounts/moved").read()).events()] == [10]
        loose = await JavaSpace.find(bus, "loose")
        views = await bus.space("views", kind="views")
        async with bus.transaction() as txn:
            for call in (
                lambda: loose.write(JavaAccount("A", 1), txn, FOREVER),
                lambda: views.take(("a",), transaction=txn),
            ):
                with pytest.raises(BadInput, match="only a durable space of kind 'replicated' joins a transaction"):
                    await call()


@on_a_loop
async def test_a_listener_goes_on_after_a_break_and_is_told_of_gaps():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        mine, theirs = await JavaSpace.find(one, "a"), await JavaSpace.find(other, "a")
        heard, again = [], []
        registration = await theirs.notify(JavaAccount("Ann"), None, heard.append, WAIT_MS, "back")
        await mine.write(JavaAccount("Ann", 0), None, FOREVER)
        await eventually(lambda: len(heard) == 1)
        machine = mine.space._way._machine()
        await eventually(lambda: machine.registrations.known[registration.id].seen == 1)
        registration._task.cancel()
        await mine.space.write_many([JavaAccount("Ann", number) for number in range(1, 1_501)])
        resumed = await mine.resume(registration.id, again.append)
        await eventually(lambda: len(again) == 1_024)
        assert (again[0].sequence_number, again[0].missed) == (1_501 - 1_023, 1_501 - 1_024 - 1)
        assert [again[-1].entry, again[-1].hand_back, again[-1].missed] == [JavaAccount("Ann", 1_500), "back", 0]
        await resumed.cancel()
        with pytest.raises(LeaseEnded, match="registration"):
            await mine.resume(registration.id, again.append)


@on_a_loop
async def test_leases_are_granted_renewed_cancelled_and_end():
    async with pluribus.connect(new_bus()) as bus:
        space = await JavaSpace.find(bus, "leases")
        long = await space.write(JavaAccount("Ann", 1), None, 10**12)
        assert long.granted_s == 365 * 24 * 3_600  # shorter than asked for
        assert await long.renew(60) == 60
        await long.cancel()
        with pytest.raises(LeaseEnded, match="has ended"):
            await long.renew(60)
        short = await space.write(JavaAccount("Bob", 1), None, 200)
        machine = space.space._way._machine()
        await eventually(lambda: not machine.kept)
        with pytest.raises(LeaseEnded, match="has ended"):
            await short.cancel()


@on_a_loop
async def test_a_listener_that_fails_is_told_of_the_next_event(caplog):
    async with pluribus.connect(new_bus()) as bus:
        space = await JavaSpace.find(bus, "failing")
        told = []

        def listen(event):
            told.append(event.entry)
            if len(told) == 1:
                raise LeaseEnded("not that of the registration")

        await space.notify(JavaAccount(), None, listen, FOREVER)
        for balance in (1, 2):
            await space.write(JavaAccount("Ann", balance), None, FOREVER)
        await eventually(lambda: told == [JavaAccount("Ann", 1), JavaAccount("Ann", 2)])
        assert "a listener failed on" in caplog.text
