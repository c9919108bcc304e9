"""One set of promises, kept by every engine on every loop (``core.ports.Engine``)."""

import asyncio
import re
from collections import Counter

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.errors import TooLarge
from pluribus.core.limits import LONG_BYTES_LOOPBACK, PATH_BYTES_LOOPBACK
from tests.engines.conftest import Kind
from tests.engines.ends import End, Run, checked_sentence, ends, opened, until


def numbered(count: int, size: int = 64) -> list[bytes]:
    return [number.to_bytes(4, "big") + bytes(size - 4) for number in range(count)]


def test_one_reaches_one_and_is_answered(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 3) as (asker, answerer, bystander):
            asker.engine.send([b"question"], answerer.address)
            await answerer.arrived(1)
            assert answerer.got == [(b"question", asker.address)]
            _, source = answerer.got[0]
            answerer.engine.send([b"answer"], source)
            await asker.arrived(1)
            assert asker.got == [(b"answer", answerer.address)]
            assert not bystander.got

    run(work())


def test_all_reaches_every_other_once_and_never_oneself(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 4) as members:
            for member in members:
                member.engine.send_all([f"{member.address}/{number}".encode() for number in range(5)])
            for member in members:
                await member.arrived(15)
            for member in members:  # an answer to every datagram travels behind whatever else might come
                for _, source in member.got[:15]:
                    member.engine.send([b"answer"], source)
            for member in members:
                await member.arrived(30)
                bodies = [data for data, _ in member.got if data != b"answer"]
                others = [other.address for other in members if other is not member]
                assert Counter(bodies) == Counter(f"{other}/{n}".encode() for other in others for n in range(5))

    run(work())


def test_members_with_one_url_find_each_other(kind: Kind, run: Run[None]) -> None:
    """Nobody was told of peers: later ones reach the first by the URL, and the first can answer."""

    async def work() -> None:
        first, second, third = [await opened(kind.url) for _ in range(3)]
        second.engine.send_all([b"second"])
        third.engine.send_all([b"third"])
        await first.arrived(2)
        assert set(first.got) == {(b"second", second.address), (b"third", third.address)}
        for data, source in first.got:
            first.engine.send([b"welcome " + data], source)
        await until(lambda: b"welcome second" in second.bodies and b"welcome third" in third.bodies)
        for end in (first, second, third):
            await end.engine.close()

    run(work())


def test_buses_do_not_hear_each_other(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        other_url = kind.url.replace(kind.bus, f"other-{kind.bus}")
        if kind.scheme in ("udp", "tcp"):  # one port serves one bus
            other_url = re.sub(r":\d+/", f":{free_port()}/", other_url)
        async with ends(kind.url, 2) as (here, near), ends(other_url, 2) as (there, _):
            there.engine.send_all([b"for others"])
            here.engine.send_all([b"for us"])
            await near.arrived(1)
            assert near.bodies == [b"for us"]
            assert not here.got
            assert not there.got

    run(work())


def test_every_size_arrives_intact(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            path, long = sender.engine.path_bytes, sender.engine.long_bytes
            assert 1 < path <= PATH_BYTES_LOOPBACK and path <= long <= LONG_BYTES_LOOPBACK
            sizes = [size for size in (1, 2, 3, 4, 5, 255, 256, 1_471, 1_472, 8_192, 65_535) if size < long - 1]
            sizes += [path - 1, path, long - 1, long]
            sent = [bytes(number % 251 for number in range(size)) for size in sizes]
            for datagram in sent:
                sender.engine.send([datagram], receiver.address)
                sender.engine.send_all([datagram])
            await receiver.arrived(2 * len(sent))
            assert Counter(receiver.bodies) == Counter(sent + sent)

    run(work())


def test_one_list_of_many_arrives_complete(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            sent = numbered(5_000 if kind.reliable else 300)
            sender.engine.send(sent, receiver.address)
            await receiver.arrived(len(sent))
            assert Counter(receiver.bodies) == Counter(sent)
            if kind.reliable:
                assert receiver.bodies == sent
            assert sender.engine.stats.dropped == 0
            assert receiver.lists < len(sent) / 2 or "plain" in kind.name, "datagrams come in lists"

    run(work())


def test_a_list_of_unequal_sizes_arrives_complete(kind: Kind, run: Run[None]) -> None:
    """Segmenting kernels take runs of equal length; no boundary may move."""

    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            lengths = [700, 700, 700, 300, 700, 0, 1, 1, 1_200, 1_200, 5, 700, 700]
            sent = [bytes([number]) + bytes(length) for number, length in enumerate(lengths)]
            sender.engine.send(sent, receiver.address)
            sender.engine.send_all(sent)
            await receiver.arrived(2 * len(sent))
            assert Counter(receiver.bodies) == Counter(sent + sent)

    run(work())


def test_a_steady_stream_loses_nothing(kind: Kind, run: Run[None]) -> None:
    """A sender that keeps a window, as the layers above do, loses nothing on one machine; room is announced."""

    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            size = min(8_192, sender.engine.path_bytes)
            sent = numbered(2_000, size)
            window = min(sender.engine.buffer_bytes // 4, 1 << 20) // size
            for start in range(0, len(sent), 20):
                await receiver.arrived(start + 20 - window)
                await sender.may_send()
                sender.engine.send(sent[start : start + 20], receiver.address)
            await receiver.arrived(len(sent))
            assert sorted(receiver.bodies) == sent
            if kind.reliable:
                assert receiver.bodies == sent
            assert sender.engine.stats.dropped == receiver.engine.stats.dropped == 0

    run(work())


def test_each_of_several_senders_is_in_order(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 5) as (receiver, *senders):
            for start in range(0, 200, 10):
                for sender in senders:
                    sender.engine.send([n.to_bytes(4, "big") for n in range(start, start + 10)], receiver.address)
                await receiver.arrived(len(senders) * (start + 10) - 400)
            await receiver.arrived(800)
            for sender in senders:
                of_sender = [int.from_bytes(data, "big") for data, source in receiver.got if source == sender.address]
                assert (of_sender if kind.reliable else sorted(of_sender)) == list(range(200))

    run(work())


def test_statistics_add_up(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            sent = numbered(100, 100) + numbered(7, 1_000)
            for start in range(0, len(sent), 10):
                sender.engine.send(sent[start : start + 10], receiver.address)
            await receiver.arrived(len(sent))
            await until(lambda: sender.engine.stats.datagrams_out == len(sent))
            out, into = sender.engine.stats, receiver.engine.stats
            assert out.bytes_out == into.bytes_in == sum(map(len, sent))
            assert into.datagrams_in == len(sent)
            assert 1 <= out.calls_out <= len(sent)
            assert out.dropped == into.dropped == out.errors == into.errors == 0

    run(work())


def test_an_oversized_datagram_is_refused_at_send(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            sizes = (sender.engine.long_bytes, sender.engine.long_bytes + 1)
            oversized = [bytes(size) for size in sizes]
            with pytest.raises(TooLarge) as to_one:
                sender.engine.send(oversized, receiver.address)
            with pytest.raises(TooLarge) as to_all:
                sender.engine.send_all(oversized)
            for refusal in (to_one, to_all):
                sentence = checked_sentence(refusal.value)
                assert f"{sizes[1]}" in sentence
                assert f"{sizes[0]}" in sentence
            sender.engine.send([b"last"], receiver.address)
            await receiver.arrived(1)
            assert receiver.bodies == [b"last"], "a refused list is refused as a whole"

    run(work())


def test_an_empty_list_is_nothing(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 2) as (sender, receiver):
            sender.engine.send([], receiver.address)
            sender.engine.send_all([])
            sender.engine.send([b"something"], receiver.address)
            await receiver.arrived(1)
            assert receiver.bodies == [b"something"]

    run(work())


def test_nobody_there_is_no_error_of_the_caller(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        async with ends(kind.url, 3) as (sender, receiver, leaver):
            gone = leaver.address
            await leaver.engine.close()
            for _ in range(20):
                sender.engine.send([b"to nobody"], gone)
                sender.engine.send([b"to somebody"], receiver.address)
            for nonsense in (("127.0.0.1", 1), ("no such token", 0)):
                if kind.scheme not in ("udp", "multicast"):
                    sender.engine.send([b"to nobody"], nonsense)
            await receiver.arrived(20)
            assert receiver.bodies == [b"to somebody"] * 20
            assert not leaver.got

    run(work())


def test_a_member_that_returns_is_reached_again(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        first, second = await opened(kind.url), await opened(kind.url)
        address = first.address
        second.engine.send_all([b"before"])
        await first.arrived(1)
        await first.engine.close()
        second.engine.send_all([b"meanwhile"])
        again = await opened(kind.url)
        if kind.scheme in ("udp", "tcp"):
            assert again.address == address, "closing releases the port"

        def repeat() -> bool:
            second.engine.send_all([b"after"])
            return b"after" in again.bodies

        await until(repeat, lambda: f"{second.engine.stats}")
        assert again.got[-1][1] == second.address
        await again.engine.close()
        await second.engine.close()

    run(work())


def test_closing_twice_or_at_once_is_closing(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        one, other = await opened(kind.url), await opened(kind.url)
        one.engine.send([b"x"], other.address)
        await other.arrived(1)
        await asyncio.gather(one.engine.close(), one.engine.close())
        await one.engine.close()
        other.engine.send_all([b"to nobody"])
        one.engine.send([b"too late"], other.address)
        one.engine.send_all([b"too late"])
        await other.engine.close()
        assert other.bodies == [b"x"]
        assert not one.got

    run(work())


def test_closing_hands_over_what_was_sent(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        receiver, sender = await opened(kind.url), await opened(kind.url)
        sent = numbered(100, 1_000)
        sender.engine.send(sent, receiver.address)
        await sender.engine.close()
        await receiver.arrived(len(sent))
        assert sorted(receiver.bodies) == sent
        assert sender.engine.stats.datagrams_out == len(sent)
        await receiver.engine.close()

    run(work())


def test_nothing_leaves_the_machine_unasked(kind: Kind, run: Run[None]) -> None:
    async def work() -> None:
        end: End = await opened(kind.url)
        if kind.scheme in ("udp", "tcp", "multicast"):
            assert end.address[0] == "127.0.0.1"
            assert end.address[1] > 0
        await end.engine.close()

    run(work())
