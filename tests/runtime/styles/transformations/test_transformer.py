"""Transformations as programs use them: between queues and on arrival, from a keeper, a member, a client, without
await."""

import asyncio
import logging
from contextlib import asynccontextmanager

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, BadTransformation, Refused, TooLarge, TransactionEnded
from pluribus.runtime.styles.queues import consumer, queue
from pluribus.runtime.styles.transformations import transformer as room
from pluribus.runtime.styles.transformations.transformer import Transformers
from pluribus.transformations import registry
from tests.runtime.clients.test_client import served, url_of

WAIT_S = 60
WAYS = ["keeper", "member", "client", "memory"]


@asynccontextmanager
async def opened(how, tmp_path):
    """A bus, and the options of its queues."""
    name = f"transformations-{tmp_path.name}"
    if how == "memory":
        async with pluribus.connect(f"inproc://{name}") as bus:
            yield bus, {"durable": False}
        return
    async with served(name, store=tmp_path / "a.db") as keeper:
        if how == "keeper":
            yield keeper, {}
        else:
            async with pluribus.connect(f"inproc://{name}" if how == "member" else url_of(keeper)) as bus:
                yield bus, {}


@pytest.fixture
def functions():
    """Functions that are registered for one test."""
    names = []

    def register(name, function):
        names.append(name)
        return pluribus.transformation(name)(function)

    yield register
    for name in names:
        registry.forget(name)


async def bodies(queue, dead=False):
    return [one.body async for one in queue.browse(dead=dead)]


async def reasons(queue):
    return [one.reason async for one in queue.browse(dead=True)]


async def received(queue):
    async with queue.receive(timeout=WAIT_S) as message:
        return message


# From one queue to another.


@pytest.mark.parametrize("how", WAYS)
def test_messages_move_once_with_all_that_they_have(how, tmp_path, functions):
    async def doubled(rows):
        await asyncio.sleep(0)
        return [row | {"copies": 2 * int(row["copies"])} for row in rows]

    functions("doubled", doubled)
    functions("first", lambda rows: rows[0])

    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            incoming, orders = await bus.queue("incoming", **options), await bus.queue("orders", **options)
            given = {"key": "k", "priority": 7, "properties": {"region": "eu"}, "id": "order 1"}
            await incoming.send("book,copies\nDune,3\n", correlation="c", reply_to="answers", ttl=500, **given)
            await incoming.send(b"book,copies\nEmma,1\n")
            await incoming.send("no rows")
            await incoming.send({"no": "text"})
            async with bus.transformer(incoming, orders, "csv > doubled > first > json") as moving:
                message = await received(orders)
                assert message.body == '{"book":"Dune","copies":6}' and message.deliveries == 1
                assert {name: getattr(message, name) for name in given} == given
                assert (message.correlation, message.reply_to) == ("c", "answers") and 490 < message.ttl < 500
                assert (await received(orders)).body == '{"book":"Emma","copies":2}'
                while moving.failed < 2:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            assert moving.closed and (moving.transformed, moving.failed) == (2, 2)
            assert await bodies(incoming) == [] and await bodies(orders) == []
            assert await bodies(incoming, dead=True) == ["no rows", {"no": "text"}]
            assert await reasons(incoming) == [
                "did not transform: step 3, first: IndexError: list index out of range",
                "did not transform: step 1, csv: a body of type dict is no CSV: send text or bytes, or read it with "
                "data",
            ]
            assert await incoming.redrive() == 2, "mended, they go the way again"
            again = bus.transformer(incoming, orders, "data")
            assert await again.run(once=True) == 2 and await bodies(orders) == ["no rows", {"no": "text"}]

    asyncio.run(scenario())


def test_with_a_condition_and_many(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            incoming, packed = await bus.queue("incoming"), await bus.queue("packed")
            for number in range(300):
                incoming.send_soon(str(number), properties={"odd": bool(number % 2)})
            await incoming.flush()
            first, second = (
                bus.transformer("incoming", "packed", "json > msgpack", where="odd = TRUE") for _ in range(2)
            )
            await asyncio.gather(first.run(once=True), second.run(once=True))
            found = [msgspec.msgpack.decode(one) for one in await bodies(packed)]
            assert sorted(found) == list(range(1, 300, 2)) and first.transformed + second.transformed == 150
            assert (await incoming.stats()).depth == 150
            assert not any(one.hands for one in incoming._consumers)

    asyncio.run(scenario())


def test_what_is_wrong_is_said_before_it_begins(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            for arguments, sentence in (
                (("a", "b", "json > nobody"), "no function is registered here by that name"),
                (("a", "a", "json"), "both the source and the target"),
                (("a", "", "json"), "name"),
            ):
                with pytest.raises(BadInput, match=sentence):
                    bus.transformer(*arguments)
            with pytest.raises(BadTransformation, match="character 6"):
                bus.transformer("a", "b", "json | xml")
            with pytest.raises(BadInput, match="timeout"):
                bus.transformer("a", "b", "json", timeout=0)
            async with bus.transformer("a", "b", "json") as moving:
                with pytest.raises(BadInput, match="entered once"):
                    await moving.__aenter__()
                await asyncio.sleep(0)  # it has begun
                told = bus.style(Transformers).told()
                assert told == {"transformers": {"a to b": {"transformed": 0, "failed": 0}}}
            with pytest.raises(BadInput, match="runs once"):
                await moving.run()

    asyncio.run(scenario())


def test_functions_that_raise_are_slow_or_return_nothing(tmp_path, functions):
    def raises(body):
        raise pluribus.errors.NotTransformed(f"{body} is not for sale")

    def stops(body):
        return next(iter(()))

    async def hangs(body):
        await asyncio.Event().wait()

    for function in (raises, stops, hangs):
        functions(function.__name__, function)
    functions("nothing", lambda body: None)
    functions("unsendable", lambda body: object())

    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            incoming = await bus.queue("incoming")
            for name, reason in (
                ("raises", "step 1, raises: Dune is not for sale"),
                ("stops", "step 1, stops: RuntimeError: the function raised StopIteration"),
                ("nothing", "step 1, nothing: the function returned None: let it return what the next step gets"),
                ("unsendable", "what unsendable made cannot be sent"),
                ("hangs", "it took more than 0.1 s"),
            ):
                await incoming.send("Dune")
                moving = bus.transformer(incoming, "orders", name, timeout=0.1 if name == "hangs" else 30)
                assert await moving.run(once=True) == 0 and moving.failed == 1
                (found,) = await reasons(incoming)
                assert found.startswith(f"did not transform: {reason}")
                await incoming.purge(dead=True)

    asyncio.run(scenario())


def test_a_target_that_is_full_is_waited_for_and_nothing_counts_as_tried(tmp_path, caplog):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            incoming = await bus.queue("incoming", tries=2)
            orders = await bus.queue("orders", messages_max=1, full="refuse")
            await orders.send("in the way")
            await incoming.send("[1]")
            async with bus.transformer(incoming, orders, "json > msgpack") as moving:
                while not moving.waits_for:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
                assert "1 messages, its limit" in moving.waits_for
                assert (await received(orders)).body == "in the way"
                message = await received(orders)
            assert message.body == b"\x91\x01" and not moving.waits_for
            assert await bodies(incoming, dead=True) == []
            await orders.send("in the way")
            await incoming.send("[2]")
            async with bus.transformer(incoming, orders, "json > msgpack") as moving:
                while not moving.waits_for:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            m = await incoming.receive(timeout=WAIT_S)
            assert m.body == "[2]" and m.deliveries == 1, "at the end it is as it was"

    with caplog.at_level(logging.WARNING, "pluribus"):
        asyncio.run(scenario())
    assert "waits" in caplog.text


@pytest.mark.parametrize("after", [False, True], ids=["the commit is lost", "its answer is lost"])
def test_one_that_dies_with_messages_in_its_hands(after, tmp_path, monkeypatch):
    """They are transformed by the next one, unless they were moved already."""
    monkeypatch.setattr(queue, "LEASE_S", 2.0)
    monkeypatch.setattr(consumer, "WAIT_S", 1.0)

    async def scenario():
        async with (
            served(f"dies-{tmp_path.name}", store=tmp_path / "a.db") as keeper,
            pluribus.connect(f"inproc://dies-{tmp_path.name}") as member,
        ):
            incoming, orders = await keeper.queue("incoming"), await keeper.queue("orders")
            await incoming.send("1")
            dying = member.transformer("incoming", "orders", "json > msgpack")
            reached = asyncio.Event()
            real = room.Transformer._pass_on

            async def dies(self, source, target, transaction, message, outgoing):
                await real(self, source, target, transaction, message, outgoing)
                if self is dying:
                    if after:
                        await transaction.commit()
                    reached.set()
                    await asyncio.Event().wait()

            monkeypatch.setattr(room.Transformer, "_pass_on", dies)
            await dying.__aenter__()
            await reached.wait()
            member.abandon()
            async with keeper.transformer(incoming, orders, "json > msgpack"):
                assert (await received(orders)).body == b"\x01"
                await incoming.send("2")
                assert (await received(orders)).body == b"\x02"
            assert (await orders.stats()).depth == 0 and (await incoming.stats()).depth == 0

    asyncio.run(scenario())


def test_a_message_whose_time_is_over_stays_behind(tmp_path, functions, monkeypatch):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            incoming, orders = await bus.queue("incoming", dead_expired=True), await bus.queue("orders")
            await incoming.send("1", ttl=0.2)
            waiting = room._left_us

            async def later(source, message):
                await asyncio.sleep(0.5)  # it is held: the queue does not look at its time
                return await waiting(source, message)

            monkeypatch.setattr(room, "_left_us", later)
            assert await bus.transformer(incoming, orders, "json > msgpack").run(once=True) == 0
            while await reasons(incoming) != ["expired"]:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)
            assert await bodies(orders) == []

    asyncio.run(scenario())


def test_a_long_body_moves_in_pieces_and_in_a_thread(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            incoming, orders = await bus.queue("incoming"), await bus.queue("orders")
            rows = [[number, "x" * 1_000] for number in range(3_000)]
            await incoming.send(msgspec.json.encode(rows))
            await incoming.send("[]")
            assert await bus.transformer(incoming, orders, "json > msgpack").run(once=True) == 2
            assert msgspec.msgpack.decode((await received(orders)).body) == rows

    asyncio.run(scenario())


def test_a_client_needs_the_rights_to_both_queues(tmp_path):
    async def scenario():
        async with served(f"rights-{tmp_path.name}", store=tmp_path / "a.db") as keeper:
            incoming, orders = await keeper.queue("incoming"), await keeper.queue("orders")
            await incoming.send("1")
            await keeper.access.add_user("ann", password="a password of hers")
            for queue, verb in (("incoming", "receive"), ("incoming", "browse"), ("orders", "browse")):
                await keeper.access.add_rule("ann", f"queue:{queue}", verb)
            await keeper.access.add_rule("ann", "transaction:all", "act")
            url = url_of(keeper)
            async with pluribus.connect(url, user="ann", password="a password of hers") as ann:
                with pytest.raises(Refused, match="send"):
                    await ann.transformer("incoming", "orders", "json > msgpack").run(once=True)
            assert await bodies(orders) == [] and (await incoming.stats()).depth == 1
            await keeper.access.add_rule("ann", "queue:orders", "send")
            async with pluribus.connect(url, user="ann", password="a password of hers") as ann:
                assert await ann.transformer("incoming", "orders", "json > msgpack").run(once=True) == 1

    asyncio.run(scenario())


def test_without_await(tmp_path, functions):
    functions("doubled", lambda value: 2 * value)
    with pluribus.sync.connect(f"inproc://sync-{tmp_path.name}", store=tmp_path / "a.db") as bus:
        incoming, orders = bus.queue("incoming"), bus.queue("orders")
        incoming.send("4")
        moving = bus.transformer(incoming, orders, "json > doubled > json")
        with moving, orders.receiving(timeout=WAIT_S) as message:
            assert message.body == "8"
        assert moving.transformed == 1 and moving.closed
        incoming.send("5")
        assert bus.transformer("incoming", "orders", "json > doubled > json").run(once=True) == 1
        rows = bus.queue("rows", transform="csv > json")
        rows.send("a\n1\n")
        assert [one.body for one in rows.browse()] == ['[{"a":"1"}]']
        message = incoming.receive(timeout=0)
        assert message is None
        incoming.send("settled with others")
        message = incoming.receive(timeout=WAIT_S)
        with bus.transaction() as tx:
            tx.settle(incoming, message)
        assert incoming.stats().depth == 0


# A message in hand, and a transaction.


def test_a_message_in_hand_is_settled_with_a_transaction_or_stays_in_hand(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q, done = await bus.queue("q"), await bus.queue("done", messages_max=1, full="refuse")
            await q.send_many(["one", "two"])
            message = await q.receive(timeout=WAIT_S)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with bus.transaction() as tx:
                    tx.settle(q, message)
                    with pytest.raises(BadInput, match="settled already"):
                        tx.settle(q, message)
                    raise ZeroDivisionError
            assert not message.settled and message.deliveries == 1
            await done.send("in the way")
            with pytest.raises(TransactionEnded, match="its limit"):  # noqa: PT012
                async with bus.transaction() as tx:
                    tx.settle(q, message)
                    await tx.send(done, "one")
            await done.purge()
            async with bus.transaction() as tx:
                tx.settle(q, message)
                await tx.send(done, "one")
            assert message.settled and await bodies(done) == ["one"] and (await q.stats()).depth == 1
            message = await q.receive(timeout=WAIT_S)
            async with bus.transaction() as tx:
                with pytest.raises(BadInput, match="not received from"):
                    tx.settle(done, message)

    asyncio.run(scenario())


def test_what_was_received_in_transactions_is_let_go_of(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("q")
            await q.send_many(range(5))
            for _ in range(5):
                async with bus.transaction() as tx:
                    assert await tx.receive(q, timeout=WAIT_S) is not None
                    assert tx._holds_all()
            assert [one.hands for one in q._consumers] == [{}]

    asyncio.run(scenario())


# On arrival.


@pytest.mark.parametrize("how", [*WAYS])
def test_a_queue_transforms_what_arrives_by_whichever_door(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            orders = await bus.queue("orders", transform="csv(;) > json", **options)
            assert (await orders.stats()).state.settings.transform == 'csv(";") > json'
            await orders.send("book;copies\nDune;3\n", key="k", properties={"n": 1})
            await orders.send_many([b"a\n1\n", "a\n2\n", "a;a\n"])
            for number in range(3, 6):
                orders.send_soon(f"a\n{number}\n")
            await orders.flush()
            expected = ['[{"book":"Dune","copies":"3"}]', *(f'[{{"a":"{number}"}}]' for number in range(1, 6))]
            assert await bodies(orders) == expected
            assert await bodies(orders, dead=True) == ["a;a\n"]
            assert await reasons(orders) == ["not transformed: step 1, csv: the header names 'a' twice"]
            message = await orders.receive(timeout=WAIT_S)
            assert (message.key, dict(message.properties)) == ("k", {"n": 1})
            await message.ack()
            if "durable" not in options:
                async with bus.transaction() as tx:
                    await tx.send(orders, "a\n6\n")
                    await tx.send(orders, "a;a\n")
                    await tx.prepare()
                await bus.resolve_transaction(tx.id, commit=True)
                assert (await bodies(orders))[-1] == '[{"a":"6"}]' and len(await reasons(orders)) == 2

    asyncio.run(scenario())


def test_who_sends_learns_that_the_chain_was_changed(tmp_path):
    async def scenario():
        async with (
            served(f"change-{tmp_path.name}", store=tmp_path / "a.db") as keeper,
            pluribus.connect(url_of(keeper)) as client,
        ):
            mine, theirs = await keeper.queue("orders"), await client.queue("orders")
            await theirs.send("[0]")
            await mine.configure(transform="json > msgpack")
            sending = [asyncio.ensure_future(theirs.send(f"[{number}]")) for number in range(1, 20)]
            theirs.send_soon("[20]")
            theirs.send_soon("none")
            await asyncio.gather(*sending)
            await theirs.flush()
            found = await bodies(mine)
            assert found[0] == "[0]" and sorted(found[1:]) == sorted(msgspec.msgpack.encode([n]) for n in range(1, 21))
            async with client.transaction() as tx:
                await tx.send(theirs, "[21]")
            await mine.configure(transform="json > xml(n)")
            await theirs.send('{"a":1}')
            assert (await bodies(mine))[-1] == "<n><a>1</a></n>"
            with pytest.raises(TransactionEnded, match=r"the queue transforms what arrives.*json > xml\(n\)"):
                async with client.transaction() as tx:
                    await tx.send(theirs, "[22]")
            async with client.transaction() as tx:
                await tx.send(theirs, '{"a":2}')
            assert (await bodies(mine))[-1] == "<n><a>2</a></n>"
            await mine.configure(transform="")
            await theirs.send("as it is")
            assert (await bodies(mine))[-1] == "as it is"
            assert (await mine.stats()).state.sent == 26

    asyncio.run(scenario())


def test_dead_letters_of_arrival_come_back_when_the_chain_is_mended(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            orders = await bus.queue("orders", transform="csv > json")
            await orders.send("a;b\n1;2,3\n", key="k", priority=9, id="order 1", properties={"region": "eu"})
            await orders.send("a,a\n")
            assert len(await reasons(orders)) == 2 and await orders.redrive() == 0 and await bodies(orders) == []
            await orders.configure(transform='csv(";") > json')
            assert await orders.redrive() == 2
            message = await received(orders)
            assert message.body == '[{"a":"1","b":"2,3"}]' and message.deliveries == 1
            assert (message.key, message.priority, message.id) == ("k", 9, "order 1")
            assert dict(message.properties) == {"region": "eu"}
            assert (await received(orders)).body == "[]"

    asyncio.run(scenario())


def test_what_arrival_does_not_do(tmp_path, functions):
    functions("mine", lambda value: value)

    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            with pytest.raises(BadInput, match=r"'mine' is no format.*bus.transformer"):
                await bus.queue("orders", transform="json > mine")
            with pytest.raises(BadTransformation):
                await bus.queue("orders", transform="json >")
            orders = await bus.queue("orders", transform="text > text(utf-16-le)")
            with pytest.raises(TooLarge, match="is not transformed on arrival"):
                await orders.send(b"x" * (1 << 20) + b"x")
            with pytest.raises(TooLarge, match="transformed on arrival the body has 1,600,000 bytes"):
                await orders.send("x" * 800_000)
            await orders.send("short")
            with pytest.raises(TooLarge):
                await orders.send("x" * 800_000)
            assert await bodies(orders) == ["short".encode("utf-16-le")]

    asyncio.run(scenario())


def test_a_failure_that_was_told_is_not_told_again(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("q", messages_max=1, full="refuse")
            await q.send("one")
            with pytest.raises(Refused, match="its limit"):
                await q.send("two")
            await q.flush()
            q.send_soon("three")
            with pytest.raises(Refused, match="its limit"):
                await q.flush()

    asyncio.run(scenario())
