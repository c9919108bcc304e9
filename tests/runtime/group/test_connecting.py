"""Connecting: every way onto a bus, and every way in which it is refused: one sentence, no traceback of ours."""

import asyncio
import socket

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.core.errors import (
    AddressTaken,
    BadInput,
    BadStack,
    BadUrl,
    Closed,
    GroupMismatch,
    NoInterface,
    PluribusError,
    TooLarge,
)
from pluribus.core.frame import Frame
from pluribus.layers.presence import Hello
from tests.harness import eventually, new_bus, on_a_loop, two, two_in_a_group


def url_of(engine: str, options: str = "") -> str:
    """A bus of this engine that no other test is on."""
    if engine in ("udp", "tcp"):
        return f"{engine}://127.0.0.1:{free_port()}/{engine}-test{options}"
    return f"{engine}://test-{free_port()}{options}"


@pytest.mark.parametrize(
    "url",
    [
        url_of("inproc"),
        url_of("udp"),
        url_of("multicast"),
        url_of("udp", "?driver=plain"),
        url_of("multicast", "?driver=plain"),
        url_of("udp", "?path=1472"),
        url_of("multicast", "?path=1472"),
        url_of("udp", "?path=576&driver=plain"),
    ],
    ids=lambda url: url.partition(":")[0] + url[url.find("?") :] if "?" in url else url.partition(":")[0],
)
@on_a_loop
async def test_two_members_talk_over_every_engine_and_driver(url: str):
    """A thousand messages each way, longer than one datagram of a short path together, in order and complete."""
    async with two_in_a_group(url, own=False) as (one, other):
        size = 40 if "576" in url else 200

        async def send(group: pluribus.Group) -> None:
            for number in range(1_000):
                await group.send((b"%d" % number).ljust(size))

        async def read(group: pluribus.Group) -> list[int]:
            return [int((await group.receive(10)).body) for _ in range(1_000)]

        _, _, at_other, at_one = await asyncio.gather(send(one), send(other), read(other), read(one))
        assert at_one == at_other == list(range(1_000))


@on_a_loop
async def test_a_short_path_is_segmented_by_the_kernel():
    async with two_in_a_group(url_of("udp", "?path=1472"), own=False) as (one, other):
        engine = one._dispatch.ports.engine
        if not getattr(engine._driver, "_segment", False):  # type: ignore[attr-defined]
            pytest.skip("this kernel does not segment UDP")
        for _ in range(500):
            await one.send(bytes(500))
        for _ in range(500):
            assert len((await other.receive(10)).body) == 500
        stats = engine.stats
        assert stats.datagrams_out > 250, "one or two messages a datagram"
        assert stats.calls_out < stats.datagrams_out / 5
        with pytest.raises(TooLarge):
            await one.send(bytes(1_400))


# --- refusals -------------------------------------------------------------------------------------------------------


async def refusal(kind: type[PluribusError], url: str, **options: object) -> str:
    with pytest.raises(kind) as caught:
        await pluribus.connect(url, **options)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "the cause is in the sentence"
    return sentence


@on_a_loop
async def test_a_wrong_url_is_one_sentence():
    assert "is not a bus URL" in await refusal(BadUrl, "nonsense")
    assert "options that udp does not know: colour" in await refusal(BadUrl, "udp://127.0.0.1:0/x?colour=red")
    assert "options that inproc does not know: path" in await refusal(BadUrl, "inproc://x?path=500")
    assert "path=12 is not a datagram size" in await refusal(BadUrl, "udp://127.0.0.1:0/x?path=12")
    assert "path=² is not a datagram size" in await refusal(BadUrl, "udp://127.0.0.1:0/x?path=²")
    assert "driver=slow is unknown" in await refusal(BadUrl, "udp://127.0.0.1:0/x?driver=slow")
    assert "no IPv4 multicast address" in await refusal(BadUrl, "multicast://x?group=10.0.0.1")
    assert "port=99999 is out of range" in await refusal(BadUrl, "multicast://x?port=99999")


@on_a_loop
async def test_an_address_of_another_machine_is_one_sentence():
    assert "not an address of this machine" in await refusal(NoInterface, "udp://127.0.0.1:0/x?bind=192.0.2.1:0")
    assert "none of 192.0.2.1:7001 is of this machine" in await refusal(NoInterface, "udp://192.0.2.1:7001/x")
    assert "192.0.2.1" in await refusal(NoInterface, "multicast://x?interface=192.0.2.1")


@on_a_loop
async def test_a_taken_port_is_one_sentence():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        url = f"udp://127.0.0.1:{port}/x?bind=127.0.0.1:{port}"
        assert f"127.0.0.1:{port} is taken by another program" in await refusal(AddressTaken, url)


@on_a_loop
async def test_a_stack_that_does_not_fit_is_one_sentence():
    url = new_bus()
    assert "there is no layer 'nonsense'" in await refusal(BadStack, url, stack="transport | nonsense")
    assert "window needs members" in await refusal(BadStack, url, stack="transport | window | groups")
    assert "exactly one layer 'groups'" in await refusal(BadStack, url, stack="transport | presence")
    assert "starts with transport" in await refusal(BadStack, url, stack="presence | transport | groups")


@on_a_loop
async def test_a_wrong_name_is_one_sentence():
    assert "the member '' is not a name" in await refusal(BadInput, new_bus(), name="")
    async with pluribus.connect(new_bus(), stack="best-effort") as bus:
        with pytest.raises(BadInput, match="the group '' is not a name"):
            await bus.group("")
        with pytest.raises(BadInput, match="order='sideways' is not offered by the stack of this bus: use none"):
            await bus.group("x", order="sideways")


@on_a_loop
async def test_a_refused_connection_leaves_no_socket_behind():
    port = free_port()
    url = f"udp://127.0.0.1:{port}/x"
    long_name = "\U0001f600" * 128
    assert "is too long for a path of 576 bytes" in await refusal(
        TooLarge, f"{url}?path=576", name=long_name, stack="best-effort"
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", port))


# --- life of a bus --------------------------------------------------------------------------------------------------


@on_a_loop
async def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLURIBUS_URL", new_bus())
    async with pluribus.connect() as a, pluribus.connect() as b:
        await eventually(lambda: len(a.members) == 2)
        assert a.url == b.url and a.url.scheme == "inproc"


@on_a_loop
async def test_a_group_asked_for_again_is_the_same_and_must_be_the_same():
    async with pluribus.connect(new_bus()) as bus:
        group = await bus.group("x", own=False)
        assert await bus.group("x", own=False) is group
        with pytest.raises(GroupMismatch, match="group 'x' is open with own=False: close it first"):
            await bus.group("x")
        await group.close()
        assert group.closed
        again = await bus.group("x")
        assert again is not group and not again.closed


@on_a_loop
async def test_a_closed_bus_says_so():
    async with pluribus.connect(new_bus()) as bus:
        group = await bus.group("x")
    assert bus.closed and group.closed
    for attempt in (bus.group("x"), bus.group("y")):
        with pytest.raises(Closed, match="the bus is closed: connect again"):
            await attempt
    with pytest.raises(Closed):
        await group.send(b"x")
    with pytest.raises(Closed):
        await group.receive()
    assert [message async for message in group] == []
    await bus.close()
    await group.close()


@on_a_loop
async def test_a_bus_may_be_awaited_and_closed_by_hand():
    bus = await pluribus.connect(new_bus(), name="alone")
    assert bus.members == {bus.me: "alone"}
    assert "transport" in bus.describe() and bus.stats()["transport"]["malformed"] == 0
    await bus.close()


@on_a_loop
async def test_leaving_tells_the_others_at_once():
    async with two() as (a, b):
        await eventually(lambda: len(a.members) == 2)
        await b.close()
        await eventually(lambda: len(a.members) == 1, within_s=2.0)


@on_a_loop
async def test_members_with_other_stacks_do_not_count_each_other():
    url = new_bus()
    other = "transport | presence | groups"
    async with (
        pluribus.connect(url, name="a", stack="best-effort") as a,
        pluribus.connect(url, name="b", stack=other) as b,
    ):
        await eventually(lambda: a.stats()["presence"]["refusals"] + b.stats()["presence"]["refusals"])
        assert a.members == {a.me: "a"} and b.members == {b.me: "b"}


def test_run_uses_the_fastest_loop_there_is():
    async def loop_of() -> str:
        return type(asyncio.get_running_loop()).__module__

    uvloop = pytest.importorskip("uvloop")
    assert pluribus.run(loop_of()).startswith(uvloop.__name__)


@pytest.mark.parametrize("engine", ["udp", "multicast"])
@on_a_loop
async def test_a_peer_that_gives_a_name_for_its_address_makes_nobody_ask_a_name_server(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    """A name in a send would hold the whole loop up while a name server is asked; a wrong one would raise into it."""
    async with pluribus.connect(url_of(engine), name="a", stack="best-effort") as a:
        fingerprint, address = a._stack.node.fingerprint, a._stack.ports.engine.address
        codec = a._stack.node.codec
        for number, host in enumerate(("evil.example", "a" * 200, "\x00", "", "256.256.256.256")):
            hello = Hello(1, "evil", (host, 7), fingerprint, [], True)
            data = codec.encode(Frame(sender=100 + number, headers=[hello]))
            a._receive([(data, ("127.0.0.1", 1))])
        assert len(a.members) == 6
        assert a.stats()["transport"]["dropped"] >= 5, "the answers to those names"
        assert a._stack.ports.engine.address == address
    async with two_in_a_group(f"udp://localhost:{free_port()}/names", own=False) as (one, other):
        await one.send(b"names of a URL are numbers since it was opened")
        await other.receive(5)


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is cancelled"])
@on_a_loop
async def test_a_bus_whose_keeper_does_not_close_is_closed_all_the_same(fails: bool):
    url = new_bus()
    bus = await pluribus.connect(url)
    group = await bus.group("x")

    async def close() -> None:
        if fails:
            raise OSError("the disk is gone")
        await asyncio.Event().wait()

    bus.keeping.close = close  # type: ignore[method-assign]
    receiving = asyncio.create_task(group.receive())
    closing = asyncio.create_task(bus.close(timeout=0))
    for _ in range(3):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises((OSError, asyncio.CancelledError)):
        await closing
    assert bus.closed
    with pytest.raises(Closed):
        await asyncio.wait_for(receiving, 5)
    async with pluribus.connect(url) as other:
        await other.group("x")
        assert len(other.members) == 1, "nobody is there any more"
