"""What is drained before a bus is closed: each part, in one time for all."""

import asyncio

import pytest

from pluribus.core.errors import Uncertain, Undelivered
from pluribus.runtime.loop.draining import LEAST_S, each_drained
from tests.harness import on_a_loop


@on_a_loop
async def test_what_one_part_cannot_deliver_keeps_no_other_back():
    drained = []

    async def fails(timeout: float) -> None:
        raise Undelivered("events wait")

    async def works(timeout: float) -> None:
        drained.append(timeout)

    async def is_unsure(timeout: float) -> None:
        raise Uncertain("perhaps not on disk", (1, 2))

    with pytest.raises(Undelivered, match="events wait") as raised:
        await each_drained([fails, works, is_unsure, works], 5)
    assert raised.value.__notes__ == ["perhaps not on disk"]
    assert len(drained) == 2
    await each_drained([works], 5)


@on_a_loop
async def test_the_time_is_for_all_of_them():
    times = []

    async def takes_a_while(timeout: float) -> None:
        times.append(timeout)
        await asyncio.sleep(0.05)

    await each_drained([takes_a_while] * 3, 0.12)
    first, second, third = times
    assert first == pytest.approx(0.12, abs=0.01)
    assert second == LEAST_S == third, "what is left is less than a part has in any case"
    times.clear()
    await each_drained([takes_a_while] * 2, 10)
    assert 9 < times[1] <= times[0] - 0.04
    times.clear()
    await each_drained([takes_a_while], 0.01)
    assert times == [0.01]
