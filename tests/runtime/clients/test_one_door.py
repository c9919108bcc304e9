"""One door: what a member can do that needs no membership of its own, a client can do too, with the same calls."""

import ast
import asyncio
import inspect
import subprocess
import sys

import msgspec
import pytest

import pluribus
import pluribus.runtime.clients.bus
from pluribus.core.errors import BadInput, MalformedFrame, NoMembers, Overflow, Refused, RemoteError, Unanswered
from pluribus.group.host.requests import Order
from pluribus.pubsub.event import KEY
from pluribus.pubsub.requests import Listen
from pluribus.runtime.clients.bus import ClientBus
from pluribus.runtime.clients.group import ClientGroup
from pluribus.wire import asking
from pluribus.wire.asking import Words
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.sync.test_faces import public

WAIT_S = 20.0


class DoorPrice(msgspec.Struct):
    share: str
    price: float


pluribus.register(DoorPrice)


class Counter:
    """A user's machine: adds up."""

    def __init__(self):
        self.total = 0

    def apply(self, index, command):
        self.total += int(command)
        return b"%d" % self.total

    def query(self, question):
        return b"%d" % self.total

    def snapshot(self):
        return b"%d" % self.total

    def restore(self, data):
        self.total = int(data or b"0")


async def answering(group):
    async for message in group:
        if message.asks:
            if message.body == "fail":
                await group._asker.fail(message, ValueError("no"))
            else:
                await message.reply(f"{message.body}!")


def test_a_client_sends_to_an_open_group_and_asks_it():
    async def main():
        async with (
            served("door-groups") as member,
            pluribus.connect("inproc://door-groups", name="other") as other,
            pluribus.connect(url_of(member)) as client,
        ):
            groups = [await bus.group("alarms", open=True) for bus in (other,)]
            closed = await other.group("closed")
            tasks = [asyncio.create_task(answering(group)) for group in groups]
            answers = await client.ask("alarms", "fire")  # all, as on a member
            assert [answer.body for answer in answers] == ["fire!"] and answers[0].sender == other.me
            with pytest.raises(pluribus.PluribusError, match="no"):
                (await client.ask("alarms", "fail", replies="all"))[0].body  # noqa: B018
            assert (await member.ask("alarms", "member"))[0].body == "member!", "a member that is not in it"
            with pytest.raises(Refused, match="closed"):
                await client.ask("closed", "anybody?")
            for task in tasks:
                task.cancel()
            sent = await client.send("alarms", b"flood")
            assert sent[0] == int(member.me)
            assert (await groups[0].receive(5)).body == b"flood"
            await closed.close()
            with pytest.raises(NoMembers):
                await client.send("nobody", b"?")

    asyncio.run(main())


def test_a_handler_that_fails_is_told_to_a_client_as_to_a_member():
    async def main():
        async with served("door-failures") as member, pluribus.connect(url_of(member)) as client:
            group = await member.group("alarms", open=True)
            task = asyncio.create_task(answering(group))
            for bus in (member, client):
                with pytest.raises(Unanswered, match="no") as told:
                    await bus.ask("alarms", "fail", replies=1)
                (answer,) = told.value.answers
                assert isinstance(answer.error, RemoteError) and answer.error.kind == "ValueError"
                assert answer.sender == member.me
            task.cancel()

    asyncio.run(main())


def test_a_client_calls_a_durable_replica(tmp_path):
    async def main():
        async with (
            served("door-replica", store=tmp_path / "a.db", machines={"Counter": Counter}) as member,
            pluribus.connect(url_of(member)) as client,
        ):
            replica = await client.replica("total", Counter, durable=True)
            assert [await replica.call(b"5"), await replica.call(b"-2")] == [b"5", b"3"]
            assert await replica.query(b"?") == b"3"
            same = await member.replica("total", Counter, durable=True)
            assert await same.call(b"1") == b"4" and await replica.query(b"?") == b"4"
            with pytest.raises(BadInput, match="durable=True"):
                await client.replica("total", Counter())

    asyncio.run(main())


def test_a_client_has_all_of_topics():
    async def main():
        async with served("door-topics") as member, pluribus.connect(url_of(member)) as client:
            await client.advertise("stocks/#", DoorPrice, "prices of shares")
            (advert,) = await member.topics()
            assert (advert.pattern, advert.type, advert.about) == ("stocks/#", "DoorPrice", "prices of shares")
            assert [one.pattern for one in await client.topics("stocks/ibm")] == ["stocks/#"]
            await client.unadvertise("stocks/#")
            assert await member.topics() == []
            assert member.me in (await client.wait_for(1, 5)).members

            near = pluribus.Near(52.5, 13.4, 10_000)
            async with (
                client.subscribe("places", near=near) as here,
                client.subscribe(object="ibm", property="price") as watched,
                client.subscribe("stocks/+", type=DoorPrice, where="price > 100") as prices,
            ):
                await member.publish("places", {"lat": 48.1, "lon": 11.6, "name": "Munich"})
                await member.publish("places", {"lat": 52.5, "lon": 13.4, "name": "Berlin"})
                assert (await here.receive(5)).body["name"] == "Berlin"
                here.move(48.1, 11.6)
                await member.publish("places", {"lat": 52.5, "lon": 13.4, "name": "Berlin"})
                await member.publish("places", {"lat": 48.1, "lon": 11.6, "name": "Munich"})
                assert (await here.receive(5)).body["name"] == "Munich"
                ibm = await client.observed("ibm", price=99.0)
                await ibm.set(price=101.0)
                assert [(await watched.receive(5)).body.value for _ in range(2)] == [99.0, 101.0]
                await client.publish_many(
                    [("stocks/a", DoorPrice("a", 99.0)), ("stocks/b", DoorPrice("b", 101.0))], headers={"desk": 7}
                )
                event = await prices.receive(5)
                assert event.body == DoorPrice("b", 101.0) and event.headers["desk"] == 7

    asyncio.run(main())


def test_many_durable_events_keep_their_headers_for_live_subscribers(tmp_path):
    async def main():
        async with (
            served("door-headers", store=tmp_path / "a.db") as member,
            pluribus.connect(url_of(member)) as client,
            member.subscribe("t") as events,
        ):
            for bus in (member, client):
                await bus.publish_many([("t", 1)], durable=True, headers={"from": bus.name}, retain=True)
                event = await events.receive(5)
                assert event.headers["from"] == bus.name
            async with member.subscribe("t") as later:
                assert (await later.receive(5)).retained

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["member", "client"])
def test_a_misspelt_option_is_an_error_at_once(kind):
    async def main():
        async with served(f"door-typos-{kind}") as member, pluribus.connect(url_of(member)) as client:
            bus = member if kind == "member" else client
            with pytest.raises(TypeError, match="tiemout"):
                bus.publish_soon("t", 1, tiemout=3)
            with pytest.raises(TypeError, match="retian"):
                await bus.publish_many([("t", 1)], retian=True)
            with pytest.raises(TypeError, match="tiemout"):
                await bus.publish("t", 1, tiemout=3)
            with pytest.raises(TypeError, match="wher"):
                bus.subscribe("t", wher="a > 1")
            with pytest.raises(TypeError, match="backlgo"):
                bus.on("t", backlgo=1)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["member", "client"])
def test_what_an_option_would_not_do_is_said_at_once(kind):
    async def main():
        async with served(f"door-nothing-{kind}") as member, pluribus.connect(url_of(member)) as client:
            bus = member if kind == "member" else client
            for options, said in (
                ({"call": "print"}, r"call='print' cannot be called"),
                ({"commit": "manual"}, r"commit= is for durable events"),
                ({"max_bytes": 1}, r"max_bytes= is for durable events"),
                ({"tries": 3}, r"tries= is for durable events"),
                ({"ahead": 3}, r"ahead= is for durable events"),
                ({"slow": "os.system"}, r"slow='os.system' is no choice: use wait"),
                ({"backlog": 0}, r"backlog=0 is out of bounds"),
                ({"guarantee": "print"}, r"guarantee='print' is none: use best effort"),
            ):
                with pytest.raises(BadInput, match=said):
                    bus.subscribe("t", **options)
            with pytest.raises(BadInput, match=r"several patterns together are for durable="):
                bus.subscribe(["t", "u"])

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["member", "client"])
def test_publishing_soon_reaches_live_subscribers_in_order(kind):
    async def main():
        async with (
            served(f"door-soon-{kind}", store=":memory:") as member,
            pluribus.connect(url_of(member)) as client,
            member.subscribe("t/#") as events,
        ):
            bus = member if kind == "member" else client
            first = bus.publish_soon("t/1", 1, headers={"by": "ann"}, key="k")
            bus.publish_soon("t/1", 2, durable=True, headers={"by": "bob"})
            bus.publish_soon("t/2", 3, retain=True)
            bus.publish_soon("t/1", "kept only", durable=True, live=False)
            last = await bus.publish("t/1", 4)
            found = [await events.receive(WAIT_S) for _ in range(4)]
            assert found[3].id == last
            many = await bus.publish_many([("t/1", 5), ("t/1", 6)])
            assert [(await events.receive(WAIT_S)).id for _ in many] == list(many)
            assert [(event.topic, event.body) for event in found] == [("t/1", 1), ("t/1", 2), ("t/2", 3), ("t/1", 4)]
            assert kind == "client" or found[0].id == first
            assert found[0].headers == {"by": "ann", KEY: "k"}
            assert found[1].headers["by"] == "bob"
            await bus.flush()
            assert [event.body for event in (await bus.log("t/1").read()).events()] == [2, "kept only"]
            async with member.subscribe("t/2") as late:
                assert (await late.receive(WAIT_S)).retained
            for number in range(3_000):
                bus.publish_soon("t/3", number)
            await bus.close()  # which waits for them
            if bus is client:
                assert [(await events.receive(WAIT_S)).body for _ in range(3_000)] == list(range(3_000))

    asyncio.run(main())


def test_what_is_published_soon_and_not_allowed_is_reported_by_flush():
    async def main():
        async with served("door-soon-refused", store=":memory:") as member, pluribus.connect(url_of(member)) as client:
            await member.access.add_rule("anyone", "topic:open/#", "publish")
            async with member.subscribe("#") as events:
                client.publish_soon("open/1", 1)
                client.publish_soon("secret/1", 2)
                client.publish_soon("open/1", 3)
                with pytest.raises(Refused, match="secret/1"):
                    await client.flush()
                assert [(await events.receive(WAIT_S)).body for _ in range(2)] == [1, 3]
                await client.flush()

    asyncio.run(main())


@pytest.mark.parametrize("reader", ["the same member", "another member"])
@pytest.mark.parametrize("kind", ["member", "client"])
def test_a_publisher_waits_for_slow_readers_and_no_longer_than_its_timeout(kind, reader):
    """Also if it publishes one event in each turn of its loop, as a client's member does."""

    async def main():
        name = f"door-slow-{kind}-{reader.replace(' ', '-')}"
        async with (
            served(name) as member,
            pluribus.connect(url_of(member)) as client,
            pluribus.connect(f"inproc://{name}") as other,
        ):
            bus, reading = (member if kind == "member" else client), (member if "same" in reader else other)
            async with reading.subscribe("t", backlog=1) as events:
                await member.wait_for_subscribers("t", 1)
                sent, said = 0, ""
                while not said and sent < 1_000:
                    try:
                        await bus.publish("t", bytes(100_000), timeout=0.05)
                    except Overflow as error:
                        said = str(error)
                    else:
                        sent += 1
                        await asyncio.sleep(0)
                assert sent and "wait for slow readers, and for longer than 0.05 s" in said
                for _ in range(sent):
                    await events.receive(WAIT_S)
                await bus.publish("t", "there is room again", timeout=WAIT_S)
                assert (await events.receive(WAIT_S)).body == "there is room again"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["member", "client"])
def test_a_subscription_takes_another_condition(kind):
    async def main():
        async with served(f"door-where-{kind}") as member, pluribus.connect(url_of(member)) as client:
            bus = member if kind == "member" else client
            async with bus.subscribe("t", where="price < 10", retain=False) as events:

                async def next_of(*prices):
                    for price in prices:
                        await member.publish("t", {"price": price})
                    return (await events.receive(WAIT_S)).body["price"]

                assert await next_of(20, 5) == 5
                events.set_where("price > 10")
                await bus.wait_for_subscribers("t", 1)  # the member has the new condition
                assert await next_of(6, 30) == 30
                events.set_where("topic = 't'")
                await bus.wait_for_subscribers("t", 1)
                assert await next_of(7) == 7
                events.set_where(None)
                await bus.wait_for_subscribers("t", 1)
                assert await next_of(8) == 8
                with pytest.raises(BadInput):
                    events.set_where("price >")
                assert events.stats() == {"waiting": 0, "missed": 0, "late": 0, "malformed": 0}
                assert repr(events).startswith("<subscription to 't'")

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["member", "client"])
def test_a_place_stays_when_the_condition_changes(kind):
    async def main():
        async with served(f"door-near-{kind}") as member, pluribus.connect(url_of(member)) as client:
            bus = member if kind == "member" else client
            near = pluribus.Near(0.0, 0.0, within_m=1_000)
            async with bus.subscribe("taxis", where="free", near=near, retain=False) as taxis:
                taxis.set_where("not free")
                await bus.wait_for_subscribers("taxis", 1)
                taxis.move(10.0, 10.0)
                for free, place in ((False, 0.0), (True, 10.0), (False, 10.0)):
                    await member.publish("taxis", {"free": free, "lat": place, "lon": place})
                found = (await taxis.receive(WAIT_S)).body
                assert (found["free"], found["lat"]) == (False, 10.0) and taxis.waiting == 0

    asyncio.run(main())


def test_a_subscription_of_a_client_has_the_names_of_one_of_a_member():
    async def main():
        async with served("door-names") as member, pluribus.connect(url_of(member)) as client:
            theirs, ours = await member.subscribe("t"), await client.subscribe("t")
            assert not [name for name in public(type(theirs)) if not hasattr(ours, name)]
            for name in public(type(theirs)):
                here, there = (inspect.getattr_static(type(of), name, None) for of in (ours, theirs))
                if inspect.isfunction(there):
                    assert [(one.name, one.default) for one in inspect.signature(here).parameters.values()] == [
                        (one.name, one.default) for one in inspect.signature(there).parameters.values()
                    ], name

    asyncio.run(main())


def test_what_comes_from_outside_is_typed_and_checked():
    async def main():
        async with served("door-typed") as member, pluribus.connect(url_of(member)) as client:
            for field, value in (("guarantee", "print"), ("slow", "os.system"), ("backlog", -1), ("deadline_s", 0.0)):
                with pytest.raises(MalformedFrame, match="does not have"):
                    await client.line.ask(msgspec.structs.replace(Listen(1, "t"), **{field: value}))
            assert not member.pubsub.subscriptions
            await client.publish("t", 1)  # the connection is still good
            assert client.stats()["client"]["connections"] == 1

    asyncio.run(main())


def test_bare_commands_to_durable_topics_are_refused(tmp_path):
    """Batches are checked where they are put; a command that went round that could be anything."""

    async def main():
        async with served("door-bare", store=tmp_path / "a.db") as member, pluribus.connect(url_of(member)) as client:
            await client.publish("t", 1, durable=True)
            with pytest.raises(Refused, match="publish to them"):
                await client.line.ask(Order("topics", [b"nonsense"]))
            assert await client.log("t").offsets() == (0, 1)

    asyncio.run(main())


def test_a_style_that_is_not_there_is_refused_in_words():
    class Wish(msgspec.Struct, array_like=True, frozen=True, tag=1):
        for_what: str

    words = Words("wishes", {Wish: None})

    async def main():
        async with served("door-unknown") as member, pluribus.connect(url_of(member)) as client:
            with pytest.raises(Refused, match="nobody here answers Wish"):
                await client.line.ask(Wish("rain"))

    asyncio.run(main())
    unknown = asking.decode(asking.asked(7, Wish("rain")))
    del asking._styles[words.style]
    with pytest.raises(Refused, match="style 'wishes'"):
        asking.request_of(unknown)
    with pytest.raises(BadInput, match="registered its words already"):
        Words("topics", {Wish: None})


def test_a_member_that_never_used_a_style_answers_its_questions():
    """In a process of its own, because here all words are loaded."""
    script = (
        "import asyncio, pluribus, pluribus.runtime.bus\n"
        "from pluribus.wire import asking\n"
        "assert 'topics' not in asking.styles()\n"
        "word = asking.Arriving(1, 'topics', __import__('msgspec').Raw(bytes([0x92, 0x06, 0xa1, 0x23])))\n"
        "print(type(asking.request_of(word)).__name__)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "Adverts\n"


def test_a_client_has_the_options_of_a_member():
    """So that a program which ``mypy`` finds right for a member is right for a client as well."""
    compared = 0
    for client, member in ((ClientBus, pluribus.Bus), (ClientGroup, pluribus.Group)):
        for name in (one for one in dir(client) if not one.startswith("_") and hasattr(member, one)):
            here, there = (inspect.getattr_static(kind, name) for kind in (client, member))
            if inspect.isfunction(here) and inspect.isfunction(there):
                options = [
                    [(one.name, one.kind, one.default) for one in inspect.signature(of).parameters.values()]
                    for of in (here, there)
                ]
                assert options[0] == options[1], name
                compared += 1
    assert compared > 40


@pytest.mark.parametrize(
    "option", [{"votes": True}, {"voters": 3}, {"fresh": True}, {"machines": {}}, {"spread": "tree"}, {"founders": 3}]
)
def test_an_option_of_members_is_refused_to_a_client(option):
    with pytest.raises(BadInput, match=f"a client has no {next(iter(option))}="):
        asyncio.run(connected("client://127.0.0.1:1/x", **option))


async def connected(url, **options):
    await pluribus.connect(url, **options)


def test_an_option_that_would_change_nothing_is_refused():
    for option in ({"votes": True}, {"voters": 3}, {"fresh": True}, {"machines": {"Counter": Counter}}):
        with pytest.raises(BadInput, match=f"{next(iter(option))}= is for keepers: give store="):
            asyncio.run(connected("inproc://door-options", **option))
    for login in ({"token": "x"}, {"user": "ann", "password": "x"}):
        with pytest.raises(BadInput, match="that is for clients"):
            asyncio.run(connected("inproc://door-options", **login))


def test_the_bus_names_no_style():
    """It loops over what is in use; each style is named in one place, ``runtime/styles/__init__.py``."""
    for module in (pluribus.runtime.bus, pluribus.runtime.clients.bus):
        source = ast.parse(inspect.getsource(module))
        imported = [node.module or "" for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
        named = [name for name in imported if "styles." in name and not name.endswith("styles.style")]
        assert imported and not named, named


def test_members_and_clients_say_what_they_are():
    async def main():
        async with served("door-repr") as member, pluribus.connect(url_of(member), name="outside") as client:
            assert "inproc://door-repr" in repr(member) and "members: 1" in repr(member)
            assert "'outside'" in repr(client) and "open" in repr(client)
            with pytest.raises(AttributeError, match="force_primary is for members"):
                client.force_primary()

    asyncio.run(main())
