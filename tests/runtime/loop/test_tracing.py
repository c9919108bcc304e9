"""Trace files of real members: written while they talk, had again by ``replay``, and closed whatever happens.

What the records are and how a replay compares them is tested in ``tests/stack/test_trace.py``.
"""

import asyncio
import datetime
import logging
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.core.errors import BadInput, BadStack
from pluribus.runtime.bus import BEST_EFFORT
from pluribus.runtime.loop.tracing import replay
from pluribus.stack.trace import DATAGRAMS, DOWN, END, EVENT, STOP, TIMER, Record, read_records
from tests.harness import eventually, on_a_loop


@partial(pluribus.register, name="tracing.Reading")
class Reading(msgspec.Struct):
    at: datetime.datetime
    value: float
    tags: list[str] = []


async def traced_talk(url: str, path: Path) -> None:
    """A traced member sends every kind of body to another one, which answers."""
    options = {"stack": "best-effort"}
    async with (
        pluribus.connect(url, name="traced", trace=path, **options) as bus,
        pluribus.connect(url, name="other", **options) as other,
    ):
        ours, theirs = await bus.group("readings"), await other.group("readings")
        await ours.wait_for(2)
        await theirs.wait_for(2)
        moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        for body in (b"bytes", "text", {"data": [1, 2.5, None]}, Reading(moment, 21.5, ["a"])):
            await ours.send(body)
            assert (await theirs.receive(timeout=5)).body == body
        await theirs.send("an answer", to=bus.me)
        await eventually(lambda: ours._channel.inbox)


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0/traced", "inproc://traced", "multicast://traced-{pid}"])
def test_a_run_on_real_sockets_is_had_again(tmp_path, url):
    url = url.format(pid=os.getpid())
    if url.startswith("udp"):
        url = url.replace(":0/", f":{free_port()}/")
    path = tmp_path / "run.trace"
    asyncio.run(traced_talk(url, path))
    found = replay(path)
    assert found["same"] is True
    assert found["records"] > 50
    assert found["stack"] == BEST_EFFORT


def test_members_that_introduce_others_to_each_other_are_had_again(tmp_path):
    """Two that know only the first of three: an engine that does not broadcast leaves it to the members."""

    url, names = f"udp://127.0.0.1:{free_port()}/introduced", ("first", "second", "third")

    async def main() -> None:
        async with AsyncExitStack() as opened:
            buses = [
                await opened.enter_async_context(pluribus.connect(url, name=name, trace=tmp_path / f"{name}.trace"))
                for name in names
            ]
            groups = [await bus.group("all", order="total") for bus in buses]
            for group in groups:
                await group.wait_for(3)
                await group.send(b"here")
            for group in groups:
                assert [(await group.receive(timeout=5)).body for _ in names] == [b"here"] * 3

    asyncio.run(main())
    for name in names:
        assert replay(tmp_path / f"{name}.trace")["same"] is True


def test_members_that_hear_themselves_and_answer_at_once_are_had_again(tmp_path):
    """What the application does next is a stimulus of its own, however soon it comes after a message."""
    path = tmp_path / "answers.trace"

    @on_a_loop
    async def run():
        async with (
            pluribus.connect("inproc://answers", trace=path) as bus,
            pluribus.connect("inproc://answers") as other,
        ):
            ours, theirs = await bus.group("x"), await other.group("x", own=False)
            await ours.wait_for(2)
            await theirs.wait_for(2)
            await bus.group("another")
            for number in range(50):
                await ours.send(number)
                assert (await ours.receive(timeout=5)).body == number
                assert (await theirs.receive(timeout=5)).body == number
                await theirs.send(f"{number} heard")
                assert (await ours.receive(timeout=5)).body == f"{number} heard"
            await ours.close()

    run()
    assert replay(path)["same"] is True


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    asyncio.run(traced_talk("inproc://recorded", path))
    return path


def test_a_trace_that_ends_between_two_stimuli_is_good_up_to_there(recorded, tmp_path):
    """As a process leaves it that was killed, if it had time to write."""
    records = list(read_records(recorded.read_bytes()))
    kinds = [msgspec.msgpack.decode(record, type=Record).kind for record in records[1:]]
    # A stimulus is over when the layers below the trace have settled too, which is when the next one comes.
    stimuli = (DATAGRAMS, TIMER, DOWN, EVENT, STOP)
    places = range(1, len(kinds) - 1)
    ends = [at + 2 for at in places if kinds[at] == END and kinds[at - 1] != END and kinds[at + 1] in stimuli]
    path = tmp_path / "part.trace"
    for count in (ends[0], ends[len(ends) // 2]):
        path.write_bytes(b"".join(len(record).to_bytes(4, "big") + record for record in records[:count]))
        assert replay(path)["records"] == count - 1
        path.write_bytes(b"".join(len(record).to_bytes(4, "big") + record for record in records[: count - 1]))
        with pytest.raises(BadInput, match="cut short"):
            replay(path)


WAITS_FOR_EVER = """
import asyncio, sys, pluribus

async def main():
    async with pluribus.connect(f"inproc://killed", trace=sys.argv[1]) as bus:
        group = await bus.group("alone")
        for number in range(5_000):
            await group.send(b"x" * 100)
            await group.receive()
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_trace_of_a_killed_process_is_good_or_said_to_be_cut(tmp_path):
    path = tmp_path / "killed.trace"
    with subprocess.Popen([sys.executable, "-c", WAITS_FOR_EVER, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    assert path.stat().st_size > 100_000
    try:
        found = replay(path)
    except BadInput as error:
        found = {"same": "cut short" in str(error)}
    assert found["same"] is True


def test_a_connection_that_fails_leaves_no_open_file(tmp_path):
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()

    async def connect(url, **options):
        await pluribus.connect(url, trace=tmp_path / "never.trace", **options)

    with pytest.raises(BadStack):
        asyncio.run(connect("inproc://never", stack="transport | window | groups"))
    with pytest.raises(pluribus.errors.NoInterface):
        asyncio.run(connect("udp://192.0.2.1:7001/never?bind=192.0.2.1:0"))
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_full_disk_ends_the_trace_and_not_the_run(tmp_path, caplog):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("There is no /dev/full here, which is a disk that is always full.")

    @on_a_loop
    async def run():
        async with pluribus.connect("inproc://full", trace=full) as bus:
            group = await bus.group("x")
            for number in range(2_000):
                await group.send(number)
                assert (await group.receive(timeout=5)).body == number

    with caplog.at_level(logging.WARNING):
        run()
    assert [record.message for record in caplog.records if "not written any further" in record.message] == [
        "the trace /dev/full is not written any further (No space left on device): free some disk space"
    ]
