"""Object groups: one object stands for all; the first result, or all of them; the interface is kept at home."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import AnswersLate, NoMembers, RemoteError
from tests.harness import new_bus, on_a_loop, two
from tests.runtime.group.test_asking import asked


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @pluribus.exposed
    async def add(self, number: int, *, twice: bool = False) -> int:
        self.count += number * (1 + twice)
        return self.count

    @pluribus.exposed
    async def fail(self) -> None:
        raise LookupError("nothing here")

    @pluribus.exposed
    async def never(self) -> None:
        await asyncio.Event().wait()


@on_a_loop
async def test_first_all_and_majority():
    async with two(stack="views") as (a, b):
        counters = [Counter(), Counter()]
        one, other = await asyncio.gather(
            *[
                bus.objects("counters", Counter, serve=counter, order="total")
                for bus, counter in zip((a, b), counters, strict=True)
            ]
        )
        await (await a.group("counters", order="total")).wait_for(2)
        assert await one.add(1) == 1
        assert await other.first.add(2, twice=True) == 5
        answers = await one.all.add(0)
        assert [answer.body for answer in answers] == [5, 5] and isinstance(answers, pluribus.Answers)
        assert len(await other.majority.add(1)) == 2
        await asyncio.gather(*[proxy.add(1) for proxy in (one, other) * 10])
        assert (await one.all.add(0))[1].body == counters[0].count == counters[1].count == 26
        with pytest.raises(RemoteError, match="LookupError"):
            await one.fail()


@on_a_loop
async def test_the_interface_is_checked_before_anything_is_sent():
    async with asked(2) as (one, other):
        other.serve(Counter())
        counters = one.proxy(Counter, timeout=0.05)
        with pytest.raises(AttributeError, match="Counter has no method 'subtract'"):
            _ = counters.subtract
        with pytest.raises(AttributeError):
            _ = counters.first._hidden
        with pytest.raises(TypeError, match="missing"):
            await counters.add()
        with pytest.raises(AnswersLate):
            await counters.never()
        with pytest.raises(RemoteError, match="BadInput"):
            await one.proxy().subtract(1)


@on_a_loop
async def test_a_group_without_objects():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        counters = await bus.objects("counters", Counter)
        assert "counters" in repr(counters)
        with pytest.raises(NoMembers):
            await counters.add(1)
