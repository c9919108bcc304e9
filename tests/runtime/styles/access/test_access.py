"""Access lists on real sockets: who may do what through a door, on a keeper, on another member, from clients."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

import pluribus
from pluribus.access.words import AUDIT, Listed, Login, Look, User
from pluribus.core.errors import BadInput, BadUrl, Closed, PluribusError, Refused, Uncertain
from pluribus.core.url import parse_url
from pluribus.group.host.requests import Transact
from pluribus.runtime.clients.login import check_private, login_from
from pluribus.runtime.styles.access import access as styles
from pluribus.runtime.styles.access import guard as guards
from pluribus.runtime.styles.access.guard import Visitor
from tests.engines.certificates import Authority
from tests.runtime.clients.test_client import served, url_of

PASSWORD = "correct horse battery"
WAIT_S = 60


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Removals are waited for: a second, and keepers on a busy machine answer in time."""
    monkeypatch.setattr(styles, "SLOW_S", 0.01)


@asynccontextmanager
async def listed(tmp_path, where="keeper"):
    """A bus with a keeper, users ann (a clerk) and bob, and a door: at the keeper, or at another member."""
    name = f"access-{tmp_path.name}"
    async with served(name, store=tmp_path / "a.db") as keeper, served(name) as member:
        await keeper.access.add_user("ann", password=PASSWORD, roles=["clerk"])
        await keeper.access.add_user("bob", password=PASSWORD)
        await keeper.access.add_rule("role:clerk", "queue:orders", "send")
        await keeper.access.add_rule("role:clerk", "topic:news/#", "subscribe")
        door = keeper if where == "keeper" else member
        await refusing(door)
        yield keeper, url_of(door)


async def refusing(door):
    """The list is known at this door."""

    async def known():
        return (await door.guard.current()).listed

    await until(known)


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - what is asked about is elsewhere
            await asyncio.sleep(0.02)


async def records(bus):
    return [event.body for event in (await bus.log(AUDIT).read()).events()]


@pytest.mark.parametrize("where", ["keeper", "member"])
def test_a_client_may_do_what_a_rule_allows_and_nothing_else(where, tmp_path):
    async def scenario():
        async with listed(tmp_path, where) as (keeper, url):
            async with pluribus.connect(url, user="ann", password=PASSWORD) as ann:
                queue = await ann.queue("orders")
                await queue.send("one")
                for refused in (
                    lambda: queue.receive(timeout=WAIT_S),
                    lambda: queue.configure(tries=3),
                    lambda: ann.queue("others"),
                    lambda: ann.publish("news/today", "x"),
                    lambda: ann.publish("news/today", "x", durable=True),
                    lambda: ann.publish(AUDIT, "forged", durable=True),
                    lambda: ann.group("keepers"),
                    lambda: ann.send("board", "x"),
                    lambda: ann.space("stock", durable=True),
                    lambda: ann.access.list(),
                    lambda: ann.access.add_user("eve"),
                    lambda: ann.log("other").read(),
                ):
                    with pytest.raises(Refused, match="no rule allows"):
                        await refused()
                async with ann.subscribe("news/sport") as news:
                    await keeper.publish("news/sport", "goal")
                    assert (await news.receive(WAIT_S)).body == "goal"
                with pytest.raises(Refused):
                    async with ann.subscribe("#") as all:
                        await all.receive(WAIT_S)
            async with pluribus.connect(url, user="bob", password=PASSWORD) as bob:
                with pytest.raises(Refused):
                    await bob.queue("orders")
            async with pluribus.connect(url) as stranger:
                with pytest.raises(Refused, match="not logged in"):
                    await stranger.queue("orders")
            assert (await (await keeper.queue("orders")).receive(timeout=WAIT_S)).body == "one"

    asyncio.run(scenario())


def test_a_transaction_is_refused_whole_if_one_part_of_it_is_not_allowed(tmp_path):
    async def scenario():
        async with listed(tmp_path) as (keeper, url):
            await keeper.access.add_rule("ann", "transaction:#", "act")
            async with pluribus.connect(url, user="ann", password=PASSWORD) as ann:
                orders = await ann.queue("orders")

                async def half():
                    async with ann.transaction() as tx:
                        await tx.send(orders, "half")
                        await tx.publish("forbidden", "half")

                with pytest.raises(PluribusError):
                    await half()
                async with ann.transaction() as tx:
                    await tx.send(orders, "whole")
            queue = await keeper.queue("orders")
            assert [one.body async for one in queue.browse()] == ["whole"]

    asyncio.run(scenario())


def test_a_removed_user_is_cut_off_at_once_also_on_open_connections(tmp_path):
    async def scenario():
        async with listed(tmp_path, "member") as (keeper, url):
            token = await keeper.access.token("ann", seconds=3_600)
            async with pluribus.connect(url, token=token) as ann:
                news = ann.subscribe("news/#")
                async with news:
                    await keeper.publish("news/a", "before")
                    assert (await news.receive(WAIT_S)).body == "before"
                    await keeper.access.remove_user("ann")
                    await keeper.publish("news/a", "after")
                    with pytest.raises((Refused, Closed, Uncertain)):
                        await ann.publish("news/a", "x")
                    with pytest.raises((TimeoutError, PluribusError)):
                        await news.receive(0.5)
            with pytest.raises(Refused):
                await pluribus.connect(url, token=token)
            with pytest.raises(Refused):
                await pluribus.connect(url, user="ann", password=PASSWORD)

    asyncio.run(scenario())


def test_a_rule_that_is_removed_counts_no_more_and_the_others_do(tmp_path):
    async def scenario():
        async with (
            listed(tmp_path, "member") as (keeper, url),
            pluribus.connect(url, user="ann", password=PASSWORD) as ann,
        ):
            queue = await ann.queue("orders")
            await queue.send("one")
            await keeper.access.remove_rule("role:clerk", "queue:orders", "send")
            with pytest.raises(Refused):
                await queue.send("two")
            async with ann.subscribe("news/a") as news:
                await keeper.publish("news/a", "still")
                assert (await news.receive(WAIT_S)).body == "still"
            await queue.flush()  # who sent was told
            queue.send_soon("three")
            with pytest.raises(Refused):
                await queue.flush()

    asyncio.run(scenario())


def test_tokens_end(tmp_path):
    async def scenario():
        async with listed(tmp_path) as (keeper, url):
            token = await keeper.access.token("ann", seconds=3_600)
            async with pluribus.connect(url, token=token) as ann:
                await (await ann.queue("orders")).send("one")
                later = keeper._wall
                keeper._wall = lambda: later() + 3_601
                with pytest.raises((Refused, Closed)):
                    await ann.queue("others")
                with pytest.raises(Refused, match="wrong"):
                    await pluribus.connect(url, token=token)
            keeper._wall = later

    asyncio.run(scenario())


def test_wrong_passwords_are_slowed_and_logged_without_their_text(tmp_path, monkeypatch, caplog):
    slept = []

    async def slowed(self, keys):
        counts = [self._failures.get(key, (0, 0.0))[0] for key in keys]
        slept.append(max(counts))

    monkeypatch.setattr(styles.AccessStyle, "_slowed", slowed)
    monkeypatch.setattr(styles, "SLOW_S", 0.0)

    async def scenario():
        async with listed(tmp_path) as (keeper, url):
            token = await keeper.access.token("ann", seconds=3_600)
            for wrong in ({"user": "ann", "password": "hunter22"}, {"user": "nobody", "password": "hunter22"}):
                with pytest.raises(Refused, match="wrong") as refused:
                    await pluribus.connect(url, **wrong)
                assert "hunter22" not in str(refused.value)
            with pytest.raises(Refused, match="wrong"):
                await pluribus.connect(url, token=token[:-1])
            assert slept == [0, 1, 2]

            async def written():
                return sum(record["what"] == "login refused" for record in await records(keeper)) == 3

            await until(written)
            told = await records(keeper)
            assert any(record["what"] == "add user ann: roles clerk; password" for record in told)
            assert any(record["what"].startswith("add token") for record in told)
            everything = f"{told}{caplog.text}"
            for secret in ("hunter22", PASSWORD, token, token.split(".")[2], "scrypt$"):
                assert secret not in everything

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())


def test_failures_make_the_next_login_slower():
    async def scenario():
        async with pluribus.connect("inproc://access-slow", name="slow") as bus:
            style = bus.style(styles.AccessStyle)
            started = asyncio.get_running_loop().time()
            for _ in range(5):
                style._fail(["user ann"])
            await style._slowed(["user bob"])
            quick = asyncio.get_running_loop().time() - started
            await style._slowed(["user ann"])
            assert asyncio.get_running_loop().time() - started >= 0.1 > quick / 100

    asyncio.run(scenario())


def test_guesses_on_many_connections_are_slowed_together(monkeypatch):
    monkeypatch.setattr(styles, "SLOW_S", 1.0)

    async def scenario():
        async with pluribus.connect("inproc://access-many", name="many") as bus:
            style = bus.style(styles.AccessStyle)
            listed = Listed(1, [User("ann", "")], [], [])
            style.guard._install(listed, bus._now() + 3_600)
            tried = []

            async def proved(asked, decisions):
                tried.append(asked.user)
                await asyncio.sleep(0)
                return "", "", 0

            style._proved = proved
            style.guard.audit.failed = lambda *told: None
            guesses = [
                asyncio.ensure_future(style._login(Login("ann", "x", ""), Visitor("1.2.3.4:5"))) for _ in range(50)
            ]
            done, waiting = await asyncio.wait(guesses, timeout=0.5)
            assert len(tried) <= styles.PROVING_MAX and len(done) == len(tried)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)

    asyncio.run(scenario())


def test_a_certificate_proves_its_user(tmp_path):
    ours = Authority(tmp_path)
    name = f"access-tls-{tmp_path.name}"

    async def scenario():
        serve = f"127.0.0.1:0?{ours.options('member')}"
        async with pluribus.connect(f"inproc://{name}", store=tmp_path / "a.db", serve=serve) as keeper:
            await keeper.access.add_user("ann", certificate="ann.example")
            await keeper.access.add_rule("ann", "queue:orders", "send")
            await refusing(keeper)
            host, port = keeper.doors[0].address
            url = f"client://{host}:{port}/{name}?"
            async with pluribus.connect(url + ours.options("ann.example")) as ann:
                await (await ann.queue("orders")).send("one")
                with pytest.raises(Refused, match="user 'ann'"):
                    await ann.queue("others")
            async with pluribus.connect(url + ours.options("eve.example")) as eve:
                with pytest.raises(Refused, match="not logged in"):
                    await eve.queue("orders")
            theirs = Authority(tmp_path / "theirs")
            with pytest.raises(PluribusError):
                await pluribus.connect(url + theirs.options("ann.example"))

    asyncio.run(scenario())


def test_an_access_check_on_one_path_only_is_found(tmp_path, monkeypatch):
    """A guard that looks at single commands and forgets those in transactions lets half of one through."""
    real = guards.Guard.admit

    async def forgetful(self, request, visitor):
        if not isinstance(request, Transact):
            await real(self, request, visitor)

    monkeypatch.setattr(guards.Guard, "admit", forgetful)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_transaction_is_refused_whole_if_one_part_of_it_is_not_allowed(tmp_path)


def test_refusals_are_in_the_audit_log(tmp_path):
    async def scenario():
        async with listed(tmp_path, "member") as (keeper, url):
            async with pluribus.connect(url, user="bob", password=PASSWORD) as bob:
                for _ in range(3):
                    with pytest.raises(Refused):
                        await bob.queue("orders")

            async def counted():
                found = [one for one in await records(keeper) if one["what"] == "refused queue:orders any"]
                return sum(one["count"] for one in found if one["user"] == "bob") == 3

            await until(counted)

    asyncio.run(scenario())


def test_an_administrator_changes_the_list_from_a_client_in_its_own_name(tmp_path):
    async def scenario():
        async with listed(tmp_path) as (keeper, url):
            await keeper.access.add_rule("bob", "access:list", "all")
            async with pluribus.connect(url, user="bob", password=PASSWORD) as bob:
                await bob.access.add_rule("anyone", "topic:weather", "publish")
                assert await bob.access.check("ann", "queue:orders", "send")
                assert not await bob.access.check("bob", "queue:orders", "send")
                assert all(user.password == "set" for user in (await bob.access.list()).users)
            assert (await records(keeper))[-1]["user"] == "bob"
            async with pluribus.connect(url) as stranger:
                await stranger.publish("weather", "rain")

    asyncio.run(scenario())


def test_who_came_before_there_was_a_list_is_cut_off(tmp_path):
    async def scenario():
        async with (
            served(f"access-{tmp_path.name}", store=tmp_path / "a.db") as keeper,
            pluribus.connect(url_of(keeper)) as client,
            client.subscribe("news") as news,
        ):
            await keeper.publish("news", "before")
            assert (await news.receive(WAIT_S)).body == "before"
            await keeper.access.add_rule("anyone", "queue:orders", "send")
            await refusing(keeper)
            with pytest.raises(PluribusError):
                await client.publish("news", "x")

    asyncio.run(scenario())


def test_a_list_counts_at_once_at_the_door_through_which_it_was_made(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "LOOK_S", 1_000.0)  # by itself the door would not look again

    async def scenario():
        async with (
            served(f"access-{tmp_path.name}", store=tmp_path / "a.db") as keeper,
            pluribus.connect(url_of(keeper)) as maker,
        ):
            await maker.publish("news", "before", durable=True)
            await maker.access.add_rule("anyone", "access:list", "all")
            assert (await keeper.guard.current()).listed
            with pytest.raises(Refused):
                await maker.publish("news", "x")
            await maker.access.add_rule("anyone", "topic:news", "publish")
            await maker.publish("news", "x")
            assert maker.line.connections == 1

    asyncio.run(scenario())


def test_a_change_whose_connection_breaks_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "LEASE_S", 1.0)

    async def scenario():
        async with listed(tmp_path) as (keeper, url):
            await keeper.access.add_rule("bob", "access:list", "all")
            async with pluribus.connect(url, user="bob", password=PASSWORD) as bob:
                removing = asyncio.create_task(bob.access.remove_user("ann"))

                async def removed():
                    return all(user.name != "ann" for user in (await keeper.access.list()).users)

                await until(removed)
                for visitor in list(keeper.guard.visitors):
                    visitor.cut()
                await removing
                assert bob.line.connections == 2
            told = [body["what"] for body in await records(keeper)]
            assert len([what for what in told if "ann" in what and "remove" in what]) == 1, told

    asyncio.run(scenario())


def test_a_door_that_needs_a_list_is_shut_while_there_is_none_to_ask(monkeypatch):
    monkeypatch.setattr(guards, "WAIT_S", 0.2)

    async def scenario():
        async with (
            pluribus.connect("inproc://access-shut", serve="127.0.0.1:0?access=required") as member,
            pluribus.connect(url_of(member)) as client,
        ):
            with pytest.raises(PluribusError, match="access list cannot be asked"):
                await client.publish("news", "x")

    asyncio.run(scenario())
    with pytest.raises(BadInput, match="access="):
        asyncio.run(_opened("127.0.0.1:0?access=perhaps"))


async def _opened(serve):
    async with pluribus.connect("inproc://access-perhaps", serve=serve):
        pass


def test_a_lease_that_is_over_shuts_the_door(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "WAIT_S", 0.2)

    async def scenario():
        async with (
            listed(tmp_path) as (keeper, url),
            pluribus.connect(url, user="ann", password=PASSWORD) as ann,
        ):
            await (await ann.queue("orders")).send("one")
            keeper.guard.abandon()  # nobody asks which list counts
            now = keeper._now
            keeper._now = lambda: now() + guards.LEASE_S
            keeper.guard._known.clear()
            with pytest.raises(PluribusError, match="access list cannot be asked"):
                await ann.line.ask(Look())
            keeper._now = now

    asyncio.run(scenario())


def test_where_credentials_come_from_and_where_they_may_go(monkeypatch):
    assert login_from(None, None, None) is None
    monkeypatch.setenv("PLURIBUS_TOKEN", "plt.a.b")
    assert login_from(None, None, None).token == "plt.a.b" and "plt" not in repr(login_from(None, None, None))
    monkeypatch.setenv("PLURIBUS_USER", "ann")
    monkeypatch.setenv("PLURIBUS_PASSWORD", PASSWORD)
    assert login_from(None, None, None).user == "ann"
    with pytest.raises(BadInput, match="together"):
        login_from("ann", None, None)
    with pytest.raises(BadInput, match="one of them"):
        login_from("ann", PASSWORD, "plt.a.b")
    check_private("127.0.0.1", sealed=False)
    check_private("10.0.0.5", sealed=True)
    with pytest.raises(BadInput, match="in clear"):
        check_private("10.0.0.5", sealed=False)


def test_without_await(tmp_path):
    from pluribus import sync

    async def start():
        bus = await served(f"access-{tmp_path.name}", store=tmp_path / "a.db")
        await bus.access.add_user("ann", password=PASSWORD)
        await bus.access.add_rule("ann", "queue:orders", "send")
        await refusing(bus)
        return bus

    async def scenario():
        keeper = await start()
        async with keeper:
            url = url_of(keeper)

            def program():
                with sync.connect(url, user="ann", password=PASSWORD) as bus:
                    queue = bus.queue("orders")
                    queue.send("one")
                    with pytest.raises(Refused):
                        queue.receive(timeout=WAIT_S)
                    with pytest.raises(Refused):
                        bus.access.list()

            await asyncio.to_thread(program)

    asyncio.run(scenario())


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(BadUrl, match="password") as refused:
        parse_url("client://ann:hunter22@127.0.0.1:7400/shop")
    assert "hunter22" not in str(refused.value)
