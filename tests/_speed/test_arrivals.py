"""Readers are woken at once while datagrams are received, and by the loop otherwise; they can give up at any time. In
Python and, where that was compiled, in C."""

import asyncio
import gc
import weakref
from contextvars import ContextVar

import pytest

import pluribus
from pluribus._speed import arrivals as python
from pluribus._speed.arrivals import Arrivals, Line
from pluribus.core.frame import Frame
from tests._speed.both_ends import compiled
from tests.harness import new_bus, on_a_loop

both = pytest.mark.parametrize(
    "kind", [pytest.param(python, id="python"), *([pytest.param(compiled, id="c")] if compiled else [])]
)

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def waits(arrivals: Arrivals, woken: list[str]) -> None:
    WHO.set(asyncio.current_task().get_name())
    await arrivals.wait()
    woken.append(WHO.get())


async def waiting(arrivals: Arrivals, woken: list[str], *names: str) -> list[asyncio.Task]:
    tasks = [asyncio.create_task(waits(arrivals, woken), name=name) for name in names]
    await asyncio.sleep(0)
    assert len(arrivals._waiters) == len(names)
    return tasks


def received(line: Line, arrivals: Arrivals, woken: list[str], counts: list[int]) -> None:
    """What a bus does in its engine's call-back, where no task runs."""
    line.receiving = True
    arrivals.wake()
    line.receiving = False
    counts.append(len(woken))
    line.run()
    counts.append(len(woken))


@both
@on_a_loop
async def test_a_reader_goes_on_within_the_call_back_and_in_its_own_context(kind):
    line, woken, counts = kind.Line(), [], []
    arrivals = kind.Arrivals(line)
    tasks = await waiting(arrivals, woken, "one", "other")
    asyncio.get_running_loop().call_soon(received, line, arrivals, woken, counts)
    await asyncio.gather(*tasks)
    assert counts == [0, 2], "after the protocols have settled, and before the call-back ends"
    assert woken == ["one", "other"]


@both
@on_a_loop
async def test_a_reader_that_is_woken_by_a_task_takes_its_turn(kind):
    woken: list[str] = []
    arrivals = kind.Arrivals(kind.Line())
    (task,) = await waiting(arrivals, woken, "one")
    arrivals.wake()
    assert woken == [], "a task runs now, and there is only one at a time"
    await task
    assert woken == ["one"]


@both
@on_a_loop
async def test_who_gives_up_is_forgotten_and_nobody_is_woken_twice(kind):
    line, woken, counts = kind.Line(), [], []
    arrivals = kind.Arrivals(line)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await arrivals.wait()
    assert arrivals._waiters == []
    stays, leaves = await waiting(arrivals, woken, "stays", "leaves")
    leaves.cancel()
    asyncio.get_running_loop().call_soon(received, line, arrivals, woken, counts)
    assert isinstance((await asyncio.gather(stays, leaves, return_exceptions=True))[1], asyncio.CancelledError)
    arrivals.wake()
    await asyncio.sleep(0)
    assert woken == ["stays"]


@both
@on_a_loop
async def test_who_waits_only_so_long_is_told_and_forgotten(kind):
    line, counts = kind.Line(), []
    arrivals = kind.Arrivals(line)
    with pytest.raises(TimeoutError):
        await arrivals.wait(0)
    assert arrivals._waiters == []
    asyncio.get_running_loop().call_soon(received, line, arrivals, [], counts)
    await arrivals.wait(60)
    assert counts == [0], "what comes in time is no time-out, and is heard within the call-back"


class PunctualLoop(asyncio.SelectorEventLoop):
    """Its clock goes on from timer to timer: no wait ends late, however busy the machine is."""

    clock = 0.0

    def time(self) -> float:
        return self.clock

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.clock = max(self.clock, self._scheduled[0]._when)
        super()._run_once()


@both
def test_each_gives_up_in_its_own_time(kind):
    async def main() -> None:
        arrivals, loop = kind.Arrivals(kind.Line()), asyncio.get_running_loop()
        ended: dict[float, float] = {}

        async def wait_for(seconds: float) -> None:
            begun = loop.time()
            with pytest.raises(TimeoutError):
                await arrivals.wait(seconds)
            ended[seconds] = loop.time() - begun

        await asyncio.gather(*map(wait_for, (0.03, 0.01, 0.06, 0.0)))
        assert list(ended) == [0.0, 0.01, 0.03, 0.06]
        assert all(seconds - 0.002 <= took <= seconds for seconds, took in ended.items())
        assert arrivals._waiters == []

    with asyncio.Runner(loop_factory=PunctualLoop) as runner:
        runner.run(main())


@both
def test_one_timer_serves_all(kind):
    async def main() -> None:
        arrivals, loop = kind.Arrivals(kind.Line()), asyncio.get_running_loop()
        plain, timers = loop.call_at, []

        def call_at(when: float, *call, **context):
            timers.append(plain(when, *call, **context))
            return timers[-1]

        loop.call_at = call_at  # type: ignore[method-assign]
        for _ in range(5):
            arrivals.wait(60)
            arrivals.wake()
        assert len(timers) == 1, "not one each"
        arrivals.wait(30)
        assert [timer.cancelled() for timer in timers] == [True, False], "one that waits less needs an earlier one"
        arrivals.wait()
        assert len(timers) == 2
        del loop.call_at

    asyncio.run(main())  # the standard loop: it can be spied on


@both
@on_a_loop
async def test_who_was_woken_before_it_slept_does_not_sleep(kind):
    arrivals = kind.Arrivals(kind.Line())
    waiter = arrivals.wait()
    arrivals.wake()
    await asyncio.wait_for(waits_for(waiter), 5)
    with pytest.raises(TypeError):
        arrivals.wait(1, 2)


async def waits_for(waiter) -> None:
    await waiter


@both
@on_a_loop
async def test_whoever_goes_on_may_wake_the_next_and_a_cancelled_task_hears_nothing(kind):
    line = kind.Line()
    first, second = kind.Arrivals(line), kind.Arrivals(line)
    order: list[str] = []

    async def one() -> None:
        await first.wait()
        order.append("one")
        second.wake()

    async def other() -> None:
        await second.wait()
        order.append("other")

    tasks = [asyncio.create_task(one()), asyncio.create_task(other())]
    await asyncio.sleep(0)

    def comes() -> None:
        line.receiving = True
        first.wake()
        line.run()
        line.receiving = False
        order.append("over")
        tasks[0].cancel()

    asyncio.get_running_loop().call_soon(comes)
    await asyncio.gather(*tasks)
    assert order == ["one", "other", "over"]


@both
@on_a_loop
async def test_nothing_is_left_of_a_task_that_waited(kind):
    class Thing:
        """Something that a weak reference can be had of."""

    arrivals = kind.Arrivals(kind.Line())
    thing = Thing()
    gone = weakref.ref(thing)

    async def waits_with(thing: Thing) -> Thing:
        await arrivals.wait(60)
        return thing

    task = asyncio.create_task(waits_with(thing))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    del task, thing
    gc.collect()
    assert gone() is None
    assert arrivals._waiters == []


@on_a_loop
async def test_what_came_is_read_although_a_protocol_failed():
    async with pluribus.connect(new_bus()) as one:
        group = await one.group("x")
        reading, failures = asyncio.create_task(group.receive()), list[str]()
        await asyncio.sleep(0)

        def fails(receive, datagrams):
            group._channel.inbox.append(Frame(sender=one.me, group=group._channel.number, count=1, bodies=[b"here"]))
            group._arrivals.wake()
            raise RuntimeError("a mistake")

        def comes() -> None:  # as the engine calls it: no task runs
            try:
                one._line.feed(fails, one._transport.receive, [])
            except RuntimeError as error:
                failures.append(str(error))

        asyncio.get_running_loop().call_soon(comes)
        assert (await asyncio.wait_for(reading, 5)).body == b"here"
        assert failures == ["a mistake"]
