"""NATS: a server that goes away and comes back, refuses, or takes no more. A real server, started for the test."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pluribus.bench.ports import free_port
from pluribus.cli import programs
from pluribus.core.errors import Unreachable
from pluribus.core.limits import ENGINE_QUEUE_BYTES_MAX
from pluribus.engines.nats import HIGH_WATER_BYTES
from tests.engines.certificates import Authority
from tests.engines.ends import End, Run, ends, opened, refused, until

pytestmark = pytest.mark.xdist_group("servers")


class Server:
    """A server on one port, to be started, stopped, suspended and started again."""

    def __init__(self, program: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}/demo"
        self._command = [str(program), "-a", "127.0.0.1", "-p", str(self.port), *options]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = self._started()
        for _ in range(500):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert self._process.poll() is None, "nats-server ended"
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
        raise AssertionError("nats-server does not listen")

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def suspend(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def reload(self) -> None:
        """Read the settings again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def program() -> Path:
    found = programs.find_nats_server()
    if found is None:
        pytest.skip(f"nats-server is missing. {programs.REMEDIES['nats']}")
    return found


@pytest.fixture
def server(program: Path) -> Iterator[Server]:
    server = Server(program)
    yield server
    server.stop()


def test_members_are_reached_again_after_the_server_was_restarted(server: Server, run: Run[None]) -> None:
    async def work() -> None:
        await server.start()
        async with ends(server.url, 2) as (one, other):
            one.engine.send_all([b"before"])
            await other.arrived(1)
            server.stop()
            await until(lambda: other.engine.stats.errors > 0 and one.engine.stats.errors > 0)
            one.engine.send([b"meanwhile"], other.address)
            await server.start()

            def repeat() -> bool:
                one.engine.send([b"after"], other.address)
                other.engine.send_all([b"after"])
                return b"after" in other.bodies and b"after" in one.bodies

            await until(repeat)
            assert {source for _, source in other.got} == {one.address}, "addresses survive"
            assert other.bodies.count(b"meanwhile") <= 1

    run(work())


def test_what_waits_for_a_lost_server_is_bounded_and_the_rest_counted(server: Server, run: Run[None]) -> None:
    async def work() -> None:
        await server.start()
        async with ends(server.url, 1) as (one,):
            server.stop()
            await until(lambda: one.engine.stats.errors > 0)
            handed = 0
            while one.engine.stats.dropped < 10:
                one.engine.send_all([bytes(60_000)] * 10)
                handed += 10
                assert handed * 60_000 < 2 * ENGINE_QUEUE_BYTES_MAX + HIGH_WATER_BYTES
                await asyncio.sleep(0)
            assert not one.engine.writable

    run(work())


def test_a_server_that_takes_no_more_stops_the_sender_until_it_does(server: Server, run: Run[None]) -> None:
    async def work() -> None:
        await server.start()
        async with ends(server.url, 2) as (one, other):
            server.suspend()
            handed = 0
            while one.engine.writable:
                one.engine.send([bytes(60_000)], other.address)
                handed += 1
                assert handed * 60_000 < 64 << 20
                await asyncio.sleep(0)
            assert one.engine.stats.dropped == 0
            server.resume()
            await until(lambda: one.rooms == 1 and one.engine.writable)
            await other.arrived(handed)
            assert one.engine.stats.datagrams_out == other.engine.stats.datagrams_in == handed

    run(work())


def test_a_member_that_is_gone_is_counted(server: Server, run: Run[None]) -> None:
    async def work() -> None:
        await server.start()
        async with ends(server.url, 2) as (one, other):
            await other.engine.close()
            one.engine.send_all([b"an empty bus is no loss"])

            def repeat() -> bool:  # until the server, too, knows that it is gone
                one.engine.send([b"anybody?"], other.address)
                return one.engine.stats.dropped >= 3

            await until(repeat)
            assert one.engine.stats.dropped < one.engine.stats.datagrams_out
            assert one.engine.stats.errors == 0

    run(work())


def test_a_small_max_payload_shortens_the_path(program: Path, tmp_path: Path, run: Run[None]) -> None:
    settings = tmp_path / "small.conf"
    settings.write_text("max_payload: 5000\n")
    server = Server(program, "-c", str(settings))

    async def work() -> None:
        await server.start()
        async with ends(server.url, 2) as (one, other):
            assert one.engine.path_bytes == 5_000
            one.engine.send([bytes(5_000)], other.address)
            await other.arrived(1)

    try:
        run(work())
    finally:
        server.stop()


def test_a_token_from_a_file_opens_a_closed_server(program: Path, tmp_path: Path, run: Run[None]) -> None:
    token = tmp_path / "token"
    token.write_text("open-sesame\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("abracadabra\n")
    server = Server(program, "--auth", "open-sesame")

    async def work() -> None:
        await server.start()
        for url in (server.url, f"{server.url}?token_file={wrong}"):
            sentence = await refused(opened(url), Unreachable)
            assert "token_file=" in sentence
            assert "abracadabra" not in sentence
        async with ends(f"{server.url}?token_file={token}", 2) as (one, other):
            one.engine.send_all([b"inside"])
            await other.arrived(1)

    try:
        run(work())
    finally:
        server.stop()


def test_who_is_shut_out_holds_nobody_up_and_is_back_when_it_is_let_in_again(
    program: Path, tmp_path: Path, run: Run[None]
) -> None:
    token = tmp_path / "token"
    token.write_text("open-sesame")
    settings = tmp_path / "closed.conf"
    settings.write_text("authorization: {token: open-sesame}\n")
    server = Server(program, "-c", str(settings))

    async def work() -> None:
        await server.start()
        async with ends(f"{server.url}?token_file={token}", 2) as (one, other):
            settings.write_text("authorization: {token: another}\n")
            server.reload()

            def shut_out() -> bool:
                one.engine.send_all([bytes(60_000)] * 50)
                return one.engine.stats.dropped > 200

            await until(shut_out)
            await one.may_send()
            settings.write_text("authorization: {token: open-sesame}\n")
            server.reload()

            def repeat() -> bool:
                one.engine.send([b"after"], other.address)
                other.engine.send_all([b"after"])
                return b"after" in other.bodies and b"after" in one.bodies

            await until(repeat)
            assert one.engine.writable

    try:
        run(work())
    finally:
        server.stop()


def test_who_is_shut_out_can_leave(program: Path, tmp_path: Path, run: Run[None]) -> None:
    token = tmp_path / "token"
    token.write_text("open-sesame")
    settings = tmp_path / "closed.conf"
    settings.write_text("authorization: {token: open-sesame}\n")
    server = Server(program, "-c", str(settings))

    async def work() -> None:
        await server.start()
        async with ends(f"{server.url}?token_file={token}", 1) as (one,):
            settings.write_text("authorization: {token: another}\n")
            server.reload()

            def shut_out() -> bool:
                one.engine.send_all([b"anybody?"])
                return one.engine.stats.dropped > 0

            await until(shut_out)

    try:
        run(work())
    finally:
        server.stop()


def test_a_server_with_a_certificate_is_checked(
    program: Path, authority: Authority, tmp_path: Path, run: Run[None]
) -> None:
    cert, key = authority.issue("nats")
    server = Server(program, "--tls", "--tlscert", str(cert), "--tlskey", str(key))
    stranger = Authority(tmp_path, "somebody else")

    async def work() -> None:
        await server.start()
        sentence = await refused(opened(f"{server.url}?ca={stranger.ca}"), Unreachable)
        assert "check ca=" in sentence
        async with ends(f"{server.url}?ca={authority.ca}", 2) as (one, other):
            one.engine.send_all([b"inside"])
            await other.arrived(1)

    try:
        run(work())
    finally:
        server.stop()


def test_a_server_without_a_certificate_is_told_nothing(
    program: Path, tmp_path: Path, authority: Authority, run: Run[None]
) -> None:
    """Neither the token: whoever sits between could pretend that the server has no TLS."""

    async def work() -> None:
        said = bytearray()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"auth_required":true}\r\n')
            said.extend(await reader.read())
            writer.close()

        (tmp_path / "token").write_text("open sesame")
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = f"nats://127.0.0.1:{port}/demo?ca={authority.ca}&token_file={tmp_path / 'token'}"
        sentence = await refused(opened(url), Unreachable)
        assert "has no TLS" in sentence
        server.close()
        assert not said

    run(work())


def test_an_opening_that_is_given_up_leaves_nothing_behind(
    nats_host: str, run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        reached = asyncio.Event()

        async def settle(client: object, timeout_s: int) -> None:
            reached.set()
            await asyncio.sleep(60)

        monkeypatch.setattr("pluribus.engines.nats._settle", settle)
        before = len(asyncio.all_tasks())
        opening = asyncio.ensure_future(opened(f"nats://{nats_host}/demo"))
        await reached.wait()
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        await until(lambda: len(asyncio.all_tasks()) == before, lambda: f"{asyncio.all_tasks()}")

    run(work())


class Gate:
    """Speaks as much NATS as it takes to let somebody in, or not."""

    def __init__(self) -> None:
        self.open = True
        self.said = bytearray()
        self.inside: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/demo"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true}\r\n')
        self.inside.append(writer)
        while data := await reader.read(1 << 16):
            if not self.open:
                self.shut()
                break
            self.said += data
            writer.write(data.count(b"PING\r\n") * b"PONG\r\n")
        writer.close()

    def shut(self) -> None:
        for writer in self.inside:
            writer.write(b"-ERR 'Authorization Violation'\r\n")

    def reset(self) -> None:
        for writer in self.inside:
            writer.transport.abort()
        self.inside.clear()

    def stop(self) -> None:
        self._server.close()
        self.reset()


async def shut_out_and_let_in_again(gate: Gate, end: End) -> None:
    end.engine.send_all([bytes(60_000)] * 100)
    await end.may_send()
    assert end.engine.stats.dropped
    gate.open = True

    def repeat() -> bool:
        end.engine.send_all([b"I am back"])
        return b"I am back" in gate.said

    await until(repeat)


def test_who_is_shut_out_when_it_comes_back_holds_nobody_up(run: Run[None]) -> None:
    async def work() -> None:
        gate = Gate()
        end = await opened(await gate.start())
        gate.open = False
        gate.reset()
        await shut_out_and_let_in_again(gate, end)
        await end.engine.close()
        gate.stop()

    run(work())


def test_who_is_shut_out_without_being_told_holds_nobody_up(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    """nats-py does not call back when the server resets the connection while it is being closed."""
    from nats.aio.client import Client

    async def close_without_a_word(self: Client, status: int, do_cbs: bool = True) -> None:
        self._status = Client.CLOSED

    async def work() -> None:
        gate = Gate()
        end = await opened(await gate.start())
        with monkeypatch.context() as patched:
            patched.setattr(Client, "_close", close_without_a_word)
            gate.shut()
            await shut_out_and_let_in_again(gate, end)
        await end.engine.close()
        gate.stop()

    run(work())


def test_a_client_that_the_server_was_quicker_to_close_leaves_no_task(run: Run[None]) -> None:
    """uvloop raises where asyncio only warns: writing to a connection that is closed. nats-py then takes itself for
    closed, and has not ended the tasks of its subscriptions."""

    async def work() -> None:
        gate = Gate()
        end = await opened(await gate.start())
        client = end.engine._client
        assert client is not None

        def too_late(*_: object) -> None:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

        client._transport.writelines = too_late
        client._pending, client._pending_data_size = [b"PING"], 4
        client._flush_pending = lambda force_flush=False: asyncio.sleep(0)
        tasks = [subscription._wait_for_msgs_task for subscription in client._subs.values()]
        assert tasks
        await client.close()
        await until(lambda: all(task.done() for task in tasks))
        await end.engine.close()
        gate.stop()

    run(work())


def test_a_send_to_oneself_arrives(nats_host: str, run: Run[None]) -> None:
    async def work() -> None:
        end = await opened(f"nats://{nats_host}/demo")
        end.engine.send([b"note to self"], end.address)
        assert not end.got, "not within the call"
        await end.arrived(1)
        assert end.got == [(b"note to self", end.address)]
        await end.engine.close()

    run(work())
