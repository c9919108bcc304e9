"""Clients: programs that are no members, over TCP, with and without a secret; members that go away under them."""

import asyncio
import multiprocessing
import pickle
from contextlib import suppress

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, BadUrl, Closed, Gap, LogChanged, Overflow, Refused, Uncertain, Unreachable
from pluribus.core.url import parse_url
from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.clients.bus import ClientBus
from pluribus.runtime.clients.log_client import LogClient
from tests.engines.certificates import Authority
from tests.runtime.styles.topics.test_durable import three

SECRET = "a secret that nobody would guess"


class Quote(msgspec.Struct):
    price: float


pluribus.register(Quote)


def url_of(*buses):
    addresses = ",".join(f"{host}:{port}" for bus in buses for host, port in [bus.doors[0].address])
    return f"client://{addresses}/{buses[0].url.bus}"


def served(bus, **options):
    return pluribus.connect(f"inproc://{bus}", serve="127.0.0.1:0", **options)


async def in_thread(call, *args):
    return await asyncio.to_thread(call, *args)


def test_a_client_publishes_subscribes_and_reads(tmp_path):
    async def scenario():
        async with served("outside", store=tmp_path / "a.db") as member, pluribus.connect(url_of(member)) as client:
            ids = await client.publish_many([("t/a", Quote(float(n))) for n in range(100)], durable=True)
            assert await client.log("t/a").offsets() == (0, 100)
            events = (await member.log("t/a").read()).events()
            assert [event.id for event in events] == ids and events[7].body == Quote(7.0)
            assert events[0].sender == client.me
            async with client.subscribe("t/+", durable="desk", start="earliest", where="price >= 98") as quotes:
                assert [(await quotes.receive(5)).body.price for _ in range(2)] == [98.0, 99.0]
            client.publish_soon("t/a", "soon", durable=True)
            await client.flush()
            assert (await client.log("t/a").read(100)).events()[0].body == "soon"
            async with client.mailbox("ann") as box:
                await box.post("letter")
                assert (await box.receive(5)).body == "letter"

    asyncio.run(scenario())


def test_live_events_both_ways():
    async def scenario():
        async with (
            served("live") as member,
            pluribus.connect(url_of(member)) as client,
            member.subscribe("up/#") as up,
            client.subscribe("down/#", where="price > 1") as down,
        ):
            await client.publish("up/a", Quote(3.0), headers={"from": "client"})
            await client.publish_many([("up/b", b"1"), ("up/c", "2"), ("up/c", "3")])
            got = [await up.receive(5) for _ in range(4)]
            assert [(event.topic, event.body) for event in got] == [
                ("up/a", Quote(3.0)),
                ("up/b", b"1"),
                ("up/c", "2"),
                ("up/c", "3"),
            ]
            assert got[0].headers == {"from": "client"}
            await member.publish_many([("down/x", Quote(float(n))) for n in range(4)])
            assert [(await down.receive(5)).body.price for _ in range(2)] == [2.0, 3.0]

    asyncio.run(scenario())


def test_a_live_subscription_that_read_late_still_gets_everything_that_fits():
    async def scenario():
        async with (
            served("room") as member,
            pluribus.connect(url_of(member)) as client,
            client.subscribe("t", backlog=100_000) as events,
        ):
            for at in range(0, 40_000, 1_000):
                await member.publish_many([("t", n) for n in range(at, at + 1_000)])
            assert [(await events.receive(10)).body for _ in range(40_000)] == list(range(40_000))

    asyncio.run(scenario())


def test_a_live_subscription_that_is_to_be_cut_off_when_it_is_slow_says_so_at_its_end():
    async def scenario():
        async with (
            served("slow") as member,
            pluribus.connect(url_of(member)) as client,
            client.subscribe("t", slow="disconnect", backlog=10) as events,
        ):
            for at in range(0, 40_000, 1_000):
                await member.publish_many([("t", n) for n in range(at, at + 1_000)])
            got = []
            with suppress(Overflow):
                while True:
                    got.append((await events.receive(10)).body)
            assert 0 < len(got) < 40_000 and got == list(range(len(got)))
            with pytest.raises(Overflow, match="disconnect"):
                await events.receive(10)

    asyncio.run(scenario())


def test_a_connection_that_breaks_before_a_subscription_has_begun_does_not_end_it_in_silence():
    async def scenario():
        at = Breaking()

        async def broken(request):
            raise Closed("the connection broke before this was answered: ask again")

        at.bus.line.ask = broken
        with pytest.raises(Closed, match="broke"):
            async for _ in at.bus.subscribe("a"):
                pass
        await at.bus.close()

    asyncio.run(scenario())


def test_the_secret_is_proven_and_what_is_said_is_sealed(tmp_path):
    async def scenario():
        store = tmp_path / "a.db"
        async with pluribus.connect("inproc://sealed", serve="127.0.0.1:0", store=store, secret=SECRET) as member:
            async with pluribus.connect(url_of(member), secret=SECRET) as client:
                await client.publish("t", "sealed", durable=True)
            for wrong, why in ((None, "has a secret"), ("another secret, of no use", "does not know the bus secret")):
                with pytest.raises(Refused, match=why):
                    await pluribus.connect(url_of(member), secret=wrong)
            reader = LogClient(url_of(member), secret=SECRET)
            assert await in_thread(reader.offsets, "t") == (0, 1)
            reader.close()

    asyncio.run(scenario())


def test_mutual_tls(tmp_path):
    bus, stranger = Authority(tmp_path / "bus"), Authority(tmp_path / "stranger")

    async def scenario():
        serve = f"127.0.0.1:0?{bus.options('member')}"
        async with pluribus.connect("inproc://tls", store=tmp_path / "a.db", serve=serve) as member:
            url = url_of(member)
            async with pluribus.connect(f"{url}?{bus.options('client')}") as client:
                await client.publish("t", "over TLS", durable=True)
            with LogClient(f"{url}?{bus.options('reader')}") as reader:
                assert await in_thread(reader.offsets, "t") == (0, 1)
            with pytest.raises(Unreachable):
                await pluribus.connect(f"{url}?{stranger.options('client')}")
            with pytest.raises(Unreachable):
                await pluribus.connect(url)

    asyncio.run(scenario())


def test_who_cannot_be_reached_or_means_another_bus_is_told():
    async def scenario():
        async with served("here") as member:
            with pytest.raises(Refused, match="on the bus 'here', not 'there'"):
                await pluribus.connect(url_of(member).replace("/here", "/there"))
            url = url_of(member)
            with pytest.raises(BadInput, match="a client has no store="):
                await pluribus.connect(url, store="x.db")
            with pytest.raises(BadInput, match="is not an address"):
                await member.serve("nowhere:port")
        with pytest.raises(Unreachable, match="no member serves clients at"):
            await pluribus.connect(url)
        with pytest.raises(BadUrl, match="client does not know: colour"):
            await pluribus.connect(f"{url}?colour=red")

    asyncio.run(scenario())


def test_a_client_goes_on_at_another_member(tmp_path):
    async def scenario():
        async with three("fails-over", tmp_path) as keepers:
            for keeper in keepers:
                await keeper.serve("127.0.0.1:0")
            async with pluribus.connect(url_of(*keepers)) as client:
                live = await client.subscribe("live").open()
                durable = client.subscribe("t", durable="desk", start="earliest")
                await client.publish_many([("t", n) for n in range(50)], durable=True)
                assert [(await durable.receive(10)).body for _ in range(50)] == list(range(50))
                publishing = asyncio.create_task(client.publish_many([("t", n) for n in range(50, 100)], durable=True))
                gone = next(bus for bus in keepers if int(bus.me) == client.line.member)
                gone.abandon()
                await asyncio.wait_for(publishing, 60)
                assert [(await durable.receive(30)).body for _ in range(50)] == list(range(50, 100))
                with pytest.raises(Gap, match="may be missing here"):
                    await live.receive(30)
                other = next(bus for bus in keepers if bus is not gone)
                while client.stats()["client"]["connections"] < 2 or not other.doors[0]._clients:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert (await client.log("t").offsets()) == (0, 100)

    asyncio.run(scenario())


def test_a_live_event_under_way_when_the_connection_breaks_is_uncertain():
    async def scenario():
        async with served("breaks") as member, pluribus.connect(url_of(member)) as client:
            await client.publish("t", 1)
            publishing = asyncio.create_task(client.publish("t", 2))
            await asyncio.sleep(0)
            client.line._writer.transport.abort()
            with pytest.raises(Uncertain):
                await publishing

    asyncio.run(scenario())


def _read(reader, pipe):
    pipe.send([body for batch in reader.read("t", 0, 1_000) for body in batch.decoded()])


def test_the_blocking_reader_reads_stages_and_survives_pickling_and_forks(tmp_path):
    async def scenario():
        async with served("blocking", store=tmp_path / "a.db") as member:
            await member.publish_many([("t", n) for n in range(1_000)], durable=True)
            reader = LogClient(url_of(member))

            def read_all():
                assert reader.offsets("t") == (0, 1_000) and reader.offsets("unknown") == (0, 0)
                batches = list(reader.read("t", 10, 990, max_bytes=2_000))
                assert [int(offset) for batch in batches for offset in batch.offsets] == list(range(10, 990))
                assert [
                    body for batch in reader.read("t", 0, 1_000, where="body > 5") for body in batch.decoded()
                ] == []
                with pytest.raises(BadInput, match="beyond its end 1000"):
                    list(reader.read("t", 1_001, 2_000))
                (known,) = reader.topics("+")
                assert known.topic == "t" and known.log
                with pytest.raises(LogChanged, match="have another log"):
                    list(reader.read("t", 0, 1_000, log=known.log + 1))
                with pytest.raises(LogChanged, match="ends at 1000, before the 2000"):
                    list(reader.read("t", 0, 2_000, log=known.log, whole=True, where="body > 5"))
                context = multiprocessing.get_context("fork")
                for other in (reader, pickle.loads(pickle.dumps(reader))):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_read, args=(other, theirs))
                    process.start()
                    assert ours.recv() == list(range(1_000))
                    process.join()
                assert reader.offsets("t") == (0, 1_000)

            def write():
                assert reader.last_batch("query") == -1
                reader.stage("query", 0, "task-0", 0, pack("out", 5, 1, 1, 0, [1, 2], [b"a", b"b"]))
                assert reader.offsets("out") == (0, 0)
                reader.commit_batch("query", 0, [("task-0", 1)])
                reader.commit_batch("query", 0, [("task-0", 1)])
                assert reader.offsets("out") == (0, 2) and reader.last_batch("query") == 0
                reader.close()

            await in_thread(read_all)
            await in_thread(write)

    asyncio.run(scenario())


def test_without_await(tmp_path):
    with (
        pluribus.sync.connect("inproc://sync-served", store=tmp_path / "a.db", serve="127.0.0.1:0") as member,
        pluribus.sync.connect(url_of(member._real)) as client,
    ):
        client.publish_many([("t", n) for n in range(10)], durable=True)
        assert client.log("t").offsets() == (0, 10)
        with client.subscribe("t", durable="desk", start="earliest") as events:
            assert [events.receive(5).body for _ in range(10)] == list(range(10))


def test_what_is_for_members_is_refused_in_words():
    async def main():
        async with served("members-only") as bus, pluribus.connect(url_of(bus)) as client:
            with pytest.raises(AttributeError, match=r"bus.cache is for members.*multicast://members-only"):
                await client.cache("alarms")
            with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
                client.nonsense  # noqa: B018

    asyncio.run(main())


def test_functions_are_called_with_events_or_bodies():
    async def main():
        async with served("called") as bus, pluribus.connect(url_of(bus)) as client:
            heard: asyncio.Queue = asyncio.Queue()

            @client.on("quotes/#")
            async def with_body(quote: Quote) -> None:
                await heard.put(quote.price)
                if quote.price == 2:
                    raise RuntimeError("the next one is told all the same")

            @client.on("quotes/sap")
            async def with_event(event) -> None:
                await heard.put((event.topic, event.body.price))

            for subscription in (with_body.subscription, with_event.subscription):
                await subscription.open()
            for topic, price in (("quotes/ibm", 1.0), ("quotes/ibm", 2.0), ("quotes/sap", 3.0)):
                await bus.publish(topic, Quote(price))
            found = [await asyncio.wait_for(heard.get(), 10) for _ in range(4)]
            assert [price for price in found if isinstance(price, float)] == [1.0, 2.0, 3.0]
            assert ("quotes/sap", 3.0) in found

    asyncio.run(main())


def test_a_call_back_that_can_receive_nothing_is_told_of_and_ends(caplog, tmp_path):
    async def main():
        async with served("refusing", store=tmp_path / "a.db") as bus, pluribus.connect(url_of(bus)) as client:
            await client.publish("quotes/ibm", Quote(1.0), durable=True)

            await bus.access.add_rule("anyone", "topic:quotes/#", "publish")  # and not to subscribe

            @client.on("quotes/#")
            async def live(event) -> None:
                raise AssertionError("nothing can match")

            @client.on("quotes/#", where="price >", durable="desk", start="earliest")
            async def kept(event) -> None:
                raise AssertionError("nothing can match")

            while sum("called no more" in record.getMessage() for record in caplog.records) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())
    told = [record.getMessage() for record in caplog.records if "called no more" in record.getMessage()]
    assert len(told) == 2 and all("'quotes/#'" in one for one in told)


def test_one_that_is_refused_when_it_begins_again_ends_and_the_others_begin_once():
    async def scenario():
        at = Breaking()
        refused, other = at.bus.subscribe("a"), at.bus.subscribe("b")
        await refused.open()
        await other.open()

        async def refuses(request):
            await at._ask(request)
            if request.number == 1:
                raise Refused("no more of these")

        at.bus.line.ask = refuses
        at.bus.pubsub._broken()
        await at.bus.pubsub._restoring
        assert at.asked == [1, 2, 1, 2]
        for error in (Gap, Refused, Refused):
            with pytest.raises(error):
                await refused.receive(1)
        await at.bus.close()

    asyncio.run(scenario())


class Breaking:
    """A client whose connection is there whenever it is asked for, and breaks when the test says so."""

    def __init__(self):
        self.bus = ClientBus(parse_url("client://127.0.0.1:1/bus"), "client", None)
        self.bus.line.connected = self._connected
        self.bus.line.ask = self._ask
        self.asked = []
        self.then = lambda: None

    async def _connected(self):
        await asyncio.sleep(0)

    async def _ask(self, request):
        self.asked.append(request.number)
        await asyncio.sleep(0)
        then, self.then = self.then, lambda: None
        then()


def test_a_connection_that_breaks_behind_the_last_answer_is_made_again():
    async def scenario():
        at = Breaking()
        await at.bus.subscribe("a").open()
        at.then = at.bus.pubsub._broken  # the answer has come, and nobody has looked at it yet
        at.bus.pubsub._broken()
        await at.bus.pubsub._restoring
        assert at.asked == [1, 1, 1], "opened, begun again, and again"
        await at.bus.close()

    asyncio.run(scenario())


def test_who_opens_a_subscription_while_others_begin_again_asks_for_it_alone():
    async def scenario():
        at = Breaking()
        await at.bus.subscribe("a").open()
        at.bus.pubsub._broken()
        second = at.bus.subscribe("b")
        await asyncio.gather(second.open(), at.bus.pubsub._restoring)
        assert sorted(at.asked) == [1, 1, 2]
        closed = at.bus.subscribe("c")
        await closed.open()
        at.bus.pubsub._broken()
        await closed.close()
        await at.bus.pubsub._restoring
        assert at.asked.count(3) == 2, "opened, and said to be over"
        await at.bus.close()

    asyncio.run(scenario())


def test_a_client_that_goes_while_it_subscribes_leaves_nothing_behind():
    async def scenario():
        async with served("gone-early") as member:
            client = await pluribus.connect(url_of(member)).__aenter__()
            opening = asyncio.create_task(client.subscribe("t", guarantee="total").open())
            (seen,) = member.doors[0]._clients
            while not seen.held:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
            client.closed = True
            client.line._writer.transport.abort()
            await asyncio.gather(opening, return_exceptions=True)
            await client.line.close()
            async with asyncio.timeout(5):
                while member.doors[0]._clients:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
            await member.pubsub.carrier("total")
            assert not member.pubsub.subscriptions

    asyncio.run(scenario())


def test_a_reader_may_ask_something_else_while_it_reads(tmp_path):
    def work(url):
        with LogClient(url, timeout=4) as reader:
            found = []
            for batch in reader.read("t", 0, 20, max_bytes=1):
                assert reader.offsets("t") == (0, 20)
                found += batch.decoded()
            next(reader.read("t", 0, 20, max_bytes=1))
            assert not reader._asked  # nothing is kept for one who reads no further
            reading = reader.read("t", 0, 20, max_bytes=1)
            next(reading)
            reader._drop()  # as if the member had gone
            assert reader.offsets("t") == (0, 20)
            return found, 1 + len(list(reading))

    async def scenario():
        async with served("between", store=tmp_path / "a.db") as member:
            for number in range(20):
                await member.durable.publish("t", b"%d" % number)
            async with asyncio.timeout(3):  # less than a reader waits for an answer
                assert await in_thread(work, url_of(member)) == ([b"%d" % number for number in range(20)], 20)

    asyncio.run(scenario())


def test_a_reader_tries_one_host_after_another(monkeypatch):
    tried = []

    def refused(host, timeout):
        tried.append(host[1])
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(Unreachable), LogClient("client://127.0.0.1:1,127.0.0.1:2/b", timeout=0.3) as reader:
        reader.offsets("t")
    assert tried[:4] == [1, 2, 1, 2]


def test_a_client_s_subscription_that_is_closed_while_it_begins_leaves_nothing_behind():
    async def scenario():
        async with served("closed-early") as member, pluribus.connect(url_of(member)) as client:
            events = client.subscribe("t")
            opening = asyncio.create_task(events.open())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await events.close()
            with pytest.raises(Closed):
                await opening
            with pytest.raises(Closed):
                await events.receive(5)
            (seen,) = member.doors[0]._clients
            assert not seen.held and not member.pubsub.subscriptions

    asyncio.run(scenario())


def test_a_client_waits_no_longer_than_it_said_also_for_the_beginning():
    async def scenario():
        async with served("slow-door") as member, pluribus.connect(url_of(member)) as client:
            client.line.ask = lambda request: asyncio.sleep(3)
            async with asyncio.timeout(2):
                with pytest.raises(TimeoutError):
                    await client.subscribe("t").receive(0.1)
            client.closed = True
            await client.line.close()

    asyncio.run(scenario())
