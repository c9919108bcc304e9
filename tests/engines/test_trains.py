"""Long datagrams over short packets: whatever the network does to segments, a datagram comes whole or not at all."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.bench.ports import free_port
from pluribus.core.limits import PATH_BYTES_ETHERNET, PATH_BYTES_LOOPBACK, TRAIN_BYTES_MAX, TRAINS_MAX
from pluribus.core.ports import Address, Datagram
from pluribus.core.url import parse_url
from pluribus.engines import datagrams, engine_for, udp
from pluribus.engines.trains import HEAD_BYTES, MARK, Cutter, Joiner
from tests.engines.ends import ends

HERE: Address = ("127.0.0.1", 1)
THERE: Address = ("127.0.0.1", 2)
bodies = st.binary(min_size=1, max_size=5_000)


def segments(cutter: Cutter, datagram: bytes) -> list[bytes]:
    buffers = cutter.cut(datagram)
    return [bytes(buffers[at]) + bytes(buffers[at + 1]) for at in range(0, len(buffers), 2)]


def taken(joiner: Joiner, data: bytes, size: int, source: Address = HERE) -> list[bytes]:
    got: list[Datagram] = []
    joiner.take(data, size, source, got)
    joiner.validate()
    assert all(where == source for _, where in got)
    return [whole for whole, _ in got]


@given(bodies, st.integers(HEAD_BYTES + 1, 2_000))
def test_a_train_that_comes_joined_is_one_datagram(body: bytes, packet: int):
    cutter = Cutter(packet, 7)
    cut = segments(cutter, body)
    assert all(len(segment) == packet for segment in cut[:-1]) and 0 < len(cut[-1]) <= packet
    if len(cut) <= 256:
        assert taken(Joiner(), b"".join(cut), packet) == [body]


@given(st.lists(bodies, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_segments_in_any_order_make_the_same_datagrams(sent: list[bytes], random):
    cutter, joiner = Cutter(200, 1), Joiner()
    mixed = [segment for body in sent for segment in segments(cutter, body)]
    random.shuffle(mixed)
    got = [whole for segment in mixed for whole in taken(joiner, segment, len(segment))]
    assert sorted(got) == sorted(sent)


@given(bodies, st.data())
def test_a_datagram_with_a_lost_or_repeated_segment_is_whole_or_nothing(body: bytes, data):
    cut = segments(Cutter(100, 1), body)
    lost = data.draw(st.integers(0, len(cut) - 1))
    twice = data.draw(st.integers(0, len(cut) - 1))
    came = [segment for at, segment in enumerate(cut) if at != lost]
    came += [cut[twice]] if twice != lost else []
    joined = taken(Joiner(), b"".join(came), 100) if came and all(len(one) == 100 for one in came[:-1]) else []
    assert joined == []
    joiner = Joiner()
    assert [whole for segment in came for whole in taken(joiner, segment, len(segment))] == []
    assert taken(joiner, cut[lost], len(cut[lost])) == [body]


def test_trains_of_two_senders_with_the_same_number_are_not_mixed():
    joiner, one, other = Joiner(), b"a" * 300, b"b" * 300
    first, second = segments(Cutter(200, 5), one), segments(Cutter(200, 5), other)
    assert taken(joiner, first[0], 200, HERE) == taken(joiner, second[1], 200, THERE) == []
    assert taken(joiner, first[1], 200, HERE) == [one]
    assert taken(joiner, second[0], 200, THERE) == [other]


def test_what_begins_like_a_head_travels_too():
    cutter = Cutter(100, 1)
    assert cutter.whole(b"frame") and cutter.whole(b"")
    assert not cutter.whole(bytes([MARK, 1, 2, 3])) and not cutter.whole(b"x" * 101)
    (only,) = segments(cutter, bytes([MARK]))
    assert taken(Joiner(), only, len(only)) == [bytes([MARK])]


def test_plain_datagrams_that_came_joined_are_told_apart():
    tail = segments(Cutter(20, 1), b"x" * 10)
    assert taken(Joiner(), b"a" * 20 + b"b" * 20 + b"c", 20) == [b"a" * 20, b"b" * 20, b"c"]
    assert taken(Joiner(), tail[0] + b"b" * 20, 20) == [b"x" * 10, b"b" * 20]
    assert taken(Joiner(), b"", 0) == [b""]


@given(st.binary(max_size=200), st.integers(1, 220))
def test_nonsense_raises_nothing(data: bytes, size: int):
    joiner = Joiner()
    for nonsense in (data, bytes([MARK]) + data, bytes([MARK, 1, 0, 0, 0, 2]) + data):
        taken(joiner, nonsense, max(min(size, len(nonsense)), 1) if nonsense else 0)


def test_segments_that_wait_in_vain_are_bounded():
    cutter, joiner = Cutter(1_000, 1), Joiner()
    for number in range(TRAINS_MAX + 10):
        taken(joiner, segments(cutter, bytes([number]) * 3_000)[0], 1_000)
    assert joiner.lost == 10
    large = Cutter(60_000, 1)
    for number in range(TRAIN_BYTES_MAX // 60_000 + 5):
        taken(joiner, segments(large, bytes([number]) * 65_000)[0], 60_000)
    assert joiner.lost > 10


@pytest.mark.parametrize(
    ("url", "path", "packet"),
    [
        ("udp://127.0.0.1:0/bus", PATH_BYTES_LOOPBACK, PATH_BYTES_LOOPBACK),
        ("udp://192.0.2.1:7/bus", PATH_BYTES_LOOPBACK, PATH_BYTES_ETHERNET),
        ("udp://192.0.2.1:7/bus?path=1472", 1_472, PATH_BYTES_ETHERNET),
        ("udp://192.0.2.1:7/bus?packet=8972", PATH_BYTES_LOOPBACK, 8_972),
        ("multicast://bus?interface=192.0.2.1", PATH_BYTES_LOOPBACK, PATH_BYTES_ETHERNET),
    ],
)
def test_datagrams_are_long_where_the_kernel_cuts_them(url: str, path: int, packet: int, monkeypatch):
    monkeypatch.setattr(udp, "kernel_segments", lambda: True)
    engine = engine_for(parse_url(url))
    assert (engine.path_bytes, engine._packet_bytes) == (path, packet)


def test_datagrams_are_packets_where_it_does_not(monkeypatch):
    monkeypatch.setattr(udp, "kernel_segments", lambda: False)
    assert engine_for(parse_url("udp://192.0.2.1:7/bus")).path_bytes == PATH_BYTES_ETHERNET
    assert engine_for(parse_url("udp://192.0.2.1:7/bus?path=9000")).path_bytes == 9_000


@pytest.mark.skipif(not datagrams.kernel_segments(), reason="The kernel does not segment UDP.")
def test_a_long_datagram_is_one_call():
    async def main() -> None:
        async with ends(f"udp://127.0.0.1:{free_port()}/bus?packet=1472", 2) as (one, other):
            sent = [b"s" * 100, b"l" * 50_000, b"m" * 1_472, b"n" * 1_473]
            one.engine.send(sent, other.address)
            await other.arrived(4)
            assert other.bodies == sent
            stats = one.engine.stats
            assert (stats.datagrams_out, stats.calls_out, stats.bytes_out) == (4, 4, sum(map(len, sent)))
            assert other.engine.stats.bytes_in == stats.bytes_out

    asyncio.run(main())


@pytest.mark.skipif(not datagrams.kernel_segments(), reason="The kernel does not segment UDP.")
def test_a_kernel_that_stops_segmenting_is_served_one_by_one(monkeypatch):
    async def main() -> None:
        async with ends(f"udp://127.0.0.1:{free_port()}/bus?packet=1472", 2) as (one, other):
            one.engine._driver._segment = False
            one.engine.send([b"l" * 20_000], other.address)
            await other.arrived(1)
            assert other.bodies == [b"l" * 20_000]
            assert one.engine.stats.calls_out == 14

    asyncio.run(main())
