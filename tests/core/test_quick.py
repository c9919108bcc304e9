"""The two ends of a stream, in Python and in C: both answer alike."""

import asyncio
import gc
import inspect
import shutil
import sys
from itertools import count, repeat
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core import ends, quick

try:
    from pluribus.core import _quick as compiled
except ImportError:
    compiled = None

BOTH = (
    [pytest.param(ends, id="python"), pytest.param(compiled, id="c")] if compiled else [pytest.param(ends, id="python")]
)
both = pytest.mark.parametrize("kind", BOTH)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, so Python has to do")
def test_where_there_is_a_compiler_it_was_used():
    assert quick.COMPILED
    assert quick.flatten is compiled.flatten


# --- flatten ----------------------------------------------------------------------------------------------------------


async def brought(runs, waits=()):
    for place, run in enumerate(runs):
        if place in waits:
            await asyncio.sleep(0)
        yield iter(run)


async def all_of(elements):
    return [element async for element in elements]


@both
@given(runs=st.lists(st.lists(st.integers(), max_size=4), max_size=6), waits=st.sets(st.integers(0, 5)))
def test_elements_come_run_by_run(kind: ModuleType, runs, waits):
    found = asyncio.run(all_of(kind.flatten(brought(runs, waits))))
    assert found == [element for run in runs for element in run]


@both
def test_tuples_and_exceptions_are_elements_like_any_other(kind: ModuleType):
    odd = [(1, 2), StopIteration(3), None, StopAsyncIteration(), ValueError("x")]

    async def main():
        found = []
        elements = kind.flatten(brought([odd]))
        found.append(await anext(elements))
        found += [await asyncio.create_task(one(elements)) for _ in range(4)]
        with pytest.raises(StopAsyncIteration):
            await anext(elements)
        return found

    async def one(elements):
        return await anext(elements)

    assert asyncio.run(main()) == odd


@both
def test_what_the_runs_raise_is_raised(kind: ModuleType):
    def bad_run():
        yield 1
        raise ValueError("in a run")

    async def runs():
        yield bad_run()

    async def bad_runs():
        yield iter([1])
        raise KeyError("between runs")

    async def main(runs, error):
        elements = kind.flatten(runs)
        assert await anext(elements) == 1
        with pytest.raises(error):
            await anext(elements)
        with pytest.raises(StopAsyncIteration):  # it is over
            await anext(elements)

    asyncio.run(main(runs(), ValueError))
    asyncio.run(main(bad_runs(), KeyError))


@both
def test_a_reader_that_is_cancelled_ends_what_brings_the_runs(kind: ModuleType):
    ended = []

    async def runs():
        try:
            yield iter([1])
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main():
        elements = kind.flatten(runs())
        assert await anext(elements) == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(elements)
        assert ended == [True]
        with pytest.raises(StopAsyncIteration):
            await anext(elements)

    asyncio.run(main())


@both
def test_two_tasks_do_not_await_one_iterator(kind: ModuleType):
    async def runs():
        await asyncio.sleep(0.01)
        yield iter([1, 2])

    async def one(elements):
        return await anext(elements)

    async def main():
        elements = kind.flatten(runs())
        found = await asyncio.gather(one(elements), one(elements), return_exceptions=True)
        assert found[0] == 1 and isinstance(found[1], RuntimeError)
        assert await anext(elements) == 2

    asyncio.run(main())


@both
def test_an_iterator_is_closed_with_what_brings_its_runs(kind: ModuleType):
    ended = []

    async def runs():
        try:
            yield iter([1, 2])
        finally:
            ended.append(True)

    async def main():
        elements = kind.flatten(runs())
        assert await anext(elements) == 1
        await elements.aclose()
        assert ended == [True]
        with pytest.raises(StopAsyncIteration):
            await anext(elements)

    asyncio.run(main())


# --- sending ----------------------------------------------------------------------------------------------------------


def encoded(body):
    if body == "bad":
        raise ValueError("bad body")
    return body.encode()


def sender(kind: ModuleType, typed: type = bytes, solo: str | None = None):
    """An end with a batch that takes three bodies, and says what came to the coroutine itself."""

    class Batch(kind.OpenBatch):
        __slots__ = ()

    class Sender(kind.End):
        async def send(self, body, to=None):
            """Sends it."""
            return await self._either("sent", (body,), body, to is None)

        async def publish(self, topic, body, retain=False):
            return await self._either("published", (topic, body), body, topic == self._open.solo and not retain)

        async def _either(self, how, what, body, usual):
            batch = self._open
            if usual and batch is not None and type(body) is batch.type:
                ready = body if type(body) is bytes else encoded(body)
                if len(ready) <= batch.alike:
                    for found in batch.ids:
                        batch.pending.append(ready)
                        return found
            self.slow.append(what)
            await asyncio.sleep(0)
            return how

        send = kind.sends(send, encoded)
        publish = kind.publishes(publish, encoded)

    made = Sender()
    made.slow = []
    made._open = batch = Batch()
    batch.type, batch.alike, batch.pending, batch.solo = typed, 3, [], solo
    batch.ids = zip(repeat("me"), range(3))
    return made


@both
def test_a_body_that_the_batch_takes_is_appended(kind: ModuleType):
    async def main():
        end = sender(kind)
        assert [await end.send(body) for body in (b"a", b"bcd", b"")] == [("me", 0), ("me", 1), ("me", 2)]
        assert end._open.pending == [b"a", b"bcd", b""] and end.slow == []
        assert await end.send(b"x") == "sent"  # no identity is left
        assert end.slow == [(b"x",)]

    asyncio.run(main())


@both
def test_any_other_body_goes_the_long_way(kind: ModuleType):
    async def main():
        end = sender(kind)
        assert await end.send(b"long") == "sent"
        assert await end.send("text") == "sent"
        assert await end.send(bytearray(b"a")) == "sent"
        assert await end.send(b"a", 1) == "sent"
        assert await end.send(b"a", to=1) == "sent"
        assert await end.send(body=b"b") == ("me", 0)
        end._open.type = None
        assert await end.send(b"a") == "sent"
        end._open = None
        assert await end.send(b"a") == "sent"
        with pytest.raises(TypeError):
            await end.send()

    asyncio.run(main())


@both
def test_a_body_of_a_type_is_encoded(kind: ModuleType):
    async def main():
        end = sender(kind, typed=str)
        assert await end.send("ab") == ("me", 0)
        assert end._open.pending == [b"ab"]
        assert await end.send("long") == "sent"
        with pytest.raises(ValueError, match="bad body"):
            await end.send("bad")

    asyncio.run(main())


@both
def test_topics_must_be_those_of_the_batch(kind: ModuleType):
    async def main():
        end = sender(kind, solo="a/b")
        assert await end.publish("/".join("ab"), b"1") == ("me", 0)
        assert await end.publish("a/c", b"2") == "published"
        assert await end.publish("a/b", b"3", True) == "published"
        assert await end.publish("a/b", b"4", retain=True) == "published"
        assert end.slow == [("a/c", b"2"), ("a/b", b"3"), ("a/b", b"4")] and end._open.pending == [b"1"]
        end._open.solo = None
        assert await end.publish("a/b", b"5") == "published"

    asyncio.run(main())


@both
def test_tasks_may_send(kind: ModuleType):
    async def main():
        end = sender(kind)
        task = asyncio.create_task(end.send(b"a"))
        assert "send" in repr(task)
        assert await task == ("me", 0)
        assert await asyncio.gather(end.send(b"b"), end.send(b"long")) == [("me", 1), "sent"]
        assert await asyncio.wait_for(end.send(b"c"), 1) == ("me", 2)
        async with asyncio.TaskGroup() as tasks:
            last = tasks.create_task(end.send(b"d"))
        assert last.result() == "sent"

    asyncio.run(main())


@both
def test_a_call_is_awaited_once_and_not_before(kind: ModuleType):
    async def main():
        end = sender(kind)
        call = end.send(b"a")
        assert end._open.pending == []
        assert await call == ("me", 0)
        with pytest.raises(RuntimeError, match="already awaited"):
            await call
        late = end.send(b"b")
        end._open.alike = -1  # what was true when it was called need not be when it is awaited
        assert await late == "sent"

    asyncio.run(main())


@both
def test_a_call_that_is_never_awaited_sends_nothing_and_warns(kind: ModuleType):
    end = sender(kind)
    with pytest.warns(RuntimeWarning, match=r"coroutine '.*send' was never awaited"):
        end.send(b"a")
    assert end._open.pending == []
    end.send(b"a").close()  # told on purpose


@both
def test_a_call_can_be_cancelled(kind: ModuleType):
    async def main():
        end = sender(kind)
        for body in (b"a", b"long"):
            task = asyncio.create_task(end.send(body))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        running = asyncio.create_task(end.send(b"long"))
        await asyncio.sleep(0)
        assert end.slow == [(b"long",)]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert end._open.pending == []

    asyncio.run(main())


@both
def test_the_method_is_shown_as_the_function_that_it_is(kind: ModuleType):
    end = sender(kind)
    assert inspect.iscoroutinefunction(end.send) and inspect.iscoroutinefunction(type(end).send)
    assert str(inspect.signature(end.send)) == "(body, to=None)"
    assert inspect.getdoc(end.send) == "Sends it."
    assert end.send.__name__ == "send"


@both
def test_nothing_is_kept_of_what_was_sent_and_read(kind: ModuleType):
    body, end = b"abc", sender(kind)

    async def send():
        for _ in range(1_000):
            end._open.ids = zip(repeat("me"), count())
            await end.send(body)
            await end.send(body, 1)
            end._open.pending.clear()
            end.slow.clear()

    async def read():
        elements = kind.flatten(brought([[body] * 10] * 100))
        return [element async for element in elements]

    asyncio.run(send())
    gc.collect()
    before = sys.getrefcount(body)
    asyncio.run(send())
    asyncio.run(read())
    gc.collect()
    assert sys.getrefcount(body) <= before
