"""Transactions as programs use them: on a keeper, from another member, from a client, and without await."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import pluribus
from pluribus.core.errors import BadInput, NotPrimary, TooLarge, TransactionEnded, Uncertain
from tests.runtime.clients.test_client import served, url_of

WAIT_S = 60


@asynccontextmanager
async def opened(how, tmp_path):
    async with served(f"transactions-{tmp_path.name}", store=tmp_path / "a.db") as keeper:
        if how == "keeper":
            yield keeper
        elif how == "member":
            async with pluribus.connect(f"inproc://transactions-{tmp_path.name}") as bus:
                yield bus
        else:
            async with pluribus.connect(url_of(keeper)) as bus:
                yield bus


async def bodies(queue):
    return [one.body async for one in queue.browse()]


async def events(bus, topic):
    return [one.body for one in (await bus.log(topic).read()).events()]


@pytest.mark.parametrize("how", ["keeper", "member", "client"])
def test_all_of_it_or_nothing(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as bus:
            orders, done = await bus.queue("orders"), await bus.queue("done")
            space = await bus.space("stock", durable=True)
            await orders.send("order 1")
            await space.write(("apples", 5))

            async def fails(tx):
                async with tx:
                    m = await tx.receive(orders, timeout=WAIT_S)
                    assert m.body == "order 1"
                    await tx.send(done, "half")
                    await tx.publish("shop/sold", "half")
                    assert await tx.take(space, ("apples", int), timeout=WAIT_S) == ("apples", 5)
                    await tx.write(space, ("apples", 4))
                    raise ZeroDivisionError

            tx = bus.transaction()
            with pytest.raises(ZeroDivisionError):
                await fails(tx)
            assert tx.state == "aborted" and await bus.transaction_state(tx.id) == "aborted"
            assert await bodies(done) == [] and await events(bus, "shop/sold") == []
            assert await space.take_if_exists(("apples", 5), timeout=WAIT_S) == ("apples", 5)
            await space.write(("apples", 5))

            async with bus.transaction() as tx:
                m = await tx.receive(orders, timeout=WAIT_S)
                assert m.body == "order 1" and m.deliveries == 2
                await tx.send(done, {"order": 1}, priority=9, properties={"region": "eu"})
                await tx.send(done, b"two")
                await tx.publish("shop/sold", "one", headers={"by": "me"})
                assert await tx.take(space, ("apples", int), timeout=WAIT_S) == ("apples", 5)
                await tx.write(space, ("apples", 4))
                # No dirty reads: nobody else sees any of it yet.
                assert await bodies(done) == [] and await events(bus, "shop/sold") == []
                assert await done.receive(timeout=0) is None and await orders.receive(timeout=0) is None
                assert await space.read_if_exists(("apples", 4)) is None
                assert await space.count(("apples", int)) == 0
            assert tx.state == "committed" and await bus.transaction_state(tx.id) == "committed"
            assert await bodies(done) == [{"order": 1}, b"two"] and await events(bus, "shop/sold") == ["one"]
            assert await space.take(("apples", int), timeout=WAIT_S) == ("apples", 4)
            assert (await orders.stats()).depth == 0
            await tx.commit()  # again is harmless
            async with done.receive("region = 'eu'", timeout=WAIT_S) as m:
                assert m.body == {"order": 1} and m.priority == 9

    asyncio.run(scenario())


def test_what_cannot_be_in_one(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            memory = await bus.queue("memory", durable=False)
            loose = await bus.space("loose")
            async with bus.transaction() as tx:
                with pytest.raises(BadInput, match="durable queues of one bus"):
                    await tx.send(memory, b"x")
                with pytest.raises(BadInput, match="durable=True"):
                    await tx.write(loose, (1,))
                with pytest.raises(TooLarge, match="at most"):
                    await tx.publish("t", b"x" * (3 << 20))
            with pytest.raises(BadInput, match="enter it first"):
                await bus.transaction().publish("t", b"x")
            with pytest.raises(BadInput, match="timeout"):
                bus.transaction(timeout=0)
            with pytest.raises(TransactionEnded):
                await tx.publish("t", b"late")

    asyncio.run(scenario())


def test_an_abandoned_one_ends_by_its_time(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            q, space = await bus.queue("q"), await bus.space("s", durable=True)
            await q.send("again")
            await space.write(("t",))
            tx = bus.transaction(timeout=0.5)
            await tx.__aenter__()
            assert (await tx.receive(q, timeout=WAIT_S)).body == "again"
            await tx.take(space, ("t",), timeout=WAIT_S)
            m = await q.receive(timeout=WAIT_S)
            assert m.body == "again" and m.deliveries == 2
            await m.ack()
            assert await space.take(("t",), timeout=WAIT_S) == ("t",)
            with pytest.raises(TransactionEnded):
                await tx.commit()

    asyncio.run(scenario())


def test_an_uncertain_commit_is_asked_for_again(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            q = await bus.queue("q")
            tx = await bus.transaction().__aenter__()
            await tx.send(q, "once")
            style, real = tx._style, tx._style.do

            async def lost(number, parts, timeout):
                await real(number, parts, timeout)
                raise NotPrimary("the answer got lost")

            style.do = lost
            with pytest.raises(Uncertain, match="commit it again"):
                await tx.commit()
            with pytest.raises(TransactionEnded):
                await tx.abort()
            assert await bus.transaction_state(tx.id) == "committed"
            style.do = real
            await tx.commit()
            assert tx.state == "committed" and await bodies(q) == ["once"]

    asyncio.run(scenario())


def test_several_processes_act_in_one(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus, pluribus.connect(url_of(bus)) as other:
            q, theirs = await bus.queue("q"), await other.queue("q")
            done = await other.queue("done")
            await q.send("first")
            async with bus.transaction() as tx:
                async with other.transaction(join=tx.id) as joined:
                    assert (await joined.receive(theirs, timeout=WAIT_S)).body == "first"
                    await joined.send(done, "by the other")
                assert await bodies(done) == []
                await tx.send(q, "by me")
            assert await bodies(done) == ["by the other"] and await bodies(q) == ["by me"]
            with pytest.raises(TransactionEnded, match="committed"):
                async with other.transaction(join=tx.id):
                    pass

            async def fails():
                async with bus.transaction() as tx:
                    async with other.transaction(join=tx.id) as joined:
                        assert (await joined.receive(theirs, timeout=WAIT_S)).body == "by me"
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fails()
            m = await q.receive(timeout=WAIT_S)
            assert m.body == "by me"
            await m.ack()

    asyncio.run(scenario())


def test_one_that_joined_commits_nothing_of_the_others(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus, pluribus.connect(url_of(bus)) as other:
            q, theirs = await bus.queue("q"), await other.queue("q")
            async with bus.transaction() as tx:
                await tx.send(q, "mine")
                async with other.transaction(join=tx.id) as joined:
                    await joined.send(theirs, "theirs")
                    for end in (joined.commit, joined.prepare):
                        with pytest.raises(BadInput, match="was begun elsewhere"):
                            await end()
            assert sorted(await bodies(q)) == ["mine", "theirs"]

    asyncio.run(scenario())


@pytest.mark.parametrize("commits", [True, False])
def test_somebody_else_decides_about_a_prepared_one(commits, tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            q, done = await bus.queue("q"), await bus.queue("done", messages_max=1, full="refuse")
            space = await bus.space("s", durable=True)
            await q.send("one")
            await space.write(("t", 1))
            await done.send("in the way")
            client = await pluribus.connect(url_of(bus))
            theirs, their_done = await client.queue("q"), await client.queue("done")
            their_space = await client.space("s", durable=True)
            async with client.transaction(timeout=5) as tx:
                assert (await tx.receive(theirs, timeout=WAIT_S)).body == "one"
                await tx.send(their_done, "effect")
                await tx.take(their_space, ("t", int), timeout=WAIT_S)
                await tx.publish("log", "effect")
                await tx.prepare()
            assert tx.state == "prepared"
            await client.close()  # what it received is not given back
            assert await q.receive(timeout=0) is None and (await q.stats()).depth == 1
            (listed,) = await bus.transactions(prepared=True)
            assert listed.id == tx.id and "queue.q" in listed.machines
            with pytest.raises(TransactionEnded, match="prepared"):
                async with bus.transaction(join=tx.id):
                    pass
            await bus.resolve_transaction(tx.id, commit=commits)
            await bus.resolve_transaction(tx.id, commit=commits)  # again is harmless
            with pytest.raises(TransactionEnded):
                await bus.resolve_transaction(tx.id, commit=not commits)
            assert await bus.transactions() == []
            if commits:
                assert await bodies(done) == ["in the way", "effect"], "it was promised room"
                assert (await q.stats()).depth == 0 and await events(bus, "log") == ["effect"]
                assert await space.count(("t", int)) == 0
            else:
                async with q.receive(timeout=WAIT_S) as m:
                    assert m.body == "one" and m.deliveries == 1
                assert await bodies(done) == ["in the way"] and await events(bus, "log") == []
                assert await space.count(("t", int)) == 1

    asyncio.run(scenario())


def test_no_lost_updates(tmp_path):
    """Many add one to the same number, each in a transaction: every addition counts."""

    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            space, q = await bus.space("s", durable=True), await bus.queue("q")
            await space.write(("count", 0))

            async def add():
                async with bus.transaction() as tx:
                    _, value = await tx.take(space, ("count", int), timeout=WAIT_S)
                    await tx.write(space, ("count", value + 1))
                    await tx.send(q, value)

            await asyncio.gather(*(add() for _ in range(12)))
            assert await space.read(("count", int), timeout=WAIT_S) == ("count", 12)
            assert await bodies(q) == list(range(12))

    asyncio.run(scenario())


def test_without_await(tmp_path):
    with pluribus.sync.connect(f"inproc://sync-{tmp_path.name}", store=tmp_path / "a.db") as bus:
        q, done = bus.queue("q"), bus.queue("done")
        q.send("one")
        with bus.transaction() as tx:
            assert tx.receive(q, timeout=WAIT_S).body == "one"
            tx.send(done, "two")
            tx.publish("log", "three")
        assert [one.body for one in done.browse()] == ["two"] and q.stats().depth == 0
        tx = bus.transaction()

        def fails():
            with tx:
                tx.send(done, "never")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()
        assert [one.body for one in done.browse()] == ["two"]
        assert bus.transaction_state(tx.id) == "aborted"


def test_a_long_body_is_sent_with_the_commit_and_cannot_be_prepared(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as bus:
            queue = await bus.queue("long")
            long = bytes(range(256)) * (12 << 10)  # 3 MiB, more than a transaction carries in itself
            with pytest.raises(RuntimeError):  # noqa: PT012
                async with bus.transaction() as tx:
                    await tx.send(queue, long)
                    raise RuntimeError
            async with bus.transaction() as tx:
                await tx.send(queue, long)
                await tx.send(queue, "short")
                assert (await queue.stats()).depth == 0
            async with queue.receive(timeout=WAIT_S) as message:
                assert message.body == long
            async with queue.receive(timeout=WAIT_S) as message:
                assert message.body == "short"
            async with bus.transaction() as tx:
                await tx.send(queue, long)
                with pytest.raises(TooLarge, match="prepared"):
                    await tx.prepare()

    asyncio.run(scenario())


def test_receives_count_as_messages_of_a_transaction(tmp_path, monkeypatch):
    from pluribus.runtime.styles.transactions import transaction

    monkeypatch.setattr(transaction, "MESSAGES_MAX", 3)

    async def scenario():
        async with opened("keeper", tmp_path) as bus:
            queue = await bus.queue("many")
            await queue.send_many(range(5))
            async with bus.transaction() as tx:
                for _ in range(3):
                    assert await tx.receive(queue, timeout=WAIT_S)
                with pytest.raises(TooLarge, match="split it"):
                    await tx.receive(queue, timeout=WAIT_S)
            assert (await queue.stats()).depth == 2

    asyncio.run(scenario())
