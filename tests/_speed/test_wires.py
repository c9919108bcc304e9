"""A datagram socket: in Python and, where that was compiled, in C. Both answer alike."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus._speed import wires
from pluribus._speed.wires import Wire
from pluribus.core.limits import DATAGRAM_BYTES_MAX, LONG_BYTES_LOOPBACK
from pluribus.engines.trains import Cutter, Joiner
from tests._speed.both_ends import compiled

both = pytest.mark.parametrize(
    "kind", [pytest.param(wires, id="python"), *([pytest.param(compiled, id="c")] if compiled else [])]
)


@pytest.fixture
def socks() -> Iterator[list[socket.socket]]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for sock in made:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    yield made
    for sock in made:
        sock.close()


@both
def test_what_has_come_is_there_with_where_it_is_from(kind, socks):
    one, two, other = socks
    wire: Wire = kind.Wire(other)
    sent = [
        (bytes([number]) * size, sock)
        for number, size in enumerate((0, 1, 100, 4_095, 4_096, 60_000))
        for sock in (one, two)
    ]
    for data, sock in sent:
        kind.Wire(sock).send(data, other.getsockname())
    assert wire.receive(100, 0) == [(data, sock.getsockname()) for data, sock in sent]
    assert wire.receive(100, 0) == []


@both
def test_as_many_are_taken_as_were_asked_for(kind, socks):
    one, _, other = socks
    wire: Wire = kind.Wire(other)
    bodies = [b"short", b"s" * 50, b"short", b"short"]
    for body in bodies:
        one.sendto(body, other.getsockname())
    assert [data for data, _ in wire.receive(100, 10)] == bodies[:1], "one that is short is alone"
    assert [data for data, _ in wire.receive(2, 10)] == bodies[1:3], "one that is long is not, whatever comes after"
    assert [data for data, _ in wire.receive(0, 10)] == []
    assert [data for data, _ in wire.receive(100, 0)] == bodies[3:]


@both
def test_addresses_may_be_names_and_change(kind, socks):
    one, two, other = socks
    wire: Wire = kind.Wire(one)
    for _ in range(2):
        assert wire.send(b"a", two.getsockname()) == 1
        assert wire.send(b"bc", ("localhost", other.getsockname()[1])) == 2
        assert wire.send(bytearray(b"def"), other.getsockname()) == 3
    assert [data for data, _ in kind.Wire(two).receive(9, 0)] == [b"a"] * 2
    assert [data for data, _ in kind.Wire(other).receive(9, 0)] == [b"bc", b"def"] * 2


@both
def test_more_senders_than_it_remembers_are_told_apart(kind, socks):
    other = socks[2]
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
    for _ in range(2):
        for sender in senders:
            sender.sendto(b"x", other.getsockname())
        sources = [source for _, source in kind.Wire(other).receive(100, 0)]
        assert sources == [("127.0.0.1", sender.getsockname()[1]) for sender in senders]
    for sender in senders:
        sender.close()


@both
def test_what_the_kernel_says_is_raised(kind, socks):
    one, two, other = socks
    wire: Wire = kind.Wire(one)
    with pytest.raises(OSError, match="too long"):
        wire.send(bytes(DATAGRAM_BYTES_MAX + 1), other.getsockname())
    with pytest.raises((OSError, OverflowError)):
        wire.send(b"x", ("127.0.0.1", 70_000))
    one.connect(two.getsockname())
    two.close()
    one.send(b"nobody is there")
    with pytest.raises(ConnectionRefusedError):
        wire.receive(9, 0)
    assert wire.receive(9, 0) == []


@both
def test_after_it_was_closed_nothing_is_sent_to_whoever_has_its_number_now(kind, socks):
    one, two, other = socks
    wire: Wire = kind.Wire(one)
    wire.close()
    one.close()
    successor = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with pytest.raises(OSError, match="Bad file descriptor"):
        wire.send(b"x", two.getsockname())
    with pytest.raises(OSError, match="Bad file descriptor"):
        wire.receive(9, 0)
    assert kind.Wire(other).receive(9, 0) == []
    successor.close()


@pytest.mark.skipif(compiled is None, reason="no C compiler, so Python has to do")
def test_what_it_cannot_take_is_refused(socks):
    with pytest.raises((TypeError, ValueError)):
        compiled.Wire("no socket")
    wire = compiled.Wire(socks[0])
    for wrong in ((), (1,), (-1, 0), ("a", 0)):
        with pytest.raises(TypeError):
            wire.receive(*wrong)
    with pytest.raises(TypeError):
        wire.send(b"x")


PACKET, LONGEST = 100, 1_000


def joined(
    kind, sent: list[tuple[int, bytes]], socks: list[socket.socket], steps: list[int]
) -> list[tuple[bytes, int]]:
    """What comes of segments that two sockets send, as an engine reads them: some calls at a time."""
    *senders, other = socks
    wire: Wire = kind.Wire(other, LONGEST)
    joiner, got = Joiner(), []
    waiting = list(sent)
    ports = [sender.getsockname()[1] for sender in senders]
    for step in [*steps, len(sent)]:
        for which, segment in waiting[:step]:
            senders[which].sendto(segment, other.getsockname())
        del waiting[:step]
        got += joiner.whole(wire.receive(1_000, 0))
    joiner.validate()
    return [(data, ports.index(source[1])) for data, source in got]


@both
@given(data=st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trains_come_whole_whatever_comes_between_and_however_they_are_torn(kind, socks, data):
    sizes = st.lists(st.integers(0, LONGEST) | st.just(1_200), min_size=1, max_size=5)
    bodies = [[bytes([1 + which * 100 + at]) * size for at, size in enumerate(data.draw(sizes))] for which in (0, 1)]
    segments: list[list[bytes]] = []
    for which in (0, 1):
        cutter = Cutter(PACKET, which)
        cuts = [[body] if cutter.whole(body) else cutter.cut(body) for body in bodies[which]]
        segments.append([b"".join(cut[at : at + 2]) for cut in cuts for at in range(0, len(cut), 2)])
    order = data.draw(st.permutations([0] * len(segments[0]) + [1] * len(segments[1])))
    trouble = data.draw(st.sampled_from(["none", "none", "lost", "swapped", "again"]))
    lines = [iter(line) for line in segments]
    sent = [(which, next(lines[which])) for which in order]
    at = data.draw(st.integers(0, len(sent) - 1))
    if trouble == "lost":
        del sent[at]
    elif trouble == "again":
        sent.insert(data.draw(st.integers(0, len(sent))), sent[at])
    elif trouble == "swapped":
        sent[0], sent[at] = sent[at], sent[0]
    got = joined(kind, sent, socks, data.draw(st.lists(st.integers(0, 10), max_size=4)))
    assert got == joined(wires, sent, socks, [])
    if trouble == "none":
        expected = [(body, which) for which in (0, 1) for body in bodies[which] if len(body) <= LONG_BYTES_LOOPBACK]
        assert sorted(got) == sorted(expected)


@both
def test_a_train_that_does_not_go_on_is_given_out_as_it_came(kind, socks):
    one, two, other = socks
    wire: Wire = kind.Wire(other, LONGEST)
    cut = Cutter(PACKET, 7).cut(bytes(300))
    segments = [b"".join(cut[at : at + 2]) for at in range(0, len(cut), 2)]
    for segment in segments[:2]:
        one.sendto(segment, other.getsockname())
    got = wire.receive(9, 0)
    for number in range(300):
        two.sendto(b"%d" % number, other.getsockname())
        got += wire.receive(9, 0)
    assert [data for data, source in got if source == one.getsockname()] == segments[:2]
    assert [data for data, source in got if source == two.getsockname()] == [b"%d" % number for number in range(300)]
