"""Reading: an async iterator over runs, in Python and in C. Both answer alike."""

import asyncio
import shutil
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus._speed import quick
from tests._speed.both_ends import both, brought, compiled


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, so Python has to do")
def test_where_there_is_a_compiler_it_was_used():
    assert quick.COMPILED
    assert quick.flatten is compiled.flatten


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


@both
def test_an_iterator_that_raised_is_over(kind: ModuleType):
    def bad_run(error):
        yield 1
        raise error

    async def main():
        for runs in ([bad_run(ValueError()), [2]], [bad_run(StopAsyncIteration()), [2]], [[1], 3, [2]]):
            elements = kind.flatten(each(runs))
            assert await anext(elements) == 1
            with pytest.raises((ValueError, TypeError, RuntimeError)):
                await anext(elements)
            with pytest.raises(StopAsyncIteration):
                await anext(elements)
        for error, raised in ((KeyError(), KeyError), (StopIteration(1), RuntimeError)):
            elements = kind.flatten(each([[1], [2]]))
            assert await anext(elements) == 1
            with pytest.raises(raised):
                anext(elements).throw(error)
            with pytest.raises(StopAsyncIteration):
                await anext(elements)

    async def each(runs):
        for run in runs:
            yield run

    asyncio.run(main())


@both
def test_what_was_asked_for_before_is_awaited_one_by_one(kind: ModuleType):
    async def main():
        elements = kind.flatten(brought([[1], [2, 3]], waits=[0, 1]))
        first, second = anext(elements), anext(elements)
        assert await second == 1
        assert await first == 2
        for again in (first, second):
            with pytest.raises(RuntimeError, match="cannot reuse"):
                await again
        assert await all_of(elements) == [3]

    asyncio.run(main())


@both
def test_a_task_does_not_go_on_in_the_place_of_another(kind: ModuleType):
    async def main():
        ready = asyncio.Event()

        async def runs():
            await ready.wait()
            yield iter([1, 2])

        for early in (True, False):
            ready.clear()
            elements = kind.flatten(runs())
            first = asyncio.create_task(anext(elements))
            if not early:
                await asyncio.sleep(0)
            second = asyncio.create_task(anext(elements))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second.cancel()
            ready.set()
            with pytest.raises(RuntimeError):
                await second
            assert await first == 1
            assert await asyncio.create_task(anext(elements)) == 2

    asyncio.run(main())


@both
def test_runs_do_not_come_back_to_who_reads_them(kind: ModuleType):
    refused = []

    def back():
        for use in (lambda: anext(elements).send(None), lambda: step.throw(KeyError()), step.close):
            try:
                use()
            except (RuntimeError, ValueError) as error:
                refused.append(error)

    def run():
        back()
        yield 1

    async def runs():
        back()
        yield run()

    async def main():
        nonlocal elements, step
        elements = kind.flatten(runs())
        step = anext(elements)
        return await step

    elements = step = None
    assert asyncio.run(main()) == 1
    assert len(refused) >= 2
