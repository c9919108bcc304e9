"""Members that do not read: who is told, what is done about them, and calls that would wait for themselves."""

import asyncio
import threading
from contextlib import suppress

import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed, Excluded, Overflow, WouldDeadlock
from pluribus.core.frame import Frame
from pluribus.core.limits import WINDOW_BYTES_MAX
from pluribus.events import Event, Resumed, Stalled
from pluribus.group.stalled import PleaseLeave
from pluribus.runtime.bus import STACKS
from tests.harness import eventually, new_bus, on_a_loop, two_in_a_group

BODY = bytes(10_000)
STALL_S = 0.2
QUICK = {
    "best-effort": STACKS["best-effort"].replace("window", f"window(stall_s={STALL_S})"),
    "views": STACKS["views"].replace("reliable", f"reliable(stall_s={STALL_S})"),
}
both_stacks = pytest.mark.parametrize("stack", QUICK.values(), ids=QUICK)


async def flood(group: pluribus.Group, messages: int = 2 * WINDOW_BYTES_MAX // len(BODY)) -> None:
    for _ in range(messages):
        await group.send(BODY)


def watched(bus: pluribus.Bus) -> list[Event]:
    seen: list[Event] = []
    bus.on_event(lambda event: seen.append(event) if isinstance(event, Stalled | Resumed) else None)
    return seen


class Pair:
    """Two members in a group of which the other does not read."""

    def __init__(self, stack: str, **options: object) -> None:
        self.stack = stack
        self.options = options

    async def __aenter__(self) -> "Pair":
        url = new_bus()
        self.a = await pluribus.connect(url, name="a", stack=self.stack)
        self.b = await pluribus.connect(url, name="b", stack=self.stack)
        self.seen, self.seen_by_b = watched(self.a), watched(self.b)
        join = [bus.group("x", own=False, **self.options) for bus in (self.a, self.b)]
        self.one, self.other = await asyncio.gather(*join)
        await self.one.wait_for(2)
        await self.other.wait_for(2)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.a.close()
        await self.b.close()


@both_stacks
def test_a_receiver_that_does_not_read_is_reported_once_and_once_when_it_does(stack):
    @on_a_loop
    async def run() -> None:
        async with Pair(stack) as pair:
            flooding = asyncio.create_task(flood(pair.one))
            await eventually(lambda: pair.seen)
            assert pair.seen == [Stalled(pair.b.me, "b", "x")]
            layer = "reliable" if "reliable" in stack else "window"
            assert pair.a.stats()[layer]["stalled"] == 1
            await eventually(lambda: pair.a.stats()[layer]["stalls"] > 0)
            assert not flooding.done(), "it waits: that is the default"
            for _ in range(1_000):
                await pair.other.receive(5)
            await flooding
            await eventually(lambda: len(pair.seen) == 2)
            assert pair.seen[1] == Resumed(pair.b.me, "b", "x")
            assert pair.a.stats()[layer]["stalled"] == 0
            assert pair.seen_by_b == []

    run()


@both_stacks
def test_who_is_excluded_leaves_the_group_and_is_raised_why(stack):
    @on_a_loop
    async def run() -> None:
        async with Pair(stack, stalled="exclude") as pair:
            told: list[Event] = []
            pair.b.on_event(told.append)
            await flood(pair.one)
            await eventually(lambda: len(pair.one.view) == 1)
            assert pair.other.closed
            with pytest.raises(Excluded, match="'a' cannot send, because it does not read"):
                await drain(pair.other)
            with pytest.raises(Excluded, match="open it again"):
                await pair.other.send(b"x")
            with pytest.raises(Excluded):
                await pair.other.receive(5)
            assert pluribus.events.Excluded(("x",)) in told
            await eventually(lambda: len(pair.seen) == 2)
            assert [type(event) for event in pair.seen] == [Stalled, Resumed]
            again = await pair.b.group("x", own=False)
            assert again is not pair.other
            await again.wait_for(2)
            await eventually(lambda: len(pair.one.view) == 2)
            await pair.one.send(b"welcome back")
            assert (await again.receive(5)).body == b"welcome back"

    run()


@on_a_loop
async def test_best_effort_readers_are_not_waited_for_and_lose_what_they_have_no_room_for():
    async with Pair(QUICK["best-effort"], stalled="drop") as pair:
        await flood(pair.one)
        assert [type(event) for event in pair.seen] == [Stalled]
        # Sent is not arrived: reading before that would make room for what is under way.
        await eventually(lambda: pair.b.stats()["window"]["over"] > 0)
        got = 0
        with suppress(TimeoutError):
            while True:
                got += len(await pair.other.receive_many(timeout=0.01))
        assert 0 < got < 1_000
        await eventually(lambda: len(pair.seen) == 2)
        assert pair.seen[1] == Resumed(pair.b.me, "b", "x")
        await pair.one.send(b"counted again")
        assert (await pair.other.receive(5)).body == b"counted again"
        for bus in (pair.a, pair.b):
            bus.validate()


@on_a_loop
async def test_wishes_that_cannot_be_are_refused():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        with pytest.raises(BadInput, match="stalled='never' is unknown: use wait, exclude, drop"):
            await bus.group("x", stalled="never")
        with pytest.raises(BadInput, match="stalled='drop' breaks what this stack promises"):
            await bus.group("x", stalled="drop")


@on_a_loop
async def test_a_please_of_somebody_who_is_not_in_the_group_is_not_heard():
    async with two_in_a_group() as (one, other):
        channel = one._channel
        excluded: list[str] = []
        channel.on_excluded = excluded.append
        for sender in (12345, int(other.me)):
            frame = Frame(sender=sender, to=one.me, group=channel.number, headers=[PleaseLeave("go")])
            one._dispatch.up(frame)
        assert excluded == ["go"]


# --- waiting for oneself --------------------------------------------------------------------------------------------


@both_stacks
def test_a_task_that_alone_reads_and_waits_in_send_is_told(stack):
    @on_a_loop
    async def run() -> None:
        async with pluribus.connect(new_bus(), stack=stack) as bus:
            group = await bus.group("x")
            await group.send(b"first")
            await group.receive(5)
            with pytest.raises(WouldDeadlock, match="nobody else reads it while this call waits"):
                await flood(group)
            while group._channel.inbox:
                await group.receive_many()
            await group.send(b"there is room again")

    run()


@on_a_loop
async def test_not_if_somebody_else_reads_too():
    async with pluribus.connect(new_bus(), stack=QUICK["best-effort"]) as bus:
        group = await bus.group("x")
        go_on = asyncio.Event()

        async def read(messages: int) -> None:
            await group.receive(5)
            await go_on.wait()  # it is busy with it
            for _ in range(messages):
                await group.receive(5)

        more = 2 * WINDOW_BYTES_MAX // len(BODY)
        other = asyncio.create_task(read(more))
        await group.send(b"for the other")
        await eventually(lambda: group._readers._any)
        await group.send(b"for this task")
        await group.receive(5)
        flooding = asyncio.create_task(flood(group, more))
        await eventually(lambda: bus.stats()["window"]["stalled"])
        assert not flooding.done()
        go_on.set()
        await flooding
        await other


@on_a_loop
async def test_if_nobody_ever_read_it_is_told_after_a_while():
    async with pluribus.connect(new_bus(), stack=QUICK["best-effort"]) as bus:
        seen = watched(bus)
        group = await bus.group("x")
        with pytest.raises(WouldDeadlock, match="own=False"):
            await flood(group)
        assert seen == [Stalled(bus.me, bus.name, "x")]


@on_a_loop
async def test_a_full_inbox_of_somebody_else_is_no_deadlock():
    async with two_in_a_group() as (one, other):
        await one.send(b"mine")
        await one.receive(5)
        await other.receive(5)
        reading = asyncio.create_task(drain(one))
        with pytest.raises(Overflow) as raised:
            await one.send_many([BODY] * 1_000, timeout=0.2)
        assert not isinstance(raised.value, WouldDeadlock)
        reading.cancel()


async def drain(group: pluribus.Group) -> None:
    async for _ in group:
        pass


def test_a_thread_that_alone_reads_and_waits_in_send_is_told():
    with pluribus.sync.connect(new_bus()) as bus:
        group = bus.group("x")
        group.send(b"first")
        group.receive(5)
        with pytest.raises(WouldDeadlock):
            group.send_many([BODY] * 1_000)


def test_a_thread_is_not_told_while_another_reads():
    with pluribus.sync.connect(new_bus()) as bus:
        group = bus.group("x")
        go_on, got = threading.Event(), []

        def read() -> None:
            with suppress(Closed):
                got.append(group.receive(5))
                go_on.wait()
                while len(got) < 1_000:
                    got.append(group.receive(5))

        reader = threading.Thread(target=read)
        reader.start()
        group.send(b"first")
        sending = threading.Thread(target=lambda: group.send_many([BODY] * 999))
        sending.start()
        go_on.set()
        sending.join(20)
        reader.join(20)
        assert len(got) == 1_000
