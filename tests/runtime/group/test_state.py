"""State transfer and replicas on real sockets, and in traces of real runs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.runtime.loop.tracing import replay
from tests.harness import eventually, new_bus, on_a_loop, two
from tests.runtime.group.test_replica import Ledger

STATE_BYTES = 16 << 20


class Counting:
    """A large constant, and a number that messages change."""

    def __init__(self, size: int = 0) -> None:
        self.bulk = bytes(range(256)) * (size // 256)
        self.number = 0

    def snapshot(self) -> bytes:
        return self.number.to_bytes(8, "big") + self.bulk

    def restore(self, state: bytes) -> None:
        self.number, self.bulk = int.from_bytes(state[:8], "big"), state[8:]


async def read(group: pluribus.Group, counting: Counting) -> None:
    async for _ in group:
        counting.number += 1


@on_a_loop
async def test_a_large_state_passes_over_sockets_while_the_group_goes_on():
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    url = f"udp://{hosts}/state"
    async with pluribus.connect(url, stack="views") as ann, pluribus.connect(url, stack="views") as bob:
        first, second = Counting(STATE_BYTES), Counting()
        one = await ann.group("counts", order="total", state=first)
        reading = [asyncio.create_task(read(one, first))]
        joining = asyncio.create_task(bob.group("counts", order="total", state=second))
        sent = 0
        while not joining.done():
            await one.send(b"x")
            sent += 1
            await asyncio.sleep(0.001)
        other = await joining
        reading.append(asyncio.create_task(read(other, second)))
        await eventually(lambda: first.number == second.number == sent)
        assert second.bulk == first.bulk and len(second.bulk) == STATE_BYTES
        for task in reading:
            task.cancel()


class Failing(Counting):
    """Snapshots in parts, of which the first ``failures`` fail between two of them."""

    def __init__(self, failures: int) -> None:
        super().__init__(400_000)
        self.failures = failures
        self.snapshots = 0

    def snapshot(self) -> Iterator[bytes]:
        self.snapshots += 1
        yield bytes(8)
        yield self.bulk[:200_000]
        if self.snapshots <= self.failures:
            raise OSError("no more for now")
        yield self.bulk[200_000:]


@on_a_loop
async def test_a_snapshot_that_fails_half_way_is_not_taken_for_a_shorter_one():
    async with two(stack="views") as (a, b):
        first, second = Failing(2), Counting()
        reading = asyncio.create_task(read(await a.group("counts", state=first), first))
        await b.group("counts", state=second)
        assert second.bulk == first.bulk and first.snapshots == 3
        reading.cancel()


@on_a_loop
async def test_a_snapshot_that_always_fails_is_asked_for_now_and_then():
    async with two(stack="views") as (a, b):
        first, second = Failing(1_000_000), Counting()
        reading = asyncio.create_task(read(await a.group("counts", state=first), first))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.group("counts", state=second), 1)
        assert 2 <= first.snapshots < 100
        reading.cancel()


@on_a_loop
async def test_a_trace_with_a_replica_is_replayed_alike(tmp_path: Path):
    url = new_bus()
    traces = [tmp_path / "ann.trace", tmp_path / "bob.trace"]
    async with (
        pluribus.connect(url, stack="views", trace=traces[0]) as ann,
        pluribus.connect(url, stack="views", trace=traces[1]) as bob,
    ):
        one = await ann.replica("ledger", Ledger())
        await one.call(b"ann 5")
        other = await bob.replica("ledger", Ledger())
        await asyncio.gather(*[other.call(b"ann 1") for _ in range(50)])
    for trace in traces:
        assert replay(trace)["same"] is True
