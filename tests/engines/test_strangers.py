"""Strangers on the socket: they may say anything at any time, and the bus goes on (TCP's own tests are in test_tcp)."""

import random
import socket
from collections.abc import Sequence

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.ids import number_of
from pluribus.core.limits import PATH_BYTES_LOOPBACK
from pluribus.engines.datagrams import kernel_segments
from pluribus.engines.multicast import MulticastEngine
from tests.engines.conftest import Kind
from tests.engines.ends import End, Run, ends, until
from tests.engines.stranger import stranger

DATAGRAMS = [
    b"",
    b"\0",
    b"\xff" * 9_000,
    b"x" * PATH_BYTES_LOOPBACK,
    *(random.Random(7).randbytes(n) for n in range(50)),
]


NO_ADDRESSES = [
    ("fe80::1%\0x", 9),
    ("fe80::1%\u00e9" + 70 * "x", 9),
    ("::1%" + 70 * "x", 9),
    ("::1", 9),
    ("127.0.0.1", 0),
]
"""What a peer may say of itself: not one is within reach of a socket of 127.0.0.1."""


async def still_works(one: End, other: End) -> None:
    one.engine.send([b"still here"], other.address)
    await until(lambda: b"still here" in other.bodies)
    other.engine.send_all([b"still there"])
    await until(lambda: b"still there" in one.bodies)


def throw(datagrams: Sequence[bytes], *targets: tuple[str, int]) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for datagram in datagrams:
            for target in targets:
                sock.sendto(datagram, target)


@pytest.mark.parametrize("options", ["", "?driver=plain", "?path=1472", "?packet=1472"])
def test_udp_passes_up_whatever_comes(options: str, run: Run[None]) -> None:
    """A datagram socket has no strangers: telling frames from garbage is the codec's work."""

    async def work() -> None:
        async with ends(f"udp://127.0.0.1:{free_port()}/demo{options}", 2) as (one, other):
            throw(DATAGRAMS, one.address)
            await one.arrived(len(DATAGRAMS))
            assert sorted(one.bodies) == sorted(DATAGRAMS)
            await still_works(one, other)

    run(work())


def test_an_address_that_is_none_costs_only_its_own_datagrams(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (one, other):
            for address in NO_ADDRESSES:
                one.engine.send([b"nobody", b"there"], address)
            for end in (one, other):
                end.engine.set_peers([*NO_ADDRESSES, one.address, other.address])
            await still_works(one, other)
            await still_works(other, one)
            if kind.scheme != "nats":  # which asks its server
                await until(lambda: one.engine.stats.dropped >= 2 * len(NO_ADDRESSES))

    run(work())


def test_an_address_that_is_none_leaves_the_kernel_to_segment(run: Run[None]) -> None:
    """It answers a datagram to port 0 as it answers one that it cannot segment."""

    async def work() -> None:
        async with ends(f"udp://127.0.0.1:{free_port()}/demo?packet=1472", 2) as (one, other):
            one.engine.send([b"x" * 100] * 5, ("127.0.0.1", 0))
            before = one.engine.stats.calls_out
            one.engine.send([b"x" * 100] * 5, other.address)
            assert one.engine.stats.calls_out == before + (1 if kernel_segments() else 5)

    run(work())


@pytest.mark.parametrize("options", ["", "?driver=plain", "?path=1472", "?packet=1472"])
def test_multicast_passes_up_whatever_comes(options: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(f"multicast://strangers-{free_port()}{options}", 2) as (one, other):
            assert isinstance(one.engine, MulticastEngine)
            throw(DATAGRAMS, one.address, one.engine.group)
            await one.arrived(2 * len(DATAGRAMS))
            assert sorted(one.bodies) == sorted(DATAGRAMS + DATAGRAMS)
            await still_works(one, other)

    run(work())


@pytest.mark.parametrize(
    "garbage", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5_000, b"\x16\x03\x01\x02\x00" + b"\0" * 600]
)
def test_tls_hangs_up_on_whatever_is_no_handshake(garbage: bytes, tls_options: str, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(f"tcp://127.0.0.1:{free_port()}/demo?{tls_options}", 2) as (one, other):
            async with stranger(one.address) as nobody:
                nobody.say(garbage)
                assert not garbage or await nobody.is_cut_off()
            await still_works(one, other)
            assert one.bodies == [b"still there"]

    run(work())


def test_nats_counts_what_no_member_published(nats_host: str, run: Run[None]) -> None:
    async def work() -> None:
        import nats

        bus = f"strangers-{free_port()}"
        prefix = f"pluribus.{number_of(bus):012x}"
        async with ends(f"nats://{nats_host}/{bus}", 2) as (one, other):
            outsider = await nats.connect(f"nats://{nats_host}")
            for subject in (f"{prefix}.all", f"{prefix}.to.{one.address[0]}"):
                await outsider.publish(subject, b"from nowhere")
                await outsider.publish(subject, b"from elsewhere", reply="some.inbox")
                await outsider.publish(subject, b"from a pattern", reply=f"{prefix}.to.*")
                await outsider.publish(subject, b"from a short one", reply=f"{prefix}.to.abc")
                await outsider.publish(subject, b"with headers", headers={"Status": "100"})
                await outsider.publish(subject, bytes(PATH_BYTES_LOOPBACK + 1), reply=f"{prefix}.to.{'0' * 16}")
            await outsider.flush()
            await until(lambda: one.engine.stats.errors == 12 and other.engine.stats.errors == 6)
            await outsider.close()
            await still_works(one, other)
            assert one.bodies == [b"still there"]

    run(work())
