"""TCP: one connection a pair, whoever dials; strangers, stalled and restarted peers; the bounds."""

import asyncio
import random
import socket
import sys
from collections import Counter

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.ids import number_of
from pluribus.core.limits import DATAGRAM_BYTES_MAX, ENGINE_QUEUE_BYTES_MAX
from pluribus.engines import links
from pluribus.engines.stream import Hello, joined
from pluribus.engines.tcp import TcpEngine
from tests.engines.ends import End, Run, ends, opened, run_on, until
from tests.engines.stranger import stranger

HELLO_BYTES = len(Hello(1, 2, ("127.0.0.1", 3)).encode()) - 4


@pytest.fixture
def url() -> str:
    return f"tcp://127.0.0.1:{free_port()}/demo"


@pytest.fixture(params=["plain", "tls"])
def any_url(request: pytest.FixtureRequest, url: str, tls_options: str) -> str:
    return url if request.param == "plain" else f"{url}?{tls_options}"


def engine_of(end: End) -> TcpEngine:
    assert isinstance(end.engine, TcpEngine)
    return end.engine


def connections(end: End) -> int:
    inside = engine_of(end)._links
    assert inside is not None
    return len(inside._connections)


def hello(port: int, incarnation: int = 7, bus: str = "demo") -> bytes:
    return Hello(number_of(bus), incarnation, ("127.0.0.1", port)).encode()


def test_one_connection_serves_both_directions(any_url: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(any_url, 2) as (one, other):
            for number in range(10):
                one.engine.send([b"there"], other.address)
                await other.arrived(number + 1)
                other.engine.send([b"back"], one.address)
                await one.arrived(number + 1)
            assert connections(one) == connections(other) == 1

    run(work())


def test_peers_that_dial_each_other_at_once_keep_one_connection(any_url: str, run: Run[None]) -> None:
    async def work() -> None:
        for round_number in range(30):
            async with ends(any_url, 2) as members:
                one, other = members if round_number % 2 else reversed(members)
                for number in range(5):
                    one.engine.send([f"one {number}".encode()], other.address)
                    other.engine.send([f"other {number}".encode()], one.address)
                    for _ in range(round_number % 7):
                        await asyncio.sleep(0)
                await asyncio.gather(one.arrived(5), other.arrived(5))
                await until(lambda one=one, other=other: connections(one) == connections(other) == 1)  # type: ignore[misc]
                one.engine.send([b"one last"], other.address)
                other.engine.send([b"other last"], one.address)
                await asyncio.gather(one.arrived(6), other.arrived(6))
                assert other.bodies == [f"one {n}".encode() for n in range(5)] + [b"one last"]
                assert one.bodies == [f"other {n}".encode() for n in range(5)] + [b"other last"]
                assert one.engine.stats.dropped == other.engine.stats.dropped == 0

    run(work())


def test_everybody_dials_everybody(any_url: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(any_url, 12) as members:
            for number in range(3):
                for member in members:
                    member.engine.send_all([number.to_bytes(1, "big")])
            for member in members:
                await member.arrived(33)
                for other in members:
                    if other is not member:
                        assert [d for d, source in member.got if source == other.address] == [b"\0", b"\1", b"\2"]
            for member in members:
                await until(lambda member=member: connections(member) == 11)  # type: ignore[misc]

    run(work())


def test_what_a_peer_dials_while_we_dial_it_is_held_until_our_dial_fails(run: Run[None]) -> None:
    """A network that connects in one direction only: the smaller address cannot reach the greater."""

    async def work() -> None:
        smaller, greater = sorted((free_port(), free_port()))
        end = await opened(f"tcp://127.0.0.1:{smaller}/demo")
        with socket.create_server(("127.0.0.1", greater)) as deaf:  # the kernel accepts; nobody says hello
            deaf.setblocking(False)
            end.engine.send([b"waited"], ("127.0.0.1", greater))
            async with stranger(end.address) as peer:
                peer.say(hello(greater))
                answer = await peer.hears(4 + HELLO_BYTES)
                assert Hello.decode(answer[4:]).address == end.address
                assert await peer.hears(4 + 6) == joined([b"waited"])
                peer.say(joined([b"thanks"]))
                await end.arrived(1)
                assert end.got == [(b"thanks", ("127.0.0.1", greater))]
        await end.engine.close()

    run(work())


def test_a_connection_beside_a_living_one_waits_and_then_replaces_it(url: str, run: Run[None]) -> None:
    """The peer lost the first one and we did not notice: nothing says so but the second."""

    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as first, stranger(end.address) as second:
            first.say(hello(9) + joined([b"first"]))
            await end.arrived(1)
            second.say(hello(9))
            assert Hello.decode((await second.hears(4 + HELLO_BYTES))[4:]).address == end.address
            assert await first.is_cut_off()
            second.say(joined([b"second"]))
            await end.arrived(2)
            end.engine.send([b"answer"], ("127.0.0.1", 9))
            assert await second.hears(4 + 6) == joined([b"answer"])
        await end.engine.close()

    run(work())


def test_a_restarted_peer_replaces_its_ghost_at_once(url: str, run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "HOLD_S", 3600.0)

    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as ghost, stranger(end.address) as restarted:
            ghost.say(hello(9, incarnation=1) + joined([b"ghost"]))
            await end.arrived(1)
            restarted.say(hello(9, incarnation=2) + joined([b"restarted"]))
            await end.arrived(2)
            assert await ghost.is_cut_off()
        await end.engine.close()

    run(work())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00" * 64,
        b"\xff" * 4096,
        b"\x00\x00\x00\x1f" + b"not a hello, but as long as one",
        hello(0),
        hello(9, bus="another"),
        Hello(number_of("demo"), 7, ("not.numeric.example", 9)).encode(),
        hello(9) + b"\xff\xff\xff\xff",
        hello(9) + (DATAGRAM_BYTES_MAX + 1).to_bytes(4, "big") + bytes(100),
    ],
    ids=lambda garbage: garbage[:12].hex(),
)
def test_garbage_is_cut_off_and_counted(url: str, run: Run[None], garbage: bytes) -> None:
    async def work() -> None:
        async with ends(url, 2) as (one, other):
            async with stranger(one.address) as nobody:
                nobody.say(garbage)
                assert await nobody.is_cut_off()
            await until(lambda: one.engine.stats.errors == 1)
            assert not one.got
            other.engine.send([b"still here"], one.address)
            await one.arrived(1)

    run(work())


def test_what_was_whole_before_the_garbage_arrives(url: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as peer:
            peer.say(hello(9) + joined([b"whole", b"whole too"]) + b"\xff\xff\xff\xff")
            assert await peer.is_cut_off()
        assert end.bodies == [b"whole", b"whole too"]
        await end.engine.close()

    run(work())


def test_a_silent_stranger_is_cut_off(url: str, run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "HANDSHAKE_S", 0.05)

    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as silent, stranger(end.address) as slow:
            slow.say(hello(9)[:10])
            assert await silent.is_cut_off()
            assert await slow.is_cut_off()
        await until(lambda: end.engine.stats.errors == 2 and connections(end) == 0)
        await end.engine.close()

    run(work())


def test_connections_are_bounded(url: str, run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "TCP_CONNECTIONS_MAX", 3)

    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address), stranger(end.address), stranger(end.address):
            await until(lambda: connections(end) == 3)
            async with stranger(end.address) as fourth:
                assert await fourth.is_cut_off()
            end.engine.send([b"no place to dial from"], ("127.0.0.1", 9))
            assert end.engine.stats.dropped == 1
            assert connections(end) == 3
        await end.engine.close()

    run(work())


def test_a_peer_that_does_not_read_stops_the_sender_and_is_bounded(url: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as stalled:
            stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stalled.say(hello(9) + joined([b"hello"]))
            await end.arrived(1)
            chunk = [bytes(60_000)] * 10
            handed = 0
            while end.engine.writable:
                end.engine.send(chunk, ("127.0.0.1", 9))
                handed += len(chunk)
                assert handed * 60_000 < 256 << 20
            assert end.engine.stats.dropped == 0, "data that waits for room is not dropped"
            for _ in range(ENGINE_QUEUE_BYTES_MAX // 600_000 + 2):
                end.engine.send(chunk, ("127.0.0.1", 9))
                handed += len(chunk)
            stats = end.engine.stats
            assert stats.dropped > 0
            assert stats.datagrams_out + stats.dropped == handed
            stalled.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(stats.datagrams_out):
                if not end.engine.writable:
                    await stalled.hears(60_004)
            await until(lambda: end.rooms == 1 and end.engine.writable)
        await end.engine.close()

    run(work())


def test_a_stalled_peer_that_is_given_up_no_longer_stops_the_others(url: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(url)
        peer = ("127.0.0.1", 9)
        async with stranger(end.address) as stalled:
            stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stalled.say(hello(9) + joined([b"hello"]))
            await end.arrived(1)
            end.engine.set_peers([peer])
            while end.engine.writable:
                end.engine.send_all([bytes(60_000)] * 10)
            end.engine.set_peers([])
            await until(lambda: end.engine.writable and end.rooms == 1)
        await end.engine.close()

    run(work())


def test_a_dead_peer_costs_counters_and_few_attempts(url: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(url)
        dead = ("127.0.0.1", free_port())
        sent = 0

        def repeat() -> bool:
            nonlocal sent
            end.engine.send([b"anybody?"], dead)
            sent += 1
            return end.engine.stats.errors >= 3

        await until(repeat)
        await end.engine.close()
        assert end.engine.stats.dropped == sent
        assert end.engine.stats.datagrams_out == 0
        assert sent > 10, "attempts are rarer than datagrams"

    run(work())


def test_what_waits_for_a_dial_is_bounded(url: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(url, 2) as (sender, receiver):
            sent = [bytes(60_000)] * (ENGINE_QUEUE_BYTES_MAX // 60_000 + 20)
            sender.engine.send(sent, receiver.address)
            dropped = sender.engine.stats.dropped
            assert 20 <= dropped < 30
            await receiver.arrived(len(sent) - dropped)

    run(work())


def test_closing_ends_in_time_beside_a_peer_that_does_not_read(
    url: str, run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CLOSE_S", 0.05)

    async def work() -> None:
        end = await opened(url)
        async with stranger(end.address) as stalled:
            stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
            stalled.say(hello(9) + joined([b"hello"]))
            await end.arrived(1)
            while end.engine.writable:
                end.engine.send([bytes(60_000)] * 10, ("127.0.0.1", 9))
            await asyncio.wait_for(end.engine.close(), 5)
            assert connections(end) == 0

    run(work())


def test_a_send_to_oneself_arrives(url: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(url)
        end.engine.send([b"note to self"], end.address)
        assert not end.got, "not within the call"
        await end.arrived(1)
        assert end.got == [(b"note to self", end.address)]
        await end.engine.close()

    run(work())


def test_a_loop_that_cannot_watch_a_socket_accepts_all_the_same(url: str) -> None:
    """As Windows' proactor."""

    def blind_loop() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def refuse(*_: object) -> None:
            raise NotImplementedError

        loop.add_reader = refuse  # type: ignore[method-assign, assignment]
        return loop

    async def work() -> None:
        async with ends(url, 2) as (one, other):
            one.engine.send([b"there"], other.address)
            await other.arrived(1)
            other.engine.send([b"back"], one.address)
            await one.arrived(1)

    run_on(blind_loop, work())


@pytest.mark.parametrize("seed", range(4))
def test_coming_and_going_never_doubles_or_reorders(any_url: str, run: Run[None], seed: int) -> None:
    """Members open, close and send in any order; from each life of a sender everybody hears a rising sequence."""

    async def work() -> None:
        chance = random.Random(seed)
        alive: list[tuple[bytes, End]] = []
        heard: list[list[bytes]] = []
        numbers: Counter[bytes] = Counter()
        for life in range(40):
            if len(alive) < 5 or chance.random() < 0.5:
                end = await opened(any_url)
                alive.append((life.to_bytes(2, "big"), end))
            if len(alive) > 3 and chance.random() < 0.5:
                _, leaver = alive.pop(chance.randrange(len(alive)))
                heard.append(leaver.bodies)
                await leaver.engine.close()
            addresses = [end.address for _, end in alive]
            for tag, end in alive:
                end.engine.set_peers(addresses)
                for _ in range(chance.randrange(4)):
                    numbers[tag] += 1
                    end.engine.send_all([tag + numbers[tag].to_bytes(4, "big")])
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)

        def everybody_is_heard_again() -> bool:  # what was sent to an address while nobody had it is lost
            for tag, end in alive:
                numbers[tag] += 1
                end.engine.send_all([tag + numbers[tag].to_bytes(4, "big") + b"last"])
            return all(
                any(body.startswith(tag) and body.endswith(b"last") for body in end.bodies)
                for _, end in alive
                for tag, other in alive
                if other is not end
            )

        await until(everybody_is_heard_again)
        for _, end in alive:
            heard.append(end.bodies)
            await end.engine.close()
        for bodies in heard:
            for tag in {body[:2] for body in bodies}:
                of_tag = [body[2:6] for body in bodies if body[:2] == tag]
                assert of_tag == sorted(set(of_tag))

    run(work())


def test_an_address_that_was_nobodys_for_long_is_still_dialled_often(url: str, run: Run[None]) -> None:
    """Whoever takes it over must hear of the others before it may take itself for alone."""

    async def work() -> None:
        async with ends(f"{url}?bind=127.0.0.1:0", 1) as (one,):
            inside, loop = engine_of(one)._links, asyncio.get_running_loop()
            assert inside is not None
            one.engine.send_all([b"is anybody there?"])
            await until(lambda: one.engine.stats.errors == 1)
            (link,) = inside._links.values()
            assert link.retry_at - loop.time() < links.RETRY_S_MIN + 0.001  # loops count whole milliseconds
            for _ in range(20):
                inside._back_off(link)
            assert link.retry_at - loop.time() <= 0.5

    run(work())


@pytest.mark.skipif(sys.platform != "linux", reason="Elsewhere a full queue of connections answers otherwise.")
def test_a_host_that_does_not_answer_is_given_up_and_dialled_anew(run: Run[None], monkeypatch) -> None:
    monkeypatch.setattr(links, "CONNECT_S", 0.1)

    async def work() -> None:
        with socket.socket() as deaf, socket.socket() as queued, socket.socket() as also:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            for waiting in (queued, also):  # who comes now is not answered: the queue is full
                waiting.setblocking(False)
                waiting.connect_ex(deaf.getsockname())
            host, port = deaf.getsockname()
            async with ends(f"tcp://{host}:{port}/demo?bind=127.0.0.1:0", 1) as (one,):
                one.engine.send_all([b"is anybody there?"])
                await until(lambda: one.engine.stats.errors == 1)
                assert one.engine.stats.dropped == 1

    run(work())
