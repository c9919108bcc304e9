"""Framing: however the network cuts the bytes, the same datagrams come out; whatever bytes come, nothing is raised."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import MalformedFrame
from pluribus.core.limits import DATAGRAM_BYTES_MAX
from pluribus.core.ports import Address, Datagram
from pluribus.engines.stream import READ_BUFFER_BYTES, Connection, Hello, joined

PEER: Address = ("127.0.0.1", 7001)
HELLO = Hello(1, 2, PEER)


class Notebook:
    """An owner that writes down what it hears."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.got: list[Datagram] = []
        self.size_bytes = 0
        self.reasons: list[str] = []

    def made(self, connection: Connection) -> None: ...
    def paused(self, connection: Connection) -> None: ...
    def resumed(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...

    def greeted(self, connection: Connection, hello: Hello) -> None:
        self.hellos.append(hello)

    def received(self, datagrams: list[Datagram], size_bytes: int) -> None:
        assert datagrams
        self.got += datagrams
        self.size_bytes += size_bytes

    def refused(self, connection: Connection, reason: str) -> None:
        self.reasons.append(reason)


class Wire:
    """A transport that only remembers whether it was cut."""

    def __init__(self) -> None:
        self.cut = False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> Any: ...

    def abort(self) -> None:
        self.cut = True


def fed(data: bytes, cuts: list[int]) -> tuple[Notebook, Wire]:
    """What comes out if the data arrives in pieces of these sizes, over and over."""
    notebook, wire = Notebook(), Wire()
    connection = Connection(notebook, None)
    connection.connection_made(cast("asyncio.BaseTransport", wire))
    at = turn = 0
    while at < len(data) and not wire.cut:
        buffer = connection.get_buffer(-1)
        assert len(buffer), "no room to read into"
        size = min(len(buffer), cuts[turn % len(cuts)], len(data) - at)
        buffer[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size
        turn += 1
    return notebook, wire


cuts = st.lists(st.integers(1, 9) | st.integers(1, 2 * READ_BUFFER_BYTES), min_size=1, max_size=20)
sizes = st.integers(0, 20) | st.integers(0, 3_000) | st.sampled_from([DATAGRAM_BYTES_MAX - 1, DATAGRAM_BYTES_MAX])


@given(st.lists(sizes, max_size=30), cuts)
def test_pieces_of_any_size_give_the_same_datagrams(lengths: list[int], cuts: list[int]) -> None:
    if sum(lengths) > 20_000:  # a byte at a time is for small ones
        cuts = [max(cut, 1_000) for cut in cuts]
    datagrams = [bytes([number]) * length for number, length in enumerate(lengths)]
    notebook, wire = fed(HELLO.encode() + joined(datagrams), cuts)
    assert notebook.hellos == [HELLO]
    assert notebook.got == [(datagram, PEER) for datagram in datagrams]
    assert notebook.size_bytes == sum(lengths)
    assert not wire.cut
    assert not notebook.reasons


@given(st.binary(max_size=2_000), cuts, st.booleans())
def test_any_bytes_at_all_raise_nothing(garbage: bytes, cuts: list[int], greeted: bool) -> None:
    notebook, wire = fed((HELLO.encode() if greeted else b"") + garbage, cuts)
    assert wire.cut == bool(notebook.reasons)
    assert len(notebook.reasons) <= 1
    assert all(len(data) <= DATAGRAM_BYTES_MAX for data, _ in notebook.got)


@given(st.integers(DATAGRAM_BYTES_MAX + 1, 2**32 - 1), cuts)
def test_a_length_beyond_the_limit_cuts_off_after_what_was_whole(length: int, cuts: list[int]) -> None:
    notebook, wire = fed(HELLO.encode() + joined([b"whole"]) + length.to_bytes(4, "big") + bytes(50), cuts)
    assert notebook.got == [(b"whole", PEER)]
    assert wire.cut
    assert str(length) in notebook.reasons[0]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.ip_addresses().map(str),
    st.integers(1, 65_535),
)
def test_a_hello_survives_the_way(bus: int, incarnation: int, host: str, port: int) -> None:
    hello = Hello(bus, incarnation, (host, port))
    assert Hello.decode(hello.encode()[4:]) == hello


@given(st.binary(max_size=200))
def test_a_hello_is_well_formed_or_refused(body: bytes) -> None:
    try:
        hello = Hello.decode(body)
    except MalformedFrame:
        return
    assert hello.encode()[4:] == body


def test_a_dial_that_was_given_up_is_cut_when_it_succeeds() -> None:
    connection, wire = Connection(Notebook(), PEER), Wire()
    connection.abort()
    connection.connection_made(cast("asyncio.BaseTransport", wire))
    assert wire.cut
