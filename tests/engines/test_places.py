"""Where engines with ports listen: every process uses the same URL, and one of them gets its address."""

import asyncio
import socket

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.limits import PATH_BYTES_LOOPBACK
from pluribus.core.url import parse_url
from pluribus.engines.udp import UdpEngine
from tests.engines.ends import Run, ends, opened, until

PACKETS = {"192.0.2.1": 1_472, "[2001:db8::1]": 1_452, "127.0.0.1": PATH_BYTES_LOOPBACK, "[::1]": PATH_BYTES_LOOPBACK}
WITH_PORTS = pytest.mark.parametrize("scheme", ["udp", "tcp"])


@WITH_PORTS
def test_a_port_that_another_program_holds_is_not_taken_from_it(scheme: str, run: Run[None]) -> None:
    """It may be a member of the bus or not; whoever asks for the URL listens elsewhere."""

    async def work() -> None:
        with socket.socket(type=socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM) as holder:
            holder.bind(("127.0.0.1", 0))
            if scheme == "tcp":
                holder.listen()
            port = holder.getsockname()[1]
            end = await opened(f"{scheme}://127.0.0.1:{port}/demo")
            assert end.address[0] == "127.0.0.1"
            assert end.address[1] not in (0, port)
            await end.engine.close()

    run(work())


@WITH_PORTS
def test_a_name_is_looked_up_once_without_holding_the_loop_up(
    scheme: str, run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the loop's resolver alone: the kernel's calls, which would wait for a name server, get numbers."""

    async def number_of(host: str) -> str:
        return "127.0.0.1"

    monkeypatch.setattr("pluribus.engines.resolve._number_of", number_of)

    async def work() -> None:
        port = free_port()
        end = await opened(f"{scheme}://no-such-host.invalid:{port}/demo")
        assert end.address == ("127.0.0.1", port)
        await end.engine.close()

    run(work())


def test_a_packet_over_ipv6_has_room_for_its_header() -> None:
    sizes = {host: UdpEngine.from_url(parse_url(f"udp://{host}:1/demo"), {})._packet_bytes for host in PACKETS}
    assert sizes == PACKETS


@WITH_PORTS
def test_a_bind_option_is_granted_exactly(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        seed, port = free_port(), free_port()
        end = await opened(f"{scheme}://127.0.0.1:{seed}/demo?bind=127.0.0.1:{port}")
        assert end.address == ("127.0.0.1", port)
        await end.engine.close()
        end = await opened(f"{scheme}://127.0.0.1:{seed}/demo?bind=127.0.0.1:0")
        assert end.address[1] not in (0, seed)
        await end.engine.close()

    run(work())


@WITH_PORTS
def test_the_second_host_of_a_url_is_taken_when_the_first_is_not_free(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        ports = sorted((free_port(), free_port()))
        url = f"{scheme}://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/demo"
        members = [await opened(url) for _ in range(3)]
        assert [member.address[1] for member in members[:2]] == ports
        assert members[2].address[1] not in ports
        members[2].engine.send_all([b"both of you"])
        for member in members[:2]:
            await member.arrived(1)
            await member.engine.close()
        await members[2].engine.close()

    run(work())


@WITH_PORTS
def test_a_name_in_the_url_means_its_number(scheme: str, run: Run[None]) -> None:
    """Else the first member would take its own name for somebody else, and each send would ask a name server."""

    async def work() -> None:
        async with ends(f"{scheme}://localhost:{free_port()}/demo", 2) as (one, other):
            assert one.address[0] == other.address[0] == "127.0.0.1"
            other.engine.send_all([b"to the seed"])
            one.engine.send_all([b"to the peer"])
            await one.arrived(1)
            await other.arrived(1)
            other.engine.send([b"and once more"], one.address)
            await until(lambda: b"and once more" in one.bodies)
            assert one.bodies == [b"to the seed", b"and once more"]
            assert one.engine.stats.errors == other.engine.stats.errors == 0

    run(work())


@pytest.mark.parametrize(
    "scheme",
    ["udp", "tcp"],
)
def test_ipv6_is_no_different(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(f"{scheme}://[::1]:{free_port()}/demo", 2) as (one, other):
            other.engine.send_all([b"to the seed"])
            await one.arrived(1)
            assert one.got == [(b"to the seed", other.address)]
            one.engine.send([b"back"], one.got[0][1])
            await other.arrived(1)
            assert other.got == [(b"back", one.address)]

    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    run(work())


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@WITH_PORTS
def test_port_zero_is_nobody_to_ask(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(f"{scheme}://127.0.0.1:0/demo", 2) as (one, other):
            one.engine.send_all([b"to the peer"])
            await other.arrived(1)
            stats = one.engine.stats
            assert (stats.datagrams_out, stats.dropped, stats.errors) == (1, 0, 0)

    run(work())


@WITH_PORTS
def test_many_that_open_at_once_with_one_url(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        port = free_port()
        members = await asyncio.gather(*(opened(f"{scheme}://127.0.0.1:{port}/demo") for _ in range(20)))
        first = [member for member in members if member.address[1] == port]
        assert len(first) == 1
        for member in members:
            member.engine.send_all([b"here"])
        await first[0].arrived(19)
        await asyncio.gather(*(member.engine.close() for member in members))

    run(work())


def test_a_port_that_is_bound_but_not_yet_listening_is_taken_in_the_end(run: Run[None]) -> None:
    """Linux lets two programs bind before one listens; the one that comes second must notice."""

    async def work() -> None:
        with socket.socket() as rival:
            rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rival.bind(("127.0.0.1", 0))
            port = rival.getsockname()[1]
            listen = socket.socket.listen

            def rival_first(sock: socket.socket, backlog: int = 128) -> None:
                if sock is not rival and rival.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0:
                    listen(rival)
                listen(sock, backlog)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(socket.socket, "listen", rival_first)
                end = await opened(f"tcp://127.0.0.1:{port}/demo")
            assert end.address[1] not in (0, port)
            await end.engine.close()

    run(work())
